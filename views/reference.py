"""`hpo knobs`, `hpo envs`, `hpo schema`: what there is."""

from __future__ import annotations

import sys
from argparse import Namespace

from ..studies.schema import schema
from .documents import print_json
from .lists import envs_data, envs_listing, knobs_data, knobs_listing
from .terminal import console, print_listing
from .visible import echo

__all__ = ["do_envs", "do_knobs", "do_schema"]


def do_knobs(args: Namespace) -> int:
    """List everything that can be tuned."""
    if args.json:
        print_json(knobs_data())
    else:
        print_listing(console(sys.stdout), knobs_listing())
    return 0


def do_envs(args: Namespace) -> int:
    """List the environments."""
    if args.json:
        print_json(envs_data())
    else:
        print_listing(console(sys.stdout), envs_listing())
        echo("and all of Gymnasium's registry, as gym:<id> (see docs/environments.md)")
    return 0


def do_schema(args: Namespace) -> int:
    """Print the JSON Schema of the study file."""
    print_json(schema())
    return 0
