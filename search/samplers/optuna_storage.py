"""A storage for Optuna that holds one study given whole: no copies, no checks, no locks.

Optuna's own in-memory storage copies and validates every trial added to it, which would cost five
proposals' time a batch at a thousand trials; here a batch shares the frozen trials of the last.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

__all__ = ["HistoryStorage"]

_STUDY_ID = 0


class HistoryStorage(BaseStorage):
    """One study; trials may be appended, and the last one dropped again.

    Args:
        directions: one an objective.
        trials: by number, each with its number as identifier; never changed in here.
        system: system attributes of the study.
    """

    NAME = "history"

    def __init__(
        self,
        directions: Sequence[StudyDirection],
        trials: Sequence[FrozenTrial],
        system: Mapping[str, Any] | None = None,
    ):
        self._directions = list(directions)
        self._trials = list(trials)
        self._by_id = {trial.number: trial for trial in trials}
        self._user: dict[str, Any] = {}
        self._system: dict[str, Any] = dict(system or {})

    def append(self, trial: FrozenTrial) -> None:
        """Add a trial whose number is above all others."""
        self._trials.append(trial)
        self._by_id[trial.number] = trial

    def drop_last(self) -> None:
        """Forget the trial added last."""
        del self._by_id[self._trials.pop().number]

    # ------------------------------------------------------------------ the study

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        """Refuse: the one study is there."""
        raise NotImplementedError("this storage holds one study only")

    def delete_study(self, study_id: int) -> None:
        """Refuse: the one study stays."""
        raise NotImplementedError("this storage holds one study only")

    def get_study_id_from_name(self, study_name: str) -> int:
        """See `BaseStorage`."""
        return _STUDY_ID

    def get_study_name_from_id(self, study_id: int) -> str:
        """See `BaseStorage`."""
        return self.NAME

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """See `BaseStorage`."""
        return list(self._directions)

    def get_all_studies(self) -> list[Any]:
        """Refuse: nobody lists studies here."""
        raise NotImplementedError("this storage holds one study only")

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """See `BaseStorage`."""
        self._user[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """See `BaseStorage`."""
        self._system[key] = value

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """See `BaseStorage`."""
        return self._user

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """See `BaseStorage`."""
        return self._system

    # ------------------------------------------------------------------ its trials

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """See `BaseStorage`; the number follows the last one."""
        number = self._trials[-1].number + 1 if self._trials else 0
        if template_trial is not None:
            raise NotImplementedError("trials come whole, by `append`")
        self.append(running_trial(number))
        return number

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        """See `BaseStorage`."""
        trial = self._by_id[trial_id]
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Refuse: trials end by a new history, not in this one."""
        raise NotImplementedError("trials of a batch stay running; ended ones come with the next")

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        """See `BaseStorage`."""
        self._by_id[trial_id].intermediate_values[step] = intermediate_value

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """See `BaseStorage`."""
        self._by_id[trial_id].user_attrs[key] = value

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """See `BaseStorage`."""
        self._by_id[trial_id].system_attrs[key] = value

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """See `BaseStorage`."""
        return self._by_id[trial_id]

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """See `BaseStorage`."""
        found = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found


def running_trial(number: int) -> FrozenTrial:
    """Return a trial that runs and has no parameters yet."""
    return FrozenTrial(number, TrialState.RUNNING, None, None, None, {}, {}, {}, {}, {}, number)
