"""`hpo completion SHELL`, and what a shell that was set up by it asks at each Tab."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import MissingExtraError


def do_completion(args: Namespace) -> int:
    """Print the code with which a shell completes `hpo`.

    Raises:
        MissingExtraError: argcomplete is not installed.
    """
    try:
        from argcomplete.shell_integration import shellcode
    except ModuleNotFoundError:
        raise MissingExtraError("argcomplete", "completion", "completing commands") from None
    sys.stdout.write(shellcode(["hpo"], shell=args.shell))
    return 0


def complete_words(parser: ArgumentParser) -> None:
    """Answer the shell's question, which the environment holds, and end the process.

    Without argcomplete there is no answer.
    """
    try:
        import argcomplete
    except ModuleNotFoundError:
        raise SystemExit(0) from None
    for command, action in _arguments(parser):
        completer = _completer(command, action)
        if completer is not None:
            action.completer = completer
    argcomplete.autocomplete(parser)


def _arguments(parser: ArgumentParser) -> Iterable[tuple[str, Any]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                yield from ((name, inner) for inner in verb._actions)


def _completer(command: str, action: argparse.Action) -> Callable[..., Iterable[str]] | None:
    if command == "knobs" and action.dest == "word":
        return _knobs
    if (command, action.dest) in (("init", "env"), ("envs", "word")):
        return _environments
    if action.dest == "study" or (command, action.dest) == ("confirm", "words"):
        return _studies
    return None


def _knobs(**_: Any) -> Iterable[str]:
    from ...knobs import KNOBS

    return KNOBS


def _environments(**_: Any) -> Iterable[str]:
    from ...environments.table import ENVIRONMENTS

    return ENVIRONMENTS


def _studies(parsed_args: Namespace, **_: Any) -> Iterable[str]:
    """Return the folders that look like studies; nothing is opened, as a Tab must not wait."""
    root = getattr(parsed_args, "out", None) or "results"
    found = os.listdir(root) if os.access(root, os.R_OK) and os.path.isdir(root) else ()
    # os.path.isfile is False of a folder that cannot be entered
    return sorted(name for name in found if os.path.isfile(f"{root}/{name}/journal.sqlite"))
