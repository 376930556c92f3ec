"""How a study was asked for on the command line: its file, and what `--set` and `--name` changed.

The file kept beside the results says it in a comment on top, so that a folder explains itself, and
a study that is to go on can say what was different last time.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..knobs import canonical_name

__all__ = ["Given", "given_in", "without_given"]

_MARK = "# Not this file alone: what follows was changed by the command line"
_RESULTS = "results"


@dataclass(frozen=True)
class Given:
    """One command that runs a study.

    Attributes:
        verb: `run` or `train`.
        file: the study file, as it was typed.
        overrides: of `--set`, in order.
        name: of `--name`, or the one that `--new` gave.
        out: the folder of results.
    """

    verb: str
    file: str
    overrides: tuple[str, ...] = ()
    name: str | None = None
    out: str = _RESULTS

    @property
    def words(self) -> list[str]:
        """The command, as words of a shell."""
        found = ["hpo", self.verb, self.file]
        for override in self.overrides:
            found += ["--set", override]
        found += [] if self.name is None else ["--name", self.name]
        return found + ([] if self.out == _RESULTS else ["--out", self.out])

    @property
    def command(self) -> str:
        """The command as one line, to be typed; what cannot be printed is escaped."""
        line = shlex.join(self.words)
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)

    def on_top_of(self, text: str) -> str:
        """Return the file with a comment about the command, where that changed anything."""
        text = without_given(text)
        if not self.overrides and self.name is None and self.verb == "run":
            return text
        return f"{_MARK}\n#   {self.command}\n{text}"

    def override_of(self, key: str) -> str:
        """Return the last override that a key of the resolved study comes from, "" without one.

        >>> Given("run", "x.yaml", ("budget.trials=40",)).override_of("budget.trials")
        'budget.trials=40'
        """
        path = _path(key)
        for override in reversed(self.overrides):
            own = _path(override.partition("=")[0].strip())
            shorter = min(len(own), len(path))
            if own[:shorter] == path[:shorter]:
                return override
        return ""


def given_in(text: str) -> Given | None:
    """Return the command that a file kept beside results tells of, None if it tells of none."""
    lines = text.split("\n", 2)
    if len(lines) < 2 or lines[0] != _MARK:
        return None
    try:
        words = shlex.split(lines[1].removeprefix("#"))
    except ValueError:
        return None
    return _of_words(words)


def _of_words(words: Sequence[str]) -> Given | None:
    if len(words) < 3 or words[0] != "hpo" or len(words) % 2 == 0:
        return None
    options = list(zip(words[3::2], words[4::2], strict=True))
    last = dict(options)
    return Given(
        words[1],
        words[2],
        tuple(value for option, value in options if option == "--set"),
        last.get("--name"),
        last.get("--out", _RESULTS),
    )


def without_given(text: str) -> str:
    """Return a file without the comment about a command."""
    return text.split("\n", 2)[-1] if text.startswith(f"{_MARK}\n") else text


def _path(key: str) -> tuple[str, ...]:
    """Split a path of keys; aliases of knobs become their names."""
    parts = key.split(".")
    if len(parts) > 1 and parts[0] in ("fixed", "space"):
        parts[1] = canonical_name(parts[1]) or parts[1]
    return tuple(parts)
