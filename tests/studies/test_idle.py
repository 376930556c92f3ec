"""Knobs that a study names and that change nothing in it."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core import optimisers
from hpo.core.hypers import make_hypers
from hpo.core.optimisers import scheduled_values
from hpo.core.plan import EnvPlan, make_plan
from hpo.knobs import KNOBS
from hpo.studies.check import check
from hpo.studies.load import load, loads
from hpo.studies.unused_knobs import NEEDS, idle_knobs

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "studies").glob("*.yaml"))


def study(text, env="CartPole-v1"):
    return loads(f"env: {env}\nenv_steps: 320k\nbudget: {{trials: 4}}\n{text}\n")


@pytest.mark.parametrize(
    ("text", "env", "told"),
    [
        (
            "fixed: {lr_end_fraction: 0.5}",
            "CartPole-v1",
            "lr_end_fraction has no effect here: it needs lr_schedule other than constant or "
            "vf_lr_schedule other than constant",
        ),
        (
            "fixed: {gae_lambda: 0.9, gae_lambda_initial: 0.8, gae_lambda_final: 1.0}",
            "CartPole-v1",
            "gae_lambda has no effect here: it needs gae_lambda_initial off",
        ),
        (
            "space: {vf_learning_rate: {min: 1e-4, max: 1e-2}}",
            "CartPole-v1",
            "vf_learning_rate has no effect here: it needs separate_vf_optimiser true",
        ),
        (
            "fixed: {shadow_weight: 0.5}\nevaluation: {steps: 50}",
            "{id: rmsa, topology: ring4}",
            "shadow_weight has no effect here: env.shadow is not set",
        ),
        (
            "fixed: {network: cnn, hidden_sizes: [64]}",
            "Breakout-MinAtar",
            "hidden_sizes has no effect here: it is used only by mlp, path_mlp, lstm, gru",
        ),
        (
            "fixed: {network: cnn, num_layers: 1, hidden_size: 9}",
            "Breakout-MinAtar",
            "hidden_size has no effect here: it is used only by mlp, path_mlp, lstm, gru",
        ),
        (
            "space: {valid_mass_coef: {min: 1e-4, max: 1e-1}}",
            "CartPole-v1",
            "valid_mass_coef has no effect here: CartPole-v1 has no action mask",
        ),
        (
            "fixed: {log_std_init: 0.0}",
            "CartPole-v1",
            "log_std_init has no effect here: the actions of CartPole-v1 are discrete",
        ),
        (
            "fixed: {log_std_init: 0.0, distribution: beta}",
            "Pendulum-v1",
            "log_std_init has no effect here: it needs distribution other than beta",
        ),
        (
            "fixed: {network: gnn, link_critic_sees: shares, shared_encoder: true}",
            "{id: rmsa, continuous: false}",
            "link_critic_sees has no effect here: it needs shared_encoder false",
        ),
        (
            "fixed: {network: transformer, link_critic_sees: shares, "
            "transformer_share_layers: true}",
            "{id: rmsa, continuous: false}",
            "link_critic_sees has no effect here: it needs transformer_share_layers false",
        ),
        (
            "fixed: {link_critic_sees: shares}",
            "{id: rmsa, continuous: false}",
            "link_critic_sees has no effect here: it is used only by gnn, transformer",
        ),
        (
            "space: {sgd_momentum: {min: 0.1, max: 0.9}, optimiser: {values: [adam, muon]}}",
            "CartPole-v1",
            "sgd_momentum has no effect here: it needs optimiser sgd",
        ),
        (
            "space: {reward_scale: {min: 0.1, max: 10, distribution: log_uniform}}",
            "CartPole-v1",
            "reward_scale has no effect here: it needs normalise_rewards false",
        ),
    ],
)
def test_idle_hyperparameter_is_reported_with_its_requirement(text, env, told):
    found = idle_knobs(study(text, env))
    assert told in found
    assert told in check(study(text, env)).warnings


@pytest.mark.parametrize(
    ("text", "env"),
    [
        (
            "fixed: {lr_end_fraction: 0.5}\nspace: {lr_schedule: {values: [constant, linear]}}",
            "CartPole-v1",
        ),
        (
            "fixed: {lr_end_fraction: 0.5, vf_lr_schedule: linear, separate_vf_optimiser: true}",
            "CartPole-v1",
        ),
        (
            "fixed: {lr_warmup_fraction: 0.5, ent_coef: 0.1, ent_schedule: warmup_cosine}",
            "CartPole-v1",
        ),
        (
            "fixed: {ent_schedule: linear}\n"
            "space: {ent_coef: {min: 1e-3, max: 0.1, distribution: log_uniform, zero: 0.5}}",
            "CartPole-v1",
        ),
        (
            "fixed: {priority_beta0: 0.5}\nspace: {priority_alpha: {values: [0, 0.5]}}",
            "CartPole-v1",
        ),
        (
            "space:\n  optimiser: {values: [adam, sgd]}\n"
            "  sgd_momentum: {min: 0.1, max: 0.9, when: {optimiser: sgd}}",
            "CartPole-v1",
        ),
        (
            "fixed: {hidden_sizes: [64]}\nspace: {network: {values: [cnn, mlp]}}",
            "Breakout-MinAtar",
        ),
        ("fixed: {valid_mass_coef: 0.1, valid_mass_target: 0.1}", "{id: rmsa, continuous: false}"),
        (
            "fixed: {link_critic_sees: shares, transformer_share_layers: true}\n"
            "space: {network: {values: [gnn, transformer]}}",
            "{id: rmsa, continuous: false}",
        ),
        (
            "fixed: {gae_lambda_initial: 0.8, gae_lambda_final: 1.0, vf_gae_lambda: 0.9}",
            "CartPole-v1",
        ),
        (
            "fixed: {log_std_init: 0.0}\nspace: {distribution: {values: [gaussian, beta]}}",
            "Pendulum-v1",
        ),
        ("fixed: {reward_scale: 0.1, normalise_rewards: false}", "CartPole-v1"),
        (
            "fixed: {reward_scale: 0.1}\nspace: {normalise_rewards: {values: [false, true]}}",
            "CartPole-v1",
        ),
    ],
)
def test_effective_hyperparameters_are_not_reported_as_idle(text, env):
    assert idle_knobs(study(text, env)) == []


@pytest.mark.parametrize(
    "text",
    [
        "fixed: {network: own, cnn_dense: [8], recurrent_size: 8, gnn_edge_mlp_latent: 8}",
        "fixed: {network: own}\nspace: {num_layers: {values: [1]}, hidden_size: {values: [8]}}",
        "fixed: {link_critic_sees: shares, transformer_share_layers: true}\n"
        "space: {network: {values: [own, transformer]}}",
    ],
)
def test_imported_network_may_use_every_hyperparameter(text, tmp_path):
    (tmp_path / "own.py").write_text("")
    whole = f"env: rmsa\nenv_steps: 320k\nevaluation: {{steps: 9}}\nimports: [own.py]\n{text}"
    assert idle_knobs(loads(whole, source=tmp_path)) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_studies_have_no_idle_hyperparameters(path):
    if path.stem.startswith("rejax"):
        pytest.importorskip("rejax")
    assert idle_knobs(load(path)) == []


PLAN = make_plan({}, EnvPlan("CartPole-v1"))
CHANGED = {
    "lr_end_fraction": 0.7, "lr_schedule_multiplier": 2.0, "lr_warmup_fraction": 0.6,
    "lr_warmup_start_fraction": 0.5, "lr_warmup_multiplier": 3.0, "lr_decay_exponent": 2.0,
    "gae_lambda": 0.5, "gae_lambda_schedule_multiplier": 2.0, "clip_eps_end_fraction": 0.5,
    "ent_schedule": "linear", "ent_end_fraction": 0.7, "ent_schedule_multiplier": 2.0,
    "vf_learning_rate": 0.1, "vf_lr_schedule": "cosine", "vf_schedule_multiplier": 3.0,
    "vf_adam_eps": 0.1, "vf_adam_beta1": 0.1, "vf_adam_beta2": 0.1, "vf_max_grad_norm": 9.0,
    "vf_weight_decay": 0.5, "valid_mass_schedule": "linear", "valid_mass_end_fraction": 3.0,
    "valid_mass_schedule_multiplier": 2.0,
}  # fmt: skip


def numbers(knobs):
    """What an update takes of the knobs by its schedules and for its optimisers."""
    given = {"optimiser": "adamw", "learning_rate": 0.01, "adam_beta1": 0.8, **knobs}
    hypers = jax.tree.map(jnp.asarray, make_hypers(given, {}, {}))
    values = scheduled_values(hypers, jnp.float32(0.1))
    settings = optimisers._optimiser_settings(PLAN, hypers, values.sizes)
    return np.array(jax.tree.leaves((values, settings)))


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_idle_table_matches_behaviour_of_the_core(name):
    """Without what it needs a knob moves no number; with each of its needs it moves some."""
    idle = {"lr_schedule": "constant"}
    if name == "gae_lambda":
        idle = {"gae_lambda_initial": 0.8, "gae_lambda_final": 0.9}
    np.testing.assert_array_equal(numbers(idle), numbers({**idle, name: CHANGED[name]}))
    for need in NEEDS[name]:
        separate = need.knob in ("separate_vf_optimiser", "vf_lr_schedule")
        met = {"separate_vf_optimiser": separate, "ent_coef": 0.1, "valid_mass_coef": 0.1}
        if need.knob == "separate_vf_optimiser":
            met["lr_schedule"] = "linear"
        elif need.knob == "gae_lambda_initial":
            met |= {} if need.among else {"gae_lambda_initial": 0.8, "gae_lambda_final": 0.9}
        elif need.knob not in met:
            met[need.knob] = need.values[0] if need.among else "cosine"
        assert np.any(numbers(met) != numbers({**met, name: CHANGED[name]})), need


def test_idle_table_contains_only_known_hyperparameters():
    for name, needs in NEEDS.items():
        assert name in KNOBS and needs
        for need in needs:
            assert need.knob in KNOBS
