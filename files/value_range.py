"""The range of a number: the common part of hyperparameters and of keys of studies and `env:`."""

from __future__ import annotations

import math
from dataclasses import dataclass

_TOO_LARGE_TO_SAY = 1e12


@dataclass(frozen=True, kw_only=True)
class Range:
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False  # `low` itself is not legal

    def contains(self, number: float) -> bool:
        above = number > self.low if self.low_open else number >= self.low
        return above and number <= self.high

    def in_words(self, noun: str) -> str:
        """Return the legal numbers in words; whole bounds are written out in full.

        >>> Range(low=0.0, high=1.0).in_words("a number")
        'a number from 0 to 1'
        """
        first, last = (f"{x:.0f}" if x % 1 == 0 else f"{x:g}" for x in (self.low, self.high))
        endless = self.high >= _TOO_LARGE_TO_SAY
        if self.low == -math.inf:
            return noun if endless else f"{noun} of at most {last}"
        if endless or self.low_open:
            start = f"{noun} {'above' if self.low_open else 'of at least'} {first}"
            return start if endless else f"{start} and at most {last}"
        return f"{noun} from {first} to {last}"
