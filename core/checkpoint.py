"""Exact states on disk, through Orbax: what is restored continues with the same bits.

Orbax does not notice a changed byte in its data files, so that the sums of all files are kept
beside them, in the format of `sha256sum --check`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import StoreError

__all__ = ["restore_tree", "save_tree"]

_SUMS = "SHA256SUMS"


def save_tree(directory: Path, tree: Any) -> None:
    """Write a pytree of arrays into a new directory; returns when it is on disk.

    Args:
        directory: must not exist.
        tree: arrays of host or devices, none of them empty; typed keys are not allowed (store
            their words).
    """
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), jax.device_get(tree))
        checkpointer.wait_until_finished()
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    lines = (f"{_sum(path)}  {path.relative_to(directory).as_posix()}\n" for path in files)
    (directory / _SUMS).write_text("".join(lines))


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
        raise StoreError(f"the checkpoint {directory} cannot be read: {error}") from error
    # Orbax gives arrays of the shapes on disk, whatever was asked for.
    if [x.shape for x in jax.tree.leaves(found)] != [x.shape for x in jax.tree.leaves(target)]:
        raise StoreError(f"the checkpoint {directory} holds arrays of other shapes")
    return found


def _check_files(directory: Path) -> None:
    if not directory.is_dir():
        raise StoreError(f"no checkpoint at {directory}")
    try:
        lines = (directory / _SUMS).read_text().splitlines()
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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
