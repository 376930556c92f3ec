"""A study in the making: what another system's words have become so far.

Constants and distributions arrive under foreign names and are put where a study file has them, by
the tables. Every name ends in one of the lists at the head of the file: taken, changed on the way,
without effect, left out; a fifth list is what the system does where the source is silent.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..environments.registry import gymnasium_id
from ..environments.table import ENVIRONMENTS, EnvEntry
from ..errors import ConfigError, StudyError
from ..knobs import KNOBS, canonical_name, check_value
from ..studies.check import check
from ..studies.load import loads
from ..studies.study_keys import SECTIONS
from ..studies.study_values import check_env_value, count_of
from ..studies.yaml_io import to_yaml
from .formats import fitted, one_line, plain_value, read_word, switch, translated
from .name_mapping import COMMON, NoCounterpart, Row, Settings, System, plain_name
from .plain_python import Unread
from .tables import find

_ORDER = (
    "name", "seed", "env", "env_steps", "fixed", "space", "forbid", "enqueue", "metric",
    "evaluation", "eval_env", "baselines", "search", "early_terminate", "seeds", "confirm",
    "budget", "population", "executor", "checkpoint", "init", "log_every", "loggers",
)  # fmt: skip
_NETWORK = re.compile(
    r"(?:^|_)(?:network|architecture|backbone|encoder|torso)(?:$|_)"
    r"|^(?:use|enable)_(?:rnn|lstm|gru|gnn|gcn|gat|cnn|mlp|vit|attention|transformer|recurrent)"
)


@dataclass
class Source:
    """What a file sets, in its own terms.

    Attributes:
        constants: name -> value; words of a command line are texts.
        searched: name -> distribution, as a study file writes it.
        words: of the command, and the file's name.
        family: the only system in question, if the user named one.
        calls: of Python: the functions and classes whose arguments these are.
        used: names that a rule decided together with others.
    """

    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    searched: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    words: Sequence[str] = ()
    family: str = ""
    calls: Sequence[str] = ()
    used: set[str] = field(default_factory=set[str])

    def names(self) -> tuple[str, ...]:
        """Return all names."""
        return (*self.constants, *self.searched)

    def find(self, name: str) -> Any:
        """Return the value of a constant as a number, a switch or a text; None if it is none."""
        return read_word(self.constants.get(name))

    def values(self, name: str, default: Any) -> list[Any]:
        """Return all values that a name can have: its constant, its listed values or bounds.

        Of a normal distribution it is the middle.
        """
        if name in self.searched:
            fields = self.searched[name]
            listed = fields.get("values", [fields.get(key) for key in ("min", "max", "mu")])
            return [read_word(value) for value in listed if value is not None]
        return [read_word(self.constants.get(name, default))]

    def drop(self, *names: str) -> None:
        """Forget names whose part a rule has played."""
        for name in names:
            if name in self.constants or name in self.searched:
                self.used.add(name)
            self.constants.pop(name, None)
            self.searched.pop(name, None)

    def put(self, name: str, value: Any) -> None:
        """Set a constant that a rule makes, whatever it was."""
        self.drop(name)
        self.constants[name] = value


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
        loggers: type -> options; `on` says whether the source logs there.
        taken: name -> the targets that it set; none where it decided others together with them.
        notes: what was changed on the way.
        idle: names with a value at which they do nothing, there or here.
        left_out: what has no counterpart, each with the reason.
        defaults: names that the source leaves to the system, with its defaults.
        without: names that the user wants left out, whatever they do.
        lost: searched names that were left out.
        silent: names of the system whose defaults mean nothing here.
        read: all names of the source; each must end in one of the lists.
    """

    source: str
    system: System = COMMON
    env: dict[str, Any] = field(default_factory=dict[str, Any])
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    space: dict[str, Any] = field(default_factory=dict[str, Any])
    rest: dict[str, Any] = field(default_factory=dict[str, Any])
    loggers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    taken: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    notes: list[str] = field(default_factory=list[str])
    idle: list[str] = field(default_factory=list[str])
    left_out: list[str] = field(default_factory=list[str])
    defaults: list[str] = field(default_factory=list[str])
    without: tuple[str, ...] = ()
    lost: list[str] = field(default_factory=list[str])
    silent: set[str] = field(default_factory=set[str])
    read: list[str] = field(default_factory=list[str])

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

    def unlisted(self) -> list[str]:
        """Return the names of the source that stand in no list, of which there must be none."""
        texts = (*self.notes, *self.idle, *self.left_out, *self.defaults)
        words = {word for text in texts for word in re.split(r"[:, ]+", text)} | set(self.taken)
        return [name for name in self.read if name not in words]

    # ------------------------------------------------------------------ names

    def row(self, name: str) -> Row | None:
        """Return the row of a foreign name, or of one of ours; None if nobody knows it."""
        known = self.system.find(name)
        if known is not None:
            return known
        own, knob = self._own_key(name), canonical_name(name.rsplit(".", 1)[-1])
        shared = find(name) if own is None else None
        if shared is not None:
            return shared
        target = own or knob or (name if name.startswith("env.") and not self.entry else None)
        return None if target is None else Row(name, "taken", target)

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

    def target(self, name: str) -> str | None:
        """Return what a foreign name can be searched as: a knob or `env.<name>`, or None."""
        row = self.row(name)
        if row is None or row.fate != "taken":
            return None
        return row.target if row.target in KNOBS or row.target.startswith("env.") else None

    # ------------------------------------------------------------------ values

    def constant(self, name: str, value: Any) -> None:
        """Put a value that is not searched where it belongs."""
        value, row = read_word(value), self.row(name)
        if row is None:
            self._unknown(name, f"its value is {value!r}", value)
        elif row.fate == "taken":
            self._take(name, row, value)
        elif value in row.harmless or (row.fate == "left out" and _is_off(value)):
            self.idle.append(f"{name} {value}")
        elif row.fate == "left out" or self._unwanted(name):
            self.leave_out(name, row.because)
        else:
            raise self._refusal(name, repr(value), row.because)

    def _take(self, name: str, row: Row, value: Any) -> None:
        if isinstance(value, Unread) and self._unwanted(name):
            self.leave_out(name, f"{value} (line {value.line}) is not a plain value")
            return
        try:
            ours = row.values.of(value)
            settings = ours if isinstance(ours, Settings) else {row.target: ours}
            for target, one in settings.items():
                self.put(name, target, one)
        except (NoCounterpart, ConfigError) as reason:
            if isinstance(value, Unread):
                raise self._unread(name, row, value) from None
            if isinstance(reason, ConfigError):
                raise
            raise ConfigError(f"{name} is {value!r}: {reason}") from None
        self.taken[name] = list(dict.fromkeys((*self.taken.get(name, ()), *settings)))
        if row.note and settings and not _is_off(value):
            self.note(f"{name}: {row.note}")
        if any(one != value for one in settings.values()) or list(settings) != [row.target]:
            self.note(f"{name}: {_shown(value)} is {_shown_settings(row, settings)} here")

    def _unread(self, name: str, row: Row, value: Unread) -> ConfigError:
        """Return the refusal of a value that is not a plain one, with the ways out."""
        schedules = {"learning_rate": "lr_schedule", "clip_eps": "clip_eps_schedule"}
        also = schedules.get(row.target)
        return ConfigError(
            f"{self.source}:{value.line}: {name} is {value}, which cannot be read without "
            f"running it; give its value{f' (a schedule: {also}=linear)' if also else ''}, or "
            "leave it out",
            flags={name: "VALUE"},
            without={"without": name},
        )

    def put(self, name: str, target: str, value: Any) -> None:
        """Put one value of ours at one target; `name` is for messages."""
        section, _, key = target.partition(".")
        self._search_no_more(target)
        if target in KNOBS:
            plain = plain_value(target, value)
            self.fixed[target] = _told(name, lambda: check_value(target, plain))
        elif section == "env" and key:
            self.env[key] = self._env_value(name, key, value)
        elif section == "loggers":
            kind, _, option = key.partition(".")
            logger = self.loggers.setdefault(kind, {"on": False})
            if value not in (None, ""):
                logger[option or "on"] = value if option else bool(value)
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
        """Put a distribution where it belongs, under our name."""
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
            count = self.section("seeds")["per_config"] = len(distribution["values"])
            self.note(f"{name}: {count} seeds in the space are seeds.per_config here")
            return
        if row.target not in KNOBS and not row.target.startswith("env."):
            raise ConfigError(
                f"{name} is searched, but one study has one value of it; "
                "import the sweep once for each",
                flags={name: "VALUE"},
            )
        found = translated(self.note, name, row, distribution)
        self.taken[name] = list(found)
        for target, fields in found.items():
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

    def _unknown(self, name: str, what: str, value: Any) -> None:
        if _is_off(value):
            self.idle.append(f"{name} {value}")
            return
        if _NETWORK.search(plain_name(name)) and not self._unwanted(name):
            raise self._refusal(name, what, "it seems to choose a network, and nobody knows it")
        near = self.system.nearest(name) if self.system.strict else None
        if near is not None and not self._unwanted(name):
            raise self._refusal(
                name, what, f"{self.system.title} has no such flag; did you mean {near}?"
            )
        self.leave_out(name, f"no counterpart; {what}")

    def _unwanted(self, name: str) -> bool:
        return name.replace("-", "_") in self.without or plain_name(name) in self.without

    def _refusal(self, name: str, value: str, because: str) -> ConfigError:
        return ConfigError(
            f"{name} ({value}) cannot be taken: {because}; import without it",
            flags={"without": name},
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
            elif name == "name":
                self.rest["name"] = str(value)
            elif name == "metric":
                self.section("metric")["name"] = str(value)
            elif self.row(name) is None:
                raise ConfigError(f"{name} is given, but has no counterpart in a study")
            else:
                self.constant(name, value)

    def text(self) -> str:
        """Return the study file, its lists first."""
        if "id" not in self.env:
            raise ConfigError(
                f"{self.source}: no environment is named; name one", flags={"env": "CartPole-v1"}
            )
        if self.lost and not self.space and "seeds" not in self.rest:
            raise ConfigError(
                f"{self.source}: nothing would be searched, as {', '.join(self.lost)} "
                f"{'has' if len(self.lost) == 1 else 'have'} no counterpart here; is it a sweep "
                "of another system?",
                flags={"system": "NAME"},
            )
        if "env_steps" not in self.rest:
            self.rest["env_steps"] = 1_000_000
            self.note("env_steps: no length of a run is named; 1,000,000 is ours")
        if self._never_ends() and "steps" not in self.section("evaluation"):
            self.section("evaluation").update({"episodes": 8, "steps": 5000})
            self.note("evaluation: 8 networks of 5,000 requests each, as no episode ends")
        self._log()
        keys = {key: value for key, value in self.env.items() if key != "id"}
        data = {**self.rest, "fixed": self.fixed, "space": self.space}
        data["env"] = {"id": self.env["id"], **keys} if keys else self.env["id"]
        body = to_yaml({key: data[key] for key in _ORDER if data.get(key) not in (None, {}, [])})
        self._check(body)
        return self.head() + body

    def _log(self) -> None:
        """Write the loggers that are on; options of others are left out."""
        for kind, options in self.loggers.items():
            named = {option: value for option, value in options.items() if option != "on"}
            if options["on"]:
                written = self.rest.setdefault("loggers", [])
                written += [{"type": kind, **named}] if kind not in str(written) else []
                continue
            for option, value in named.items():
                name = next((name for name, targets in self.taken.items()
                             if f"loggers.{kind}.{option}" in targets), option)  # fmt: skip
                self.taken.pop(name, None)
                self.leave_out(name, f"nothing is sent there without its switch; add loggers: "
                                     f"[{{type: {kind}, {option}: {value}}}]")  # fmt: skip

    def _check(self, body: str) -> None:
        try:
            study = loads(body, f"{self.source} (imported)")
            reasons = list(check(study).mistakes) if not study.imports else []
        except StudyError as error:
            reasons = [mistake.text for mistake in error.mistakes]
        except ConfigError as error:
            reasons = [str(error)]
        if reasons:
            raise ConfigError(f"{self.source} cannot be imported: {'; '.join(reasons)}")

    def _never_ends(self) -> bool:
        entry = self.entry
        own = entry is not None and "continuous" in entry.keys and entry.keys["continuous"].default
        return bool(self.env.get("continuous", own))

    def head(self) -> str:
        """Return the comment at the head of the file: the version read, and the lists."""
        lines = [f"# Imported from {one_line(self.source)}."]
        if self.system.version:
            lines.append(f"# Read as {self.system.title}, {self.system.version}.")
        taken = [f"{one_line(name)} as {', '.join(targets)}" if targets and targets != [name]
                 else one_line(name) for name, targets in self.taken.items()]  # fmt: skip
        lines += _wrapped("Taken", taken)
        lines += _listed("Changed on the way:", self.notes)
        lines += _wrapped("Without effect", self.idle)
        lines += _listed("Left out, for want of a counterpart:", self.left_out)
        lines += _wrapped(f"Defaults of {self.system.title}", self.defaults)
        return "\n".join(lines) + "\n"


def _wrapped(title: str, items: list[str]) -> list[str]:
    text = f"{title}: {'; '.join(map(one_line, items))}."
    return textwrap.wrap(text, 97, initial_indent="# ", subsequent_indent="#   ",
                         break_long_words=False) if items else []  # fmt: skip


def _listed(title: str, items: list[str]) -> list[str]:
    return [f"# {title}", *(f"#   {one_line(item)}" for item in items)] if items else []


def is_of_the_file(name: str) -> bool:
    """Return whether a flag is a dotted key of a study file, such as `budget.trials`."""
    section, _, key = name.partition(".")
    return bool(key) and section in (*SECTIONS, "eval_env")


def of_the_file(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some flags that are dotted keys of a study file."""
    return {name: value for name, value in flags.items() if is_of_the_file(name)}


def _is_off(value: Any) -> bool:
    return value is None or value is False  # 0 may be a device


def _shown(value: Any) -> str:
    text = one_line(str(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _shown_settings(row: Row, settings: Mapping[str, Any]) -> str:
    pairs = (f"{_shown(value)}" if list(settings) == [row.target] else f"{target} {_shown(value)}"
             for target, value in settings.items())  # fmt: skip
    return ", ".join(pairs) or "nothing"


def _told(name: str, check: Callable[[], Any]) -> Any:
    try:
        return check()
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
