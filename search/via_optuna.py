"""The door to Optuna: its samplers propose, from a history that this project keeps.

Every batch gets a new sampler object, seeded by (seed, batch number), and a study built from the
history as it is then; so proposals repeat after a resume and nothing of Optuna's is ever stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from ..errors import ConfigError
from ..spaces.space import Space
from ..spaces.to_optuna import internal_params, suggest
from ..store.rows import TrialState
from .history import Window, estimates
from .optuna_storage import HistoryStorage
from .sampler import Batch, Draw, Past, SamplerSpec, checked_options
from .streams import generator, integer

__all__ = ["Gp", "Nsga2", "Tpe", "build", "build_gp", "build_nsga2", "frozen_trial"]

_TPE_OPTIONS: Mapping[str, Any] = {
    "multivariate": True,
    "group": True,
    "constant_liar": True,
    "n_startup_trials": 10,
    "n_ei_candidates": 24,
}
_GP_OPTIONS: Mapping[str, Any] = {"n_startup_trials": 10, "deterministic_objective": False}
_NSGA2_OPTIONS: Mapping[str, Any] = {
    "population_size": 50,
    "crossover_prob": 0.9,
    "swapping_prob": 0.5,
}
_EXPERIMENTAL = optuna.exceptions.ExperimentalWarning
_STATES = optuna.trial.TrialState


def frozen_trial(
    space: Space,
    past: Past,
    number: int | None = None,
    losses: Sequence[float] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """Say a trial in Optuna's words.

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

    adaptive = True
    window = Window(best=200, latest=800)
    understands_stopped = False

    def __init__(self, spec: SamplerSpec, options: Mapping[str, Any]):
        self._space, self._seed, self._options = spec.space, spec.seed, dict(options)
        self._objectives, self._constraints = spec.objectives, spec.constraints
        self._frozen: dict[int, tuple[TrialState, FrozenTrial]] = {}

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
        """Give the system attributes of trials."""
        return {}

    def _system(self, history: Sequence[Past], shift: int) -> Mapping[str, Any]:
        """Give the system attributes of the study."""
        return {}

    def _told(self, past: Past, shift: int) -> FrozenTrial:
        """Say a trial, known from the batch before if it has not ended since."""
        known = self._frozen.get(past.trial)
        if known is None or known[0] is not past.state:
            attributes = _constraints(past.violations)
            trial = frozen_trial(self._space, past, past.trial + shift, None, attributes)
            known = self._frozen[past.trial] = (past.state, trial)
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
        """Give what a trial whose constraints nobody measured counts for: it diverged."""
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
        """Give what to remember of a draw."""
        return {}

    def _drop(self) -> None:
        if self._open is not None:
            self._storage.drop_last()
            self._open = None


# ---------------------------------------------------------------------- tpe


class Tpe(OptunaMethod):
    """Tree-structured Parzen estimator (Bergstra et al. 2011), multivariate and grouped.

    Running trials count as bad ones (the constant liar), so that the many proposals of one batch
    spread out.
    """

    def __init__(self, spec: SamplerSpec, options: Mapping[str, Any]):
        super().__init__(spec, options)
        self.understands_stopped = spec.objectives == 1
        if not any(parameter.when for parameter in spec.space.parameters):
            self._options["group"] = False  # one group anyway; looking for more costs a fifth

    def _sampler(self, batch: int) -> BaseSampler:
        for option in ("multivariate", "group", "constant_liar"):
            warnings.filterwarnings("ignore", message=f".*{option}", category=_EXPERIMENTAL)
        return TPESampler(seed=integer(self._seed, "tpe", batch), **self._options)


def build(spec: SamplerSpec) -> Tpe:
    """Build the method `tpe`; its options are those of `optuna.samplers.TPESampler`."""
    return Tpe(spec, checked_options("tpe", spec.options, _TPE_OPTIONS))


# ---------------------------------------------------------------------- gp


class Gp(OptunaMethod):
    """Bayesian optimisation by a Gaussian process (Matern 5/2, log expected improvement).

    Its time grows with the third power of what it sees, hence a small window. Conditional
    parameters are outside of its model and drawn at random.
    """

    window = Window(best=60, latest=140)

    def _sampler(self, batch: int) -> BaseSampler:
        warnings.filterwarnings("ignore", message=".*deterministic", category=_EXPERIMENTAL)
        return GPSampler(
            seed=integer(self._seed, "gp", batch), warn_independent_sampling=False, **self._options
        )

    def _open(
        self, storage: HistoryStorage, sampler: BaseSampler, history: Sequence[Past], shift: int
    ) -> Batch:
        return _GpBatch(self._space, sampler, storage, shift, self._seed)


class _GpBatch(OptunaBatch):
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
    """Build the method `gp`; its options are those of `optuna.samplers.GPSampler`.

    Raises:
        ConfigError: torch is not installed.
    """
    if find_spec("torch") is None:
        raise ConfigError(
            "search method 'gp' needs torch, which is not installed; "
            "type: pip install 'hpo-lanes[gp]', or method: tpe"
        )
    return Gp(spec, checked_options("gp", spec.options, _GP_OPTIONS))


# ---------------------------------------------------------------------- nsga2


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
    options = checked_options("nsga2", spec.options, _NSGA2_OPTIONS)
    if options["population_size"] < 2:
        raise ConfigError(
            f"search method 'nsga2': population_size is {options['population_size']}, but must be "
            "at least 2; type population_size: 50"
        )
    return Nsga2(spec, options)
