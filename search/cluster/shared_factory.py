"""Makes populations whose lanes are spread over the workers of a cluster.

What a configuration is (its bucket, its quantum) is asked of a worker: the process that runs the
search needs neither jax nor a device. A configuration travels as its knobs and a name, under which
every host keeps what it has made of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...store.codec import plain_json
from ...store.rows import Stream
from ..lanes.contract import EvaluationResult, Resolved
from .share_host import Machine
from .shares import SharedPopulation, Team, asked

__all__ = ["SharedFactory"]


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
