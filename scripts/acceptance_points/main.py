"""`scripts/acceptance AREA POINT...`: checks on this machine whether promises are kept.

It prints PASS or FAIL with the numbers observed, and writes them, with date and commit, to the row
in docs/reference/acceptance.md. `--small` runs a short form of a point and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from .common import Outcome, make_importable
from .record import Row, record

PointFunction = Callable[[bool, Path], Outcome]


@dataclass(frozen=True)
class Point:
    """One promise.

    Attributes:
        promise: a short text for the table.
        module: the module in this folder that checks it.
        function: its function, which takes whether to run the short form, and a folder to work in.
    """

    promise: str
    module: str
    function: str

    def check(self, small: bool, work: Path) -> Outcome:
        """Check whether the promise is kept."""
        function: PointFunction = getattr(
            import_module(f".{self.module}", __package__), self.function
        )
        return function(small, work)


POINTS: dict[str, dict[int, Point]] = {
    "engine": {
        1: Point("clone, install, run: winners within minutes", "fresh", "winners"),
        2: Point("one compile of the training program a study", "whole_study", "compiles"),
        3: Point("a lane's bits depend on nothing beside it", "bits", "independence"),
        4: Point("lane occupancy of 95 % in the CartPole study", "whole_study", "occupancy"),
        5: Point("killed 20 times, equal tables bit for bit", "crash", "kills"),
        6: Point("benchmarks against their thresholds", "benchmarks", "thresholds"),
        7: Point("base configurations on ten seeds; PPO's numbers", "learning", "base"),
        8: Point("200 hostile study files are refused", "hostile_files", "refusals"),
        9: Point("benchmarks/gpu.py on base dependencies", "fresh", "gpu_small"),
        10: Point("answers at once; first metrics soon", "timing", "first_words"),
        11: Point("a GPU visit runs, small, on a CPU", "fresh", "gpu_visit"),
    },
    "ppo": {
        1: Point("a table of every feature, all of it true", "ppo", "table"),
        2: Point("every kind of policy and environment learns", "ppo_learning", "learns"),
        3: Point("features against slow references; bfloat16", "ppo", "references"),
        4: Point("switching a lane compiles nothing, moves no other", "ppo", "switching"),
        5: Point("no slower without features; fast heavy networks", "ppo_speed", "speed"),
        6: Point("killed and gone on, nothing lost", "ppo_resume", "resumes"),
        7: Point("a run lengthened is the run that was long", "longer", "lengthened"),
    },
    "search": {
        1: Point(
            "every method with every rule; contracts; Sobol is SciPy's",
            "search_methods",
            "everything",
        ),
        2: Point("regret no worse than by the sampler's own library", "regret", "regret"),
        3: Point("pbt: exact copies, replay, at most 5 % of time", "search", "population_based"),
        4: Point("Ray: workers killed lose nothing; Tune over lanes", "ray_workers", "workers"),
        5: Point("4 devices give the bits of 2; no collective", "search", "devices"),
        8: Point(
            "5,000 trials: memory of the driver, leaderboard query", "search_methods", "scale"
        ),
        6: Point("30 sweeps of W&B import or are refused", "imports", "sweeps"),
        7: Point(
            "the report in a browser: no error, no network, a phone", "looking_back", "report"
        ),
        9: Point(
            "importance: one point, over progress, a known truth", "looking_back", "importance"
        ),
        10: Point("six methods over recorded runs in 30 minutes", "search_bench", "bench"),
    },
    "conclusions": {
        1: Point("knobs named only where they decided", "conclusions_importance", "importance"),
        2: Point("'better' and its interval are so", "conclusions_verdicts", "verdicts"),
    },
    "training": {
        1: Point("rejax's SAC killed five times, equal tables", "custom_training", "kills"),
    },
    "statistics": {
        1: Point("verdicts are wrong in at most 5 % of equals", "error_rates", "error_rates"),
    },
    "reliability": {
        1: Point("crashed 2,000 times a kind of search, equal tables", "crashes", "crashes"),
        2: Point("killed at any moment, equal tables", "crashes", "kills"),
        3: Point("the same study under every hash seed", "hash_seeds", "repeats"),
        4: Point("300 damaged journals: equal, or refused", "reliability", "damaged_journals"),
        5: Point("faults of the disk: a sentence, nothing lost", "faults", "failing_disk"),
        6: Point(
            "signals to all, workers killed, environments that hang: equal tables",
            "processes",
            "processes",
        ),
        7: Point(
            "a pausing study that is confirmed: resumed from every commit, equal",
            "commit_points",
            "every_commit",
        ),
    },
    "processes": {
        1: Point(
            "studies of a command, killed 300 times: nothing lost, no orphan",
            "command_kills",
            "kills",
        ),
    },
    "answers": {
        3: Point("hpo check's minutes are those that studies take", "answers_time", "minutes"),
        4: Point("six programs for 24 trials: lanes busy, compiling", "answers_lanes", "buckets"),
        5: Point("the live page: in a browser, its cost, 5,000 trials", "live_page", "live_page"),
        6: Point("4M rows stream; the page of 5,000 trials", "answers", "streaming"),
    },
    "packaging": {
        1: Point("wheel and sdist install and run; extras resolve", "packaging", "wheel"),
    },
    "import": {
        1: Point("scripts as their makers wrote them; wrong values 0", "imports", "scripts"),
    },
    "results": {
        1: Point("five tuned configurations trained again", "tuned_again", "verified"),
        2: Point("a bundle verifies elsewhere, and says what was changed", "bundles", "travels"),
        3: Point("five environments, 64 trials, killed three times", "several", "killed"),
        4: Point(
            "the page of a bundle in a browser verifies and refuses", "bundle_page", "in_browser"
        ),
    },
    "mission": {
        1: Point(
            "hyperparameters as actions: schedules, bit-equal episodes", "mission", "dynamic"
        ),
        2: Point("the founding search in one study, by each driver", "mission", "founding_search"),
    },
    "optical": {
        1: Point("environments agree with a slow simulator", "optical", "agreement"),
        2: Point("steady-state blocking as published", "optical", "blocking"),
        3: Point("speed of heuristics and PPO", "optical", "speed"),
        4: Point("loads as lanes of one program", "optical", "lanes"),
        5: Point("PPO blocks no more than ksp_ff", "optical_learning", "learns"),
        6: Point("bad input is refused in words", "optical", "refusals"),
        7: Point("memory and history, by every command", "optical_memory", "every_command"),
        8: Point("a supported load lies in its interval", "optical_loads", "intervals"),
    },
}


def main() -> int:
    """Check the requested points; return 0 if all promises are kept."""
    parser = argparse.ArgumentParser(
        description="Check acceptance points.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("area", choices=POINTS)
    parser.add_argument("points", type=int, nargs="+", metavar="POINT")
    parser.add_argument("--small", action="store_true", help="a short form; nothing is written")
    args = parser.parse_args()
    make_importable()
    unknown = [number for number in args.points if number not in POINTS[args.area]]
    if unknown:
        parser.error(f"{args.area} has no point {unknown[0]}")
    held = [_check(args.area, number, args.small) for number in args.points]
    return 0 if all(held) else 1


def _check(area: str, number: int, small: bool) -> bool:
    point, started = POINTS[area][number], time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"acceptance-{area}-{number}-") as work:
        try:
            outcome = point.check(small, Path(work))
        except Exception as error:  # a check that fails to run counts as a broken promise
            traceback.print_exc()
            outcome = Outcome(False, f"{type(error).__name__}: {error}".splitlines()[0])
    seconds = time.monotonic() - started
    word = "PASS" if outcome.passed else "FAIL"
    print(f"{word} {area} {number} ({point.promise}): {outcome.numbers} [{seconds:.0f} s]")
    sys.stdout.flush()
    if not small:
        record(Row(area, number, point.promise, outcome.passed, outcome.numbers, seconds))
    return outcome.passed


def _listing() -> str:
    return "\n".join(
        f"{area} {number}: {point.promise}"
        for area, points in POINTS.items()
        for number, point in points.items()
    )
