"""Converters for command-line arguments, used as `type` in argparse."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import UnknownNameError, suggestion
from .output import note

if TYPE_CHECKING:
    from pathlib import Path

    from ..store.study_folder import StudyFolder

_SETS = ("check", "run", "train")  # commands whose --set changes a study file
_AFTER_SOURCE = ("--without", "--system", "--version", "--imports")  # of `hpo import`
RULES_HELP = (
    "none, racing, or a type of early_terminate with options, such as asha,eta=2,min=2k; "
    "repeatable (default: compare the standard rules)"
)


def path_or_none(text: str | None) -> Path | None:
    from pathlib import Path  # here: other commands start faster

    if text is None:
        return None
    return Path(text)


def one_of(kind: str, names: Sequence[str]) -> Callable[[str], str]:
    def word(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(str(UnknownNameError(kind, text, names)))
        return text

    return word


def positive(text: str) -> int:
    return _parse_integer(text, 1)


def env_steps(text: str) -> int:
    from ..studies.study_values import amount_meant, count_of

    if text.isdigit():
        return positive(text)
    count = count_of(text)
    if count is None or count < 1:
        such = amount_meant(text) or "50k"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of env steps such as {such}")
    return count


def seed(text: str) -> int:
    return _parse_integer(text, 0)


def seconds(text: str) -> float:
    with suppress(ValueError):
        if 0.0 <= (found := float(text)) <= 1e6:
            return found
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; 0 means no limit")


def port(text: str) -> int:
    found = _parse_integer(text, 0)
    if found > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; allowed: 0 to 65535")
    return found


def trial(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        message = f"{text!r} is not a trial number; `hpo top` lists them (studies: --study)"
        raise argparse.ArgumentTypeError(message) from None


def _parse_integer(text: str, low: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
    return int(text)


def study_of(args: argparse.Namespace) -> StudyFolder:
    from pathlib import Path

    from ..store.study_folder import find_study

    return find_study(args.study, Path(args.out), note)


def unknown_argument(command: str, given: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Suggest a correction for the first argument that a command does not accept.

    Args:
        command: its name.
        given: the arguments left over, in order.
        parser: the command's parser.
    """
    word, equals, value = given[0].partition("=")
    if not equals and len(given) > 1 and not given[1].startswith("-"):
        value = given[1]
    text, near = f"unexpected argument {given[0]!r}", ""
    is_option = word.startswith("-")
    if is_option:
        known = [option for option in parser._option_string_actions if option.startswith("--")]
        text, near = f"unknown option {word}", suggestion(word, known)
    if command in _SETS and (is_option or equals) and (key := _key_of(word)):
        return f"{text}; type: --set {key}={value or 'VALUE'}"
    if command == "import" and is_option and _overrides_source(word, near):
        import shlex  # here: other commands start faster

        return f"{text}; type it at the end, after `--`: -- {shlex.join(given)}"
    return f"{text};{near} hpo {command} --help lists all arguments"


def _overrides_source(word: str, near: str) -> bool:
    """Return whether an option unknown to `hpo import` belongs after `--`; `near` is similar."""
    return not near or word in _AFTER_SOURCE or bool(_key_of(word))


def _key_of(word: str) -> str:
    """Return the study key named by a word of the command line; "" if there is none."""
    from ..studies.sections import key_of_option

    name = word.lstrip("-").replace("-", "_")
    if "." in name:
        return name
    return key_of_option(name)
