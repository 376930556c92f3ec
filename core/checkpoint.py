"""Exact states on disk, through Orbax: what is restored continues with the same bits.

Orbax does not notice a changed byte in its data files, so that the sums of all files are kept
beside them, in the format of `sha256sum --check`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np

from .. import disk
from ..errors import StoreError

__all__ = ["restore_tree", "save_tree"]

_SUMS = "SHA256SUMS"


def save_tree(directory: Path, tree: Any) -> None:
    """Write a pytree of arrays into a new directory; returns when it is on disk.

    Args:
        directory: must not exist.
        tree: arrays of host or devices, none of them empty; typed keys are not allowed (store
            their words).

    Raises:
        StoreError: the disk refuses.
    """
    import orbax.checkpoint as ocp

    here = jax.device_get(tree)  # what a device says is no matter of the disk
    with disk.telling(directory), _unlogged(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), here)
        checkpointer.wait_until_finished()
    with disk.telling(directory):
        disk.write_text(directory / _SUMS, "".join(_lines(directory)))


@contextmanager
def _unlogged() -> Generator[None, None, None]:
    """Keep Orbax from printing a traceback in each of its threads of what it raises anyway.

    Threads of a failed save may print theirs after it: what keeps them quiet then stays.
    """
    logger, hook = logging.getLogger("absl"), sys.excepthook
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    sys.excepthook = partial(_tell_unless_late, hook)
    try:
        yield
        sys.excepthook = hook
    finally:
        logger.setLevel(level)


def _tell_unless_late(
    hook: Callable[..., object],
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
) -> None:
    """Print what nobody caught, unless a thread found the loop of its save closed already."""
    if not (isinstance(error, RuntimeError) and "Event loop is closed" in str(error)):
        hook(kind, error, traceback)


def _lines(directory: Path) -> Iterator[str]:
    """Yield the sum of every file, in the format of `sha256sum --check`."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    for path in files:
        yield f"{_sum(path)}  {path.relative_to(directory).as_posix()}\n"


def restore_tree(directory: Path, like: Any) -> Any:
    """Read what `save_tree` wrote, as host arrays in the structure of `like`.

    Args:
        directory: written by `save_tree`.
        like: a pytree with the same structure, shapes and dtypes.

    Raises:
        StoreError: the directory is missing, damaged, or holds another structure.
    """
    import orbax.checkpoint as ocp

    _check_files(directory)
    target = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(directory.resolve(), target)
    except (ValueError, KeyError, OSError, TypeError) as error:
        words = " ".join(line.strip(" :") for line in str(error).splitlines()[:2])  # then arrays
        raise StoreError(f"the checkpoint {directory} cannot be read: {words:.250}") from error
    # Orbax gives arrays of the shapes on disk, whatever was asked for.
    if [x.shape for x in jax.tree.leaves(found)] != [x.shape for x in jax.tree.leaves(target)]:
        raise StoreError(f"the checkpoint {directory} holds arrays of other shapes")
    return found


def _check_files(directory: Path) -> None:
    if not directory.is_dir():
        raise StoreError(f"no checkpoint at {directory}")
    try:
        lines = disk.read_text(directory / _SUMS).splitlines()
        listed = [line.split("  ", 1) for line in lines]
        damaged = [name for known, name in listed if _sum(directory / name) != known]
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the checkpoint {directory} is damaged or incomplete: {error}"
        ) from error
    if damaged or not listed:
        files = ", ".join(damaged) or _SUMS
        raise StoreError(f"the checkpoint {directory} is damaged: {files} changed")


def _sum(path: Path) -> str:
    with os.fdopen(disk.open_plain(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
