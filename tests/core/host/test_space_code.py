import dataclasses
import json

import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.host.batch import SpaceCode, code_of
from hpo.core.plan import EnvPlan
from hpo.environments.via_gymnasium import make
from hpo.errors import ConfigError

ID = "gym:hpo-test/Spaces-v0"


def code(twins, **values):
    return code_of(ID, make(ID, values))


@pytest.mark.parametrize(
    ("kind", "raw", "seen"),
    [
        ("box", np.full((2, 3), 0.1), np.full((2, 3), 0.1, np.float32)),
        ("image", np.full((4, 4, 3), 7, np.uint8), np.full((4, 4, 3), 7, np.uint8)),
        ("discrete", np.int64(1), np.array([0, 0, 1, 0], np.float32)),
        ("bits", np.array([1, 0, 1], np.int8), np.array([1, 0, 1], np.float32)),
    ],
)
def test_observations_are_encoded_as_arrays(twins, kind, raw, seen):
    made = code(twins, observation=kind)
    got = made.observed(raw)
    np.testing.assert_array_equal(got, seen)
    assert got.dtype == seen.dtype == np.dtype(made.observation_dtype)
    assert got.shape == made.observation_shape


def test_stacked_discrete_observations_are_one_hot(twins):
    keys = (("observation", "discrete"),)
    env = registry.make(EnvPlan(ID, keys, history=3))
    assert env.observation_struct.shape == (3, 4) and env.code.seen_shape == (3, 4)
    np.testing.assert_array_equal(
        env.observed([[-2, 0, -1]]), [[[0] * 4, [0, 1, 0, 0], [1, 0, 0, 0]]]
    )
    assert registry.make(EnvPlan(ID, keys)).observation_struct.shape == (4,)


@pytest.mark.parametrize(
    ("kind", "given", "taken"),
    [
        ("discrete", np.array([0, 3, 9, -2], np.int32), [-1, 2, 2, -1]),
        ("several", np.array([[1, 4], [7, 7]], np.int32), [[1, 4], [1, 4]]),
        ("bits", np.array([[0, 1, 5]], np.int32), [[0, 1, 1]]),
        (
            "box",
            np.array([[[0.5, -0.25, 2.0], [np.nan, np.inf, -np.inf]]], np.float32),
            [[[0.5, -0.25, 1.0], [0.0, 1.0, -1.0]]],
        ),
    ],
)
def test_decoded_actions_are_always_in_the_action_space(twins, kind, given, taken):
    env = make(ID, {"action": kind})
    got = code_of(ID, env).actions(given)
    np.testing.assert_array_equal(got, taken)
    assert all(env.action_space.contains(action) for action in got)


@pytest.mark.parametrize("kind", ["tree", "pair", "several"])
def test_unsupported_observation_spaces_are_refused(twins, kind):
    with pytest.raises(ConfigError, match=r"allowed: Box, Discrete.*FlattenObservation"):
        code(twins, observation=kind)


@pytest.mark.parametrize("kind", ["tree", "pair", "grid", "image"])
def test_unsupported_action_spaces_are_refused(twins, kind):
    with pytest.raises(ConfigError, match=r"has the action space .*allowed: Discrete"):
        code(twins, action=kind)


def test_space_code_round_trips_through_json(twins):
    for kind in ("discrete", "several", "box"):
        made = code(twins, action=kind)
        data = json.loads(json.dumps(dataclasses.asdict(made)))
        lists = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
        assert SpaceCode(**lists) == made
