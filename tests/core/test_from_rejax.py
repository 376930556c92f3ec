"""rejax's algorithms as trainings: hyperparameters, the environment, and rejax's own numbers."""

import dataclasses

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpo
from hpo.core.envs.contract import Box
from hpo.core.envs.foreign import relaxed
from hpo.core.envs.registry import make, plan_of_env
from hpo.core.from_rejax import ALGORITHMS, GymnaxView, algorithm
from hpo.core.plan import EnvPlan
from hpo.core.training import Lane, StudyEnvironment
from hpo.core.training_check import shapes_of
from hpo.errors import ConfigError, StudyError, UnknownNameError
from hpo.studies.algorithm_section import loaded_algorithm
from hpo.studies.check import unlearnt_note
from hpo.studies.load import loads
from hpo.testing.trainings import TrainingContract

# Of TensorFlow Probability, which rejax imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SMALL = {
    "num_envs": 4,
    "buffer_size": 2000,
    "batch_size": 32,
    "fill_buffer": 100,
    "num_steps": 16,
    "num_minibatches": 4,
    "num_tau_samples": 4,
    "num_tau_prime_samples": 4,
    "normalize_observations": True,
    "normalize_rewards": True,
    "max_grad_norm": 0.5,
}
CONTINUOUS = ("SAC", "TD3")
OURS = ("hidden_layer_sizes", "activation", "agent")  # made into networks by `create`
OF_THE_STUDY = {
    "actor",
    "agent",
    "critic",
    "env",
    "env_params",
    "eval_callback",
    "eval_freq",
    "skip_initial_evaluation",
    "total_timesteps",
}


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with relaxed():
        yield


def _env(name):
    return "Pendulum-v1" if name in CONTINUOUS else "CartPole-v1"


def _made(name, env=None, length=4096, **given):
    """Return a training and its traced values."""
    cls = ALGORITHMS[name]
    knobs = cls.declared()
    values = {key: knob.default for key, knob in knobs.items()}
    values |= {key: value for key, value in given.items() if key in knobs}
    fixed = {key: value for key, value in values.items() if not knobs[key].traced}
    traced = {key: np.float32(value) for key, value in values.items() if knobs[key].traced}
    where = StudyEnvironment(*plan_of_env(env or _env(name), {}, ""))
    return cls.of(fixed, length, where), traced


# --------------------------------------------------------------------- without rejax itself


@pytest.mark.parametrize("id_", ["CartPole-v1", "Pendulum-v1"])
def test_a_view_gives_the_transitions_of_gymnax_over_ends(id_):
    """The reference is gymnax's own environment, whose resets use the same keys."""
    theirs, params = gymnax.make(id_)
    theirs, plan = hpo.old_gymnax(theirs), EnvPlan(id_)
    ours = GymnaxView(make(plan), None)
    floats = make(plan).default_params
    seen, state = ours.reset(jax.random.key(0), floats)
    # A jitted reset may differ from an eager one in the last bit.
    np.testing.assert_allclose(seen, theirs.reset(jax.random.key(0), params)[0], rtol=1e-6)
    total, length, ends = 0.0, 0, 0
    step, other = jax.jit(ours.step), jax.jit(theirs.step)
    for at in range(230):  # Pendulum ends after 200
        key = jax.random.key(at)
        action = ours.action_space(floats).sample(jax.random.fold_in(key, 1))
        before = state
        seen, state, reward, done, info = step(key, state, action, floats)
        wanted, _, their_reward, their_done, _ = other(key, before.inner, action, params)
        np.testing.assert_allclose(seen, wanted, rtol=1e-5, atol=1e-6)
        assert done == their_done and info == {}
        assert float(reward) == pytest.approx(float(jnp.reshape(their_reward, ())), abs=1e-5)
        total, length = total + float(reward), length + 1
        if done:
            assert float(state.returns - before.returns) == pytest.approx(total, rel=1e-5)
            assert int(state.lengths - before.lengths) == length
            total, length, ends = 0.0, 0, ends + 1
    assert ends >= 1 and int(state.episodes) == ends
    assert float(state.counted().returns) == 0 and int(state.counted().steps) == length


def test_bounds_of_actions_are_a_number_where_they_are_equal():
    env = make(EnvPlan("Pendulum-v1"))
    space = GymnaxView(env, None).action_space(None)
    assert (space.low, space.high, space.shape) == (-2.0, 2.0, (1,))
    uneven = type("Env", (), {"action_space": Box((-1, -2), (1, 2), 2)})()
    assert GymnaxView(uneven, None).action_space(None).low.tolist() == [-1.0, -2.0]


def test_hyperparameters_are_known_without_rejax():
    knobs = loaded_algorithm("rejax:DQN").knobs
    assert knobs["learning_rate"].default == 3e-4 and knobs["fill_buffer"].type == "int"
    assert knobs["ddqn"].traced and not knobs["buffer_size"].traced
    assert "activation" not in algorithm("PQN").declared()
    with pytest.raises(UnknownNameError, match=r"'DQNN'; did you mean 'DQN'\? Known: DQN, IQN"):
        loaded_algorithm("rejax:DQNN")


STUDY = """\
algorithm: rejax:SAC
env: Pendulum-v1
env_steps: 2k
space: {gamma: {min: 0.9, max: 0.99}}
"""


@pytest.mark.parametrize(
    ("name", "env", "fixed", "says"),
    [
        ("TD3", "CartPole-v1", {}, "needs Box actions, but CartPole-v1 has Discrete actions; use"),
        ("DQN", "Pendulum-v1", {}, "but Pendulum-v1 has Box actions; use rejax:PPO or "),
        ("DQN", "rmsa", {}, "ignores the action mask of rmsa; use algorithm: ppo"),
        ("PPO", "CartPole-v1", {"num_minibatches": 5}, "not a multiple of num_minibatches 5"),
        ("SAC", "Pendulum-v1", {"buffer_size": 100}, "batch_size is 256, above buffer_size 100"),
    ],
)  # fmt: skip
def test_a_combination_that_does_not_run_is_one_line(name, env, fixed, says):
    with pytest.raises(ConfigError, match=says):
        _made(name, env, **fixed)


def test_a_study_without_the_package_names_the_extra(monkeypatch):
    monkeypatch.setattr("hpo.studies.algorithm_section.find_spec", lambda name: None)
    text = "algorithm: rejax:SAC needs the package 'rejax'.* pip install .*\\[rejax\\]"
    with pytest.raises(StudyError, match=text) as error:
        loads(STUDY, "x.yaml")
    assert str(error.value).startswith("x.yaml:1: ") and "\n" not in str(error.value)


@pytest.mark.parametrize(("steps", "warned"), [("2048", True), ("2049", False)])
def test_a_run_that_only_fills_its_buffer_gives_warning(monkeypatch, steps, warned):
    """rejax trains from the first env step after `fill_buffer` on, by default 2,048."""
    monkeypatch.setattr("hpo.studies.algorithm_section.find_spec", lambda name: name)
    study = loads(STUDY.replace("2k", steps), "x.yaml")
    note = unlearnt_note(study, [{"gamma": 0.9}])
    assert note.startswith("fill_buffer is 2,048, but a run has 2,048") == warned == bool(note)


# --------------------------------------------------------------------- with rejax itself


@pytest.mark.parametrize("name", ALGORITHMS)
def test_names_and_defaults_are_those_of_rejax(name):
    rejax = pytest.importorskip("rejax")
    fields = {one.name: one for one in dataclasses.fields(getattr(rejax, name))}
    knobs = ALGORITHMS[name].declared()
    assert set(knobs) - set(OURS) == set(fields) - OF_THE_STUDY
    for key, knob in knobs.items():
        if key in OURS:
            continue
        assert float(knob.default) == float(fields[key].default), key
        assert knob.traced or not fields[key].metadata.get("pytree_node", True), key


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_lanes_train_and_return_as_rejax_does(name):
    """The reference is rejax's `train`, with gymnax's environment, of the same key and values."""
    rejax = pytest.importorskip("rejax")
    updates, key = 3, jax.random.key(3)
    training, traced = _made(name, **SMALL)
    values = {one: value for one, value in SMALL.items() if one in training.declared()}
    env, params = gymnax.make(_env(name))
    theirs = getattr(rejax, name).create(
        env=hpo.old_gymnax(env),
        env_params=params,
        total_timesteps=4096,
        eval_freq=training.steps_per_update,
        skip_initial_evaluation=True,
        **values,
    )

    @jax.jit
    def curve(state):
        lengths, returns = rejax.evaluate.evaluate(
            theirs.make_act(state), state.rng, theirs.env, params, 4, 200
        )
        return lengths, returns

    @jax.jit
    def trained(state):
        def some(state, _):
            step = lambda _, one: theirs.train_iteration(one)  # noqa: E731
            return jax.lax.fori_loop(0, training.iterations, step, state), None

        return some(state, None)[0]

    lane = Lane(training, tuple(traced))
    update = jax.jit(lane.update)
    ours, expected = lane.init(key, traced), jax.jit(theirs.init_state)(key)
    for _ in range(updates):
        ours, _ = update(ours, traced)
        expected = trained(expected)
        state = lane.state(ours, traced)
        assert int(state.global_step) == int(expected.global_step)
        for one, other in zip(_weights(state), _weights(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
        for one, other in zip(curve(state), curve(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3)
    assert int(state.global_step) == updates * training.steps_per_update


def _weights(state):
    params = [value.params for _, value in sorted(vars(state).items()) if hasattr(value, "params")]
    return jax.tree.leaves(params)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("DQN", {"agent": "DuelingQNetwork", "hidden_layer_sizes": (8,)}),
        ("TD3", {"activation": "tanh"}),
        ("PQN", {"hidden_layer_sizes": (16, 8)}),
    ],
)
def test_networks_have_the_widths_asked_for(name, given):
    pytest.importorskip("rejax")
    training, traced = _made(name, **{**SMALL, **given})
    found = shapes_of(training, tuple(traced))
    widths = given.get("hidden_layer_sizes", (64, 64))
    kernels = [leaf.shape for path, leaf in found.state.items() if path.endswith("Dense_0/kernel")]
    assert any(shape[-1] == widths[0] for shape in kernels)
    assert {"return", "length"} == set(found.values)
    assert found.metrics == ("episode_length", "episode_return", "episodes", "param_norm")


class OfRejax(TrainingContract):
    values, length = SMALL, 1000

    @classmethod
    def setup_class(cls):
        pytest.importorskip("rejax")
        cls.training, cls.env = ALGORITHMS[cls.name], _env(cls.name)


class TestDQN(OfRejax):
    """Gradients are below the bound; the buffer is filled while epsilon falls; 4 steps at once."""

    name = "DQN"
    unused = ("max_grad_norm", "eps_start", "fill_buffer", "target_update_freq")


class TestPQN(OfRejax):
    name, unused = "PQN", ("max_grad_norm",)
