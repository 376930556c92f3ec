"""The door to Optuna, whose samplers propose from a history that this project keeps.

Every batch gets a new sampler object, seeded by (seed, batch number), and a study built from the
history as it is then; so proposals repeat after a resume and nothing of Optuna's is ever stored.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Container, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from ...spaces.space import Space
from ...spaces.via_optuna import internal_params, suggest
from ...store.rows import TrialState
from ..seeds import generator, integer
from .history_window import Window, estimates
from .registry import Batch, Draw, Past, SamplerSpec, options_of

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
        self, trial_id: int, state: OptunaState, values: Sequence[float] | None = None
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
        states: Container[OptunaState] | None = None,
    ) -> list[FrozenTrial]:
        """See `BaseStorage`."""
        found = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found


def running_trial(number: int) -> FrozenTrial:
    """Return a trial that runs and has no parameters yet."""
    return FrozenTrial(number, OptunaState.RUNNING, None, None, None, {}, {}, {}, {}, {}, number)


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


def build_gp(spec: SamplerSpec) -> Gp:
    """Build the method `gp`; its options are those of `optuna.samplers.GPSampler`."""
    return Gp(spec, options_of("gp", spec.options))


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


def build_nsga2(spec: SamplerSpec) -> Nsga2:
    """Build the method `nsga2`; its options are those of `optuna.samplers.NSGAIISampler`.

    Raises:
        ConfigError: an option is unknown or out of range.
    """
    return Nsga2(spec, options_of("nsga2", spec.options))


class Tpe(OptunaMethod):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate and grouped.

    Running trials count as bad ones (the constant liar), so that the many proposals of one batch
    spread out.
    """

    def __init__(self, spec: SamplerSpec, options: Mapping[str, Any]):
        super().__init__(spec, options)
        self.understands_stopped = spec.objectives == 1
        conditional = any(parameter.when for parameter in spec.space.parameters)
        if not conditional or not self._options["multivariate"]:
            self._options["group"] = False  # one group anyway; looking for more costs a fifth

    def _sampler(self, batch: int) -> BaseSampler:
        for option in ("multivariate", "group", "constant_liar"):
            warnings.filterwarnings("ignore", message=f".*{option}", category=ExperimentalWarning)
        return TPESampler(seed=integer(self._seed, "tpe", batch), **self._options)


def build_tpe(spec: SamplerSpec) -> Tpe:
    """Build the method `tpe`; its options are those of `optuna.samplers.TPESampler`."""
    return Tpe(spec, options_of("tpe", spec.options))
