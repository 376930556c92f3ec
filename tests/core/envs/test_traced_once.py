"""What is wrong with an environment is told once, whole, with its place, by shapes alone."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from hpo.core.envs import registry
from hpo.core.envs.contract import Box, Discrete, MultiDiscrete, Step
from hpo.core.envs.navigators import Navigators
from hpo.core.envs.traced_once import trace_once
from hpo.core.plan import EnvPlan
from hpo.errors import ConfigError
from hpo.testing.environments import EnvironmentContract

PAGE = Path(__file__).parents[3] / "docs" / "environments.md"


@pytest.fixture
def corridor(tmp_path):
    """Return what makes the environment of the page, with some words of it replaced."""
    shown = PAGE.read_text().split("<!-- own environment -->")[1].split("<!-- end -->")[0]
    code = re.findall(r"```python\n(.*?)```", shown, re.S)[0].replace(
        'register("corridor"', "(lambda *given: None)(0"
    )

    def made(*changes):
        text = code
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "corridor.py"
        path.write_text(text)
        space = {"__name__": "own_corridor"}
        exec(compile(text, str(path), "exec"), space)
        return space["Corridor"](), text

    return made


def line_of(text, words):
    return 1 + next(at for at, line in enumerate(text.splitlines()) if words in line)


def test_trace_once_accepts_valid_environments(corridor):
    trace_once(corridor()[0])
    trace_once(Navigators(agents=2, neighbours=1))
    trace_once(registry.make(EnvPlan("Pendulum-v1")))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            '"time": state["time"] + 1,',
            '"time": jnp.float32(0.0),',
            [
                "state['time'] is float32[]; it must be int32[], as returned by reset (write "
                ".astype("
            ],
        ),
        (
            '"time": state["time"] + 1,',
            '"time": state["time"] + 1, "extra": jnp.int32(0),',
            ["state['extra'] is int32[]; remove it"],
        ),
        (
            "observation=self._observe(after)",
            "observation=jnp.zeros((3,), jnp.float32)",
            ["observation is float32[3]; it must be float32[2], as in observation_struct"],
        ),
        (
            "jnp.where(arrived, 1.0, -0.1).astype(jnp.float32)",
            "jnp.zeros((1,), jnp.float32)",
            ["reward is float32[1]; it must be float32[]"],
        ),
        (
            "terminated=arrived",
            "terminated=jnp.stack([arrived, arrived])",
            ["terminated is bool[2]; it must be bool[]"],
        ),
        (
            'info={"slips": 1.0 - moves.astype(jnp.float32)}',
            'info={"slips": moves}',
            ["info['slips'] is bool[]; it must be float32[]"],
        ),
    ],
)
def test_step_mismatch_error_names_file_and_line(corridor, old, new, words):
    env, text = corridor((old, new))
    with pytest.raises(ConfigError) as told:
        trace_once(env)
    place = f"corridor.py:{line_of(text, 'def step')}: corridor.step returns the wrong structure:"
    assert place in str(told.value)
    assert all(word in str(told.value) for word in words), told.value


def test_step_mismatches_are_reported_together(corridor):
    env, _ = corridor(
        ('"time": state["time"] + 1,', '"time": jnp.float32(0.0),'),
        ('jnp.maximum(state["place"] + change, 0)', "jnp.float32(0.0)"),
    )
    with pytest.raises(ConfigError) as told:
        trace_once(env)
    assert "state['place']" in str(told.value) and "state['time']" in str(told.value)


def test_env_exception_while_tracing_is_reported_with_its_line(corridor):
    env, text = corridor(('state["place"] + change', 'state["plce"] + change'))
    with pytest.raises(ConfigError, match="while step is traced") as told:
        trace_once(env)
    assert f"corridor.py:{line_of(text, 'plce')}: KeyError: 'plce'" in str(told.value)
    env, text = corridor(
        ("change = jnp.where(moves", "assert moves\n        change = jnp.where(moves")
    )
    with pytest.raises(ConfigError) as told:
        trace_once(env)
    assert f"corridor.py:{line_of(text, 'assert moves')}: TracerBoolConversionError" in str(
        told.value
    )
    assert len(str(told.value).splitlines()) > 2  # jax says how to mend it, further down


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ('__import__("numpy").random.rand()', "numpy.random draws only once"),
        (
            'vars(self).setdefault("turns", []).append(0) or len(self.turns) / 10',
            "returns a different value each time",
        ),
    ],
)
def test_python_random_numbers_in_a_traced_step_are_refused(corridor, new, words):
    env, text = corridor(("jax.random.uniform(key, (), jnp.float32)", new))
    with pytest.raises(ConfigError) as told:
        trace_once(env)
    assert "environment corridor, step: " in str(told.value)
    assert f"corridor.py:{line_of(text, 'moves =')}: " in str(told.value)
    assert words in str(told.value)


def test_invalid_environment_declarations_are_refused(corridor):
    for change, words in (
        (("action_space = Discrete(2)", "action_space = 2"), "action_space is a int"),
        (("warmup_steps = 0", "pass"), "Corridor has no warmup_steps"),
        (("@jax.tree_util.register_dataclass\n", ""), "jax cannot find the fields of Params"),
        (("has_mask = False", "has_mask = True"), "NotImplementedError"),
        (("return state, self._observe(state)", "return state"), "return (state, observation)"),
        (("return Step(", "return dict("), "which has no state"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            trace_once(corridor(change)[0])


def test_env_constructor_error_names_id_and_line():
    def broken(length=3):
        raise RuntimeError(f"no corridor of {length}\nat all")

    registry.register("own_broken", broken)
    with pytest.raises(
        ConfigError, match=r"environment own_broken: .*test_traced_once.py:\d+: Run"
    ):
        registry.make(EnvPlan("own_broken"))
    with pytest.raises(ConfigError, match="own_broken 'lenght'; did you mean 'length'"):
        registry.make(EnvPlan("own_broken", (("lenght", 2),)))
    del registry._REGISTERED["own_broken"]


def test_misspelt_env_parameter_gets_a_suggestion(monkeypatch):
    class Plain:
        default_params = Navigators(agents=2, neighbours=1).default_params

    monkeypatch.setitem(registry._REGISTERED, "own_plain", Plain)
    with pytest.raises(ConfigError, match="of environment own_plain 'drug'; did you mean 'drag'"):
        registry.make(EnvPlan("own_plain", (("drug", 1.0),)))


# ---------------------------------------------------------------------- boxes


class Reach:
    """Move to the middle of a plane by two real actions; bounds are given as single numbers."""

    id = "reach"
    action_space = Box(low=-1, high=1, shape=(2,))
    observation_struct = jax.ShapeDtypeStruct((2,), jnp.float32)
    has_mask = False
    never_ends = False
    warmup_steps = 0
    default_params = registry.make(EnvPlan("Reacher-misc")).default_params

    def reset(self, key, params):
        place = jax.random.uniform(key, (2,), jnp.float32)
        return place, place

    def step(self, key, state, action, params):
        place = state + jnp.float32(0.1) * action
        near = jnp.sum(place**2) < jnp.float32(0.01)
        return Step(place, place, -jnp.sum(place**2), near, jnp.zeros((), bool), {})

    def action_mask(self, state, params):
        raise NotImplementedError

    def summarise(self, sums, steps):
        return {}


class TestBox(EnvironmentContract):
    @pytest.fixture
    def environment(self):
        return Reach()


def test_bounds_of_a_box_may_be_one_number_or_arrays():
    wanted = Box((-1.0, -1.0), (1.0, 2.0), (2,))
    assert Box(-1, [1, 2], [2]) == wanted == Box(jnp.float32(-1.0), jnp.array([1.0, 2.0]), 2)
    assert hash(Box(-1, [1, 2], (2,))) == hash(wanted)
    assert Box(-1, 1, (2, 2)).low == (-1.0,) * 4 and Box(0, 1, ()).high == (1.0,)
    with pytest.raises(ConfigError, match=r"low has 3 numbers, but shape \(2,\) needs 2"):
        Box([0, 0, 0], 1, (2,))


def test_trace_once_checks_multi_discrete_actions_and_masks(corridor):
    env, _ = corridor(("action_space = Discrete(2)", "action_space = Discrete(2)"))
    env.action_space = MultiDiscrete((2, 3))
    with pytest.raises(ConfigError, match=r"got \(2,\), \(\)"):  # its step takes one number
        trace_once(env)
    env.action_space, env.has_mask = Discrete(2), True
    env.action_mask = lambda state, params: jnp.ones((3,), bool)
    with pytest.raises(ConfigError, match=r"the mask is bool\[3\]; it must be bool\[2\]"):
        trace_once(env)
