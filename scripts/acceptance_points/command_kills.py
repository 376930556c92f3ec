"""Studies of a command: random kills of hpo, of its processes or of both lose no finished work.

Four kinds of studies run a script whose numbers follow a formula. Each start of a study is killed
once, after some processes have run; the same command then resumes it.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .common import Outcome, hpo_command

KILLS, SMALL_KILLS = 300, 4  # over all kinds
_PATIENCE = 300.0
_WAIT = 3.0  # largest number of seconds between a start and its kill
SCRIPT = '''\
"""train.py: eight reports, to stdout or to a CSV file; a checkpoint after each."""

import json
import os
import subprocess
import sys
import time

how, rate, seed, steps, folder = sys.argv[1:6]
rate, seed, steps = float(rate), int(seed), int(steps)
checkpoint, table = os.path.join(folder, "checkpoint"), os.path.join(folder, "progress.csv")
start = 0
if "--load" in sys.argv:
    with open(checkpoint) as file:
        start = int(file.read())
if how == "csv":
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True)
    if start == 0:
        with open(table, "w") as file:
            print("step,score", file=file)
for part in range(start + 1, 9):
    time.sleep(0.04)
    score = rate * part + seed % 10 / 100
    if how == "csv":
        with open(table, "a") as file:
            print(f"{part * steps // 8},{score}", file=file)
    else:
        print(json.dumps({"step": part * steps // 8, "score": score}), flush=True)
    with open(checkpoint + ".new", "w") as file:
        file.write(str(part))
    os.replace(checkpoint + ".new", checkpoint)
'''
STUDY = """\
command: {python} train.py {{how}} {{rate}} {{seed}} {{env_steps}} {{folder}}
length: 800
space: {{rate: {{min: 1.0, max: 9.0}}}}
fixed: {{how: {how}}}
search: {{method: random}}
budget: {{trials: {trials}, max_failures: 1000}}
metric: {{name: score}}
processes: {{at_once: 4, timeout: 60s, grace: 0.5s}}
checkpoint: {{commit_every: 0.2s}}
"""
KINDS = {
    "plain": ("stdout", ""),
    "rungs": (
        "stdout",
        "early_terminate: {type: asha, min: 200, eta: 2}\n"
        "confirm: {top_k: 2, choose: 2, report: 2}\n",
    ),
    "paused": (
        "stdout",
        'early_terminate: {type: asha, min: 200, eta: 2, pause: 3}\nresume: "... --load"\n',
    ),
    "files and children": ("csv", "seeds: {per_config: 2}\nmetrics: {type: csv}\n"),
}


@dataclass
class Seen:
    """A study that is killed: the number of kills, and the faults."""

    kills: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])


def kills(small: bool, work: Path) -> Outcome:
    """Kill studies of each kind; check their state after each kill and at the end."""
    each = (SMALL_KILLS if small else KILLS) // len(KINDS)
    total: Counter[str] = Counter()
    faults: list[str] = []
    for number, (kind, (how, more)) in enumerate(KINDS.items()):
        rng, done, studies = random.Random(number), 0, 0
        while done < each:
            studies += 1
            folder = work / f"{kind.replace(' ', '-')}-{studies}"
            seen = _killed_study(folder, how, more, each - done, rng)
            done += seen.kills.total()
            total += seen.kills
            faults += [f"{kind}: {fault}" for fault in seen.faults]
            if seen.faults:
                break
    parts = ", ".join(f"{name} {count}" for name, count in sorted(total.items()))
    numbers = f"{total.total()} kills over {len(KINDS)} kinds of studies: {parts}; "
    numbers += "nothing finished lost, no orphan, no double row" if not faults else ""
    numbers += f"WRONG: {'; '.join(faults[:3])}" if faults else ""
    return Outcome(not faults, numbers)


def _killed_study(folder: Path, how: str, more: str, most: int, rng: random.Random) -> Seen:
    """Kill a study up to `most` times, then let it finish."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    text = STUDY.format(python=sys.executable, how=how, trials=24)
    (folder / "small.yaml").write_text(text + more)
    seen, before = Seen(), dict[Any, Any]()
    while True:
        going = _start(folder)
        if seen.kills.total() < most and _await_processes(folder, going):
            name, kill = rng.choice(list(_WAYS.items()))
            if _pause(going, rng.uniform(0.0, _WAIT)) and kill(folder, going, rng):
                seen.kills[name] += 1
        code = _end(going)
        if left := _left(folder):
            seen.faults.append(f"{len(left)} processes left")
        now = _finished(folder)
        seen.faults += [f"{run} is lost" for run in before if now.get(run) != before[run]]
        before = now
        if code == 0:
            break
        if code not in (130, -signal.SIGTERM, -signal.SIGKILL):
            said = (folder / "said.txt").read_text(errors="replace").strip().splitlines()
            seen.faults.append(f"exit code {code}: {said[-1:]}")
            break
        if seen.faults:
            break
    if not seen.faults:
        seen.faults += _rows_of(folder)
    return seen


def _start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "said.txt").open("wb") as said:
        return subprocess.Popen(
            [*hpo_command(), "run", "small.yaml", "--quiet"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )


def _processes(folder: Path) -> list[int]:
    from hpo.machine import guard

    return guard.marked(f"HPO_FOLDER={folder}{os.sep}")


def _await_processes(folder: Path, going: subprocess.Popen[bytes]) -> bool:
    """Wait until the study has processes; return False if it ends first."""
    end = time.monotonic() + _PATIENCE
    while not _processes(folder):
        if going.poll() is not None:
            return False
        if time.monotonic() > end:
            raise RuntimeError("the study starts no process")
        time.sleep(0.01)
    return True


def _pause(going: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait; return whether the study is still running."""
    with suppress(subprocess.TimeoutExpired):
        going.wait(seconds)
    return going.poll() is None


def _end(going: subprocess.Popen[bytes]) -> int:
    try:
        return going.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        going.kill()
        raise RuntimeError(f"the study has not ended within {_PATIENCE:.0f} s") from None


def _left(folder: Path) -> list[int]:
    """Return the processes that outlive hpo by more than a moment."""
    end = time.monotonic() + 30.0
    while (found := _processes(folder)) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def _signal_hpo(number: int) -> Callable[[Path, subprocess.Popen[bytes], random.Random], bool]:
    def send(folder: Path, going: subprocess.Popen[bytes], rng: random.Random) -> bool:
        going.send_signal(number)
        return True

    return send


def _signal_child(number: int) -> Callable[[Path, subprocess.Popen[bytes], random.Random], bool]:
    def send(folder: Path, going: subprocess.Popen[bytes], rng: random.Random) -> bool:
        there = _processes(folder)
        if not there:
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(there), number)
        return True

    return send


def _kill_both(folder: Path, going: subprocess.Popen[bytes], rng: random.Random) -> bool:
    _signal_child(signal.SIGKILL)(folder, going, rng)
    going.kill()
    return True


_WAYS = {
    "-9 of hpo": _signal_hpo(signal.SIGKILL),
    "TERM of hpo": _signal_hpo(signal.SIGTERM),
    "-9 of a process": _signal_child(signal.SIGKILL),
    "TERM of a process": _signal_child(signal.SIGTERM),
    "-9 of both": _kill_both,
}


def _finished(folder: Path) -> dict[Any, Any]:
    """Return the committed evaluations, and the records of processes that finished."""
    from hpo.store.journal import Journal

    found: dict[Any, Any] = {}
    for path in folder.glob("results/small/processes/*/*/run.json"):
        with suppress(ValueError):  # an incomplete one
            record = json.loads(path.read_text())
            if record.get("exit_code") == 0:
                found[str(path.relative_to(folder))] = record["started_at"]
    if (folder / "results/small/journal.sqlite").is_file():
        with Journal(folder / "results/small") as journal:
            for row in journal.evaluations():
                values = {name: float(value[0]) for name, value in row.metrics.items()}
                found[row.trial, str(row.stream), row.replicate, row.env_steps] = values
    return found


def _rows_of(folder: Path) -> list[str]:
    """Return the faults in the tables of a finished study."""
    from hpo.store.journal import Journal
    from hpo.store.rows import TrialState

    faults: list[str] = []
    with Journal(folder / "results/small") as journal:
        trials, rows = journal.trials(), list(journal.evaluations())
    if len(trials) != 24 or len({trial.trial for trial in trials}) != 24:
        faults.append(f"{len(trials)} trials")
    keys = [(row.trial, row.stream, row.replicate, row.env_steps) for row in rows]
    if len(set(keys)) != len(keys):
        faults.append("double rows")
    for row in rows:
        rate = next((one.params["rate"] for one in trials if one.trial == row.trial), 5.0)
        score = float(row.metrics["score"][0])
        expected = rate * row.env_steps / 100
        if not math.isclose(score, expected, rel_tol=0.01, abs_tol=0.1):
            faults.append(f"trial {row.trial} has {score:g} at {row.env_steps}, not {expected:g}")
    running = [one.trial for one in trials if one.state is TrialState.RUNNING]
    if running:
        faults.append(f"trials {running} still run")
    return faults
