"""Reads the environment of `--env FILE`: a file of its keys, or a study whose `env:` it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..env_entry import EnvEntry
from ..errors import ConfigError
from .env_section import read_env, read_eval_env
from .notes import Notes
from .overrides import apply_overrides
from .reader import Node, read_file
from .spec import EnvSpec

__all__ = ["EnvFile", "read_env_file"]


@dataclass(frozen=True)
class EnvFile:
    """An environment as a file describes it.

    Attributes:
        spec: id and values.
        known: what the table knows of it.
        folder: of the file, which paths among the values start from.
    """

    spec: EnvSpec
    known: EnvEntry
    folder: str


def read_env_file(path: str | Path, overrides: Sequence[str] = ()) -> EnvFile:
    """Read a file whose top is the `env:` mapping, or a study, with what its `eval_env:` changes.

    Args:
        path: the file.
        overrides: each `key=value`, set over what the file says.

    Raises:
        StudyError: every mistake in it, with its line.
    """
    path = Path(path)
    notes = Notes(str(path))
    root = read_file(path, str(path))
    if not root.is_map or "env" not in root.value:
        root = Node(root.line, {"env": root}, {"env": root.line})
    section = "eval_env" if "eval_env" in root.value else "env"  # what is set is set over both
    apply_overrides(notes, root, [f"{section}.{given}" for given in overrides])
    spec, known = read_env(notes, root, imports=False)
    if spec is None and not notes:
        node: Node = root.value["env"]
        notes.add(f"the environment is {node.shown()}; allowed: {{id: rmsa, load: 250}}", node)
    held_out = read_eval_env(notes, root, known)
    if notes or spec is None or known is None:
        raise notes.error()
    spec = replace(spec, values={**spec.values, **held_out})
    folder = str(path.parent)
    if known.source == "optical":
        from .optical_section import read_settings  # numpy and file readers

        try:
            read_settings(spec.id, spec.values, folder)
        except ConfigError as error:
            notes.add(str(error), root.value["env"])
            raise notes.error() from error
    return EnvFile(spec, known, folder)
