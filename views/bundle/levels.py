"""The results of `hpo verify`, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    name: str
    holds: bool | None  # None if not requested, or without an answer
    words: str
    wrong: Sequence[str] = ()
    not_read: str = ""  # a check that readers might expect of this level
    # for retraining: which claims (`about`) are based only on the covered seeds, and the evidence
    # for them, as text
    claims: Sequence[str] = ()
    covers: str = ""
