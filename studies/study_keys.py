"""The tables of the study file: every key, its type, default, range and meaning.

The loader checks with these tables, `hpo schema` is made of them, the resolved study lists their
defaults, and a test holds docs/study.md against them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..environments.table import EnvEntry
from ..errors import suggestion
from ..store.aggregate_environments import OVER
from .field import REQUIRED, Field, count, flag, word
from .search_methods import METHODS
from .stopping_rules import rule_fields

DRIVEN_KEYS = ("scheduler", "searcher", "scheduler_options", "searcher_options")
"""Keys of `search` that only the driver ray_tune has."""
SEARCHER_KEYS = ("method", "random_share", "options", "warm_start", "ahead")
"""Keys of `search` that it does not have."""

_FOLLOWING = (
    count("top_k", 10, "of the best trials are followed; all, if there are no more", 0,
          high=10_000),
    count("every", 1, "rows of curves whose mean is one point", 1, high=1e6),
)  # fmt: skip
LOGGERS: Mapping[str, tuple[Field, ...]] = {
    "console": (),
    "csv": (),
    "tensorboard": _FOLLOWING,
    "wandb": (
        *_FOLLOWING,
        word("mode", "online", ("online", "offline"), "offline needs neither network nor account"),
        Field("project", "text", "hpo", "of the runs"),
        Field("entity", "text", None, "user or team; null: the account's own", off=True),
        Field("name", "text", None, "of the study's run; null: the study's", off=True),
        Field("group", "text", None, "of all runs; null: their name", off=True),
        flag("policy", True, "log the winner's policy as an artifact"),
    ),
}
"""Logger type -> its options."""

PARTS = ("parameters", "optimiser", "losses", "gradients", "advantages", "trajectories")
_AGGREGATES = ("mean", "median", "min", "max", "iqm")

CONSTRAINT: tuple[Field, ...] = (
    Field("metric", "text", REQUIRED, "a metric of docs/reference/study-file.md, or a cost"),
    Field("min", "number", None, "the least that is allowed", off=True),
    Field("max", "number", None, "the most that is allowed", off=True),
    word("aggregate", "mean", _AGGREGATES, "over the replicates of a trial"),
)
"""An entry of `constraints`; one of `objectives` is like the section `metric`."""

RACING: tuple[Field, ...] = (
    count("start", 3, "seeds before the first look", 2, high=1000),
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
        Field("name", "text", "eval/return_mean", "a metric of docs/reference/study-file.md"),
        word("goal", "maximize", ("maximize", "minimize"), "which way is better"),
        word("aggregate", "mean", _AGGREGATES, "over the replicates of a trial"),
    ),
    "evaluation": (
        count("every", "rungs", "env steps between evaluations, or at rungs and the end", 1,
              words=("rungs",)),
        count("episodes", 20, "episodes of one evaluation", 1, high=100_000),
        count("steps", None, "env steps of one evaluation instead, in continuous operation", 1,
              off=True),
        flag("greedy", True, "take the mode of the policy, not a sample"),
    ),
    "search": (
        word("method", "tpe", tuple(METHODS), "who proposes"),
        Field("random_share", "number", 0.2, "share of proposals drawn at random", low=0, high=1),
        Field("options", "map", {}, "of the method"),
        Field("warm_start", "map", None, "an earlier study informs the search; null: none",
              off=True),
        word("ahead", "auto", ("auto", "always", "never"),
             "draw proposals while lanes run: no time is lost, but they know less"),
        word("driver", "lanes", ("lanes", "ray_tune"), "who decides: hpo itself, or Ray Tune"),
        Field("scheduler", "text", "asha", "ray_tune: asha, pbt, or the dotted name of a class"),
        Field("searcher", "text", "random",
              "ray_tune: random, optuna, or the dotted name of a class"),
        Field("scheduler_options", "map", {}, "ray_tune: keyword arguments of that class"),
        Field("searcher_options", "map", {}, "ray_tune: keyword arguments of that class"),
    ),
    "early_terminate": rule_fields(),
    "seeds": (
        count("per_config", 1, "replicates of a trial", 1, high=1000),
        count("tolerate", 0, "replicates that may diverge before the trial counts as diverged"),
        Field("racing", "map", None, "stop spending seeds on clear losers; null: no", off=True),
    ),
    "confirm": (
        count("top_k", 5, "trials run again; 0: none, so that there is no winner", 0, high=1000),
        count("choose", 8, "selection seeds: new seeds that choose the winner", 1, high=1000),
        count("report", 16, "test seeds: further seeds, which choose nothing", 0, high=1000),
        flag("default", True, "the default configuration runs on the test seeds, too"),
        Field("also", "map", {}, "trial: seeds; trials that also run on so many test seeds, "
              "beyond the budget; -1: the default"),
    ),
    "population": (
        count("lanes", None,
              "lanes of a program, or auto; rounded up to a multiple of the devices", 1,
              high=1_000_000, words=("auto",)),
        word("device", "auto", ("auto", "cpu", "gpu"), "where lanes run"),
        flag("deterministic", False, "the same bits on every run of a GPU, at some cost"),
        count("workers", None, "processes that step gym: environments, or auto; 0: none", 0,
              high=1024, words=("auto",)),
        Field("step_timeout", "seconds", None, "that a call of a gym: environment may take in a "
              "worker until it counts as hung, or auto: 5m; 0: any", low=0, high=1e9,
              words=("auto",)),
    ),
    "budget": (
        count("trials", 64, "configurations proposed", 1, high=1e9, off=True),
        count("env_steps", None, "training env steps of the whole study", 1, off=True),
        Field("wall", "seconds", None, "running time over all starts", low=0, low_open=True,
              high=1e9, off=True, attribute="wall_seconds"),
        count("max_failures", 20, "errors after which the study stops", high=1e9),
    ),
    "executor": (
        word("type", "local", ("local", "ray"), "this process, or workers of a Ray cluster"),
        count("workers", 1, "ray: processes over which lanes are spread", 1, high=1024),
        Field("address", "text", None, "ray: of the cluster, auto or host:port; null: one on this "
              "machine alone", off=True),
        count("cpus", None, "ray: CPUs of each worker; null: its share of the cluster's", 1,
              high=4096, off=True),
    ),
    "checkpoint": (
        count("keep_best", 3, "policies kept, of the best trials at their end", 0, high=1000),
        flag("best_evaluation", False, "also keep the policy with the best evaluation of all"),
        flag("each_seed", False, "also keep the policies of all seeds of the best trials"),
        count("policies_every", None, "env steps between two policies kept of each seed of the "
              "best trials; null: none", 1, high=1e13, off=True),
        flag("best_of_each", False, "also keep each trial's policy at its best evaluation"),
        Field("parts", "words", (), "what is written beside each policy", words=PARTS),
        Field("commit_every", "seconds", 10.0, "between two commits; those after a start come "
              "sooner. 0: at every boundary", low=0, high=1e9, attribute="commit_seconds"),
    ),
    "init": (
        Field("from", "text", REQUIRED, "folder of a saved policy, relative to this file's",
              attribute="folder"),
        word("keep", "all", ("all", "critic", "policy"), "of its parameters; the rest is fresh"),
        word("optimiser", "fresh", ("fresh", "restored"),
             "restored needs keep: all and a policy with the part optimiser"),
    ),
}  # fmt: skip

TOP: tuple[Field, ...] = (
    Field("name", "text", None, "names the folder of results; left out: the file's name"),
    count("seed", 0, "every random number of the study follows from it", high=2**31 - 1),
    Field("imports", "list", (), "Python files that register environments, networks, samplers"),
    Field("env", "map", REQUIRED, "an id, or {id: ..., key: value}; or a list of several"),
    word(
        "over_environments",
        "mean",
        OVER,
        "of several environments: the value of a seed, from its scores on each",
    ),
    count("env_steps", REQUIRED, "training env steps of one full run", 1, high=1e13),
    count(
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
    Field("confirm", "map", None, "run the best again on new seeds; null: no", off=True),
    Field("population", "map", {}, "lanes and device"),
    Field("budget", "map", {}, "bounds of the whole study"),
    Field("executor", "map", {}, "where populations live"),
    Field("checkpoint", "map", {}, "which policies are kept"),
    Field("init", "map", None, "a saved policy that lanes start from; null: fresh", off=True),
    count(
        "log_every",
        None,
        "env steps between two rows of curves; left out: those of a chunk",
        1,
        high=1e13,
        off=True,
    ),
    Field("loggers", "list", (), "sinks beside the store"),
)


_OWN = re.compile(r"eval/[A-Za-z0-9_]{1,100}")
_SHARE = re.compile(r"eval/(path|hops)_[0-9]{1,3}_share")  # where `histograms` is on
_STATISTICS = {
    "mean": "mean",
    "median": "median",
    "min": "smallest",
    "max": "largest",
    "std": "standard deviation",
}
_QUANTITIES = {
    "return": "undiscounted, unscaled returns",
    "length": "lengths in env steps",
}

METRICS: Mapping[str, str] = {
    f"eval/{quantity}_{statistic}": f"{word} of the {meaning} of an evaluation's episodes"
    for quantity, meaning in _QUANTITIES.items()
    for statistic, word in _STATISTICS.items()
}
"""Metrics that every environment has: name -> meaning."""

COSTS: Mapping[str, str] = {
    "env_steps": "training env steps of a trial, all replicates; an objective after the first",
    "seconds": "its share of the running time of chunks; not reproducible; likewise",
}
"""What a trial cost, as objectives or constraints: name -> meaning."""


_RETURN = frozenset({
    "reward", "rewards", "return", "returns", "score", "episode_return", "mean_reward",
    "mean_return", "ep_rew_mean", "rollout/ep_rew_mean", "eval/mean_reward", "episode_reward_mean",
    "episodic_return", "charts/episodic_return",
})  # fmt: skip
"""What other systems call the mean of episodes' sums of rewards."""


def metric_fault(name: str, env: EnvEntry | None) -> str | None:
    """Return why a metric cannot be optimised, or None.

    Environments of other libraries and of user code bring metrics of their own, as `eval/<name>`;
    those of the table say which.

    >>> metric_fault("eval/return_maen", None)
    >>> metric_fault("return_mean", None)
    "unknown metric 'return_mean'; did you mean 'eval/return_mean'? Known: eval/return_mean, ..."
    >>> metric_fault("reward", None)
    "unknown metric 'reward'; did you mean 'eval/return_mean'? Known: eval/return_mean, ..."
    """
    if name in METRICS:
        return None
    if env is None:
        if _OWN.fullmatch(name):
            return None
        known = "eval/return_mean, ..."
        return f"unknown metric {name!r};{_meant(name, METRICS)} Known: {known}"
    names = [*METRICS, *(f"eval/{own}" for own in env.metrics)]
    if name in names or (env.source == "optical" and _SHARE.fullmatch(name)):
        return None
    return f"unknown metric {name!r};{_meant(name, names)} Known: {', '.join(names)}"


def _meant(name: str, known: Iterable[str]) -> str:
    return suggestion("eval/return_mean" if name.lower() in _RETURN else name, known)
