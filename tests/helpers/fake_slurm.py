"""SLURM in one file: sbatch, squeue and scancel whose jobs are real processes of this machine.

`install` writes the three programs into a folder. A job waits for one of `slots` places, runs its
script in a session, and each of its processes has FAKE_SLURM, which stands in for the cgroup:
scancel sends SIGTERM to all of them, and SIGKILL a second later. FAKE_SLURM names the cluster too,
because job 1 of another test may run at the same time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hpo.machine import guard

KILL_WAIT = 1.0  # seconds between SIGTERM and SIGKILL; 30 on most clusters
_PROGRAM = """#!{python}
import sys
sys.path.insert(0, {helpers!r})
from fake_slurm import {name}
{name}({root!r}, sys.argv[1:])
"""


def install(folder: Path, slots: int = 8) -> Path:
    """Write the programs into `folder/bin`, and return the folder of the jobs."""
    root, programs = folder / "slurm", folder / "bin"
    root.mkdir(parents=True)
    programs.mkdir()
    (root / "slots").write_text(str(slots))
    for name in ("sbatch", "squeue", "scancel"):
        words = {"helpers": str(Path(__file__).parent), "root": str(root)}
        path = programs / name
        path.write_text(_PROGRAM.format(python=sys.executable, name=name, **words))
        path.chmod(0o755)
    return root


def jobs(root: Path) -> dict[int, dict]:
    """Return the jobs by number."""
    found = {}
    for path in sorted(Path(root).glob("job_*.json")):
        found[int(path.stem.removeprefix("job_"))] = json.loads(path.read_text())
    return found


def active(root: Path) -> list[int]:
    return [number for number, job in jobs(root).items() if job["state"] in ("PENDING", "RUNNING")]


def _change(root: Path, number: int, **changes) -> None:
    _write(root, number, jobs(root)[number] | changes)


def _write(root: Path, number: int, job: dict) -> None:
    partial = root / f"new_{number}_{os.getpid()}"
    partial.write_text(json.dumps(job))
    partial.replace(root / f"job_{number}.json")


def _mark(root: Path, number: int) -> str:
    return f"{Path(root).resolve()}:{number}"


def processes_of(root: Path, number: int) -> list[int]:
    return guard.marked(f"FAKE_SLURM={_mark(root, number)}\0")


def _signal(root: Path, number: int, kind: int) -> None:
    for process in processes_of(root, number):
        try:
            os.kill(process, kind)
        except ProcessLookupError:
            continue


def fail_node(root: Path, number: int) -> None:
    """End a job as a dead node does: all of it at once, without a word."""
    _change(root, number, state="NODE_FAIL")
    while processes_of(root, number):
        _signal(root, number, signal.SIGKILL)


def stop(root: Path, number: int, state: str) -> None:
    """End a job as SLURM does at its time limit, or for another job."""
    _change(root, number, state=state)
    _signal(root, number, signal.SIGCONT)
    _signal(root, number, signal.SIGTERM)


def sbatch(root: str, words: list[str]) -> None:
    script = sys.stdin.read()
    refusal = Path(root, "refusal")
    if refusal.exists():
        print("sbatch: error: " + refusal.read_text(), file=sys.stderr)
        sys.exit(1)
    given = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    number = 1 + max(jobs(Path(root)), default=0)
    job = {"name": given["job-name"], "state": "PENDING", "options": given, "script": script}
    _write(Path(root), number, job)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    code = f"import fake_slurm; fake_slurm.serve({root!r}, {number})"
    helpers = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": helpers + os.pathsep + os.environ["PYTHONPATH"]}
    subprocess.Popen(
        [sys.executable, "-c", code],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
        env=environment,
        **quiet,
    )
    print(f"{number};cluster")


def serve(root: str, number: int) -> None:
    """Wait for a place, and run the script of a job."""
    place = Path(root)
    while jobs(place)[number]["state"] == "PENDING":
        before = [one for one in active(place) if one < number]  # first in, first out
        if len(before) < int((place / "slots").read_text()):
            break
        time.sleep(0.02)
    job = jobs(place)[number]
    if job["state"] != "PENDING":
        return
    _change(place, number, state="RUNNING")
    minutes = float(job["options"].get("time", 60))
    own = {
        "FAKE_SLURM": _mark(place, number),
        "SLURM_JOB_ID": str(number),
        "SLURM_JOB_END_TIME": str(int(time.time() + 60 * minutes)),
    }
    with open(job["options"]["output"].replace("%%", "%"), "ab") as output:
        process = subprocess.Popen(
            ["/bin/bash", "-s"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **own},
        )
        process.communicate(job["script"].encode())
    state = "COMPLETED" if process.returncode == 0 else "FAILED"
    if jobs(place)[number]["state"] == "RUNNING":
        _change(place, number, state=state)
    while processes_of(place, number):
        _signal(place, number, signal.SIGKILL)


def squeue(root: str, words: list[str]) -> None:
    if Path(root, "no-answer").exists():
        print("slurm_load_jobs error: Unable to contact slurm controller", file=sys.stderr)
        sys.exit(1)
    assert words == ["--me", "--noheader", "--states=all", "--format=%i|%j|%T"]
    for number, job in jobs(Path(root)).items():
        print(f"{number}|{job['name']}|{job['state']}")


def scancel(root: str, words: list[str]) -> None:
    if Path(root, "no-answer").exists():
        sys.exit(1)
    for number in map(int, words):
        if number in active(Path(root)):
            stop(Path(root), number, "CANCELLED")
    end = time.monotonic() + KILL_WAIT
    if os.fork():
        return
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    while time.monotonic() < end:
        time.sleep(0.05)
    for number in map(int, words):
        while processes_of(Path(root), number):
            _signal(Path(root), number, signal.SIGKILL)
    os._exit(0)
