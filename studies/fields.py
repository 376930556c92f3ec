"""The tables of the study file: every key, its type, default, range and meaning.

The loader checks with these tables, `hpo schema` is made of them, the resolved study lists their
defaults, and a test holds docs/study.md against them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "CONSTRAINT",
    "DEAF_METHODS",
    "DRIVEN_KEYS",
    "EARLY_TERMINATE_TYPES",
    "LOGGERS",
    "METHODS",
    "PARTS",
    "RACING",
    "REQUIRED",
    "SEARCHER_KEYS",
    "SECTIONS",
    "TOP",
    "WARM_START",
    "Field",
    "foreign_keys",
]

FieldType = Literal[
    "word",
    "words",
    "text",
    "count",
    "number",
    "flag",
    "seconds",
    "map",
    "list",
    "points",
    "factors",
]
_TOO_LARGE_TO_SAY = 1e12
REQUIRED: Any = object()
"""The default of what has none."""


@dataclass(frozen=True)
class Field:
    """One key of the file.

    Attributes:
        key: as written.
        type: of its values; a `count` is a whole number and may be written `200M`; `seconds` may
            be written `2h`; `words` is a list of different ones of `words`, `factors` a list of
            numbers; `points` is a count or a mapping of knob to count.
        default: its value when left out, or REQUIRED.
        low: smallest legal number.
        high: largest legal number.
        low_open: `low` itself is not legal.
        words: the legal words of a `word`; of a number, words legal beside it.
        off: whether `null` or `off` is legal.
        meaning: one line.
        attribute: the field of the dataclass it fills, if called otherwise.
    """

    key: str
    type: FieldType
    default: Any
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    words: tuple[str, ...] = ()
    off: bool = False
    attribute: str = ""

    @property
    def target(self) -> str:
        """The field of the dataclass that it fills."""
        return self.attribute or self.key

    @property
    def has_default(self) -> bool:
        """Whether it may be left out."""
        return self.default is not REQUIRED

    def allowed(self) -> str:
        """Return in words what is legal."""
        nouns = {
            "word": "",
            "words": f"a list of some of {', '.join(self.words)}",
            "text": "a text",
            "count": "a whole number",
            "number": "a number",
            "flag": "true or false",
            "seconds": "a time such as 90s, 30m or 2h",
            "map": "a mapping",
            "list": "a list",
            "factors": "a list of numbers",
            "points": "a whole number, or a mapping of knob to whole number,",
        }
        noun = f"{nouns[self.type]} {_range(self.low, self.high, self.low_open)}".strip()
        parts = [noun, "" if self.type == "words" else ", ".join(self.words)]
        parts.append("null" if self.off else "")
        return " or ".join(part for part in parts if part)


def _range(low: float, high: float, low_open: bool) -> str:
    """Format a range in words; whole bounds are written out in full."""
    first, last = (f"{x:.0f}" if x % 1 == 0 else f"{x:g}" for x in (low, high))
    high = math.inf if high >= _TOO_LARGE_TO_SAY else high
    if low == -math.inf and high == math.inf:
        return ""
    if low == -math.inf:
        return f"of at most {last}"
    start = f"above {first}" if low_open else f"of at least {first}"
    if high == math.inf:
        return start
    return f"{start} and at most {last}" if low_open else f"from {first} to {last}"


def _count(key: str, default: Any, meaning: str, low: float = 0, **rest: Any) -> Field:
    limits: dict[str, Any] = {"low": low, "high": 1e15, **rest}
    return Field(key, "count", default, meaning, **limits)


def _word(key: str, default: Any, words: tuple[str, ...], meaning: str, **rest: Any) -> Field:
    return Field(key, "word", default, meaning, words=words, **rest)


def _flag(key: str, default: bool, meaning: str) -> Field:
    return Field(key, "flag", default, meaning)


METHODS: Mapping[str, tuple[Field, ...]] = {
    "random": (),
    "grid": (
        Field("points", "points", 5, "values taken of each continuous knob", low=1, high=1000),
    ),
    "sobol": (),
    "tpe": (
        _count("n_startup_trials", 10, "trials drawn at random before the model", high=100_000),
        _count("n_ei_candidates", 24, "candidates compared for one proposal", 1, high=10_000),
        _flag("multivariate", True, "model parameters jointly"),
        _flag("group", True, "one joint model for each set of active parameters"),
        _flag("constant_liar", True, "running trials count as bad, so proposals spread out"),
    ),
    "gp": (
        _count("n_startup_trials", 10, "trials drawn at random before the model", high=100_000),
        _flag("deterministic_objective", False, "values have no noise"),
    ),
    "cmaes": (
        _count(
            "popsize",
            0,
            "points of a generation; 0: 4 + 3 ln(knobs), more with many lanes",
            high=10_000,
        ),
        Field(
            "sigma",
            "number",
            1 / 6,
            "first deviation, as a share of the ranges",
            low=0,
            low_open=True,
            high=1,
        ),
        _flag("lr_adapt", False, "adapt the learning rate, for noisy or multimodal objectives"),
    ),
    "nsga2": (
        _count("population_size", 50, "trials of a generation", 2, high=10_000),
        Field("crossover_prob", "number", 0.9, "chance that two parents are mixed", low=0, high=1),
        Field(
            "swapping_prob",
            "number",
            0.5,
            "chance that a knob comes from the second parent",
            low=0,
            high=1,
        ),
    ),
    "smac": (
        _count("n_startup_trials", 10, "trials drawn at random before the model", high=100_000),
        _count("n_trees", 10, "trees of the random forest", 1, high=1_000),
    ),
}
"""Search method -> its `search.options`."""

DEAF_METHODS = ("random", "grid", "sobol")
"""Those whose proposals depend on no result."""

DRIVEN_KEYS = ("scheduler", "searcher", "scheduler_options", "searcher_options")
"""Keys of `search` that only the driver ray_tune has."""
SEARCHER_KEYS = ("method", "random_share", "options", "warm_start", "ahead")
"""Keys of `search` that it does not have."""

EARLY_TERMINATE_TYPES = ("asha", "hyperband", "median", "plateau", "pbt", "pb2")

_EVOLVING_KEYS = ("every", "quantile", "resample", "perturb")
_STOPPING_KEYS = ("min", "eta", "audit")
_PLATEAU_KEYS = ("patience", "tolerance")


def foreign_keys(rule: str) -> tuple[str, ...]:
    """Return the keys of `early_terminate` that a rule does not have.

    >>> foreign_keys("plateau")
    ('every', 'quantile', 'resample', 'perturb')
    """
    if rule in ("pbt", "pb2"):
        return _STOPPING_KEYS + _PLATEAU_KEYS
    return _EVOLVING_KEYS if rule == "plateau" else _EVOLVING_KEYS + _PLATEAU_KEYS


_FOLLOWING = (
    _count("top_k", 10, "of the best trials are followed; all, if there are no more", 0,
           high=10_000),
    _count("every", 1, "rows of curves whose mean is one point", 1, high=1e6),
)  # fmt: skip
LOGGERS: Mapping[str, tuple[Field, ...]] = {
    "console": (),
    "csv": (),
    "tensorboard": _FOLLOWING,
    "wandb": (
        *_FOLLOWING,
        _word(
            "mode", "online", ("online", "offline"), "offline needs neither network nor account"
        ),
        Field("project", "text", "hpo", "of the runs"),
        Field("entity", "text", None, "user or team; null: the account's own", off=True),
        Field("name", "text", None, "of the study's run; null: the study's", off=True),
        Field("group", "text", None, "of all runs; null: their name", off=True),
        _flag("policy", True, "log the winner's policy as an artifact"),
    ),
}
"""Logger type -> its options."""

PARTS = ("parameters", "optimiser", "losses", "gradients", "advantages", "trajectories")
_AGGREGATES = ("mean", "median", "min", "max", "iqm")

CONSTRAINT: tuple[Field, ...] = (
    Field("metric", "text", REQUIRED, "one of the metrics in docs/study.md, or a cost"),
    Field("min", "number", None, "the least that is allowed", off=True),
    Field("max", "number", None, "the most that is allowed", off=True),
    _word("aggregate", "mean", _AGGREGATES, "over the replicates of a trial"),
)
"""An entry of `constraints`; one of `objectives` is like the section `metric`."""

RACING: tuple[Field, ...] = (
    _count("start", 3, "seeds before the first look", 2, high=1000),
    Field("confidence", "number", 0.95, "that a trial dropped is worse, all looks together",
          low=0.5, high=0.9999),
)  # fmt: skip
"""The mapping `seeds.racing`."""

WARM_START: tuple[Field, ...] = (
    Field("study", "text", REQUIRED, "its folder, or its trials.parquet; relative to this file"),
)
"""The mapping `search.warm_start`."""

SECTIONS: Mapping[str, tuple[Field, ...]] = {
    "metric": (
        Field("name", "text", "eval/return_mean", "one of the metrics in docs/study.md"),
        _word("goal", "maximize", ("maximize", "minimize"), "which way is better"),
        _word("aggregate", "mean", _AGGREGATES, "over the replicates of a trial"),
    ),
    "evaluation": (
        _count("every", "rungs", "env steps between evaluations, or at rungs and the end", 1,
               words=("rungs",)),
        _count("episodes", 20, "episodes of one evaluation", 1, high=100_000),
        _count("steps", None, "env steps of one evaluation instead, in continuous operation", 1,
               off=True),
        _flag("greedy", True, "take the mode of the policy, not a sample"),
    ),
    "search": (
        _word("method", "tpe", tuple(METHODS), "who proposes"),
        Field("random_share", "number", 0.2, "share of proposals drawn at random", low=0, high=1),
        Field("options", "map", {}, "of the method"),
        Field("warm_start", "map", None, "an earlier study informs the search; null: none",
              off=True),
        _word("ahead", "auto", ("auto", "always", "never"),
              "draw proposals while lanes run: no time is lost, but they know less"),
        _word("driver", "lanes", ("lanes", "ray_tune"), "who decides: hpo itself, or Ray Tune"),
        Field("scheduler", "text", "asha", "ray_tune: asha, pbt, or the dotted name of a class"),
        Field("searcher", "text", "random",
              "ray_tune: random, optuna, or the dotted name of a class"),
        Field("scheduler_options", "map", {}, "ray_tune: keyword arguments of that class"),
        Field("searcher_options", "map", {}, "ray_tune: keyword arguments of that class"),
    ),
    "early_terminate": (
        _word("type", REQUIRED, EARLY_TERMINATE_TYPES, "the rule"),
        _count("min", None, "env steps of the first rung; left out: env_steps / eta^2", 1),
        Field("eta", "number", 4.0, "rungs are min x eta^i (plateau: min x i); one in eta goes on",
              low=1.5, high=100.0),
        Field("audit", "number", 0.0, "share of stopped trials that run on", low=0, high=1),
        _count("patience", 4, "plateau: rungs without an improvement that counts", 1, high=1000),
        Field("tolerance", "number", 0.02, "plateau: share of a trial's gain that counts as one",
              low=0, high=0.99),
        _count("every", None, "pbt, pb2: env steps between copies; left out: env_steps / 16", 1),
        Field("quantile", "number", 0.25, "pbt, pb2: share of the trials that copies, and share "
              "that is copied", low=0, low_open=True, high=0.5),
        Field("resample", "number", 0.25, "pbt, pb2: chance that a copied knob is drawn anew",
              low=0, high=1),
        Field("perturb", "factors", (0.8, 1.25), "pbt, pb2: what a copied knob is else moved by",
              low=0, low_open=True, high=100),
    ),
    "seeds": (
        _count("per_config", 1, "replicates of a trial", 1, high=1000),
        _count("tolerate", 0, "replicates that may diverge before the trial counts as diverged"),
        Field("racing", "map", None, "stop spending seeds on clear losers; null: no", off=True),
    ),
    "confirm": (
        _count("top_k", 5, "trials run again", 1, high=1000),
        _count("choose", 8, "fresh seeds that choose the winner", 1, high=1000),
        _count("report", 16, "further seeds that give the number reported", 0, high=1000),
    ),
    "population": (
        _count("lanes", None,
               "lanes of a program, or auto; rounded up to a multiple of the devices", 1,
               high=1_000_000, words=("auto",)),
        _word("device", "auto", ("auto", "cpu", "gpu"), "where lanes run"),
        _flag("deterministic", False, "the same bits on every run of a GPU, at some cost"),
        _count("workers", None, "processes that step gym: environments, or auto; 0: none", 0,
               high=1024, words=("auto",)),
        Field("step_timeout", "seconds", None, "that a call of a gym: environment may take in a "
              "worker until it counts as hung, or auto: 5m; 0: any", low=0, high=1e9,
              words=("auto",)),
    ),
    "budget": (
        _count("trials", 64, "configurations proposed", 1, high=1e9, off=True),
        _count("env_steps", None, "training env steps of the whole study", 1, off=True),
        Field("wall", "seconds", None, "running time over all starts", low=0, low_open=True,
              high=1e9, off=True, attribute="wall_seconds"),
        _count("max_failures", 20, "errors after which the study stops", high=1e9),
    ),
    "executor": (
        _word("type", "local", ("local", "ray"), "this process, or workers of a Ray cluster"),
        _count("workers", 1, "ray: processes over which lanes are spread", 1, high=1024),
        Field("address", "text", None, "ray: of the cluster, auto or host:port; null: one on this "
              "machine alone", off=True),
        _count("cpus", None, "ray: CPUs of each worker; null: its share of the cluster's", 1,
               high=4096, off=True),
    ),
    "checkpoint": (
        _count("keep_best", 3, "policies kept, of the best trials at their end", 0, high=1000),
        _flag("best_evaluation", False, "also keep the policy with the best evaluation of all"),
        _flag("each_seed", False, "also keep the policies of all seeds of the best trials"),
        _count("policies_every", None, "env steps between two policies kept of each seed of the "
               "best trials; null: none", 1, high=1e13, off=True),
        _flag("best_of_each", False, "also keep each trial's policy at its best evaluation"),
        Field("parts", "words", (), "what is written beside each policy", words=PARTS),
        Field("commit_every", "seconds", 10.0, "between two commits; those after a start come "
              "sooner. 0: at every boundary", low=0, high=1e9, attribute="commit_seconds"),
    ),
    "init": (
        Field("from", "text", REQUIRED, "folder of a saved policy, relative to this file's",
              attribute="folder"),
        _word("keep", "all", ("all", "critic", "policy"), "of its parameters; the rest is fresh"),
        _word("optimiser", "fresh", ("fresh", "restored"),
              "restored needs keep: all and a policy with the part optimiser"),
    ),
}  # fmt: skip

TOP: tuple[Field, ...] = (
    Field("name", "text", None, "names the folder of results; left out: the file's name"),
    _count("seed", 0, "every random number of the study follows from it", high=2**31 - 1),
    Field("imports", "list", (), "Python files that register environments or networks"),
    Field("env", "map", REQUIRED, "an id, or {id: ..., key: value}"),
    _count("env_steps", REQUIRED, "training env steps of one full run", 1, high=1e13),
    _count(
        "schedule_env_steps",
        None,
        "env steps that schedules and chunks are laid out over; left out: env_steps",
        1,
        high=1e13,
        off=True,
    ),
    Field("fixed", "map", {}, "knob -> value, for knobs that are not searched"),
    Field("space", "map", {}, "knob -> distribution, or {file: ..., override: {...}}"),
    Field("forbid", "list", (), "combinations that are never run"),
    Field("enqueue", "list", (), "configurations tried first"),
    Field("metric", "map", {}, "what is optimised"),
    Field("objectives", "list", (), "several metrics instead, each {name, goal, aggregate}"),
    Field("constraints", "list", (), "bounds on metrics, each {metric, min, max, aggregate}"),
    Field("evaluation", "map", {}, "when and how policies are evaluated"),
    Field("eval_env", "map", {}, "keys of env that differ in evaluation"),
    Field(
        "baselines",
        "list",
        (),
        "heuristics beside the trials, on the same evaluation streams; "
        "left out: ksp_ff, ff_ksp in optical networks",
    ),
    Field("search", "map", {}, "who proposes"),
    Field("early_terminate", "map", None, "who is stopped early; null: nobody", off=True),
    Field("seeds", "map", {}, "replicates"),
    Field("confirm", "map", None, "run the best again on fresh seeds; null: no", off=True),
    Field("population", "map", {}, "lanes and device"),
    Field("budget", "map", {}, "bounds of the whole study"),
    Field("executor", "map", {}, "where populations live"),
    Field("checkpoint", "map", {}, "which policies are kept"),
    Field("init", "map", None, "a saved policy that lanes start from; null: fresh", off=True),
    _count(
        "log_every",
        None,
        "env steps between two rows of curves; left out: those of a chunk",
        1,
        high=1e13,
        off=True,
    ),
    Field("loggers", "list", (), "sinks beside the store"),
)
