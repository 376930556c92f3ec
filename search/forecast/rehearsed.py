"""What a rehearsal must know of a study's programs, and what it counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..book.state import Phase
from ..lanes.contract import Resolved

__all__ = ["Counted", "First", "Lanes", "Part", "Rehearsed"]


@dataclass(frozen=True)
class Lanes:
    """What a rehearsal must know of a bucket's program.

    Attributes:
        lanes, block, warmup_chunks: as of `Population`.
        width: lanes that one call of the evaluation takes.
        parts: over several environments the program of each.
    """

    lanes: int
    block: int
    warmup_chunks: int
    width: int
    parts: tuple[Part, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Part:
    """The program of one of several environments.

    Attributes:
        asked: lanes, as it is asked for them.
        lanes: what it is like then.
    """

    asked: int | None
    lanes: Lanes


@dataclass(frozen=True)
class First:
    """A program that a study runs.

    Attributes:
        bucket: whose it is.
        resolved: a configuration of it; over several environments that of one of them.
        lanes: that the engine asked for.
        environment: its number.
    """

    bucket: str
    resolved: Resolved
    lanes: int | None
    environment: int = 0


@dataclass
class Counted:
    """What one program did in one phase.

    Attributes:
        chunks: dispatched.
        blocks: with a busy lane, of all chunks.
        calls: of the evaluation program.
        evaluations: of a replicate each.
    """

    chunks: float = 0.0
    blocks: float = 0.0
    calls: float = 0.0
    evaluations: float = 0.0

    def times(self, share: float) -> Counted:
        """Return so many times as much."""
        return Counted(*(share * value for value in vars(self).values()))


@dataclass(frozen=True)
class Rehearsed:
    """What a study did.

    Attributes:
        counts: (program, phase) -> what it did there; all confirming is `choose`. A bucket has
            one program, over several environments one for each.
        firsts: program -> what it is.
        env_steps: of training.
        confirm_env_steps: of these, of the confirm stage.
        whole: it came to its end.
    """

    counts: Mapping[tuple[str, Phase], Counted]
    firsts: Mapping[str, First]
    env_steps: int
    confirm_env_steps: int
    whole: bool

    def of(self, phase: Phase) -> dict[str, Counted]:
        """Return program -> what it did in a phase."""
        return {program: found for (program, at), found in self.counts.items() if at is phase}
