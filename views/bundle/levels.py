"""The results of `hpo verify`, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    name: str
    holds: bool | None  # None: not asked for, or there is no answer
    words: str
    wrong: Sequence[str] = ()
    not_read: str = ""  # what a reader might expect this level to check
    # of training again: which claims (`about`) rest on the covered seeds alone, and what vouches
    # for them, in words
    claims: Sequence[str] = ()
    covers: str = ""
