"""Runs commands as SLURM jobs, using sbatch, squeue, scancel and shared files.

Every process is a job. On the job's node, this module runs as a script. It starts the command,
pauses it if the head requests that, and writes its exit code. The study's folder must be on a disk
that all nodes share. Small files that exist from the start are rewritten in place, because network
disks show such changes soonest. Jobs that still run after the head has ended are found again by
their names.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, SearchError
from ..files.atomic_files import make_folder, read_text, write_text
from .processes import STDERR, Launch, StartedProcess, Wish, follow, last_lines, thread_settings

if TYPE_CHECKING:  # not on nodes, where every job starts this module
    from ..studies.execution_spec import Executor, Processes

_JOB, _WISH, _STATE, _LOG = "job.json", "job.wish", "job.state", "job.log"
_PROGRAMS = ("sbatch", "squeue", "scancel")
_ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
          "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")  # fmt: skip
_LATE = 5.0  # seconds by which files may arrive after the end of a job
_TRIES = 20  # of sbatch, once it has accepted a first job
_ANSWER = 60.0  # seconds that a SLURM command may take
_GLANCE = 0.5  # seconds between two reads of a file on the shared disk, here and on the node
_MARGIN = 20.0  # seconds between SIGTERM plus `grace` and a job's time limit
_HALTED = 3600.0  # seconds that a paused job waits for a head that may be dead
_TIME_LIMIT = "hpo: the job reached its time limit; raise executor.time, or set resume"


def _run_slurm(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a SLURM command; a timeout counts as a failure."""
    try:
        return subprocess.run(
            words, input=text, capture_output=True, text=True, timeout=_ANSWER, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"no answer within {_ANSWER:.0f} s")


@dataclass
class SlurmJob:
    """A process that runs as a job; see `StartedProcess`."""

    jobs: SlurmJobs = field(repr=False)
    folder: Path
    token: str  # last part of the job's name
    number: str = ""  # job id; "" until sbatch has accepted it
    exit_code: int | None = None
    lost: str = ""
    is_waiting: bool = True
    is_paused: bool = False
    missing_since: float = math.inf  # since when squeue does not list it
    is_cancelled: bool = False
    _looked: float = -math.inf

    def look(self) -> int | None:
        if self.exit_code is None:
            self.jobs.poll()
            if time.monotonic() - self._looked > _GLANCE:
                self._looked = time.monotonic()
                self._read_state()
        return self.exit_code

    def _read_state(self) -> None:
        """Read the state written by the job's node, and compare it with squeue."""
        state = _state_of(self.folder, self.token)
        self.is_waiting = not state
        if _has_ended(state):
            if state["stopped"] and not self.is_cancelled and not self._ran_out_of_time(state):
                self.lost = f"SLURM stopped job {self.number}"
            self._note_exit(int(state["exit_code"]))
        elif time.monotonic() - self.missing_since > _LATE:
            if not self.is_cancelled:
                why = last_lines(self.folder / _LOG, most=1) or "squeue does not list it"
                self.lost = f"job {self.number} is gone: {why}"
            self._note_exit(-signal.SIGKILL)

    def _ran_out_of_time(self, state: dict[str, Any]) -> bool:
        """Return whether the job ran out of time, and would do so again after a restart."""
        return bool(state["time_limit"]) and not self.jobs.resumes

    def _note_exit(self, code: int) -> None:
        self.exit_code = code
        self.jobs.forget(self)

    def note_state(self, number: str, state: str) -> None:
        """Record squeue's answer about the job; ("", "") if it is not listed."""
        if number and state not in _ENDED:
            self.number, self.missing_since = number, math.inf
        elif self.number:
            self.missing_since = min(self.missing_since, time.monotonic())

    def pause(self) -> None:
        if not self.is_paused and self.exit_code is None:
            self.is_paused = True
            _rewrite_file(self.folder / _WISH, "halt")

    def go_on(self) -> None:
        if self.is_paused:
            self.is_paused = False
            _rewrite_file(self.folder / _WISH, "run")

    def ask_to_end(self, grace: float) -> None:
        """Cancel the job: its script gets SIGTERM, and ends the command within `grace` seconds."""
        if self.exit_code is None and not self.is_cancelled:
            self.is_cancelled = True
            self.jobs.cancel(self)

    def end(self, grace: float = 0.0) -> None:
        self.ask_to_end(grace)
        while self.look() is None:
            time.sleep(0.02)

    def memory(self) -> int:
        return 0


class SlurmJobs:
    """The jobs of a study; see `ProcessExecutor`."""

    def __init__(self, executor: Executor, settings: Processes, resumes: bool):
        self._executor, self._settings, self.resumes = executor, settings, resumes
        self._prefix = ""
        self._queued: dict[str, tuple[str, str]] = {}  # token -> job id and state, of all jobs
        self._mine: dict[str, SlurmJob] = {}  # jobs that have not ended
        self._unsent: set[str] = set()  # tokens that sbatch has rejected so far
        self._polled = -math.inf
        self._has_accepted, self._refusals = False, 0

    @property
    def at_once(self) -> int:
        return self._settings.at_once or 1

    def check(self, program: str, cwd: Path) -> None:
        gone = [name for name in _PROGRAMS if shutil.which(name) is None]
        if gone:
            raise ConfigError(
                f"executor.type is slurm, but {gone[0]} was not found here; run hpo on a "
                "login node of the cluster, or set executor: {type: local}"
            )

    def begin(self, folder: Path) -> None:
        """Find the jobs from an earlier start; jobs that no run needs are ended with the study."""
        self._prefix = f"hpo-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}-"
        if not self._ask_squeue():
            raise SearchError("squeue does not answer; try again once SLURM is available")

    def find(self, folder: Path) -> StartedProcess | None:
        job = _read_json(folder / _JOB)
        token = str(job.get("token", ""))
        said = _state_of(folder, token)
        is_over = _has_ended(said) and not said["stopped"]
        number, state = self._queued.get(token, ("", ""))
        if not is_over and (not number or state in _ENDED):
            return None
        found = SlurmJob(self, folder, token)
        found.note_state(number, state)
        found.is_paused = _text_or_empty(folder / _WISH) == "halt"
        self._mine[token] = found
        return found

    def start(self, launch: Launch, lane: int) -> StartedProcess:
        token = uuid.uuid4().hex[:16]
        folder, settings = launch.folder, self._settings
        make_folder(folder)
        share = thread_settings(settings.threads or 1)
        if settings.gpus == 0:
            share["CUDA_VISIBLE_DEVICES"] = ""
        data = {
            "token": token,
            "argv": list(launch.argv),
            "settings": {**share, **launch.settings},
            "cwd": str(launch.cwd),
            "grace": settings.grace,
            "halted": settings.timeout or _HALTED,
        }
        write_text(folder / _JOB, json.dumps(data, indent=2) + "\n")
        _rewrite_file(folder / _WISH, "run")
        _rewrite_file(folder / _STATE, "")
        job = SlurmJob(self, folder, token)
        self._mine[token] = job
        self._unsent.add(token)
        self._submit_job(job)
        return job

    def _submit_job(self, job: SlurmJob) -> None:
        """Submit a job to SLURM; if SLURM rejects it, `poll` submits it again."""
        answer = _run_slurm(
            "sbatch", *self._sbatch_options(job), text=self._batch_script(job.folder)
        )
        if answer.returncode == 0:
            number = answer.stdout.strip().splitlines()[-1].partition(";")[0]
            job.note_state(number, "PENDING")
            self._has_accepted, self._refusals = True, 0
            self._unsent.discard(job.token)
            return
        self._refusals += 1
        if not self._has_accepted or self._refusals >= _TRIES:
            said = (answer.stderr.strip().splitlines() or ["no reason"])[-1]
            raise SearchError(
                f"{said}; correct the executor settings, and run the same command again"
            )

    def _sbatch_options(self, job: SlurmJob) -> list[str]:
        executor, settings = self._executor, self._settings
        grace = math.ceil(settings.grace + _MARGIN)
        given: dict[str, Any] = {
            "job-name": self._prefix + job.token,
            "output": str(job.folder / _LOG).replace("%", "%%"),
            "open-mode": "append",
            "cpus-per-task": settings.threads or 1,
            "signal": f"B:TERM@{grace}",
        }
        if executor.partition is not None:
            given["partition"] = executor.partition
        if executor.time is not None:
            given["time"] = math.ceil(executor.time / 60)
        if settings.gpus:
            given["gpus"] = int(settings.gpus)
        given |= executor.options
        flags = [f"--{name}={value}" for name, value in given.items() if value is not True]
        flags += [f"--{name}" for name, value in given.items() if value is True]
        return ["--parsable", "--no-requeue", *flags]

    def _batch_script(self, folder: Path) -> str:
        runner = shlex.join([sys.executable, "-m", __name__, str(folder)])
        lines = ["#!/bin/bash"]
        if self._executor.setup is not None:
            lines.append(self._executor.setup)
        return "\n".join([*lines, f"exec {runner}\n"])

    def poll(self) -> None:
        """Query squeue about all jobs, once per polling interval; resubmit rejected jobs."""
        if time.monotonic() - self._polled < self._executor.poll:
            return
        if not self._mine or not self._ask_squeue():
            return
        for job in self._mine.values():
            job.note_state(*self._queued.get(job.token, ("", "")))
        doomed = [job.number for job in self._mine.values() if job.is_cancelled and job.number]
        if doomed:  # in case SLURM missed it
            _run_slurm("scancel", *doomed)
        for token in list(self._unsent):
            job = self._mine[token]
            if job.number:  # sbatch failed although SLURM had accepted the job
                self._unsent.discard(token)
            else:
                self._submit_job(job)

    def _ask_squeue(self) -> bool:
        """Read the study's jobs from squeue; return whether squeue answered."""
        self._polled = time.monotonic()
        answer = _run_slurm("squeue", "--me", "--noheader", "--states=all", "--format=%i|%j|%T")
        if answer.returncode != 0:
            return False
        rows = (line.strip().split("|") for line in answer.stdout.splitlines())
        self._queued = {
            row[1].removeprefix(self._prefix): (row[0], row[2])
            for row in rows
            if len(row) == 3 and row[1].startswith(self._prefix)
        }
        return True

    def cancel(self, job: SlurmJob) -> None:
        if job.token in self._unsent:
            self._unsent.discard(job.token)
            job.missing_since = -math.inf  # no more to wait for
        elif job.number:
            _run_slurm("scancel", job.number)

    def forget(self, job: SlurmJob) -> None:
        self._mine.pop(job.token, None)

    def close(self) -> None:
        """Cancel the study's remaining jobs."""
        if not self._prefix or not self._ask_squeue():
            return
        left = [number for number, state in self._queued.values() if state not in _ENDED]
        if left:
            _run_slurm("scancel", *left)


def _rewrite_file(path: Path, text: str) -> None:
    """Rewrite a file in place, so that readers on a network disk see the change on opening it."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _text_or_empty(path: Path) -> str:
    try:
        return read_text(path).strip()
    except OSError:
        return ""


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} if the file is missing or incomplete."""
    try:
        return dict(json.loads(_text_or_empty(path) or "{}"))
    except ValueError:
        return {}


def _state_of(folder: Path, token: str) -> dict[str, Any]:
    """Read the state written by a job's node; {} before the node has started the command."""
    state = _read_json(folder / _STATE)
    if not token or state.get("token") != token:
        return {}
    return state


def _has_ended(state: dict[str, Any]) -> bool:
    return state.get("exit_code") is not None


# ---------------------------------------------------------------------- on the node


class _Head:
    """Merges the head's pause requests with SIGTERM from SLURM."""

    def __init__(self, folder: Path, grace: float, halted: float):
        self._folder, self._grace, self._most = folder, grace, halted
        self.is_stopped, self._halted_since = False, math.inf
        signal.signal(signal.SIGTERM, self._note_stop)

    def _note_stop(self, number: int, frame: object) -> None:
        self.is_stopped = True

    def wish(self) -> Wish:
        word = _text_or_empty(self._folder / _WISH)
        now = time.monotonic()
        if word == "halt":
            self._halted_since = min(self._halted_since, now)
        elif word == "run":
            self._halted_since = math.inf
        if now - self._halted_since > self._most:  # the head is dead
            self.is_stopped = True
        grace = None
        if self.is_stopped:
            grace = self._grace
        return Wish(halted=self._halted_since < math.inf, grace=grace)


def _is_out_of_time(grace: float) -> bool:
    """Return whether the job's time limit is near; SLURM may be up to a minute early."""
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    return end.isdigit() and time.time() > int(end) - 60.0 - grace - _MARGIN


def run_job(folder: Path) -> None:
    """Run a job's command on its node, and record how it ended."""
    job = _read_json(folder / _JOB)
    head = _Head(folder, job["grace"], job["halted"])
    said: dict[str, Any] = {"token": job["token"], "exit_code": None}
    _rewrite_file(folder / _STATE, json.dumps(said) + "\n")
    launch = Launch(job["argv"], job["settings"], Path(job["cwd"]), folder)
    code = follow(launch, head.wish, pause=min(_GLANCE, 0.1))
    is_late = head.is_stopped and _is_out_of_time(job["grace"])
    if is_late:
        with (folder / STDERR).open("a", encoding="utf-8") as file:
            print(_TIME_LIMIT, file=file)
    said |= {"exit_code": code, "stopped": head.is_stopped, "time_limit": is_late}
    _rewrite_file(folder / _STATE, json.dumps(said) + "\n")


if __name__ == "__main__":
    run_job(Path(sys.argv[1]))
