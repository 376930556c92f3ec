"""A study in the making: what another system's words have become so far.

Constants and distributions arrive under foreign names and are put where a study file has them, by
the tables in `elsewhere`; whatever was changed or has no counterpart is kept as a note and written
into the file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...elsewhere import COMMON, Row, Settings, System, find
from ...elsewhere.rows import plain_name
from ...elsewhere.values import NoCounterpart
from ...env_entry import EnvEntry
from ...environments import ENVIRONMENTS, gymnasium_id
from ...errors import ConfigError, StudyError
from ...knobs import KNOBS, canonical_name, check_value
from ..amounts import count_of
from ..fields import SECTIONS
from ..load import loads
from ..vocabulary import check_env_value
from ..writer import to_yaml
from .ranges import fitted, plain_value, switch, translated
from .words import one_line, read_word

__all__ = ["Draft", "is_of_the_file", "of_the_file"]

_ORDER = (
    "name", "seed", "env", "env_steps", "fixed", "space", "forbid", "enqueue", "metric",
    "evaluation", "eval_env", "baselines", "search", "early_terminate", "seeds", "confirm",
    "budget", "population", "executor", "checkpoint", "init", "log_every", "loggers",
)  # fmt: skip


@dataclass
class Draft:
    """One study in the making.

    Attributes:
        source: what it is made of, for messages and for the head of the file.
        system: whose names they are.
        env: id and keys of the environment.
        fixed: knob -> value.
        space: knob or `env.<name>` -> distribution.
        rest: further keys of the study file.
        notes: what was changed on the way.
        left_out: what has no counterpart, each with the reason.
        without: names that the user wants left out, whatever they do.
        lost: searched names that were left out.
        silent: names of the system whose defaults mean nothing here.
    """

    source: str
    system: System = COMMON
    env: dict[str, Any] = field(default_factory=dict[str, Any])
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    space: dict[str, Any] = field(default_factory=dict[str, Any])
    rest: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    without: tuple[str, ...] = ()
    lost: list[str] = field(default_factory=list[str])
    silent: set[str] = field(default_factory=set[str])

    @property
    def entry(self) -> EnvEntry | None:
        """The table's entry of the environment, if one was named and is known."""
        return ENVIRONMENTS.get(self.env.get("id", ""))

    def note(self, text: str) -> None:
        """Keep what was changed, once."""
        if text not in self.notes:
            self.notes.append(text)

    def leave_out(self, name: str, reason: str) -> None:
        """Keep what has no counterpart, once."""
        text = f"{name}: {reason}"
        if text not in self.left_out:
            self.left_out.append(text)

    def section(self, name: str) -> dict[str, Any]:
        """Return a section to fill."""
        return self.rest.setdefault(name, {})

    # ------------------------------------------------------------------ names

    def row(self, name: str) -> Row | None:
        """Return the row of a foreign name, or of one of ours; None if nobody knows it."""
        known = self.system.find(name)
        if known is not None:
            return known
        own = self._own_key(name)
        if own is not None:
            return Row(name, "taken", own)
        shared = find(name, COMMON)
        if shared is not None:
            return shared
        knob = canonical_name(name.rsplit(".", 1)[-1])
        if knob is not None:
            return Row(name, "taken", knob)
        return None if not self._is_unknown_env_key(name) else Row(name, "taken", name)

    def _own_key(self, name: str) -> str | None:
        """Return `env.<key>` where the environment has a parameter or key of that name."""
        entry, leaf = self.entry, name.rsplit(".", 1)[-1]
        if entry is None:
            return None
        for word in (leaf, leaf.lower()):
            key = entry.elsewhere.get(word, word)
            if key in entry.params or key in entry.keys:
                return f"env.{key}"
        return None

    def _is_unknown_env_key(self, name: str) -> bool:
        return name.startswith("env.") and self.entry is None

    def target(self, name: str) -> str | None:
        """Return what a foreign name can be searched as: a knob or `env.<name>`, or None."""
        row = self.row(name)
        if row is None or row.fate != "taken":
            return None
        return row.target if row.target in KNOBS or row.target.startswith("env.") else None

    # ------------------------------------------------------------------ values

    def constant(self, name: str, value: Any) -> None:
        """Put a value that is not searched where it belongs.

        Raises:
            ConfigError: we know the name, but not with this value, or it is refused.
        """
        value, row = read_word(value), self.row(name)
        if row is None:
            self._unknown(name, f"its value is {value!r}", value)
        elif row.fate == "taken":
            if row.note:
                self.note(f"{name}: {row.note}")
            self._put_all(name, row, self._translated(name, row, value))
        elif row.fate == "left out" or value in row.harmless or self._unwanted(name):
            self.leave_out(name, row.because)
        else:
            raise self._refusal(name, repr(value), row.because)

    def _put_all(self, name: str, row: Row, value: Any) -> None:
        settings = value if isinstance(value, Settings) else {row.target: value}
        for target, one in settings.items():
            self.put(name, target, one)

    def _translated(self, name: str, row: Row, value: Any) -> Any:
        try:
            return row.values.of(value)
        except NoCounterpart as reason:
            raise ConfigError(f"{name} is {value!r}: {reason}") from None

    def put(self, name: str, target: str, value: Any) -> None:
        """Put one value of ours at one target; `name` is for messages.

        Raises:
            ConfigError: the value is not legal there.
        """
        section, _, key = target.partition(".")
        self._search_no_more(target)
        if target in KNOBS:
            plain = plain_value(target, value)
            self.fixed[target] = _told(name, lambda: check_value(target, plain))
        elif section == "env" and key:
            self.env[key] = self._env_value(name, key, value)
        elif key:
            self.section(section)[key] = value
        elif target == "env":
            self.env["id"] = gymnasium_id(str(value)) or str(value)
        elif target == "name":
            self.rest["name"] = str(value)
        else:
            count = count_of(value)
            if count is None:
                raise ConfigError(f"{name} is {value!r}; allowed: a whole number")
            self.rest[target] = count

    def _search_no_more(self, target: str) -> None:
        """Forget a target in the space and in what is enqueued, some of which may become equal."""
        self.space.pop(target, None)
        tried = self.rest.pop("enqueue", [])
        kept = list[dict[str, Any]]()
        for config in tried:
            rest = {name: value for name, value in config.items() if name != target}
            if rest and rest not in kept:
                kept.append(rest)
        if kept:
            self.rest["enqueue"] = kept
        if len(kept) < len(tried):
            self.note(f"enqueue: {len(kept)} of these are left, as {target} is given")

    def _env_value(self, name: str, key: str, value: Any) -> Any:
        entry = self.entry
        if entry is None:
            return value
        if key in entry.keys and entry.keys[key].type == "bool":
            value = switch(value)
        return _told(name, lambda: check_env_value(entry, key, value))

    def searched(self, name: str, distribution: Mapping[str, Any]) -> None:
        """Put a distribution where it belongs, under our name.

        Raises:
            ConfigError: the name is refused, or one of those that a study cannot search.
        """
        row = self.row(name)
        if row is None:
            self.lost.append(name)
            self._unknown(name, f"searched over {dict(distribution)!r}", distribution)
        elif row.fate == "taken":
            if row.note:
                self.note(f"{name}: {row.note}")
            self._search_row(name, row, dict(distribution))
        elif row.fate == "left out" or self._unwanted(name):
            self.lost.append(name)
            self.leave_out(name, row.because)
        else:
            raise self._refusal(name, "searched", row.because)

    def _search_row(self, name: str, row: Row, distribution: dict[str, Any]) -> None:
        if row.target in ("seed", "seeds.per_config") and "values" in distribution:
            self._seeds(name, distribution["values"])
            return
        if row.target not in KNOBS and not row.target.startswith("env."):
            raise ConfigError(
                f"{name} is searched, but one study has one value of it; "
                f"import the sweep once for each, with -- --{name} VALUE"
            )
        for target, fields in translated(self.note, name, row, distribution).items():
            if "value" in fields:
                self.put(name, target, fields["value"])
            else:
                self.search(name, target, fields)

    def search(self, name: str, target: str, fields: dict[str, Any]) -> None:
        """Search one target of ours; `name` is for messages."""
        self.fixed.pop(target, None)
        if target.startswith("env."):
            self.env.pop(target.removeprefix("env."), None)
        self.space[target] = fitted(self.note, name, target, fields, self.entry)

    def _seeds(self, name: str, values: list[Any]) -> None:
        self.section("seeds")["per_config"] = len(values)
        self.note(f"{name}: {len(values)} seeds in the space are seeds.per_config here")

    def _unknown(self, name: str, what: str, value: Any) -> None:
        if _names_a_network(name) and value not in (None, False) and not self._unwanted(name):
            raise self._refusal(name, what, "it seems to choose a network, and nobody knows it")
        near = self.system.nearest(name) if self.system.strict else None
        if near is not None and not self._unwanted(name):
            title = self.system.title
            raise self._refusal(name, what, f"{title} has no such flag; did you mean {near}?")
        self.leave_out(name, f"no counterpart ({what})")

    def _unwanted(self, name: str) -> bool:
        return name.replace("-", "_") in self.without

    def _refusal(self, name: str, what: str, because: str) -> ConfigError:
        return ConfigError(
            f"{name} ({what}) cannot be taken: {because}; to import without it, add "
            f"-- --without {name}"
        )

    # ------------------------------------------------------------------ the file

    def override(self, flags: Mapping[str, Any]) -> None:
        """Set what was given after `--`: foreign or our own names, or dotted keys of the file."""
        for name, value in flags.items():
            section, _, key = name.partition(".")
            if name in ("system", "without"):
                continue
            if is_of_the_file(name):
                self.section(section)[key] = read_word(value)
            elif name in ("name", "metric"):
                self._name_or_metric(name, str(value))
            elif self.row(name) is None:
                raise ConfigError(f"--{name} after `--` has no counterpart in a study")
            else:
                self.constant(name, value)

    def _name_or_metric(self, name: str, value: str) -> None:
        if name == "name":
            self.rest["name"] = value
        else:
            self.section("metric")["name"] = value

    def text(self) -> str:
        """Return the study file, its notes first.

        Raises:
            ConfigError: it is no study that `hpo` takes; says every reason.
        """
        if "id" not in self.env:
            raise ConfigError(
                f"{self.source}: no environment is named; add one, such as -- --env CartPole-v1"
            )
        if self.lost and not self.space and "seeds" not in self.rest:
            raise ConfigError(
                f"{self.source}: nothing would be searched, as {', '.join(self.lost)} "
                f"{'has' if len(self.lost) == 1 else 'have'} no counterpart here; is it a sweep "
                "of another system? -- --system NAME"
            )
        keys = {key: value for key, value in self.env.items() if key != "id"}
        data = {**self.rest, "fixed": self.fixed, "space": self.space}
        data["env"] = {"id": self.env["id"], **keys} if keys else self.env["id"]
        if "env_steps" not in data:
            data["env_steps"] = 1_000_000
            self.note("env_steps: no length of a run is named; 1,000,000 is ours")
        if self._never_ends() and "steps" not in self.section("evaluation"):
            self.section("evaluation").update({"episodes": 8, "steps": 5000})
            self.note("evaluation: 8 networks of 5,000 requests each, as no episode ends")
            data["evaluation"] = self.rest["evaluation"]
        body = to_yaml({key: data[key] for key in _ORDER if data.get(key) not in (None, {}, [])})
        whole = self.head() + body
        try:
            loads(whole, f"{self.source} (imported)")
        except StudyError as error:
            reasons = "; ".join(mistake.text for mistake in error.mistakes)
            raise ConfigError(f"{self.source} cannot be imported: {reasons}") from None
        return whole

    def command(self, file: str) -> str:
        """Return what to type next, once the text is in a file."""
        return f"hpo check {shlex.quote(file)}"

    def _never_ends(self) -> bool:
        entry = self.entry
        own = entry is not None and "continuous" in entry.keys and entry.keys["continuous"].default
        return bool(self.env.get("continuous", own))

    def head(self) -> str:
        """Return the comment at the head of the file: what was changed, and what was left out."""
        lines = [f"# Imported from {one_line(self.source)}."]
        for title, items in (
            ("Changed on the way:", self.notes),
            ("Left out, for want of a counterpart:", self.left_out),
        ):
            if items:
                lines += [f"# {title}", *(f"#   {one_line(item)}" for item in items)]
        return "\n".join(lines) + "\n"


def is_of_the_file(name: str) -> bool:
    """Return whether a flag is a dotted key of a study file, such as `budget.trials`."""
    section, _, key = name.partition(".")
    return bool(key) and section in (*SECTIONS, "eval_env")


def of_the_file(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some flags that are dotted keys of a study file."""
    return {name: value for name, value in flags.items() if is_of_the_file(name)}


def _told(name: str, check: Callable[[], Any]) -> Any:
    try:
        return check()
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


_NETWORK = re.compile(
    r"(?:^|_)(?:network|architecture|backbone|encoder|torso)(?:$|_)"
    r"|^(?:use|enable)_(?:rnn|lstm|gru|gnn|gcn|gat|cnn|mlp|vit|attention|transformer|recurrent)"
)


def _names_a_network(name: str) -> bool:
    return _NETWORK.search(plain_name(name)) is not None
