import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from helpers import dials, slow
from hpo.core import policy
from hpo.core.hypers import make_hypers
from hpo.core.losses import loss_and_gradient, ppo_loss
from hpo.core.masking import (
    are_valid,
    log_valid_mass,
    row_weights,
    valid_actions,
    valid_fraction,
    valid_mass_of,
)
from hpo.core.minibatches import Samples
from hpo.core.optimisers import Coefficients
from hpo.core.plan import EnvPlan, make_plan

pytestmark = pytest.mark.usefixtures("quickly_compiled")

RNG = np.random.default_rng(4)
B, A = 12, 2
MASK = np.array([[True, True], [True, False], [False, True], [False, False]] * 3)
LOGITS = RNG.normal(scale=2.0, size=(B, A)).astype(np.float32)
ALLOWED = jnp.asarray(MASK)
FEATURES = ("off_policy_masking", "valid_mass_loss")


def hypers(**knobs):
    return jax.tree.map(jnp.asarray, make_hypers(knobs, {}, {}))


def test_valid_mass_is_the_raw_probability_of_valid_actions():
    chances = scipy.special.softmax(LOGITS.astype(np.float64), axis=-1)
    expected = (chances * MASK).sum(axis=-1)
    np.testing.assert_allclose(
        valid_mass_of(jnp.asarray(LOGITS), ALLOWED), expected, rtol=1e-5, atol=1e-7
    )
    made = np.asarray(log_valid_mass(jnp.asarray(LOGITS), ALLOWED))
    some = MASK.any(axis=-1)
    np.testing.assert_allclose(made[some], np.log(expected[some]), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(made[~some], 0.0)  # the raw policy acts


def test_log_valid_mass_is_finite_when_the_mass_underflows():
    logits = jnp.asarray([[200.0, -200.0, 0.0]])
    mask = jnp.asarray([[False, True, True]])
    made, slope = jax.value_and_grad(lambda x: log_valid_mass(x, mask)[0])(logits)
    assert float(made) == pytest.approx(-200.0)
    np.testing.assert_allclose(slope, [[-1.0, 0.0, 1.0]], atol=1e-6)


@pytest.mark.parametrize(
    ("knobs", "changes"),
    [
        ({}, {}),
        ({"masking_gating": False}, {"gating": False}),
        ({"masking_damping": False}, {"damping": False}),
        ({"masking_gate_min_actions": 1, "valid_mass_target": 0.6}, {"gate": 1, "target": 0.6}),
        ({"masking_gate_min_actions": 3}, {"gate": 3}),
        ({"action_masking": False}, {"masking": False}),
    ],
)
def test_rows_weigh_what_the_formulas_say(knobs, changes):
    mass = valid_mass_of(jnp.asarray(LOGITS), ALLOWED)
    made = row_weights(hypers(**knobs), ALLOWED, mass)
    expected = slow.row_weights(MASK, np.asarray(mass), **changes)
    for name, weights in expected.items():
        np.testing.assert_allclose(getattr(made, name), weights, rtol=1e-5, err_msg=name)


SIZES = dials.SIZES
# Of three choices and two: all, some of each, none of the first, none of the second, one of each.
PARTS = np.array(
    [[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 0, 1]], bool
)
PART_LOGITS = RNG.normal(scale=2.0, size=PARTS.shape).astype(np.float32)


def test_several_components_are_one_choice_among_their_combinations():
    """Masses and numbers of valid actions against the table of all combinations."""
    mask, logits = jnp.asarray(PARTS), jnp.asarray(PART_LOGITS)
    combined = slow.joint(PARTS, SIZES, np.logical_and)
    expected = slow.valid_mass(slow.joint(PART_LOGITS.astype(np.float64), SIZES, np.add), combined)
    np.testing.assert_allclose(valid_mass_of(logits, mask, SIZES), expected, rtol=1e-5, atol=1e-7)
    some = combined.any(axis=-1)
    made = np.asarray(log_valid_mass(logits, mask, SIZES))
    np.testing.assert_allclose(made[some], np.log(expected[some]), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(valid_actions(mask, SIZES), combined.sum(axis=-1))
    np.testing.assert_allclose(valid_fraction(mask, SIZES), combined.mean(axis=-1), rtol=1e-6)
    np.testing.assert_allclose(valid_fraction(mask), PARTS.mean(axis=-1), rtol=1e-6)
    for i, place in enumerate(np.ndindex(*SIZES)):
        action = jnp.broadcast_to(jnp.asarray(place, jnp.int32), (len(PARTS), len(SIZES)))
        np.testing.assert_array_equal(are_valid(mask, action, SIZES), combined[:, i])


def test_valid_action_count_saturates_for_many_components():
    sizes = (100,) * 20
    mask = jnp.ones((2, sum(sizes)), bool).at[1, :100].set(False)
    np.testing.assert_array_equal(valid_actions(mask, sizes), [2**24, 0])
    np.testing.assert_array_equal(valid_fraction(mask, sizes), [1.0, 0.0])


class Case:
    """A loss with masks, weights by them, importance weights, and both masking features."""

    env, sizes, inputs, mask, slow_mask = EnvPlan("CartPole-v1"), None, 4, MASK, MASK
    actions = np.array([0, 0, 1, 1] * 3, np.int32)  # as the slow loss has them: one choice

    def __init__(self, parts=1):
        knobs = {"num_envs": 4, "rollout_length": 4, "hidden_sizes": [3], "num_minibatches": 1,
                 "gradient_accumulation": parts}  # fmt: skip
        self.plan = make_plan(knobs, self.env, features=FEATURES)
        rng = np.random.default_rng(9)
        probe = jax.eval_shape(
            lambda key: policy.init_params(self.plan, hypers(), key), jax.random.key(0)
        )
        self.params = jax.tree.map(
            lambda leaf: rng.normal(scale=0.7, size=leaf.shape).astype(np.float32), probe
        )
        self.rows = {
            "observation": rng.normal(size=(B, self.inputs)).astype(np.float32),
            "action": self.actions,
            "mask": self.slow_mask,
        }
        if self.sizes is not None:
            self.rows["sizes"] = self.sizes
        now, _, value = slow.policy_terms(slow.as_float64(self.params), self.rows)
        self.now = now
        self.rows |= {
            "log_prob": (now + rng.normal(scale=0.3, size=B)).astype(np.float32),
            "value": (value + rng.normal(scale=0.3, size=B)).astype(np.float32),
            "advantage": rng.normal(scale=2.0, size=B).astype(np.float32),
            "target": (value + rng.normal(size=B)).astype(np.float32),
            "importance": rng.uniform(0.5, 2.0, size=B).astype(np.float32),
        }
        logits = slow.outputs(slow.as_float64(self.params), self.rows)[0]
        self.mass = slow.valid_mass(logits, self.slow_mask)

        def function(p, h, c, s, w):
            return loss_and_gradient(p, self.plan, h, c, s, weight=w)

        self._function = jax.jit(function)

    def weighed(self, **changes):
        weights = slow.row_weights(self.slow_mask, self.mass, **changes)
        return {**self.rows, "weights": weights}

    def compiled(self, knobs, mass_coef=0.0, ent_coef=0.0, rows=None, weight=None):
        """Return (losses, gradient) of the core."""
        own = hypers(**knobs)
        rows = {**self.rows, "mask": self.mask, **(rows or {})}
        if self.sizes is not None:
            taken = np.unravel_index(rows["action"], rows.pop("sizes"))
            rows["action"] = np.stack(taken, axis=-1).astype(np.int32)
        mask, mass = jnp.asarray(self.mask), jnp.asarray(self.mass, jnp.float32)
        weights = row_weights(own, mask, mass, self.sizes)
        samples = Samples(**jax.tree.map(jnp.asarray, rows), weights=weights)
        numbers = (jnp.float32(x) for x in (0.2, ent_coef, mass_coef, 0.95, 0.95))
        return self._function(self.params, own, Coefficients(*numbers), samples, weight)


class ComponentsCase(Case):
    """The same with actions of two components; the slow loss sees one choice of six."""

    env, sizes, inputs = dials.plan_of(), SIZES, 3
    mask = PARTS[[0, 1, 4, 0, 1, 4, 0, 1, 2, 0, 1, 3]]
    slow_mask = slow.joint(mask, SIZES, np.logical_and)
    actions = np.array([0, 1, 3, 5, 5, 3, 2, 1, 0, 4, 1, 0], np.int32)


@pytest.fixture(scope="module")
def whole():
    return Case()


@pytest.fixture(scope="module")
def components():
    return ComponentsCase()


@pytest.fixture(scope="module")
def in_parts():
    return Case(parts=3)


SETTINGS = {
    "gated and damped": ({"valid_mass_target": 0.7}, {"target": 0.7}, {}),
    "not gated": ({"masking_gating": False}, {"gating": False}, {}),
    "the raw policy's ratio": ({"off_policy_masking": True}, {}, {"off_policy": True}),
    "the loss of valid mass": ({"valid_mass_coef": 0.5}, {}, {"mass_coef": 0.5}),
    "everything": (
        {"off_policy_masking": True, "masking_gate_min_actions": 1, "value_clip_eps": 0.1,
         "valid_mass_target": 0.9},
        {"gate": 1, "target": 0.9},
        {"off_policy": True, "mass_coef": 0.2, "ent_coef": 0.1, "value_clip": 0.1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (case, name)
        for case in ("whole", "in_parts", "components")
        for name in SETTINGS
        if case != "components" or name != "not gated"
    ],
)
def test_loss_and_gradient_follow_the_formulas(case, name, request):
    """Gradients summed from three parts are those of the whole minibatch.

    Ungated rows with an empty component are left out: there the core masks the other one still.
    """
    case, (knobs, weights, changes) = request.getfixturevalue(case), SETTINGS[name]
    scheduled = {k: changes.get(k, 0.0) for k in ("mass_coef", "ent_coef")}
    losses, gradient = case.compiled(knobs, **scheduled)
    params, rows = slow.as_float64(case.params), case.weighed(**weights)
    _, parts = slow.ppo_loss(params, rows, **changes)
    for part, number in parts.items():
        assert float(getattr(losses, part)) == pytest.approx(number, abs=2e-5, rel=1e-4), part
    slopes = slow.gradient(lambda p: slow.ppo_loss(p, rows, **changes)[0], params)
    for made, slope in zip(slow.leaves(gradient), slow.leaves(slopes), strict=True):
        np.testing.assert_allclose(made, slope, rtol=1e-3, atol=2e-5)


def test_padding_rows_are_ignored_with_gradient_accumulation(in_parts):
    weight = np.array([1] * 8 + [0] * 4, np.float32)
    losses, gradient = in_parts.compiled({}, ent_coef=0.1, weight=weight)
    rows = in_parts.weighed()
    eight = {
        k: {n: w[:8] for n, w in v.items()} if isinstance(v, dict) else v[:8]
        for k, v in rows.items()
    }
    params = slow.as_float64(in_parts.params)
    expected, parts = slow.ppo_loss(params, eight, ent_coef=0.1)
    assert float(losses.loss) == pytest.approx(expected, abs=2e-5)
    assert float(losses.ratio_std) == pytest.approx(parts["ratio_std"], abs=1e-5)
    slopes = slow.gradient(lambda p: slow.ppo_loss(p, eight, ent_coef=0.1)[0], params)
    for made, slope in zip(slow.leaves(gradient), slow.leaves(slopes), strict=True):
        np.testing.assert_allclose(made, slope, rtol=1e-3, atol=2e-5)


def test_rows_without_valid_actions_teach_nothing(whole):
    """Whatever stands in them changes neither loss nor gradient."""
    none = ~MASK.any(axis=-1)
    rows = {k: whole.rows[k].copy() for k in ("advantage", "target", "log_prob")}
    rows["advantage"][none] += 100.0
    rows["target"][none] -= 100.0
    rows["log_prob"][none] -= 3.0
    one = whole.compiled({}, ent_coef=0.1, mass_coef=0.1)
    other = whole.compiled({}, ent_coef=0.1, mass_coef=0.1, rows=rows)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("case", ["whole", "in_parts"])
def test_advantages_are_normalised_over_rows_with_a_choice(case, request):
    """Whatever the advantage of a forced step: mean and deviation are those of the others."""
    case = request.getfixturevalue(case)
    forced = MASK.sum(axis=-1) < 2
    advantage = case.rows["advantage"].copy()
    advantage[forced] = 1000.0
    knobs = {"masking_damping": False}
    one = case.compiled(knobs)
    other = case.compiled(knobs, rows={"advantage": advantage})
    for left, right in zip(jax.tree.leaves(one[1]), jax.tree.leaves(other[1]), strict=True):
        np.testing.assert_array_equal(left, right)
    assert float(one[0].policy_loss) == float(other[0].policy_loss) != 0.0


def test_rows_with_fewer_valid_actions_than_the_gate_teach_the_value_alone(whole):
    knobs = {"masking_gate_min_actions": 3, "normalise_advantages": False}  # closes on all rows
    losses, gradient = whole.compiled(knobs, ent_coef=0.5)
    assert float(losses.policy_loss) == float(losses.entropy) == 0.0
    for name, part in gradient.items():
        largest = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(part))
        assert (largest > 0.0) == policy.is_critic(name), name


def test_the_ratio_of_the_raw_policy_is_the_valid_mass_at_unchanged_parameters(whole):
    some = MASK.any(axis=-1)
    rows = {"log_prob": whole.now.astype(np.float32)}
    losses, _ = whole.compiled({"off_policy_masking": True}, rows=rows)
    assert float(losses.ratio_min) == pytest.approx(whole.mass[some].min(), rel=1e-4)
    assert float(losses.ratio_mean) == pytest.approx(whole.mass[some].mean(), rel=1e-4)
    assert float(losses.approx_kl) == pytest.approx(0.0, abs=1e-6)  # of the masked policies
    unmasked, _ = whole.compiled({"off_policy_masking": True, "action_masking": False})
    plain, _ = whole.compiled({"action_masking": False})
    assert float(unmasked.loss) == float(plain.loss)


def test_the_loss_of_valid_mass_raises_it(whole):
    """A step against its gradient gives the raw policy more mass on valid actions."""
    knobs = {"masking_gate_min_actions": 3}
    _, gradient = whole.compiled(knobs, mass_coef=1.0)
    params = jax.tree.map(lambda p, g: p - 0.05 * g, whole.params, gradient)
    logits = slow.network(slow.as_float64(params), whole.rows["observation"])[0]
    some = MASK.any(axis=-1)
    after = np.log(slow.valid_mass(logits, MASK)[some]).mean()
    assert after > np.log(whole.mass[some]).mean() + 1e-3


def test_single_part_loss_equals_the_plain_loss(whole):
    own, zero = hypers(), jnp.float32(0.0)
    coefficients = Coefficients(jnp.float32(0.2), zero, zero, zero, zero)
    samples = Samples(**jax.tree.map(jnp.asarray, whole.rows))

    @jax.jit
    def both(params):
        losses, _ = loss_and_gradient(params, whole.plan, own, coefficients, samples, weight=None)
        return losses.loss, ppo_loss(params, whole.plan, own, coefficients, samples, weight=None)[
            0
        ]

    loss, plain = both(whole.params)
    assert float(loss) == float(plain)
