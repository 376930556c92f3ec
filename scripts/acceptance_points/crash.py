"""Point 5: a study killed at random times ends with the tables of an uninterrupted one."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .common import Outcome, call, hpo_command

KILLS = 20
_MOST_SECONDS = 600.0  # limit for a first commit
_OFTEN = """\
import sys
from pathlib import Path
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import RunOptions, run
from hpo.studies.load import load
study = load(sys.argv[1])
run(study, Path(sys.argv[2]) / study.name, LocalFactory(study), (), RunOptions(1.0, 2.0))
"""
Words = Callable[[Path, Path], list[str]]
"""Study file, results folder -> the words of the command that runs the study."""
STUDY = """\
name: small
env: CartPole-v1
env_steps: 100k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.95, max: 0.999, distribution: one_minus_log}
  update_epochs: {min: 1, max: 4, distribution: int_uniform}
search: {method: tpe}
early_terminate: {type: asha, min: 10k, eta: 3}
seeds: {per_config: 2}
confirm: {top_k: 2, choose: 3, report: 4}
population: {lanes: 16}
budget: {trials: 200}
"""
SMALL_STUDY = STUDY.replace("trials: 200", "trials: 24")


def command(file: Path, out: Path) -> list[str]:
    """Run a study as users do; it commits every ten seconds."""
    return [*hpo_command(), "run", str(file), "--out", str(out), "--quiet"]


def committing_often(file: Path, out: Path) -> list[str]:
    """Run a study that commits every second, so that even a short one resumes after a kill."""
    return [sys.executable, "-c", _OFTEN, str(file), str(out)]


def kills(small: bool, work: Path) -> Outcome:
    """Kill a compiled study at random times, including its start."""
    return kill_and_compare(SMALL_STUDY if small else STUDY, 2 if small else KILLS, work)


def kill_and_compare(
    text: str, kills: int, work: Path, words: Words = command, midway: bool = False
) -> Outcome:
    """Kill and resume until all kills are used and the last study that was hit has finished.

    A study that finishes before it is hit again is compared, and a new one is started.

    Args:
        text: file of the study, whose name is `small`.
        kills: number of kills.
        work: a folder to work in.
        words: function that returns the command.
        midway: only kill after lanes were committed, so that every start but the first restores
        them.
    """
    from hpo.store import tables_equal

    file = work / "small.yaml"
    file.write_text(text)
    call(words(file, work / "warm-up"), work)  # fills the compilation cache
    started = time.monotonic()
    call(words(file, work / "unbroken"), work)
    whole = time.monotonic() - started
    left, rng, compared, differences = kills, random.Random(5), 0, []
    while left:
        out = work / f"broken-{compared}"
        left -= break_one(words(file, out), out, left, lambda: rng.uniform(0.0, whole), midway)
        differences += tables_equal(work / "unbroken" / "small", out / "small")
        compared += 1
    when = "behind a commit " if midway else ""
    numbers = f"{kills} kills {when}of a study of {whole:.0f} s, {compared} continued to the end"
    numbers += "; all tables equal" if not differences else f"; differences: {differences[:3]}"
    return Outcome(not differences, numbers)


def break_one(
    words: list[str],
    out: Path,
    most: int,
    moment: Callable[[], float],
    midway: bool,
    finish: Callable[[], object] | None = None,
) -> int:
    """Kill one study at up to `most` times, then run it to its end; return the number of hits.

    `finish` runs it to its end; None uses the same command.
    """
    hits, folder = 0, out / "small"
    while hits < most:
        before = _commits(folder)
        process = subprocess.Popen(
            words, cwd=out.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        if midway:
            _await_commit(process, folder, before)
        try:
            process.wait(timeout=moment() * (0.1 if midway else 1.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            hits += 1
            continue
        if process.returncode:
            raise RuntimeError(f"after {hits} kills the study ended with {process.returncode}")
        return hits
    if finish is None:
        call(words, out.parent)
    else:
        finish()
    return hits


def _await_commit(process: subprocess.Popen[bytes], folder: Path, before: int) -> None:
    """Wait until a study has committed lanes again, or has ended."""
    started = time.monotonic()
    while process.poll() is None and _commits(folder) <= before:
        if time.monotonic() - started > _MOST_SECONDS:
            process.kill()
            raise RuntimeError(f"the study has not committed within {_MOST_SECONDS:.0f} s")
        time.sleep(0.02)


def _commits(folder: Path) -> int:
    """Return the number of the last commit with lanes; 0 if there is none."""
    from hpo.store.journal import Journal

    if not Journal.exists(folder):
        return 0
    journal = Journal(folder)
    try:
        head = journal.head()
    finally:
        journal.close()
    return head.number if head.checkpoint is not None else 0
