"""Shares of a study's populations on this machine's devices: what a worker of a cluster makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...store.rows import Stream
from ...studies.spec import Study
from ...studies.user_code import check_registered
from ..lanes.compile_cache import enable_compilation_cache
from ..lanes.configuration import parts_of
from ..lanes.contract import EvaluationResult, Resolved
from ..lanes.division import Division
from ..lanes.local_population import LocalPopulation
from ..lanes.versions import versions
from ..own_code import run_own_code
from .share_host import Machine

__all__ = ["LocalShares", "local_shares"]


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
