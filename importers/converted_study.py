"""A study during conversion: the settings translated so far from another system."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..environments.registry import full_id
from ..environments.table import ENVIRONMENTS, EnvEntry
from ..environments.via_gymnasium import lacking_package
from ..errors import ConfigError, HpoError, StudyError, enumerated
from ..foreign_names.name_mapping import COMMON, NameRow, NoCounterpart, System, plain_name
from ..foreign_names.optax_calls import OptaxSchedule
from ..foreign_names.plain_values import Unread
from ..foreign_names.tables import find, hints
from ..knobs import KNOBS, canonical_name, check_value
from ..knobs.configuration import minibatches_per_epoch
from ..studies.check import check
from ..studies.chunk_sizes import chunk_sizes_of
from ..studies.load import loads, loads_elsewhere
from ..studies.spec import Study
from ..studies.study_keys import SECTIONS
from ..studies.study_values import count_of
from ..studies.yaml_io import text_of, to_yaml
from .formats import (
    changes_environment,
    confirm_plan,
    env_value,
    fitted,
    one_line,
    own_limit,
    own_target,
    plain_value,
    read_word,
    short_text,
    translated,
)

_ORDER = (
    "name", "seed", "imports", "algorithm", "env", "over_environments", "env_steps",
    "schedule_env_steps", "fixed", "space", "forbid", "enqueue", "metric", "objectives",
    "constraints", "evaluation", "eval_env", "baselines", "search", "early_terminate", "seeds",
    "confirm", "budget", "population", "executor", "checkpoint", "init", "log_every", "loggers",
)  # fmt: skip
_NETWORK = re.compile(
    r"(?:^|_)(?:network|architecture|backbone|encoder|torso)(?:$|_)"
    r"|^(?:use|enable)_(?:rnn|lstm|gru|gnn|gcn|gat|cnn|mlp|vit|attention|transformer|recurrent)"
)

_IMPORTS = " and set imports: [my_envs.py]"
"""The end of an error message about an environment that an unimported package registers."""
NOWHERE = "hpo has no counterpart"
"""The reason for rejecting a searched name that is in no table."""


_SCHEDULED = {
    "learning_rate": " (a schedule: lr_schedule=linear)",
    "clip_eps": " (a schedule: clip_eps_schedule=linear)",
}
"""Target that another system sets with a function -> what to set for a schedule."""


@dataclass
class ImportSource:
    # name -> value; words from a command line are strings
    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    # name -> distribution, in study-file form
    searched: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    words: Sequence[str] = ()  # words of the command, and the file's name
    family: str = ""  # the only possible system, if the user named one
    calls: Sequence[str] = ()  # in Python files, the functions and classes with these arguments
    loops: Mapping[str, int] = field(default_factory=dict[str, int])  # see `plain_python.Source`
    used: set[str] = field(default_factory=set[str])  # names that a rule has read
    # in Python files, argument -> an object that cannot be read, in the form it is listed
    objects: dict[str, str] = field(default_factory=dict[str, str])
    mentioned: frozenset[str] = frozenset()  # names that occur anywhere in a Python file

    def names(self) -> tuple[str, ...]:
        return (*self.constants, *self.searched)

    def find(self, name: str) -> Any:
        """Return a name's constant if it is a number, a bool or a string, else None."""
        return read_word(self.constants.get(name))

    def values(self, name: str, default: Any) -> list[Any]:
        """Return a name's values: a constant, listed ones, or bounds (the mean of a normal)."""
        if name in self.searched:
            fields = self.searched[name]
            listed = fields.get("values", [fields.get(key) for key in ("min", "max", "mu")])
            return [read_word(value) for value in listed if value is not None]
        return [read_word(self.constants.get(name, default))]

    def negate(self, system: System) -> None:
        """Read `--no-flag` and `--noflag` as `flag` switched off."""
        found: dict[str, Any] = {}
        for name, value in self.constants.items():
            row = None
            if value is True and name.startswith("no") and system.find(name) is None:
                row = system.find(re.sub("^no[_-]?", "", name))
            if row is None:
                found[name] = value
            else:
                found[row.name] = False
        self.constants = found

    def drop(self, *names: str) -> None:
        for name in names:
            if name in self.constants or name in self.searched:
                self.used.add(name)
            self.constants.pop(name, None)
            self.searched.pop(name, None)

    def put(self, name: str, value: Any) -> None:
        self.drop(name)
        self.constants[name] = value


@dataclass
class ConvertedStudy:
    """A study during conversion.

    Every name in the source is added to one of the lists in the file's header: taken, changed,
    without effect, left out. A fifth list contains the system's defaults.
    """

    source: str
    system: System = COMMON
    env: dict[str, Any] = field(default_factory=dict[str, Any])
    envs: list[Any] = field(default_factory=list[Any])  # if there are several; `env` is the first
    fixed: dict[str, Any] = field(default_factory=dict[str, Any])
    space: dict[str, Any] = field(default_factory=dict[str, Any])
    rest: dict[str, Any] = field(default_factory=dict[str, Any])  # other keys of the study file
    # type -> options; `on`: whether the source logs to it
    loggers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    # name -> targets that it sets; empty if it is read together with others
    taken: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    notes: list[str] = field(default_factory=list[str])  # what changed
    idle: list[str] = field(default_factory=list[str])  # names whose value has no effect
    left_out: list[str] = field(default_factory=list[str])
    defaults: list[str] = field(default_factory=list[str])
    without: tuple[str, ...] = ()  # names that the user leaves out
    lost: list[str] = field(default_factory=list[str])  # searched names that cannot be kept
    # searched names of the source; each is left out only at the user's request
    sought: set[str] = field(default_factory=set[str])
    silent: set[str] = field(default_factory=set[str])  # names whose defaults do not apply
    read: list[str] = field(default_factory=list[str])  # all names of the source
    thinned: set[str] = field(default_factory=set[str])  # ranges with only a few values listed
    ours: set[str] = field(default_factory=set[str])  # given names that are read as ours
    whole: bool = False  # whether it is one of our studies, to which nothing is added
    is_default: bool = False  # whether the source's configuration is the one to beat
    ruled: set[str] = field(default_factory=set[str])  # flags that a rule has read or changed
    part: str = ""  # in a file for many environments, the one to import
    # learning-rate schedule that counts the source's own steps
    schedule: OptaxSchedule | None = None

    @property
    def entry(self) -> EnvEntry | None:
        return ENVIRONMENTS.get(self.env.get("id", ""))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def leave_out(self, name: str, reason: str) -> None:
        """List a name without a counterpart; raise if it is searched and not excluded."""
        if name in self.sought and not self.unwanted(name):
            raise self.lost_fault({name: reason})
        text = f"{name}: {reason}"
        if text not in self.left_out:
            self.left_out.append(text)

    def fault(self, text: str, **remedies: Any) -> ConfigError:
        return ConfigError(f"{self.source}: {text}", **remedies)

    def lost_fault(self, reasons: Mapping[str, str]) -> ConfigError:
        """Return the error for searched names that would be lost, grouped by reason."""
        flags = {"without": ",".join(reasons)}
        if len(reasons) > 1:
            text = (
                f"{enumerated(list(reasons))} are searched, but hpo has no counterparts for them"
            )
            return ConfigError(f"{text}; import without them", flags=flags)
        ((name, why),) = reasons.items()
        text = f"{name} is searched, but {why}; import without it"
        return ConfigError(f"{self._line_prefix(name)}{text}", flags=flags)

    def nothing_searched(self, names: Sequence[str]) -> ConfigError:
        text = f"nothing would be searched, because hpo has no counterpart for {enumerated(names)}"
        return self.fault(
            f"{text}; is this a sweep from another system?", flags={"system": "NAME"}
        )

    def set_seeds(self, name: str, count: int) -> None:
        self.section("seeds")["per_config"] = count
        self.note(f"{name}: the number of seeds in the space ({count}) becomes seeds.per_config")

    def add_defaults(self, source: ImportSource, values: Mapping[str, Any]) -> None:
        """Set the system's defaults of names that the source does not give."""
        for name, value in values.items():
            if name not in source.names():
                source.constants[name] = value
                self.defaults.append(f"{name} {value}")

    def section(self, name: str) -> dict[str, Any]:
        return self.rest.setdefault(name, {})

    def unlisted(self) -> list[str]:
        """Return the source's names that are in none of the lists; there should be none."""
        texts = (*self.notes, *self.idle, *self.left_out, *self.defaults)
        words = {word for text in texts for word in re.split(r"[:, ]+", text)} | set(self.taken)
        return [name for name in self.read if name not in words]

    # ------------------------------------------------------------------ names

    def row(self, name: str) -> NameRow | None:
        known = self.system.find(name)
        if known is not None and name not in self.ours:
            return known
        target = self._env_target(name)
        if target is None and (shared := find(name)) is not None:
            return shared
        target = target or canonical_name(name.rsplit(".", 1)[-1])
        if target is None and not self.entry and changes_environment(name):
            target = name
        if target is None:
            return None
        return NameRow(name, "taken", target)

    def _env_target(self, name: str) -> str | None:
        entry, leaf = self.entry, name.rsplit(".", 1)[-1]
        if entry is None:
            return None
        for word in (leaf, leaf.lower()):
            key = own_limit(entry.elsewhere.get(word, word), entry.keys)
            if key in entry.params or key in entry.keys:
                return f"env.{key}"
        return None

    def is_of_env(self, name: str) -> bool:
        return self._env_target(name) is not None or name.startswith("env.")

    def any_target(self, name: str) -> str:
        """Return our name for a foreign name; "" if it has no counterpart."""
        return getattr(self.row(name), "target", "")

    def target(self, name: str) -> str | None:
        """Return the hyperparameter or `env.<name>` for a searched foreign name."""
        target = self.any_target(name)
        if target in KNOBS or target.startswith("env."):
            return target
        return None

    # ------------------------------------------------------------------ values

    def constant(self, name: str, value: Any) -> None:
        value, row = read_word(value), self.row(name)
        if row is None:
            self._report_unknown(name, f"its value is {value!r}", value)
        elif value in row.harmless or (row.fate == "left out" and _is_off(value)):
            self.idle.append(f"{name} {value}")
        elif row.fate == "taken":
            self._take_setting(name, row, value)
        elif row.fate == "left out" or self.unwanted(name):
            self.leave_out(name, row.because)
        else:
            raise self._refusal_error(name, repr(value), row.because)

    def _take_setting(self, name: str, row: NameRow, value: Any) -> None:
        if isinstance(value, Unread) and self.unwanted(name):
            self.leave_out(name, f"{value} (line {value.line}) is not a plain value")
            return
        try:
            each = row.settings(value)
            settings = {own_target(target, self.entry): one for target, one in each.items()}
            for target, one in settings.items():
                self.put(name, target, one)
        except (NoCounterpart, ConfigError) as reason:
            raise self._untaken_error(name, row, value, reason) from None
        self.taken[name] = list(dict.fromkeys((*self.taken.get(name, ()), *settings)))
        if row.note and settings and not _is_off(value):
            self.note(f"{name}: {row.note}")
        self._note_change(name, row, value, settings)

    def _untaken_error(
        self, name: str, row: NameRow, value: Any, reason: NoCounterpart | ConfigError
    ) -> ConfigError:
        """Return the error for a value that has no counterpart or cannot be read."""
        if isinstance(value, Unread):
            schedule = _SCHEDULED.get(row.target, "")
            text = f"{name} is {value}, which cannot be read without running it; give its "
            text += f"value{schedule}, or remove it"
            if row.target == "optimiser":
                text = f"{name} is {value}: {reason}"
            place = f"{self.source}:{value.line}: ".replace(":0: ", ": ")
            return ConfigError(place + text, flags={name: "VALUE"}, without={"without": name})
        if isinstance(reason, ConfigError):
            return reason
        return ConfigError(f"{name} is {value!r}: {reason}", flags={name: "VALUE"})

    def _note_change(
        self, name: str, row: NameRow, value: Any, settings: Mapping[str, Any]
    ) -> None:
        """List a translated value as changed if it differs, or if it sets other names."""
        if list(settings) != [row.target]:
            parts = [f"{target} {short_text(one)}" for target, one in settings.items()]
        elif settings[row.target] != value:
            parts = [short_text(settings[row.target])]
        else:
            return
        self.note(f"{name}: {short_text(value)} is {', '.join(parts) or 'nothing'} here")

    def put(self, name: str, target: str, value: Any) -> None:
        section, _, key = target.partition(".")
        self._search_no_more(target)
        if target in KNOBS:
            plain = plain_value(target, value)
            self.fixed[target] = _call_with_name(name, check_value, target, plain)
        elif section == "env" and key:
            self.env[key] = _call_with_name(name, env_value, self.entry, key, value)
        elif section == "loggers":
            kind, _, option = key.partition(".")
            logger = self.loggers.setdefault(kind, {"on": False})
            if option and value not in (None, ""):
                logger[option] = value
            elif value not in (None, ""):
                logger["on"] = bool(value)
        elif key:
            self.section(section)[key] = value
        elif target == "env":
            self.env["id"], self.envs = full_id(str(value)), []
        else:
            count = count_of(value)
            if count is None:
                raise ConfigError(f"{name} is {value!r}; allowed: a whole number")
            self.rest[target] = count

    def _search_no_more(self, target: str) -> None:
        """Remove a target from the space and enqueued trials; drop repeated or empty trials."""
        if self.space.pop(target, None) is None:
            return
        tried = self.rest.pop("enqueue", [])
        kept = list[dict[str, Any]]()
        for config in tried:
            rest = {name: value for name, value in config.items() if name != target}
            if rest and rest not in kept:
                kept.append(rest)
        if kept:
            self.rest["enqueue"] = kept
        if len(kept) < len(tried):
            self.note(
                f"enqueue: keeps {len(kept)} of {len(tried)} trials, because {target} is fixed"
            )

    def searched(self, name: str, distribution: Mapping[str, Any]) -> None:
        row = self.row(name)
        if row is not None and row.fate == "taken":
            if row.note:
                self.note(f"{name}: {row.note}")
            self._search_row(name, row, dict(distribution))
            return
        shown = f"searched over {dict(distribution)!r}"
        if self.unwanted(name):
            because = f"no counterpart; {shown}"
            if row is not None:
                because = row.because
            self.lost.append(name)
            self.leave_out(name, because)
        elif row is None:
            self.refuse_odd(name, shown, distribution)
            raise self.lost_fault({name: NOWHERE})
        elif row.fate == "left out":
            raise self.lost_fault({name: row.because})
        else:
            raise self._refusal_error(name, "searched", row.because)

    def _search_row(self, name: str, row: NameRow, distribution: dict[str, Any]) -> None:
        if row.target in ("seed", "seeds.per_config") and "values" in distribution:
            self.set_seeds(name, len(distribution["values"]))
            return
        if row.target not in KNOBS and not row.target.startswith("env."):
            text = (
                f"{name} is searched, but a study accepts only a single value for it; import the "
                "sweep once per value"
            )
            raise ConfigError(text, flags={name: "VALUE"})
        found = translated(self.note, name, row, distribution)
        self.taken[name] = list(found)
        for target, fields in found.items():
            if "value" in fields:
                self.put(name, target, fields["value"])
                continue
            self.fixed.pop(target, None)
            if target.startswith("env."):
                self.env.pop(target.removeprefix("env."), None)
            self.space[target] = fitted(self.note, name, target, fields, self.entry)
            if "min" in distribution and "values" in self.space[target]:
                self.thinned.add(target)

    def _report_unknown(self, name: str, what: str, value: Any) -> None:
        if not self.unwanted(name):
            if self.entry and changes_environment(name) and value is not None:
                raise self._refusal_error(name, what, f"hpo's {self.env['id']} has no such key")
            self.refuse_odd(name, what, value)
        if _is_off(value):
            self.idle.append(f"{name} {value}")
        else:
            self.leave_out(name, f"no counterpart; {what}")

    def refuse_odd(self, name: str, what: str, value: Any) -> None:
        """Reject an unknown name that looks like a typo, or that selects a network."""
        near, because = self.system.nearest(name), ""
        if (
            near
            and near.name not in self.read
            and "left out" not in {near.fate, *(row.fate for row in hints(name)[:1])}
        ):
            because = f"did you mean {near.name}? {self.system.title} has no such name"
        elif _NETWORK.search(plain_name(name)) and not _is_off(value):
            because = "it seems to select a network, but the name is unknown"
        if because:
            raise self._refusal_error(name, what, because)

    def unwanted(self, name: str) -> bool:
        return name.replace("-", "_") in self.without or plain_name(name) in self.without

    def _refusal_error(self, name: str, value: str, because: str) -> ConfigError:
        text = f"{name} ({value}) cannot be imported: {because}; import without it"
        return ConfigError(f"{self._line_prefix(name)}{text}", flags={"without": name})

    def _line_prefix(self, name: str) -> str:
        """Return `file:line: ` of the first non-comment line that contains a name, or ""."""
        if not os.path.isfile(self.source):
            return ""
        word = re.escape(name.rsplit(".", 1)[-1]).replace("_", "[-_]")
        place = re.compile(rf"[^#]*?(?<!\w){word}(?!\w)")
        lines = text_of(Path(self.source)).splitlines()
        found = [at for at, line in enumerate(lines, 1) if place.match(line)]
        if not found:
            return ""
        if self.part and len(found) > 1:
            return f"{self.source}: {self.part}: "
        return f"{self.source}:{found[0]}: "

    # ------------------------------------------------------------------ the file

    def override(self, flags: Mapping[str, Any]) -> None:
        """Apply the flags after `--`: foreign names, our names, or dotted keys of the file."""
        for name, value in flags.items():
            section, _, key = name.partition(".")
            if name in ("system", "version", "without") or name in self.ruled:
                continue
            if is_of_the_file(name):
                self.section(section)[key] = read_word(value)
            elif name == "imports":
                self.rest["imports"] = str(value).split(",")
            elif name == "name":
                self.rest["name"] = str(value)
            elif name == "metric":
                self.section("metric")["name"] = str(value)
            elif self.row(name) is None:
                raise ConfigError(f"{name} is given, but has no counterpart in a study")
            else:
                self.constant(name, value)

    def text(self) -> str:
        if "id" not in self.env and "algorithm" not in self.rest:
            raise self.fault("no environment is named; name one", flags={"env": "CartPole-v1"})
        if self.lost and not self.space and "seeds" not in self.rest:
            raise self.nothing_searched(self.lost)
        if "env_steps" not in self.rest:
            self.rest["env_steps"] = 1_000_000
            self.note("env_steps: no run length is given; 1,000,000 is hpo's default")
        if not self.whole:
            self._complete_study()
        self._write_loggers()
        data = {**self.rest, "fixed": self.fixed, "space": self.space}
        if self.env.keys() == {"id"}:
            data["env"] = self.env["id"]
        elif "id" in self.env:
            data["env"] = {"id": self.env["id"], **self.env}
        if self.envs:
            data["env"] = self.envs
        body = self._checked_study_text(data)
        return self.head() + body

    def _complete_study(self) -> None:
        """Add the sections that every study needs but the source lacks: evaluation and confirm."""
        continuous = self.entry is not None and self.entry.default_of("continuous")
        if self.env.get("continuous", continuous) and "steps" not in self.section("evaluation"):
            self.section("evaluation").update({"episodes": 8, "steps": 5000})
            self.note(
                "evaluation: 8 networks with 5,000 requests each, because episodes do not end"
            )
        pair = [name for name in ("num_layers", "hidden_size") if self._has_knob(name)]
        if len(pair) == 1 and not self._has_knob("hidden_sizes"):
            others = {"num_layers": ("hidden_size", 64), "hidden_size": ("num_layers", 2)}
            other, usual = others[pair[0]]
            text = f"{pair[0]} is given without {other}, but the hidden layers need both"
            raise self.fault(f"{text}; give both", flags={other: usual})
        trials = self.section("budget").get("trials", 64)
        seeds = self.section("seeds").get("per_config", 1)
        if self.space and trials != 1 and (seeds == 1 or self.is_default):
            given = self.rest.setdefault("confirm", {})
            self.rest["confirm"] = confirm_plan(given, trials)
            if given == {}:
                self.note(
                    "confirm: the best trials are tested on new seeds, as in every new study"
                )

    def _has_knob(self, knob: str) -> bool:
        return knob in self.fixed or knob in self.space

    def _checked_study_text(self, data: Mapping[str, Any]) -> str:
        """Return a study's text; raise if `hpo check` would reject it.

        This also sets the schedule and the run length, because both depend on the whole study.
        """
        shown, reasons = f"{self.source} (imported)", list[str]()
        lacking, load, body = self._why_unchecked(), loads, _yaml_text(data)
        if lacking:
            load = loads_elsewhere
        try:
            if self.schedule is not None:
                self._settle_schedule(load(body, shown))  # sets names of `fixed`
                body = _yaml_text(data)
            study = load(body, shown)
            if not self._has_code():
                report = check(study)
                reasons = list(report.mistakes)
                self._note_length(
                    study.env_steps, {bucket.chunk_sizes.env_steps for bucket, _ in report.buckets}
                )
        except StudyError as error:
            reasons = [mistake.text for mistake in error.mistakes]
            self._refuse_environment(reasons)
        except ConfigError as error:
            reasons = [str(error)]
        if reasons:
            raise ConfigError(f"{self.source} cannot be imported: {'; '.join(reasons)}")
        if lacking:
            self.note(lacking)
        return body

    def _refuse_environment(self, reasons: list[str]) -> None:
        """Reject an unregistered environment; `--imports` names a file that registers it."""
        if reasons[0].endswith(_IMPORTS):  # a different package has it
            text = f"{reasons[0].removesuffix(_IMPORTS)} and name it"
            meant, flags = reasons[0].partition(" ")[0], {"imports": "my_envs.py"}
            if self.env.get("id") != meant:
                flags = {"env": meant, **flags}
            raise self.fault(text, flags=flags) from None
        if any(text.startswith("unknown environment") for text in reasons):
            env = str(self.env.get("id"))
            if ":" not in env:
                env = f"gym:{env}"
            text = reasons[0].removesuffix("; custom environments are registered by `imports`")
            text += "; for a custom one, name its id and the file that registers it"
            raise self.fault(text, flags={"env": env, "imports": "my_envs.py"}) from None

    def _why_unchecked(self) -> str:
        """Return the reason why the study cannot be checked completely here, or ""."""
        if self._has_code():
            return "imports: the file was not run, so its registrations are not checked yet"
        try:
            package = lacking_package(str(self.env["id"]))
        except HpoError:
            return ""  # the check reports this
        if not package:
            return ""
        return f"env: {package}, so the environment's keys are not checked yet"

    def _has_code(self) -> bool:
        """Return whether the study needs user code, which may be missing here."""
        return "imports" in self.rest or "algorithm" in self.rest

    def _note_length(self, asked: int, trained: set[int]) -> None:
        longest = max(trained)
        noted = any(text.startswith("TOTAL_TIMESTEPS:") for text in self.notes)
        if longest == asked or noted:
            return
        amount = f"{longest:,}"
        if len(trained) > 1:
            amount = f"up to {amount}"
        self.note(
            f"env_steps: {asked:,} in the source, but a run has {amount} env steps, rounded up to "
            "whole updates and equal chunks"
        )

    def _settle_schedule(self, study: Study) -> None:
        """Set the learning-rate schedule, once the run length is known."""
        schedule, self.schedule = self.schedule, None
        assert schedule is not None
        total = _gradient_steps(study)
        for name, value in schedule.settings(total).items():
            self.fixed[name] = _call_with_name(name, check_value, name, value)
        text = (
            f"lr_schedule: {schedule.kind}, counted in optimiser steps; a run has {total:,} steps"
        )
        if searched := [name for name in _COUNTED if name in study.space.names]:
            text += f" with the default {' and '.join(searched)}"
        self.note(text)

    def _write_loggers(self) -> None:
        for kind, options in self.loggers.items():
            named = {option: value for option, value in options.items() if option != "on"}
            if options["on"]:
                written = self.rest.setdefault("loggers", [])
                if kind not in str(written):
                    written.append({"type": kind, **named})
                continue
            for option, value in named.items():
                target, added = f"loggers.{kind}.{option}", f"{{type: {kind}, {option}: {value}}}"
                name = next((n for n, targets in self.taken.items() if target in targets), option)
                self.taken.pop(name, None)
                self.leave_out(name, f"the logger is off; to turn it on, add loggers: [{added}]")

    def head(self) -> str:
        lines = [f"# Imported from {one_line(self.source)}."]
        if self.system.version:
            lines.append(f"# Read as {self.system.title}, {self.system.version}.")
        lines += _wrapped_comment("Taken", [_taken_words(*one) for one in self.taken.items()])
        lines += _listed_comment("Changed:", self.notes)
        lines += _wrapped_comment("Without effect", self.idle)
        lines += _listed_comment("Left out:", self.left_out)
        lines += _wrapped_comment(f"Defaults of {self.system.title}", self.defaults)
        return "\n".join(lines) + "\n"


_COUNTED = (
    "num_envs",
    "rollout_length",
    "num_minibatches",
    "minibatch_size",
    "update_epochs",
    "accumulate_minibatches",
)


def _gradient_steps(study: Study) -> int:
    """Return the optimiser steps in a default run, whose length is rounded up to whole chunks."""
    config = study.default()
    chunk_sizes = chunk_sizes_of(study, study.steps_per_update(config))
    updates = chunk_sizes.schedule_chunks * chunk_sizes.updates_per_chunk
    per_epoch = math.ceil(minibatches_per_epoch(config) / config["accumulate_minibatches"])
    return updates * config["update_epochs"] * per_epoch


def _yaml_text(data: Mapping[str, Any]) -> str:
    return to_yaml({key: data[key] for key in _ORDER if data.get(key) not in (None, {}, [])})


def _wrapped_comment(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    text = f"# {title}: {'; '.join(map(one_line, items))}."
    return textwrap.wrap(text, 97, subsequent_indent="#   ", break_long_words=False)


def _listed_comment(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    return [f"# {title}", *(f"#   {one_line(item)}" for item in items)]


def _taken_words(name: str, targets: list[str]) -> str:
    """Return a foreign name, with our names for it if they differ."""
    if not targets or targets == [name]:
        return one_line(name)
    return f"{one_line(name)} as {', '.join(targets)}"


def is_of_the_file(name: str) -> bool:
    section, _, key = name.partition(".")
    return bool(key) and section in (*SECTIONS, "eval_env")


def _is_off(value: Any) -> bool:
    return value is None or value is False  # 0 may be a device


def _call_with_name(name: str, check: Callable[..., Any], *args: Any) -> Any:
    try:
        return check(*args)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
