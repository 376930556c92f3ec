"""The door to Optuna: its samplers propose, from a history that this project keeps.

Every batch gets a new sampler object, seeded by (seed, batch number), and a study built from the
history as it is then; so proposals repeat after a resume and nothing of Optuna's is ever stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from ..spaces.space import Space
from ..spaces.to_optuna import internal_params, suggest
from ..store.rows import TrialState
from .optuna_storage import HistoryStorage
from .sampler import Batch, Draw, Past, SamplerSpec, checked_options
from .streams import integer

__all__ = ["BEST", "LATEST", "Tpe", "bounded", "build", "frozen_trial"]

BEST, LATEST = 200, 800
_LIVE = (TrialState.WAITING, TrialState.RUNNING)
_TPE_OPTIONS: Mapping[str, Any] = {
    "multivariate": True,
    "group": True,
    "constant_liar": True,
    "n_startup_trials": 10,
    "n_ei_candidates": 24,
}


def bounded(history: Sequence[Past], best: int = BEST, latest: int = LATEST) -> list[Past]:
    """Give the part of the history that a sampler sees, by number: live, best and latest trials.

    The time of a TPE proposal grows with what it sees; a thousand trials keep it near 15 ms.
    """
    live = [past for past in history if past.state in _LIVE]
    ended = [past for past in history if past.state not in _LIVE]
    if len(ended) > best + latest:
        older, newer = ended[:-latest], ended[-latest:]
        finished = [past for past in older if past.loss is not None]
        finished.sort(key=lambda past: (past.loss, past.trial))
        ended = finished[:best] + newer
    return sorted(ended + live, key=lambda past: past.trial)


def frozen_trial(space: Space, past: Past) -> FrozenTrial:
    """Say a trial in Optuna's words.

    A stopped trial is pruned with its reports, a diverged one pruned without any (which ranks it
    last, where a failed one would be ignored), and one that met an error has failed.
    """
    params, distributions = internal_params(space, past.params)
    state, value, reports = optuna.trial.TrialState.PRUNED, None, past.reports
    if past.state in _LIVE:
        state, reports = optuna.trial.TrialState.RUNNING, ()
    elif past.state is TrialState.FAILED:
        state, reports = optuna.trial.TrialState.FAIL, ()
    elif past.state is TrialState.DIVERGED:
        reports = ()
    elif past.state is TrialState.FINISHED:
        state, value = optuna.trial.TrialState.COMPLETE, past.loss
    return FrozenTrial(
        number=past.trial,
        state=state,
        value=value,
        datetime_start=None,
        datetime_complete=None,
        params=params,
        distributions=distributions,
        user_attrs={},
        system_attrs={},
        intermediate_values=dict(enumerate(reports)),
        trial_id=past.trial,
    )


class Tpe:
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate and grouped.

    Running trials count as bad ones (the constant liar), so that the many proposals of one batch
    spread out.
    """

    adaptive = True

    def __init__(self, space: Space, seed: int, options: Mapping[str, Any]):
        self._space, self._seed, self._options = space, seed, dict(options)
        if not any(parameter.when for parameter in space.parameters):
            self._options["group"] = False  # one group anyway; looking for more costs a fifth
        self._frozen: dict[int, tuple[TrialState, FrozenTrial]] = {}

    def begin(self, batch: int, history: Sequence[Past]) -> Batch:
        """See `Sampler.begin`."""
        trials = [self._freeze(past) for past in bounded(history)]
        return OptunaBatch(self._space, self._sampler(batch), trials)

    def _freeze(self, past: Past) -> FrozenTrial:
        known = self._frozen.get(past.trial)
        if known is None or known[0] is not past.state:
            known = self._frozen[past.trial] = (past.state, frozen_trial(self._space, past))
        return known[1]

    def _sampler(self, batch: int) -> BaseSampler:
        for option in ("multivariate", "group", "constant_liar"):
            warnings.filterwarnings("ignore", message=f".*{option}", category=_EXPERIMENTAL)
        return TPESampler(seed=integer(self._seed, "tpe", batch), **self._options)


class OptunaBatch:
    """One batch drawn by one Optuna sampler from one history."""

    def __init__(self, space: Space, sampler: BaseSampler, trials: Sequence[FrozenTrial]):
        self._space = space
        self._storage = HistoryStorage(StudyDirection.MINIMIZE, trials)
        self._study = optuna.load_study(
            study_name=HistoryStorage.NAME, storage=self._storage, sampler=sampler
        )
        self._open: optuna.Trial | None = None

    def draw(self, trial: int, attempt: int) -> Draw | None:
        """See `Batch.draw`."""
        self._drop()
        self._open = self._study.ask()
        return Draw(suggest(self._open, self._space))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch.keep`; what runs from now on counts as running for the next draws."""
        self._drop()
        self._storage.append(frozen_trial(self._space, Past(trial, params)))

    def _drop(self) -> None:
        if self._open is not None:
            self._storage.drop_last()
            self._open = None


_EXPERIMENTAL = optuna.exceptions.ExperimentalWarning


def build(spec: SamplerSpec) -> Tpe:
    """Build the method `tpe`; its options are those of `optuna.samplers.TPESampler`."""
    return Tpe(spec.space, spec.seed, checked_options("tpe", spec.options, _TPE_OPTIONS))
