"""Studies made from a tuned configuration: one to train it, one to search around it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...files.plain_data import as_lists
from ...knobs import KNOBS, complete
from ..init_file import SEARCHED, SEED_PLAN
from ..load import BeforeCode, load, loads
from ..spec import Study
from ..stopping_rules import FIRST_RUNG
from ..yaml_io import flow, to_yaml
from .record import DEFAULT, PREFIX, TunedRecord, file_name, find_record

_FACTOR = 4.0
_TRIALS = 48
_COMMENT = 44


def knobs_of(record: TunedRecord) -> dict[str, Any]:
    """Return the tuned configuration in terms of current hyperparameters, without removed ones."""
    return {name: value for name, value in record.tuned.config.items() if name in KNOBS}


def least(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fewest hyperparameters that give this configuration with today's defaults."""
    whole = as_lists(complete(config))
    usual = as_lists(complete({}))
    kept = {n: value for n, value in whole.items() if n not in usual or usual[n] != value}
    for name in list(kept):
        fewer = {other: value for other, value in kept.items() if other != name}
        with suppress(ConfigError):  # without this one, the rest is contradictory
            if as_lists(complete(fewer)) == whole:
                kept = fewer
    return kept


def former_default(record: TunedRecord) -> dict[str, Any]:
    """Return the hyperparameters that turn the current default into the recorded one."""
    for one in record.contenders:
        if one.who == DEFAULT:
            return least({name: value for name, value in one.config.items() if name in KNOBS})
    return {}


def train_text(record: TunedRecord, seeds: int = 5) -> str:
    """Return the study that trains the configuration, for `hpo train tuned:ENV`."""
    return _head_comment(record, "trained") + to_yaml(
        {
            "name": f"tuned-{_record_stem(record)}",
            "env": record.env_given,
            "env_steps": record.env_steps,
            "fixed": least(knobs_of(record)),
            "metric": {"name": record.metric, "goal": record.goal},
            "evaluation": {
                "every": max(1, record.env_steps // 20),
                **_evaluation_settings(record),
            },
            "seeds": {"per_config": seeds},
            "budget": {"trials": 1},
        }
    )


def around_text(record: TunedRecord) -> str:
    """Return a study with the configuration as default, for `hpo init ENV`.

    The usual hyperparameters are searched. Numeric ranges are near the tuned value: within a
    factor of 4 on logarithmic axes, and within a quarter of the usual range on linear ones.
    """
    config = {name: _round_value(name, value) for name, value in least(knobs_of(record)).items()}
    whole = complete(config)
    space = {
        name: _range_around(name, whole[name])
        for name in SEARCHED
        if whole[name] < 1.0
        or _distribution_kind(name) != "one_minus_log"  # its axis ends below 1
    }
    fixed = {k: v for k, v in config.items() if k not in space}
    first = max(1, round(FIRST_RUNG * record.env_steps))
    metric: dict[str, Any] = {"name": record.metric, "goal": record.goal}
    if record.metric == "eval/return_mean" and "steps" not in record.evaluation:  # episodes end
        # training returns count by half, except on test seeds
        metric["training_weight"] = 0.5
    lines = [
        _head_comment(record, "the default, trial 0"),
        "# Next: check this file, then run it. Omitted keys have defaults.\n",
        to_yaml({"name": _record_stem(record).lower(), "env": record.env_given}),
        _commented_line(f"env_steps: {record.env_steps}", "per full run"),
        _commented_line("fixed:", "the same in every trial") if fixed else "",
        *(f"  {flow(name)}: {flow(value)}\n" for name, value in fixed.items()),
        _commented_line("space:", "searched; default: the value in trial 0"),
        *(f"  {flow(name)}: {flow(data)}\n" for name, data in space.items()),
        _commented_line(f"metric: {flow(metric)}", "the objective"),
        _commented_line(
            f"evaluation: {flow({'every': 'rungs', **_evaluation_settings(record)})}",
            "at rungs and at the end",
        ),
        _commented_line("search: {method: tpe}", "how trials are proposed"),
        _commented_line(
            f"early_terminate: {{type: asha, min: {first}, eta: 4}}",
            "three of four trials stop at min",
        ),
        *(_commented_line(line, what) for line, what in SEED_PLAN),
        _commented_line(
            "population: {lanes: 24}", "fewer lanes than trials: tpe learns from early trials"
        ),
        _commented_line(
            f"budget: {{trials: {_TRIALS}}}", "other limits: env_steps: 100M, wall: 2h"
        ),
    ]
    return "".join(lines)


def _commented_line(line: str, what: str) -> str:
    return f"{line.ljust(_COMMENT)} # {what}\n"


def _distribution_kind(name: str) -> str:
    return (KNOBS[name].search or {}).get("distribution", "")


def _round_value(name: str, value: Any) -> Any:
    """Round a number to four digits; near 1, round its distance from 1."""
    if not isinstance(value, float):
        return value
    if _distribution_kind(name) == "one_minus_log" and 0.0 < value < 1.0:
        return float(f"{1.0 - float(f'{1.0 - value:.4g}'):.10g}")
    return float(f"{value:.4g}")


def _head_comment(record: TunedRecord, what: str) -> str:
    return f"# {record.env}: the tuned configuration tuned:{record.name} is {what}.\n"


def _record_stem(record: TunedRecord) -> str:
    return file_name(record.name).removesuffix(".yaml")


def _evaluation_settings(record: TunedRecord) -> dict[str, Any]:
    return {k: v for k, v in record.evaluation.items() if k != "greedy" or v is False}


def _range_around(name: str, value: Any) -> dict[str, Any]:
    """Return the part of a hyperparameter's usual range around its default `value`."""
    usual = dict(KNOBS[name].search or {})
    low, high = usual["min"], usual["max"]
    kind = usual["distribution"]
    if kind == "one_minus_log":
        near = (1.0 - (1.0 - value) * _FACTOR, 1.0 - (1.0 - value) / _FACTOR)
    elif kind == "uniform":
        near = (value - (high - low) / _FACTOR, value + (high - low) / _FACTOR)
    else:
        near = (value / _FACTOR, value * _FACTOR)
    if value == 0.0 and "zero" in usual:  # the zero of a hyperparameter that may be off
        return {**usual, "default": 0.0}
    low, high = max(min(low, value), near[0]), min(max(high, value), near[1])
    if kind.endswith("int_uniform"):
        low, high = math.floor(low), math.ceil(high)
    else:
        digits = 4
        if kind == "one_minus_log":
            digits = 10  # 0.9999975 is not 1
        low, high = (float(f"{end:.{digits}g}") for end in (low, high))
    bounds = {"min": min(low, value), "max": max(high, value), "default": value}
    return {**usual, **bounds}


def load_given(
    file: str,
    overrides: Sequence[str] = (),
    name: str | None = None,
    before_code: BeforeCode | None = None,
) -> tuple[Study, str]:
    """Return a study and its text: from a file, or the one that trains `tuned:NAME`."""
    if not file.startswith(PREFIX):
        return load(file, overrides, name, before_code), Path(file).read_text(encoding="utf-8")
    text = train_text(find_record(file.removeprefix(PREFIX)))
    return loads(text, file, ".", overrides, name), text
