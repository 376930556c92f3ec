"""Traces and films of hosted environments are their evaluations, looked at."""

import gymnasium
import numpy as np
import pytest

from helpers.loading import run_file
from hpo.errors import ConfigError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

made = run_file("tests/core/host/test_saved_policy.py").made


class Talking(gymnasium.Env):
    """Says numbers, a flag, a text and an array about each step, one of them only at the end."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2, start=5)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012

    def __init__(self, length: int = 4, render_mode: str | None = None):
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.place = self.np_random.normal(size=2).astype(np.float32)
        return self.place, {"x": 99.0}

    def step(self, action):
        assert self.action_space.contains(action)
        self.time += 1
        self.place = np.float32([action - 5, self.time])
        info = {"x": np.float32(self.time / 2), "even": self.time % 2 == 0, "text": "no number"}
        info |= {"array": np.ones(3), "ragged": [[1], [1, 2]], "tree": {"x": 1}, "none": None}
        if self.time == self.length:
            info["last"] = np.array(17)
        return self.place, float(self.time), False, self.time == self.length, info

    def render(self):
        return np.full((4, 6, 3), self.time, np.uint8)


class Reusing(Talking):
    """Says everything in one mapping, which it writes into at each step."""

    def __init__(self):
        super().__init__()
        self.said = {}

    def step(self, action):
        *found, info = super().step(action)
        self.said.update(info)
        return *found, self.said


class Silent(Talking):
    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012


@pytest.fixture(scope="module", autouse=True)
def registered():
    for kind in (Talking, Reusing, Silent):
        gymnasium.register(f"hpo-test/{kind.__name__}-v0", entry_point=kind)


def test_hosted_trace_matches_the_evaluation():
    policy = made("gym:CartPole-v1", history=2, max_episode_steps=30)
    found, columns = policy.evaluate(2, seed=5), policy.trace(2, seed=5)
    for episode in range(2):
        rows = columns["episode"] == episode
        assert rows.sum() == found.lengths[0, episode]
        np.testing.assert_array_equal(columns["step"][rows], np.arange(rows.sum()))
        assert columns["return"][rows][-1] == found.returns[0, episode]
        ends = columns["terminated"][rows] | columns["truncated"][rows]
        assert ends[-1] and not ends[:-1].any()
    seen = np.stack([columns[f"observation_{at}"] for at in range(8)], axis=-1).reshape(-1, 2, 4)
    expected, _ = policy.predict(seen)
    np.testing.assert_array_equal(columns["action"], expected)
    first = columns["step"] == 0
    assert (seen[first, 0] == 0.0).all() and (seen[first, 1] != 0.0).any()


def test_trace_has_columns_for_info_numbers():
    columns = made("gym:hpo-test/Talking-v0").trace(2, seed=1)
    assert set(np.unique(columns["action"])) <= {5, 6}
    np.testing.assert_array_equal(columns["info_x"], [0.5, 1.0, 1.5, 2.0] * 2)
    np.testing.assert_array_equal(columns["info_even"], [0, 1, 0, 1] * 2)
    np.testing.assert_array_equal(columns["info_last"], [np.nan, np.nan, np.nan, 17] * 2)
    assert [name for name in columns if name.startswith("info_")] == [
        "info_even",
        "info_last",
        "info_x",
    ]
    window = made("gym:hpo-test/Talking-v0").trace(1, seed=1, steps=6)
    np.testing.assert_array_equal(window["info_x"], [0.5, 1.0, 1.5, 2.0, 0.5, 1.0])


def test_info_dict_reused_by_the_env_is_copied_each_step():
    columns = made("gym:hpo-test/Reusing-v0").trace(1, seed=1)
    np.testing.assert_array_equal(columns["info_x"], [0.5, 1.0, 1.5, 2.0])


def test_film_covers_each_episode_from_start_to_end():
    rate, pictures = made("gym:hpo-test/Talking-v0").film(2, seed=1)
    shown = list(pictures)
    assert rate == 7
    assert [int(picture[0, 0, 0]) for picture in shown] == [0, 1, 2, 3, 4] * 2
    with pytest.raises(ConfigError, match="render mode rgb_array; supported: ansi"):
        made("gym:hpo-test/Silent-v0").film(1)
