"""Ray Tune as the scheduler of our lanes: its trials are handles, its checkpoints kept states.

Tune runs in a thread of this process, its handles in processes of their own beside it; what they
ask for is passed on to whoever drives the lanes.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from ray import tune  # pyright: ignore[reportMissingImports]

from ...errors import HpoError, SearchError
from ...spaces.to_ray import domains
from ...studies.spec import EarlyTerminate, Study
from ..book.ledger import Ledger
from ..book.schedule import Schedule
from ..engine.evolve import Evolver
from ..rules.explore import Perturb, Situation
from ..samplers.proposer import Proposer
from ..samplers.registry import make_sampler
from .contract import Reply, Report, Request
from .handle import EXCHANGE, POINT, Exchange, Handle
from .schedulers import TIME, copies_states, scheduler_of, searcher_of
from .searcher import SUGGESTIONS, Proposals, Suggestions, point_of

__all__ = ["TuneDesk"]

_VALUE = "value"
_DESKS: dict[str, TuneDesk] = {}
"""By the name of their exchange: what Tune holds of ours it may copy or pickle."""


class TuneDesk:
    """Ray Tune's side of the desk; see `Desk`.

    Args:
        ray: connected.
        study: says which scheduler and searcher.
        ledger: of the study; trials that have ended are not asked for again.
    """

    def __init__(self, ray: ModuleType, study: Study, ledger: Ledger):
        self._ray, self.study, self._ledger = ray, study, ledger
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
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._has_nothing = False
        self._folder = tempfile.TemporaryDirectory(prefix="hpo-tune-", ignore_cleanup_errors=True)

    def close(self) -> None:
        """End Tune if it still runs, and delete what it wrote."""
        self.stop()
        _DESKS.pop(self.name, None)
        SUGGESTIONS.pop(self.name, None)
        self._folder.cleanup()

    # ------------------------------------------------------------------ see Desk

    @property
    def is_over(self) -> bool:
        """See `Desk`."""
        if self._has_nothing:
            return True
        if self._thread is None or self._thread.is_alive():
            return False
        self._check()
        return True

    def begin(self, width: int, schedule: Schedule) -> None:
        """See `Desk`; where all trials have ended before, Tune does not start."""
        self._planned = self._left()
        self._has_nothing = not self._planned
        if self._has_nothing:
            return
        _DESKS[self.name] = self
        self._width = width
        self._node = {f"node:{self._ray.util.get_node_ip_address()}": 0.0001}
        actor = self._ray.remote(Exchange).options(
            name=self.name, num_cpus=0, resources=self._node, max_concurrency=10_000
        )
        self._exchange = actor.remote()
        tuner = self._tuner(schedule)
        self._thread = threading.Thread(target=self._fit, args=(tuner,), name="tune", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> list[Request]:
        """See `Desk`."""
        self._check()
        found = self._get(self._exchange.wait.remote(seconds))
        requests: list[Request] = []
        for key, kind, trial, point, state in found:
            with self._lock:  # a copy is given its source's point; its own number came before
                number = self._numbers.setdefault(trial, int(point["trial"]))
            requests.append(Request(key, kind, number, json.loads(point["params"]), state))
        return requests

    def answer(self, replies: Mapping[str, Reply]) -> None:
        """See `Desk`."""
        told = {key: _told(reply) for key, reply in replies.items()}
        self._get(self._exchange.answer.remote(told))

    def expected(self) -> int:
        """See `Desk`; a trial put aside to copy another one comes back at once."""
        with self._lock:
            out = ("TERMINATED", "ERROR") if self.copies else ("TERMINATED", "ERROR", "PAUSED")
            gone = sum(status in out for status in self._status.values())
            return min(self._width, self._total() - gone)

    def _total(self) -> int:
        """Return the trials that Tune will have begun in the end; the lock is held."""
        few = self.suggestions is not None and self.suggestions.exhausted
        return len(self._status) if few else self._planned

    def has_more(self) -> bool:
        """See `Desk`."""
        with self._lock:
            return self._total() > len(self._numbers)

    def ended(self) -> list[int]:
        """See `Desk`."""
        with self._lock:
            known = [trial for trial in self._ended if trial in self._numbers]
            self._ended = [trial for trial in self._ended if trial not in self._numbers]
            return [self._numbers[trial] for trial in known]

    def paused(self) -> set[int]:
        """See `Desk`."""
        with self._lock:
            return {
                self._numbers[trial]
                for trial, status in self._status.items()
                if status == "PAUSED" and trial in self._numbers
            }

    def stop(self) -> None:
        """Ask Tune to end everything, and wait until it has."""
        self._stopping = True
        if self._thread is not None and self._thread.is_alive():
            try:
                self._get(self._exchange.close.remote())
            except SearchError:  # the cluster is gone, and with it all handles
                return
            self._thread.join(timeout=60.0)

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            line = str(error).strip().splitlines()[0]
            raise SearchError(
                f"the Ray cluster is gone: {line}; what was committed is kept, and the same "
                "command goes on from there"
            ) from error

    def _check(self) -> None:
        """Raise what ended Tune, if it was not its own end."""
        error = self._error
        if isinstance(error, HpoError):
            raise error
        if error is not None and not self._stopping:
            text = " ".join(str(error).split())[-300:]
            raise SearchError(f"Ray Tune failed: {type(error).__name__}: {text}") from error

    # ------------------------------------------------------------------ Tune, in its own thread

    def _fit(self, tuner: tune.Tuner) -> None:
        try:
            tuner.fit()
        except BaseException as error:  # said by whoever drives the lanes
            self._error = error

    def _tuner(self, schedule: Schedule) -> tune.Tuner:
        study, points = self.study, self._points()
        mode = "max" if study.metric.goal == "maximize" else "min"
        searcher = searcher_of(study)
        space: dict[str, Any] = {EXCHANGE: self.name}
        if searcher is None:
            space[POINT] = tune.grid_search(points)
        else:
            searcher.set_search_properties(_VALUE, mode, domains(study.space))
            self.suggestions = Suggestions(study, searcher, points, self._ledger.trials)
            SUGGESTIONS[self.name] = self.suggestions
        scheduler = scheduler_of(study, schedule, _Explore(self.name))
        return tune.Tuner(
            tune.with_resources(Handle, tune.PlacementGroupFactory([self._node])),
            param_space=space,
            tune_config=tune.TuneConfig(
                metric=_VALUE,
                mode=mode,
                scheduler=scheduler,
                search_alg=None if searcher is None else Proposals(self.name),
                num_samples=1 if searcher is None else self._planned,
                max_concurrent_trials=self._width,
                reuse_actors=True,
                trial_dirname_creator=_directory_of,
            ),
            run_config=tune.RunConfig(
                name="study",
                storage_path=self._folder.name,
                verbose=0,
                stop=_Stop(self.name),
                callbacks=[_Watch(self.name)],
                failure_config=tune.FailureConfig(max_failures=2),
            ),
        )

    def _left(self) -> int:
        """Return how many trials Tune has to run."""
        if self.study.search.searcher == "random":
            return len(self._points())
        trials = self._ledger.trials.values()
        ended = sum(trial.number >= 0 and not trial.is_live for trial in trials)
        return (self.study.budget.trials or 0) - ended

    def _points(self) -> list[dict[str, Any]]:
        """Return what is trained first: trials under way, then those that nobody has to propose.

        With random trials these are all that are left.
        """
        study, ledger = self.study, self._ledger
        live = {trial.number: trial.params for trial in ledger.live()}
        count = study.budget.trials or 0
        if study.search.searcher != "random":
            count = min(count, 1 + len(study.enqueue))
        plain = _at_random(study)
        found = Proposer(plain, make_sampler(plain)).propose(0, range(count), ()).found
        drawn = {one.trial: one.params for one in found if one.trial not in ledger.trials}
        return [point_of(number, params) for number, params in sorted({**drawn, **live}.items())]

    # ------------------------------------------------------------------ called by Tune

    def saw(self, trials: Sequence[Any]) -> None:
        """Note where all trials stand."""
        with self._lock:
            self._status = {trial.trial_id: trial.status for trial in trials}

    def has_ended(self, trial: Any) -> None:
        """Note that a trial has ended."""
        with self._lock:
            self._status[trial.trial_id] = trial.status
            self._ended.append(trial.trial_id)

    @property
    def stopping(self) -> bool:
        """Whether everything is to end."""
        return self._stopping


# ---------------------------------------------------------------------- what Tune holds of ours


class _Stop(tune.Stopper):
    """Ends everything when the study is interrupted."""

    def __init__(self, name: str):
        self._name = name

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """No trial is stopped by itself."""
        return False

    def stop_all(self) -> bool:
        """See `tune.Stopper`."""
        return _DESKS[self._name].stopping


class _Watch(tune.Callback):
    """Tells the desk where trials stand."""

    def __init__(self, name: str):
        self._name = name

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """See `tune.Callback`."""
        _DESKS[self._name].saw(trials)

    def on_trial_complete(
        self, iteration: int, trials: list[Any], trial: Any, **info: Any
    ) -> None:
        """See `tune.Callback`."""
        _DESKS[self._name].has_ended(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """See `tune.Callback`."""
        _DESKS[self._name].has_ended(trial)


class _Explore:
    """Gives a copy its knobs, as our own population based training does."""

    def __init__(self, name: str):
        self._name, self._count = name, 0

    def __call__(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the source's configuration with other knobs."""
        self._count += 1
        point = config[POINT]
        study, old = _DESKS[self._name].study, json.loads(point["params"])
        situation = Situation(self._count, 0.0)
        new = _evolver(study).new_params(self._count, old, situation, study.complete)
        return {**config, POINT: point_of(point["trial"], new)}


# ---------------------------------------------------------------------- small things


def _told(reply: Reply) -> Any:
    if isinstance(reply, Report):
        return {_VALUE: reply.value, TIME: reply.env_steps, "done": reply.done}
    return reply


def _at_random(study: Study) -> Study:
    """Return the study whose trials are the default, what is enqueued, and random ones."""
    return replace(study, search=replace(study.search, method="random", options={}))


def _directory_of(trial: Any) -> str:
    """Return a trial's folder a short name; Tune's own tells its whole configuration."""
    return str(trial.trial_id)


def _evolver(study: Study) -> Evolver:
    """Return what changes the knobs of a copy: as in our own population based training."""
    options = study.search.scheduler_options
    early = EarlyTerminate("pbt")
    chance = float(options.get("resample_probability", early.resample))
    factors = tuple(options.get("perturbation_factors", early.perturb))
    return Evolver(study, early, Perturb(study.space, chance, factors), learns=False)
