"""A study of Gymnasium's CartPole, broken off, ends with the tables of an unbroken one."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import gymnasium
import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers import search_samples as samples
from helpers.compiled_once import compiled_once
from helpers.ended_processes import gone
from hpo.core.host import stage
from hpo.core.saved_policy import load_policy
from hpo.machine.workers import worker_count
from hpo.search.api import run as train
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import RunOptions, run
from hpo.search.state.progress import Observer
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Checkpoint
from hpo.studies.load import load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

TEXT = """\
name: hosted
env: {id: gym:CartPole-v1, max_episode_steps: 60}
env_steps: 512
seed: 1
fixed: {num_envs: 2, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8],
        normalise_rewards: false}
space:
  learning_rate: {min: 1e-4, max: 1e-1, distribution: log_uniform, default: 3e-4}
  gamma: {min: 0.9, max: 0.999, distribution: one_minus_log}
search: {method: random}
evaluation: {episodes: 2}
early_terminate: {type: asha, min: 128, eta: 2}
seeds: {per_config: 2}
confirm: {top_k: 1, choose: 2, report: 2}
population: {lanes: 4}
budget: {trials: 5}
eval_env: {max_episode_steps: 30}
"""


@pytest.fixture(scope="module", autouse=True)
def _compiled_once(quickly_compiled):
    with compiled_once():
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("study") / "hosted.yaml"
    path.write_text(TEXT)
    return load(path)


@pytest.fixture(scope="module")
def unbroken(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "hosted"
    results = run(study, folder, LocalFactory(study), (), RunOptions())
    assert results.state == "finished" and results.best is not None and results.best.confirmed
    assert {entry.state for entry in results.leaderboard} > {"finished"}
    return folder


def test_its_curves_roll_lengths_and_leave_out_a_rate_that_would_be_doubled(unbroken):
    curves = pq.read_table(unbroken / "curves.parquet").to_pydict()
    assert "learning_rate" in curves and "vf_learning_rate" not in curves
    phases = zip(curves["rollout_seconds"], curves["update_seconds"], strict=True)
    assert all(rollout > 0 and update > 0 for rollout, update in phases)
    ends = zip(curves["trial"], curves["stream"], curves["replicate"], strict=True)
    for key in set(ends):
        own = [
            i
            for i, row in enumerate(
                zip(curves["trial"], curves["stream"], curves["replicate"], strict=True)
            )
            if row == key
        ]
        known = sum(curves["rollout_seconds"][i] + curves["update_seconds"][i] for i in own)
        assert 0 < known < curves["elapsed_seconds"][own[-1]]
    rolled = [x for x in curves["episode_length_100"] if x == x]
    assert rolled and min(rolled) >= 1.0 and max(rolled) <= 60.0  # the time limit
    returns = [x for x in curves["episode_return_100"] if x == x]
    assert rolled == pytest.approx(returns)  # a reward of 1 a step


@pytest.fixture
def strays(monkeypatch):
    """Environments brought to where those of odd lanes are find themselves elsewhere."""
    copy_of_lane = stage.Stage.copy_of_lane

    def astray(self, lane, *given):
        with monkeypatch.context() as patched:
            if lane % 2:
                patched.setattr(stage, "stream_words", lambda key, use, index: f"other/{index}")
            return copy_of_lane(self, lane, *given)

    monkeypatch.setattr(stage.Stage, "copy_of_lane", astray)


def test_interrupted_gymnasium_study_resumes_bitwise(study, unbroken, tmp_path, strays):
    """Parts of it are kept on the way, which changes nothing; they say what began anew."""
    parts = ("losses", "gradients", "trajectories")
    study = replace(study, checkpoint=Checkpoint(1, policies_every=256, parts=parts))
    warnings, rounds = [], 0
    for chunks in (3, 11, 10**9):
        factory = LocalFactory(study, warn=warnings.append)
        results = run(study, tmp_path / "hosted", factory, [samples.CutAt(chunks)], RunOptions())
        rounds += results.state == "interrupted"
    assert results.state == "finished" and rounds == 2
    assert tables_equal(unbroken, tmp_path / "hosted") == [] and not warnings
    snapshots = sorted((tmp_path / "hosted" / "policies").glob("trial_*_steps/*/*"))
    assert {(path.parent.name, path.name) for path in snapshots} == {
        (seed, at) for seed in "01" for at in ("256", "512")
    }
    anew = [
        json.loads((path / "policy.json").read_text())["about"].get("trajectories_begun_anew", 0)
        for path in snapshots
    ]
    assert set(anew) == {0, 2}, "some of the best trial's two seeds were in an odd lane"
    for path in snapshots:
        found = {part: np.load(path / "parts" / f"{part}.npz") for part in parts}
        assert found["trajectories"]["observation"].shape == (16, 2, 4)
        assert np.all(found["trajectories"]["reward"] == 1.0)
        assert any(np.any(found["gradients"][name]) for name in found["gradients"].files)
        assert np.isfinite(found["losses"]["value_loss"])


def test_a_study_that_is_killed_goes_on_bit_for_bit_and_leaves_no_worker(unbroken, tmp_path):
    file, folder = tmp_path / "hosted.yaml", tmp_path / "hosted"
    file.write_text(TEXT.replace("lanes: 4", "lanes: 4, workers: 1"))
    code = (
        "from hpo.search.run import RunOptions, run; from pathlib import Path\n"
        "from hpo.search.lanes.local import LocalFactory; from hpo.studies.load import load\n"
        "study = load('hosted.yaml')\n"
        "run(study, Path('hosted'), LocalFactory(study), (), RunOptions(commit_seconds=0.0))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    end = time.monotonic() + 600
    while not _has_lanes(folder) and child.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert child.poll() is None, "killed while it runs"
    workers = _children(child.pid)
    child.kill()
    child.wait()
    assert len(workers) == 1
    study = load(file)
    assert run(study, folder, LocalFactory(study), (), RunOptions()).state == "finished"
    assert tables_equal(unbroken, folder) == []
    assert gone(workers)


class KillAt(Observer):
    """Kills a worker after some chunks, as the system does where memory runs out."""

    def __init__(self, chunks, workers):
        self.chunks, self.workers, self.seen = chunks, workers, 0

    def on_chunk(self, progress):
        self.seen += 1
        if self.seen in self.chunks:
            os.kill(self.workers.process_ids[-1], signal.SIGKILL)


def test_killed_workers_only_cause_warnings(study, unbroken, tmp_path):
    """While it searches and while it confirms; evaluations meet workers that are gone, too."""
    asked = replace(study, population=replace(study.population, workers=2))
    warnings = []
    factory = LocalFactory(asked, warn=warnings.append)
    watcher = KillAt((2, 3, 9, 20), factory._environment_workers)
    results = run(asked, tmp_path / "hosted", factory, [watcher], RunOptions())
    assert results.state == "finished" and watcher.seen > 20 and results.usage.failures == 0
    assert len(warnings) == 4 and all("SIGKILL" in line for line in warnings)
    assert tables_equal(unbroken, tmp_path / "hosted") == []


def test_signal_to_process_group_ends_study_cleanly(unbroken, study, tmp_path):
    """A batch system sends it to the whole group, twice at times."""
    (tmp_path / "hosted.yaml").write_text(TEXT.replace("lanes: 4", "lanes: 4, workers: 1"))
    code = "import sys; from hpo.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "run", "hosted.yaml", "--out", ".", "--json"]
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        words, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    assert child.stderr is not None
    said = ""
    while "new best" not in said:  # its workers have stepped, and evaluated
        line = child.stderr.readline()
        assert line, said
        said += line
    os.killpg(child.pid, signal.SIGTERM)
    os.killpg(child.pid, signal.SIGTERM)
    assert child.communicate()[0] is not None and child.returncode == 130
    results = run(study, tmp_path / "hosted", LocalFactory(study), (), RunOptions())
    assert results.state == "finished" and results.usage.failures == 0
    assert tables_equal(unbroken, tmp_path / "hosted") == []


FATAL = """\
import os
import signal

import gymnasium
import numpy as np


class Fatal(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fatal: float = 0.0, evaluates: bool = False):
        self.fatal, self.evaluates = fatal, evaluates

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.array([self.np_random.normal()], np.float32), {}

    def step(self, action):
        self.time += 1
        if self.time == 4 and self.fatal == 1.0:
            raise SystemExit(3)
        if self.time == 4 and self.fatal == 2.0:
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.time == 4 and self.fatal == 3.0 and self.evaluates:
            raise ValueError("a broken joint")
        seen = np.array([self.np_random.normal()], np.float32)
        return seen, float(action), False, self.time > 8, {}


gymnasium.register("HpoTestFatal-v0", entry_point=Fatal)
"""
FATAL_STUDY = """\
name: fatal
imports: [fatal.py]
env: {id: gym:HpoTestFatal-v0}
eval_env: {evaluates: true}
env_steps: 256
fixed: {num_envs: 2, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8]}
space: {env.fatal: {values: [0.0, 1.0, 2.0, 3.0]}}
search: {method: grid}
evaluation: {episodes: 2}
seeds: {per_config: 1}
confirm: null
early_terminate: null
population: {lanes: 4, workers: 1}
budget: {trials: 4, max_failures: 4}
"""


def test_failing_environment_fails_only_its_trial_with_reason(tmp_path):
    """By an exit, a segmentation fault twice over the same step, or in evaluation alone."""
    (tmp_path / "fatal.py").write_text(FATAL)
    (tmp_path / "fatal.yaml").write_text(FATAL_STUDY)
    warnings = []
    results = train(tmp_path / "fatal.yaml", tmp_path, warn=warnings.append)
    rows = {entry.params["env.fatal"]: entry for entry in results.leaderboard}
    assert [rows[value].state for value in (0.0, 1.0, 2.0, 3.0)] == ["finished"] + ["failed"] * 3
    with Journal(tmp_path / "fatal") as journal:
        errors = {row.params["env.fatal"]: row.error for row in journal.trials()}
    assert errors[0.0] == ""
    lines = [line.strip() for line in FATAL.splitlines()]
    first, second = (
        lines.index(text) + 1
        for text in ("raise SystemExit(3)", 'raise ValueError("a broken joint")')
    )
    assert errors[1.0].endswith(f"fatal.py:{first}: SystemExit: 3")
    assert errors[2.0] == (
        "the worker process that stepped its environment was ended by SIGSEGV, twice at the "
        "same step"
    )
    assert errors[3.0].endswith(f"fatal.py:{second}: ValueError: a broken joint")
    assert results.usage.failures == 3 and len(warnings) == 4  # three, and one about lanes
    assert warnings[0].startswith("env.fatal is searched and also used in evaluation")
    assert rows[0.0].value is not None


def _has_lanes(folder):
    """Return whether the last commit has lanes, from which the study goes on."""
    if not Journal.exists(folder):
        return False
    with Journal(folder) as journal:
        return journal.head().checkpoint is not None


def _children(parent):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                with open(f"/proc/{name}/cmdline") as file:
                    words = file.read()
            except OSError:
                continue
            if int(fields[1]) == parent and "serve_study" in words:
                found.append(int(name))
    return found


def test_saved_policy_plays_gymnasium_environment(unbroken):
    kept = sorted((unbroken / "policies").iterdir())
    saved = load_policy(kept[0])
    assert saved.plan.env.id == "gym:CartPole-v1"
    found = saved.evaluate(3, seed=1)
    assert found.returns.shape == (1, 3) and found.lengths.max() <= 30, "eval_env counts"


class Heavy(gymnasium.Env):
    """Of a package that nobody knows to be light."""


def test_worker_count_is_as_set_or_one_per_core_for_slow_steps(study):
    gymnasium.register("HpoTestHeavy-v0", entry_point=Heavy)
    heavy = replace(study, env=replace(study.env, id="gym:HpoTestHeavy-v0"))
    asked = replace(heavy, population=replace(study.population, workers=3))
    none = replace(heavy, population=replace(study.population, workers=0))
    counts = [worker_count(each, 8) for each in (study, heavy, asked, none)]
    assert counts == [0, 8, 3, 0] and worker_count(heavy, 1) == 0
