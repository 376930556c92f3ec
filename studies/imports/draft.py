"""A study in the making: what another system's words have become so far.

Constants and distributions arrive under foreign names and are put where a study file has them;
whatever was changed or has no counterpart is kept as a note and written into the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...env_entry import EnvEntry
from ...environments import ENVIRONMENTS
from ...errors import ConfigError, StudyError
from ...knobs import KNOBS, canonical_name, check_value
from ..amounts import count_of, number_of
from ..fields import SECTIONS
from ..load import loads
from ..vocabulary import check_env_value
from ..writer import to_yaml
from .names import FOREIGN, IGNORED, SECTION_KEYS, TOP_KEYS, plain_name

__all__ = ["Draft"]

_ORDER = (
    "name", "seed", "env", "env_steps", "fixed", "space", "forbid", "enqueue", "metric",
    "evaluation", "search", "early_terminate", "seeds", "confirm", "budget", "loggers",
)  # fmt: skip
_WORDS = {"true": True, "false": False, "none": None, "null": None}


@dataclass
class Draft:
    """One study in the making.

    Attributes:
        source: what it is made of, for messages and for the head of the file.
        env: id and keys of the environment.
        fixed: knob -> value.
        space: knob or `env.<name>` -> distribution.
        rest: further keys of the study file.
        notes: what was changed on the way.
        left_out: what has no counterpart, each with the reason.
    """

    source: str
    env: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

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
        """Give a section to fill."""
        return self.rest.setdefault(name, {})

    # ------------------------------------------------------------------ names

    def target(self, name: str) -> str | None:
        """Give our name for a foreign one: a knob, `env.<name>`, or None."""
        entry, leaf = self.entry, name.rsplit(".", 1)[-1]
        if entry is not None:
            for word in (leaf, leaf.lower()):
                key = entry.elsewhere.get(word, word)
                if key in entry.params or key in entry.keys:
                    return f"env.{key}"
        ours = FOREIGN.get(leaf.lower()) or canonical_name(leaf) or canonical_name(leaf.lower())
        if ours is None and name.startswith("env.") and entry is None:
            return name
        return ours

    # ------------------------------------------------------------------ values

    def constant(self, name: str, value: Any) -> None:
        """Put a value that is not searched where it belongs.

        Raises:
            ConfigError: we know the name, but not with this value.
        """
        value, plain = _read_word(value), plain_name(name)
        if plain in TOP_KEYS:
            self._set_top(TOP_KEYS[plain], name, value)
        elif plain in SECTION_KEYS:
            section, key = SECTION_KEYS[plain]
            self.section(section)[key] = value
        elif plain in IGNORED:
            self.leave_out(name, IGNORED[plain])
        else:
            self._set_known(name, value)

    def _set_top(self, key: str, name: str, value: Any) -> None:
        if key == "env":
            self.env["id"] = str(value)
            return
        count = count_of(value)
        if count is None:
            raise ConfigError(f"{name} is {value!r}; allowed: a whole number")
        self.rest[key] = count

    def _set_known(self, name: str, value: Any) -> None:
        target = self.target(name)
        if target is None:
            self.leave_out(name, f"no counterpart (its value is {value!r})")
            return
        self.space.pop(target, None)
        if target.startswith("env."):
            key = target.removeprefix("env.")
            self.env[key] = value
            if self.entry is not None:
                self.env[key] = _told(name, lambda: check_env_value(self._entry(), key, value))
            return
        self.fixed[target] = _told(name, lambda: check_value(target, _off(target, value)))

    def _entry(self) -> EnvEntry:
        entry = self.entry
        assert entry is not None  # asked only where there is one
        return entry

    def searched(self, name: str, distribution: Mapping[str, Any]) -> None:
        """Put a distribution where it belongs, under our name.

        Raises:
            ConfigError: the name is one of those that a study cannot search.
        """
        plain = plain_name(name)
        if plain == "seed" and "values" in distribution:
            seeds = len(distribution["values"])
            self.section("seeds")["per_config"] = seeds
            self.note(f"{name}: {seeds} seeds in the space are seeds.per_config here")
            return
        if plain in TOP_KEYS or plain in SECTION_KEYS:
            raise ConfigError(
                f"{name} is searched, but one study has one value of it; "
                f"import the sweep once for each, with -- --{name} VALUE"
            )
        if plain in IGNORED:
            self.leave_out(name, IGNORED[plain])
            return
        target = self.target(name)
        if target is None:
            self.leave_out(name, f"no counterpart (searched over {dict(distribution)!r})")
            return
        self.fixed.pop(target, None)
        if target.startswith("env."):
            self.env.pop(target.removeprefix("env."), None)
        self.space[target] = self._fitted(name, target, dict(distribution))

    def _fitted(self, name: str, target: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Give the distribution in a form that the knob takes."""
        if "values" in fields:
            fields["values"] = [_off(target, _read_word(value)) for value in fields["values"]]
            return fields
        if target.startswith("env."):
            return fields
        knob = KNOBS[target]
        if knob.type == "int" and fields.get("distribution") in ("uniform", "log_uniform"):
            bounds = (fields["min"], fields["max"])
            if all(float(bound).is_integer() for bound in bounds):
                fields |= {"min": int(bounds[0]), "max": int(bounds[1])}
                log = fields["distribution"] == "log_uniform"
                fields["distribution"] = "log_int_uniform" if log else "int_uniform"
                self.note(f"{name}: whole numbers, as {target} takes no others")
        if not knob.traced and "min" in fields:
            fields = _listed(name, target, fields)
            self.note(f"{name}: a value of {target} makes a program; listed one by one")
        return fields

    # ------------------------------------------------------------------ the file

    def override(self, flags: Mapping[str, Any]) -> None:
        """Set what was given after `--`: foreign or our own names, or dotted keys of the file."""
        for name, value in flags.items():
            section, _, key = name.partition(".")
            if section in SECTIONS and key:
                self.section(section)[key] = _read_word(value)
            elif name in ("name", "metric"):
                self._name_or_metric(name, str(value))
            elif plain_name(name) not in {*TOP_KEYS, *SECTION_KEYS} and not self.target(name):
                raise ConfigError(f"--{name} after `--` has no counterpart in a study")
            else:
                self.constant(name, value)

    def _name_or_metric(self, name: str, value: str) -> None:
        if name == "name":
            self.rest["name"] = value
        else:
            self.section("metric")["name"] = value

    def text(self) -> str:
        """Give the study file, its notes first.

        Raises:
            ConfigError: it is no study that `hpo` takes; says every reason.
        """
        if "id" not in self.env:
            raise ConfigError(
                f"{self.source}: no environment is named; add one, such as -- --env CartPole-v1"
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
        whole = self._head() + body
        try:
            loads(whole, f"{self.source} (imported)")
        except StudyError as error:
            reasons = "; ".join(mistake.text for mistake in error.mistakes)
            raise ConfigError(f"{self.source} cannot be imported: {reasons}") from None
        return whole

    def _never_ends(self) -> bool:
        entry = self.entry
        own = entry is not None and "continuous" in entry.keys and entry.keys["continuous"].default
        return bool(self.env.get("continuous", own))

    def _head(self) -> str:
        lines = [f"# Imported from {_one_line(self.source)}."]
        for title, items in (
            ("Changed on the way:", self.notes),
            ("Left out, for want of a counterpart:", self.left_out),
        ):
            if items:
                lines += [f"# {title}", *(f"#   {_one_line(item)}" for item in items)]
        return "\n".join(lines) + "\n"


def _told(name: str, check: Any) -> Any:
    try:
        return check()
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _read_word(value: Any) -> Any:
    """Give what a word on a command line stands for; other values as they are."""
    if not isinstance(value, str):
        return value
    if value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    number = number_of(value)
    if number is not None:
        return number
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number.is_integer() and "." not in value else number


def _off(target: str, value: Any) -> Any:
    """Give None for the numbers below the legal range by which others switch a knob off."""
    if target.startswith("env."):
        return value
    knob = KNOBS[target]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if knob.off and number and value < knob.low else value


def _listed(name: str, target: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """List the values of a range of whole numbers."""
    low, high, step = fields["min"], fields["max"], fields.get("q") or 1
    count = (high - low) // step + 1
    if not isinstance(count, int) or count > 16:
        raise ConfigError(
            f"{name} is searched between {low} and {high}, but every value of {target} is a "
            "program to compile; list the values that matter"
        )
    return {"values": [low + step * i for i in range(count)]}


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
