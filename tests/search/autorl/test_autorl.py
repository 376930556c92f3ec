"""PPO runs as an environment: knobs changed in mid-run, partial resets, checkpoints of parts.

The program is that of test_replay.py, so that only one of them compiles it.
"""

import dataclasses
import re
from contextlib import nullcontext

import jax
import numpy as np
import pytest

import hpo
from helpers.doc_blocks import block
from hpo.core.lane_state import LaneState
from hpo.errors import ConfigError, StoreError
from hpo.search.autorl.autorl_env import FEATURES, PARTS
from hpo.search.lanes.contract import Refill
from hpo.store import Stream
from hpo.studies import algorithm

pytestmark = pytest.mark.usefixtures("quickly_compiled")

STUDY = {
    "env": "CartPole-v1",
    "env_steps": 2048,
    "fixed": {
        "num_envs": 4,
        "rollout_length": 16,
        "num_minibatches": 2,
        "hidden_sizes": [8],
        "normalise_observations": True,
    },
    "space": {
        "learning_rate": {
            "min": 1e-5,
            "max": 1e-1,
            "distribution": "log_uniform",
            "default": 1e-3,
        },
        "ent_coef": {"min": 0.0, "max": 0.1, "default": 0.01},
    },
    "evaluation": {"episodes": 4},
}


@pytest.fixture(scope="module")
def env():
    return hpo.AutoRLEnv(STUDY, runs=3, steps=4)


def test_autorl_episode_has_given_steps_and_feature_names(env):
    observation, info = env.reset(seed=0)
    assert env.knobs == ("learning_rate", "ent_coef") and env.steps == 4
    shown = [name for name in FEATURES if name not in env.knobs]
    assert env.features == ("progress", *shown, "eval/return_mean", *env.knobs)
    assert len(shown) == len(FEATURES) - 2 and len(set(env.features)) == len(env.features)
    assert observation.shape == (3, len(env.features)) and observation.dtype == np.float32
    assert observation[:, 1:-2].tolist() == np.zeros((3, len(shown) + 1)).tolist()
    assert info["replicate"].tolist() == [0, 1, 2]
    for step in range(1, 5):
        observation, value, terminated, truncated, info = env.step()
        assert observation[:, 0].tolist() == [step / 4] * 3
        assert value.shape == (3,) and np.all(np.isfinite(value)) and value.min() >= 1.0
        assert np.all(np.isfinite(observation)) and not terminated.any()
        assert truncated.tolist() == [step == 4] * 3
        assert info["env_steps"].tolist() == [512 * step] * 3
        at, noise = (env.features.index(name) for name in ("entropy", "grad_variance"))
        assert np.all(observation[:, at] > 0.1) and np.all(observation[:, noise] > 0.0)
        means = [np.mean(returns) for returns in info["evaluation"]]
        np.testing.assert_allclose(value, means)
    with pytest.raises(ConfigError, match="call reset"):
        env.step()


def test_a_run_equals_a_replicate_of_the_study_bitwise(env):
    """Run i with seed s is replicate s * runs + i, changed knobs included."""
    env.reset({"learning_rate": 3e-3}, seed=2)
    first = env.step()[0]
    second = env.step({"ent_coef": 0.05})[0]
    population = env._population
    resolved = env._resolver.of({"learning_rate": 3e-3, "ent_coef": 0.01})
    quantum = population.steps_per_chunk
    fresh = type(population)(population._split, population._program, nullcontext, "")
    fresh.advance([Refill(5, resolved, Stream.SEARCH, 7)], [5])
    for _ in range(512 // quantum - 1):
        seen = fresh.advance([], [5])
    at = env.features.index("loss")
    assert quantum == 128 and first[1, at] == np.float32(seen.metrics["loss"][5])
    assert not np.array_equal(first[:, at], second[:, at])


def test_a_configuration_is_completed_once(env, monkeypatch):
    seen, real = [], algorithm.complete
    monkeypatch.setattr(algorithm, "complete", lambda *given: seen.append(given) or real(*given))
    env.reset({"learning_rate": 2e-3}, seed=5)
    for coefficient in (0.02, 0.03, 0.02, 0.03):
        env.step({"ent_coef": coefficient})
    assert len(seen) == 3


def test_arrays_and_mappings_are_the_same_actions(env):
    env.reset(seed=1)
    one = env.step([{"learning_rate": 1e-5}, {"learning_rate": 1e-3}, {"learning_rate": 1e-1}])
    env.reset(seed=1)
    shares = np.array([[0.0, 0.1], [0.5, 0.1], [1.0, 0.1]])
    other = env.step(shares)
    rates = [row["learning_rate"] for row in other[4]["knobs"]]
    assert rates == pytest.approx([1e-5, 1e-3, 1e-1], rel=1e-12)
    np.testing.assert_allclose(one[0][0], other[0][0], rtol=1e-5)
    np.testing.assert_allclose(other[0][:, -2], [0.0, 0.5, 1.0], atol=1e-6)


def test_some_runs_are_reset_while_others_continue(env):
    env.reset(seed=3)
    env.step()
    observation, info = env.reset(runs=[1])
    assert observation[:, 0].tolist() == [0.25, 0.0, 0.25]
    assert info["replicate"][1] not in (9, 10, 11)
    observation, *_ = env.step()
    assert observation[:, 0].tolist() == [0.5, 0.25, 0.5]


def test_gains_add_up_to_the_value():
    env = hpo.AutoRLEnv(
        STUDY, runs=2, steps=4, reward="gain", objectives=["eval/return_mean", "entropy"]
    )
    env.reset(seed=0)
    rewards = []
    for _ in range(4):
        observation, reward, _, _, info = env.step()
        rewards.append(reward)
    assert reward.shape == (2, 2)
    np.testing.assert_allclose(np.sum(rewards, axis=0), info["values"], rtol=1e-9)
    assert env.features.count("entropy") == 1 and len(set(env.features)) == len(env.features)
    at = env.features.index("entropy")
    np.testing.assert_array_equal(observation[:, at], info["values"][:, 1].astype(np.float32))


def test_parts_are_restored_exactly(env, tmp_path):
    env.reset(seed=4)
    env.step()
    env.save(tmp_path / "whole")
    expected = env.step({"learning_rate": 1e-2})[0]
    env.restore(tmp_path / "whole")
    again = env.step({"learning_rate": 1e-2})[0]
    np.testing.assert_array_equal(expected, again)
    before = bits(env)
    env.restore(tmp_path / "whole", parts=["policy"])
    after = bits(env)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"params"}
    env.save(tmp_path / "policy", ["policy", "normalisers"])
    with pytest.raises(StoreError, match=r"no checkpoint at .*moments"):
        env.restore(tmp_path / "policy", ["optimiser"])
    with pytest.raises(ConfigError, match="did you mean 'policy'"):
        env.save(tmp_path / "other", ["polcy"])


def test_a_restored_episode_continues_in_a_new_environment(env, tmp_path):
    env.reset({"learning_rate": 3e-3}, seed=4)
    env.step()
    env.save(tmp_path / "whole")
    expected = env.step({"learning_rate": 1e-2, "ent_coef": 0.05})
    other = hpo.AutoRLEnv(STUDY, runs=3, steps=4)
    other.restore(tmp_path / "whole")
    found = other.step({"learning_rate": 1e-2, "ent_coef": 0.05})
    np.testing.assert_array_equal(found[1], expected[1])
    assert found[4]["env_steps"].tolist() == [1024] * 3
    with pytest.raises(
        StoreError, match="3 runs of 4 decisions, but this environment has 3 runs of 2"
    ):
        hpo.AutoRLEnv(STUDY, runs=3, steps=2).restore(tmp_path / "whole")


def test_saving_or_restoring_parts_before_first_step_is_refused(env, tmp_path):
    env.reset(seed=4)
    env.step()
    env.save(tmp_path / "whole")
    env.reset(runs=[1])
    for call in (env.save, env.restore):
        with pytest.raises(ConfigError, match="step\\(\\) first"):
            call(tmp_path / "whole", ["policy"])


def test_every_field_of_a_lane_belongs_to_one_part():
    fields = [field for own in PARTS.values() for field in own]
    assert sorted(fields) == sorted(field.name for field in dataclasses.fields(LaneState))


def test_a_configuration_of_configspace_is_an_action(env):
    configuration = env.config_space.get_default_configuration()
    configuration["learning_rate"] = 1e-2
    env.reset(seed=1)
    known = env.step(configuration)[4]["knobs"]
    assert known == [{"learning_rate": 1e-2, "ent_coef": 0.01}] * 3


def test_spaces_are_those_of_gymnasium(env):
    gymnasium = pytest.importorskip("gymnasium")
    assert env.single_action_space == gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    env.reset(seed=0)
    observation = env.step(env.action_space.sample())[0]
    assert env.observation_space.contains(observation)


def test_environment_part_of_a_gymnasium_environment_is_refused(env, tmp_path):
    env.reset(seed=4)
    env.step()
    study = env._study
    env._study = dataclasses.replace(study, env=dataclasses.replace(study.env, id="gym:Any-v0"))
    try:
        with pytest.raises(
            ConfigError, match=r"gym:Any-v0 runs outside .* other parts: \['policy', "
        ):
            env.save(tmp_path / "whole")
        env.save(tmp_path / "some", ["policy", "optimiser"])
        env.restore(tmp_path / "some", ["policy"])
    finally:
        env._study = study
    assert not (tmp_path / "whole").exists()


def bits(env):
    state = jax.device_get(env._population._lane_arrays.state)
    return {
        name: [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(getattr(state, name))]
        for name in type(state).__dataclass_fields__
    }


def test_diverged_runs_are_terminated_and_not_trained(env):
    env.reset(seed=5)
    env.step()
    population = env._population
    state = population._lane_arrays.state
    params = jax.tree.map(lambda leaf: leaf * np.float32(np.nan), state.params)
    lanes = population._lane_arrays.replace(state=state.replace(params=params))
    population._lane_arrays = population.program.place(lanes)
    observation, value, terminated, truncated, _ = env.step()
    assert terminated.all() and not truncated.any() and np.all(np.isnan(value))
    assert np.all(np.isfinite(observation))
    env.reset(seed=6)
    assert np.all(np.isfinite(env.step()[1]))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"learning_rte": 1e-3}, "did you mean 'learning_rate'"),
        ({"learning_rate": 5.0}, "not between"),
        ([{}, {}], "2 configurations were given for 3 runs"),
        (np.zeros((3, 5)), "shape (3, 2)"),
        (np.full((3, 2), np.nan), "finite"),
    ],
)
def test_invalid_actions_are_refused_before_training(env, action, words):
    env.reset(seed=0)
    with pytest.raises(ConfigError) as caught:
        env.step(action)
    assert words in str(caught.value)
    assert env._fresh, "nothing was trained"


def test_unsuitable_studies_are_refused():
    static = {**STUDY, "space": {"activation": {"values": ["tanh", "relu"]}}}
    with pytest.raises(ConfigError, match="put it under `fixed`"):
        hpo.AutoRLEnv(static)
    static = {**STUDY, "space": {"env.max_steps_in_episode": {"values": [100, 200]}}}
    with pytest.raises(ConfigError, match="put it under `env`"):
        hpo.AutoRLEnv(static)
    with pytest.raises(ConfigError, match="unknown objective 'entrpy'"):
        hpo.AutoRLEnv(STUDY, objectives=["entrpy"])
    with pytest.raises(ConfigError, match="steps is 5000"):
        hpo.AutoRLEnv(STUDY, steps=5000)
    with pytest.raises(ConfigError, match="reward is 'gian'; allowed: value, gain"):
        hpo.AutoRLEnv(STUDY, reward="gian")
    when = {"when": {"learning_rate": [1e-3]}, "min": 0.0, "max": 0.1}
    space = {"learning_rate": {"values": [1e-3, 1e-2]}, "ent_coef": when}
    with pytest.raises(ConfigError, match="ent_coef has a `when`"):
        hpo.AutoRLEnv({**STUDY, "space": space})
    several = {**STUDY, "env": ["CartPole-v1", "Acrobot-v1"]}
    with pytest.raises(ConfigError, match="a single environment"):
        hpo.AutoRLEnv(several)


def test_one_program_is_compiled(env):
    env.reset(seed=0)
    for coefficient in (0.05, 0.02):
        env.step({"ent_coef": coefficient})
    assert env._population.compiles == 1
    assert env._population._program._change._cache_size() == 1


def test_the_example_of_the_documentation_runs(capsys):
    shown = block("docs/autorl.md", "hpo.AutoRLEnv(")
    code = shown.code
    for long, short in (("16384", "1024"), ("runs=16", "runs=8"), ("steps=8", "steps=2")):
        assert long in code
        code = code.replace(long, short)
    shown._replace(code=code).run()
    assert re.fullmatch(r"constant \d+, schedule \d+\n", capsys.readouterr().out)
