"""How fast a study runs and when it will end, from its recent speed and the steps left."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ...search.book.progress import Progress
from ...search.book.state import Phase
from ...studies.expected import expected_steps
from ...studies.quanta import quanta_of
from ...studies.spec import Study

__all__ = ["Outlook", "Pace"]

_WINDOW_SECONDS = 30.0


@dataclass(frozen=True)
class Outlook:
    """An estimate of the rest of a study.

    Attributes:
        env_steps_total: of the whole study, an estimate while trials may be stopped early.
        env_steps_per_second: over the last half minute.
        seconds_left: None before a speed is known.
    """

    env_steps_total: int
    env_steps_per_second: float
    seconds_left: float | None

    def share(self, env_steps: int) -> float:
        """Return the share that is done, 0 to 1."""
        return min(1.0, env_steps / max(1, self.env_steps_total))


class Pace:
    """Estimates a study's speed, without the time of compiles.

    Args:
        study: the running study.
    """

    def __init__(self, study: Study):
        config = study.default()
        quanta = quanta_of(study, config["num_envs"] * config["rollout_length"])
        self._expected = expected_steps(study, quanta).total
        self._wall = study.budget.wall_seconds
        self._seen: deque[tuple[float, int]] = deque()
        self._compiling_seconds = 0.0

    def compiled(self, seconds: float) -> None:
        """Count some seconds of the running time as those of a compile."""
        self._compiling_seconds += seconds

    def see(self, progress: Progress) -> Outlook:
        """Record a study's progress, and return the estimate of its rest."""
        working = progress.seconds - self._compiling_seconds
        self._seen.append((working, progress.env_steps))
        while len(self._seen) > 2 and working - self._seen[1][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        total = self._total(progress)
        (began, before), (now, after) = self._seen[0], self._seen[-1]
        if now > began and after > before:
            speed = (after - before) / (now - began)
        else:
            share = working / progress.seconds if 0.0 < working < progress.seconds else 1.0
            speed = progress.env_steps_per_second / share
        left = (total - progress.env_steps) / speed if speed > 0 else None
        if left is not None and self._wall is not None:
            left = min(left, max(0.0, self._wall - progress.seconds))
        return Outlook(total, speed, left)

    def _total(self, progress: Progress) -> int:
        """Return the expected env steps while trials are proposed; afterwards they are known."""
        if progress.phase is Phase.SEARCH and self._expected is not None:
            return max(self._expected, progress.env_steps)
        return max(progress.env_steps_total, progress.env_steps)
