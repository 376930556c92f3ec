"""Every traced hyperparameter has an effect on training.

Two lanes of one program start from the same seed and differ in one hyperparameter. After two
updates of four their parameters differ. Each case has the settings under which it can matter.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.population import init_lane
from hpo.core.update import update
from hpo.knobs import KNOBS

pytestmark = pytest.mark.usefixtures("quickly_compiled")

STATIC = {"num_envs": 4, "rollout_length": 16, "num_minibatches": 2, "hidden_sizes": [8]}
PLAIN = (
    "normalise_observations",
    "normalise_rewards",
    "priority",
    "raw_reward_deviation",
    "reward_centering",
    "schedule_on_gradient_steps",
    "vf_gae_lambda",
)
CONTROLLED = (("shadow", "ksp_ff"),)
FULL = (("load", 1000.0), ("max_requests", 64))
PROGRAMS = {
    "plain": (EnvPlan("CartPole-v1"), {}, PLAIN),
    "v_trace": (EnvPlan("CartPole-v1"), {}, ("v_trace",)),
    "adamw": (EnvPlan("CartPole-v1"), {"optimiser": "adamw"}, ()),
    "sgd": (EnvPlan("CartPole-v1"), {"optimiser": "sgd"}, ()),
    "muon": (EnvPlan("CartPole-v1"), {"optimiser": "muon"}, ()),
    "continuous": (EnvPlan("Pendulum-v1"), {}, ()),
    "masks": (EnvPlan("rmsa", FULL), {}, ("off_policy_masking", "valid_mass_loss")),
    "shadow": (EnvPlan("rmsa", CONTROLLED), {}, ()),
}

CRITIC = {"separate_vf_optimiser": True}
RAW = {"normalise_rewards": False}
WARM = {"lr_schedule": "warmup_cosine", "lr_warmup_fraction": 0.5}
WARM_CRITIC = {**CRITIC, "vf_lr_schedule": "warmup_cosine", "vf_warmup_fraction": 0.5}
LINEAR_CRITIC = {**CRITIC, "vf_lr_schedule": "linear"}
ENTROPY = {"ent_coef": 0.05, "ent_schedule": "linear"}
ANNEALED = {"gae_lambda_initial": 0.5, "gae_lambda_final": 0.95}
DRAWN = {"priority_alpha": 0.6, "priority_beta0": 0.3}
CENTRED = {**RAW, "reward_centering": True, "average_reward_initial": 0.0}
TIGHT = {"clip_eps": 0.02, "learning_rate": 0.01}
MASKED = {"off_policy_masking": True, "learning_rate": 0.01}
MASS = {**MASKED, "valid_mass_coef": 0.1}
MASS_LINEAR = {**MASS, "valid_mass_schedule": "linear"}

# hyperparameter -> its other value, and the settings of both lanes
PLAIN_CASES = {
    "learning_rate": (0.002, {}),
    "lr_schedule": ("linear", {}),
    "lr_end_fraction": (0.9, {"lr_schedule": "linear"}),
    "lr_warmup_fraction": (0.9, WARM),
    "lr_warmup_multiplier": (2.0, WARM),
    "lr_warmup_start_fraction": (0.5, WARM),
    "lr_schedule_multiplier": (0.5, {"lr_schedule": "linear"}),
    "lr_decay_exponent": (2.0, {"lr_schedule": "cosine"}),
    "gamma": (0.9, {}),
    "gae_lambda": (0.5, {}),
    "vf_gae_lambda": (0.5, {}),
    "gae_lambda_initial": (0.8, ANNEALED),
    "gae_lambda_final": (0.6, ANNEALED),
    "gae_lambda_schedule_multiplier": (0.2, ANNEALED),
    "clip_eps": (0.01, TIGHT),
    "clip_eps_schedule": ("linear", TIGHT),
    "clip_eps_end_fraction": (0.9, {**TIGHT, "clip_eps_schedule": "linear"}),
    "value_clip_eps": (0.001, {}),
    "vf_coef": (1.0, {}),
    "ent_coef": (0.05, {}),
    "ent_schedule": ("linear", {"ent_coef": 0.05}),
    "ent_end_fraction": (0.9, ENTROPY),
    "ent_schedule_multiplier": (0.5, ENTROPY),
    "max_grad_norm": (0.01, {"adam_eps": 0.1}),
    "adam_eps": (0.1, {}),
    "adam_beta1": (0.5, {}),
    "adam_beta2": (0.9, {}),
    "separate_vf_optimiser": (True, {"vf_learning_rate": 0.01}),
    "vf_learning_rate": (0.01, CRITIC),
    "vf_lr_schedule": ("linear", CRITIC),
    "vf_lr_end_fraction": (0.9, LINEAR_CRITIC),
    "vf_warmup_fraction": (0.9, WARM_CRITIC),
    "vf_warmup_multiplier": (2.0, WARM_CRITIC),
    "vf_warmup_start_fraction": (0.5, WARM_CRITIC),
    "vf_schedule_multiplier": (0.5, LINEAR_CRITIC),
    "vf_adam_eps": (0.1, CRITIC),
    "vf_adam_beta1": (0.5, CRITIC),
    "vf_adam_beta2": (0.9, CRITIC),
    "vf_max_grad_norm": (0.01, {**CRITIC, "adam_eps": 0.1}),
    "reward_scale": (2.0, RAW),
    "reward_clip": (0.5, RAW),
    "reward_centering": (True, {**RAW, "average_reward_initial": 0.5}),
    "average_reward_initial": (0.5, CENTRED),
    "average_reward_step": (0.1, CENTRED),
    "normalise_observations": (True, {}),
    "observation_clip": (0.01, {"normalise_observations": True}),
    "normalise_rewards": (True, RAW),
    "raw_reward_deviation": (True, {"normalise_rewards": True}),
    "normalise_advantages": (False, {}),
    "logr_clip": (1e-3, TIGHT),
    "adv_clip": (0.1, {}),
    "target_kl": (1e-9, {"learning_rate": 0.01}),
    "priority_alpha": (0.6, {}),
    "priority_beta0": (0.6, DRAWN),
    "anneal_priority_beta": (False, DRAWN),
    "update_epochs": (2, {}),
    "schedule_on_gradient_steps": (True, {"lr_schedule": "linear"}),
}
CASES = {
    **{name: ("plain", *case) for name, case in PLAIN_CASES.items()},
    "weight_decay": ("adamw", 0.1, {}),
    "vf_weight_decay": ("adamw", 0.1, CRITIC),
    "sgd_momentum": ("sgd", 0.5, {}),
    "muon_momentum": ("muon", 0.5, {}),
    "rho_clip": ("v_trace", 0.5, {"rho_clip": 1.0, "c_clip": 0.5}),
    "c_clip": ("v_trace", 0.5, {"rho_clip": 1.0, "c_clip": 1.0}),
    "log_std_init": ("continuous", 0.0, {}),
    "log_std_min": ("continuous", 0.5, {}),
    "log_std_max": ("continuous", -1.0, {}),
    "action_masking": ("masks", False, {}),
    "off_policy_masking": ("masks", True, {"learning_rate": 0.01}),
    "masking_gate_min_actions": ("masks", 2000, MASKED),
    "masking_gating": ("masks", False, {**MASKED, "masking_gate_min_actions": 2000}),
    "masking_damping": ("masks", False, {**MASKED, "valid_mass_target": 1.0}),
    "valid_mass_target": ("masks", 1.0, MASKED),
    "valid_mass_coef": ("masks", 0.1, MASKED),
    "valid_mass_schedule": ("masks", "linear", MASS),
    "valid_mass_end_fraction": ("masks", 0.5, MASS_LINEAR),
    "valid_mass_schedule_multiplier": ("masks", 0.5, MASS_LINEAR),
    "shadow_weight": ("shadow", 0.5, {}),
}


@functools.cache
def program(name):
    """Return what gives the parameters of two lanes after two updates of four."""
    where, knobs, features = PROGRAMS[name]
    plan = make_plan({**STATIC, **knobs}, where, features=features)
    params = registry.make(where).default_params

    def trained(hypers):
        count = jnp.int32(0)
        start = jax.vmap(
            lambda one: init_lane(plan, jnp.uint32(3), one, count, count, count, jnp.int32(4))
        )(hypers)

        def step(state, _):
            return update(plan, hypers, state)[0], None

        end, _ = jax.lax.scan(step, start, length=2)
        return end.params

    compiled = jax.jit(trained)

    def run(*settings):
        lanes = [make_hypers({**STATIC, **knobs, **one}, params, params) for one in settings]
        return compiled(jax.tree.map(lambda *leaves: np.stack(leaves), *lanes))

    return run


def differ(params):
    return any(bool(jnp.any(leaf[0] != leaf[1])) for leaf in jax.tree.leaves(params))


def test_every_traced_hyperparameter_has_a_case():
    assert set(CASES) == {name for name, knob in KNOBS.items() if knob.traced}


@pytest.mark.parametrize("name", CASES)
def test_traced_hyperparameter_changes_training(name):
    which, other, settings = CASES[name]
    assert settings.get(name, KNOBS[name].default) != other
    params = program(which)(settings, {**settings, name: other})
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(params))
    assert differ(params), f"{name}: {other!r} trains as its other value does"


@pytest.mark.parametrize("which", PROGRAMS)
def test_equal_lanes_learn_the_same(which):
    assert not differ(program(which)({}, {}))
