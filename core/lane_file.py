"""The state of one lane in a file: every byte as it is, and none that has changed is read.

For the states of single lanes, of which there may be many; all lanes of a program are written by
`checkpoint`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import jax
import numpy as np

from .. import disk
from ..errors import StoreError
from .lane_state import LaneState

__all__ = ["restore_lane", "save_lane"]

_NAME = "lane.npz"


def save_lane(directory: Path, state: LaneState) -> None:
    """Write the state of one lane into a folder.

    Args:
        directory: is there.
        state: host arrays.

    Raises:
        StoreError: the disk refuses.
    """
    words = [np.frombuffer(np.asarray(leaf).tobytes(), np.uint8) for leaf in jax.tree.leaves(state)]
    with disk.replacing(directory / _NAME) as partial, partial.open("xb") as file:
        np.savez(file, *words)


def restore_lane(directory: Path, like: LaneState) -> LaneState:
    """Read what `save_lane` wrote, as host arrays.

    Args:
        directory: where it was written.
        like: a state of a lane of the same program.

    Raises:
        StoreError: the file is missing, damaged, or of another program.
    """
    path = directory / _NAME
    leaves, structure = jax.tree.flatten(like)
    try:
        with np.load(path) as file:  # which compares the sum of every array
            words = [file[f"arr_{index}"] for index in range(len(file.files))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(f"the kept lane {path} is missing or damaged: {error}") from error
    if [len(own) for own in words] != [np.asarray(leaf).nbytes for leaf in leaves]:
        raise StoreError(f"the kept lane {path} is of another program")
    return structure.unflatten(
        np.frombuffer(own.tobytes(), leaf.dtype).reshape(leaf.shape)
        for own, leaf in zip(words, map(np.asarray, leaves), strict=True)
    )
