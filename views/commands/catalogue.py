"""`hpo knobs`, `hpo envs` and `hpo schema`: the names that study files can use."""

from __future__ import annotations

import math
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...environments.hosted import is_hosted
from ...environments.registry import entry
from ...environments.table import ENVIRONMENTS, EnvEntry
from ...errors import ConfigError
from ...foreign_names.tables import names_of
from ...knobs import KNOBS, Knob, allowed
from ...store.codec import finite_json
from ...store.study_folder import StudySummary
from ...studies.algorithm_section import is_library, loaded_algorithm
from ...studies.schema import schema
from ..formatting import Listing, duration, number, param
from ..output import echo, finite_or_none, print_json
from ..terminal.console import console, in_columns, print_listing

_USUAL = (
    "learning_rate", "lr_schedule", "gamma", "gae_lambda", "clip_eps", "ent_coef", "vf_coef",
    "max_grad_norm", "num_envs", "rollout_length", "num_minibatches", "update_epochs", "network",
    "hidden_sizes", "activation", "optimiser", "normalise_observations", "normalise_rewards",
    "normalise_advantages", "value_clip_eps",
)  # fmt: skip


def studies_listing(studies: Sequence[StudySummary], now: float | None = None) -> Listing:
    if now is None:
        now = time.time()
    rows: list[list[str]] = []
    for one in studies:
        changed = ""
        if one.updated_at is not None:
            changed = f"{duration(max(0.0, now - one.updated_at))} ago"
        ended = f"{one.done} of {one.trials}"
        rows.append([one.name, one.state, ended, number(one.best), one.metric, changed])
    header = ("study", "state", "ended", "best", "metric", "changed")
    return Listing(header, rows, (False, False, True, True, False, True))


def knobs_listing(knobs: Iterable[Knob] = tuple(KNOBS.values())) -> Listing:
    rows = [
        [knob.name, _default_text(knob.default), _range_text(knob), knob.meaning] for knob in knobs
    ]
    return Listing(("hyperparameter", "default", "range", "meaning"), rows, [False] * 4)


def knob_text(knob: Knob) -> str:
    search, varies = "not part of a study by default", "each value needs a separate program"
    if knob.search is not None:
        search = ", ".join(f"{key}: {param(value)}" for key, value in knob.search.items())
    if knob.traced:
        varies = "per lane"
    lines = [
        ("meaning", knob.meaning),
        ("default", _default_text(knob.default)),
        ("allowed", allowed(knob)),
        ("search", search),
        ("varies", varies),
        ("elsewhere", ", ".join(names_of(knob.name))),
    ]
    return "\n".join([knob.name, *(f"  {what:<10}{text}" for what, text in lines if text)])


def knobs_data(knobs: Iterable[Knob] = tuple(KNOBS.values())) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for knob in knobs:
        ends = {"low": finite_or_none(knob.low), "high": finite_or_none(knob.high)}
        more = {"allowed": allowed(knob), "aliases": list(names_of(knob.name))}
        found.append(finite_json({**asdict(knob), **ends, **more}))
    return found


def envs_listing(envs: Iterable[EnvEntry] = tuple(ENVIRONMENTS.values())) -> Listing:
    rows = [[env.id, env.source, env.actions, env.meaning] for env in envs]
    return Listing(("environment", "source", "actions", "meaning"), rows, [False] * 4)


def env_text(env: EnvEntry) -> str:
    lines = [
        ("meaning", env.meaning),
        ("source", env.source),
        ("actions", env.actions),
        *((f"env.{name}", number(value)) for name, value in env.params.items()),
        *((f"env.{name}", key.meaning) for name, key in env.keys.items()),
        *((f"eval/{name}", meaning) for name, meaning in env.metrics.items()),
    ]
    width = max(len(what) for what, _ in lines) + 2
    return "\n".join([env.id, *(f"  {what:<{width}}{text}" for what, text in lines if text)])


def envs_data(envs: Iterable[EnvEntry] = tuple(ENVIRONMENTS.values())) -> list[dict[str, Any]]:
    return [finite_json(asdict(env)) for env in envs]


def _default_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return param(value)


def _range_text(knob: Knob) -> str:
    """Describe a hyperparameter's allowed values in a few characters.

    >>> [_range_text(KNOBS[name]) for name in ("gamma", "learning_rate", "num_envs")]
    ['0 to 1', '> 0', '1 to 4096']
    """
    words = {"choice": "a name", "bool": "true, false", "widths": "a list"}
    if knob.type in words:
        return words[knob.type]
    if knob.low == -math.inf and knob.high == math.inf:
        return "any"
    if knob.low == -math.inf:
        return f"<= {knob.high:g}"
    if knob.high == math.inf and knob.low_open:
        return f"> {knob.low:g}"
    if knob.high == math.inf:
        return f">= {knob.low:g}"
    return f"{knob.low:g} to {knob.high:g}"


def do_knobs(args: Namespace) -> int:
    word = args.word or ""
    if ".py:" in word or is_library(word):
        found = [*loaded_algorithm(str(args.word)).knobs.values()]
    else:
        texts = {
            name: " ".join((name, knob.meaning, *names_of(name))) for name, knob in KNOBS.items()
        }
        found = [
            KNOBS[n] for n in _names_with("hyperparameter", texts, args.word, "hpo knobs --all")
        ]
    if args.json:
        print_json(knobs_data(found))
    elif args.word in KNOBS:
        echo(in_columns(knob_text(KNOBS[args.word]), sys.stdout, 10))
    elif args.word is None and not args.all:
        print_listing(console(sys.stdout), knobs_listing([KNOBS[name] for name in _USUAL]))
        echo(
            f"{len(KNOBS) - len(_USUAL)} more: hpo knobs --all      "
            "details of one: hpo knobs gamma"
        )
    else:
        print_listing(console(sys.stdout), knobs_listing(found))
    return 0


def do_envs(args: Namespace) -> int:
    texts = {id_: f"{id_} {env.source} {env.meaning}" for id_, env in ENVIRONMENTS.items()}
    if args.word is not None and is_hosted(args.word):
        found = [entry(args.word)]
    else:
        known = _names_with("environment", texts, args.word, "hpo envs; for Gymnasium: gym:<id>")
        found = [ENVIRONMENTS[id_] for id_ in known]
    exact = next((env for env in found if env.id == args.word), None)
    if args.json:
        print_json(envs_data(found))
    elif exact is not None:
        echo(in_columns(env_text(exact), sys.stdout, 4))
    else:
        print_listing(console(sys.stdout), envs_listing(found))
        if args.word is None:
            echo("and every Gymnasium environment as gym:<id>      one: hpo envs CartPole-v1")
    return 0


def _names_with(what: str, texts: Mapping[str, str], word: str | None, command: str) -> list[str]:
    found = [name for name, text in texts.items() if (word or "").lower() in text.lower()]
    if not found:
        raise ConfigError(f"no {what} has {word!r} in its name or meaning; to list all: {command}")
    return found


def do_schema(args: Namespace) -> int:
    if args.algorithm is None:
        print_json(schema())
    else:
        print_json(schema(loaded_algorithm(args.algorithm)))
    return 0
