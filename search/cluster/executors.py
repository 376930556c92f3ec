"""Chooses between this machine's devices and the workers of a cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from ...errors import ignore
from ...machine.processes import LocalProcesses, ProcessExecutor
from ...machine.slurm import SlurmJobs
from ...machine.software import enable_compilation_cache, versions
from ...store.codec import plain_json
from ...store.rows import Stream
from ...studies.algorithm_section import with_code
from ...studies.check import spread_note
from ...studies.execution_spec import Processes
from ...studies.programs import words_of_bucket
from ...studies.spec import Study
from ...studies.study_environments import environments_of
from ...studies.user_code import check_registered, run_own_code
from ..lanes.contract import EvaluationResult, PopulationFactory, Resolved
from ..lanes.factories import factory_here
from ..lanes.lane_count import Division, check_divides
from ..lanes.multi_environment import factories_of, notes_of
from ..lanes.process_factory import ProcessFactory
from .worker_shards import Machine, SharedPopulation, Team, asked


class LocalShares:
    """Creates one of several equal shares of every population; see `ShareSource`.

    On creation, it runs user code and starts jax on this worker's devices. `cores` is the number
    of cores of this process; `neighbours` is the number of shares on this machine.
    """

    def __init__(
        self, study: Study, shares: int, cores: int, neighbours: int, warn: Callable[[str], None]
    ):
        run_own_code(study, cores)
        check_registered(study)
        enable_compilation_cache()
        study = with_code(study)
        self._factory = factory_here(study, warn=warn, cores=cores)
        self._shares, self._neighbours = shares, neighbours
        packages = versions(env.id for env in environments_of(study))
        self.machine = Machine(self._factory.backend, self._factory.device_count, packages)
        self.resolve, self.make = self._factory.resolve, self._factory.make_share
        self.baseline = self._factory.baseline

    def check(self, resolved: Resolved) -> None:
        if self._factory.study.algorithm.is_ppo:
            from ..lanes.configuration import parts_of  # imported on use: processes need no jax

            _ = parts_of(resolved).hypers  # creates the environments, which may raise
        else:
            self._factory.check(resolved)
        check_divides(self._factory, resolved, self._shares)

    def divide(self, resolved: Resolved, lanes: int | None) -> Division:
        return self._factory.divide(resolved, lanes, self._shares, self._neighbours)


class SharedFactory:
    """A `PopulationFactory` that uses a team of started hosts.

    `compiling` is entered around each compilation, with the bucket's description from
    `told_apart`.
    """

    def __init__(
        self,
        team: Team,
        machine: Machine,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
        told_apart: Callable[[Mapping[str, Any]], str] = lambda config: "",
    ):
        self._team, self._compiling, self._told_apart = team, compiling, told_apart
        self.backend = machine.backend
        self.device_count = machine.device_count * team.shares

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`; a worker computes the result."""
        given = dict(config)
        text = json.dumps(plain_json(given), sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        bucket, steps = asked(self._team, 0, ("resolve", (given, name)))
        return Resolved(given, bucket, steps, name)

    def check(self, resolved: Resolved) -> None:
        asked(self._team, 0, ("check", (resolved,)))

    def make(self, resolved: Resolved, lanes: int | None) -> SharedPopulation:
        words = self._told_apart(resolved.config)
        return SharedPopulation(self._team, resolved, lanes, self._compiling, words)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        return asked(self._team, 0, ("baseline", (name, resolved, list(seeds))))


_LETTERS = 22  # so that the line about a compile has 80 characters
_MOST_HANDLES = 64  # upper limit for the number of Ray Tune processes


@contextmanager
def factory_of(
    study: Study,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = ignore,
) -> Iterator[PopulationFactory]:
    """Yield a study's factory, which is usable while the context is open."""
    config, executor = study.default(), study.executor
    with ExitStack() as opened:
        # before jax starts threads, which would not survive a fork
        if study.search.driver == "ray_tune":
            from .via_ray import connected

            handles = min(study.budget.trials or 1, _MOST_HANDLES) + executor.workers
            purpose = "search: {driver: ray_tune}"
            opened.enter_context(connected(executor, purpose, handles))
        if study.algorithm.is_process:
            own = opened.enter_context(_process_executor(study))
            yield _checked_factory(
                study, opened, warn, ProcessFactory(study, warn=warn, executor=own)
            )
            return
        if executor.type == "local":
            enable_compilation_cache()
            local: Any = factories_of(
                study, lambda one, of: factory_here(one, compiling, warn, environments=of)
            )
            yield _checked_factory(study, opened, warn, local)
            return
        from .via_ray import RayTeam, connected, place_of

        ray = opened.enter_context(connected(executor, "executor: {type: ray}"))
        place = place_of(ray, executor, study.population.device)
        if note := spread_note(study):
            warn(note)
        source = partial(LocalShares, study, executor.workers, place.cpus)
        team = RayTeam(ray, executor.workers, place, source, warn)
        opened.callback(team.end)
        words = partial(words_of_bucket, study, most=_LETTERS)
        shared = SharedFactory(team, team.begin(), compiling, words)
        shared.check(shared.resolve(config))
        yield shared


def _checked_factory(
    study: Study, opened: ExitStack, warn: Callable[[str], None], factory: Any
) -> PopulationFactory:
    """Check that a factory can run the default configuration, and register it for closing."""
    resolved = factory.resolve(study.default())
    factory.check(resolved)
    for note in notes_of(factory, resolved):
        warn(note)
    if close := getattr(factory, "close", None):
        opened.callback(close)
    return factory


@contextmanager
def _process_executor(study: Study) -> Iterator[ProcessExecutor]:
    """Yield the executor that runs a study's `command` processes."""
    executor, settings = study.executor, study.processes or Processes()
    if executor.type == "local":
        yield LocalProcesses(settings)
    elif executor.type == "slurm":
        yield SlurmJobs(executor, settings, resumes=study.resume is not None)
    else:
        from .ray_processes import RayProcesses
        from .via_ray import connected

        cpus = (settings.at_once or 1) * (settings.threads or 1)
        with connected(executor, "executor: {type: ray}", cpus) as ray:
            yield RayProcesses(ray, settings)
