"""Reliability: events in a study's processes cost none of its results.

A study with environments in worker processes gets the signals that batch systems and closed
terminals send, loses workers, and has an environment that hangs; each time it ends with the tables
of an undisturbed study.
"""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .common import Outcome, call, hpo_command

_PATIENCE = 600.0
_INTERRUPTED = 130
_ENDED = (_INTERRUPTED, -signal.SIGTERM, -signal.SIGHUP)
"""Exit codes of an interrupted study: that of an orderly end, or the signal itself if there was
nothing new to commit."""
_GAVE_UP = "worker processes in a row ended before they stepped an environment"
ENVIRONMENT = '''\
"""walk.py: a walk to the right; a file `trouble` beside it says what happens once."""

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np

TROUBLE = str(Path(__file__).with_name("trouble"))


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, step_cost: float = 0.05):
        self.step_cost = step_cost

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.normal()
        return self._seen(), {}

    def step(self, action):
        if os.path.exists(TROUBLE):
            _trouble()
        self.time += 1
        moved = (2 * action - 1) * self.np_random.random()
        self.place += moved
        return self._seen(), moved - self.step_cost, self.place > 5.0, self.time >= 40, {}

    def _seen(self):
        return np.array([self.time / 40, self.place], np.float32)


def _trouble():
    try:
        os.rename(TROUBLE, f"{TROUBLE}-{os.getpid()}")
    except OSError:
        return  # another one has it
    while True:
        time.sleep(60.0)


gymnasium.register("hpo-acceptance/Walk-v0", entry_point=Walk)
'''
STUDY = """\
name: small
imports: [walk.py]
env: gym:hpo-acceptance/Walk-v0
env_steps: 6k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16]}
space:
  learning_rate: {min: 1e-4, max: 1e-1, distribution: log_uniform}
  env.step_cost: {min: 0.0, max: 0.2}
evaluation: {episodes: 4}
early_terminate: {type: asha, min: 1k, eta: 2}
seeds: {per_config: 2}
confirm: {top_k: 1, choose: 2, report: 2}
population: {lanes: 8, workers: 2, step_timeout: 4s}
budget: {trials: 16}
"""
SMALL = STUDY.replace("env_steps: 6k", "env_steps: 2k").replace("trials: 16", "trials: 4")


@dataclass
class Seen:
    """One disturbed study.

    Attributes:
        happened: number of disturbances.
        stopped: how often the study ended as `interrupted` and was resumed.
        wrong: faults.
    """

    happened: int = 0
    stopped: int = 0
    wrong: str = ""


class Going:
    """A study that runs in a separate session.

    Args:
        words: its command.
        folder: folder to work in.
        terminal: whether it has a separate terminal.
    """

    def __init__(self, words: list[str], folder: Path, terminal: bool = False):
        self.terminal: int | None = None
        if terminal:
            self.pid, self.terminal = pty.fork()
            if self.pid == 0:
                os.chdir(folder)
                os.execve(words[0], words, {**os.environ, "TERM": "xterm"})
            return
        nowhere = subprocess.DEVNULL
        self._said = Path(folder, "said.txt")
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                words, cwd=folder, stdout=nowhere, stderr=said, start_new_session=True
            )
        self.pid = self._process.pid

    def workers(self) -> list[int]:
        """Return the process ids of its workers."""
        found: list[int] = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                words = Path(f"/proc/{name}/cmdline").read_text()
            except OSError:
                continue
            if int(fields[1]) == self.pid and "serve_study" in words:
                found.append(int(name))
        return sorted(found)

    def await_workers(self) -> None:
        """Wait until it has workers, or has ended."""
        end = time.monotonic() + _PATIENCE
        while len(self.workers()) < 2 and self.code() is None:
            if time.monotonic() > end:
                raise RuntimeError(f"the study has no workers after {_PATIENCE:.0f} s")
            self._read()
            time.sleep(0.05)

    def pause(self, seconds: float) -> bool:
        """Wait; return whether it is still running."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.code() is None:
            self._read()
            time.sleep(0.02)
        return self.code() is None

    def hang_up(self) -> None:
        """Close its terminal."""
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None

    def end(self) -> int:
        """Wait until it has ended; return its exit code."""
        if not self.pause(_PATIENCE):
            self.hang_up()
            return self.code() or 0
        os.kill(self.pid, signal.SIGKILL)
        raise RuntimeError(f"the study has not ended within {_PATIENCE:.0f} s")

    def gave_up(self) -> bool:
        """Return whether it ended because worker after worker was killed as it started.

        It does so after three in a row: on a busy machine, kills come faster than workers start.
        """
        return self.code() == 1 and _GAVE_UP in self._said.read_text(errors="replace")

    def code(self) -> int | None:
        """Return its exit code; None while it is running."""
        if getattr(self, "_code", None) is None:
            if hasattr(self, "_process"):
                self._code = self._process.poll()
            else:
                done, status = os.waitpid(self.pid, os.WNOHANG)
                self._code = os.waitstatus_to_exitcode(status) if done else None
        return self._code

    def _read(self) -> None:
        """Read its output, like a terminal."""
        if self.terminal is not None:
            try:
                os.read(self.terminal, 65536)
            except OSError:  # it has ended
                self.hang_up()


Disturb = Callable[[Going, Path, random.Random, float], int]
"""Disturbs a running study, given its folder and a number of seconds to choose from; returns how
often it did."""


def processes(small: bool, work: Path) -> Outcome:
    """Disturb studies in each way, and compare them with an undisturbed one."""
    (work / "walk.py").write_text(ENVIRONMENT)
    file = work / "small.yaml"
    file.write_text(SMALL if small else STUDY)
    call(_words(file, work / "warm-up"), work)  # fills the compilation cache
    started = time.monotonic()
    call(_words(file, work / "unbroken"), work)
    whole, rng = time.monotonic() - started, random.Random(7)
    ways: dict[str, tuple[Disturb, bool, int]] = {
        "SIGTERM to the group": (_terminate, False, 3),
        "a closed terminal": (_hang_up, True, 3),
        "workers killed": (_kill_workers, False, 2),
        "an environment that hangs": (_hang, False, 2),
    }
    said, held = [], True
    for name, (disturb, terminal, times) in ways.items():
        seen = [
            _disturbed(file, work / f"{disturb.__name__}-{i}", disturb, terminal, rng, whole)
            for i in range(1 if small else times)
        ]
        wrong = [entry.wrong for entry in seen if entry.wrong]
        happened, stopped = sum(s.happened for s in seen), sum(s.stopped for s in seen)
        held = held and not wrong and happened > 0
        text = f"{name}: {happened} times in {len(seen)} studies"
        text += f", {stopped} times ended in good order" if stopped else ""
        said.append(text + (f"; WRONG: {wrong[:2]}" if wrong else ""))
    said.append("all tables equal" if held else "not as it should be")
    return Outcome(held, f"a study of {whole:.0f} s; " + "; ".join(said))


def _words(file: Path, out: Path) -> list[str]:
    return [*hpo_command(), "run", str(file), "--out", str(out)]


def _disturbed(
    file: Path, out: Path, disturb: Disturb, terminal: bool, rng: random.Random, whole: float
) -> Seen:
    """Disturb a study until it ends by itself or has been stopped twice; then let it finish."""
    from hpo.store import tables_equal

    seen, code, rounds = Seen(), _INTERRUPTED, 0
    while code in _ENDED and rounds < 2:
        rounds += 1
        going = Going(_words(file, out), out.parent, terminal)
        going.await_workers()
        seen.happened += disturb(going, out, rng, whole)
        code = going.end()
        if not terminal and going.gave_up():
            code = _INTERRUPTED  # the same command resumes it
        seen.stopped += code == _INTERRUPTED
    if code in _ENDED:
        call(_words(file, out), out.parent)
    elif code:
        seen.wrong = f"exit code {code}"
    differences = tables_equal(file.parent / "unbroken" / "small", out / "small")
    seen.wrong = seen.wrong or "; ".join(differences[:2])
    return seen


def _terminate(going: Going, out: Path, rng: random.Random, whole: float) -> int:
    """Send SIGTERM to all processes, sometimes twice, like a batch system."""
    if not going.pause(rng.uniform(0.0, whole / 3)):
        return 0
    for _ in range(rng.choice((1, 2))):
        os.killpg(going.pid, signal.SIGTERM)
    return 1


def _hang_up(going: Going, out: Path, rng: random.Random, whole: float) -> int:
    if not going.pause(rng.uniform(0.0, whole / 3)):
        return 0
    going.hang_up()
    return 1


def _kill_workers(going: Going, out: Path, rng: random.Random, whole: float) -> int:
    """Kill one of the workers at intervals, sometimes a second one right after it."""
    killed = 0
    while going.pause(rng.uniform(0.0, whole / 4)):
        for worker in rng.sample(there := going.workers(), k=min(len(there), rng.choice((1, 2)))):
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed += 1
    return killed


def _hang(going: Going, out: Path, rng: random.Random, whole: float) -> int:
    """Make one of the environments hang, in whichever step comes first."""
    trouble = out.parent / "trouble"
    if going.pause(rng.uniform(0.0, whole / 3)):
        trouble.touch()
    going.end()
    trouble.unlink(missing_ok=True)
    marks = list(out.parent.glob("trouble-*"))
    for mark in marks:
        mark.unlink()
    return len(marks)
