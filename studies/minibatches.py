"""What `hpo check` says of minibatches that are not what a study asks for, or hold one sample.

Rows are samples, or whole segments (all steps of one environment) where what a step teaches
depends on those around it. A sample that is alone in its minibatch has no other to be normalised
with, so that its advantage is used as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..environments import find
from ..knobs import KNOBS, RECURRENT_NETWORKS
from .idle import possible_values
from .several import environments_of
from .spec import Study

__all__ = ["Minibatches"]

_LISTED = 4
_BODIES = ("agents", "num_agents")


@dataclass(frozen=True)
class _Cut:
    """How some rows are cut into minibatches.

    Attributes:
        rows: of a rollout.
        segments: rows are segments.
        alone: what one row's minibatch holds cannot be normalised.
    """

    rows: int
    segments: bool
    alone: bool

    def size(self, count: int) -> int:
        """Return the rows of each minibatch but the last, which may have fewer."""
        return math.ceil(self.rows / count)

    def made(self, count: int) -> int:
        """Return how many minibatches there are where `count` are asked for."""
        return math.ceil(self.rows / self.size(count))

    def right(self, count: int) -> bool:
        """Return whether so many are made, and none holds one sample alone."""
        size = self.size(count)
        return self.made(count) == count and not (self.alone and self.rows % size == 1 % size)

    def near(self, count: int) -> str:
        """Return the nearest numbers that are right, to be typed."""
        below = next((n for n in range(count, 0, -1) if self.right(n)), None)
        above = next((n for n in range(count, self.rows + 1) if self.right(n)), None)
        return " or ".join(str(n) for n in dict.fromkeys((below, above)) if n is not None)

    def words(self) -> str:
        """Return the rows in words."""
        if self.segments:
            return f"{self.rows:,} whole segments, one of each environment,"
        return f"{self.rows:,} samples (num_envs x rollout_length)"


@dataclass
class Minibatches:
    """Gathers what is to be said of the configurations of one study.

    Attributes:
        study: loaded.
        fewer: numbers asked for that are not made.
        single: numbers whose minibatches hold one sample each.
        rest: numbers whose last minibatch does.
    """

    study: Study
    fewer: dict[_Cut, dict[int, None]] = field(default_factory=dict[_Cut, dict[int, None]])
    single: dict[_Cut, dict[int, None]] = field(default_factory=dict[_Cut, dict[int, None]])
    rest: dict[_Cut, dict[int, None]] = field(default_factory=dict[_Cut, dict[int, None]])

    def look(self, params: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Look at one configuration.

        Args:
            params: what is searched of it.
            config: all of it, complete.
        """
        given = {**self.study.fixed, **params}
        drawn = "num_minibatches" in given and given.get("minibatch_size") is not None
        if config["network"] not in KNOBS["network"].choices or drawn:
            return  # registered networks may need segments; rows that are drawn are cut as asked
        segments = self._by_segments(config)
        cut = _Cut(
            config["num_envs"] * (1 if segments else config["rollout_length"]),
            segments,
            not segments and self._normalises() and not self._has_bodies(),
        )
        asked = config["num_minibatches"]
        if given.get("minibatch_size") is None:
            asked = given.get("num_minibatches", KNOBS["num_minibatches"].default)
        if asked > cut.rows:
            return  # refused elsewhere
        size = cut.size(asked)
        if cut.made(asked) != asked:
            self.fewer.setdefault(cut, {})[asked] = None
        if cut.alone and cut.rows > 1 and size == 1:
            self.single.setdefault(cut, {})[asked] = None
        elif cut.alone and cut.rows % size == 1:
            self.rest.setdefault(cut, {})[asked] = None

    def notes(self) -> list[str]:
        """Return what is to be said, with what to type."""
        found: list[str] = []
        for cut, asked in self.fewer.items():
            made = [f"{n} (makes {cut.made(n)}; type {cut.near(n)})" for n in asked]
            found.append(
                f"{cut.words()} make fewer minibatches than num_minibatches says: {_listed(made)}"
            )
        for cut, asked in self.single.items():
            found.append(
                f"num_minibatches {_listed(asked)}: minibatches of one sample, whose advantage is "
                f"not normalised; type at most {cut.near(min(asked))}, or normalise_advantages: "
                "false"
            )
        for cut, asked in self.rest.items():
            made = [f"{n} (type {cut.near(n)})" for n in asked]
            found.append(
                "the last minibatch of an epoch is one sample, whose advantage is not normalised, "
                f"with num_minibatches {_listed(made)}"
            )
        return found

    def _by_segments(self, config: Mapping[str, Any]) -> bool:
        """Return what `Plan.by_segments` of the core will be."""
        traced = any(value is not None for value in possible_values(self.study, "rho_clip"))
        drawn = any(possible_values(self.study, "priority_alpha"))
        over = drawn and config["priority_over"] == "segments"
        return config["network"] in RECURRENT_NETWORKS or traced or over

    def _normalises(self) -> bool:
        return any(possible_values(self.study, "normalise_advantages"))

    def _has_bodies(self) -> bool:
        known = [find(one.id) for one in environments_of(self.study)]
        return any(entry and any(key in entry.keys for key in _BODIES) for entry in known)


def _listed(items: Iterable[Any]) -> str:
    words = [str(item) for item in items]
    more = len(words) - _LISTED
    return ", ".join(words[:_LISTED]) + (f" and {more} more" if more > 0 else "")
