"""What words of the command line stand for; argparse shows what does not fit."""

from __future__ import annotations

import argparse

__all__ = [
    "RESAMPLES_HELP",
    "RULES_HELP",
    "counts",
    "env_steps",
    "port",
    "positive",
    "seconds",
    "seed",
]


RULES_HELP = (
    "none, racing, or a type of early_terminate with options: asha,eta=2,min=2k; repeatable "
    "(default: the usual ones side by side)"
)
RESAMPLES_HELP = "resample the trials N times for the interval; 0: none (default: 100)"


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return _whole(text, 1)


def env_steps(text: str) -> int:
    """Return a number of env steps, such as 50k."""
    from ..studies.amounts import count_of

    count = positive(text) if text.isdigit() else count_of(text)
    if count is None or count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of env steps such as 50k")
    return count


def counts(text: str) -> list[int]:
    """Return whole numbers between commas."""
    return [positive(part) for part in text.split(",")]


def seed(text: str) -> int:
    """Return a whole number of at least 0."""
    return _whole(text, 0)


def seconds(text: str) -> float:
    """Return a number of seconds."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; 0 means no limit")
    return found


def port(text: str) -> int:
    """Return the number of a port; 0 stands for any that is free."""
    found = _whole(text, 0)
    if found > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; they go from 0 to 65535")
    return found


def _whole(text: str, low: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
    return int(text)
