"""Exact states on disk, through Orbax: what is restored continues with the same bits.

Orbax does not notice a changed byte in its data files, so that a digest is kept beside the tree.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import StoreError

__all__ = ["restore_tree", "save_tree"]


def _digest(tree: Any) -> np.ndarray:
    """Give 32 bytes that any changed leaf, shape, dtype or place changes."""
    sha = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.asarray(leaf)
        sha.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return np.frombuffer(sha.digest(), np.uint8)


def save_tree(directory: Path, tree: Any) -> None:
    """Write a pytree of arrays into a new directory; returns when it is on disk.

    Args:
        directory: must not exist.
        tree: arrays of host or devices; typed keys are not allowed (store their words).
    """
    import orbax.checkpoint as ocp

    host = jax.device_get(tree)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), {"tree": host, "digest": _digest(host)})
        checkpointer.wait_until_finished()


def restore_tree(directory: Path, like: Any) -> Any:
    """Read what `save_tree` wrote, as host arrays in the structure of `like`.

    Args:
        directory: written by `save_tree`.
        like: a pytree with the same structure, shapes and dtypes.

    Raises:
        StoreError: the directory is missing, damaged, or holds another structure.
    """
    import orbax.checkpoint as ocp

    if not directory.is_dir():
        raise StoreError(f"no checkpoint at {directory}")
    empty = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like)
    target = {"tree": empty, "digest": np.zeros(32, np.uint8)}
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(directory.resolve(), target)
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise StoreError(f"the checkpoint {directory} cannot be read: {error}") from error
    # Orbax gives arrays of the shapes on disk, whatever was asked for.
    if [x.shape for x in jax.tree.leaves(found)] != [x.shape for x in jax.tree.leaves(target)]:
        raise StoreError(f"the checkpoint {directory} holds arrays of other shapes")
    if not np.array_equal(found["digest"], _digest(found["tree"])):
        raise StoreError(f"the checkpoint {directory} is damaged: its digest does not fit")
    return found["tree"]
