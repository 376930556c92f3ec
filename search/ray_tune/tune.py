"""Ray Tune as the scheduler for our lanes: trials are handles, and checkpoints are kept states.

Tune runs in a thread of this process, and its handles in separate processes. Their requests are
sent to the driver of the lanes.
"""

from __future__ import annotations

import inspect
import json
import secrets
import tempfile
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any

from ray import tune  # pyright: ignore[reportMissingImports]

from ...errors import ConfigError, HpoError, SearchError, suggestion
from ...spaces.distributions import Axis
from ...spaces.space import Space
from ...studies.search_spec import EarlyTerminate
from ...studies.spec import Study
from ...studies.user_code import user_module
from ..engine.pbt_step import Evolver
from ..rules.pbt_perturb import Perturb, Situation
from ..samplers.proposal_queue import Proposer
from ..samplers.registry import make_sampler
from ..state.schedule import EventSchedule
from ..state.search_state import SearchState
from .desk import DeskRequest, Reply, Report
from .ray_trial import EXCHANGE, POINT, Exchange, Handle
from .searcher import SUGGESTIONS, RayProposals, Suggestions, point_of

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# Ray does not annotate the options of a choice.


def domains(space: Space) -> dict[str, Any]:
    return {key: _on_axis(parameter.distribution.axis) for key, parameter in space.keyed}


def _on_axis(axis: Axis) -> Any:
    if axis.kind == "choice":
        return tune.choice(list(range(int(axis.high) + 1)))
    if axis.kind == "integer":  # Ray excludes the upper end
        draw = tune.lograndint if axis.log else tune.randint
        return draw(int(axis.low), int(axis.high) + 1)
    return (tune.loguniform if axis.log else tune.uniform)(axis.low, axis.high)


_LIBRARY = "ray.tune"

_SCHEDULERS = {
    "asha": "ray.tune.schedulers.ASHAScheduler",
    "pbt": "ray.tune.schedulers.PopulationBasedTraining",
}
_SEARCHERS = {"optuna": "ray.tune.search.optuna.OptunaSearch"}
TIME = "env_steps"  # the schedulers' unit of time: training env steps of one replicate
_COUNT = "training_iteration"  # Tune's count of a trial's evaluations


def copies_states(study: Study) -> bool:
    from ray.tune.schedulers import PopulationBasedTraining  # pyright: ignore[reportMissingImports]

    return issubclass(_scheduler_class(study.search.scheduler), PopulationBasedTraining)


def scheduler_of(
    study: Study, schedule: EventSchedule, explore: Callable[[dict[str, Any]], dict[str, Any]]
) -> Any:
    """Create a study's scheduler.

    A scheduler that derives its brackets only from the run length (`HyperBandScheduler`) counts
    evaluations. If it counted env steps, its brackets would end after a single evaluation.
    """
    first = min(schedule.evaluations) * schedule.quantum
    known = {
        "time_attr": TIME,
        "max_t": schedule.env_steps,
        "grace_period": first,
        "perturbation_interval": first,
        "custom_explore_fn": explore,
        "log_config": False,
        "synch": True,
    }
    if copies_states(study) and study.search.scheduler_options.get("synch") is False:
        raise ConfigError(
            "search.scheduler_options: with `synch: false`, a copy would train the same env "
            "steps twice; remove `synch`, because all lanes step together"
        )
    cls = _scheduler_class(study.search.scheduler)
    takes = _arguments_of(cls)
    if "max_t" in takes and "grace_period" not in takes:
        known |= {"time_attr": _COUNT, "max_t": len(schedule.evaluations)}
    return _build_from_options("scheduler", cls, known, study.search.scheduler_options)


def searcher_of(study: Study) -> Any:
    name = study.search.searcher
    if name == "random":
        return None
    from ray.tune.search import Searcher  # pyright: ignore[reportMissingImports]

    cls = _class_named("searcher", name, _SEARCHERS, Searcher)
    if name == "optuna":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
    return _build_from_options(
        "searcher", cls, {"seed": study.seed}, study.search.searcher_options
    )


def _scheduler_class(name: str) -> type:
    from ray.tune.schedulers import TrialScheduler  # pyright: ignore[reportMissingImports]

    return _class_named("scheduler", name, _SCHEDULERS, TrialScheduler)


def _class_named(what: str, name: str, known: Mapping[str, str], base: type) -> type:
    module, _, attribute = known.get(name, name).rpartition(".")
    words = [*known, *known.values()]
    if what == "searcher":
        words.append("random")
    hint = f"{suggestion(name, words)} Known: {', '.join(words)}, or another Ray Tune class"
    try:
        found = getattr(_module_named(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"search.{what} {name!r} cannot be imported: {error};{hint}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"search.{what} {name!r} is not a Ray Tune {base.__name__};{hint}")
    return found


def _module_named(name: str) -> Any:
    if name == _LIBRARY or name.startswith(f"{_LIBRARY}."):
        return import_module(name)
    own = user_module(name)
    if own is None:
        custom = "for a custom class use imports: [my_file.py] and my_file.MyClass"
        raise ImportError(f"{name} is neither {_LIBRARY} nor in a file of `imports`; {custom}")
    return own


def _build_from_options(
    what: str, cls: Any, known: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """Call a class with the given options, and with those known arguments that it accepts."""
    takes = _arguments_of(cls)
    given = {key: value for key, value in known.items() if key in takes}
    try:
        return cls(**{**given, **options})
    except (TypeError, ValueError, AssertionError, ImportError) as error:
        text = " ".join(str(error).split())[:300]
        raise ConfigError(
            f"search.{what}_options: {cls.__name__} rejects these options: {text}"
        ) from error


def _arguments_of(cls: Any) -> Container[str]:
    """Return the names of a class's arguments; none if Python cannot inspect them."""
    try:
        return inspect.signature(cls).parameters
    except (TypeError, ValueError):
        return ()


_VALUE = "value"
_DESKS: dict[str, TuneDesk] = {}
"""Name of the exchange -> desk; Tune gets only names, because it may copy or pickle objects."""


class TuneDesk:
    """The `Desk` through which Ray Tune sends its requests."""

    def __init__(self, ray: ModuleType, study: Study, search_state: SearchState):
        self._ray, self.study, self._search_state = ray, study, search_state
        self.name = f"hpo-{secrets.token_hex(8)}"
        self.copies = copies_states(study)
        self._lock = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._status: dict[str, str] = {}
        self._ended: list[str] = []
        self._planned = 0
        self.suggestions: Suggestions | None = None
        self._width = 1
        self._error: BaseException | None = None
        self.stopping = False
        self._thread: threading.Thread | None = None  # None if Tune has nothing to do
        self._folder = tempfile.TemporaryDirectory(prefix="hpo-tune-", ignore_cleanup_errors=True)

    def close(self) -> None:
        self.stop()
        _DESKS.pop(self.name, None)
        SUGGESTIONS.pop(self.name, None)
        self._folder.cleanup()

    # ------------------------------------------------------------------ see Desk

    @property
    def is_over(self) -> bool:
        if self._thread is not None and self._thread.is_alive():
            return False
        self._raise_tune_error()
        return True

    def begin(self, width: int, schedule: EventSchedule) -> None:
        """See `Desk`; Tune does not start if all trials have already ended."""
        self._planned = self._trials_left()
        if not self._planned:
            return
        _DESKS[self.name] = self
        self._width = width
        self._node = {f"node:{self._ray.util.get_node_ip_address()}": 0.0001}
        actor = self._ray.remote(Exchange).options(
            name=self.name, num_cpus=0, resources=self._node, max_concurrency=10_000
        )
        self._exchange = actor.remote()
        tuner = self._make_tuner(schedule)
        self._thread = threading.Thread(
            target=self._fit_tuner, args=(tuner,), name="tune", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> list[DeskRequest]:
        self._raise_tune_error()
        found = self._get_result(self._exchange.wait.remote(seconds))
        requests: list[DeskRequest] = []
        for key, kind, trial, point, state in found:
            with self._lock:  # a copy receives its source's point; its own number was set before
                number = self._numbers.setdefault(trial, int(point["trial"]))
            requests.append(DeskRequest(key, kind, number, json.loads(point["params"]), state))
        return requests

    def answer(self, replies: Mapping[str, Reply]) -> None:
        results = {key: _as_result(reply) for key, reply in replies.items()}
        self._get_result(self._exchange.answer.remote(results))

    def expected(self) -> int:
        """See `Desk`; if trials copy each other, paused ones count, as they resume at once."""
        with self._lock:
            out = ["TERMINATED", "ERROR"]
            if not self.copies:
                out.append("PAUSED")
            gone = sum(status in out for status in self._status.values())
            return min(self._width, self._total_trials() - gone)

    def _total_trials(self) -> int:
        """Return how many trials Tune will start in all; the lock must be held."""
        if self.suggestions is not None and self.suggestions.exhausted:
            return len(self._status)
        return self._planned

    def has_more(self) -> bool:
        with self._lock:
            return self._total_trials() > len(self._numbers)

    def ended(self) -> list[int]:
        with self._lock:
            known = [trial for trial in self._ended if trial in self._numbers]
            self._ended = [trial for trial in self._ended if trial not in self._numbers]
            return [self._numbers[trial] for trial in known]

    def paused(self) -> set[int]:
        with self._lock:
            return {
                self._numbers[trial]
                for trial, status in self._status.items()
                if status == "PAUSED" and trial in self._numbers
            }

    def stop(self) -> None:
        self.stopping = True
        if self._thread is not None and self._thread.is_alive():
            try:
                self._get_result(self._exchange.close.remote())
            except SearchError:  # the cluster is gone, and all handles with it
                return
            self._thread.join(timeout=60.0)

    def _get_result(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            line = str(error).strip().splitlines()[0]
            raise SearchError(
                f"lost the Ray cluster: {line}; all commits are safe; run the same command "
                "to resume"
            ) from error

    def _raise_tune_error(self) -> None:
        error = self._error
        if isinstance(error, HpoError):
            raise error
        if error is not None and not self.stopping:
            text = " ".join(str(error).split())[-300:]
            raise SearchError(f"Ray Tune failed: {type(error).__name__}: {text}") from error

    # ------------------------------------------------------------------ Tune, in a separate thread

    def _fit_tuner(self, tuner: tune.Tuner) -> None:
        try:
            tuner.fit()
        except BaseException as error:  # reported by the driver of the lanes
            self._error = error

    def _make_tuner(self, schedule: EventSchedule) -> tune.Tuner:
        study, points = self.study, self._first_points()
        mode = {"maximize": "max", "minimize": "min"}[study.metric.goal]
        searcher, proposals, samples = searcher_of(study), None, 1
        space: dict[str, Any] = {EXCHANGE: self.name}
        if searcher is None:
            space[POINT] = tune.grid_search(points)
        else:
            proposals, samples = RayProposals(self.name), self._planned
            searcher.set_search_properties(_VALUE, mode, domains(study.space))
            self.suggestions = Suggestions(study, searcher, points, self._search_state.trials)
            SUGGESTIONS[self.name] = self.suggestions
        scheduler = scheduler_of(study, schedule, _Explore(self.name))
        watch = _StatusReporter(self.name)
        return tune.Tuner(
            tune.with_resources(Handle, tune.PlacementGroupFactory([self._node])),
            param_space=space,
            tune_config=tune.TuneConfig(
                metric=_VALUE,
                mode=mode,
                scheduler=scheduler,
                search_alg=proposals,
                num_samples=samples,
                max_concurrent_trials=self._width,
                reuse_actors=True,
                trial_dirname_creator=_directory_of,
            ),
            run_config=self._run_config(watch),
        )

    def _run_config(self, watch: _StatusReporter) -> tune.RunConfig:
        """Return how Tune runs trials; only copies need the states of ended trials."""
        return tune.RunConfig(
            name="study",
            storage_path=self._folder.name,
            verbose=0,
            stop=watch,
            callbacks=[watch],
            failure_config=tune.FailureConfig(max_failures=2),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=self.copies),
        )

    def _trials_left(self) -> int:
        if self.study.search.searcher == "random":
            return len(self._first_points())
        trials = self._search_state.trials.values()
        ended = sum(trial.number >= 0 and not trial.is_live for trial in trials)
        return (self.study.budget.trials or 0) - ended

    def _first_points(self) -> list[dict[str, Any]]:
        """Return the first trials: running, default, enqueued; all if the searcher is `random`."""
        study, search_state = self.study, self._search_state
        live = {trial.number: trial.params for trial in search_state.live()}
        count = study.budget.trials or 0
        if study.search.searcher != "random":
            count = min(count, 1 + len(study.enqueue))
        plain = replace(study, search=replace(study.search, method="random", options={}))
        found = Proposer(plain, make_sampler(plain)).propose(0, range(count), ()).found
        drawn = {one.trial: one.params for one in found if one.trial not in search_state.trials}
        return [point_of(number, params) for number, params in sorted({**drawn, **live}.items())]

    # ------------------------------------------------------------------ called by Tune

    def saw(self, trials: Sequence[Any]) -> None:
        with self._lock:
            self._status = {trial.trial_id: trial.status for trial in trials}

    def has_ended(self, trial: Any) -> None:
        with self._lock:
            self._status[trial.trial_id] = trial.status
            self._ended.append(trial.trial_id)


# ---------------------------------------------------------------------- objects passed to Tune


class _StatusReporter(tune.Callback, tune.Stopper):
    """Reports trial status to the desk, and ends all trials if the study is interrupted."""

    def __init__(self, name: str):
        self._name = name

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Never stop an individual trial."""
        return False

    def stop_all(self) -> bool:
        return _DESKS[self._name].stopping

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        _DESKS[self._name].saw(trials)

    def on_trial_complete(
        self, iteration: int, trials: list[Any], trial: Any, **info: Any
    ) -> None:
        _DESKS[self._name].has_ended(trial)

    on_trial_error = on_trial_complete


class _Explore:
    """Gives a copy its hyperparameters, in the same way as the rule `pbt`."""

    def __init__(self, name: str):
        self._name, self._count = name, 0

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        point = config[POINT]
        study, old = _DESKS[self._name].study, json.loads(point["params"])
        options, early = study.search.scheduler_options, EarlyTerminate("pbt")
        chance = float(options.get("resample_probability", early.resample))
        factors = tuple(options.get("perturbation_factors", early.perturb))
        evolver = Evolver(study, early, Perturb(study.space, chance, factors), uses_gains=False)
        situation = Situation(self._count, 0.0)
        new = evolver.new_params(self._count, old, situation, study.complete)
        return {**config, POINT: point_of(point["trial"], new)}


def _as_result(reply: Reply) -> Any:
    """Convert a report to Ray Tune's form; a state's name is returned unchanged."""
    if isinstance(reply, Report):
        return {_VALUE: reply.value, TIME: reply.env_steps, "done": reply.done}
    return reply


def _directory_of(trial: Any) -> str:
    """Return a short name for a trial's folder; Tune's name would contain the configuration."""
    return str(trial.trial_id)
