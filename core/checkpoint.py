"""Exact states on disk, through Orbax: what is restored continues with the same bits.

Orbax does not notice a changed byte in its data files, so that the sums of all files are kept
beside them, in the format of `sha256sum --check`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import numpy as np

from ..errors import ConfigError, StoreError
from ..files import atomic_files
from ..files.atomic_files import make_folder, replacing

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
    with atomic_files.telling(directory), _unlogged(), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), here)
        checkpointer.wait_until_finished()
    with atomic_files.telling(directory):
        atomic_files.write_text(directory / _SUMS, "".join(_lines(directory)))


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
        lines = atomic_files.read_text(directory / _SUMS).splitlines()
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
    with os.fdopen(atomic_files.open_plain(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    atomic_files.write_bytes(directory / _NAME, hashlib.sha256(content).digest() + content)


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


_FOLDER = "parts"


def part_path(directory: Path, part: str) -> Path:
    """Return where a part lies in the folder of its policy."""
    return directory / _FOLDER / f"{part}.npz"


def write_parts(directory: Path, parts: Mapping[str, Any]) -> None:
    """Write some trees of arrays beside a policy.

    Args:
        directory: of the policy.
        parts: name -> pytree of arrays.
    """
    for part, tree in parts.items():
        path = part_path(directory, part)
        make_folder(path.parent)
        arrays: dict[str, Any] = jax.tree.map(np.asarray, _named(tree))
        with replacing(path) as partial, partial.open("xb") as file:
            np.savez(file, **arrays)


def read_part(directory: Path, part: str, like: Any) -> Any:
    """Read a part back as a tree.

    Args:
        directory: of the policy.
        part: its name.
        like: a tree of that structure, with the shapes it must have.

    Raises:
        StoreError: it is not there, or damaged.
        ConfigError: it is of another structure.
    """
    path = part_path(directory, part)
    if not path.is_file():
        raise StoreError(
            f"{directory} holds no {part}: write checkpoint: {{parts: [{part}]}} in the study "
            "that makes it"
        )
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = dict(file)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    named = _named(like)
    differing = sorted(set(named) ^ set(found))
    differing += [
        name for name in named if name in found and named[name].shape != found[name].shape
    ]
    if differing:
        raise ConfigError(
            f"{path} is of another network or optimiser: {differing[0]} "
            f"and {len(differing) - 1} more differ"
        )
    leaves = [found[name] for name in named]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _named(tree: Any) -> dict[str, Any]:
    """Return the leaves by their path, in order."""
    leaves: list[tuple[Any, Any]] = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
