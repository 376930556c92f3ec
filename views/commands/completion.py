"""`hpo completion SHELL`, and the completions that a shell shows when Tab is pressed."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from ...errors import MissingExtraError


def do_completion(args: Namespace) -> int:
    try:
        from argcomplete.shell_integration import shellcode
    except ModuleNotFoundError:
        raise MissingExtraError("argcomplete", "completion", "completing commands") from None
    sys.stdout.write(shellcode(["hpo"], shell=args.shell))
    return 0


def complete_words(parser: ArgumentParser) -> None:
    """Print the completions that the shell requests through environment variables, and exit."""
    try:
        import argcomplete
    except ModuleNotFoundError:
        raise SystemExit(0) from None
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for command, verb in verbs.choices.items():
        for action in verb._actions:
            completer = _find_completer(command, action.dest)
            if completer is not None:
                setattr(action, "completer", completer)  # noqa: B010 - argcomplete reads it
    argcomplete.autocomplete(parser)


def _find_completer(command: str, word: str) -> Callable[..., Iterable[str]] | None:
    if (command, word) == ("knobs", "word"):
        return lambda **_: import_module("....knobs", __name__).KNOBS
    if (command, word) in (("init", "env"), ("envs", "word")):
        return lambda **_: import_module("....environments.table", __name__).ENVIRONMENTS
    return _study_names if word == "study" or (command, word) == ("confirm", "words") else None


def _study_names(parsed_args: Namespace, **_: Any) -> Iterable[str]:
    """Return folders that look like studies, without opening any, to keep completion fast."""
    root = getattr(parsed_args, "out", None) or "results"
    found = os.listdir(root) if os.access(root, os.R_OK) and os.path.isdir(root) else ()
    # os.path.isfile returns False for a folder that cannot be entered
    return sorted(name for name in found if os.path.isfile(f"{root}/{name}/journal.sqlite"))
