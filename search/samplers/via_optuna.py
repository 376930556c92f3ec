"""The door to Optuna, whose samplers propose from a history that this project keeps.

Every batch gets a new sampler object, seeded by (seed, batch number), and a study built from the
history as it is then; so proposals repeat after a resume and nothing of Optuna's is ever stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from ...spaces.space import Space
from ...spaces.to_optuna import internal_params, suggest
from ...store.rows import TrialState
from .contract import Batch, Draw, Past, SamplerSpec
from .history_window import Window, estimates
from .optuna_storage import HistoryStorage

__all__ = ["OptunaBatch", "OptunaMethod", "frozen_trial"]

_STATES = optuna.trial.TrialState


def frozen_trial(
    space: Space,
    past: Past,
    number: int | None = None,
    losses: Sequence[float] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """Return a trial as Optuna's `FrozenTrial`.

    A stopped trial is pruned with its reports, a diverged one pruned without any (which ranks it
    last, where a failed one would be ignored), and one that met an error has failed.

    Args:
        space: of the study.
        past: the trial.
        number: its number over there; None takes its own.
        losses: one an objective, for a trial that is to count as finished.
        attributes: system attributes.
    """
    params, distributions = internal_params(space, past.params)
    number = past.trial if number is None else number
    state, reports = _STATES.PRUNED, past.reports
    if past.is_live:
        state, reports, losses = _STATES.RUNNING, (), None
    elif losses is not None:
        state = _STATES.COMPLETE
    elif past.state is TrialState.FAILED:
        state, reports = _STATES.FAIL, ()
    elif past.state is TrialState.DIVERGED:
        reports = ()
    elif past.state is TrialState.FINISHED:
        state, losses = _STATES.COMPLETE, past.losses
    return FrozenTrial(
        number=number,
        state=state,
        value=None,
        values=losses,
        datetime_start=None,
        datetime_complete=None,
        params=params,
        distributions=distributions,
        user_attrs={},
        system_attrs=dict(attributes or {}),
        intermediate_values=dict(enumerate(reports)),
        trial_id=number,
    )


class OptunaMethod:
    """What Optuna's methods share: from the history to a batch.

    Attributes:
        window: the part of the history that the sampler sees.
        understands_stopped: pruned trials are told as such; else every trial that has ended
            counts as finished, with the loss that `estimates` gives it.
    """

    window = Window(best=200, latest=800)
    understands_stopped = False

    def __init__(self, spec: SamplerSpec, options: Mapping[str, Any]):
        self._space, self._seed, self._options = spec.space, spec.seed, dict(options)
        self._objectives, self._constraints = spec.objectives, spec.constraints
        self._frozen: dict[int, tuple[tuple[TrialState, int], FrozenTrial]] = {}

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        """See `Sampler.begin`."""
        seen = self.window.of(history)
        shift = max(0, -history[0].trial) if history else 0  # numbers over there begin at 0
        if self.understands_stopped:
            trials = [self._told(past, shift) for past in seen]
        else:
            trials = self._all_finished(seen, shift, self._attributes(history))
        storage = HistoryStorage(
            [StudyDirection.MINIMIZE] * self._objectives, trials, self._system(history, shift)
        )
        return self._open(storage, self._sampler(batch), history, shift)

    def _sampler(self, batch: int) -> BaseSampler:
        raise NotImplementedError

    def _open(
        self, storage: HistoryStorage, sampler: BaseSampler, history: Sequence[Past], shift: int
    ) -> Batch:
        return OptunaBatch(self._space, sampler, storage, shift)

    def _attributes(self, history: Sequence[Past]) -> Mapping[int, Mapping[str, Any]]:
        """Return the system attributes of trials."""
        return {}

    def _system(self, history: Sequence[Past], shift: int) -> Mapping[str, Any]:
        """Return the system attributes of the study."""
        return {}

    def _told(self, past: Past, shift: int) -> FrozenTrial:
        """Return a trial as Optuna sees it, the last batch's unless more is known since."""
        known, here = self._frozen.get(past.trial), (past.state, len(past.reports))
        if known is None or known[0] != here:
            attributes = _constraints(past.violations)
            trial = frozen_trial(self._space, past, past.trial + shift, None, attributes)
            known = self._frozen[past.trial] = (here, trial)
        return known[1]

    def _all_finished(
        self, seen: Sequence[Past], shift: int, attributes: Mapping[int, Mapping[str, Any]]
    ) -> list[FrozenTrial]:
        losses = estimates(seen)
        missing = self._worst_violations(seen)
        trials: list[FrozenTrial] = []
        for past in seen:
            told = losses.get(past.trial)
            if told is None and not past.is_live:
                continue  # it tells nothing
            own = dict(attributes.get(past.trial, {}))
            if told is not None and self._constraints:
                own |= _constraints(past.violations or missing)
            trials.append(frozen_trial(self._space, past, past.trial + shift, told, own))
        return trials

    def _worst_violations(self, seen: Sequence[Past]) -> tuple[float, ...]:
        """Return what a trial whose constraints nobody measured counts for: it diverged."""
        known = [past.violations for past in seen if past.violations]
        worst = [max(column) for column in zip(*known, strict=True)] or [1.0] * self._constraints
        return tuple(max(1.0, violation) for violation in worst)


def _constraints(violations: Sequence[float]) -> dict[str, Any]:
    return {f"constraints:{index}": value for index, value in enumerate(violations)}


class OptunaBatch:
    """One batch drawn by one Optuna sampler from one history."""

    def __init__(self, space: Space, sampler: BaseSampler, storage: HistoryStorage, shift: int):
        self._space, self._storage, self._shift = space, storage, shift
        self._study = optuna.load_study(
            study_name=HistoryStorage.NAME, storage=storage, sampler=sampler
        )
        self._open: optuna.Trial | None = None

    def draw(self, trial: int, attempt: int) -> Draw | None:
        """See `Batch.draw`."""
        self._drop()
        self._open = self._study.ask()
        return Draw(suggest(self._open, self._space), self._note(self._open))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch.keep`; what runs from now on counts as running for the next draws."""
        self._drop()
        past = Past(trial, params)
        self._storage.append(frozen_trial(self._space, past, trial + self._shift))

    def _note(self, trial: optuna.Trial) -> dict[str, Any]:
        """Return what to remember of a draw."""
        return {}

    def _drop(self) -> None:
        if self._open is not None:
            self._storage.drop_last()
            self._open = None
