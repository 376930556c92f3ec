"""The state of one lane in a file: every byte as it is, and none that has changed is read.

The file is a SHA-256 and, behind it, the bytes of all leaves in their order; shapes and dtypes are
those of the program. For single lanes, of which there may be many: all lanes of a program are
written by `checkpoint`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import disk
from ..errors import StoreError

__all__ = ["restore_lane", "save_lane"]

_NAME, _SUM = "lane", 32


def save_lane(directory: Path, state: Any) -> None:
    """Write the state of one lane into a folder.

    Args:
        directory: is there.
        state: a `LaneState`, or any tree of host arrays.

    Raises:
        StoreError: the disk refuses.
    """
    content = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))
    disk.write_bytes(directory / _NAME, hashlib.sha256(content).digest() + content)


def restore_lane(directory: Path, like: Any) -> Any:
    """Read what `save_lane` wrote, as host arrays.

    Args:
        directory: where it was written.
        like: a state of the same program: its structure, shapes and dtypes count.

    Raises:
        StoreError: the file is missing, damaged, or of another program.
    """
    path = directory / _NAME
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise StoreError(f"the kept lane {path} cannot be read: {error}") from error
    content = whole[_SUM:]
    if hashlib.sha256(content).digest() != whole[:_SUM]:
        raise StoreError(f"the kept lane {path} is damaged; restore it from a copy")
    leaves, structure = jax.tree.flatten(like)
    leaves = [np.asarray(leaf) for leaf in leaves]
    if len(content) != sum(leaf.nbytes for leaf in leaves):
        raise StoreError(f"the kept lane {path} is of another program")
    found: list[np.ndarray] = []
    at = 0
    for leaf in leaves:
        own = content[at : at + leaf.nbytes]
        found.append(np.frombuffer(own, leaf.dtype).reshape(leaf.shape))
        at += leaf.nbytes
    return structure.unflatten(found)
