"""Policies that started as the strongest heuristic, and heuristics on the same requests.

It reads the studies of studies/from_heuristics, by the names of their files. The blocking of each
seed is stored in the file, so that the numbers in docs/optical.md can be made from the file alone.

    python benchmarks/from_heuristics.py nsfnet=results/from-heuristics-nsfnet ... \\
        --out benchmarks/from_heuristics.json
    python benchmarks/from_heuristics.py --table benchmarks/from_heuristics.json
    python benchmarks/from_heuristics.py --serve nsfnet_from_200=ksp_lf,ksp_ff@25 \\
        --out benchmarks/from_heuristics.json

The last command evaluates further heuristics on a study's requests, for which its file suffices,
because the requests follow from its seed. A survey on few requests cannot show which heuristic is
the strongest among those within its noise; the requests that judged the policies can.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpo.errors import HpoError
from hpo.search.lanes.local import LocalFactory
from hpo.search.lanes.resolver import Resolver
from hpo.search.state.objective import measure
from hpo.store.baselines import baselines_of
from hpo.store.journal import Journal
from hpo.store.rows import Stream, TrialState
from hpo.store.statistics import interval, mean
from hpo.studies.load import load, recorded
from hpo.studies.spec import Study
from hpo.views.formatting import steps

STUDIES = Path(__file__).resolve().parents[1] / "studies" / "from_heuristics"


def kept(folder: Path) -> dict[str, Any]:
    """Return the results of one study: blocking of each seed, by the policy and by heuristics.

    Raises:
        ValueError: it does not have exactly one finished trial, or a heuristic lacks seeds.
    """
    with Journal(folder) as journal, journal.at_one_commit():
        rows, study = journal.trials(), recorded(journal.meta.study_text)
        rules = {row.baseline: list(row.values[Stream.SEARCH]) for row in baselines_of(journal)}
    if len(rows) != 1 or rows[0].state is not TrialState.FINISHED:
        raise ValueError(f"{folder}: one finished trial is read, and it holds {len(rows)} trials")
    policy = list(rows[0].seed_values)
    for rule, values in rules.items():
        if len(values) != len(policy):
            raise ValueError(
                f"{folder}: {rule} ran on {len(values)} seeds, the policy on {len(policy)}"
            )
    env = study.env.values
    trained = env["load"]
    return {
        "topology": env["topology"],
        "trained_at": trained,
        "judged_at": study.evaluation.env.get("load", trained),
        "env_steps": study.env_steps,
        "policy": policy,
        "heuristics": rules,
    }


def served(study: Study, rules: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    """Yield each heuristic with its blocking on the requests that judged a study's seeds."""
    factory = LocalFactory(study)
    resolved = Resolver(study, factory).of({})
    seeds = [(Stream.SEARCH, replicate) for replicate in range(study.seeds.per_config)]
    for rule in rules:
        seen = factory.baseline(rule, resolved, seeds)
        yield rule, [measure(study.metric.name, one) for one in seen]


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a Markdown table with a row per study and heuristic, the strongest ones first."""
    titles = ("study", "env steps", "load", "policy", "heuristic", "policy minus heuristic")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, one in found.items():
        ours = one["policy"]
        again = ", again" * name.endswith("_again")
        head = (
            f"| `{name.removesuffix('_again')}`{again} | {steps(one['env_steps'])} | "
            f"{one['judged_at']:g} | {mean(ours):.5f}"
        )
        for rule in sorted(one["heuristics"], key=lambda rule: mean(one["heuristics"][rule])):
            theirs = one["heuristics"][rule]
            apart = mean(ours) - mean(theirs)
            around = interval([own - other for own, other in zip(ours, theirs, strict=True)])
            lines.append(
                f"{head} | {rule} {mean(theirs):.5f} | {apart:+.5f} "
                f"[{around.low:+.5f}, {around.high:+.5f}] |"
            )
    return "\n".join(lines)


def _serve(words: str, out: Path) -> int:
    """Add heuristics to an earlier run's file, for each study with the same requests."""
    name, _, rules = words.partition("=")
    found = json.loads(out.read_text())
    same = [found[key]["heuristics"] for key in found if key.removesuffix("_again") == name]
    study = load(STUDIES / f"{name}.yaml")
    for rule, values in served(study, [rule for rule in rules.split(",") if rule not in same[0]]):
        for there in same:
            there[rule] = values
        out.write_text(json.dumps(found, indent=1) + "\n")
    print(table({name: found[name]}))
    return 0


def main() -> int:
    """Print the table; return 2 if a study cannot be read."""
    parser = argparse.ArgumentParser(description="Policies beside the heuristics they began as.")
    parser.add_argument("studies", nargs="*", metavar="FILE=FOLDER")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE", help="of an earlier run")
    parser.add_argument("--serve", metavar="FILE=RULE,RULE", help="into --out, after each rule")
    args = parser.parse_args()
    if (bool(args.studies), args.table is not None, args.serve is not None).count(True) != 1:
        parser.error("give studies as nsfnet=FOLDER, or --table FILE, or --serve FILE=RULE,RULE")
    if args.serve is not None:
        return _serve(args.serve, args.out)
    try:
        named = [word.partition("=") for word in args.studies]
        found = {name: kept(Path(folder)) for name, _, folder in named}
    except (HpoError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if args.table is not None:
        found = json.loads(args.table.read_text())
    print(table(found))
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
