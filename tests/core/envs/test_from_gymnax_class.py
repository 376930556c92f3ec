"""`gymnax:package.module:Class`: gymnax's own class by its path, and one of before gymnax 1.0."""

import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.envs.contract import Box, Discrete
from hpo.core.envs.traced_once import trace_once
from hpo.core.plan import EnvPlan
from hpo.environments.registry import gymnax_class
from hpo.errors import ConfigError, StudyError, UnimportedModuleError, UnknownNameError
from hpo.search.lanes.configuration import Split
from hpo.studies.load import load, loads
from hpo.testing.environments import EnvironmentContract, play

pytestmark = pytest.mark.usefixtures("quickly_compiled")

CARTPOLE = "gymnax:gymnax.environments.classic_control.cartpole:CartPole"
OLD = "gymnax:hpo_test_old_api:Slide"
CODE = '''
import jax, jax.numpy as jnp
from dataclasses import dataclass

@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class State:
    place: jax.Array
    timestep: jax.Array

@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Params:
    speed: float = 0.25
    max_timesteps: int = 6
    name: str = "slide"

class Space:
    n = 2

class Slide:
    """Done where the place is 1, or the time is over: both in one flag."""

    def __init__(self, width=1):
        self.width = width

    @property
    def default_params(self):
        return Params()

    def action_space(self, params=None):
        return Space()

    def _seen(self, state):
        return jnp.full((self.width,), state.place)

    def reset_env(self, key, params):
        state = State(jnp.float32(0.0), jnp.int32(0))
        return self._seen(state), state

    def is_terminal(self, state, params):
        return (state.place >= 1.0) | (state.timestep >= params.max_timesteps)

    def step_env(self, key, state, action, params):
        state = State(state.place + params.speed * action, state.timestep + 1)
        return self._seen(state), state, action * 1, self.is_terminal(state, params), {"a": 1}
'''


@pytest.fixture(scope="module", autouse=True)
def _module():
    module = ModuleType("hpo_test_old_api")
    sys.modules[module.__name__] = module
    exec(CODE, vars(module))
    yield
    del sys.modules[module.__name__]


def make(id_, **keys):
    return registry.make(EnvPlan(id_, tuple(sorted(keys.items()))))


class TestOldApi(EnvironmentContract):
    steps = 16

    @pytest.fixture
    def environment(self):
        return make(OLD, width=3)


def test_gymnax_class_path_plays_like_its_id():
    one, other = make(CARTPOLE), registry.make(EnvPlan("CartPole-v1"))
    assert one.action_space == other.action_space == Discrete(2)
    assert one.observation_struct == other.observation_struct
    assert vars(one.default_params) == vars(other.default_params)
    trace_once(one)
    for left, right in zip(
        *map(jax.tree.leaves, (play(one, 40, 2)(3), play(other, 40, 2)(3))), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_gymnax_class_path_has_box_actions_and_keys():
    env = make(
        "gymnax:gymnax.environments.classic_control.pendulum:Pendulum", max_steps_in_episode=7
    )
    assert env.action_space == Box(-2.0, 2.0, (1,))
    assert set(vars(env.default_params)) == {"max_speed", "max_torque", "dt", "g", "m", "l"}
    assert env._params.max_steps_in_episode == 7


@pytest.mark.parametrize(
    ("speed", "limit", "ends"),
    [(0.25, 6, [(4, True, False)]), (0.1, 3, [(3, False, True)]), (0.5, 2, [(2, True, False)])],
)
def test_old_gymnax_done_splits_into_terminated_and_truncated(speed, limit, ends):
    """At the limit and arrived in the same step is an ending of the rules'."""
    env = make(OLD, max_timesteps=limit)
    params = registry.params_of(env, {"speed": speed})
    key = jax.random.key(0, impl="threefry2x32")
    state, _ = env.reset(key, params)
    seen = []
    for at in range(1, 8):
        after = env.step(key, state, jnp.int32(1), params)
        assert after.reward.dtype == jnp.float32
        if bool(after.terminated | after.truncated):
            seen.append((at, bool(after.terminated), bool(after.truncated)))
            break
        state = after.state
    assert seen == ends


HEIR = """
from gymnax.environments.environment import Environment

@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Timed:
    place: jax.Array
    time: jax.Array

@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimedParams:
    speed: float = 0.25
    max_steps_in_episode: int = 6

class Heir(Environment, Slide):
    default_params = TimedParams()
    action_space = Slide.action_space

    def reset_env(self, key, params):
        state = Timed(jnp.float32(0.0), jnp.int32(0))
        return self._seen(state), state

    def is_terminal(self, state, params):
        return (state.place >= 1.0) | (state.time >= params.max_steps_in_episode)

    def step_env(self, key, state, action, params):
        state = Timed(state.place + params.speed * action, state.time + 1)
        return self._seen(state), state, action * 1, self.is_terminal(state, params), {}

class Later(Heir):
    def is_terminal(self, state, params):
        return state.place >= 1.0

class Clock(Environment, Slide):
    default_params, action_space = Slide.default_params, Slide.action_space
    is_terminal, reset_env, step_env = Slide.is_terminal, Slide.reset_env, Slide.step_env
"""


@pytest.mark.parametrize(
    ("name", "limit"),
    [("Heir", "max_steps_in_episode"), ("Later", "max_steps_in_episode"),
     ("Clock", "max_timesteps")],
)  # fmt: skip
def test_heirs_of_gymnax_s_base_class_are_truncated_at_their_limit(name, limit):
    """`is_terminal` with the limit, as before gymnax 1.0, and without; and a clock of its own."""
    exec(HEIR, vars(sys.modules["hpo_test_old_api"]))
    env = make(f"gymnax:hpo_test_old_api:{name}", **{limit: 3})
    key = jax.random.key(0, impl="threefry2x32")
    for speed, at, terminated in ((0.1, 3, False), (0.5, 2, True)):
        params = registry.params_of(env, {"speed": speed})
        state, _ = env.reset(key, params)
        for step in range(1, at + 1):
            after = env.step(key, state, jnp.int32(1), params)
            ends = (bool(after.terminated), bool(after.truncated))
            assert ends == ((terminated, not terminated) if step == at else (False, False))
            state = after.state


def test_step_mismatch_error_points_to_the_method_line(tmp_path):
    path = tmp_path / "slide.py"
    path.write_text(
        text := CODE.replace("return self._seen(state), state, a", "return 0, state, a")
    )
    module = sys.modules["hpo_test_slide"] = ModuleType("hpo_test_slide")
    exec(compile(text, str(path), "exec"), vars(module))
    line = 1 + text[: text.index("    def step_env")].count("\n")
    with pytest.raises(
        ConfigError, match=rf"slide\.py:{line}: .*\.step returns the wrong structure"
    ):
        trace_once(make("gymnax:hpo_test_slide:Slide"))
    del sys.modules["hpo_test_slide"]


def test_study_accepts_gymnax_class_with_parameters_and_keys():
    text = f"""
env: {{id: {OLD}, width: 2}}
env_steps: 10k
space: {{env.speed: {{min: 0.1, max: 1.0}}, env.max_timesteps: {{values: [5, 9]}}}}
budget: {{trials: 4}}
"""
    study = loads(text)
    assert study.env.id == OLD
    parts = Split(study).parts(study.complete({"env.speed": 0.3, "env.max_timesteps": 9}))
    assert dict(parts.plan.env.keys) == {"width": 2, "max_timesteps": 9}
    assert dict(parts.env_params) == {"speed": 0.3}


def test_invalid_gymnax_class_paths_are_refused(monkeypatch):
    with pytest.raises(UnknownNameError, match="key of gymnax:hpo_test_old_api:Slide 'widht'"):
        make(OLD, widht=2)
    with pytest.raises(ConfigError, match=r"no class 'Slid'; did you mean 'Slide'\? Kn"):
        make("gymnax:hpo_test_old_api:Slid")
    with pytest.raises(ConfigError, match="Params has no reset_env, step_env, action_space"):
        make("gymnax:hpo_test_old_api:Params")
    with pytest.raises(ConfigError, match=r"No module named .gymnax\.nothing."):
        make("gymnax:gymnax.nothing:CartPole")
    with pytest.raises(StudyError, match=r"did you mean .gymnax:package\.module:Class."):
        loads("env: gymnax:craftax\nenv_steps: 10k\nbudget: {trials: 2}\n")


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (f"{CARTPOLE}s", "study.yaml:2: .* has no class 'CartPoles'; did you mean 'CartPole'?"),
        (f"{{id: '{CARTPOLE}', lenght: 2}}", "study.yaml:2: unknown key of .* 'lenght'"),
    ],
)
def test_gymnax_class_errors_name_the_study_line(tmp_path, env, told):
    path = tmp_path / "study.yaml"
    path.write_text(f"name: s\nenv: {env}\nenv_steps: 10k\nbudget: {{trials: 2}}\n")
    study = load(path)
    with pytest.raises(ConfigError, match=told):
        Split(study).parts(study.default())


def test_gymnax_id_does_not_import_local_modules(tmp_path, monkeypatch):
    (tmp_path / "hpo_test_beside.py").write_text("raise SystemExit('was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("hpo_test_beside", "antigravity", "pip.__main__"):
        with pytest.raises(UnimportedModuleError, match=f"is registered by the module '{module}'"):
            make(f"gymnax:{module}:Env")
        assert module not in sys.modules
    assert gymnax_class("gymnax:a.b:C") == ("a.b", "C")
    assert gymnax_class("gymnax:a.b") is gymnax_class("gymnax:a:b c") is None
