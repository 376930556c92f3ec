"""`scripts/acceptance AREA POINT...`: is what was promised so, on this machine, now?

Prints PASS or FAIL with the numbers seen and writes them, with date and commit, into the row of
docs/reference/acceptance.md. `--small` does a short form of a point and writes nothing. `--work
FOLDER` keeps the files; `processes 1`, interrupted, resumes in that folder.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Generator
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
        promise: in a few words, for the table.
        module: of this folder, that checks it.
        function: there; takes whether to be short, and a folder to work in.
    """

    promise: str
    module: str
    function: str

    def check(self, small: bool, work: Path) -> Outcome:
        """See whether it holds."""
        function: PointFunction = getattr(
            import_module(f".{self.module}", __package__), self.function
        )
        return function(small, work)


POINTS: dict[str, dict[int, Point]] = {
    "engine": {
        1: Point("clone, install, run: winners within minutes", "fresh", "winners"),
        2: Point("one compile of the training program per study", "whole_study", "compiles"),
        3: Point("a lane's bits do not depend on other lanes", "bits", "independence"),
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
        1: Point("the table of features is complete and true", "ppo", "table"),
        2: Point("every kind of policy and environment learns", "ppo_learning", "learns"),
        3: Point("features against slow references; bfloat16", "ppo", "references"),
        4: Point("switching a lane compiles nothing, changes no other", "ppo", "switching"),
        5: Point("no slower without features; fast heavy networks", "ppo_speed", "speed"),
        6: Point("killed and resumed, nothing lost", "ppo_resume", "resumes"),
        7: Point("a lengthened run equals a long one", "longer", "lengthened"),
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
        6: Point("30 W&B sweeps are imported or refused", "imports", "sweeps"),
        7: Point(
            "the report in a browser: no error, no network, a phone", "looking_back", "report"
        ),
        9: Point(
            "importance: at a point, over progress, with known truth", "looking_back", "importance"
        ),
        10: Point("six methods over recorded runs in 30 minutes", "search_bench", "bench"),
    },
    "conclusions": {
        1: Point(
            "hyperparameters are named only if they matter", "conclusions_importance", "importance"
        ),
        2: Point("'better' and its interval are correct", "conclusions_verdicts", "verdicts"),
    },
    "training": {
        1: Point("rejax's SAC killed five times, equal tables", "custom_training", "kills"),
    },
    "statistics": {
        1: Point("at most 5 % of verdicts on equals are wrong", "error_rates", "error_rates"),
    },
    "reliability": {
        1: Point("2,000 crashes per kind of search, equal tables", "crashes", "crashes"),
        2: Point("killed at any moment, equal tables", "crashes", "kills"),
        3: Point("the same study under every hash seed", "hash_seeds", "repeats"),
        4: Point("300 damaged journals: equal, or refused", "reliability", "damaged_journals"),
        5: Point("disk faults: one sentence, nothing lost", "faults", "failing_disk"),
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
        3: Point("hpo check predicts the time of studies", "answers_time", "minutes"),
        4: Point("six programs for 24 trials: lanes busy, compiling", "answers_lanes", "buckets"),
        5: Point("the live page: in a browser, its cost, 5,000 trials", "live_page", "live_page"),
        6: Point("4M rows stream; the page of 5,000 trials", "answers", "streaming"),
    },
    "packaging": {
        1: Point("wheel and sdist install and run; extras resolve", "packaging", "wheel"),
    },
    "import": {
        1: Point("original scripts are imported without a wrong value", "imports", "scripts"),
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
        2: Point("one study searches everything, with each driver", "mission", "founding_search"),
    },
    "optical": {
        1: Point("environments agree with a slow simulator", "optical", "agreement"),
        2: Point("steady-state blocking as published", "optical", "blocking"),
        3: Point("speed of heuristics and PPO", "optical", "speed"),
        4: Point("loads as lanes of one program", "optical", "lanes"),
        5: Point("PPO blocks no more than ksp_ff", "optical_learning", "learns"),
        6: Point("bad input is refused with a message", "optical", "refusals"),
        7: Point("memory and history, by every command", "optical_memory", "every_command"),
        8: Point("supported loads are inside their intervals", "optical_loads", "intervals"),
    },
}


def main() -> int:
    """Check the points asked for; 0 if all of them hold."""
    parser = argparse.ArgumentParser(
        description="Check acceptance points.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("area", choices=POINTS)
    parser.add_argument("points", type=int, nargs="+", metavar="POINT")
    parser.add_argument("--small", action="store_true", help="a short form; nothing is written")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="to work in; it is kept")
    args = parser.parse_args()
    make_importable()
    unknown = [number for number in args.points if number not in POINTS[args.area]]
    if unknown:
        parser.error(f"{args.area} has no point {unknown[0]}")
    held = [_check(args.area, number, args.small, args.work) for number in args.points]
    return 0 if all(held) else 1


@contextlib.contextmanager
def _folder(name: str, kept: Path | None) -> Generator[Path, None, None]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
            yield Path(folder)
        return
    folder = kept.resolve() / name
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


def _check(area: str, number: int, small: bool, kept: Path | None) -> bool:
    point, started = POINTS[area][number], time.monotonic()
    with _folder(f"acceptance-{area}-{number}", kept) as work:
        try:
            outcome = point.check(small, work)
        except Exception as error:  # a check that breaks is a promise not seen to hold
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
