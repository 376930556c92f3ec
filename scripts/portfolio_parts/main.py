"""Learns the configurations with which a search should start, and judges them by replays.

scripts/portfolio learn          results/portfolio/portfolio.yaml from results/held_out
scripts/portfolio record NAME    a table from studies/portfolio to results/portfolio; resumes
scripts/portfolio forecast       results/portfolio/forecast.yaml: how often a short study ends
                                 with a better configuration than the default
scripts/portfolio judge          plans with and without it; each table is judged by a portfolio
                                 that was learnt without its family
scripts/portfolio judge TABLES   the present portfolio, on tables that were not used to learn it
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml
from atlas_parts.main import make

from hpo.errors import HpoError, StoreError
from hpo.files import atomic_files
from hpo.store.statistics import t_quantile

from . import portfolio_file
from .forecast import forecast
from .learn import learn
from .plans import PLANS, Judged, is_ceiling, judge
from .sources import Source, read_sources

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "results" / "held_out"
STUDIES = ROOT / "studies" / "portfolio"
TABLES = ROOT / "results" / "portfolio"
PORTFOLIO = TABLES / "portfolio.yaml"
FORECAST = TABLES / "forecast.yaml"
FORECAST_HEAD = """\
# How often a study of the default and learnt configurations (portfolio), with a test on so many
# seeds (report), ended with a better configuration than the default, in replays of recorded
# tables; each was judged by a portfolio learnt without its family. Made by
# `scripts/portfolio forecast`.
"""
PLACES = 9
"""The number of configurations: the default and eight others."""
REPLAYS = 400
SEED = 5


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit code: 2 for a mistake."""
    args = _parser().parse_args(words)
    try:
        args.run(args)
    except HpoError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/portfolio", description="Learn a portfolio.")
    verbs = parser.add_subparsers(required=True)
    learns = verbs.add_parser("learn", help="write the portfolio")
    learns.add_argument("--tables", type=Path, default=SOURCES, metavar="DIR")
    learns.add_argument("--to", type=Path, default=PORTFOLIO, metavar="FILE")
    learns.set_defaults(run=_learn)
    records = verbs.add_parser("record", help="run studies of new tables")
    records.add_argument("names", nargs="+", metavar="NAME", help="files of studies/portfolio")
    records.add_argument("--out", type=Path, default=ROOT / "results", help="of the studies")
    records.set_defaults(run=_record)
    forecasts = verbs.add_parser("forecast", help="write what hpo check forecasts")
    forecasts.add_argument("--to", type=Path, default=FORECAST, metavar="FILE")
    forecasts.set_defaults(run=_forecast)
    judges = verbs.add_parser("judge", help="compare plans by replays")
    judges.add_argument("tables", nargs="?", type=Path, metavar="TABLES")
    judges.add_argument("--replays", type=int, default=REPLAYS)
    judges.add_argument("--to", type=Path, metavar="FILE", help="also write the numbers as JSON")
    judges.set_defaults(run=_judge)
    return parser


def _learn(args: argparse.Namespace) -> None:
    sources = read_sources(args.tables)
    content = portfolio_file.document(sources, learn(sources, PLACES))
    portfolio_file.write(args.to, content)
    print(f"{args.to}: {len(content['places'])} places from {len(sources)} tables")
    print(f"digest {content['digest']}")


def _record(args: argparse.Namespace) -> None:
    known = sorted(path.stem for path in STUDIES.glob("*.yaml"))
    for name in args.names:
        if name not in known:
            raise StoreError(
                f"there is no studies/portfolio/{name}.yaml; known: {', '.join(known)}"
            )
    for name in args.names:
        if make(name, args.out, TABLES, {}, STUDIES):
            raise StoreError(f"{name} was interrupted; the same command resumes it")


def _forecast(args: argparse.Namespace) -> None:
    sources = read_sources(SOURCES)
    rows = {source.name: _without_family(source, sources) for source in sources}
    plans = forecast(sources, rows, REPLAYS)
    text = yaml.safe_dump({"plans": plans}, sort_keys=False, default_flow_style=None)
    atomic_files.write_text(args.to, FORECAST_HEAD + text)
    print(text, end="")


def _judge(args: argparse.Namespace) -> None:
    if args.tables is None:
        sources = read_sources(SOURCES)
        rows = {source.name: _without_family(source, sources) for source in sources}
    else:
        sources = read_sources(args.tables)
        rows = dict.fromkeys((source.name for source in sources), _rows_of(PORTFOLIO, sources[0]))
    found = {
        source.name: judge(source, rows[source.name], PLANS, args.replays, SEED)
        for source in sources
    }
    ceilings = [
        source.name for source in sources if is_ceiling(source) or no_reach(found[source.name])
    ]
    print("\n".join(table_of(found, ceilings)))
    if args.to is not None:
        numbers = {
            "ceilings": ceilings,
            "tables": {
                name: {plan: vars(one) for plan, one in by_plan.items()}
                for name, by_plan in found.items()
            },
        }
        atomic_files.write_text(args.to, json.dumps(numbers, indent=1) + "\n")


def _without_family(source: Source, sources: Sequence[Source]) -> list[int]:
    return learn([other for other in sources if other.family != source.family], PLACES)


def _rows_of(path: Path, source: Source) -> list[int]:
    """Return the rows of the portfolio's configurations in a table not used to learn it."""
    known = [dict(params) for params in source.params]
    rows = [0]
    for place in portfolio_file.read(path)["places"]:
        if place not in known:
            raise StoreError(f"{source.name} has no run of {place}")
        rows.append(known.index(place))
    return rows


def no_reach(found: Mapping[str, Judged]) -> bool:
    """Return whether the median configuration is as good as the best one found by other seeds."""
    return any(math.isnan(one.score) for one in found.values())


def table_of(found: Mapping[str, Mapping[str, Judged]], ceilings: Sequence[str]) -> list[str]:
    """Return a line per plan: runs, share and score over all tables, and the worst table."""
    lines = [f"{'plan':24} {'runs':>5} {'share':>6}  {'score':>20}  worst against the default"]
    scored = [name for name in found if name not in ceilings]
    for plan in PLANS:
        share = float(np.mean([by_plan[plan].share for by_plan in found.values()]))
        scores = [found[name][plan].score for name in scored]
        least = min(scored, key=lambda name: found[name][plan].over_default)
        runs = next(iter(found.values()))[plan].runs
        lines.append(
            f"{plan:24} {runs:5.0f} {100 * share:6.1f}  {interval(scores):>20}  "
            f"{least} {found[least][plan].over_default:+.2f}"
        )
    if ceilings:
        lines.append(f"score without {', '.join(ceilings)}: too many of their configurations tie")
    return lines


def interval(values: Sequence[float]) -> str:
    """Return the mean over tables with Student's 95 % interval."""
    mean = float(np.mean(values))
    error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    reach = t_quantile(0.975, len(values) - 1) * error
    return f"{mean:.2f} [{mean - reach:.2f}, {mean + reach:.2f}]"
