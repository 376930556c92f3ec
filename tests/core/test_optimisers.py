import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from hpo.core.envs import registry as environments
from hpo.core.hypers import make_hypers
from hpo.core.networks import registry as networks
from hpo.core.networks.layers import Outputs
from hpo.core.optimisers import (
    apply_gradients,
    init_moments,
    orthogonalised,
    squares_and_distance,
    step_sizes,
    tree_norm,
)
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import init_params
from hpo.core.pytree import named_leaves

pytestmark = pytest.mark.usefixtures("quickly_compiled")

STEPS = 40
CRITIC = ("critic", "critic_head")
PLANS = {
    name: make_plan({"optimiser": name}, EnvPlan("CartPole-v1"), features=())
    for name in ("adam", "adamw", "adam_l2", "sgd", "muon")
}


def tree(seed, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = {"actor": (3, 2), "actor_head": (2,), "critic": (3, 2), "critic_head": (1,)}
    return {
        name: {"kernel": jnp.asarray(scale * rng.normal(size=shape), jnp.float32)}
        for name, shape in shapes.items()
    }


def gradients(step):
    """Return gradients that are clipped in some steps and not in others, differently by group."""
    made = tree(100 + step, scale=0.05 + 0.2 * (step % 5))
    return {k: jax.tree.map(lambda g: 3.0 * g, v) if k in CRITIC else v for k, v in made.items()}


def run_ours(knobs, optimiser="adam", steps=STEPS, progress=0.0):
    hypers = jax.tree.map(jnp.asarray, make_hypers({"optimiser": optimiser, **knobs}, {}, {}))

    @jax.jit
    def step(hypers, params, moments, gradient):
        sizes = step_sizes(hypers, jnp.float32(progress))
        return apply_gradients(
            PLANS[optimiser], hypers, sizes, gradient, params=params, moments=moments
        )

    params = tree(0)
    moments, norms = init_moments(PLANS[optimiser], params), []
    for i in range(steps):
        params, moments, norm = step(hypers, params, moments, gradients(i))
        norms.append(float(norm))
    return params, moments, norms


def run_optax(transform, params, pick=lambda tree: tree, steps=STEPS):
    params = pick(params)
    state = transform.init(params)
    with jax.numpy_dtype_promotion("standard"):
        step = jax.jit(lambda p, s, g: transform.update(g, s, p))
        for i in range(steps):
            updates, state = step(params, state, pick(gradients(i)))
            params = optax.apply_updates(params, updates)
    return params


def norm_of(tree):
    return np.sqrt(sum(float(np.sum(np.square(leaf))) for leaf in jax.tree.leaves(tree)))


def agree(made, expected):
    for name in expected:
        np.testing.assert_allclose(
            made[name]["kernel"], expected[name]["kernel"], rtol=2e-5, atol=2e-6
        )


def critic(tree):
    return {name: tree[name] for name in CRITIC}


def rest(tree):
    return {name: leaf for name, leaf in tree.items() if name not in CRITIC}


@pytest.mark.parametrize("clip", [0.5, None])
def test_adam_is_optax_s(clip):
    knobs = {"learning_rate": 0.01, "max_grad_norm": clip, "adam_beta1": 0.8, "adam_beta2": 0.99,
             "adam_eps": 1e-4}  # fmt: skip
    made, moments, norms = run_ours(knobs)
    clipping = optax.identity() if clip is None else optax.clip_by_global_norm(clip)
    transform = optax.chain(clipping, optax.adam(0.01, 0.8, 0.99, eps=1e-4))
    agree(made, run_optax(transform, tree(0)))
    assert [int(moment.count) for moment in moments] == [STEPS, STEPS]
    assert norms[3] == pytest.approx(norm_of(gradients(3)), rel=1e-6)
    assert min(norms) < 0.5 < max(norms) or clip is None  # the clip acts in some steps only


def test_adamw_is_optax_s():
    knobs = {"learning_rate": 0.01, "weight_decay": 0.1}
    made, _, _ = run_ours(knobs, "adamw")
    transform = optax.chain(
        optax.clip_by_global_norm(0.5), optax.adamw(0.01, eps=1e-5, weight_decay=0.1)
    )
    expected = run_optax(transform, tree(0))
    agree(made, expected)
    undecayed, _, _ = run_ours({"learning_rate": 0.01}, "adamw")
    assert not np.allclose(undecayed["actor"]["kernel"], expected["actor"]["kernel"], atol=1e-4)


def slow_adam_l2(params, rate, decay, clip, eps, pick=lambda tree: tree):
    """Step as torch.optim.Adam documents its weight_decay, in float64; returns the parameters."""
    names = list(pick(params))
    value = {name: np.asarray(params[name]["kernel"], np.float64) for name in names}
    first, second = ({name: np.zeros_like(value[name]) for name in names} for _ in range(2))
    for t in range(1, STEPS + 1):
        given = {
            name: np.asarray(leaf["kernel"], np.float64)
            for name, leaf in pick(gradients(t - 1)).items()
        }
        norm = np.sqrt(sum((g**2).sum() for g in given.values()))
        for name in names:
            g = given[name] * min(1.0, clip / norm) + decay * value[name]
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            away = first[name] / (1 - 0.9**t)
            scale = np.sqrt(second[name] / (1 - 0.999**t)) + eps
            value[name] = value[name] - rate * away / scale
    return {name: {"kernel": value[name]} for name in names}


def test_adam_l2_adds_the_decay_to_the_clipped_gradient():
    knobs = {"learning_rate": 0.01, "weight_decay": 0.3, "adam_eps": 1e-4}
    made, _, norms = run_ours(knobs, "adam_l2")
    agree(made, slow_adam_l2(tree(0), 0.01, 0.3, 0.5, 1e-4))
    assert norms[3] == pytest.approx(norm_of(gradients(3)), rel=1e-6)  # without the decay
    decoupled, _, _ = run_ours(knobs, "adamw")
    plain, _, _ = run_ours({"learning_rate": 0.01, "adam_eps": 1e-4})
    for other in (decoupled, plain):
        assert not np.allclose(made["actor"]["kernel"], other["actor"]["kernel"], atol=1e-3)


def test_adam_l2_without_decay_is_adam():
    knobs = {"learning_rate": 0.01}
    for one, other in zip(run_ours(knobs, "adam_l2")[:1], run_ours(knobs)[:1], strict=True):
        agree(one, other)


def test_adam_l2_of_a_separate_critic_decays_by_its_own():
    knobs = {"learning_rate": 0.01, "weight_decay": 0.05, "max_grad_norm": 0.3, "adam_eps": 1e-4,
             "separate_vf_optimiser": True, "vf_learning_rate": 0.003, "vf_weight_decay": 0.4,
             "vf_max_grad_norm": 1.5}  # fmt: skip
    made, _, _ = run_ours(knobs, "adam_l2")
    policy = slow_adam_l2(tree(0), 0.01, 0.05, 0.3, 1e-4, rest)
    agree(made, policy | slow_adam_l2(tree(0), 0.003, 0.4, 1.5, 1e-4, critic))


def test_sgd_is_optax_s():
    knobs = {"learning_rate": 0.01, "weight_decay": 0.1, "sgd_momentum": 0.7}
    made, moments, _ = run_ours(knobs, "sgd")
    transform = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.trace(0.7),
        optax.add_decayed_weights(0.1),
        optax.scale(-0.01),
    )
    agree(made, run_optax(transform, tree(0)))
    assert all(leaf.shape == () for leaf in jax.tree.leaves([m.nu for m in moments]))


def slow_nadam(params, rate, decay, clip, betas, eps):
    """Step vectors by Adam with Nesterov's look-ahead (Dozat 2016), in float64."""
    one, two = betas
    value = {name: np.asarray(params[name]["kernel"], np.float64) for name in params}
    first, second = ({name: np.zeros_like(value[name]) for name in params} for _ in range(2))
    for t in range(1, STEPS + 1):
        given = {
            name: np.asarray(leaf["kernel"], np.float64) for name, leaf in gradients(t - 1).items()
        }
        norm = np.sqrt(sum((g**2).sum() for g in given.values()))
        for name in params:
            g = given[name] * min(1.0, clip / norm)
            first[name] = one * first[name] + (1 - one) * g
            second[name] = two * second[name] + (1 - two) * g**2
            ahead = one * first[name] / (1 - one ** (t + 1)) + (1 - one) * g / (1 - one**t)
            scale = np.sqrt(second[name] / (1 - two**t)) + eps
            value[name] = value[name] - rate * (ahead / scale + decay * value[name])
    return {name: {"kernel": value[name]} for name in params}


def test_muon_is_optax_s():
    """Matrices and, with Nesterov's look-ahead, all others."""
    knobs = {"learning_rate": 0.01, "weight_decay": 0.1, "muon_momentum": 0.8, "adam_eps": 1e-8,
             "adam_beta1": 0.7, "adam_beta2": 0.95}  # fmt: skip
    made, moments, _ = run_ours(knobs, "muon")
    transform = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.contrib.muon(
            0.01, beta=0.8, weight_decay=0.1, adam_weight_decay=0.1, adam_b1=0.7, adam_b2=0.95
        ),
    )
    expected = run_optax(transform, tree(0))
    for name in made:
        np.testing.assert_allclose(
            made[name]["kernel"], expected[name]["kernel"], rtol=1e-4, atol=1e-5
        )
    vectors = {name: tree(0)[name] for name in ("actor_head", "critic_head")}
    by_hand = slow_nadam(vectors, 0.01, 0.1, 0.5, (0.7, 0.95), 1e-8)
    agree({name: made[name] for name in vectors}, by_hand)
    second = {**moments[0].nu, **moments[1].nu}
    assert {name: leaf["kernel"].shape for name, leaf in second.items()} == {
        "actor": (),
        "critic": (),
        "actor_head": (2,),
        "critic_head": (1,),
    }
    adam, _, _ = run_ours({k: v for k, v in knobs.items() if k != "muon_momentum"}, "adamw")
    for name in vectors:  # which adamw does not do
        assert not np.allclose(made[name]["kernel"], adam[name]["kernel"], atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 5), (3, 8), (8, 3), (1, 6), (64, 64)])
def test_orthogonalised_matrices_are_nearly_so(shape):
    matrix = np.random.default_rng(1).normal(size=shape)
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    for scale in (1e-3, 1.0, 1e3):  # the size of a gradient does not matter
        made = np.asarray(orthogonalised(jnp.asarray(scale * matrix, jnp.float32)), np.float64)
        inner = u.T @ made @ vt.T  # U^T X V: singular values on the diagonal, nothing beside it
        np.testing.assert_allclose(inner - np.diag(np.diag(inner)), 0.0, atol=2e-3)
        large = np.diag(inner)[s > 0.05 * np.linalg.norm(s)]
        assert np.all((large > 0.6) & (large < 1.25))


def test_muon_scales_steps_of_wide_matrices():
    """sqrt(max(1, outputs / inputs)), heads being stored output-first."""
    params = {
        "actor": {"kernel": jnp.ones((2, 8))},
        "actor_head": {"kernel": jnp.ones((2, 8))},
        "critic": {"kernel": jnp.ones((8, 2))},
    }
    gradient = {
        name: {
            "kernel": jnp.asarray(
                np.random.default_rng(2).normal(size=leaf["kernel"].shape), jnp.float32
            )
        }
        for name, leaf in params.items()
    }
    plan = PLANS["muon"]
    hypers = jax.tree.map(jnp.asarray, make_hypers({"learning_rate": 1.0}, {}, {}))
    sizes = step_sizes(hypers, jnp.float32(0.0))
    moments = init_moments(plan, params)
    made, _, _ = apply_gradients(plan, hypers, sizes, gradient, params=params, moments=moments)
    for name, factor in (("actor", 2.0), ("actor_head", 1.0), ("critic", 1.0)):
        moved = np.asarray(params[name]["kernel"] - made[name]["kernel"])
        values = np.linalg.svd(moved, compute_uv=False) / factor
        assert np.all((values > 0.6) & (values < 1.25)), name


@pytest.mark.parametrize("network", ["gnn", "path_mlp"])
def test_muon_scales_no_step_of_a_head_with_one_output(network):
    """The attention of a gnn and the refusing action have a head of one row."""
    given = {"network": network, "optimiser": "muon", "gradient_accumulation": 1}
    keys = (("k", 2), ("no_op", True), ("slots", 4), ("topology", "5node"))
    plan = make_plan(given, EnvPlan("rmsa", keys), features=())
    params = environments.make(plan.env).default_params
    hypers = jax.tree.map(jnp.asarray, make_hypers({"learning_rate": 1.0}, params, params))
    shapes = jax.eval_shape(lambda key: init_params(plan, hypers, key), jax.random.key(0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    sizes, moments = step_sizes(hypers, jnp.float32(0.0)), init_moments(plan, zeros)
    ones = jax.tree.map(jnp.ones_like, zeros)
    made, _, _ = apply_gradients(plan, hypers, sizes, ones, params=zeros, moments=moments)
    rows = {name: leaf for name, leaf in named_leaves(made).items() if leaf.shape[0] == 1}
    heads = {name: leaf for name, leaf in rows.items() if leaf.ndim == 2 and "embed" not in name}
    assert len(heads) == (8 if network == "gnn" else 2)
    for name, leaf in heads.items():
        assert 0.6 < np.linalg.norm(leaf) < 1.25, name


class DenseHeads(nn.Module):
    """The heads of a user's network, whose kernels flax stores input-first."""

    @nn.compact
    def __call__(self, observation):
        policy, value = (nn.Dense(n, name=f"{of}_head") for n, of in ((2, "actor"), (1, "critic")))
        return Outputs(policy(observation), value(observation)[..., 0])


def test_muon_scales_the_heads_of_a_user_s_network_as_flax_stores_them(monkeypatch):
    factory = lambda plan, outputs, struct: DenseHeads()  # noqa: E731
    monkeypatch.setitem(networks._NETWORKS, "dense_heads", factory)
    plan = dataclasses.replace(PLANS["muon"], network="dense_heads")
    hypers = jax.tree.map(jnp.asarray, make_hypers({"learning_rate": 1.0}, {}, {}))
    params = jax.tree.map(jnp.zeros_like, init_params(plan, hypers, jax.random.key(0)))
    assert params["actor_head"]["kernel"].shape == (4, 2)
    sizes, moments = step_sizes(hypers, jnp.float32(0.0)), init_moments(plan, params)
    ones = jax.tree.map(jnp.ones_like, params)
    made, _, _ = apply_gradients(plan, hypers, sizes, ones, params=params, moments=moments)
    for name in ("actor_head", "critic_head"):
        assert 0.6 < np.linalg.norm(made[name]["kernel"]) < 1.25


def test_a_separate_critic_has_its_own_everything():
    knobs = {
        "learning_rate": 0.01, "max_grad_norm": 0.3, "weight_decay": 0.02, "adam_eps": 1e-4,
        "separate_vf_optimiser": True, "vf_learning_rate": 0.003, "vf_max_grad_norm": 1.5,
        "vf_adam_beta1": 0.7, "vf_adam_beta2": 0.95, "vf_adam_eps": 1e-3, "vf_weight_decay": 0.2,
    }  # fmt: skip
    made, _, norms = run_ours(knobs, "adamw")
    policy = optax.chain(
        optax.clip_by_global_norm(0.3), optax.adamw(0.01, eps=1e-4, weight_decay=0.02)
    )
    value = optax.chain(
        optax.clip_by_global_norm(1.5), optax.adamw(0.003, 0.7, 0.95, eps=1e-3, weight_decay=0.2)
    )
    agree(made, run_optax(policy, tree(0), rest) | run_optax(value, tree(0), critic))
    assert norms[0] == pytest.approx(norm_of(gradients(0)), rel=1e-6)


def test_vf_knobs_have_no_effect_without_a_separate_optimiser():
    plain, _, _ = run_ours({"learning_rate": 0.01})
    unused = {"vf_learning_rate": 1.0, "vf_max_grad_norm": 1e-3, "vf_adam_beta1": 0.1,
              "vf_adam_beta2": 0.1, "vf_adam_eps": 1.0}  # fmt: skip
    same, _, _ = run_ours({"learning_rate": 0.01, **unused})
    for left, right in zip(jax.tree.leaves(plain), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_separate_critic_s_clip_can_be_off():
    knobs = {"learning_rate": 0.01, "max_grad_norm": 0.1, "separate_vf_optimiser": True,
             "vf_learning_rate": 0.01, "vf_max_grad_norm": "off", "sgd_momentum": 0.0}  # fmt: skip
    made, _, _ = run_ours(knobs, "sgd", steps=4)
    agree(critic(made), run_optax(optax.sgd(0.01), tree(0), critic, steps=4))
    same, _, _ = run_ours({**knobs, "vf_max_grad_norm": "same"}, "sgd", steps=4)
    assert not np.allclose(same["critic"]["kernel"], made["critic"]["kernel"], atol=1e-4)


def test_vf_learning_rate_defaults_to_a_third():
    hypers = make_hypers({"learning_rate": 0.03, "separate_vf_optimiser": True}, {}, {})
    sizes = step_sizes(jax.tree.map(jnp.asarray, hypers), jnp.float32(0.0))
    assert float(sizes.policy) == pytest.approx(0.03)
    assert float(sizes.critic) == pytest.approx(0.01)


def test_learning_rates_follow_their_own_schedules():
    knobs = {
        "learning_rate": 1.0, "lr_schedule": "linear", "lr_end_fraction": 0.2,
        "separate_vf_optimiser": True, "vf_learning_rate": 0.5, "vf_lr_schedule": "cosine",
        "vf_lr_end_fraction": 0.0, "vf_schedule_multiplier": 0.5,
    }  # fmt: skip
    hypers = jax.tree.map(jnp.asarray, make_hypers(knobs, {}, {}))
    sizes = step_sizes(hypers, jnp.float32(0.25))
    assert float(sizes.policy) == pytest.approx(0.8)  # 1 - 0.8 / 4
    assert float(sizes.critic) == pytest.approx(0.25)  # half of the cosine, which ends at 0.5
    together = hypers.replace(separate_vf_optimiser=jnp.float32(0.0))
    assert float(step_sizes(together, jnp.float32(0.25)).critic) == pytest.approx(0.8)


def test_zero_gradient_leaves_parameters_unchanged():
    hypers = jax.tree.map(jnp.asarray, make_hypers({}, {}, {}))
    params = tree(0)
    zeros = jax.tree.map(jnp.zeros_like, params)
    sizes = step_sizes(hypers, jnp.float32(0.0))
    moments = init_moments(PLANS["adam"], params)
    made, _, norm = apply_gradients(
        PLANS["adam"], hypers, sizes, zeros, params=params, moments=moments
    )
    assert float(norm) == 0.0
    for left, right in zip(jax.tree.leaves(made), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_norm_is_over_all_leaves():
    assert float(tree_norm({"a": jnp.asarray([3.0]), "b": jnp.asarray([[4.0]])})) == 5.0


def test_squares_and_distance_sum_over_actor_and_critic():
    """Leaves above and below what is summed as one, against NumPy in double precision."""
    rng = np.random.default_rng(0)
    shapes = {"actor": (70, 40), "log_std": (3,), "critic": (50, 60), "critic_head": (1, 9)}
    own, mean = (
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(2)
    )
    (policy, critic), distance = jax.jit(squares_and_distance)(own, mean)

    def square(names, less=0.0):
        return sum(np.sum((own[n] - less * mean[n].astype(np.float64)) ** 2) for n in names)

    # A CPU sums pairs one after the other, a GPU in a tree.
    assert float(policy) == pytest.approx(square(("actor", "log_std")), rel=1e-5)
    assert float(critic) == pytest.approx(square(("critic", "critic_head")), rel=1e-5)
    assert float(distance) == pytest.approx(square(shapes, 1.0) ** 0.5, rel=1e-5)
