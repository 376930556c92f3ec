"""The words and options of `hpo tuned`."""

from __future__ import annotations

from argparse import ArgumentParser

from . import argument_types as types

__all__ = ["add"]


def add(parser: ArgumentParser) -> None:
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
        type=types.positive,
        help="verify, add: run N new seeds (default: 32)",
    )
    parser.add_argument(
        "--recorded",
        metavar="N",
        type=types.positive,
        help="verify: train N of the recorded seeds again (default: 8)",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=types.seed,
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
