"""`hpo init` and `hpo check`: before a study runs."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from ..errors import ConfigError
from ..studies.init_file import init_text
from ..studies.load import load

__all__ = ["do_check", "do_init"]


def do_init(args: Namespace) -> int:
    """Write a study file to start from; an existing one is left alone.

    Raises:
        ConfigError: unknown environment, or the file exists.
    """
    text = init_text(args.env)
    if args.out is None:
        sys.stdout.write(text)
        return 0
    path = Path(args.out)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; choose another file with --out") from None
    print(f"wrote {path}; next: hpo check {shlex.quote(str(path))}", file=sys.stderr)
    return 0


def do_check(args: Namespace) -> int:
    """Say what a study will do; exit code 2 if some of its configurations cannot run.

    Raises:
        StudyError: with every mistake in the file.
    """
    study = load(args.file, args.set)
    from ..search.preview import preview  # starts jax: mistakes come first

    report, note = preview(study)
    if args.json:
        print(json.dumps({**report.as_data(), "note": note}, indent=2, allow_nan=False))
    else:
        print(report.text())
        if note:
            print(f"note       {note}")
    return 2 if report.mistakes else 0
