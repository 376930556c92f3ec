"""`hpo knobs`, `hpo envs`, `hpo schema`: names for study files."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping

from ...environments.registry import entry
from ...environments.table import ENVIRONMENTS
from ...environments.via_gymnasium import is_gymnasium
from ...errors import ConfigError
from ...importers.tables import names_of
from ...knobs import KNOBS
from ...studies.schema import schema
from ..escape_control import echo
from ..json_output import print_json
from ..listings import (
    env_text,
    envs_data,
    envs_listing,
    knob_text,
    knobs_data,
    knobs_listing,
)
from ..terminal.console import console, in_columns, print_lines

_USUAL = (
    "learning_rate", "lr_schedule", "gamma", "gae_lambda", "clip_eps", "ent_coef", "vf_coef",
    "max_grad_norm", "num_envs", "rollout_length", "num_minibatches", "update_epochs", "network",
    "hidden_sizes", "activation", "optimiser", "normalise_observations", "normalise_rewards",
    "normalise_advantages", "value_clip_eps",
)  # fmt: skip


def do_knobs(args: Namespace) -> int:
    """List hyperparameters: the usual ones, all, or those with a word in a name or meaning."""
    texts = {name: " ".join((name, knob.meaning, *names_of(name))) for name, knob in KNOBS.items()}
    found = [KNOBS[name] for name in _with("hyperparameter", texts, args.word)]
    if args.json:
        print_json(knobs_data(found))
    elif args.word in KNOBS:
        echo(in_columns(knob_text(KNOBS[args.word]), sys.stdout, 10))
    elif args.word is None and not args.all:
        print_lines(console(sys.stdout), knobs_listing([KNOBS[name] for name in _USUAL]))
        echo(f"{len(KNOBS) - len(_USUAL)} more: hpo knobs --all      one: hpo knobs gamma")
    else:
        print_lines(console(sys.stdout), knobs_listing(found))
    return 0


def do_envs(args: Namespace) -> int:
    """List environments, or those with a word in id or meaning; an exact id shows all about it."""
    texts = {id_: f"{id_} {env.source} {env.meaning}" for id_, env in ENVIRONMENTS.items()}
    if args.word is not None and is_gymnasium(args.word):
        found = [entry(args.word)]
    else:
        found = [ENVIRONMENTS[id_] for id_ in _with("environment", texts, args.word)]
    exact = next((env for env in found if env.id == args.word), None)
    if args.json:
        print_json(envs_data(found))
    elif exact is not None:
        echo(in_columns(env_text(exact), sys.stdout, 4))
    else:
        print_lines(console(sys.stdout), envs_listing(found))
        if args.word is None:
            echo("and every Gymnasium environment as gym:<id>      one: hpo envs CartPole-v1")
    return 0


def _with(what: str, texts: Mapping[str, str], word: str | None) -> list[str]:
    """Return the names whose text contains a word in any case; all names without a word."""
    found = [name for name, text in texts.items() if (word or "").lower() in text.lower()]
    if not found:
        raise ConfigError(
            f"no {what} has {word!r} in its name or meaning; leave the word out to list all"
        )
    return found


def do_schema(args: Namespace) -> int:
    print_json(schema())
    return 0
