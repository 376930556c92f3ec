"""`python -m hpo_tables mine.py:optimise`: an optimiser's row next to two baselines."""

import argparse
import math
import sys

from .rank import BASELINES, optimiser_of, rank, text_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="hpo_tables", description=__doc__)
    parser.add_argument("optimisers", nargs="*", metavar="FILE.py:FUNCTION")
    parser.add_argument("--runs", type=float, default=12, help="budget, in full runs of one seed")
    parser.add_argument("--searches", type=int, default=20, help="of each optimiser and table")
    args = parser.parse_args()
    if not 1 <= args.runs < math.inf:
        parser.error(f"--runs is {args.runs:g}; allowed: 1 or more")
    if args.searches < 1:
        parser.error(f"--searches is {args.searches}; allowed: 1 or more")
    try:
        given = {text: optimiser_of(text) for text in args.optimisers}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    found = rank({**BASELINES, **given}, args.runs, args.searches)
    print(text_of(found, args.runs, args.searches))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
