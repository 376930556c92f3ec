"""Overrides `a.b=c` change a study's nodes before it is checked, as if written in the file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import StudyError
from ..files.plain_data import escaped
from ..knobs import canonical_name
from .yaml_io import Node, Notes, read_text

SET = "override "  # prefix of the origin of nodes set by an override
_MARK = "# Changed by the command line"
_RESULTS = "results"


def apply_overrides(notes: Notes, root: Node, overrides: Sequence[str]) -> None:
    """Change `root` in place, and note overrides that cannot be applied.

    Each is `path=value` with a YAML value. The keys in the path are separated by dots (`env.x` in
    a space counts as one key), and numbers select entries of lists.
    """
    for given in overrides:
        path, equals, text = given.partition("=")
        keys = _split_keys(path.strip())
        if not equals or not all(keys):
            notes.add(f"{SET}{given!r}; allowed: key.key=value, such as budget.trials=10")
            continue
        if len(given) > 80:
            given = f"{given[:77]}..."
        origin = f"{SET}{given}: "
        if not text.strip():
            text = "null"
        try:
            value = read_text(text, "value")
        except StudyError as error:
            for mistake in error.mistakes:
                notes.add(f"{origin}{mistake.text}")
            continue
        _set_origin(value, origin)
        _set_value(notes, root, keys, value, origin)


def _split_keys(path: str) -> list[str]:
    keys: list[str] = []
    for part in path.split("."):
        if keys and keys[-1] == "env" and len(keys) > 1:
            keys[-1] = f"env.{part}"
        else:
            keys.append(part)
    return keys


def _set_origin(node: Node, origin: str) -> None:
    node.line, node.origin = None, origin
    node.key_lines = dict.fromkeys(node.key_lines)
    for child in node.children:
        _set_origin(child, origin)


def _set_value(notes: Notes, root: Node, keys: list[str], value: Node, origin: str) -> None:
    here = root
    for depth, key in enumerate(keys):
        place: Any = key
        if here.is_list:
            count = len(here.value)
            if not key.isdecimal() or len(key) > 6 or int(key) >= count:
                text = f"{key!r} is not an index of that list; allowed: 0 to {count - 1}"
                notes.add(f"{origin}{text}")
                return
            place = int(key)
        elif not here.is_map:
            # `env: CartPole-v1` becomes `env: {id: CartPole-v1}` when one of its keys is set.
            given = Node(here.line, here.value, origin=here.origin)
            here.value, here.key_lines = {}, {}
            if depth == 1 and keys[0] == "env":
                here.value, here.key_lines = {"id": given}, {"id": given.line}
        if depth == len(keys) - 1:
            if here.is_map:
                here.key_lines[key] = None
            here.value[place] = value
        elif here.is_map and here.child(key).value is None:
            here.key_lines[key] = None
            here.value[key] = Node(None, {}, origin=origin)
            if depth == 0 and keys[1].isdecimal():  # as `enqueue.0.gamma`
                here.value[key].value = [Node(None, {}, origin=origin)]
        here = here.value[place]


@dataclass(frozen=True)
class Given:
    verb: str  # run or train
    file: str  # path of the study file as typed
    overrides: tuple[str, ...] = ()
    name: str | None = None  # from `--name`, or created by `--new`
    out: str = _RESULTS

    @property
    def words(self) -> list[str]:
        found = ["hpo", self.verb, self.file]
        for override in self.overrides:
            found += ["--set", override]
        if self.name is not None:
            found += ["--name", self.name]
        if self.out != _RESULTS:
            found += ["--out", self.out]
        return found

    @property
    def command(self) -> str:
        """The command as a line to type, with unprintable characters escaped."""
        line = shlex.join(self.words)
        return escaped(line)

    def on_top_of(self, text: str) -> str:
        """Return the file's text, with the command as a comment if options changed the study."""
        text = without_given(text)
        if not self.overrides and self.name is None and self.verb == "run":
            return text
        return f"{_MARK}\n#   {self.command}\n{text}"

    def override_of(self, key: str) -> str:
        """Return the last override that sets a key of the resolved study; "" if there is none.

        >>> Given("run", "x.yaml", ("budget.trials=40",)).override_of("budget.trials")
        'budget.trials=40'
        """
        path = _key_path(key)
        for override in reversed(self.overrides):
            own = _key_path(override.partition("=")[0].strip())
            shorter = min(len(own), len(path))
            if own[:shorter] == path[:shorter]:
                return override
        return ""


def given_in(text: str) -> Given | None:
    """Return the command recorded in a study file that hpo saved, or None."""
    lines = text.split("\n", 2)
    if len(lines) < 2 or lines[0] != _MARK:
        return None
    try:
        words = shlex.split(lines[1].removeprefix("#"))
    except ValueError:
        return None
    if len(words) < 3 or words[0] != "hpo" or len(words) % 2 == 0:
        return None
    options = list(zip(words[3::2], words[4::2], strict=True))
    last = dict(options)
    overrides = tuple(value for option, value in options if option == "--set")
    return Given(words[1], words[2], overrides, last.get("--name"), last.get("--out", _RESULTS))


def without_given(text: str) -> str:
    if not text.startswith(f"{_MARK}\n"):
        return text
    return text.split("\n", 2)[-1]


def _key_path(key: str) -> tuple[str, ...]:
    """Split a path into keys; aliases of hyperparameters are replaced by their names."""
    parts = key.split(".")
    if len(parts) > 1 and parts[0] in ("fixed", "space"):
        parts[1] = canonical_name(parts[1]) or parts[1]
    return tuple(parts)
