"""What words of the command line stand for; argparse shows what does not fit."""

from __future__ import annotations

import argparse
import shlex
from argparse import ArgumentParser
from collections.abc import Callable, Sequence

from ..errors import UnknownNameError

RULES_HELP = (
    "none, racing, or a type of early_terminate with options: asha,eta=2,min=2k; repeatable "
    "(default: the usual ones side by side)"
)
_SHOW = ("show", "print", "list", "get")
"""What commands of other programs need, and these do without."""
_SHOWS = ("best", "envs", "importance", "knobs", "list", "report", "top", "tuned", "watch")
RESAMPLES_HELP = "resample the trials N times for the interval; 0: none (default: 100)"


def without_show(argv: Sequence[str]) -> str:
    """Return what `hpo tuned show X` means; "" where nothing is to be taken out.

    >>> without_show(["tuned", "show", "CartPole-v1"]), without_show(["envs", "show"])
    ('hpo tuned CartPole-v1', '')
    """
    if len(argv) < 2 or argv[0] not in _SHOWS or argv[1] not in _SHOW:
        return ""
    more = [word for word in argv[2:3] if not word.startswith("-")]
    return shlex.join(["hpo", argv[0], *more]) if more or argv[0] in ("list", "tuned") else ""


def one_of(kind: str, names: Sequence[str]) -> Callable[[str], str]:
    """Return what takes one of a few words, and says the nearest to another one."""

    def word(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(str(UnknownNameError(kind, text, names)))
        return text

    return word


def positive(text: str) -> int:
    """Return a whole number of at least 1."""
    return _whole(text, 1)


def env_steps(text: str) -> int:
    """Return a number of env steps, such as 50k."""
    from ..studies.study_values import amount_meant, count_of

    count = positive(text) if text.isdigit() else count_of(text)
    if count is None or count < 1:
        such = amount_meant(text) or "50k"
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of env steps such as {such}")
    return count


def counts(text: str) -> list[int]:
    """Return whole numbers between commas."""
    return [positive(part) for part in text.split(",")]


def seed(text: str) -> int:
    """Return a whole number of at least 0."""
    return _whole(text, 0)


def seconds(text: str) -> float:
    """Return a number of seconds."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0.0 <= found <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; 0 means no limit")
    return found


def port(text: str) -> int:
    """Return the number of a port; 0 stands for any that is free."""
    found = _whole(text, 0)
    if found > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; they go from 0 to 65535")
    return found


def trial(text: str) -> int:
    """Return the number of a trial; -1 is the default beside a population that changed trial 0."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the number of a trial, which `hpo top` lists; a study is named with "
            "--study"
        ) from None


def _whole(text: str, low: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {low}")
    return int(text)


def add_tuned(parser: ArgumentParser) -> None:
    """Add them to the parser of the verb."""
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="nothing: list them; ENV: print one and its tests; verify ENV: train it again; "
        "add STUDY: contribute the winner of a study; check: check all files",
    )
    parser.add_argument(
        "--tuned",
        metavar="DIR",
        help="the folder of tuned configurations (default: results/tuned)",
    )
    parser.add_argument(
        "--seeds",
        metavar="N",
        type=positive,
        help="verify, add: run N new seeds (default: 32)",
    )
    parser.add_argument(
        "--recorded",
        metavar="N",
        type=positive,
        help="verify: train N of the recorded seeds again (default: 8)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=seed,
        help="verify: take the N-th set of new seeds (default: 0)",
    )
    parser.add_argument(
        "--bits", action="store_true", help="verify: exit code 1 unless it is bit-equal"
    )
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="add: also a winner not shown to be as good as the default; replace a study file",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="add: name it (default: the environment; the study, where it has other keys)",
    )
    parser.add_argument("--write", action="store_true", help="check: rewrite the tables")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="ENV: also curves, sources, cost, versions"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the results")
