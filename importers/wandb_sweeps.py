"""Sweep files of Weights & Biases as studies.

The traps: bounds of `log_uniform` are exponents of e there, a step `q` rounds to multiples of q
and not to steps from the minimum, `hyperband` counts logged metrics and not env steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..environments.table import ENVIRONMENTS
from ..errors import ConfigError
from ..files.plain_data import is_dict, is_list
from ..studies.search_methods import MOST_POINTS
from ..studies.study_keys import METRICS, metric_fault
from .convert import take
from .converted_study import Draft, Source
from .formats import file_name, flags_of, read_data
from .name_mapping import METRICS_ELSEWHERE, SEARCH_METHODS, is_number

_METHODS = {"random": "random", "grid": "grid", "bayes": SEARCH_METHODS["bayes"]}
_KEYS = {
    "program": "the program is hpo",
    "controller": "the study is its own controller",
    "job": "the program is hpo",
    "image_uri": "the program is hpo",
    "description": "kept above as a comment only",
}
_LOGGED = ("project", "entity")
_READ = ("name", "method", "parameters", "metric", "early_terminate", "command", "run_cap")
_PLACEHOLDERS = ("${env}", "${interpreter}", "${program}", "${args}", "${args_no_hyphens}",
                 "${args_no_boolean_flags}", "${args_json}", "${args_json_file}", "${args_dict}",
                 "/usr/bin/env")  # fmt: skip
_HYPERBAND_ETA = 3.0
_ENV_STEPS_FROM = 1000


def read_sweep(path: Path, given: Mapping[str, Any]) -> Draft:
    """Read a sweep file."""
    sweep = read_data(path)
    if not is_dict(sweep) or not is_dict(sweep.get("parameters")):
        raise ConfigError(f"{path}: not a sweep; it has no mapping `parameters`")
    draft = Draft(str(path))
    for key in sweep:
        if key in _LOGGED:
            continue
        if key in _KEYS:
            draft.leave_out(key, f"{_KEYS[key]} (it was {sweep[key]!r})")
        elif key not in _READ:
            draft.leave_out(key, f"no counterpart (its value is {sweep[key]!r})")
    words = _command(sweep.get("command"))
    source = Source(dict(_flags(words, path.parent)), words=(*words, str(sweep.get("program"))))
    for name, fields in _flattened(sweep["parameters"]):
        _parameter(draft, source, name, fields)
    take(draft, source, given)
    _logged(draft, sweep)
    if isinstance(sweep.get("name"), str):
        draft.rest["name"] = file_name(sweep["name"], "sweep")
    _method(draft, sweep.get("method", "random"))
    _metric(draft, sweep.get("metric"), given)
    draft.override(given)
    _every_step(draft)
    _early(draft, sweep.get("early_terminate"))
    cap = sweep.get("run_cap")
    if cap is not None:
        draft.section("budget")["trials"] = cap
    elif draft.rest["search"]["method"] == "grid":
        draft.section("budget").setdefault("trials", None)  # it ends by itself
    else:
        draft.note("budget: the sweep names no run_cap; budget.trials is our default")
    return draft


def _logged(draft: Draft, sweep: Mapping[str, Any]) -> None:
    """Put the project and its owner where a logger of W&B is wanted, else leave them out."""
    for key in _LOGGED:
        if key not in sweep:
            continue
        wanted = draft.loggers.get("wandb", {})
        if wanted.get("on"):
            wanted.setdefault(key, str(sweep[key]))
        else:
            draft.leave_out(key, f"add loggers: [{{type: wandb, {key}: {sweep[key]}}}]")


def _flattened(parameters: Mapping[str, Any], outer: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return (dotted name, fields) of nested parameters."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name, fields in parameters.items():
        whole = f"{outer}{name}"
        if not is_dict(fields):
            raise ConfigError(f"parameters.{whole} is {fields!r}; allowed: a mapping")
        if is_dict(fields.get("parameters")):
            found.extend(_flattened(fields["parameters"], f"{whole}."))
        else:
            found.append((whole, fields))
    return found


def _command(command: Any) -> list[str]:
    """Return the words of the `command` section."""
    if command is None:
        return []
    if not is_list(command):
        raise ConfigError(f"command is {command!r}; allowed: a list of words")
    return [str(word) for word in command]


def _flags(words: list[str], folder: Path) -> dict[str, Any]:
    """Return the flags of a command; they are the same in every run."""
    return flags_of([word for word in words if word not in _PLACEHOLDERS], folder)


# ---------------------------------------------------------------------- parameters


def _parameter(draft: Draft, source: Source, name: str, fields: Mapping[str, Any]) -> None:
    """Put a parameter into the source; it wins over a flag of the command."""
    source.drop(name)
    kind = fields.get("distribution") or _inferred(name, fields)
    if kind == "constant" or ("value" in fields and "values" not in fields):
        source.constants[name] = _need(name, fields, "value")
        return
    reader = _DISTRIBUTIONS.get(kind)
    if reader is None:
        known = ", ".join(sorted({*_DISTRIBUTIONS, "constant"}))
        raise ConfigError(
            f"parameters.{name}: the distribution {kind!r} cannot be said in a study; "
            f"known: {known}"
        )
    distribution = reader(draft, name, fields)
    values = distribution.get("values")
    if values is not None and len(values) == 1:
        source.constants[name] = values[0]
    else:
        source.searched[name] = distribution


def _inferred(name: str, fields: Mapping[str, Any]) -> str:
    if "values" in fields:
        return "categorical"
    if "value" in fields:
        return "constant"
    if "mu" in fields or "sigma" in fields:
        return "normal"
    if "min" in fields and "max" in fields:
        bounds = (fields["min"], fields["max"])
        whole = all(isinstance(bound, int) and not isinstance(bound, bool) for bound in bounds)
        return "int_uniform" if whole else "uniform"
    raise ConfigError(f"parameters.{name} has neither values nor min and max")


def _need(name: str, fields: Mapping[str, Any], key: str) -> Any:
    if key not in fields:
        raise ConfigError(f"parameters.{name} has no {key!r}")
    return fields[key]


def _number(name: str, fields: Mapping[str, Any], key: str) -> float:
    value = _need(name, fields, key)
    if not is_number(value) or not math.isfinite(value):
        raise ConfigError(f"parameters.{name}.{key} is {value!r}; allowed: a number")
    return value


def _categorical(draft: Draft, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    values = _need(name, fields, "values")
    if not is_list(values) or not values:
        raise ConfigError(f"parameters.{name}.values is {values!r}; allowed: a list")
    weights = fields.get("probabilities")
    if weights is not None and len(set(weights)) > 1:
        raise ConfigError(
            f"parameters.{name} has unlike probabilities {weights!r}; "
            "in a study all values are equally likely: drop them, or repeat nothing"
        )
    distinct: list[Any] = []
    for value in values:
        if not any(type(value) is type(seen) and value == seen for seen in distinct):
            distinct.append(value)
    if len(distinct) < len(values):
        draft.note(f"{name}: values that stand twice are kept once")
    return {"values": distinct}


def _range(kind: str, bound: Any = None, steps: bool = False) -> Any:
    """Return a reader of a range; `bound` turns the file's bounds into values."""

    def read(draft: Draft, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        low, high = _number(name, fields, "min"), _number(name, fields, "max")
        if bound is not None:
            low, high = bound(low, high)
            draft.note(f"{name}: its bounds were exponents of e; here they are values")
        if low == high:
            return {"values": [low]}
        found: dict[str, Any] = {"min": low, "max": high, "distribution": kind}
        if steps:
            found = _stepped(draft, name, found, fields.get("q", 1.0))
        return found

    return read


def _stepped(draft: Draft, name: str, found: dict[str, Any], q: Any) -> dict[str, Any]:
    """Round the bounds to multiples of q, from which a study counts its steps."""
    if not is_number(q) or q <= 0:
        raise ConfigError(f"parameters.{name}.q is {q!r}; allowed: a number above 0")
    low, high = (float(f"{round(found[key] / q) * q:.12g}") for key in ("min", "max"))
    if found["distribution"] == "log_uniform" and low <= 0:
        low = q
    if (low, high) != (found["min"], found["max"]):
        draft.note(f"{name}: bounds rounded to multiples of {q!r}")
    if low >= high:
        return {"values": [high]}
    if all(float(number).is_integer() for number in (low, high, q)):
        kind = "log_int_uniform" if found["distribution"] == "log_uniform" else "int_uniform"
        return {"min": int(low), "max": int(high), "q": int(q), "distribution": kind}
    return {**found, "min": low, "max": high, "q": q}


def _normal(_: Draft, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    mu = _number(name, fields, "mu") if "mu" in fields else 0.0
    sigma = _number(name, fields, "sigma") if "sigma" in fields else 1.0
    return {"mu": mu, "sigma": sigma, "distribution": "normal"}


def _exponents(low: float, high: float) -> tuple[float, float]:
    return _e_to(low), _e_to(high)


def _inverse_exponents(low: float, high: float) -> tuple[float, float]:
    return _e_to(-high), _e_to(-low)


def _e_to(exponent: float) -> float:
    if abs(exponent) > 200:
        raise ConfigError(
            f"e to the power {exponent!r} is no hyperparameter; bounds of log_uniform are "
            "exponents in W&B (log_uniform_values takes values)"
        )
    return float(f"{math.exp(exponent):.6g}")


_DISTRIBUTIONS: Mapping[str, Any] = {
    "categorical": _categorical,
    "categorical_w_probabilities": _categorical,
    "int_uniform": _range("int_uniform"),
    "uniform": _range("uniform"),
    "q_uniform": _range("uniform", steps=True),
    "log_uniform": _range("log_uniform", _exponents),
    "log_uniform_values": _range("log_uniform"),
    "q_log_uniform": _range("log_uniform", _exponents, steps=True),
    "q_log_uniform_values": _range("log_uniform", steps=True),
    "inv_log_uniform": _range("log_uniform", _inverse_exponents),
    "inv_log_uniform_values": _range("log_uniform"),
    "normal": _normal,
}
"""Distribution -> its reader. Both inverse kinds draw values whose logarithm is uniform."""


# ---------------------------------------------------------------------- the rest


def _method(draft: Draft, method: Any) -> None:
    if method not in _METHODS:
        raise ConfigError(f"method is {method!r}; known: {', '.join(_METHODS)}")
    draft.section("search")["method"] = _METHODS[method]
    if method == "bayes":
        draft.note("method: bayes is tpe here")


def _every_step(draft: Draft) -> None:
    """Let a grid try every step of a range, as it does there, and not some evenly spread."""
    search = draft.section("search")
    if search.get("method") != "grid" or "options" in search:
        return
    points = dict[str, int]()
    for name, fields in draft.space.items():
        step = fields.get("q") or (1 if fields.get("distribution") == "int_uniform" else 0)
        if "min" not in fields or not step or fields.get("distribution") == "log_uniform":
            continue
        steps = round((fields["max"] - fields["min"]) / step) + 1
        points[name] = min(steps, MOST_POINTS)
        if steps > MOST_POINTS:
            draft.note(f"{name}: {MOST_POINTS:,} of its {steps:,} steps, evenly spread")
    if points:
        search["options"] = {"points": points}


def _metric(draft: Draft, metric: Any, given: Mapping[str, Any]) -> None:
    if metric is None:
        return
    if not is_dict(metric) or not isinstance(metric.get("name"), str):
        raise ConfigError(f"metric is {metric!r}; allowed: a mapping with name and goal")
    theirs, goal = metric["name"], metric.get("goal", "minimize")
    if goal not in ("minimize", "maximize"):
        raise ConfigError(f"metric.goal is {goal!r}; allowed: minimize or maximize")
    if "metric" in given:
        name = str(given["metric"])
        best = _goal_of(name) or goal
        if best != goal and "metric.goal" not in given:
            draft.note(f"metric: the sweep's goal is {goal} of {theirs!r}; of {name} it is {best}")
            goal = best
    else:
        name = _our_metric(draft, theirs, goal)
    draft.rest["metric"] = {"name": name, "goal": goal}
    if "goal" not in metric:
        draft.note("metric: no goal is named, which means minimize there")
    if "target" in metric:
        draft.leave_out("metric.target", f"no counterpart (its value is {metric['target']!r})")


def _goal_of(metric: str) -> str | None:
    """Return the goal of a metric of ours, where it is clear."""
    if "blocking" in metric:
        return "minimize"
    return "maximize" if metric.startswith("eval/return") and metric in METRICS else None


def _our_metric(draft: Draft, given: str, goal: str) -> str:
    entry = ENVIRONMENTS.get(draft.env.get("id", ""))
    name = METRICS_ELSEWHERE.get(given.lower())
    if name is None and metric_fault(given, entry) is None:
        return given
    optical = entry is not None and entry.source == "optical"
    name = name or _likely_metric(given.lower(), optical)
    wanted = name and _goal_of(name)
    if name is None or (wanted is not None and wanted != goal):
        ours = name or (f"eval/{'service_blocking_probability' if optical else 'return_mean'}")
        raise ConfigError(
            f"the metric {given!r} has no counterpart; name the one that is meant",
            flags={"metric": ours, "metric.goal": _goal_of(ours) or goal},
        )
    draft.note(f"metric: {given!r} is {name} here, of greedy episodes on seeds of their own")
    return name


def _likely_metric(words: str, optical: bool) -> str | None:
    """Return what a metric's name seems to say; those of a learner, such as a loss, are None."""
    if "blocking" in words and optical:
        share = "bitrate" if "bitrate" in words else "service"
        return f"eval/{share}_blocking_probability"
    parts = words.replace("/", "_").split("_")
    if "rew" in parts or any(word in words for word in ("return", "reward", "score")):
        return "eval/return_mean"
    return "eval/length_mean" if "length" in words or "ep_len" in words else None


def _early(draft: Draft, early: Any) -> None:
    """Read `hyperband`: rungs at max_iter / eta^i for i up to s, else at min_iter x eta^i."""
    if early is None:
        return
    if not is_dict(early) or early.get("type") != "hyperband":
        raise ConfigError(f"early_terminate is {early!r}; known: type hyperband")
    eta = early.get("eta", _HYPERBAND_ETA)
    if not is_number(eta) or eta <= 1:
        raise ConfigError(f"early_terminate.eta is {eta!r}; allowed: a number above 1")
    section = draft.section("early_terminate")
    section |= {"type": "asha", "eta": float(eta)}
    steps = draft.rest.get("env_steps", 1_000_000)
    counts = {key: early[key] for key in ("min_iter", "max_iter") if is_number(early.get(key))}
    if not counts:
        raise ConfigError("early_terminate has neither min_iter nor max_iter")
    if len(counts) > 1:
        draft.leave_out("early_terminate.min_iter", "W&B goes by max_iter and s where both stand")
        del counts["min_iter"]
    (kind, iterations), brackets = counts.popitem(), early.get("s")
    if iterations >= _ENV_STEPS_FROM:
        divisor = eta ** (brackets or 1) if kind == "max_iter" else 1
        section["min"] = max(1, int(iterations / divisor))
        draft.note("early_terminate: its iterations are taken for env steps")
    else:
        power = brackets if brackets is not None else 2
        section["min"] = max(1, int(steps / eta**power))
        draft.note(
            "early_terminate: iterations count logged metrics there, whose env steps the file "
            f"does not say; the first rung is at env_steps / eta^{power}"
        )
    draft.note("early_terminate: hyperband there halves at rungs, which is asha here")
    if "strict" in early:
        draft.leave_out("early_terminate.strict", "asha has one strictness")
