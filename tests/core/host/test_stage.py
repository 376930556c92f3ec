import dataclasses

import numpy as np
import pytest

from hpo.core.host import restartable_batch
from hpo.core.host.batch import code_of
from hpo.core.host.stage import Stage
from hpo.core.host.vector_batch import make_batch
from hpo.environments.via_gymnasium import make
from hpo.errors import StoreError

LANES, ENVS = 3, 2
KEYS = np.arange(LANES * 2, dtype=np.uint32).reshape(LANES, 2)
BUSY = np.array([True, False, True])


def stage_of(id_, warnings=None, history=1):
    code = dataclasses.replace(code_of(id_, make(id_, {})), history=history)
    batch = make_batch(id_, code, LANES * ENVS, None)
    return Stage(batch, LANES, ENVS, (warnings if warnings is not None else []).append)


def begun(id_, warnings=None, lanes=(0, 2), history=1):
    stage = stage_of(id_, warnings, history)
    stage.begin({lane: {} for lane in lanes}, KEYS)
    return stage


def play(stage, steps, seed, busy=BUSY):
    """Take random actions; give what was seen."""
    rng, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        stage.step(rng.integers(2, size=(LANES, ENVS)), busy)
        arrays = stage.batch.arrays
        seen.append((stage.observation, stage.lanes_view(arrays.reward).copy()))
    return seen


def restored(stage, path, id_, warnings, history=1):
    stage.save(path)
    other = stage_of(id_, warnings, history)
    lost = other.restore(path, lambda lane: {}, KEYS, stage.observation)
    return other, lost


def same(one, other, lanes=(0, 2)):
    for (seen, reward), (seen_too, reward_too) in zip(one, other, strict=True):
        np.testing.assert_array_equal(seen[list(lanes)], seen_too[list(lanes)])
        np.testing.assert_array_equal(reward[list(lanes)], reward_too[list(lanes)])


@pytest.mark.parametrize(
    ("steps", "history"), [(0, 1), (1, 1), (37, 1), (200, 1), (1, 4), (37, 4)]
)
def test_restored_stage_continues_like_the_saved_one(tmp_path, steps, history):
    stage, warnings = begun("gym:CartPole-v1", history=history), []
    play(stage, steps, seed=1)
    other, lost = restored(stage, tmp_path / "e.npz", "gym:CartPole-v1", warnings, history)
    assert not lost.any() and not warnings
    assert other.observation.shape[3:] == (() if history == 1 else (4,))
    np.testing.assert_array_equal(other.observation[BUSY], stage.observation[BUSY])
    same(play(stage, 150, seed=2), play(other, 150, seed=2))


def test_restarted_and_idle_lanes_are_restored(tmp_path):
    stage, warnings = begun("gym:CartPole-v1", lanes=(0, 1, 2)), []
    play(stage, 90, seed=1, busy=np.ones(LANES, bool))
    stage.rest(BUSY)
    stage.begin({2: {"max_episode_steps": 9}}, KEYS[::-1])
    keys = np.stack([KEYS[0], KEYS[1], KEYS[::-1][2]])
    play(stage, 20, seed=3)
    stage.save(tmp_path / "e.npz")
    other = stage_of("gym:CartPole-v1", warnings)
    values = {0: {}, 2: {"max_episode_steps": 9}}
    lost = other.restore(tmp_path / "e.npz", values.__getitem__, keys, stage.observation)
    assert not lost.any() and not warnings, "lane 1 rests: nobody asks for its values"
    same(play(stage, 60, seed=2), play(other, 60, seed=2))


def test_stage_saved_twice_in_one_episode_is_restored(tmp_path):
    warnings = []
    stage = begun("gym:Pendulum-v1")  # episodes of 200 steps

    def push(stage, steps, seed):
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            stage.step(rng.normal(size=(LANES, ENVS, 1)).astype(np.float32), BUSY)

    push(stage, 70, 1)
    stage, lost = restored(stage, tmp_path / "a.npz", "gym:Pendulum-v1", warnings)
    push(stage, 70, 2)
    other, lost_too = restored(stage, tmp_path / "b.npz", "gym:Pendulum-v1", warnings)
    assert not lost.any() and not lost_too.any() and not warnings
    for one in (stage, other):
        push(one, 80, 3)
    np.testing.assert_array_equal(stage.observation, other.observation)


def test_irreproducible_envs_restart_with_a_warning(tmp_path, twins):
    warnings, id_ = [], "gym:hpo-test/Wayward-v0"
    stage = begun(id_, history=2)
    play(stage, 6, seed=1)
    other, lost = restored(stage, tmp_path / "e.npz", id_, warnings, history=2)
    assert lost.tolist() == [[True, True], [False, False], [True, True]]
    assert len(warnings) == 1 and warnings[0].startswith("4 non-reproducible environments of 4")
    np.testing.assert_array_equal(other.observation[0], [[[0, 0, 0], [6, 0, 1]]] * 2)


def test_episodes_longer_than_the_action_log_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(restartable_batch, "LONGEST", 50)
    warnings, stage = [], begun("gym:Pendulum-v1")
    for _ in range(60):
        stage.step(np.zeros((LANES, ENVS, 1), np.float32), BUSY)
    _, lost = restored(stage, tmp_path / "e.npz", "gym:Pendulum-v1", warnings)
    assert lost[BUSY].all() and warnings


def test_action_log_size_is_bounded(monkeypatch):
    stage = begun("gym:CartPole-v1")
    play(stage, 3000, seed=1)
    assert len(stage._steady.log.actions) < 400


def test_lane_with_refused_env_values_is_marked_with_a_warning(twins):
    warnings = []
    stage = stage_of("gym:hpo-test/Hosted-v0", warnings)
    stage.begin({0: {"bonus": 1.0}, 1: {"bonus": 1e3}, 2: {}}, KEYS)
    assert stage.refused.tolist() == [False, True, False]
    assert warnings == [
        "a trial failed: gym:hpo-test/Hosted-v0 cannot be created with bonus=1000.0: "
        "ValueError: bonus is too large"
    ]
    play(stage, 3, seed=0, busy=np.ones(LANES, bool))
    stage.begin({1: {}}, KEYS)
    assert not stage.refused.any()


def test_damaged_or_missing_stage_file_is_refused(tmp_path):
    stage, path = begun("gym:CartPole-v1"), tmp_path / "e.npz"
    play(stage, 5, seed=0)
    stage.save(path)
    data = bytearray(path.read_bytes())
    for text in (data[: len(data) // 2], data[:40] + b"\x00" * 30 + data[70:]):
        path.write_bytes(bytes(text))
        with pytest.raises(StoreError, match="cannot be read"):
            stage_of("gym:CartPole-v1").restore(path, lambda lane: {}, KEYS, stage.observation)
    path.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        stage_of("gym:CartPole-v1").restore(path, lambda lane: {}, KEYS, stage.observation)
