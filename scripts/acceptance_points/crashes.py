"""Reliability points 1 and 2: studies that are hit repeatedly end as if undisturbed.

Every start of a study is a separate process, forked from this one: it exits without notice after a
boundary, or is killed at a random time, and the next one resumes. Lanes are analytic, so that
thousands of starts take minutes; real lanes are killed by engine point 5 and ppo point 6.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .common import Outcome

if TYPE_CHECKING:
    from hpo.search.run import RunOptions
    from hpo.search.state.progress import Observer

    from .crash_cases import Case

CRASHES, KILLS = 2_000, 250
_FIRST = 100_000  # number of a kind's first case
_DIED = 77
_SEARCH = (
    "samplers.via_optuna",
    "samplers.via_cmaes",
    "samplers.without_model",
    "rules.pb2",
    "run",
)
_LOADED = ("pyarrow.parquet", "pandas", *(f"hpo.search.{name}" for name in _SEARCH))
Break = Callable[["Case", Path, int], int]
"""Disturbs a study at most a given number of times, lets it end, and returns the number."""


def crashes(small: bool, work: Path) -> Outcome:
    """Crash studies of every kind right after boundaries, every two or three chunks."""
    return _hit(10 if small else CRASHES, _crash, "crashes at boundaries", work)


def kills(small: bool, work: Path) -> Outcome:
    """Kill studies of every kind at random times."""
    return _hit(2 if small else KILLS, _kill, "kills", work)


def _hit(wanted: int, break_: Break, words: str, work: Path) -> Outcome:
    """Hit studies until each kind was hit often enough; compare all that were hit."""
    from .crash_cases import KINDS

    for name in _LOADED:
        import_module(name)  # once, instead of in every process
    counts: dict[str, tuple[int, int]] = {}
    wrong: list[str] = []
    for kind in KINDS:
        hits = studies = 0
        while hits < wanted:
            seen, found = _compare(kind, _FIRST + studies, wanted - hits, break_, work)
            hits, studies = hits + seen, studies + 1
            wrong += [f"{kind} {_FIRST + studies - 1}: {found[0]}"] if found else []
        counts[kind] = hits, studies
        print(f"{kind}: {hits} {words}, {studies} studies, {len(wrong)} unlike so far", flush=True)
    studies = sum(number for _, number in counts.values())
    numbers = f"{studies} studies over analytic lanes, {words}: "
    numbers += ", ".join(f"{kind} {hits}" for kind, (hits, _) in counts.items())
    numbers += "; all tables, decisions, batches and counters equal" if not wrong else ""
    return Outcome(not wrong, numbers + "".join(f"; {entry}" for entry in wrong[:4]))


def _compare(
    kind: str, number: int, most: int, break_: Break, work: Path
) -> tuple[int, list[str]]:
    """Run one case unbroken and broken; return the number of hits and the differences."""
    from hpo.errors import ConfigError
    from hpo.search.run import RunOptions, run

    from .crash_cases import draw_case

    case = draw_case(kind, number)
    one, other = work / "unbroken", work / "broken"
    for folder in (one, other):
        shutil.rmtree(folder, ignore_errors=True)
    settings = RunOptions(publish_seconds=1e9, commit_seconds=1e9)

    def unbroken() -> None:
        try:
            run(case.study, one, case.factory, (), settings)
        except ConfigError:  # not a case: the confirm stage alone uses up the budget
            os._exit(_DIED)

    code = _in_child(unbroken)
    if code == _DIED:
        return 0, []
    _expect(code)
    hits = break_(case, other, most)
    found = work / "differences.json"
    _expect(_in_child(lambda: found.write_text(json.dumps(differences(one, other)))))
    return hits, json.loads(found.read_text())


def differences(one: Path, other: Path) -> list[str]:
    """Return the differences of two studies: tables, decisions, batches, attributes, counters."""
    from hpo.store import tables_equal
    from hpo.store.journal import Journal

    found = list(tables_equal(one, other))
    with Journal(one) as first, Journal(other) as second:
        for name in ("decisions", "asks", "attributes"):
            if repr(getattr(first, name)()) != repr(getattr(second, name)()):
                found.append(name)
        ours, theirs = (_counters(journal.head().loop_state) for journal in (first, second))
    return found + [
        f"{name} {ours[name]} {theirs[name]}" for name in ours if ours[name] != theirs[name]
    ]


def _counters(loop_state: str) -> dict[str, Any]:
    usage = json.loads(loop_state)["usage"]
    return {name: value for name, value in usage.items() if not name.endswith("_seconds")}


# ---------------------------------------------------------------------- processes


def _crash(case: Case, folder: Path, most: int) -> int:
    """Let a study commit at every boundary and die a few chunks later, until it has finished."""
    from hpo.search.run import RunOptions
    from hpo.search.state.progress import Observer

    class Dies(Observer):
        left = 0

        def on_chunk(self, progress: Any) -> None:
            self.left -= 1
            if self.left == 0:
                os._exit(_DIED)

    hits, dies = 0, Dies()
    while True:
        dying = hits < most
        dies.left = case.moments.choice([2, 2, 2, 3]) if dying else -1
        settings = RunOptions(publish_seconds=1e9, commit_seconds=0.0 if dying else 1e9)
        code = _in_child(lambda s=settings: _to_the_end(case, folder, s, [dies]))
        if code != _DIED:
            _expect(code)
            return hits
        hits += 1


def _kill(case: Case, folder: Path, most: int) -> int:
    """Kill a study that commits and publishes at various rates a few times, then let it finish."""
    from hpo.search.run import RunOptions, run

    rng, hits = case.moments, 0
    slow = replace(case.factory, chunk_seconds=rng.choice([0.002, 0.004, 0.008]))
    for _ in range(min(most, rng.randrange(2, 13))):
        pace = RunOptions(rng.choice([0.0, 0.0, 0.02, 0.05]), rng.choice([0.0, 0.05, 1e9]))
        pid = _fork(lambda pace=pace: run(case.study, folder, slow, (), pace))
        ends = time.monotonic() + rng.uniform(0.0, 0.6)
        while (done := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < ends:
            time.sleep(0.002)
        if done[0] == 0:
            os.kill(pid, signal.SIGKILL)
            hits += 1
            done = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(done[1])
        if code != -signal.SIGKILL:
            _expect(code)
            break
    last = RunOptions(publish_seconds=1e9)
    _expect(_in_child(lambda: _to_the_end(case, folder, last)))
    return hits


def _to_the_end(
    case: Case, folder: Path, settings: RunOptions, observers: Sequence[Observer] = ()
) -> None:
    """Resume a study to its end; studies stopped by signals are tested elsewhere."""
    from hpo.search.run import run

    if run(case.study, folder, case.factory, observers, settings).state != "finished":
        raise RuntimeError("a signal asked this study to stop: compare it when it has ended")


def _in_child(work: Callable[[], object]) -> int:
    """Run a function in a separate process; return the exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1])


def _fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _expect(code: int) -> None:
    if code:
        raise RuntimeError(f"a life ended with {code}")
