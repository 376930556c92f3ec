"""Reads `imports`, `env` and `eval_env`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..env_entry import EnvEntry
from ..environments import entry, gymnax_class
from ..errors import ConfigError, MissingExtraError, UnimportedModuleError, UnknownNameError
from .env_spec import EnvSpec
from .notes import Notes
from .paths import is_inside
from .reader import Node, plain
from .vocabulary import check_env_value

__all__ = ["read_env", "read_eval_env", "read_imports", "read_one_env"]

_MOST_IMPORTS = 100


def read_imports(notes: Notes, items: Sequence[Node], source: Path | None) -> tuple[str, ...]:
    """Read the paths of user code, which must exist beside the study; nothing is imported.

    Args:
        notes: where mistakes go.
        items: the paths.
        source: the study's folder; None does not look for them.
    """
    paths: list[str] = []
    if len(items) > _MOST_IMPORTS:
        notes.add(f"{len(items)} imports; allowed: {_MOST_IMPORTS}", items[0])
        return ()
    for item in items:
        given = item.value
        if not isinstance(given, str) or not given.endswith(".py"):
            notes.add(f"import {item.shown()}; allowed: a Python file such as my_envs.py", item)
        elif not is_inside(given):
            text = f"import {item.shown()} leaves the study's folder; put the file beside it"
            notes.add(text, item)
        elif source is not None and not (source / given).is_file():
            notes.add(f"import {item.shown()}: no such file beside the study", item)
        else:
            paths.append(given)
    return tuple(paths)


def read_env(
    notes: Notes, root: Node, imports: bool, checked: bool = False
) -> tuple[EnvSpec | None, EnvEntry | None]:
    """Read `env`: what the study asks for, and what the table knows of it.

    Args:
        notes: where mistakes go.
        root: the study.
        imports: user code may register ids that the table does not know.
        checked: the study ran before, to be looked at now; what makes the environment need not
            be installed here.
    """
    node = root.value.get("env")
    if node is None or node.is_list or node.value is None:
        return None, None  # noted with the other keys of the top
    if node.is_map and "scores" in node.value:
        text = "scores put several environments on one scale, but env is one; leave them out"
        notes.add(text, node, "scores")
    if node.is_map and "id" not in node.value:
        notes.add("env needs `id`, such as env: {id: CartPole-v1}", root, "env")
        return None, None
    return read_one_env(notes, node, imports, checked)


def read_one_env(
    notes: Notes, node: Node, imports: bool, checked: bool = False
) -> tuple[EnvSpec | None, EnvEntry | None]:
    """Read one environment, an id or a mapping; arguments as of `read_env`."""
    given = node.value.get("id") if node.is_map else node
    if given is None or node.is_list:
        notes.add(f"env is {node.shown()}; allowed: {{id: CartPole-v1}}, or an id alone", node)
        return None, None
    if not isinstance(given.value, str):
        notes.add(f"env is {given.shown()}; allowed: an id such as CartPole-v1", given)
        return None, None
    known, place = None, notes.shown if given.line is None else f"{notes.shown}:{given.line}"
    if gymnax_class(given.value) is not None:  # made when it runs: only then jax is there
        return EnvSpec(given.value, _values(notes, None, node), place=place), None
    try:
        known = entry(given.value)
    except UnknownNameError as error:
        if not (imports or checked):
            named = isinstance(error, UnimportedModuleError)
            hint = "" if named else "; own environments are registered by `imports`"
            notes.add(f"{error}{hint}", given)
            return None, None
    except (ConfigError, MissingExtraError) as error:
        if not checked:
            notes.add(str(error), given)
            return None, None
    return EnvSpec(given.value, _values(notes, known, node), place=place), known


def read_eval_env(notes: Notes, root: Node, known: EnvEntry | None) -> dict[str, Any]:
    """Read `eval_env`: the keys of the environment that differ in evaluation."""
    node = root.value.get("eval_env")
    if node is None or not node.is_map:
        return {}
    if "id" in node.value:
        text = "eval_env cannot name another environment; give only the keys that differ"
        notes.add(text, node, "id")
    return _values(notes, known, node)


def _values(notes: Notes, known: EnvEntry | None, node: Node) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if not node.is_map:
        return values
    for key, child in node.value.items():
        if key in ("id", "scores"):
            continue
        try:
            given = plain(child)
            values[key] = given if known is None else check_env_value(known, key, given)
        except ConfigError as error:
            notes.add(str(error), node, key)
    return values
