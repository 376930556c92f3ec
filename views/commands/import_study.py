"""`hpo import`: sweeps, flag files and spaces of other systems become study files."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...importers.convert import add_space
from ...importers.draft import Draft, of_the_file
from ...importers.formats import flags_of
from ...importers.readers import NetworkFile
from ..visible import echo
from .init_check_run import write_study

__all__ = ["do_import"]


def do_import(args: Namespace) -> int:
    """Write the study file that a file of another system amounts to.

    Raises:
        HpoError: it cannot be read, or a part of it has no counterpart in a study file.
    """
    given = flags_of(args.rest)
    if args.env is not None:
        given = {**given, "env": args.env}
    draft = _draft(args, given)
    draft.override(given)
    if args.space:
        add_space(draft)
        draft.override(of_the_file(given))  # once more, over what came with the space
    text = draft.text()
    for title, items in (("changed", draft.notes), ("left out", draft.left_out)):
        for item in items:
            echo(f"{title}: {item}", file=sys.stderr)
    if any("system=" in item for item in draft.notes):
        echo("such words are typed after --, as in: -- system=none", file=sys.stderr)
    if isinstance(draft, NetworkFile):
        flags = " ".join(f"--{name} {value}" for name, value in draft.evaluation.items())
        write_study(text, args.to, lambda file: f"hpo eval --env {shlex.quote(file)} {flags}")
    else:
        write_study(text, args.to)
    return 0


def _draft(args: Namespace, given: Mapping[str, Any]) -> Draft:
    from ...importers import readers, storages, wandb

    if args.kind == "wandb":
        return wandb.read_sweep(_file(args.source), given)
    if args.kind == "xlron":
        return readers.read_flags(args.source, given)
    if args.kind == "configspace":
        return storages.read_space(_file(args.source), given)
    if args.kind == "optuna":
        return storages.read_storage(args.source, args.study, given)
    if args.kind == "rlzoo":
        return readers.read_hyperparameters(_file(args.source), given)
    return readers.read_settings(args.source, args.kind, given)


def _file(source: str) -> Path:
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    return path
