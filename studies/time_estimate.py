"""How long a study is expected to take on a machine: data, and the words for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LONG_SECONDS", "Span", "TimeEstimate", "span_of_time", "time_lines"]

LONG_SECONDS = 3600.0
"""A study that takes longer is worth a word before it runs."""


@dataclass(frozen=True)
class Span:
    """Some seconds: the expected ones, and the interval around them."""

    low: float
    expected: float
    high: float

    def __add__(self, other: Span) -> Span:
        """Return both, one after the other."""
        return Span(self.low + other.low, self.expected + other.expected, self.high + other.high)

    def times(self, low: float, expected: float, high: float) -> Span:
        """Return each of the three so many times."""
        return Span(low * self.low, expected * self.expected, high * self.high)


@dataclass(frozen=True)
class TimeEstimate:
    """How long a study takes.

    Attributes:
        phases: name -> its span; in order, their sum is the whole.
        at_most: seconds if nobody is stopped early, None where nobody could be.
        wall: seconds after which the study's own budget ends it.
        basis: what the numbers rest on.
        assumes: what was taken for granted, each in words.
    """

    phases: Mapping[str, Span]
    at_most: float | None
    wall: float | None
    basis: str
    assumes: tuple[str, ...]

    @property
    def total(self) -> Span:
        """All phases, one after the other, cut at the budget."""
        whole = sum(self.phases.values(), Span(0.0, 0.0, 0.0))
        if self.wall is None:
            return whole
        return Span(*(min(self.wall, seconds) for seconds in asdict(whole).values()))

    def as_data(self) -> dict[str, Any]:
        """Return it as JSON data; seconds."""
        total = self.total
        return {
            "seconds": round(total.expected, 1),
            "low": round(total.low, 1),
            "high": round(total.high, 1),
            "at_most": None if self.at_most is None else round(self.at_most, 1),
            "phases": {name: round(span.expected, 1) for name, span in self.phases.items()},
            "basis": self.basis,
            "assumes": list(self.assumes),
        }

    def lines(self) -> list[str]:
        """Return it as lines for a terminal."""
        total = self.total
        phases = ", ".join(
            f"{name} {span_of_time(span.expected)}" for name, span in self.phases.items()
        )
        most = ""
        if self.at_most is not None and self.at_most > 1.05 * total.high:
            most = f"; at most {span_of_time(self.at_most)} if nobody is stopped early"
        found = [
            f"time       about {span_of_time(total.expected)} here, {span_of_time(total.low)} to "
            f"{span_of_time(total.high)}: {phases}{most}",
            f"           {self.basis}; taken for granted: {'; '.join(self.assumes)}",
        ]
        if total.expected > LONG_SECONDS:
            found.append(f"warning    {self.long_words()}")
        return found

    def long_words(self) -> str:
        """Return a warning that the study takes hours, and what would shorten it most."""
        total = self.total.expected
        share = {name: span.expected / max(total, 1e-9) for name, span in self.phases.items()}
        name = max(share, key=lambda phase: share[phase])
        advice = {
            "search": "budget.trials, env_steps or seeds.per_config",
            "confirm": "confirm.top_k, choose or report, or env_steps",
            "evaluation": "evaluation.episodes, or evaluate less often",
            "compile": "the values of static knobs, which make programs",
        }.get(name, "env_steps")
        return (
            f"this takes {span_of_time(total)} here, {share[name]:.0%} of it {name}; "
            f"lower {advice}"
        )


def time_lines(time: TimeEstimate | None, note: str) -> list[str]:
    """Return the lines on time of `hpo check`: the estimate, or why there is none."""
    if time is not None:
        return time.lines()
    return [f"time       not known: {note}"] if note else []


def span_of_time(seconds: float) -> str:
    """Format a span of time, to two digits or so: nobody knows it better.

    >>> span_of_time(7.3), span_of_time(95), span_of_time(1210), span_of_time(9700)
    ('7s', '1m35s', '20 min', '2.7 h')
    """
    if seconds < 60:
        return f"{max(1, round(seconds))}s"
    if seconds < 600:
        whole = 5 * round(seconds / 5)
        return f"{whole // 60}m{whole % 60:02d}s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
