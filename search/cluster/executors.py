"""Where a study's populations live: on this machine's devices, or on the workers of a cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from ...machine.software import enable_compilation_cache, versions
from ...store.codec import plain_json
from ...store.rows import Stream
from ...studies.check import spread_note
from ...studies.programs import words_of_bucket
from ...studies.spec import Study
from ...studies.user_code import check_registered, run_own_code
from ..lanes.configuration import parts_of
from ..lanes.contract import Division, EvaluationResult, PopulationFactory, Resolved
from ..lanes.local_population import LocalPopulation
from ..lanes.multi_environment import factories_of
from .worker_shards import Machine, SharedPopulation, Team, asked


def local_shares(
    study: Study, shares: int, cores: int, neighbours: int, warn: Callable[[str], None]
) -> LocalShares:
    """Make ready for a study: run its own code, start jax with this worker's devices.

    Args:
        study: what is asked.
        shares: that stand for one population.
        cores: of this machine that this process may use.
        neighbours: shares on this machine.
        warn: takes a line about what went wrong with some environments.

    Raises:
        HpoError: the study cannot run here.
    """
    run_own_code(study, cores)
    check_registered(study)
    enable_compilation_cache()
    return LocalShares(study, shares, cores, neighbours, warn)


class LocalShares:
    """Makes one of several equal shares of every population; see `ShareSource`."""

    def __init__(
        self,
        study: Study,
        shares: int,
        cores: int,
        neighbours: int,
        warn: Callable[[str], None],
    ):
        from ..lanes.local import LocalFactory

        self._factory = LocalFactory(study, warn=warn, cores=cores)
        self._shares, self._neighbours = shares, neighbours
        self._versions = versions(env.id for env in (study.env, *study.more_envs))

    @property
    def machine(self) -> Machine:
        """See `ShareSource`."""
        return Machine(self._factory.backend, self._factory.device_count, self._versions)

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`."""
        return self._factory.resolve(config)

    def check(self, resolved: Resolved) -> None:
        """See `ShareSource`."""
        _ = parts_of(resolved).hypers  # makes the environments, which may refuse
        self._factory.check_divides(resolved, self._shares)

    def divide(self, resolved: Resolved, lanes: int | None) -> Division:
        """See `ShareSource`."""
        return self._factory.divide(resolved, lanes, self._shares, self._neighbours)

    def make(self, resolved: Resolved, division: Division) -> LocalPopulation:
        """See `ShareSource`."""
        return self._factory.make_share(resolved, division)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """See `PopulationFactory`."""
        return self._factory.baseline(name, resolved, seeds)


class SharedFactory:
    """A `PopulationFactory` over a team of hosts.

    Args:
        team: reaches the hosts, all of which have begun.
        machine: what each of them runs on.
        compiling: entered around each compile, with words for it.
        told_apart: configuration -> what tells its bucket from the others.
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
        """See `PopulationFactory`; a worker is asked."""
        given = dict(config)
        text = json.dumps(plain_json(given), sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        bucket, steps = asked(self._team, 0, ("resolve", (given, name)))
        return Resolved(given, bucket, steps, name)

    def check(self, resolved: Resolved) -> None:
        """Refuse a configuration that no program can run.

        Raises:
            ConfigError: says why.
        """
        asked(self._team, 0, ("check", (resolved,)))

    def make(self, resolved: Resolved, lanes: int | None) -> SharedPopulation:
        """See `PopulationFactory`."""
        words = self._told_apart(resolved.config)
        return SharedPopulation(self._team, resolved, lanes, self._compiling, words)

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """See `PopulationFactory`."""
        return asked(self._team, 0, ("baseline", (name, resolved, list(seeds))))


_LETTERS = 22  # so that the line of a compile has 80
_MOST_HANDLES = 64  # processes of Ray Tune's that are expected at a time


@contextmanager
def factory_of(
    study: Study,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[PopulationFactory]:
    """Yield the factory of a study's populations, usable while the context is open.

    What only imported code knows is checked by the default configuration, before anything is on
    disk.

    Args:
        study: its own code has been imported.
        compiling: entered around each compile, with words for it.
        warn: takes a line about environments, or about a worker that died; from any thread.

    Raises:
        HpoError: the study cannot run here, or there is no cluster.
    """
    config = study.default()
    with ExitStack() as opened:
        if study.search.driver == "ray_tune":  # before jax, whose threads a fork would not survive
            from .via_ray import connected

            handles = min(study.budget.trials or 1, _MOST_HANDLES) + study.executor.workers
            purpose = "search: {driver: ray_tune}"
            opened.enter_context(connected(study.executor, purpose, handles))
        yield opened.enter_context(_made(study, config, compiling, warn))


@contextmanager
def _made(
    study: Study,
    config: Mapping[str, Any],
    compiling: Callable[[str], AbstractContextManager[object]],
    warn: Callable[[str], None],
) -> Iterator[PopulationFactory]:
    if study.executor.type == "local":
        enable_compilation_cache()
        from ..lanes.local import LocalFactory

        local = factories_of(
            study, lambda one, of: LocalFactory(one, compiling, warn, environments=of)
        )
        local.check(local.resolve(config))
        yield local
        return
    with _on_cluster(study, compiling, warn) as shared:
        shared.check(shared.resolve(config))
        yield shared


@contextmanager
def _on_cluster(
    study: Study,
    compiling: Callable[[str], AbstractContextManager[object]],
    warn: Callable[[str], None],
) -> Iterator[SharedFactory]:
    from .via_ray import RayTeam, connected, place_of

    executor = study.executor
    with connected(executor, "executor: {type: ray}") as ray:
        place = place_of(ray, executor, study.population.device)
        if note := spread_note(study):
            warn(note)
        source = partial(local_shares, study, executor.workers, place.cpus)
        team = RayTeam(ray, executor.workers, place, source, warn)
        try:
            words = partial(words_of_bucket, study, most=_LETTERS)
            yield SharedFactory(team, team.begin(), compiling, words)
        finally:
            team.end()
