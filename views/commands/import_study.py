"""`hpo import`: sweeps, flag files and spaces of other systems become study files."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...studies.imports.draft import Draft, of_the_file
from ...studies.imports.flags import flags_of
from ..visible import echo
from .init_check_run import write_study

__all__ = ["KINDS", "do_import"]


def do_import(args: Namespace) -> int:
    """Write the study file that a file of another system amounts to.

    Raises:
        HpoError: it cannot be read, or a part of it has no counterpart in a study file.
    """
    given = flags_of(args.rest)
    if args.env is not None:
        given = {**given, "env": args.env}
    draft = KINDS[args.kind](args, given)
    draft.override(given)
    if args.space:
        _add_space(draft)
        draft.override(of_the_file(given))  # once more, over what came with the space
    text = draft.text()
    for title, items in (("changed", draft.notes), ("left out", draft.left_out)):
        for item in items:
            echo(f"{title}: {item}", file=sys.stderr)
    write_study(text, args.to, draft.command)
    return 0


def _wandb(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...studies.imports.wandb import read_sweep

    return read_sweep(_file(args.source), given)


def _xlron(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...studies.imports.xlron import read_flags

    return read_flags(args.source, given)


def _configspace(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...spaces.configspace_files import read_configspace
    from ...spaces.from_configspace import from_configspace
    from ...studies.imports.spaces import begin, take_space
    from ...studies.imports.take import settle

    draft = Draft(args.source)
    space = from_configspace(read_configspace(_file(args.source)))
    source = begin(draft, space.names, given)
    take_space(draft, space)
    settle(draft, source)
    return draft


def _optuna(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...studies.imports.optuna_storage import read_storage

    return read_storage(args.source, args.study, given)


def _rlzoo(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...studies.imports.rlzoo import read_hyperparameters

    return read_hyperparameters(_file(args.source), given)


def _settings(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...studies.imports.settings import read_settings

    return read_settings(args.source, args.kind, given)


def _add_space(draft: Draft) -> None:
    """Search around one configuration.

    Raises:
        ConfigError: it has a search space already.
    """
    from ...studies.imports.around import add_space

    if draft.space:
        raise ConfigError(
            f"{draft.source} has a search space already; --space is for a single configuration"
        )
    add_space(draft)


_PROGRAMS = ("cleanrl", "sb3", "purejaxrl", "rejax", "lerax", "jaxdem", "arlbench", "torch_ppo")
KINDS = {
    "wandb": _wandb,
    "xlron": _xlron,
    "configspace": _configspace,
    "optuna": _optuna,
    "rlzoo": _rlzoo,
    **dict.fromkeys(_PROGRAMS, _settings),
}
"""What can be imported."""


def _file(source: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    return path
