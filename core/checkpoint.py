"""Save and restore exact training states with Orbax, so that training resumes bit for bit.

Orbax does not detect changed bytes in its data files, so a checksum of every file is saved in
`sha256sum --check` format.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import threading
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import ConfigError, StoreError
from ..files import atomic_files
from ..files.atomic_files import files_below, make_folder, replacing, sha256_of
from .pytree import named_leaves

_SUMS = "SHA256SUMS"
_ORBAX = threading.Lock()  # Orbax numbers the saves of a process, and mixes those of threads


def save_tree(directory: Path, tree: Any) -> None:
    """Write a pytree of arrays to a new directory, and return once it is on disk.

    Arrays must not be empty, and typed PRNG keys are not allowed (store their key data).

    Raises:
        StoreError: the files cannot be written.
    """
    import orbax.checkpoint as ocp

    here = jax.device_get(tree)  # outside `telling`: a device error is not a disk error
    with (
        _ORBAX,
        atomic_files.telling(directory),
        _silence_orbax(),
        ocp.StandardCheckpointer() as checkpointer,
    ):
        checkpointer.save(directory.resolve(), here)
        checkpointer.wait_until_finished()
    with atomic_files.telling(directory):
        files = files_below(directory)
        lines = [
            f"{sha256_of(path)}  {path.relative_to(directory).as_posix()}\n" for path in files
        ]
        atomic_files.write_text(directory / _SUMS, "".join(lines))


@contextmanager
def _silence_orbax() -> Generator[None, None, None]:
    """Prevent Orbax's threads from printing tracebacks of errors that are also raised here."""
    logger, hook = logging.getLogger("absl"), sys.excepthook
    level = logger.level
    logger.setLevel(logging.CRITICAL)

    def print_unless_late(kind: Any, error: BaseException, traceback: Any) -> None:
        # a thread of a save that has failed finds its event loop closed
        if not (isinstance(error, RuntimeError) and "Event loop is closed" in str(error)):
            hook(kind, error, traceback)

    sys.excepthook = print_unless_late
    try:
        yield
        sys.excepthook = hook
    finally:
        logger.setLevel(level)


def restore_tree(directory: Path, like: Any) -> Any:
    """Read a pytree written by `save_tree`, as host arrays with the structure of `like`."""
    import orbax.checkpoint as ocp

    _check_files(directory)
    target = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like)
    try:
        with _ORBAX, ocp.StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(directory.resolve(), target)
    except (ValueError, KeyError, OSError, TypeError) as error:
        # the rest lists arrays
        words = " ".join(line.strip(" :") for line in str(error).splitlines()[:2])
        raise StoreError(f"the checkpoint {directory} cannot be read: {words:.250}") from error
    # Orbax returns arrays with the shapes on disk, whatever shapes were requested.
    if [x.shape for x in jax.tree.leaves(found)] != [x.shape for x in jax.tree.leaves(target)]:
        raise StoreError(f"the arrays in the checkpoint {directory} have the wrong shapes")
    return found


def _check_files(directory: Path) -> None:
    if not directory.is_dir():
        raise StoreError(f"no checkpoint at {directory}")
    atomic_files.check_readable(directory / _SUMS)
    try:
        lines = atomic_files.read_text(directory / _SUMS).splitlines()
        listed = [line.split("  ", 1) for line in lines]
        damaged = [name for known, name in listed if sha256_of(directory / name) != known]
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the checkpoint {directory} is damaged or incomplete: {error}"
        ) from error
    if damaged or not listed:
        files = ", ".join(damaged) or _SUMS
        raise StoreError(f"the checkpoint {directory} is damaged: {files} changed")


_NAME, _SUM = "lane", 32


def save_lane(directory: Path, state: Any) -> None:
    content = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))
    atomic_files.write_bytes(directory / _NAME, hashlib.sha256(content).digest() + content)


def restore_lane(directory: Path, like: Any) -> Any:
    """Read a lane written by `save_lane`, with the structure, shapes and dtypes of `like`."""
    path = directory / _NAME
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise StoreError(f"the saved lane {path} cannot be read: {error}") from error
    content = whole[_SUM:]
    if hashlib.sha256(content).digest() != whole[:_SUM]:
        raise StoreError(f"the saved lane {path} is damaged; restore it from a copy")
    leaves, structure = jax.tree.flatten(like)
    leaves = [np.asarray(leaf) for leaf in leaves]
    if len(content) != sum(leaf.nbytes for leaf in leaves):
        raise StoreError(f"the saved lane {path} belongs to a different program")
    ends = np.cumsum([leaf.nbytes for leaf in leaves]).tolist()
    return structure.unflatten(
        np.frombuffer(content[end - leaf.nbytes : end], leaf.dtype).reshape(leaf.shape)
        for leaf, end in zip(leaves, ends, strict=True)
    )


_FOLDER = "parts"


def part_path(directory: Path, part: str) -> Path:
    return directory / _FOLDER / f"{part}.npz"


def write_parts(directory: Path, parts: Mapping[str, Any]) -> None:
    for part, tree in parts.items():
        path = part_path(directory, part)
        make_folder(path.parent)
        arrays: dict[str, Any] = jax.tree.map(np.asarray, named_leaves(tree))
        with replacing(path) as partial, partial.open("xb") as file:
            np.savez(file, **arrays)


def read_part(directory: Path, part: str, like: Any) -> Any:
    path = part_path(directory, part)
    if not path.is_file():
        raise StoreError(
            f"{directory} has no {part}; train again with checkpoint: {{parts: [{part}]}}"
        )
    atomic_files.check_readable(path)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    named = named_leaves(like)
    differing = sorted(set(named) ^ set(found))
    differing += [
        name for name in named if name in found and named[name].shape != found[name].shape
    ]
    if differing:
        more = ""
        if len(differing) > 1:
            more = f" and {len(differing) - 1} more"
        raise ConfigError(
            f"{path} belongs to a different network or optimiser (different: {differing[0]}{more})"
        )
    leaves = [found[name] for name in named]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
