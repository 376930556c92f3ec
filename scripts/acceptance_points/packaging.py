"""The wheel and the sdist as users get them."""

from __future__ import annotations

from pathlib import Path

from wheel_parts.main import build_and_check

from .common import Outcome


def wheel(small: bool, work: Path) -> Outcome:
    """Build the last commit, check, install, run the README's commands, resolve all extras."""
    built = build_and_check(work, work / "dist", fast=small)
    return Outcome(True, built.words())
