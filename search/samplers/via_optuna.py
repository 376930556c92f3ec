"""Optuna's samplers, which propose from a history kept by this package.

Every batch gets a new sampler object, seeded by (seed, batch number), and a study built from the
current history. So proposals repeat after resuming, and no Optuna state is stored.
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

from ...spaces.space import Space
from ...spaces.via_optuna import internal_params, suggest
from ...store.rows import TrialState
from ..seeds import generator, integer
from .history_window import Window, estimates
from .registry import Draw, PriorTrial, ProposalBatch, SamplerSpec, options_of

_STUDY_ID = 0
_STATES = optuna.trial.TrialState


class HistoryStorage(BaseStorage):
    """A storage with one study; trials may be appended, and the last one removed again."""

    NAME = "history"

    def __init__(
        self,
        directions: Sequence[StudyDirection],
        trials: Sequence[FrozenTrial],
        system: Mapping[str, Any] | None = None,
    ):
        self._directions = list(directions)
        self._trials = {trial.number: trial for trial in trials}  # in list order
        self._system: dict[str, Any] = dict(system or {})

    def append(self, trial: FrozenTrial) -> None:
        self._trials[trial.number] = trial

    def drop_last(self) -> None:
        self._trials.popitem()

    def _raise_unsupported(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "not supported: this storage has a single study, and its trials cannot be changed; "
            "create a new HistoryStorage instead"
        )

    create_new_study = delete_study = get_all_studies = set_trial_state_values = _raise_unsupported
    set_study_user_attr = set_trial_user_attr = set_trial_intermediate_value = _raise_unsupported

    def get_study_id_from_name(self, study_name: str) -> int:
        return _STUDY_ID

    def get_study_name_from_id(self, study_id: int) -> str:
        return self.NAME

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return list(self._directions)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._system[key] = value

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return {}

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._system

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """See `BaseStorage`; the new trial gets the next number."""
        number = next(reversed(self._trials), -1) + 1
        if template_trial is not None:
            raise NotImplementedError(
                "not supported: trials can only be added complete, with `append`"
            )
        empty = FrozenTrial(number, _STATES.RUNNING, None, None, None, {}, {}, {}, {}, {}, number)
        self.append(empty)
        return number

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        trial = self._trials[trial_id]
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._trials[trial_id].system_attrs[key] = value

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[_STATES] | None = None
    ) -> list[FrozenTrial]:
        everyone = self._trials.values()
        found = [trial for trial in everyone if states is None or trial.state in states]
        if deepcopy:
            return copy.deepcopy(found)
        return found


def frozen_trial(
    space: Space,
    past: PriorTrial,
    number: int | None = None,
    losses: Sequence[float] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """Convert a trial to an Optuna `FrozenTrial`.

    A stopped trial becomes PRUNED with its reports. A diverged trial becomes PRUNED without
    reports, which ranks it last. A failed trial becomes FAIL, which samplers ignore.
    """
    params, distributions = internal_params(space, past.params)
    if number is None:
        number = past.trial
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
        trial_id=number,
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
    )


class OptunaMethod:
    """The base class of Optuna methods, which turn the trial history into a batch of proposals."""

    name = ""
    window = Window(best=200, latest=800)  # the part of the history that the sampler receives
    # Whether Optuna receives pruned trials as pruned. Otherwise every trial that has ended counts
    # as finished, with its loss from `estimates`.
    understands_stopped = False

    def __init__(self, spec: SamplerSpec):
        self.space, self.seed = spec.space, spec.seed
        self._options = options_of(self.name, spec.options)
        self._objectives, self._constraints = spec.objectives, spec.constraints
        self._frozen: dict[int, tuple[tuple[TrialState, int], FrozenTrial]] = {}

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> ProposalBatch:
        selected = self.window.of(history)
        shift = 0  # Optuna's numbers begin at 0
        if history:
            shift = max(0, -history[0].trial)
        if self.understands_stopped:
            trials = [self._to_frozen_trial(past, shift) for past in selected]
        else:
            trials = self._all_finished(selected, shift, self._attributes_by_trial(history))
        storage = HistoryStorage(
            [StudyDirection.MINIMIZE] * self._objectives,
            trials,
            self._system_attributes(history, shift),
        )
        sampler = self._make_sampler(integer(self.seed, self.name, batch))
        return self._make_batch(sampler, storage, shift)

    def _make_sampler(self, seed: int) -> BaseSampler:
        raise NotImplementedError

    def _make_batch(
        self, sampler: BaseSampler, storage: HistoryStorage, shift: int
    ) -> OptunaBatch:
        return OptunaBatch(self, sampler, storage, shift)

    def _attributes_by_trial(
        self, history: Sequence[PriorTrial]
    ) -> Mapping[int, Mapping[str, Any]]:
        return {}

    def _system_attributes(self, history: Sequence[PriorTrial], shift: int) -> Mapping[str, Any]:
        return {}

    def _to_frozen_trial(self, past: PriorTrial, shift: int) -> FrozenTrial:
        """Return a trial in Optuna's form, cached until its state or reports change."""
        known, here = self._frozen.get(past.trial), (past.state, len(past.reports))
        if known is None or known[0] != here:
            attributes = _constraint_attributes(past.violations)
            trial = frozen_trial(self.space, past, past.trial + shift, None, attributes)
            known = self._frozen[past.trial] = (here, trial)
        return known[1]

    def _all_finished(
        self,
        selected: Sequence[PriorTrial],
        shift: int,
        attributes: Mapping[int, Mapping[str, Any]],
    ) -> list[FrozenTrial]:
        losses = estimates(selected)
        missing = self._worst_violations(selected)
        trials: list[FrozenTrial] = []
        for past in selected:
            trial_losses = losses.get(past.trial)
            if trial_losses is None and not past.is_live:
                continue  # it carries no information
            own = dict(attributes.get(past.trial, {}))
            if trial_losses is not None and self._constraints:
                own |= _constraint_attributes(past.violations or missing)
            trials.append(frozen_trial(self.space, past, past.trial + shift, trial_losses, own))
        return trials

    def _worst_violations(self, selected: Sequence[PriorTrial]) -> tuple[float, ...]:
        """Return the violations assumed for a trial that diverged before they were measured."""
        known = [past.violations for past in selected if past.violations]
        worst = [max(column) for column in zip(*known, strict=True)] or [1.0] * self._constraints
        return tuple(max(1.0, violation) for violation in worst)


def _constraint_attributes(violations: Sequence[float]) -> dict[str, Any]:
    return {f"constraints:{index}": value for index, value in enumerate(violations)}


class OptunaBatch:
    """One batch drawn by one Optuna sampler from one history."""

    def __init__(
        self, method: OptunaMethod, sampler: BaseSampler, storage: HistoryStorage, shift: int
    ):
        self._method, self._storage, self._shift = method, storage, shift
        self._study = optuna.load_study(
            study_name=HistoryStorage.NAME, storage=storage, sampler=sampler
        )
        self._open: optuna.Trial | None = None

    def draw(self, trial: int, attempt: int) -> Draw | None:
        self._drop_open_trial()
        self._open = self._study.ask()
        return Draw(suggest(self._open, self._method.space), self._note_attributes(self._open))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch.keep`; for the next draws, the trial counts as running."""
        self._drop_open_trial()
        past = PriorTrial(trial, params)
        self._storage.append(frozen_trial(self._method.space, past, trial + self._shift))

    def _note_attributes(self, trial: optuna.Trial) -> dict[str, Any]:
        return {}

    def _drop_open_trial(self) -> None:
        if self._open is not None:
            self._storage.drop_last()
            self._open = None


class Gp(OptunaMethod):
    """Bayesian optimisation with a Gaussian process (Matern 5/2, log expected improvement).

    The time per proposal grows with the cube of the number of trials, so the window is small.
    Conditional parameters are not modelled, but drawn at random.
    """

    name = "gp"
    window = Window(best=60, latest=140)

    def _make_sampler(self, seed: int) -> BaseSampler:
        warnings.filterwarnings("ignore", message=".*deterministic", category=ExperimentalWarning)
        return GPSampler(seed=seed, warn_independent_sampling=False, **self._options)

    def _make_batch(
        self, sampler: BaseSampler, storage: HistoryStorage, shift: int
    ) -> OptunaBatch:
        return GpBatch(self, sampler, storage, shift)


class GpBatch(OptunaBatch):
    """A batch in which a rejected draw counts as a running trial in the next attempts.

    Otherwise the model would propose the same point again. After a few attempts the model is no
    longer used, because the points that it prefers are forbidden or already proposed.
    """

    _ATTEMPTS = 8
    _refused = 0

    def draw(self, trial: int, attempt: int) -> Draw | None:
        if attempt >= self._ATTEMPTS:
            rng = generator(self._method.seed, "gp-refused", trial, attempt)
            return Draw(self._method.space.draw(rng))
        if attempt == 0:
            self._drop_refused()
        elif self._open is not None:
            self._refused, self._open = self._refused + 1, None
        return super().draw(trial, attempt)

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        self._drop_refused()
        super().keep(trial, params)

    def _drop_refused(self) -> None:
        self._drop_open_trial()
        for _ in range(self._refused):
            self._storage.drop_last()
        self._refused = 0


class Nsga2(OptunaMethod):
    """NSGA-II (Deb et al. 2002): generations of parents, crossover and mutation.

    Each trial stores its generation, and the first trial of a generation also stores its parents
    (`nsga2:generation`, `nsga2:parents`), so nothing has to be replayed. Trials from other sources
    (the default, enqueued, random) belong to the generation that was current when they were
    proposed.
    """

    name = "nsga2"
    window = Window(best=200, latest=1_600)
    GENERATION, PARENTS = "nsga2:generation", "nsga2:parents"
    OPTUNAS_GENERATION, OPTUNAS_PARENTS = "NSGAIISampler:generation", "NSGAIISampler:parent:"

    def _make_sampler(self, seed: int) -> BaseSampler:
        return NSGAIISampler(seed=seed, **self._options)

    def _attributes_by_trial(
        self, history: Sequence[PriorTrial]
    ) -> Mapping[int, Mapping[str, Any]]:
        found: dict[int, Mapping[str, Any]] = {}
        latest = 0
        for past in history:
            latest = max(latest, past.attributes.get(self.GENERATION, 0))
            own = past.attributes.get(self.GENERATION, latest)
            found[past.trial] = {self.OPTUNAS_GENERATION: own}
        return found

    def _system_attributes(self, history: Sequence[PriorTrial], shift: int) -> Mapping[str, Any]:
        found: dict[str, list[int]] = {}
        for past in history:
            if self.PARENTS in past.attributes:
                key = f"{self.OPTUNAS_PARENTS}{past.attributes[self.GENERATION]}"
                found.setdefault(key, [trial + shift for trial in past.attributes[self.PARENTS]])
        return found

    def _make_batch(
        self, sampler: BaseSampler, storage: HistoryStorage, shift: int
    ) -> OptunaBatch:
        return _Nsga2Batch(self, sampler, storage, shift)


class _Nsga2Batch(OptunaBatch):
    """A batch whose draws store their generation."""

    _last: Draw | None = None

    def __init__(self, *args: Any):
        super().__init__(*args)
        # keys of the parents; generation 0 has none
        noted = self._storage.get_study_system_attrs(_STUDY_ID)
        self._noted = {f"{Nsga2.OPTUNAS_PARENTS}0", *noted}

    def draw(self, trial: int, attempt: int) -> Draw | None:
        self._last = super().draw(trial, attempt)
        return self._last

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        last = self._last
        if last is not None and Nsga2.PARENTS in last.attributes and last.params == params:
            self._noted.add(f"{Nsga2.OPTUNAS_PARENTS}{last.attributes[Nsga2.GENERATION]}")
        self._last = None
        super().keep(trial, params)

    def _note_attributes(self, trial: optuna.Trial) -> dict[str, Any]:
        attributes = self._storage.get_trial(trial.number).system_attrs
        generation = attributes.get(Nsga2.OPTUNAS_GENERATION, 0)
        note: dict[str, Any] = {Nsga2.GENERATION: generation}
        key = f"{Nsga2.OPTUNAS_PARENTS}{generation}"
        if key not in self._noted:
            parents = self._storage.get_study_system_attrs(_STUDY_ID)[key]
            note[Nsga2.PARENTS] = [parent - self._shift for parent in parents]
        return note


class Tpe(OptunaMethod):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate and grouped.

    Running trials count as bad (the constant liar), so that the many proposals in one batch spread
    out.
    """

    name = "tpe"

    def __init__(self, spec: SamplerSpec):
        super().__init__(spec)
        self.understands_stopped = spec.objectives == 1
        conditional = any(parameter.when for parameter in spec.space.parameters)
        if not conditional or not self._options["multivariate"]:
            # there is one group anyway; a search for more costs a fifth of the time
            self._options["group"] = False

    def _make_sampler(self, seed: int) -> BaseSampler:
        for option in ("multivariate", "group", "constant_liar"):
            warnings.filterwarnings("ignore", message=f".*{option}", category=ExperimentalWarning)
        return TPESampler(seed=seed, **self._options)
