"""Reliability point 7: a study with pauses and confirm resumes identically from every commit.

In a real study the times of commits vary; here they are prescribed. At every boundary the contents
of a commit are recorded, in an undisturbed process and in every process that resumes from a commit
at some boundary. If these are equal at all later boundaries, so are the processes for every set of
commits, because each resumes from a state of the undisturbed study. Random sets are also tested,
with processes that die some boundaries after a commit, when newer policies are already on disk.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import Outcome
from .crashes import differences

if TYPE_CHECKING:
    from hpo.search.run import RunResults

    from .crash_cases import Case

SETS = 12
_SMALL_EVERY, _SMALL_SETS, _ASKED_EVERY = 60, 1, 8
_TIMES = ("seconds", "_per_second", "_at", "outlook")


class Died(BaseException):
    """Raised in place of a process's death; hpo's code does not catch it."""


@dataclass
class Life:
    """One process of a study: where it commits, dies or is asked to stop, and its boundaries.

    Attributes:
        first: the number of its first boundary, counted from the start of the study.
        commits: the boundaries at which it commits.
        dies: the boundary after which it dies; None: never.
        asked: the boundary at which SIGTERM arrives; None: never.
        passed: boundary -> the contents of a commit there, without times.
    """

    first: int = 0
    commits: Collection[int] = ()
    dies: int | None = None
    asked: int | None = None
    passed: dict[int, str] = field(default_factory=dict)


def every_commit(small: bool, work: Path) -> Outcome:
    """Resume the study from a commit at each boundary, and from sets of commits."""
    case = paused_case()
    whole = Life()
    live(case, work / "whole", whole)
    count = len(whole.passed)
    singles = range(0, count, _SMALL_EVERY) if small else range(count)
    wrong: list[str] = []
    for at in singles:
        behind = min(count - 1, at + random.Random(at).choice([0, 0, 1, 3, 30]))
        wrong += _broken(case, work, whole, [(at, behind)])
    sets = _SMALL_SETS if small else SETS
    for number in range(sets):
        wrong += _broken(case, work, whole, _drawn(number, count))
    asked = singles[1:-1][:: 2 if small else _ASKED_EVERY]
    for at in asked:
        wrong += _interrupted(case, work, whole, at)
    numbers = (
        f"{count} boundaries: gone on from a commit at {len(singles)} of them, from {sets} sets "
        f"of commits, after SIGTERM at {len(asked)}"
    )
    numbers += "" if wrong else "; every later state, all tables and policies equal"
    return Outcome(not wrong, numbers + "".join(f"; {one}" for one in wrong[:4]))


def paused_case() -> Case:
    """Return a study whose trials pause at rungs one at a time and are then confirmed."""
    from helpers.analytic_lanes import AnalyticFactory
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.execution_spec import Budget, Checkpoint
    from hpo.studies.search_spec import Confirm, EarlyTerminate, SearchSpec, Seeds
    from hpo.studies.spec import Study

    from .crash_cases import REAL, Case

    seed = 968_726
    study = Study(
        name="paused",
        env=EnvSpec("CartPole-v1"),
        env_steps=16_000,
        space=REAL,
        seed=seed,
        search=SearchSpec("tpe", ahead="never"),
        early_terminate=EarlyTerminate("asha", 1_000, 3.0, pause=1),
        seeds=Seeds(1),
        confirm=Confirm(3, 3, 4),
        budget=Budget(trials=14),
        checkpoint=Checkpoint(keep_best=3, each_seed=True, policies_every=4_000),
    )
    factory = AnalyticFactory(seed=seed, lanes=1, block=1, diverges_above=9.0)
    return Case(study, factory, random.Random(0))


# ---------------------------------------------------------------------- processes


def live(case: Case, folder: Path, life: Life) -> RunResults | None:
    """Start or resume a study for one process; return None if it died."""
    from hpo.search.run import RunOptions, run

    with _commits_of(life):
        try:
            return run(case.study, folder, case.factory, (), RunOptions(publish_seconds=1e9))
        except Died:
            return None


@contextmanager
def _commits_of(life: Life) -> Iterator[None]:
    """Set at which boundaries the loop commits, in place of the clock."""
    from hpo.search.engine.commits import Committer

    real, at = Committer.commit_if_due, [life.first]

    def commit_if_due(self: Any) -> None:
        here = at[0]
        at[0] += 1
        life.passed[here] = _held(self)
        if here in life.commits:
            self.commit()
        if here == life.dies:
            raise Died
        if here == life.asked:
            os.kill(os.getpid(), signal.SIGTERM)

    Committer.commit_if_due = commit_if_due
    try:
        yield
    finally:
        Committer.commit_if_due = real


def _held(committer: Any) -> str:
    """Return the contents of a commit at this point, without times, as text."""
    from hpo.search.state.loop_state import BucketState

    search_state, buckets = committer._search_state, committer._buckets.values()
    search_state.state.note_buckets(
        BucketState(b.key, b.example, b.lanes, b.lanes_fixed, b.offered) for b in buckets
    )
    lanes = [
        [repr(state) for state in b.population.take([run.lane for run in b.busy() if run.chunks])]
        for b in buckets
        if b.population is not None and any(run.chunks for run in b.busy())
    ]
    rows = {number: vars(trial.row()) for number, trial in sorted(search_state.trials.items())}
    texts = [search_state.state.to_text(), json.dumps([lanes, rows], default=str)]
    return json.dumps([json.loads(text, object_hook=_timeless) for text in texts])


def _timeless(value: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in value.items() if not k.endswith(_TIMES)}


# ---------------------------------------------------------------------- differences


def _broken(case: Case, work: Path, whole: Life, pieces: list[tuple[int, int]]) -> list[str]:
    """Return the differences if a study commits and dies repeatedly, each (commit, death)."""
    folder, first, found = work / "broken", 0, list[str]()
    shutil.rmtree(folder, ignore_errors=True)
    name = "commits at " + ", ".join(str(at) for at, _ in pieces[:5])
    for at, behind in pieces:
        life = Life(first, commits={at}, dies=behind)
        if live(case, folder, life) is not None:
            return [f"{name}: it did not die"]
        found += _unlike(name, whole, life)
        first = at
    life = Life(first)
    return found + _ended(name, case, work, whole, life)


def _interrupted(case: Case, work: Path, whole: Life, at: int) -> list[str]:
    """Return the differences if a study was asked to stop at a boundary and then resumed."""
    folder, name = work / "broken", f"SIGTERM at {at}"
    shutil.rmtree(folder, ignore_errors=True)
    asked = live(case, folder, Life(asked=at))
    if asked is None or asked.state != "interrupted":
        return [f"{name}: it was not interrupted"]
    return _ended(name, case, work, whole, Life(at + 1))


def _ended(name: str, case: Case, work: Path, whole: Life, life: Life) -> list[str]:
    """Return the differences if a study resumes and runs to its end."""
    results = live(case, work / "broken", life)
    if results is None or results.state != "finished":
        return [f"{name}: it did not end"]
    found = _unlike(name, whole, life)
    if life.first + len(life.passed) != len(whole.passed):
        found.append(f"{name}: it passed {len(life.passed)} boundaries more")
    found += [f"{name}: {one}" for one in differences(work / "whole", work / "broken")]
    mine, theirs = (_policies(work / one) for one in ("whole", "broken"))
    return found + ([f"{name}: policies differ"] if mine != theirs else [])


def _unlike(name: str, whole: Life, life: Life) -> list[str]:
    at = next((n for n, held in life.passed.items() if held != whole.passed.get(n)), None)
    return [] if at is None else [f"{name}: another state at boundary {at}"]


def _policies(folder: Path) -> dict[str, bytes]:
    root = folder / "policies"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def _drawn(number: int, count: int) -> list[tuple[int, int]]:
    """Draw a set of commits, each with the death that follows, in order."""
    rng, at, pieces = random.Random(number), 0, list[tuple[int, int]]()
    most = [60, 3, 12, 40][number % 4]
    while (at := at + rng.randint(1, most)) < count:
        pieces.append((at, min(count - 1, at + rng.choice([0, 0, 1, 5]))))
    return pieces
