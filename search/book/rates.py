"""How fast a study goes: what chunks, evaluations and compiles took in this life of it.

Lives before this one are no part of it: another machine may have run them, and what they waited
for is over. The latest counts most, so that a rate follows a machine that gets busier.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .usage import Usage
from .work_ahead import Ahead, Work

__all__ = ["Rates"]

_HALF_LIFE = 60.0  # seconds after which what was seen counts half, at least
_OF_LIFE = 0.25  # likewise, as a share of the seconds seen so far


@dataclass
class Rates:
    """What was seen in this life, older things with less weight.

    Attributes:
        seen: seconds of this life, without compiles.
        train_seconds, block_steps, env_steps: of chunks.
        evaluate_seconds, evaluations: of evaluations, one a replicate.
        other_seconds: between chunks and evaluations, without compiles.
        compile_seconds, compiled: of this life, all with the same weight; buckets.
    """

    seen: float = 0.0
    train_seconds: float = 0.0
    block_steps: float = 0.0
    env_steps: float = 0.0
    evaluate_seconds: float = 0.0
    evaluations: float = 0.0
    other_seconds: float = 0.0
    compile_seconds: float = 0.0
    compiled: int = 0
    _before: Usage | None = None
    _work: Work = field(default_factory=Work)

    def begin(self, usage: Usage) -> None:
        """Count from here; what is counted already belongs to lives before."""
        self._before = replace(usage)

    def did(self, work: Work) -> None:
        """Count work that a step did; its time comes with `pass_boundary`."""
        self._work += work

    def pass_boundary(self, usage: Usage, compiled: int) -> None:
        """Take in what the time since the last boundary went into.

        Args:
            usage: of the study, this boundary's time counted.
            compiled: buckets whose program this life has compiled so far.
        """
        before, self._before = self._before or Usage(), replace(usage)
        trained = usage.env_steps - before.env_steps
        new = {
            part: seconds - before.seconds_by_part[part]
            for part, seconds in usage.seconds_by_part.items()
        }
        self.compile_seconds += new["compile"]
        self.compiled = compiled
        took = sum(new.values()) - new["compile"]
        self.seen += took
        fade = 0.5 ** (took / max(_HALF_LIFE, _OF_LIFE * self.seen))
        self.train_seconds = fade * self.train_seconds + new["train"]
        self.evaluate_seconds = fade * self.evaluate_seconds + new["evaluate"]
        other = took - new["train"] - new["evaluate"]
        self.other_seconds = fade * self.other_seconds + max(0.0, other)
        self.block_steps = fade * self.block_steps + self._work.block_steps
        self.env_steps = fade * self.env_steps + trained
        self.evaluations = fade * self.evaluations + self._work.evaluations
        self._work = Work()

    @property
    def env_steps_per_second(self) -> float:
        """Training env steps a second of work, compiles apart; 0 before the first chunk."""
        seconds = self.train_seconds + self.evaluate_seconds + self.other_seconds
        return self.env_steps / seconds if seconds > 0.0 else 0.0

    def seconds_of(self, ahead: Ahead) -> float | None:
        """Return the seconds that some work takes; None before a chunk was seen."""
        if self.block_steps <= 0.0 or self.train_seconds <= 0.0:
            return None
        work = ahead.work
        chunks = work.block_steps * self.train_seconds / self.block_steps
        if self.evaluations:
            each = self.evaluate_seconds / self.evaluations
            chunks += work.evaluations * each
        working = self.train_seconds + self.evaluate_seconds
        between = 1.0 + self.other_seconds / working
        compiling = ahead.buckets * self.compile_seconds / max(1, self.compiled)
        return chunks * between + compiling
