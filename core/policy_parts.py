"""Chosen parts of a lane as NumPy files, one `.npz` a part, arrays named by their path.

numpy.load("policies/trial_3/parts/optimiser.npz")["0/mu/actor_0/kernel"]
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..disk import make_folder, replacing
from ..errors import ConfigError, StoreError

__all__ = ["part_path", "read_part", "write_parts"]

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
