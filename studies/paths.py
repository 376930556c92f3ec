"""Paths that a study may name: below its own folder, nowhere else."""

from __future__ import annotations

from pathlib import PurePosixPath

__all__ = ["is_inside"]


def is_inside(path: str) -> bool:
    r"""Return whether a path, as written in a file, stays below the folder it is relative to.

    >>> is_inside("spaces/ppo.yaml"), is_inside("../x"), is_inside("/etc/x"), is_inside("a\\b")
    (True, False, False, False)
    """
    pure = PurePosixPath(path)
    unclear = any(character in path for character in "\\:\x00") or len(path) > 500
    return bool(path) and not pure.is_absolute() and ".." not in pure.parts and not unclear
