"""Optuna's Gaussian process, the method `gp`.

Of all methods the most thrifty with trials and the slowest to ask; it needs torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler

from ...spaces.space import Space
from ..streams import generator, integer
from .contract import Batch, Draw, Past, SamplerSpec, checked_options
from .history_window import Window
from .optuna_storage import HistoryStorage
from .via_optuna import OptunaBatch, OptunaMethod

__all__ = ["Gp", "GpBatch", "build"]


class Gp(OptunaMethod):
    """Bayesian optimisation by a Gaussian process (Matern 5/2, log expected improvement).

    Its time grows with the third power of what it sees, hence a small window. Conditional
    parameters are outside of its model and drawn at random.
    """

    window = Window(best=60, latest=140)

    def _sampler(self, batch: int) -> BaseSampler:
        warnings.filterwarnings("ignore", message=".*deterministic", category=ExperimentalWarning)
        return GPSampler(
            seed=integer(self._seed, "gp", batch), warn_independent_sampling=False, **self._options
        )

    def _open(
        self, storage: HistoryStorage, sampler: BaseSampler, history: Sequence[Past], shift: int
    ) -> Batch:
        return GpBatch(self._space, sampler, storage, shift, self._seed)


class GpBatch(OptunaBatch):
    """A batch in which a draw that was refused counts as running for the next attempts.

    Else the model would propose the very same point again. After a few attempts it is asked no
    more: what it likes best is forbidden or known.
    """

    _ATTEMPTS = 8

    def __init__(
        self, space: Space, sampler: BaseSampler, storage: HistoryStorage, shift: int, seed: int
    ):
        super().__init__(space, sampler, storage, shift)
        self._seed, self._refused = seed, 0

    def draw(self, trial: int, attempt: int) -> Draw | None:
        """See `Batch.draw`."""
        if attempt >= self._ATTEMPTS:
            return Draw(self._space.draw(generator(self._seed, "gp-refused", trial, attempt)))
        if attempt == 0:
            self._forget()
        elif self._open is not None:
            self._refused, self._open = self._refused + 1, None
        return super().draw(trial, attempt)

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch.keep`."""
        self._forget()
        super().keep(trial, params)

    def _forget(self) -> None:
        """Drop the last draw, and those refused before it."""
        self._drop()
        for _ in range(self._refused):
            self._storage.drop_last()
        self._refused = 0


def build(spec: SamplerSpec) -> Gp:
    """Build the method `gp`; its options are those of `optuna.samplers.GPSampler`."""
    return Gp(spec, checked_options("gp", spec.options))
