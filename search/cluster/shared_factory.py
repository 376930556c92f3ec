"""Makes populations whose lanes are spread over the workers of a cluster.

What a configuration is (its bucket, its quantum) is asked of a worker: the process that runs the
search needs neither jax nor a device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...store.codec import plain_json
from ...store.rows import Stream
from ..lanes.contract import EvaluationResult
from .share_host import Machine
from .shares import SharedPopulation, Team, asked

__all__ = ["SharedFactory"]


class SharedFactory:
    """A `PopulationFactory` over a team of hosts.

    Args:
        team: reaches the hosts, all of which have begun.
        machine: what each of them runs on.
        compiling: entered around each compile, with words for it.
    """

    def __init__(
        self,
        team: Team,
        machine: Machine,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    ):
        self._team, self._compiling = team, compiling
        self.backend = machine.backend
        self.device_count = machine.device_count * team.shares
        self._known: dict[tuple[str, str], Any] = {}

    def _of(self, what: str, config: Mapping[str, Any]) -> Any:
        """Ask what never changes about a configuration, once."""
        key = (what, json.dumps(plain_json(config), sort_keys=True))
        if key not in self._known:
            self._known[key] = asked(self._team, 0, (what, (dict(config),)))
        return self._known[key]

    def bucket_of(self, config: Mapping[str, Any]) -> str:
        """See `PopulationFactory`."""
        return self._of("bucket_of", config)

    def quantum(self, config: Mapping[str, Any]) -> int:
        """See `PopulationFactory`."""
        return self._of("quantum", config)

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse a configuration that no program can run.

        Raises:
            ConfigError: says why.
        """
        asked(self._team, 0, ("check", (dict(config),)))

    def make(self, config: Mapping[str, Any], lanes: int | None) -> SharedPopulation:
        """See `PopulationFactory`."""
        key = self.bucket_of(config)
        return SharedPopulation(self._team, key, config, lanes, self._compiling)

    def baseline(
        self, name: str, config: Mapping[str, Any], seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """See `PopulationFactory`."""
        return asked(self._team, 0, ("baseline", (name, dict(config), list(seeds))))
