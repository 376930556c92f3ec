import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import slow
from hpo.core import policy
from hpo.core.hypers import make_hypers
from hpo.core.losses import ppo_loss
from hpo.core.minibatches import Samples
from hpo.core.optimisers import Coefficients
from hpo.core.plan import EnvPlan, make_plan

pytestmark = pytest.mark.usefixtures("quickly_compiled")

B = 12
KNOBS = {"num_envs": 4, "rollout_length": 4, "hidden_sizes": [3]}


class Case:
    """One plan with parameters and rows whose old policy differs from the one at hand."""

    def __init__(self, env, masked=False):
        self.plan = make_plan(KNOBS, EnvPlan(env), features=())
        rng = np.random.default_rng(11)
        probe = jax.eval_shape(
            lambda key: policy.init_params(self.plan, self.hypers({}), key), jax.random.key(0)
        )
        self.params = jax.tree.map(
            lambda leaf: rng.normal(scale=0.7, size=leaf.shape).astype(np.float32), probe
        )
        discrete = env == "CartPole-v1"
        observation = rng.normal(size=(B, 4 if discrete else 3)).astype(np.float32)
        action = rng.normal(size=(B, 1)).astype(np.float32)
        self.mask = None
        if discrete:
            action = rng.integers(0, 2, size=B).astype(np.int32)
        if masked:
            self.mask = rng.random((B, 2)) < 0.5
            self.mask[np.arange(B), action] = True
            self.mask[0] = False  # nothing is allowed: as if there were no mask
        self.rows = {"observation": observation, "action": action, "mask": self.mask}
        now, _, value = slow.policy_terms(slow.as_float64(self.params), self.rows)
        self.rows |= {
            "log_prob": (now + rng.normal(scale=0.3, size=B)).astype(np.float32),
            "value": (value + rng.normal(scale=0.3, size=B)).astype(np.float32),
            "advantage": rng.normal(scale=2.0, size=B).astype(np.float32),
            "target": (value + rng.normal(size=B)).astype(np.float32),
        }

    def hypers(self, knobs):
        return jax.tree.map(jnp.asarray, make_hypers(knobs, {}, {}))

    def compiled(self, knobs, weight=None, clip_eps=0.2, ent_coef=0.0, rows=None):
        """Return ((loss, losses), gradient) of the core."""
        rows = rows or self.rows
        samples = Samples(**jax.tree.map(jnp.asarray, rows))
        zero = jnp.float32(0.0)
        coefficients = Coefficients(jnp.float32(clip_eps), jnp.float32(ent_coef), zero, zero, zero)
        arguments = self.params, self.hypers(knobs), coefficients, samples, weight
        return self.function(*arguments)

    @property
    def function(self):
        def loss(params, hypers, coefficients, samples, weight):
            return ppo_loss(params, self.plan, hypers, coefficients, samples, weight=weight)

        if not hasattr(self, "_function"):
            self._function = jax.jit(jax.value_and_grad(loss, has_aux=True))
        return self._function


@pytest.fixture(scope="module")
def cases():
    return {
        "categorical": Case("CartPole-v1"),
        "masked": Case("CartPole-v1", masked=True),
        "gaussian": Case("Pendulum-v1"),
    }


SETTINGS = {
    "plain": ({}, {}),
    "value clipped by a number": ({"value_clip_eps": 0.1}, {"value_clip": 0.1}),
    "value clipped like the ratio": ({"value_clip_eps": "same"}, {"value_clip": 0.2}),
    "advantages as they are": ({"normalise_advantages": False}, {"normalise": False}),
    "advantages clipped": ({"adv_clip": 0.5}, {"adv_clip": 0.5}),
    "advantages not clipped": ({"adv_clip": None}, {"adv_clip": np.inf}),
    "log ratio clipped": ({"logr_clip": 0.1}, {"logr_clip": 0.1}),
    "weights": ({"vf_coef": 2.0}, {"vf_coef": 2.0}),
    "entropy": ({}, {"ent_coef": 0.3}),
    "a narrow clip": ({}, {"clip_eps": 0.05}),
}


@pytest.mark.parametrize("kind", ["categorical", "masked", "gaussian"])
@pytest.mark.parametrize("name", SETTINGS)
def test_loss_and_gradient_follow_the_formulas(cases, kind, name):
    case, (knobs, changes) = cases[kind], SETTINGS[name]
    scheduled = {k: v for k, v in changes.items() if k in ("clip_eps", "ent_coef")}
    (loss, losses), gradient = case.compiled(knobs, **scheduled)
    params = slow.as_float64(case.params)
    expected, parts = slow.ppo_loss(params, case.rows, **changes)
    assert float(loss) == pytest.approx(expected, abs=1e-5, rel=1e-5)
    for part, number in parts.items():
        assert float(getattr(losses, part)) == pytest.approx(number, abs=1e-5, rel=1e-4), part
    slopes = slow.gradient(lambda p: slow.ppo_loss(p, case.rows, **changes)[0], params)
    for made, slope in zip(slow.leaves(gradient), slow.leaves(slopes), strict=True):
        np.testing.assert_allclose(made, slope, rtol=1e-3, atol=1e-5)


def test_loss_cases_cover_both_sides_of_every_clip(cases):
    """Else the comparisons above would show nothing."""
    for case in cases.values():
        _, parts = slow.ppo_loss(slow.as_float64(case.params), case.rows)
        assert 0.1 < parts["clip_fraction"] < 0.9
        _, _, value = slow.policy_terms(slow.as_float64(case.params), case.rows)
        assert 0 < np.mean(np.abs(value - case.rows["value"]) > 0.2) < 1


@pytest.mark.parametrize("kind", ["masked", "gaussian"])
def test_padding_rows_of_the_last_minibatch_are_ignored(cases, kind):
    case = cases[kind]
    changes = {"value_clip": 0.2, "ent_coef": 0.1, "adv_clip": 1.0}
    knobs = {"value_clip_eps": "same", "adv_clip": 1.0}
    weight = np.array([1] * 9 + [0] * 3, np.float32)
    filled = {k: None if v is None else v.copy() for k, v in case.rows.items()}
    filled["log_prob"][9:] -= 5.0  # extreme ratios, which the extremes must not show either
    filled["advantage"][9:] += 100.0
    filled["target"][9:] -= 100.0
    (loss, losses), gradient = case.compiled(knobs, weight, ent_coef=0.1, rows=filled)
    nine = {k: None if v is None else v[:9] for k, v in case.rows.items()}
    params = slow.as_float64(case.params)
    expected, parts = slow.ppo_loss(params, nine, **changes)
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    for part, number in parts.items():
        assert float(getattr(losses, part)) == pytest.approx(number, abs=1e-5, rel=1e-4), part
    slopes = slow.gradient(lambda p: slow.ppo_loss(p, nine, **changes)[0], params)
    for made, slope in zip(slow.leaves(gradient), slow.leaves(slopes), strict=True):
        np.testing.assert_allclose(made, slope, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
@pytest.mark.parametrize("weight", [None, [1] + [0] * 3], ids=["of one row", "a remainder of one"])
def test_single_row_minibatch_keeps_its_raw_advantage(cases, kind, weight):
    """Normalised it would be 0, and the policy learn nothing from it."""
    case, size = cases[kind], 1 if weight is None else len(weight)
    now, _, _ = slow.policy_terms(slow.as_float64(case.params), case.rows)
    rows = {**case.rows, "log_prob": now.astype(np.float32)}  # no ratio is clipped
    rows, one = (
        {k: None if v is None else v[:count] for k, v in rows.items()} for count in (size, 1)
    )
    weight = None if weight is None else jnp.asarray(weight, jnp.float32)
    (loss, losses), gradient = case.compiled({}, weight, rows=rows)
    params = slow.as_float64(case.params)
    expected, parts = slow.ppo_loss(params, one, normalise=False)
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    assert float(losses.policy_loss) == pytest.approx(parts["policy_loss"], abs=1e-5)
    assert abs(parts["policy_loss"]) > 0.1
    slopes = slow.gradient(lambda p: slow.ppo_loss(p, one, normalise=False)[0], params)
    for made, slope in zip(slow.leaves(gradient), slow.leaves(slopes), strict=True):
        np.testing.assert_allclose(made, slope, rtol=1e-3, atol=1e-5)
    assert np.abs(slow.leaves(gradient["actor"])[0]).max() > 1e-3


def test_loss_metrics_do_not_depend_on_gradient_accumulation(cases):
    case = cases["categorical"]
    divided = dataclasses.replace(case.plan, gradient_accumulation=2)
    rows = Samples(**jax.tree.map(jnp.asarray, case.rows))
    coefficients = Coefficients(*(jnp.float32(x) for x in (0.2, 0.0, 0.0, 0.0, 0.0)))
    _, seen = ppo_loss(case.params, divided, case.hypers({}), coefficients, rows, weight=None)
    (_, whole), _ = case.compiled({})
    assert whole.ratio_std > 0.1
    for one, other in zip(jax.tree.leaves(seen), jax.tree.leaves(whole), strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-4, abs=1e-6)


def test_unit_row_weights_equal_no_weights(cases):
    case = cases["categorical"]
    (plain, _), _ = case.compiled({})
    (weighted, _), _ = case.compiled({}, np.ones(B, np.float32))
    assert float(weighted) == pytest.approx(float(plain), abs=1e-6)


def test_unclipped_loss_gradient_equals_the_policy_gradient(cases):
    """At unchanged parameters the ratio is 1 and the slope is -mean(A grad log pi)."""
    case = cases["categorical"]
    params = slow.as_float64(case.params)
    now, _, _ = slow.policy_terms(params, case.rows)
    rows = {**case.rows, "log_prob": now.astype(np.float32)}
    knobs = {"normalise_advantages": False, "vf_coef": 0.0}
    (_, losses), gradient = case.compiled(knobs, rows=rows)
    assert abs(float(losses.ratio_max) - 1.0) < 1e-6 and float(losses.clip_fraction) == 0.0

    def surrogate(params):
        return -np.mean(slow.policy_terms(params, rows)[0] * rows["advantage"])

    for made, slope in zip(
        slow.leaves(gradient), slow.leaves(slow.gradient(surrogate, params)), strict=True
    ):
        np.testing.assert_allclose(made, slope, rtol=1e-3, atol=1e-5)


def test_masks_can_be_switched_off(cases):
    case = cases["masked"]
    (off, _), _ = case.compiled({"action_masking": False})
    expected, _ = slow.ppo_loss(slow.as_float64(case.params), {**case.rows, "mask": None})
    assert float(off) == pytest.approx(expected, abs=1e-5)
    (on, _), _ = case.compiled({})
    assert abs(float(on) - expected) > 1e-3


def test_equal_advantages_give_finite_loss_and_gradient(cases):
    case = cases["categorical"]
    rows = {**case.rows, "advantage": np.full(B, 3.0, np.float32)}
    (loss, losses), gradient = case.compiled({}, rows=rows)
    assert np.isfinite(float(loss)) and float(losses.policy_loss) == pytest.approx(0.0, abs=1e-6)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize(
    ("word", "precision"), [("float32", "HIGHEST"), ("tf32", "HIGH"), ("bfloat16", "DEFAULT")]
)
def test_matrix_products_have_the_precision_asked_for_backwards_too(word, precision):
    plan = make_plan({**KNOBS, "matmul_precision": word}, EnvPlan("CartPole-v1"), features=())
    case = Case("CartPole-v1")

    def total(params):
        outputs = policy.apply(plan, params, jnp.asarray(case.rows["observation"]))
        return jnp.sum(outputs.policy) + jnp.sum(outputs.value)

    jaxpr = jax.make_jaxpr(jax.grad(total))(case.params)
    products = [e for e in jaxpr.jaxpr.eqns if e.primitive.name == "dot_general"]
    assert len(products) > 4
    for product in products:
        assert {p.name for p in product.params["precision"]} == {precision}
