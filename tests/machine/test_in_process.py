"""Calls of environments in this process: one that takes too long is interrupted, or ends it."""

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest

from hpo.core.host.batch import Opening, code_of
from hpo.environments.via_gymnasium import make
from hpo.machine.in_process import InProcess
from hpo.machine.workers import Workers, workers_of
from hpo.studies.load import loads

ID = "hpo-test/Stuck-v0"
GO_ON = threading.Event()


def sleeps():
    time.sleep(10**6)


def is_busy():
    while True:
        with contextlib.suppress(Exception):  # as an environment that forgives everything
            sum(range(1000))


def waits_for_an_event():
    GO_ON.wait()


WAYS = {"sleeps": sleeps, "is_busy": is_busy, "waits_for_an_event": waits_for_an_event}


class Stuck(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, way=None):
        self.way = way

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self.way is not None:
            WAYS[self.way]()
        return np.ones(2, np.float32), 1.0, False, False, {}


@pytest.fixture
def batch_of(monkeypatch):
    gymnasium.registry.pop(ID, None)
    gymnasium.register(ID, entry_point=Stuck, disable_env_checker=True)
    warned, left = [], []

    def leave(code):
        left.append(code)
        GO_ON.set()

    def made(limit):
        own = InProcess(limit, 30.0, warned.append, leave)
        batch = own.batch(f"gym:{ID}", code_of(f"gym:{ID}", make(f"gym:{ID}", {})), 2)
        batch.own = own  # which lives as long
        return batch

    GO_ON.clear()
    yield made, warned, left
    gymnasium.registry.pop(ID, None)


def stepped(batch, way):
    batch.open([Opening(0, {"way": way}, "a"), Opening(1, {}, "b")])
    batch.arrays.active[:] = True
    return batch.step(restart=True)


@pytest.mark.parametrize("way", ["sleeps", "is_busy"])
def test_env_call_timeout_fails_only_that_env(batch_of, way):
    made, _, left = batch_of
    batch = made(0.2)
    outcome = stepped(batch, way)
    assert [*outcome.failed] == [0] and not outcome.lost
    said = outcome.failed[0]
    assert "test_in_process.py:" in said
    assert "TookTooLong: no answer for 0.2 s (population.step_timeout)" in said
    assert batch.arrays.reward[1] == 1.0 and left == []
    batch.open([Opening(0, {}, "a")])
    assert not batch.step(restart=True)  # and it steps on


def test_uninterruptible_env_call_exits_the_process(batch_of):
    made, warned, left = batch_of
    thread = threading.Thread(target=lambda: stepped(made(0.2), "waits_for_an_event"))
    thread.start()  # no signal interrupts another thread
    thread.join()
    assert left[0] == 1
    said = warned[0]
    assert f"gym:{ID} has not answered for" in said and "(population.step_timeout)" in said
    assert "everything committed is kept. With population.workers: 1, only" in said
    assert " in threading.py:" in said or " in test_in_process.py:" in said


def test_slow_env_call_warns_once_per_call(batch_of):
    made, warned, left = batch_of
    batch = made(1e6)
    for call in (7, 8):
        batch.arrays.inside[0] = call
        for seconds in (1.0, 25.0, 25.0):  # the first look finds the call
            batch.own.look(seconds)
    assert len(warned) == 2 and left == []
    assert all("its call will be interrupted after 1e+06 s" in said for said in warned)


STUDY = """
env: gym:CartPole-v1
env_steps: 4k
population: {%s}
"""


@pytest.mark.parametrize(
    ("population", "limits"),
    [
        ("workers: 0", (120.0, 300.0)),
        ("workers: 0, step_timeout: 9s", (9.0, 9.0)),
        ("workers: 0, step_timeout: 0", (math.inf, math.inf)),
        ("step_timeout: auto", (120.0, 300.0)),
    ],
)
def test_in_process_envs_have_the_same_timeouts_as_workers(population, limits):
    own = workers_of(loads(STUDY % population), cores=2)
    assert isinstance(own, InProcess)
    assert (own.limit, own.opening_limit) == limits
    assert isinstance(workers_of(loads(STUDY % "step_timeout: 9s"), cores=2), Workers)


HANGS = """
import pathlib, time

import gymnasium
import numpy as np


class Hangs(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.at = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.at += 1
        if self.at == 20:
            pathlib.Path("hangs").touch()
            time.sleep(10**6)
        return np.zeros(2, np.float32), 1.0, self.at % 8 == 0, False, {}


gymnasium.register("hpo-test/Hangs-v0", entry_point=Hangs)
"""
HANGING = """
env: gym:hpo-test/Hangs-v0
imports: [hangs.py]
env_steps: 128
confirm: null
fixed: {num_envs: 2, rollout_length: 16, num_minibatches: 1, hidden_sizes: [8]}
evaluation: {episodes: 2}
seeds: {per_config: 1}
budget: {trials: 1}
population: {lanes: 1, workers: 0, step_timeout: %s}
"""


def start(folder, limit):
    (folder / "hangs.py").write_text(HANGS)
    (folder / "study.yaml").write_text(HANGING % limit)
    command = [sys.executable, "-m", "hpo", "run", "study.yaml"]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_hanging_env_fails_its_trial_with_file_and_line(tmp_path):
    _, errors = start(tmp_path, "1s").communicate()
    assert "trial 0 failed" in errors
    assert "hangs.py:23: TookTooLong: no answer for 1 s (population.step_timeout)" in errors


def test_repeated_sigterm_stops_a_study_with_a_hanging_env(tmp_path):
    running = start(tmp_path, "0")
    while not (tmp_path / "hangs").exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.1)
    for pause in (0.5, 0.5, 2.5):  # within two seconds, they are one request
        os.kill(running.pid, signal.SIGTERM)
        time.sleep(pause)
        assert running.poll() is None, running.communicate()
    os.kill(running.pid, signal.SIGTERM)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 130
    assert "Resume with" in said
