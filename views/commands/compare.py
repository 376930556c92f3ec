"""`hpo compare`: which of two trials, or of the best trials of two studies, is better.

Values are compared on the seeds that both trials ran on, preferably test seeds. There is no
verdict on seeds that ranked the trials: two trials picked from a leaderboard differ on those seeds
even if they are equally good, and a test would be wrong in a third of studies. The output is then
the difference, and the command that runs both trials on test seeds. If two studies have the same
`seed`, their replicates have the same seeds. Trials in different environments get no verdict.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from ...errors import ConfigError
from ...store.study_folder import find_study
from ...store.value_bounds import value_bounds
from ..compare.sides import sides_of_studies, sides_of_trials
from ..compare.text import data_and_text
from ..compare.values import compared_values, sides_with_copies, test_seed_counts
from ..compare.verdict import compare_values, refusal_reason
from ..formatting import unit_of
from ..output import note, print_answer
from ..terminal.console import in_columns


def do_compare(args: Namespace) -> int:
    root = Path(args.out)
    if args.a is None or args.b is None:
        raise ConfigError("compare needs A and B: two trials of one study, or two studies")
    numbers = [n for n in map(number_in, (args.a, args.b)) if n is not None]
    if len(numbers) == 2:
        meta, sides = sides_of_trials(find_study(args.study, root, note), numbers)
    elif numbers:
        raise ConfigError("compare two trials of one study, or two studies; not one of each")
    elif args.study is not None:
        raise ConfigError(f"with --study {args.study}, give two trial numbers, not two studies")
    else:
        meta, sides = sides_of_studies(args.a, args.b, root)
    chosen = replace(
        compared_values(*sides),
        goal=meta.goal,
        unit=unit_of(meta.study_text),
        bounds=value_bounds(meta),
    )
    lost, tested = test_seed_counts(sides, chosen)
    copied = sides_with_copies(sides, chosen)
    chosen = replace(chosen, copied=copied, lost=lost, tested=tested)
    result = compare_values(chosen)
    refused = refusal_reason(result, sides, chosen)
    data, text = data_and_text(meta, result, sides, chosen, refused)
    print_answer(args.json, data, in_columns(text, sys.stdout, 2))
    return 0


def number_in(word: str) -> int | None:
    """Return the trial number if the word is one, otherwise None."""
    if word.isascii() and word.removeprefix("-").isdigit():
        return int(word)
    return None
