"""Simulators of many environments give what `gymnasium.Env`, one at a time, gives."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from hpo.core.host import vector_batch
from hpo.core.host.batch import Opening, code_of, episode_seed
from hpo.core.host.stage import Stage
from hpo.core.host.vector_batch import VectorBatch, make_batch
from hpo.environments.hosted import backend_of, probe
from hpo.environments.registry import entry, held_out_keys
from hpo.errors import ConfigError, MissingExtraError, UnknownNameError

LANES, ENVS = 2, 3
KEYS = np.arange(LANES * 2, dtype=np.uint32).reshape(LANES, 2)
MODES = [mode.name for mode in AutoresetMode]


class Ticking(gymnasium.Env):
    """A walk that ends at 2 or -2, or is cut after 7 steps, at times in the same step."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(3, start=4)

    def __init__(self, push: float = 0.7, fails: bool = False):
        self.push, self.fails = push, fails

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, self.np_random.normal() / 4
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        if self.fails and self.time == 3:
            raise ValueError("a broken spring")
        self.time += 1
        self.place += self.push * (action - 5) + self.np_random.normal() / 4
        reward = np.float32(self.place)
        return self._seen(), reward, abs(self.place) > 2.0, self.time >= 7, {"time": self.time}

    def _seen(self):
        return np.array([self.time, self.place])


def vectors(mode):
    def made(num_envs: int, push: float = 0.7, fails: bool = False):
        envs = [lambda: Ticking(push, fails)] * num_envs
        return SyncVectorEnv(envs, autoreset_mode=AutoresetMode[mode])

    return made


def id_of(mode):
    return f"gym-vec:hpo-test/Ticking{mode}-v0"


@pytest.fixture(scope="module", autouse=True)
def registered():
    ids = {id_of(mode).removeprefix("gym-vec:"): vectors(mode) for mode in MODES}
    for id_, made in ids.items():
        gymnasium.register(id_, entry_point=Ticking, vector_entry_point=made)
    yield
    for id_ in ids:
        gymnasium.registry.pop(id_)


def batch_of(id_, count, values=None, history=1):
    code = dataclasses.replace(code_of(id_, probe(id_, values or {})), history=history)
    batch = make_batch(id_, code, count, None)
    assert isinstance(batch, VectorBatch)
    return batch


def opened(batch, slots, values=None, lane="lane"):
    outcome = batch.open([Opening(slot, values or {}, f"{lane}/{slot}") for slot in slots])
    assert not outcome
    batch.arrays.active[:] = False
    batch.arrays.active[list(slots)] = True


def seen_of(arrays):
    ended = (arrays.terminated | arrays.truncated) & arrays.active
    whole = (arrays.observation, np.where(ended[:, None], arrays.final, 0.0))
    flags = (arrays.reward, arrays.terminated, arrays.truncated)
    return np.concatenate([*whole, *(row[:, None] for row in flags)], axis=1)


@pytest.mark.parametrize("mode", MODES)
def test_vector_env_transitions_match_single_envs(mode):
    batch = batch_of(id_of(mode), 3)
    opened(batch, [0, 1, 2])
    envs = [Ticking() for _ in range(3)]
    seed = episode_seed("lane/0", 0)  # a lane's simulator has one seed; row i gets the i-th after
    now = [env.reset(seed=seed + row)[0] for row, env in enumerate(envs)]
    np.testing.assert_array_equal(batch.arrays.observation, np.float32(now))
    rng, cuts, ends = np.random.default_rng(0), 0, 0
    for _ in range(60):
        batch.arrays.action[:] = rng.integers(3, size=3)
        assert not batch.step(restart=True)
        expected = []
        for row, env in enumerate(envs):
            action = int(batch.arrays.action[row]) + 4
            observation, reward, terminated, truncated, _ = env.step(action)
            final = np.zeros(2)
            if terminated or truncated:
                cuts, ends = cuts + truncated, ends + terminated
                final, (observation, _) = observation, env.reset()
            expected.append([*observation, *final, reward, terminated, truncated])
        np.testing.assert_array_equal(seen_of(batch.arrays), np.float32(expected))
    assert cuts > 3 and ends > 3
    batch.close()


@pytest.mark.parametrize("mode", MODES)
def test_idle_vector_rows_do_not_affect_active_rows(mode):
    """As in an evaluation, where each row rests once its episode has ended."""
    whole, rested = batch_of(id_of(mode), 3), batch_of(id_of(mode), 3)
    for batch in (whole, rested):
        opened(batch, [0, 1, 2])
    rng = np.random.default_rng(1)
    for step in range(40):
        whole.arrays.action[:] = rested.arrays.action[:] = rng.integers(3, size=3)
        rested.arrays.active[:] = [True, step < 5, step < 9]
        whole.step(restart=True)
        rested.step(restart=True)
        np.testing.assert_array_equal(seen_of(whole.arrays)[0], seen_of(rested.arrays)[0])


@pytest.mark.parametrize("mode", MODES)
def test_final_observation_is_kept_without_restart(mode):
    batch = batch_of(id_of(mode), 2)
    opened(batch, [0, 1])
    while batch.arrays.active.any():
        batch.arrays.action[:] = 1
        batch.step(restart=False)
        arrays = batch.arrays
        ended = (arrays.terminated | arrays.truncated) & arrays.active
        np.testing.assert_array_equal(arrays.observation[ended], arrays.final[ended])
        arrays.active[ended] = False
    assert (batch.arrays.final[:, 0] > 0).all()


def test_vector_env_without_reset_mask_is_refused():
    with pytest.raises(ConfigError, match=r"has no reset_mask.*; use gym:CartPole-v1"):
        probe("gym-vec:CartPole-v1", {})
    with pytest.raises(ConfigError, match="has no vector entry point for Pendulum-v1"):
        entry("gym-vec:Pendulum-v1")


def test_vector_entry_point_arguments_become_env_keys():
    found = entry(id_of("SAME_STEP"))
    assert found.keys["push"].default == 0.7 and not found.params and "num_envs" not in found.keys


def test_failing_vector_simulator_fails_only_its_slots():
    batch = batch_of(id_of("DISABLED"), 4)
    good = [Opening(slot, {}, f"a/{slot}") for slot in (0, 1)]
    bad = [Opening(slot, {"fails": True}, f"b/{slot}") for slot in (2, 3)]
    assert not batch.open([*good, *bad])
    batch.arrays.active[:], batch.arrays.action[:] = True, 1
    outcomes = [batch.step(restart=True) for _ in range(4)]
    assert not any(outcomes[:3]) and set(outcomes[3].failed) == {2, 3}
    assert "a broken spring" in outcomes[3].failed[2] and not batch.arrays.inside.any()
    assert not batch.step(restart=True)


def test_stacked_vector_observations_are_the_latest_of_the_episode():
    plain, stacked = batch_of(id_of("SAME_STEP"), 2), batch_of(id_of("SAME_STEP"), 2, history=3)
    for batch in (plain, stacked):
        opened(batch, [0, 1])
    past = [[np.zeros(2)] * 2 + [plain.arrays.observation[slot].copy()] for slot in range(2)]
    rng, ends = np.random.default_rng(2), 0
    for _ in range(30):
        plain.arrays.action[:] = stacked.arrays.action[:] = rng.integers(3, size=2)
        plain.step(restart=True)
        stacked.step(restart=True)
        for slot in range(2):
            now = plain.arrays.observation[slot].copy()
            if plain.arrays.terminated[slot] or plain.arrays.truncated[slot]:
                ends += 1
                last = [*past[slot][1:], plain.arrays.final[slot].copy()]
                np.testing.assert_array_equal(stacked.arrays.final[slot], last)
                past[slot] = [np.zeros(2), np.zeros(2), now]
            else:
                past[slot] = [*past[slot][1:], now]
            np.testing.assert_array_equal(stacked.arrays.observation[slot], past[slot])
    assert ends > 4


# ---------------------------------------------------------------------- EnvPool


CARTPOLE = "envpool:CartPole-v1"


def test_envpool_gives_the_transitions_of_gymnasium():
    """From equal states by equal physics; EnvPool's seeds give other first states."""
    pytest.importorskip("envpool")
    values = {"max_episode_steps": 12}
    batch = batch_of(CARTPOLE, 3, values)
    opened(batch, [0, 1, 2], values)
    envs = [gymnasium.make("CartPole-v1", **values) for _ in range(3)]

    def put(row):
        envs[row].reset()
        envs[row].unwrapped.state = tuple(map(float, batch.arrays.observation[row]))

    for row in range(3):
        put(row)
    rng, cuts, ends = np.random.default_rng(0), 0, 0
    for _ in range(150):
        batch.arrays.action[:] = rng.random(3) < 0.7
        batch.step(restart=True)
        arrays = batch.arrays
        for row, env in enumerate(envs):
            observation, reward, terminated, truncated, _ = env.step(int(arrays.action[row]))
            truncated = truncated or (terminated and env._elapsed_steps == 12)
            terminated = terminated and not truncated  # EnvPool: a limit wins
            flags = [terminated, truncated, reward]
            assert flags == [arrays.terminated[row], arrays.truncated[row], arrays.reward[row]]
            ended = terminated or truncated
            shown = arrays.final if ended else arrays.observation
            np.testing.assert_allclose(shown[row], observation, rtol=1e-4, atol=1e-5)
            if ended:
                cuts, ends = cuts + truncated, ends + terminated
                assert np.abs(arrays.observation[row]).max() <= 0.05, "a new episode is shown"
                put(row)
    assert cuts > 5 and ends > 5


def test_unknown_envpool_env_or_key_is_refused():
    pytest.importorskip("envpool")
    with pytest.raises(UnknownNameError, match="did you mean 'envpool:CartPole-v1'"):
        entry("envpool:Cartpole-v1")
    with pytest.raises(ConfigError, match="cannot be created with nonsense=1"):
        probe(CARTPOLE, {"nonsense": 1})


@pytest.mark.parametrize(
    ("id_", "module", "said"),
    [
        (CARTPOLE, "envpool", r"'envpool'.*pip install .*\[envpool\]"),
        ("gym:ALE/Pong-v5", "ale_py", r"'ale-py'.*pip install .*\[atari\]"),
        ("gym:PongNoFrameskip-v4", "ale_py", r"'ale-py'.*pip install .*\[atari\]"),
    ],
)
def test_a_missing_extra_is_named(monkeypatch, id_, module, said):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    entry_of = __import__("hpo.environments.hosted", fromlist=["entry_of"]).entry_of
    with pytest.raises(MissingExtraError, match=f"{id_} needs the package {said}"):
        entry_of(id_)


def test_envpool_lost_life_ends_the_episode_but_not_the_game():
    pytest.importorskip("envpool")
    check_lives("envpool:Breakout-v5")


# ---------------------------------------------------------------------- Atari


PONG = "gym:ALE/Pong-v5"


def check_lives(id_):
    simulator = backend_of(id_).make(id_, {"episodic_life": True}, 1)
    simulator.start(np.array([3]))
    rng, lives = np.random.default_rng(0), []
    while len(lives) < 6:
        simulator.send(np.array([0]), rng.integers(4, size=1))
        answers = simulator.receive()
        if answers.terminated[0]:
            lives.append(int(answers.info["lives"][0]))
            assert answers.game_continues is not None and answers.game_continues[0] == (
                lives[-1] > 0
            )
            simulator.restart(np.array([0]))
    assert lives == [4, 3, 2, 1, 0, 4]
    simulator.close()


def test_ale_lost_life_ends_the_episode_but_not_the_game():
    pytest.importorskip("ale_py")
    check_lives("gym:ALE/Breakout-v5")


def test_ale_vector_transitions_match_the_single_env():
    """A step is four frames of the game; the maximum of the last two is seen."""
    pytest.importorskip("ale_py")
    game = {"repeat_action_probability": 0.0, "max_num_frames_per_episode": 3200}
    raw = {"img_height": 210, "img_width": 160, "noop_max": 0, "stack_num": 1}
    values = {**game, **raw, "reward_clipping": False, "use_fire_reset": False}
    batch = batch_of(PONG, 1, values)
    opened(batch, [0], values)
    env = gymnasium.make("ALE/Pong-v5", obs_type="grayscale", frameskip=1, **game)
    np.testing.assert_array_equal(batch.arrays.observation[0, 0], env.reset(seed=1)[0])
    rng, total, ended = np.random.default_rng(0), 0.0, False
    while not ended:
        batch.arrays.action[:] = rng.integers(6)
        batch.step(restart=False)
        frames = [env.step(int(batch.arrays.action[0])) for _ in range(4)]
        reward = sum(frame[1] for frame in frames)
        terminated, truncated = frames[-1][2:4]
        arrays, total = batch.arrays, total + reward
        same = (reward, terminated, truncated)
        assert same == (arrays.reward[0], arrays.terminated[0], arrays.truncated[0])
        ended = terminated or truncated
        if not ended:  # ale-py leaves out the frame that ends an episode
            pooled = np.maximum(frames[-2][0], frames[-1][0])
            np.testing.assert_array_equal(arrays.observation[0, 0], pooled)
    assert truncated and not terminated and total < -5
    batch.close()


def test_atari_evaluation_uses_full_games_and_unclipped_scores():
    pytest.importorskip("ale_py")
    found = entry(PONG)
    assert found.keys["repeat_action_probability"].default == 0.25
    assert found.keys["reward_clipping"].default is True and "life_loss_info" not in found.keys
    assert "game" not in found.keys and "num_threads" not in found.keys
    judged = {"episodic_life": False, "reward_clipping": False}
    assert held_out_keys(PONG, {}) == judged
    assert held_out_keys(PONG, {"reward_clipping": True}) == {**judged, "reward_clipping": True}
    assert held_out_keys("gym:CartPole-v1", {"max_episode_steps": 3}) == {"max_episode_steps": 3}


# ---------------------------------------------------------------------- resume


@dataclasses.dataclass(frozen=True)
class Case:
    id_: str
    package: str
    values: dict


CASES = [
    *(Case(id_of(mode), "gymnasium", {}) for mode in MODES),
    Case(CARTPOLE, "envpool", {"max_episode_steps": 12}),
    Case(PONG, "ale_py", {"max_num_frames_per_episode": 150, "noop_max": 3}),
]


def stage_of(case, warnings):
    return Stage(batch_of(case.id_, LANES * ENVS, case.values), LANES, ENVS, warnings.append)


def play(stage, steps, seed, busy=(True, True)):
    rng, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        stage.step(rng.integers(2, size=(LANES, ENVS)), np.array(busy))
        arrays = stage.batch.arrays
        rows = (arrays.observation.reshape(len(arrays.reward), -1), arrays.reward[:, None])
        seen.append(np.concatenate(rows, axis=1).reshape(LANES, ENVS, -1))
    return np.stack(seen)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id_)
@pytest.mark.parametrize("steps", [1, 61])
def test_restored_vector_envs_continue_like_the_saved_ones(tmp_path, monkeypatch, case, steps):
    pytest.importorskip(case.package)
    monkeypatch.setattr(vector_batch, "RESEED_AFTER", 45)
    warnings = []
    stage, other = stage_of(case, warnings), stage_of(case, warnings)
    stage.begin(dict.fromkeys(range(LANES), case.values), KEYS)
    play(stage, steps, seed=1)
    stage.save(tmp_path / "e.npz")
    shown = stage.observation
    lost = other.restore(tmp_path / "e.npz", lambda lane: case.values, KEYS, shown)
    assert not lost.any() and not warnings
    np.testing.assert_array_equal(other.observation, shown)
    np.testing.assert_array_equal(play(other, 60, seed=2), play(stage, 60, seed=2))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id_)
def test_a_lane_does_not_depend_on_its_neighbours(case):
    pytest.importorskip(case.package)
    both, alone = stage_of(case, []), stage_of(case, [])
    both.begin(dict.fromkeys(range(LANES), case.values), KEYS)
    alone.begin({1: case.values}, KEYS)
    seen, seen_alone = play(both, 40, 3), play(alone, 40, 3, busy=(False, True))
    np.testing.assert_array_equal(seen[:, 1], seen_alone[:, 1])
    both.begin({0: case.values}, KEYS)  # a new trial beside it, from the start of lane 0
    alone.begin({0: case.values}, KEYS)
    np.testing.assert_array_equal(play(both, 40, 4), play(alone, 40, 4))


def test_ale_is_reseeded_only_after_a_minimum_of_steps(monkeypatch):
    """A seed loads the game anew, which takes as long as some hundred steps."""
    pytest.importorskip("ale_py")
    monkeypatch.setattr(vector_batch, "RESEED_AFTER", 80)
    values = {"max_num_frames_per_episode": 150, "noop_max": 3}
    batch = batch_of(PONG, 1, values)
    opened(batch, [0], values)
    seeded = []
    for step in range(170):
        batch.arrays.action[:] = 1
        batch.step(restart=True)
        if batch.arrays.truncated[0] and not batch.arrays.continued[0]:
            seeded.append(step)
    assert len(seeded) == 1 and 80 <= seeded[0] < 160
    first = batch.arrays.observation.copy()
    assert first.any()


def test_vector_episode_longer_than_the_action_log_restarts(tmp_path, monkeypatch):
    pytest.importorskip("envpool")
    monkeypatch.setattr("hpo.core.host.restartable_batch.LONGEST", 30)
    case, warnings = Case(CARTPOLE, "envpool", {}), []
    stage, other = stage_of(case, warnings), stage_of(case, warnings)
    stage.begin(dict.fromkeys(range(LANES), case.values), KEYS)
    play(stage, 40, seed=1)
    stage.save(tmp_path / "e.npz")
    lost = other.restore(tmp_path / "e.npz", lambda lane: {}, KEYS, stage.observation)
    assert lost.all() and len(warnings) == 1
