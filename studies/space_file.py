"""`space: {file: ..., override: {...}}`: a search space kept in a file of its own.

Such a file holds `space` and, optionally, `forbid`, both as in a study. Mistakes in it are told at
the line of the study that names it, with its own line in the words.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import StudyError, suggestion
from .notes import Notes
from .paths import is_inside
from .reader import Node, read_file

__all__ = ["ships", "space_nodes"]

_PACKAGE = Path(__file__).resolve().parent.parent


def ships(name: str) -> bool:
    """Return whether a space of this name comes with the package."""
    return (_PACKAGE / name).is_file()


def space_nodes(notes: Notes, root: Node, source: Path) -> tuple[Node | None, list[Node]]:
    """Return the mapping of parameters (None if there is none) and the rules, files followed."""
    forbid, node = root.value.get("forbid"), root.value.get("space")
    rules: list[Node] = forbid.value if forbid is not None and forbid.is_list else []
    if node is None or not node.is_map:
        return None, rules
    if "file" not in node.value:
        return node, rules
    for key in node.value:
        if key not in ("file", "override"):
            text = f"unknown key {key!r} beside `file`; allowed: override: {{{key}: ...}}"
            notes.add(text, node, key)
    path = _find(notes, node, source)
    read = None if path is None else _read(notes, node, path)
    if read is None:
        return None, rules
    parameters, more_rules = read
    _override(notes, node, parameters)
    return parameters, [*more_rules, *rules]


def _find(notes: Notes, node: Node, source: Path) -> Path | None:
    given = node.value["file"]
    if not isinstance(given.value, str) or not is_inside(given.value):
        text = (
            f"space.file is {given.shown()}; allowed: a path below the study's folder, or one "
            "that ships, such as spaces/ppo.yaml"
        )
        notes.add(text, node, "file")
        return None
    for base in (source, _PACKAGE):
        if (base / given.value).is_file():
            return base / given.value
    shipped = sorted(f"spaces/{path.name}" for path in _PACKAGE.glob("spaces/*.yaml"))
    text = (
        f"space.file {given.value!r}: no such file;{suggestion(given.value, shipped)} "
        f"Those that ship: {', '.join(shipped)}"
    )
    notes.add(text, node, "file")
    return None


def _read(notes: Notes, node: Node, path: Path) -> tuple[Node, list[Node]] | None:
    shown, line = node.value["file"].value, node.key_lines["file"]
    try:
        root = read_file(path, shown)
    except StudyError as error:
        for text in str(error).splitlines():
            notes.add(text, node, "file")
        return None
    _mark(root, shown, line)
    if not root.is_map:
        notes.add(f"{shown} is {root.shown()}; allowed: {{space: {{...}}}}", node, "file")
        return None
    for key in root.value:
        if key not in ("space", "forbid"):
            notes.add(f"unknown key {key!r}; Known: space, forbid", root, key)
    space, rules = root.value.get("space"), root.value.get("forbid")
    if space is None or not space.is_map or "file" in space.value:
        notes.add(f"{shown} needs `space`, a mapping of knobs", node, "file")
        return None
    if rules is not None and not rules.is_list:
        notes.add(f"forbid is {rules.shown()}; allowed: a list", rules)
        rules = None
    return space, [] if rules is None else rules.value


def _override(notes: Notes, node: Node, parameters: Node) -> None:
    """Replace, add or (with null) drop parameters of the file."""
    override = node.value.get("override")
    if override is None:
        return
    if not override.is_map:
        text = f"space.override is {override.shown()}; allowed: a mapping such as space itself"
        notes.add(text, node, "override")
        return
    for key, child in override.value.items():
        if child.value is not None:
            parameters.value[key] = child
            parameters.key_lines[key] = override.key_lines[key]
        elif key in parameters.value:
            del parameters.value[key], parameters.key_lines[key]
        else:
            hint = suggestion(key, parameters.value)
            notes.add(
                f"override drops {key!r}, which the file does not have;{hint}", override, key
            )


def _mark(node: Node, shown: str, line: int | None) -> None:
    node.origin, node.outer = shown, line
    for child in node.value.values() if node.is_map else node.value if node.is_list else ():
        _mark(child, shown, line)
