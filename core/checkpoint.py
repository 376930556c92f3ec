"""Exact states on disk, through Orbax: what is restored continues with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import StoreError

__all__ = ["restore_tree", "save_tree"]


def save_tree(directory: Path, tree: Any) -> None:
    """Write a pytree of arrays into a new directory; returns when it is on disk.

    Args:
        directory: must not exist.
        tree: arrays of host or devices; typed keys are not allowed (store their words).
    """
    import orbax.checkpoint as ocp

    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), jax.device_get(tree))
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
    target = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like)
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(directory.resolve(), target)
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise StoreError(f"the checkpoint {directory} cannot be read: {error}") from error
