"""Converts Weights & Biases sweep files to studies.

In these files, bounds of `log_uniform` are exponents of e, `q` rounds to multiples, and
`hyperband` counts logged metrics.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..environments.table import ENVIRONMENTS
from ..errors import ConfigError
from ..files.plain_data import is_dict, is_list, is_number
from ..foreign_names.name_mapping import SEARCH_METHODS, rounded
from ..spaces.make import infer_kind, range_kind
from ..studies.search_methods import MOST_POINTS
from ..studies.study_keys import METRICS, metric_fault
from .convert import take
from .converted_study import ConvertedStudy, ImportSource, is_of_the_file
from .formats import distinct, file_name, flags_of, read_data, read_word

_METHODS = {"random": "random", "grid": "grid", "bayes": SEARCH_METHODS["bayes"]}
_REASONS = {
    **dict.fromkeys(("program", "job", "image_uri"), "hpo trains instead"),
    "controller": "hpo proposes the trials instead",
    "description": "kept only in this comment",
}
_LOGGED = ("project", "entity")
_READ = ("name", "method", "parameters", "metric", "early_terminate", "command", "run_cap")
_PLACEHOLDERS = ("${env}", "${interpreter}", "${program}", "${args}", "${args_no_hyphens}",
                 "${args_no_boolean_flags}", "${args_json}", "${args_json_file}", "${args_dict}",
                 "/usr/bin/env")  # fmt: skip
_HYPERBAND_ETA = 3.0
_ENV_STEPS_FROM = 1000
_AS_ASHA = (
    "early_terminate: imported as asha, because W&B's hyperband does successive halving at rungs"
)
_MAX_ITER_FIRST = "W&B uses max_iter if both are given"
# other systems' episode metrics (mostly from training), in lower case -> ours (from greedy
# episodes on separate seeds)
_METRICS_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "rollout/ep_rew_mean",
            "eval/mean_reward",
            "charts/episodic_return",
            "charts/mean_reward",
            "eval/episodic_return",
            "eval/episode_reward",
            "returned_episode_returns",
            "reward_mean",
            "eval_rewards",
        ),
        "eval/return_mean",
    ),
    **dict.fromkeys(
        (
            "rollout/ep_len_mean",
            "eval/mean_ep_length",
            "charts/episodic_length",
            "charts/mean_ep_length",
            "eval/mean_length",
            "returned_episode_lengths",
        ),
        "eval/length_mean",
    ),
    "eval/std_reward": "eval/return_std",
    "eval/min_reward": "eval/return_min",
    "eval/max_reward": "eval/return_max",
}
# theirs -> ours, sign of bounds that are exponents of e (-1: of 1/e), whether it has steps
_RANGES = {
    "int_uniform": ("int_uniform", 0, False),
    "uniform": ("uniform", 0, False),
    "q_uniform": ("uniform", 0, True),
    "log_uniform": ("log_uniform", 1, False),
    "log_uniform_values": ("log_uniform", 0, False),
    "q_log_uniform": ("log_uniform", 1, True),
    "q_log_uniform_values": ("log_uniform", 0, True),
    "inv_log_uniform": ("log_uniform", -1, False),  # its values are also log-uniform
    "inv_log_uniform_values": ("log_uniform", 0, False),
}
_KINDS = ("categorical", "categorical_w_probabilities", "constant", "normal", *_RANGES)


_USUAL = ("${env}", "${interpreter}", "${program}", "${args}")
"""The command of a sweep without `command`."""
_VARIABLES = "WANDB_MODE=offline WANDB_DIR={folder}"
_SET_HERE = ("seed",)  # parameters that a study sets per run
_ONCE = "1 run"


def has_program(path: Path, given: Mapping[str, Any]) -> bool:
    """Return whether a sweep's program exists and should run instead of PPO."""
    named = program_of(path)
    return "env" not in given and bool(named) and (path.parent / named).is_file()


def program_of(path: Path) -> str:
    """Return the file name of a sweep's program; "" if it names none."""
    named = _read_sweep_file(path).get("program")
    if not isinstance(named, str):
        return ""
    return named


def read_program(path: Path, given: Mapping[str, Any]) -> ConvertedStudy:
    """Return a study that starts the sweep's program with the same command as a W&B agent."""
    sweep, draft, source = (
        _read_sweep_file(path),
        ConvertedStudy(str(path), whole=True),
        ImportSource(),
    )
    flags, keys = _program_flags(sweep, given)
    without = str(given.get("without", "")).split(",")
    for name, fields in _flatten_parameters(sweep["parameters"]):
        if name in without:
            draft.leave_out(name, "excluded by --without")
        elif name in _SET_HERE:
            _seeds_of_runs(draft, name, fields)
            source.constants[name] = "{seed}"
        else:
            _add_parameter(draft, source, name, fields)
    for name, value in flags.items():
        source.drop(name)
        source.constants[name] = value
    words = sweep.get("command") or list(_USUAL)
    if not is_list(words):
        raise ConfigError(f"command is {words!r}; allowed: a list of words")
    draft.rest["command"] = _agent_command(words, sweep["program"], source)
    draft.rest["length"] = _ONCE
    draft.space |= source.searched
    metric = _named_metric(sweep.get("metric"))
    draft.rest["metric"] = {"name": metric["name"], "goal": metric.get("goal", "minimize")}
    _note_metric_keys(draft, metric)
    draft.rest["metrics"] = {"type": "wandb"}
    method = _sweep_method(sweep)
    draft.rest["search"] = {"method": _METHODS[method]}
    _every_step(draft)
    _set_name(draft, sweep)
    if sweep.get("run_cap") is not None:
        draft.rest["budget"] = {"trials": sweep["run_cap"]}
    elif method == "grid":
        draft.rest["budget"] = {"trials": None}  # a grid ends by itself
    _stop_by_logs(draft, sweep.get("early_terminate"))
    draft.note(f"{sweep['program']} runs unchanged; wandb writes into each run's folder")
    for key in sweep:
        if key not in (*_READ, "program"):
            _leave_out(draft, key, sweep[key])
    for key, value in keys.items():
        section, _, name = key.rpartition(".")
        into = draft.rest
        if section:
            into = draft.section(section)
        into[name] = read_word(value)
    return draft


_TOP_KEYS = ("name", "seed", "length")
"""Keys without a section that flags after `--` can set in a study with `command`."""


def _program_flags(
    sweep: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the flags after `--` into the sweep's parameters and keys of the study."""
    parameters = dict(_flatten_parameters(sweep["parameters"]))
    flags, keys = dict[str, Any](), dict[str, Any]()
    for name, value in given.items():
        if name in parameters and name not in _SET_HERE:
            flags[name] = value
        elif name == "metric":
            keys["metric.name"] = value
        elif is_of_the_file(name) or name in _TOP_KEYS:
            keys[name] = value
        elif name != "without":
            text = f"{name} is given, but is no parameter of the sweep; parameters: "
            raise ConfigError(text + ", ".join(parameters))
    return flags, keys


def _seeds_of_runs(draft: ConvertedStudy, name: str, fields: Mapping[str, Any]) -> None:
    """Read the seeds of a sweep, whose number becomes the number of runs per trial."""
    values = fields.get("values")
    if is_list(values) and len(values) > 1:
        draft.set_seeds(name, len(distinct(values)))
    draft.note(f"{name}: each run of a trial gets a different value, starting at 0")


def _agent_command(words: Iterable[Any], program: str, source: ImportSource) -> str:
    """Return an agent's command line, with a placeholder for each searched parameter."""
    pairs = [(name, str(value)) for name, value in source.constants.items()]
    pairs += [(name, f"{{{name}}}") for name in source.searched]
    flags = [f"--{name}={_quote_word(value)}" for name, value in pairs]
    known = {
        "${env}": [],
        "/usr/bin/env": [],
        "${interpreter}": ["python"],
        "${program}": [_quote_word(program)],
        "${args}": flags,
        "${args_no_hyphens}": [flag.removeprefix("--") for flag in flags],
    }
    found = [_VARIABLES]
    for word in map(str, words):
        if word.startswith("${") and word not in known:
            raise ConfigError(f"command has {word}; supported: {', '.join(known)}")
        found += known.get(word, [_quote_word(word)])
    return " ".join(found)


def _quote_word(word: str) -> str:
    if re.fullmatch(r"\{[\w.\-/]+\}", word):
        return word
    return shlex.quote(word)


def _is_above_1(eta: Any) -> bool:
    return is_number(eta) and eta > 1


def _stop_by_logs(draft: ConvertedStudy, early: Any) -> None:
    """Convert hyperband's rungs, which count logged metrics, if the run length is known."""
    if early is None:
        return
    named = is_dict(early) and early.get("type") == "hyperband"
    if not named or not _is_above_1(early.get("eta", _HYPERBAND_ETA)):
        raise ConfigError(f"early_terminate is {early!r}; allowed: hyperband with eta above 1")
    eta: float = early.get("eta", _HYPERBAND_ETA)
    length = early.get("max_iter")
    if not is_number(length):
        text = "the run length in logged metrics is not known; give length, metrics.step"
        draft.leave_out("early_terminate", f"{text} and early_terminate")
        return
    first = max(1, math.ceil(rounded(length / eta ** (early.get("s") or 1))))
    draft.rest["length"] = f"{int(length)} logs"
    draft.rest["metrics"]["step"] = "_step"
    draft.rest["early_terminate"] = {"type": "asha", "min": first, "eta": float(eta)}
    if "min_iter" in early:
        draft.leave_out("early_terminate.min_iter", _MAX_ITER_FIRST)
    _note_rungs(draft, early)


def _read_sweep_file(path: Path) -> dict[str, Any]:
    sweep = read_data(path)
    if not is_dict(sweep) or not is_dict(sweep.get("parameters")):
        raise ConfigError(f"{path}: not a sweep; it has no `parameters` mapping")
    return sweep


def read_sweep(path: Path, given: Mapping[str, Any]) -> ConvertedStudy:
    """Convert a sweep over a trainer's arguments to a PPO study."""
    sweep = _read_sweep_file(path)
    draft = ConvertedStudy(str(path))
    _leave_out_keys(draft, sweep)
    command = sweep.get("command") or []
    if not is_list(command):
        raise ConfigError(f"command is {command!r}; allowed: a list of words")
    words = [str(word) for word in command]
    flags = flags_of([word for word in words if word not in _PLACEHOLDERS], path.parent)
    source = ImportSource(dict(flags), words=(*words, str(sweep.get("program"))))
    for name, fields in _flatten_parameters(sweep["parameters"]):
        _add_parameter(draft, source, name, fields)
    take(draft, source, given)
    _log_where_there(draft, sweep)
    _set_name(draft, sweep)
    method = _sweep_method(sweep)
    draft.section("search")["method"] = _METHODS[method]
    if method == "bayes":
        draft.note("method: bayes is imported as tpe")
    _set_metric(draft, sweep.get("metric"), given)
    draft.override(given)
    _every_step(draft)
    _translate_hyperband(draft, sweep.get("early_terminate"))
    _set_budget(draft, sweep.get("run_cap"))
    return draft


def _leave_out(
    draft: ConvertedStudy, key: str, value: Any, reason: str = "no counterpart"
) -> None:
    draft.leave_out(key, f"{reason} (its value is {value!r})")


def _leave_out_keys(draft: ConvertedStudy, sweep: Mapping[str, Any]) -> None:
    for key, value in sweep.items():
        if key in _REASONS:
            _leave_out(draft, key, value, _REASONS[key])
        elif key not in (*_LOGGED, *_READ):
            _leave_out(draft, key, value)


def _log_where_there(draft: ConvertedStudy, sweep: Mapping[str, Any]) -> None:
    """Pass a sweep's project to the W&B logger, if the program logs at all."""
    for key in (key for key in _LOGGED if key in sweep):
        if draft.loggers.get("wandb", {}).get("on"):
            draft.loggers["wandb"].setdefault(key, str(sweep[key]))
        else:
            draft.leave_out(key, f"add loggers: [{{type: wandb, {key}: {sweep[key]}}}]")


def _set_name(draft: ConvertedStudy, sweep: Mapping[str, Any]) -> None:
    if isinstance(sweep.get("name"), str):
        draft.rest["name"] = file_name(sweep["name"], "sweep")


def _sweep_method(sweep: Mapping[str, Any]) -> str:
    method = sweep.get("method", "random")
    if method not in _METHODS:
        raise ConfigError(f"method is {method!r}; known: {', '.join(_METHODS)}")
    return method


def _set_budget(draft: ConvertedStudy, cap: Any) -> None:
    """Set the number of trials, which a grid does not need."""
    if cap is not None:
        draft.section("budget")["trials"] = cap
    elif draft.rest["search"]["method"] == "grid":
        draft.section("budget").setdefault("trials", None)
    else:
        draft.note("budget: the sweep has no run_cap; budget.trials is hpo's default")


def _flatten_parameters(
    parameters: Mapping[str, Any], outer: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, fields in parameters.items():
        if not is_dict(fields):
            raise ConfigError(f"parameters.{outer}{name} is {fields!r}; allowed: a mapping")
        if is_dict(fields.get("parameters")):
            yield from _flatten_parameters(fields["parameters"], f"{outer}{name}.")
        else:
            yield f"{outer}{name}", fields


def _add_parameter(
    draft: ConvertedStudy, source: ImportSource, name: str, fields: Mapping[str, Any]
) -> None:
    source.drop(name)
    without_step = {key: value for key, value in fields.items() if key != "q"}
    kind = fields.get("distribution") or infer_kind(without_step)
    if kind is None:
        raise ConfigError(f"parameters.{name} has neither values nor min and max")
    if kind == "constant" or ("value" in fields and "values" not in fields):
        source.constants[name] = _required_field(name, fields, "value")
        return
    if kind not in _KINDS:
        text = f"parameters.{name}: the distribution {kind!r} is not supported; known: "
        raise ConfigError(text + ", ".join(sorted(_KINDS)))
    if kind in _RANGES:
        distribution = _range_distribution(draft, name, fields, kind)
    elif kind == "normal":
        mu, sigma = (
            _required_number(name, {"mu": 0.0, "sigma": 1.0, **fields}, key)
            for key in ("mu", "sigma")
        )
        distribution = {"mu": mu, "sigma": sigma, "distribution": "normal"}
    else:
        distribution = _categorical_distribution(draft, name, fields)
    values = distribution.get("values")
    if values is not None and len(values) == 1:
        source.constants[name] = values[0]
    else:
        source.searched[name] = distribution


def _required_field(name: str, fields: Mapping[str, Any], key: str) -> Any:
    if key not in fields:
        raise ConfigError(f"parameters.{name} has no {key!r}")
    return fields[key]


def _required_number(name: str, fields: Mapping[str, Any], key: str) -> float:
    value = _required_field(name, fields, key)
    if not is_number(value):
        raise ConfigError(f"parameters.{name}.{key} is {value!r}; allowed: a number")
    return value


def _categorical_distribution(
    draft: ConvertedStudy, name: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    values = _required_field(name, fields, "values")
    if not is_list(values) or not values:
        raise ConfigError(
            f"parameters.{name}.values is {values!r}; allowed: a list of at least one value"
        )
    weights = fields.get("probabilities")
    if weights is not None and len(set(weights)) > 1:
        text = f"parameters.{name} has different probabilities {weights!r}; in a study all values "
        raise ConfigError(f"{text}are equally likely, so remove the probabilities")
    several = distinct(values)
    if len(several) < len(values):
        draft.note(f"{name}: duplicate values were removed")
    return {"values": several}


def _range_distribution(
    draft: ConvertedStudy, name: str, fields: Mapping[str, Any], kind: str
) -> dict[str, Any]:
    ours, exponents, steps = _RANGES[kind]
    low, high = _required_number(name, fields, "min"), _required_number(name, fields, "max")
    if exponents:
        if max(abs(low), abs(high)) > 200:
            text = f"W&B reads bounds of {kind} as exponents of e, and {[low, high]} are too large"
            raise ConfigError(
                f"parameters.{name}: {text}; to write the bounds as values, use log_uniform_values"
            )
        low, high = sorted(float(f"{math.exp(exponents * one):.6g}") for one in (low, high))
        draft.note(f"{name}: its bounds, exponents of e in W&B, were converted to values")
    found: dict[str, Any] = {"min": low, "max": high, "distribution": ours}
    if low == high:
        return {"values": [low]}
    if not steps:
        return found
    return _round_to_steps(draft, name, found, fields.get("q", 1.0))


def _round_to_steps(
    draft: ConvertedStudy, name: str, found: dict[str, Any], q: Any
) -> dict[str, Any]:
    """Round bounds to multiples of q, because studies count steps from the minimum."""
    if not is_number(q) or q <= 0:
        raise ConfigError(f"parameters.{name}.q is {q!r}; allowed: a number above 0")
    low, high = (rounded(round(found[key] / q) * q) for key in ("min", "max"))
    log = found["distribution"] == "log_uniform"
    if log and low <= 0:
        low = q
    if (low, high) != (found["min"], found["max"]):
        draft.note(f"{name}: bounds rounded to multiples of {q!r}")
    if low >= high:
        return {"values": [high]}
    if all(float(number).is_integer() for number in (low, high, q)):
        kind = range_kind(whole=True, log=log)
        return {"min": int(low), "max": int(high), "q": int(q), "distribution": kind}
    return {**found, "min": low, "max": high, "q": q}


def _every_step(draft: ConvertedStudy) -> None:
    """Let a grid try every step of a range, as W&B does, instead of a few evenly spaced values."""
    search = draft.section("search")
    if search.get("method") != "grid" or "options" in search:
        return
    points = dict[str, int]()
    for name, fields in draft.space.items():
        step, kind = fields.get("q"), fields.get("distribution")
        if not step and kind == "int_uniform":
            step = 1
        if "min" not in fields or not step or kind == "log_uniform":
            continue
        steps = round((fields["max"] - fields["min"]) / step) + 1
        points[name] = min(steps, MOST_POINTS)
        if steps > MOST_POINTS:
            draft.note(
                f"{name}: reduced to {MOST_POINTS:,} of its {steps:,} values, evenly spaced"
            )
    if points:
        search["options"] = {"points": points}


def _named_metric(metric: Any) -> dict[str, Any]:
    if not is_dict(metric) or not isinstance(metric.get("name"), str):
        raise ConfigError(f"metric is {metric!r}; allowed: a mapping with name and goal")
    return metric


def _set_metric(draft: ConvertedStudy, metric: Any, given: Mapping[str, Any]) -> None:
    if metric is None:
        return
    metric = _named_metric(metric)
    sweep_metric, goal = metric["name"], metric.get("goal", "minimize")
    if goal not in ("minimize", "maximize"):
        raise ConfigError(f"metric.goal is {goal!r}; allowed: minimize or maximize")
    if "metric" in given:
        name = str(given["metric"])
        best = _goal_of(name) or goal
        if best != goal and "metric.goal" not in given:
            draft.note(
                f"metric: the sweep's goal for {sweep_metric!r} is {goal}, but {name} has goal "
                f"{best}"
            )
            goal = best
    else:
        name = _our_metric(draft, sweep_metric, goal)
    draft.rest["metric"] = {"name": name, "goal": goal}
    _note_metric_keys(draft, metric)


def _note_metric_keys(draft: ConvertedStudy, metric: Mapping[str, Any]) -> None:
    """Note a goal that the sweep leaves to W&B, and a target, which no study has."""
    if "goal" not in metric:
        draft.note("metric: the sweep sets no goal, which means minimize in W&B")
    if "target" in metric:
        _leave_out(draft, "metric.target", metric["target"])


def _goal_of(metric: str) -> str | None:
    if "blocking" in metric:
        return "minimize"
    if metric.startswith("eval/return") and metric in METRICS:
        return "maximize"
    return None


def _our_metric(draft: ConvertedStudy, given: str, goal: str) -> str:
    """Return our name for another system's metric, from the table or the words in the name."""
    entry = ENVIRONMENTS.get(draft.env.get("id", ""))
    optical = entry is not None and entry.source == "optical"
    name = _METRICS_ELSEWHERE.get(given.lower())
    if name is None and metric_fault(given, entry) is None:
        return given
    if name is None:
        name = _by_words(given.lower(), optical)
    if name is None or _goal_of(name) not in (None, goal):
        usual = "eval/return_mean"
        if optical:
            usual = "eval/service_blocking_probability"
        ours = name or usual
        flags = {"metric": ours, "metric.goal": _goal_of(ours) or goal}
        text = f"the metric {given!r} has no counterpart; name one of hpo's metrics"
        raise ConfigError(text, flags=flags)
    draft.note(f"metric: {given!r} becomes {name}, measured in greedy episodes on separate seeds")
    return name


def _by_words(words: str, optical: bool) -> str | None:
    """Return the name of our metric whose words match another system's name."""
    if optical and "blocking" in words and "bitrate" in words:
        return "eval/bitrate_blocking_probability"
    if optical and "blocking" in words:
        return "eval/service_blocking_probability"
    if "rew" in re.split("[/_]", words) or re.search("return|reward|score", words):
        return "eval/return_mean"
    if re.search("length|ep_len", words):
        return "eval/length_mean"
    return None


def _translate_hyperband(draft: ConvertedStudy, early: Any) -> None:
    """Read `hyperband`: rungs at max_iter / eta^i for i up to s, or at min_iter x eta^i."""
    if early is None:
        return
    if not is_dict(early) or early.get("type") != "hyperband":
        raise ConfigError(f"early_terminate is {early!r}; allowed: a mapping with type: hyperband")
    eta = early.get("eta", _HYPERBAND_ETA)
    if not _is_above_1(eta):
        raise ConfigError(f"early_terminate.eta is {eta!r}; allowed: a number above 1")
    section = draft.section("early_terminate")
    section |= {"type": "asha", "eta": float(eta)}
    counts = {key: early[key] for key in ("min_iter", "max_iter") if is_number(early.get(key))}
    if not counts:
        raise ConfigError("early_terminate has neither min_iter nor max_iter")
    if len(counts) > 1:
        draft.leave_out("early_terminate.min_iter", _MAX_ITER_FIRST)
        del counts["min_iter"]
    (kind, iterations), brackets = counts.popitem(), early.get("s")
    if iterations >= _ENV_STEPS_FROM:
        first = iterations
        if kind == "max_iter":
            first = iterations / eta ** (brackets or 1)
        section["min"] = max(1, math.ceil(rounded(first)))
        draft.note("early_terminate: its iterations are read as env steps")
    else:
        power = 2
        if brackets is not None:
            power = brackets
        # rounded up, so that the last rung is not just before the end of the run
        first = rounded(draft.rest.get("env_steps", 1_000_000) / eta**power)
        section["min"] = max(1, math.ceil(first))
        draft.note(
            "early_terminate: W&B counts logged metrics as iterations, which do not map to env "
            f"steps; the first rung is set to env_steps / eta^{power}"
        )
    _note_rungs(draft, early)


def _note_rungs(draft: ConvertedStudy, early: Mapping[str, Any]) -> None:
    draft.note(_AS_ASHA)
    if "strict" in early:
        draft.leave_out("early_terminate.strict", "asha has no such option")
