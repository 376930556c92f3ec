"""A batch gives what its environments give by themselves, in this process or in workers."""

import dataclasses
import os
import signal
import subprocess
import sys
from importlib import import_module

import gymnasium
import numpy as np
import pytest

from helpers.ended_processes import gone
from hpo.core.host.batch import Opening, code_of, episode_seed
from hpo.core.host.vector_batch import make_batch
from hpo.environments.via_gymnasium import make
from hpo.errors import ConfigError
from hpo.machine.workers import Workers

CARTPOLE = "gym:CartPole-v1"
STEPS = 60


def batch_of(id_, count, workers=None, history=1):
    code = dataclasses.replace(code_of(id_, make(id_, {})), history=history)
    return make_batch(id_, code, count, workers)


@pytest.fixture(scope="module")
def workers():
    made = Workers(2)
    yield made
    made.close()


def drive(batch, slots, values=None, steps=STEPS, seed=0):
    """Open slots, take random actions that depend on the slot alone; give all that was seen."""
    arrays, values = batch.arrays, values or {}
    batch.open([Opening(slot, values, f"words/{slot}") for slot in slots])
    draws = [np.random.default_rng([seed, slot]) for slot in range(len(arrays.active))]
    arrays.active[:] = False
    arrays.active[list(slots)] = True
    seen = [arrays.observation.copy()]
    for _ in range(steps):
        arrays.action[:] = [draw.integers(2) for draw in draws]
        batch.step(restart=True)
        ended = arrays.terminated | arrays.truncated
        final = np.where(ended[:, None], arrays.final, 0.0)
        seen.append(
            np.concatenate(
                [
                    arrays.observation,
                    final,
                    arrays.reward[:, None],
                    arrays.terminated[:, None],
                    arrays.truncated[:, None],
                ],
                axis=1,
            )
        )
    return seen


def rows(seen, slot):
    return [moment[slot] for moment in seen]


def test_batch_slot_matches_a_single_gymnasium_env(workers):
    seen = rows(drive(batch_of(CARTPOLE, 3), [0, 1, 2], {"max_episode_steps": 15}), 1)
    env = gymnasium.make("CartPole-v1", max_episode_steps=15)
    draw, episode = np.random.default_rng([0, 1]), 0
    observation, _ = env.reset(seed=episode_seed("words/1", 0))
    np.testing.assert_array_equal(seen[0], observation)
    cuts = ends = 0
    for moment in seen[1:]:
        observation, reward, terminated, truncated, _ = env.step(int(draw.integers(2)))
        final = np.zeros(4)
        if terminated or truncated:
            cuts, ends, episode = cuts + truncated, ends + terminated, episode + 1
            final = observation
            observation, _ = env.reset(seed=episode_seed("words/1", episode))
        np.testing.assert_array_equal(
            moment, np.array([*observation, *final, reward, terminated, truncated], np.float32)
        )
    assert cuts and ends


@pytest.mark.parametrize("count", [0, 2])
def test_stacked_observations_are_the_last_of_the_episode(count, workers):
    """Oldest first, zeros before its start; so is the final one of an episode."""
    batch = batch_of(CARTPOLE, 2, workers if count else None, history=3)
    arrays, episode = batch.arrays, 0
    assert arrays.observation.shape == arrays.final.shape == (2, 3, 4)
    batch.open([Opening(slot, {"max_episode_steps": 5}, f"words/{slot}") for slot in range(2)])
    arrays.active[:] = True
    env = gymnasium.make("CartPole-v1", max_episode_steps=5)
    past = [np.zeros(4), np.zeros(4), env.reset(seed=episode_seed("words/1", 0))[0]]
    np.testing.assert_array_equal(arrays.observation[1], np.float32(past))
    for _ in range(12):
        arrays.action[:] = 1
        batch.step(restart=True)
        observation, _, terminated, truncated, _ = env.step(1)
        past.append(observation)
        assert bool(arrays.truncated[1]) == truncated and bool(arrays.terminated[1]) == terminated
        if truncated or terminated:
            np.testing.assert_array_equal(arrays.final[1], np.float32(past[-3:]))
            episode += 1
            observation, _ = env.reset(seed=episode_seed("words/1", episode))
            past = [np.zeros(4), np.zeros(4), observation]
        np.testing.assert_array_equal(arrays.observation[1], np.float32(past[-3:]))
    assert episode == 2


def test_worker_and_local_batches_give_equal_results(workers):
    here = drive(batch_of(CARTPOLE, 5), range(5))
    there = drive(batch_of(CARTPOLE, 5, workers), range(5))
    np.testing.assert_array_equal(np.stack(here[1:]), np.stack(there[1:]))
    assert len(workers.process_ids) == 2


def test_batch_slot_is_independent_of_neighbours(workers):
    alone = drive(batch_of(CARTPOLE, 4, workers), [2])
    beside = drive(batch_of(CARTPOLE, 4, workers), [0, 2, 3])
    for one, other in zip(rows(alone, 2), rows(beside, 2), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.all(alone[-1][[0, 1, 3]] == 0.0), "slots that rest are left alone"


def test_reopened_slot_starts_from_the_same_observation(workers):
    batch = batch_of(CARTPOLE, 2, workers)
    first = drive(batch, [0, 1])
    for fresh in (False, True):
        batch.open([Opening(0, {}, "words/0", fresh=fresh)])
        np.testing.assert_array_equal(batch.arrays.observation[0], first[0][0])
    batch.open([Opening(0, {}, "words/0", episode=1)])
    assert not np.array_equal(batch.arrays.observation[0], first[0][0])


def test_episode_seeds_are_distinct_and_uniform():
    seeds = {episode_seed(f"a/{i}", j) for i in range(40) for j in range(40)}
    assert len(seeds) == 1600 and max(seeds) < 2**31 and min(seeds) >= 0
    assert np.mean(list(seeds)) == pytest.approx(2**30, rel=0.1)


@pytest.mark.parametrize("count", [0, 2])
def test_refused_env_values_do_not_break_the_batch(count, workers):
    batch = batch_of(CARTPOLE, 4, workers if count else None)
    with pytest.raises(ConfigError, match=r"gym:CartPole-v1 cannot be created with nonsense=1"):
        batch.open([Opening(1, {"nonsense": 1}, "a")])
    assert len(drive(batch, range(4))) == STEPS + 1


FAILING = """\
import gymnasium
from hpo.machine.worker import serve

class Fails(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return [0.0], {}

    def step(self, action):
        raise ValueError("a broken joint")

gymnasium.register("hpo-test/Fails-v0", entry_point=Fails)
"""


@pytest.mark.parametrize("count", [0, 1])
def test_failing_hosted_env_is_reported_with_file_and_line(count, tmp_path, monkeypatch):
    sys.modules.pop("hpo_test_failing", None)
    gymnasium.registry.pop("hpo-test/Fails-v0", None)
    (tmp_path / "hpo_test_failing.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("hpo_test_failing")
    own = Workers(count, "hpo_test_failing:serve") if count else None
    batch = batch_of("gym:hpo-test/Fails-v0", 2, own)
    assert not batch.open([Opening(0, {}, "a")])
    batch.arrays.active[:] = [True, False]
    outcome = batch.step(restart=True)
    said = f"{tmp_path / 'hpo_test_failing.py'}:12: ValueError: a broken joint"
    assert outcome.failed == {0: said} and not outcome.lost and not outcome.ended
    batch.close()
    if own is not None:
        own.close()


class _Odd(gymnasium.Env):
    """Its spaces are a promise that its steps break."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, space, gives):
        self.observation_space, self._gives = space, gives

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self._gives


BOX = gymnasium.spaces.Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize(
    ("space", "observation", "words"),
    [
        (BOX, np.zeros(5), "has shape (5,), but its observation_space has shape (3,)"),
        (BOX, np.zeros(1), "has shape (1,), but its observation_space has shape (3,)"),
        (BOX, np.zeros((1, 3)), "has shape (1, 3), but its observation_space has shape (3,)"),
        (BOX, 0.5, "has shape (), but its observation_space has shape (3,)"),
        (BOX, None, "is None, but its observation_space has shape (3,)"),
        (
            gymnasium.spaces.Discrete(4, start=2),
            6,
            "is 6, but its observation_space allows 2 to 5",
        ),
        (
            gymnasium.spaces.Discrete(4, start=2),
            1,
            "is 1, but its observation_space allows 2 to 5",
        ),
    ],
)
def test_observation_shape_mismatch_reports_both_shapes(space, observation, words):
    id_ = "hpo-test/Odd-v0"
    gymnasium.registry.pop(id_, None)
    gives = (observation, 0.0, False, False, {})
    gymnasium.register(id_, entry_point=lambda: _Odd(space, gives))
    batch = batch_of(f"gym:{id_}", 1, None)
    assert not batch.open([Opening(0, {}, "a")])
    batch.arrays.active[:] = True
    assert words in batch.step(restart=True).failed[0]


@pytest.mark.parametrize(
    ("gives", "words"),
    [((np.zeros(3), 0.0, True, {}), "returned 4 values"), (np.zeros(3), "returned ndarray")],
)
def test_old_gym_step_result_is_refused_with_expected_values(gives, words):
    id_ = "hpo-test/Odd-v0"
    gymnasium.registry.pop(id_, None)
    gymnasium.register(id_, entry_point=lambda: _Odd(BOX, gives))
    batch = batch_of(f"gym:{id_}", 1, None)
    assert not batch.open([Opening(0, {}, "a")])
    batch.arrays.active[:] = True
    said = batch.step(restart=True).failed[0]
    assert f"{words}; expected: observation, reward, terminated, truncated, info" in said


@pytest.mark.parametrize(
    ("reward", "shown"), [("no", "'no'"), (None, "None"), ([1.0, 2.0], "[1.0, 2.0]")]
)
def test_reward_that_is_not_a_number_is_quoted(reward, shown):
    id_ = "hpo-test/Odd-v0"
    gymnasium.registry.pop(id_, None)
    gymnasium.register(id_, entry_point=lambda: _Odd(BOX, (np.zeros(3), reward, *[False] * 2, {})))
    batch = batch_of(f"gym:{id_}", 1, None)
    assert not batch.open([Opening(0, {}, "a")])
    batch.arrays.active[:] = True
    said = batch.step(restart=True).failed[0]
    assert f"its step returned the reward {shown}; expected: a number" in said


@pytest.mark.parametrize("there", [False, True])
def test_batch_reports_info_numbers_of_the_last_step_per_slot(there, workers):
    """FrozenLake says the chance of what happened: a third where it may slip, else 1."""
    id_ = "gym:FrozenLake-v1"
    code = code_of(id_, make(id_, {}))
    batch = make_batch(id_, code, 3, workers if there else None, tells=True)
    slips = [True, False, True]
    batch.open([Opening(slot, {"is_slippery": slips[slot]}, "a") for slot in range(3)])
    assert batch.said == {}
    batch.arrays.active[:] = [True, True, False]
    batch.step(restart=True)
    assert batch.said == {0: {"prob": pytest.approx(1 / 3)}, 1: {"prob": 1.0}}
    batch.open([Opening(1, {"is_slippery": True}, "a")])
    assert set(batch.said) == {0}
    batch.close()


def test_dead_worker_is_replaced_and_its_slots_are_lost():
    own = Workers(2)
    batch = batch_of(CARTPOLE, 4, own)
    drive(batch, range(4), steps=2)
    before = own.process_ids
    os.kill(before[1], signal.SIGKILL)
    outcome = batch.step(restart=True)
    assert set(outcome.lost) == {1, 3} and not outcome.blamed and not outcome.failed
    assert outcome.ended == ("was ended by SIGKILL (perhaps out of memory)",)
    assert not batch.open([Opening(slot, {}, f"words/{slot}") for slot in (1, 3)])
    assert not batch.step(restart=True)
    after = own.process_ids
    assert after[0] == before[0] and after[1] not in before
    own.close()
    assert gone(before + after)


def test_workers_ignore_signals_from_startup():
    """A batch system sends them to all processes of a job at once."""
    own = Workers(2)
    there = [own.worker(0), own.worker(1)]
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for process_id in own.process_ids:  # they are importing still
            os.kill(process_id, sent)
    batch = batch_of(CARTPOLE, 4, own)
    first = drive(batch, range(4), steps=2)
    for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        for process_id in own.process_ids:
            os.kill(process_id, sent)
    np.testing.assert_array_equal(
        np.stack(drive(batch, range(4), steps=2)[1:]), np.stack(first[1:])
    )
    assert there == [own.worker(0), own.worker(1)], "the same processes all the time"
    own.close()


PARENT = """\
import sys, time
from hpo.core.host.vector_batch import make_batch
from hpo.core.host.batch import Opening
from hpo.core.host.batch import code_of
from hpo.machine.workers import Workers
from hpo.environments.via_gymnasium import make
workers = Workers(2)
code = code_of("gym:CartPole-v1", make("gym:CartPole-v1", {}))
batch = make_batch("gym:CartPole-v1", code, 4, workers)
batch.open([Opening(slot, {}, str(slot)) for slot in range(4)])
batch.arrays.active[:] = True
print(*workers.process_ids, flush=True)
assert "jax" not in sys.modules
while sys.argv[1] == "busy":
    batch.step(restart=True)
if sys.argv[1] == "idle":
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("doing", "how"),
    [("busy", signal.SIGKILL), ("idle", signal.SIGTERM)],
)
def test_workers_end_with_their_parent(doing, how):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, doing], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert parent.stdout is not None
    ids = [int(word) for word in parent.stdout.readline().split()]
    assert len(ids) == 2
    assert not gone(ids, 0.3)
    parent.send_signal(how)
    parent.wait(120)
    parent.stdout.close()
    assert gone(ids)
