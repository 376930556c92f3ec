"""The training algorithm that a study tunes: PPO, a class in a file, or a command.

`algorithm: my_sac.py:SAC` runs the file and uses the hyperparameters declared by the class. The
resolved study records them, so that a finished study can be read without that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..errors import ConfigError, listed, suggestion
from ..files.plain_data import as_lists, freeze
from ..knobs import KNOBS, Knob, canonical_value, complete

PPO, ENV_STEPS = "ppo", "env steps"
COMMAND = "command"  # prefix of the label of a training that is a process


@dataclass(frozen=True)
class Algorithm:
    """The training algorithm that lanes run, with its table of hyperparameters."""

    name: str = PPO  # as in the study file
    knobs: Mapping[str, Knob] = field(default_factory=lambda: KNOBS)
    unit: str = ENV_STEPS  # unit of a run's length, as a word
    takes_env: bool = True  # whether the study specifies the environment
    acts: bool = True  # whether the engine evaluates it in that environment
    # the class; None if read from a record
    made: Any = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "made": None}  # another process runs the file itself

    @property
    def is_ppo(self) -> bool:
        return self.name == PPO

    @property
    def is_process(self) -> bool:
        """Whether each run is a process started by `command`."""
        return self.name.startswith(f"{COMMAND}:")

    @property
    def lanes(self) -> str:
        """Return the word for the units that run in parallel: lanes or processes."""
        if self.is_process:
            return "processes"
        return "lanes"

    @property
    def label(self) -> str:
        """A short name for tables and folders."""
        if self.is_ppo:
            return "PPO"
        return self.name.partition(":")[2]

    def complete(self, given: Mapping[str, Any], own_words: bool = False) -> dict[str, Any]:
        """Return a complete configuration: the defaults, updated with the given values."""
        if self.is_ppo:
            return complete(given, own_words)
        config = {name: knob.default for name, knob in self.knobs.items()}
        for name, value in given.items():
            config[name] = canonical_value(self.knob(name), value)
        return config

    def knob(self, name: str) -> Knob:
        if name not in self.knobs:
            known = list(self.knobs)
            hint = f"{suggestion(name, known)} {listed(name, known)}"
            raise ConfigError(f"{self.label} has no hyperparameter {name!r};{hint}")
        return self.knobs[name]

    def training(self, config: Mapping[str, Any], length: int, given: Any = None) -> Any:
        """Return the `Training` for a configuration; equal static values share one object."""
        if self.made is None:
            text = f"the code of {self.name} is needed, but a recorded study does not contain it"
            raise ConfigError(text)
        static = {name: config[name] for name, knob in self.knobs.items() if not knob.traced}
        return self.made.of(static, length, given)

    def as_data(self) -> dict[str, Any]:
        """Return the algorithm as data, as recorded in resolved studies."""
        data: dict[str, Any] = {"class": self.name, "unit": self.unit}
        if self.takes_env:
            data |= {"environment": True, "acts": self.acts}
        data["hyperparameters"] = {name: _as_data(knob) for name, knob in self.knobs.items()}
        return data


def _as_data(knob: Knob) -> dict[str, Any]:
    usual = {one.name: one.default for one in fields(Knob)}
    given: dict[str, Any] = as_lists(asdict(knob))
    always = {name: given.pop(name) for name in ("type", "default", "traced")}
    del given["name"]
    changed = {name: value for name, value in given.items() if value != as_lists(usual[name])}
    return {**always, **changed}


def knob_of_data(name: str, data: Mapping[str, Any]) -> Knob:
    given: dict[str, Any] = {key: freeze(value) for key, value in data.items()}
    given["search"] = data.get("search")
    return Knob(name=name, **given)
