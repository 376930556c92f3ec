"""The page for newcomers against the core: the same parameters, losses and returns.

Both get the core's first parameters, environments and random numbers. Of the two lanes of one
compiled `update` one has the page's defaults, the other knobs that all matter in three updates.
"""

import math
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.loading import run_file
from helpers.whole_update import Updates
from hpo.core.distributions import family_of
from hpo.core.envs import registry
from hpo.core.epochs import SHUFFLE
from hpo.core.lane_state import use_key
from hpo.core.minibatches import permutation
from hpo.core.plan import EnvPlan
from hpo.core.rollout import _RESET_WORD, ROLLOUT_NOISE, ROLLOUT_STEPS
from hpo.core.update import update
from hpo.knobs import complete

pytestmark = pytest.mark.usefixtures("quickly_compiled", "plain_promotion")

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "ppo_plain.py"
plain = run_file("docs/ppo_plain.py")
WHERE = EnvPlan("CartPole-v1", (("max_steps_in_episode", 15),))
STATIC = {"num_envs": 4, "rollout_length": 24, "num_minibatches": 5, "hidden_sizes": [8, 8],
          "policy_gain": 1.0, "initialisation": "lecun", "normalise_rewards": False}  # fmt: skip
OTHERS = {
    "learning_rate": 0.02, "gamma": 0.9, "gae_lambda": 0.9, "clip_eps": 0.1,
    "value_clip_eps": 0.1, "vf_coef": 0.8, "ent_coef": 0.05, "adv_clip": 1.2, "logr_clip": 0.2,
    "max_grad_norm": 0.3, "adam_beta1": 0.8, "adam_beta2": 0.99, "adam_eps": 1e-3,
    "update_epochs": 2,
}  # fmt: skip
LANES, EPOCHS = ({}, OTHERS), 4
UPDATES = 3


@pytest.fixture(scope="module")
def plain_promotion():
    """Let the page be written as its reader would, without the core's strictness."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def core(quickly_compiled):
    """The first states of both lanes, and (state after, metrics) of each update."""
    lanes = Updates(WHERE, STATIC, ())
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        hypers, first = lanes.begin(LANES)
        advance = jax.jit(partial(update, lanes.plan))
        state, rows = first, []
        for _ in range(UPDATES):
            state, metrics = advance(hypers, state)
            rows.append((state, metrics))
    return jax.device_get((first, rows))


def one(tree, lane):
    return jax.tree.map(lambda x: x[lane], tree)


def knobs_of(given):
    full = complete({**STATIC, **given})
    unset = {"value_clip_eps": math.inf}
    names = plain.Knobs._fields
    return plain.Knobs(**{n: unset[n] if full[n] is None else full[n] for n in names})


def params_of(params):
    """Return the core's parameters as the page has them; the core keeps its heads output-first."""

    def tower(name):
        head = params[f"{name}_head"]
        hidden = [params[name][f"dense_{i}"] for i in range(2)]
        pairs = [(layer["kernel"], layer["bias"]) for layer in hidden]
        return [*pairs, (head["kernel"].T, head["bias"])]

    return {name: tower(name) for name in ("actor", "critic")}


def lane_of(state):
    params = params_of(state.params)
    zeros = jax.tree.map(np.zeros_like, params)
    moments = (np.int32(0), zeros, zeros)
    return plain.Lane(params, moments, state.env_state, state.observation, state.episode_return)


@jax.jit
def drawn(key, updates):
    """Draw the core's own random numbers of one update, orders of as many epochs as any has."""
    shape = (STATIC["rollout_length"], STATIC["num_envs"])
    noise = family_of("categorical").noise(use_key(key, ROLLOUT_NOISE, updates), shape, ())
    words = jax.random.bits(use_key(key, ROLLOUT_STEPS, updates), (*shape, 2))
    shuffle = use_key(key, SHUFFLE, updates)
    keys = [jax.random.fold_in(shuffle, epoch) for epoch in range(EPOCHS)]
    return noise, words, [permutation(key, shape[0] * shape[1]) for key in keys]


def draws_of(knobs, key, updates):
    noise, words, orders = jax.device_get(drawn(key, updates))
    return plain.Draws(noise, words, orders[: knobs.update_epochs])


@pytest.fixture(scope="module")
def env_step():
    """The core's environment with the core's keys, stepped as gymnax does: it resets itself."""
    env, wrap = registry.make(WHERE), partial(jax.random.wrap_key_data, impl="threefry2x32")
    params = env.default_params

    def step(words, state, action):
        after = env.step(wrap(words), state, action, params)
        fresh = env.reset(wrap(words.at[1].set(words[1] ^ _RESET_WORD)), params)
        ended = after.terminated | after.truncated
        state, observation = jax.tree.map(
            lambda new, old: jnp.where(ended, new, old), fresh, (after.state, after.observation)
        )
        info = {"final_observation": after.observation}
        return observation, state, after.reward, after.terminated, after.truncated, info

    return jax.jit(jax.vmap(step))


def differences(core, env_step, lane, knobs):
    """Run the page beside one lane of the core; yield what differs after each update.

    float32 rounds at 6e-8, and the two add in different orders. After 60 and 30 gradient steps
    parameters differed by up to 4e-7 and losses by 7e-7 of their size; 5e-6 is seven times that,
    and less than what 2 % more of any knob makes (see below). Returns are whole: equal.
    """
    first, rows = core
    state = one(first, lane)
    mine = lane_of(state)
    for i, (after, metrics) in enumerate(rows):
        draws = draws_of(knobs, state.key, i)
        mine, losses, returns = plain.update(knobs, mine, env_step, draws)
        theirs, shown = params_of(one(after.params, lane)), one(metrics, lane)
        pairs = zip(jax.tree.leaves(mine.params), jax.tree.leaves(theirs), strict=True)
        close = partial(np.allclose, rtol=5e-6, atol=5e-6)
        equal = {
            "params": all(close(a, b) for a, b in pairs),
            **{name: close(value, getattr(shown, name)) for name, value in losses.items()},
            "episodes": len(returns) == shown.episodes,
            "episode_return": sum(returns) == shown.episode_return,
        }
        yield [name for name, same in equal.items() if not same]


@pytest.mark.parametrize("lane", [0, 1])
def test_plain_ppo_matches_the_core(core, env_step, lane):
    found = list(differences(core, env_step, lane, knobs_of(LANES[lane])))
    assert found == [[]] * UPDATES


@pytest.mark.parametrize("name", [n for n in plain.Knobs._fields if n not in STATIC])
def test_plain_ppo_comparison_detects_each_changed_knob(core, env_step, name):
    """Else the comparison would show little: each knob alone, 2 % (or an epoch) more."""
    knobs = knobs_of(OTHERS)
    value = getattr(knobs, name)
    more = value + 1 if isinstance(value, int) else 1.02 * value
    changed = knobs._replace(**{name: more})
    assert any(differences(core, env_step, 1, changed))


def test_plain_ppo_case_covers_truncation_and_short_minibatches(core, env_step):
    """Episodes end by falling and by time, and the last minibatch is smaller than the others."""
    knobs, state = knobs_of({}), one(core[0], 0)
    _, _, returns = plain.update(knobs, lane_of(state), env_step, draws_of(knobs, state.key, 0))
    assert min(returns) < 15.0 and max(returns) == 15.0
    assert knobs.num_envs * knobs.rollout_length % knobs.num_minibatches


def test_plain_ppo_defaults_match_the_core():
    full = complete({})
    for name, value in plain.Knobs()._asdict().items():
        assert value == (math.inf if name == "value_clip_eps" else full[name]), name
    assert full["value_clip_eps"] is None


def test_plain_ppo_initial_gains_match_the_core():
    full, width = complete({}), complete({})["hidden_sizes"]
    lane = plain.make_lane(np.random.default_rng(0), np.zeros((8, 4)), None, actions=2, width=64)
    for name, outputs, gain in (("actor", 2, "policy_gain"), ("critic", 1, "value_gain")):
        layers = lane.params[name]
        assert [w.shape for w, _ in layers] == [(4, 64), (64, 64), (64, outputs)]
        assert width == (64, 64) and not any(np.any(b) for _, b in layers)
        gains = [full["hidden_gain"], full["hidden_gain"], full[gain]]
        for (weight, _), size in zip(layers, gains, strict=True):
            np.testing.assert_allclose(np.linalg.svd(weight)[1], size, rtol=1e-5)


def test_plain_ppo_runs_standalone(capsys):
    small = {name: STATIC[name] for name in ("num_envs", "rollout_length", "num_minibatches")}
    plain.main(updates=10, width=8, **small)  # shapes that are compiled already
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("update 10: return ") and 9.0 <= float(line.split()[3][:-1]) <= 60.0


def test_plain_ppo_has_at_most_80_lines():
    text = PAGE.read_text().split("# --- ")
    assert [part.split(" ---")[0] for part in text[1:]] == [
        "The algorithm",
        "Running it alone, on gymnax's CartPole",
    ]
    lines = [line for line in text[1].splitlines()[1:] if line.strip()]
    assert 0 < len(lines) <= 80
