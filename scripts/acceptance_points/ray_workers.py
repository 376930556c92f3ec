"""Search point 4: lanes on the workers of a Ray cluster, killed too, and Ray Tune over lanes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .common import Outcome

_STUDY = """\
name: small
env: CartPole-v1
env_steps: 40k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.95, max: 0.999, distribution: one_minus_log}
search: {method: sobol}
early_terminate: {type: asha, min: 10k, eta: 2}
evaluation: {episodes: 5}
seeds: {per_config: 2}
confirm: {top_k: 2, choose: 2, report: 2}
population: {lanes: 16}
budget: {trials: 16}
"""
_WORKERS = "executor: {type: ray, workers: 2}\n"
_TUNE = """\
name: small
env: CartPole-v1
env_steps: 20k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.95, max: 0.999, distribution: one_minus_log}
search: {driver: ray_tune, scheduler: SCHEDULER}
evaluation: {every: 5k, episodes: 5}
population: {lanes: LANES}
budget: {trials: TRIALS}
"""
_DRIVER = """\
import sys
from pathlib import Path
from hpo.search.executors import factory_of
from hpo.search.run import Settings, run
from hpo.studies.load import load
study = load(sys.argv[1])
say = lambda text: print(text, file=sys.stderr, flush=True)
with factory_of(study, warn=say) as factory:
    run(study, Path(sys.argv[2]), factory, (), Settings(1.0, 1e9))
"""
_MOST_SECONDS = 900.0
_TOGETHER = 0.9


def workers(small: bool, work: Path) -> Outcome:
    """Two workers give the tables of one process, killed or not; Tune's lanes step together."""
    from hpo.store import tables_equal

    text = _STUDY.replace("40k", "20k").replace("trials: 16", "trials: 8") if small else _STUDY
    one, two = _file(work, "one", text), _file(work, "two", text + _WORKERS)
    _run(one, work / "alone")
    found: dict[str, list[str]] = {}
    _run(two, work / "over-two")
    found["undisturbed"] = tables_equal(work / "alone", work / "over-two")
    kills, said = _kill_workers(two, work / "worker-killed", 1 if small else 2)
    found[f"with {kills} workers killed"] = tables_equal(work / "alone", work / "worker-killed")
    starts = _kill_driver(two, work / "driver-killed", 1 if small else 3)
    found[f"with the driver killed {starts} times"] = tables_equal(
        work / "alone", work / "driver-killed"
    )
    wrong = [f"{how}: {', '.join(what)} differ" for how, what in found.items() if what]
    if said < kills:
        wrong.append(f"{kills} workers were killed, but {said} were replaced")
    numbers = f"two workers give the tables of one process bit for bit: {', '.join(found)}"
    width = 4 if small else 16
    for scheduler, trials in (("asha", 2 * width), ("pbt", width)):
        told, fault = _tune(scheduler, width, trials, work)
        numbers += f"; {told}"
        wrong += [fault] if fault else []
    return Outcome(not wrong, "; ".join(wrong) if wrong else numbers)


def _tune(scheduler: str, lanes: int, trials: int, work: Path) -> tuple[str, str]:
    """Let Ray Tune run a study; give what was seen, and what is wrong with it."""
    from hpo.store.journal import Journal

    text = _TUNE.replace("SCHEDULER", scheduler).replace("LANES", str(max(8, lanes)))
    file = _file(work, scheduler, text.replace("TRIALS", str(trials)))
    _run(file, work / f"tune-{scheduler}")
    with Journal(work / f"tune-{scheduler}") as journal:
        rows, decisions = journal.trials(), journal.decisions()
        about: dict[str, Any] = next(
            row.value for row in journal.attributes() if row.name == "ray_tune"
        )
    ended = sum(row.state in ("finished", "stopped", "diverged") for row in rows)
    marks = sum(entry.action == ("stop" if scheduler == "asha" else "copy") for entry in decisions)
    told = f"Tune's {scheduler}: {ended} of {trials} trials to their end, {marks} "
    told += "stopped" if scheduler == "asha" else "copies"
    told += f", {about['mean_width']:.1f} of {about['mean_live']:.1f} lanes a chunk"
    together = about["mean_width"] >= _TOGETHER * about["mean_live"]
    fine = ended == trials == len(rows) and marks > 0 and together
    return told, "" if fine else f"WRONG: {told}"


# ---------------------------------------------------------------------- processes


def _file(work: Path, name: str, text: str) -> Path:
    (work / f"{name}.yaml").write_text(text)
    return work / f"{name}.yaml"


def _started(file: Path, out: Path) -> subprocess.Popen[str]:
    log = _log_of(out).open("a")
    return subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(file), str(out)], stderr=log, text=True
    )


def _log_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.log")


def _run(file: Path, out: Path) -> None:
    _end_of(_started(file, out), out)


def _end_of(child: subprocess.Popen[str], out: Path) -> None:
    if child.wait(_MOST_SECONDS):
        said = _log_of(out).read_text().strip().splitlines()[-3:]
        raise RuntimeError(f"{out.name} ended with {child.returncode}: {' / '.join(said)[-600:]}")


def _kill_workers(file: Path, out: Path, kills: int) -> tuple[int, int]:
    """Kill a worker after a few commits, again and again; give the kills, and the replacements."""
    child, killed, at = _started(file, out), 0, 2
    while killed < kills and _wait(child, lambda number=at: _commits(out) >= number):
        for process in _workers_of(child.pid)[:1]:
            os.kill(process, signal.SIGKILL)
            killed += 1
        at = _commits(out) + 3
    _end_of(child, out)
    return killed, _log_of(out).read_text().count("goes on with its lanes")


def _kill_driver(file: Path, out: Path, kills: int) -> int:
    """Kill the driver in the middle and run the same command again; give the kills."""
    killed = 0
    while killed < kills:
        child, before = _started(file, out), _commits(out)
        if not _wait(child, lambda number=before + 2: _commits(out) >= number):
            break
        child.kill()
        child.wait()
        killed += 1
    _run(file, out)
    return killed


def _wait(child: subprocess.Popen[str], happened: Callable[[], bool]) -> bool:
    """Wait until something has happened; False if the child has ended before."""
    deadline = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < deadline:
        if happened():
            return child.poll() is None
        if child.poll() is not None:
            return False
        time.sleep(0.2)
    raise TimeoutError("nothing happened")


def _commits(out: Path) -> int:
    from hpo.errors import StoreError
    from hpo.store.journal import Journal

    if not (out / "journal.sqlite").exists():
        return 0
    try:
        with Journal(out) as journal:
            return journal.head().number
    except StoreError:  # it is being made
        return 0


def _workers_of(driver: int) -> list[int]:
    """Give the processes below the driver that host shares of lanes."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            names[int(folder.name)] = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])

    def below(process: int) -> bool:
        while process > 1 and process != driver:
            process = parents.get(process, 0)
        return process == driver

    return sorted(p for p, name in names.items() if name.startswith("ray::ShareHost") and below(p))
