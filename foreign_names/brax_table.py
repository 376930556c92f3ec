"""Brax's PPO, and the configurations that MuJoCo Playground defines for it."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ConfigError
from ..files.plain_data import is_number
from .derived import Derived, whole
from .name_mapping import (
    ACTIVATIONS,
    MACHINE,
    OUTPUT,
    PLAIN_PPO,
    STATISTICS,
    NoCounterpart,
    PythonCalls,
    SettingsRow,
    System,
    left,
    mapping_of,
    name_sets,
    parsed,
    refused,
    table,
    taken,
    widths_of,
)

NAMES = ("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverted_pendulum",
         "inverted_double_pendulum", "pusher", "reacher", "swimmer", "walker2d")  # fmt: skip
"""Brax's environments."""
_LAYERS = {"policy_hidden_layer_sizes": [32] * 4, "value_hidden_layer_sizes": [256] * 5}
_KEYS = {"policy_obs_key": "state", "value_obs_key": "state"}
_HARMLESS = {"preprocess_observations_fn": None, "noise_std_type": "scalar",
             "state_dependent_std": False, "use_distributional_critic": False,
             "init_noise_std": 1.0}  # fmt: skip
_UNLESS = "it affects training and has no counterpart"


def env_of(value: Any) -> str:
    """Return our id for a brax or MuJoCo Playground environment.

    >>> env_of("ant"), env_of("BallInCup"), env_of("CartPole-v1")
    ('brax:ant', 'playground:BallInCup', 'CartPole-v1')
    """
    name = str(value)
    if name in NAMES:
        return f"brax:{name}"
    plain = name[:1].isupper() and name.isalnum()
    return f"playground:{name}" if plain else name


def _network_settings(value: Any) -> SettingsRow:
    """Read the arguments of `network_factory`."""
    given = {**_LAYERS, **_KEYS, **mapping_of(value)}
    policy, critic = (widths_of(given.pop(name)) for name in _LAYERS)
    if policy != critic:
        raise NoCounterpart(
            f"policy layers {policy} and value layers {critic} differ, but hpo uses the "
            "same widths for both; give one list"
        )
    keys = {given.pop(name) for name in _KEYS}
    if len(keys) > 1:
        raise NoCounterpart(
            "the value network and the policy have different observations, which is not supported"
        )
    settings = SettingsRow(hidden_sizes=policy)
    if "activation" in given:
        settings["activation"] = ACTIVATIONS.of(given.pop("activation"))
    if given.pop("distribution_type", "tanh_normal") == "normal":
        deviation = given.pop("init_noise_std", 1.0)
        if not is_number(deviation) or deviation <= 0:
            raise NoCounterpart(f"init_noise_std={deviation!r} is not a number above 0")
        settings |= {"distribution": "gaussian", "log_std_init": math.log(deviation)}
    odd = {name: one for name, one in given.items() if _HARMLESS.get(name, ...) != one}
    if odd:
        name, one = next(iter(odd.items()))
        raise NoCounterpart(f"{name}={one!r} has no counterpart")
    return settings


_ROLLOUT = ("num_envs", "batch_size", "num_minibatches", "unroll_length")


def _rollout_sizes(*given: Any) -> dict[str, int]:
    """Convert unrolls to a rollout length.

    An update uses `batch_size` x `num_minibatches` unrolls.
    """
    envs, batch, parts, unroll = (whole(value) or 0 for value in given)
    if min(envs, batch, parts, unroll) < 1 or batch * parts % envs:
        text = f"batch_size x num_minibatches is {batch * parts} unrolls; brax needs a multiple of"
        raise ConfigError(f"{text} num_envs ({envs})", flags={"num_envs": parts})
    length = unroll * (batch * parts // envs)
    return {"unroll_length": length, "num_envs": envs, "num_minibatches": parts}


def _evaluation_interval(steps: Any, evaluations: Any) -> dict[str, int]:
    """Return the env steps between evaluations; the first one is before the run."""
    total, count = whole(steps), whole(evaluations)
    if not total or not count or count < 2:
        return {}
    return {"num_evals": max(1, total // (count - 1))}


BRAX = System(
    "brax",
    "brax",
    (
        taken(
            "env_name",
            "env",
            values=parsed(env_of, "ant is brax:ant; BallInCup is playground:BallInCup"),
        ),
        taken("environment", "env", values=parsed(env_of, "as env_name")),
        taken("env", "env", values=parsed(env_of, "as env_name")),
        *table("""
            num_timesteps env_steps; seed =; num_envs = 1; learning_rate = 1e-4
            entropy_cost ent_coef 1e-4; discounting gamma 0.9; num_minibatches = 16
            num_updates_per_batch update_epochs 2; reward_scaling reward_scale 1.0
            clipping_epsilon clip_eps 0.3; clipping_epsilon_value value_clip_eps None
            gae_lambda = 0.95; max_grad_norm = None; vf_loss_coefficient vf_coef 0.5
            normalize_advantage normalise_advantages True
            episode_length env.max_steps_in_episode
            num_eval_envs evaluation.episodes 128; deterministic_eval evaluation.greedy False"""),
        taken(
            "unroll_length",
            "rollout_length",
            10,
            note="in brax, advantage estimation ends with each unroll; in hpo, with the rollout",
        ),
        taken("batch_size", "rollout_length", note="unrolls per minibatch; see unroll_length"),
        taken(
            "num_evals",
            "evaluation.every",
            note=(
                "number of evaluations in brax, one of them before training; env steps "
                "between them here"
            ),
        ),
        *table("normalize_observations normalise_observations False", STATISTICS),
        taken(
            "network_factory",
            "hidden_sizes",
            values=parsed(_network_settings, "layers, activation and distribution"),
        ),
        *refused("hpo applies each action once", "action_repeat", (1, None)),
        *refused("brax's pixel observations are not supported", "vision augment_pixels"),
        *refused(
            "register the randomised environment as a custom one (docs/environments.md)",
            "randomization_fn",
        ),
        *refused(
            "an adaptive learning rate has no counterpart",
            "learning_rate_schedule",
            (None, "NONE", "none"),
        ),
        *refused(_UNLESS, "bootstrap_on_timeout use_distributional_critic"),
        *refused(_UNLESS, "normalize_observations_std_eps", (0, 0.0, None)),
        *refused(_UNLESS, "normalize_observations_mode", ("welford", None)),
        *refused(_UNLESS, "normalize_until_count", (None,)),
        *refused("brax checkpoints cannot be read", "restore_checkpoint_path restore_params"),
        *left(
            "only used by learning_rate_schedule",
            "desired_kl learning_rate_schedule_min_lr learning_rate_schedule_max_lr",
        ),
        *left("hpo restarts episodes automatically", "num_resets_per_eval"),
        *left("environments are wrapped by hpo", "wrap_env wrap_env_fn"),
        *left("see `eval_env`", "eval_env"),
        *left("only used when restoring", "restore_value_fn"),
        *left(
            OUTPUT,
            "log_training_metrics training_metrics_steps progress_fn policy_params_fn "
            "save_checkpoint_path run_evals",
        ),
        *left(MACHINE, "max_devices_per_host use_pmap_on_reset"),
    ),
    marks=name_sets(
        "num_updates_per_batch; unroll_length num_minibatches; unroll_length discounting; "
        "entropy_cost discounting"
    ),
    python=PythonCalls(("train",)),
    derived=(
        Derived(
            "unroll_length",
            _ROLLOUT,
            _rollout_sizes,
            note="batch_size: {batch_size} x {num_minibatches} unrolls of {unroll_length} env "
            "steps make an update, so rollout_length is {value}",
            drops=("batch_size", "unroll_length"),
            defaults={"batch_size": 32},
            because="but it determines the rollout length together with {others}",
            always=True,
        ),
        Derived(
            "num_evals",
            ("num_timesteps", "num_evals"),
            _evaluation_interval,
            drops=("num_evals",),
            because="but it determines the evaluation interval together with {others}",
        ),
    ),
    version="of June 2026 (0.14)",
    source="github.com/google/brax, brax/training/agents/ppo/train.py and losses.py, and "
    "github.com/google-deepmind/mujoco_playground, config/",
    always={
        **PLAIN_PPO,
        "adam_eps": 1e-8,
        "network": "mlp",
        "activation": "silu",
        "initialisation": "lecun",
        "hidden_gain": 1.0,
        "policy_gain": 1.0,
        "value_gain": 1.0,
        "observation_clip": None,
        "distribution": "tanh_gaussian",
        "log_std_init": round(math.log(math.log(2.0) + 0.001), 6),
    },
    differs=(
        "in brax, the standard deviation of actions depends on the observation; here it does not",
        (
            "brax computes advantages for each minibatch and weights their first step by "
            "gamma; hpo computes them once per rollout and weights it by gamma times "
            "gae_lambda"
        ),
        "brax's minibatches consist of whole unrolls, hpo's of single env steps",
    ),
)
