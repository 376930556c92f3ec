"""The wheel and the sdist as a user gets them."""

from __future__ import annotations

from pathlib import Path

from wheel_parts.main import build_and_check

from .common import Outcome


def wheel(small: bool, work: Path) -> Outcome:
    """Build from the last commit, check, install, run README's commands, resolve all extras."""
    built = build_and_check(work, work / "dist", fast=small)
    return Outcome(True, built.words())
