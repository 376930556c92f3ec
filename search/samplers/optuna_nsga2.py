"""Optuna's genetic algorithm for several objectives, the method `nsga2`.

What it keeps between batches is in the attributes of trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler, NSGAIISampler

from ...spaces.space import Space
from ..streams import integer
from .contract import Batch, Draw, Past, SamplerSpec, checked_options
from .history_window import Window
from .optuna_storage import HistoryStorage
from .via_optuna import OptunaBatch, OptunaMethod

__all__ = ["Nsga2", "build"]


class Nsga2(OptunaMethod):
    """NSGA-II (Deb et al. 2002): generations of parents, crossover and mutation.

    Each trial remembers its generation, and the first of a generation who its parents are
    (`nsga2:generation`, `nsga2:parents`), so nothing needs to be replayed. Trials of another
    source (the default, enqueued, random) belong to the generation they were proposed in.
    """

    window = Window(best=200, latest=1_600)
    _GENERATION, _PARENTS = "nsga2:generation", "nsga2:parents"
    _THEIR_GENERATION, _THEIR_PARENTS = "NSGAIISampler:generation", "NSGAIISampler:parent:"

    def _sampler(self, batch: int) -> BaseSampler:
        return NSGAIISampler(seed=integer(self._seed, "nsga2", batch), **self._options)

    def _attributes(self, history: Sequence[Past]) -> Mapping[int, Mapping[str, Any]]:
        found: dict[int, Mapping[str, Any]] = {}
        latest = 0
        for past in history:
            latest = max(latest, past.attributes.get(self._GENERATION, 0))
            own = past.attributes.get(self._GENERATION, latest)
            found[past.trial] = {self._THEIR_GENERATION: own}
        return found

    def _system(self, history: Sequence[Past], shift: int) -> Mapping[str, Any]:
        return {
            f"{self._THEIR_PARENTS}{generation}": [trial + shift for trial in parents]
            for generation, parents in self._known(history).items()
        }

    def _known(self, history: Sequence[Past]) -> dict[int, list[int]]:
        known: dict[int, list[int]] = {}
        for past in history:
            if self._PARENTS in past.attributes:
                generation = past.attributes[self._GENERATION]
                known.setdefault(generation, past.attributes[self._PARENTS])
        return known

    def _open(
        self, storage: HistoryStorage, sampler: BaseSampler, history: Sequence[Past], shift: int
    ) -> Batch:
        return _Nsga2Batch(self._space, sampler, storage, shift, {0, *self._known(history)})


class _Nsga2Batch(OptunaBatch):
    """A batch that says of what generation its draws are."""

    def __init__(
        self,
        space: Space,
        sampler: BaseSampler,
        storage: HistoryStorage,
        shift: int,
        known: set[int],
    ):
        super().__init__(space, sampler, storage, shift)
        self._known = known
        self._last: Draw | None = None

    def draw(self, trial: int, attempt: int) -> Draw | None:
        self._last = super().draw(trial, attempt)
        return self._last

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        last = self._last
        if last is not None and Nsga2._PARENTS in last.attributes and last.params == params:
            self._known.add(last.attributes[Nsga2._GENERATION])
        self._last = None
        super().keep(trial, params)

    def _note(self, trial: optuna.Trial) -> dict[str, Any]:
        number = trial.number
        attributes = self._storage.get_trial(number).system_attrs
        generation = attributes.get(Nsga2._THEIR_GENERATION, 0)
        note: dict[str, Any] = {Nsga2._GENERATION: generation}
        if generation not in self._known:
            parents = self._storage.get_study_system_attrs(0)[
                f"{Nsga2._THEIR_PARENTS}{generation}"
            ]
            note[Nsga2._PARENTS] = [parent - self._shift for parent in parents]
        return note


def build(spec: SamplerSpec) -> Nsga2:
    """Build the method `nsga2`; its options are those of `optuna.samplers.NSGAIISampler`.

    Raises:
        ConfigError: an option is unknown or out of range.
    """
    return Nsga2(spec, checked_options("nsga2", spec.options))
