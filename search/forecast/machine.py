"""The programs of a study on this machine: what they are like, and what their time depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...studies.spec import Study
from ...via_gymnasium import is_gymnasium
from ..lanes.contract import Resolved
from ..lanes.several import SeveralFactory
from ..lanes.versions import versions
from .costs import Costs
from .kept import key_of
from .rehearsed import First, Lanes, Part

__all__ = ["Machine", "Program"]


class Machine:
    """The programs of one study on this machine.

    Args:
        factory: a `LocalFactory`, or a `SeveralFactory` of such.

    Attributes:
        parts: of several environments one machine each, else itself.
    """

    def __init__(self, factory: Any):
        self.factory = factory
        self._known: dict[tuple[str, int | None], Lanes] = {}
        several = factory.factories if isinstance(factory, SeveralFactory) else ()
        self.parts: tuple[Machine, ...] = tuple(map(Machine, several)) or (self,)

    @property
    def study(self) -> Study:
        """Of the factory."""
        return self.factory.study

    @property
    def is_hosted(self) -> bool:
        """Whether the host steps an environment."""
        return any(is_gymnasium(part.study.env.id) for part in self.parts)

    def lanes_of(self, resolved: Resolved, lanes: int | None) -> Lanes:
        """Return what a bucket's programs are like; nothing is compiled."""
        key = (resolved.bucket, lanes)
        if key not in self._known:
            several = len(self.parts) > 1
            found = self._several(resolved, lanes) if several else self._one(resolved, lanes)
            self._known[key] = found
        return self._known[key]

    def _one(self, resolved: Resolved, lanes: int | None) -> Lanes:
        from ..lanes.local_population import warmup_chunks

        program = self.factory.program_of(resolved, lanes)
        block = program.tile * len(program.devices)
        width = program.evaluation_width
        return Lanes(program.lanes, block, warmup_chunks(program), width)

    def _several(self, resolved: Resolved, lanes: int | None) -> Lanes:
        """Return the programs of all environments, as `SeveralFactory.make` agrees on lanes."""
        pairs = list(zip(self.parts, resolved.payload, strict=True))
        own = [Part(lanes, part.lanes_of(one, lanes)) for part, one in pairs]
        for agree in (min, max):
            asked = agree(part.lanes.lanes for part in own)
            own = [
                part if part.lanes.lanes == asked else Part(asked, machine.lanes_of(one, asked))
                for part, (machine, one) in zip(own, pairs, strict=True)
            ]
        widest = max(part.lanes.block for part in own)
        return replace(own[0].lanes, block=widest, parts=tuple(own))

    def program(self, first: First) -> Program:
        """Return a program that a rehearsal asked for."""
        part = self.parts[first.environment]
        about = part.lanes_of(first.resolved, first.lanes)
        return Program(part, first.resolved, first.lanes, about, part.size_of(first.resolved))

    def size_of(self, resolved: Resolved) -> int:
        """Return the weights of one lane."""
        from ...core.memory import parameter_count
        from ..lanes.configuration import parts_of

        parts = parts_of(resolved)
        return parameter_count(parts.plan, parts.hypers)

    def key_of(self, resolved: Resolved, lanes: int | None) -> str:
        """Return the name of a program's timing: all that its time depends on."""
        study = self.study
        about = self.lanes_of(resolved, lanes)
        knobs = [(p.name, p.distribution.as_mapping()) for p in study.space.parameters]
        return key_of(
            resolved.bucket, resolved.steps_per_chunk, about, self.factory.backend,
            self.factory.device_count, study.env, study.evaluation, sorted(study.fixed.items()),
            knobs, study.baselines, study.confirm, study.population,
            sorted(versions([study.env.id]).items()),
        )  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A program that the study runs, and what it takes.

    Attributes:
        machine: of its environment.
        resolved: a configuration of it.
        lanes: as the engine asks for them.
        about: what it is like.
        size: weights of one lane.
        costs: what it takes, None while it is not timed.
        is_new: it was timed just now.
    """

    machine: Machine
    resolved: Resolved
    lanes: int | None
    about: Lanes
    size: int
    costs: Costs | None = None
    is_new: bool = False

    @property
    def study(self) -> Study:
        """Over its environment alone."""
        return self.machine.study

    @property
    def is_hosted(self) -> bool:
        """Whether the host steps its environment."""
        return self.machine.is_hosted
