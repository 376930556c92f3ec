"""`hpo knobs`, `hpo envs`, `hpo schema`: what a study file can name."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping

from ...elsewhere import names_of
from ...environments import ENVIRONMENTS, entry
from ...errors import ConfigError
from ...knobs import KNOBS
from ...studies.schema import schema
from ...via_gymnasium import is_gymnasium
from ..documents import print_json
from ..listings import envs_data, envs_listing, knobs_data, knobs_listing
from ..terminal.console import console, print_listing
from ..visible import echo

__all__ = ["do_envs", "do_knobs", "do_schema"]


def do_knobs(args: Namespace) -> int:
    """List the knobs, or those with a word in their names, here and elsewhere, or meaning.

    Raises:
        ConfigError: no knob matches.
    """
    texts = {name: " ".join((name, knob.meaning, *names_of(name))) for name, knob in KNOBS.items()}
    found = [KNOBS[name] for name in _with("knob", texts, args.word)]
    if args.json:
        print_json(knobs_data(found))
    else:
        print_listing(console(sys.stdout), knobs_listing(found))
    return 0


def do_envs(args: Namespace) -> int:
    """List the environments, or those with a word in their id or meaning.

    Raises:
        ConfigError: none matches; an id of Gymnasium is looked up in its registry.
    """
    texts = {id_: f"{id_} {env.source} {env.meaning}" for id_, env in ENVIRONMENTS.items()}
    if args.word is not None and is_gymnasium(args.word):
        found = [entry(args.word)]
    else:
        found = [ENVIRONMENTS[id_] for id_ in _with("environment", texts, args.word)]
    if args.json:
        print_json(envs_data(found))
    else:
        print_listing(console(sys.stdout), envs_listing(found))
        echo("and every environment of Gymnasium as gym:<id>, see docs/environments.md")
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
    """Print the JSON Schema of the study file."""
    print_json(schema())
    return 0
