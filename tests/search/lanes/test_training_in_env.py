"""Custom trainings in the environment that a study names, and `hpo eval` of what they keep."""

import csv
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from hpo.cli import main
from hpo.core.checkpoint import restore_lane
from hpo.core.envs import contract
from hpo.core.evaluation import EVALUATION, reset_keys, step_words
from hpo.core.lane_state import lane_key, use_key
from hpo.core.saved_policy import HELD_OUT
from hpo.core.training_program import SavedTraining, shapes_of_lane
from hpo.errors import HpoError
from hpo.search.lanes.custom_training import TrainingFactory
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import run
from hpo.search.study_estimate import preview
from hpo.store.journal import Journal
from hpo.store.rows import Stream
from hpo.studies.load import load, recorded

TRAINING = '''
import jax
import jax.numpy as jnp
import hpo


class Linear(hpo.Training):
    """Acts by random linear values; an update moves them and counts an env step."""

    env = hpo.environment()
    scale = hpo.traced(1.0, "of the values", low=0.0)

    def setup(self):
        self.steps_per_update = 10
        self.size = sum(leaf.size for leaf in jax.tree.leaves(self.env.observation_struct))

    def init(self, key, h):
        key, first = jax.random.split(key)
        return {"key": key, "w": jax.random.normal(first, (self.size, self.env.action_space.n))}

    def update(self, state, h):
        key, draw, begin, step = jax.random.split(state["key"], 4)
        env, _ = self.env.reset(begin, h.env_params)
        after = self.env.step(step, env, jnp.int32(0), h.env_params)
        w = state["w"] + 0.1 * h.scale * jax.random.normal(draw, state["w"].shape)
        return {"key": key, "w": w}, {"reward": after.reward}

    def act(self, state, h, observation, mask, key):
        leaves = [jnp.float32(leaf).ravel() for leaf in jax.tree.leaves(observation)]
        values = jnp.concatenate(leaves) @ state["w"] + jax.random.gumbel(key)
        return (values if mask is None else jnp.where(mask, values, -jnp.inf)).argmax()
'''
STUDY = """
algorithm: linear.py:Linear
env_steps: 60
space: {scale: {min: 0.1, max: 10, distribution: log_uniform}}
search: {method: random}
population: {lanes: 2}
seeds: {per_config: 2}
budget: {trials: 4}
checkpoint: {keep_best: 4}
"""
POLE = "env: {id: CartPole-v1, max_steps_in_episode: 60, gravity: 12}\nevaluation: {episodes: 3}\n"
NETWORK = """
env: {id: rsa, topology: 5node, slots: 16, k: 2, load: 20, continuous: true, warmup_requests: 10}
metric: {name: eval/service_blocking_probability, goal: minimize}
evaluation: {episodes: 3, steps: 40}
baselines: [ksp_ff]
"""


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


def written(folder, more, training=TRAINING):
    (folder / "linear.py").write_text(training)
    (folder / "study.yaml").write_text(STUDY + more)
    return load(folder / "study.yaml")


@pytest.fixture(scope="module", params=["pole", "network"])
def ran(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with jax.numpy_dtype_promotion("standard"):
        study = written(folder, {"pole": POLE, "network": NETWORK}[request.param])
        run(study, folder / "result", TrainingFactory(study), (), samples.quick())
    return study, folder / "result"


def a_kept(folder):
    with Journal(folder) as journal:
        trial = next(row.trial for row in journal.trials() if row.state == "finished")
        return folder / f"policies/trial_{trial}", list(episodes_in(journal, trial))


def test_saved_lane_evaluates_as_in_the_study(ran):
    study, folder = ran
    kept, rows = a_kept(folder)
    saved = SavedTraining.read(kept, study.algorithm.made)
    like = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes_of_lane(saved.lane))
    key = restore_lane(kept, like).key
    again = saved.lane.episodes(saved.leaves, saved.hypers, jnp.asarray(key), 3)
    about = json.loads((kept / "training.json").read_text())["about"]
    own = [row for row in rows if row.replicate == about["replicate"]][-3:]
    assert [row.episode for row in own] == [0, 1, 2]
    for at, row in enumerate(own):
        assert row.episode_return == float(again["return"][at])
        for name in set(row.metrics) & set(again):
            assert np.float32(row.metrics[name]) == np.float32(again[name][at]), name


def test_evaluation_equals_plain_step_loop(ran):
    """The slow reference: one step after the other, without the engine's evaluation."""
    study, folder = ran
    saved = SavedTraining.read(a_kept(folder)[0], study.algorithm.made)
    env, h = saved.lane.training.env, saved.lane.hypers(saved.hypers)
    state = saved.lane.state(saved.leaves, saved.hypers)
    steps = study.evaluation.steps
    first = 0 if steps is None else env.warmup_steps
    last = 60 if steps is None else first + steps
    raw = lane_key(jnp.int32(5), jnp.int32(HELD_OUT), jnp.int32(0))
    found = saved.evaluate(2, seed=5)
    act = jax.jit(partial(saved.lane.training.act, state, h))
    reset, step_of = jax.jit(env.reset), jax.jit(env.step)
    masks = jax.jit(partial(contract.mask_all, env))
    for episode in range(2):
        place, seen = reset(reset_keys(raw, 2)[episode], h.env_params)
        total = length = 0
        for at in range(last):
            words = step_words(raw, jnp.int32(at), 2)[episode]
            mask = masks(jax.tree.map(lambda x: x[None], place), h.env_params)
            key = jax.random.split(
                jax.random.fold_in(use_key(raw, EVALUATION, jnp.int32(at) + 1), 1), 2
            )[episode]
            own = None if mask is None else mask[0]
            action = act(seen, own, key)
            step = step_of(jax.random.wrap_key_data(words), place, action, h.env_params)
            place, seen = step.state, step.observation
            if at >= first:
                total, length = total + float(step.reward), length + 1
            if steps is None and (step.terminated or step.truncated):
                break
        assert length == found["length"][episode]
        assert total == pytest.approx(found["return"][episode], rel=1e-5)


def test_a_trace_has_the_returns_of_the_evaluation(ran, tmp_path, capsys):
    folder = ran[1]
    kept, file = a_kept(folder)[0], str(folder.parent / "linear.py")
    words = ["eval", str(kept), "--import", file, "--episodes", "2", "--seed", "3"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main([*words, "--trace", str(tmp_path / "t.csv")]) == 0
    with (tmp_path / "t.csv").open() as rows:
        sums = [0.0, 0.0]
        for row in csv.DictReader(rows):
            sums[int(row["episode"])] += float(row["reward"])
    assert sums == pytest.approx(told["returns"], rel=1e-5)
    assert told["algorithm"] == "linear.py:Linear"


def test_heuristics_serve_the_same_requests_as_for_ppo(tmp_path):
    study = written(tmp_path, NETWORK)
    run(study, tmp_path / "result", TrainingFactory(study), (), samples.quick())
    found = pq.read_table(tmp_path / "result/baselines.parquet").to_pylist()
    ppo = (STUDY + NETWORK).replace("algorithm: linear.py:Linear\n", "")
    ppo = ppo.replace(
        "space: {scale: {min: 0.1, max: 10", "space: {learning_rate: {min: 0.1, max: 1"
    )
    (tmp_path / "ppo.yaml").write_text(
        ppo.replace("env_steps: 60", "env_steps: 64")
        + "fixed: {num_envs: 4, rollout_length: 8, num_minibatches: 1}\n"
    )
    of_ppo = load(tmp_path / "ppo.yaml")
    factory = LocalFactory(of_ppo)
    there = factory.baseline("ksp_ff", factory.resolve(of_ppo.default()), [(Stream.SEARCH, 0)])[0]
    [here] = [row for row in found if row["stream"] == "search" and row["replicate"] == 0]
    mean = np.mean(there.metrics["service_blocking_probability"])
    assert here["service_blocking_probability"] == pytest.approx(float(mean))


def test_the_record_names_the_environment(ran):
    study, folder = ran
    again = recorded((folder / "study.resolved.yaml").read_text())
    assert again.algorithm == study.algorithm and again.algorithm.takes_env
    assert again.env == study.env


@pytest.mark.parametrize(
    ("more", "training", "says"),
    [
        ("env: gym:CartPole-v1\n", TRAINING, "runs outside compiled programs"),
        ("env: [CartPole-v1, Acrobot-v1]\n", TRAINING, "trains in a single environment"),
        ("", TRAINING, "env"),
        (POLE, TRAINING.replace("    env = hpo.environment()\n", ""), "remove env"),
        (
            POLE + "eval_env: {gravity: 9}\n",
            TRAINING,
            "eval_env does not apply to Linear, which is evaluated in",
        ),
        (
            POLE,
            TRAINING.replace('state["w"] + jax.random', 'state["v"] + jax.random'),
            r"Linear.act: .*linear.py:3\d",
        ),
        (POLE, TRAINING.replace("scale = hpo", "env_params = hpo"), "cannot be a hyperparameter"),
        (POLE, TRAINING.replace("def act(", "def acts_not("), "Linear has no evaluate; define it"),
        ("", TRAINING.replace("    env = hpo.environment()\n", ""), "Linear has no evaluate"),
        (POLE + "fixed: {env.gravity: 9}\n", TRAINING, "write env.gravity under `env`"),
    ],
)
def test_invalid_training_in_env_is_refused(tmp_path, more, training, says):
    with pytest.raises(HpoError, match=says):
        preview(written(tmp_path, more, training))


def test_an_environment_of_several_agents_is_refused(tmp_path):
    with pytest.raises(HpoError, match="has 3 agents; Linear controls one"):
        preview(written(tmp_path, "env: {id: navigators, agents: 3}\n"))


def test_eval_suggests_missing_import(ran, tmp_path, capsys):
    kept = str(a_kept(ran[1])[0])
    assert main(["eval", kept]) == 2
    assert f"hpo eval {kept} --import linear.py" in capsys.readouterr().err
    file = str(ran[1].parent / "linear.py")
    assert main(["eval", kept, "--import", file, "--sample"]) == 2
    assert "--sample works only for PPO" in capsys.readouterr().err


def test_imported_environment_is_known_to_later_commands(tmp_path, capsys, monkeypatch):
    """Each command is a process of its own, to which nothing is registered yet."""
    monkeypatch.chdir(tmp_path)
    own = "class Own(CartPole):\n    pass\n"
    file = "from gymnax.environments.classic_control.cartpole import CartPole\n\n\n"
    (tmp_path / "linear_own_env.py").write_text(file + own)
    more = "imports: [linear_own_env.py]\nevaluation: {episodes: 2, every: 20}\n"
    written(tmp_path, more + "env: {id: 'gymnax:linear_own_env:Own', max_steps_in_episode: 60}\n")

    def said(*words):
        found = subprocess.run(
            [sys.executable, "-m", "hpo", *words], capture_output=True, text=True
        )
        assert found.returncode == 0, found.stderr
        return found.stdout + found.stderr

    said("run", "study.yaml", "--quiet")
    assert "asha eta=2" in said("what-if")
    last = said("best", "--export", "kept").splitlines()[-1]
    assert last == "try: hpo eval kept --import linear_own_env.py --import linear.py"
    assert "2 episodes" in said(*last.removeprefix("try: hpo ").split(), "--episodes", "2")


def test_eval_reads_a_class_in_a_subfolder(tmp_path, capsys):
    """Its episodes have no lengths, which are then not known."""
    own = TRAINING.replace(
        "def act(self, state, h, observation, mask, key)",
        "def unused(self, state, h, observation, mask, key)",
    )
    own += '\n    def evaluate(self, state, h, key):\n        return {"return": h.scale}\n'
    (tmp_path / "code").mkdir()
    (tmp_path / "code/inside.py").write_text(own)
    file = tmp_path / "study.yaml"
    file.write_text((STUDY + POLE).replace("linear.py:", "code/inside.py:"))
    study = load(file)
    run(study, tmp_path / "result", TrainingFactory(study), (), samples.quick())
    kept = str(a_kept(tmp_path / "result")[0])
    assert main(["eval", kept]) == 2
    assert "--import code/inside.py" in capsys.readouterr().err
    words = ["eval", kept, "--import", str(tmp_path / "code/inside.py"), "--json"]
    assert main([*words, "--episodes", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["return_mean"] > 0.0 and told["length_mean"] is None


def test_a_class_with_its_own_evaluate_has_no_trace(tmp_path, capsys):
    own = TRAINING.replace(
        "def act(self, state, h, observation, mask, key)",
        "def unused(self, state, h, observation, mask, key)",
    )
    own += '\n    def evaluate(self, state, h, key):\n        return {"size": h.scale}\n'
    more = POLE + "metric: {name: eval/size}\n"
    study = written(tmp_path, more, own)
    run(study, tmp_path / "result", TrainingFactory(study), (), samples.quick())
    kept = str(a_kept(tmp_path / "result")[0])
    words = ["eval", kept, "--import", str(tmp_path / "linear.py")]
    assert main([*words, "--trace", str(tmp_path / "t.csv")]) == 2
    assert "recording needs a class that sets env = hpo.environment()" in capsys.readouterr().err
    assert not Path(tmp_path / "t.csv").exists()
    assert main([*words, "--episodes", "2"]) == 0
    assert "size" in capsys.readouterr().out
