"""Rejax's PPO, as its configuration files set it (`ppo: {...}`)."""

from __future__ import annotations

from typing import Any

from .builtin import ACTIVATIONS, PLAIN_PPO, STATISTICS, mapping_of
from .common import OUTPUT
from .rows import System, left, taken
from .values import NoCounterpart, Parsed, Settings, Words

__all__ = ["REJAX"]

_CLIP_NOTE = (
    "every component of a gradient is clipped by itself there, its norm here; the figures do not "
    "compare"
)
_PREFIXES = {"gymnax/": "", "brax/": "brax:", "gymnasium/": "gym:"}
_ENV_KEYS = {"episode_length": "max_steps_in_episode"}  # what brax calls its time limit
_OFF = Words({float("inf"): None, "inf": None})


def _env(value: Any) -> str:
    name = str(value)
    for theirs, ours in _PREFIXES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    if name.startswith("navix/"):
        raise NoCounterpart("environments of Navix are not known here")
    return name


def _agent(value: Any) -> Settings:
    given, settings = mapping_of(value), Settings(activation="silu", hidden_sizes=[64, 64])
    if "activation" in given:
        settings["activation"] = ACTIVATIONS.of(given.pop("activation"))
    if "hidden_layer_sizes" in given:
        settings["hidden_sizes"] = list(given.pop("hidden_layer_sizes"))
    if given:
        raise NoCounterpart(f"{', '.join(map(repr, given))} of the networks has no counterpart")
    return settings


def _env_params(value: Any) -> Settings:
    given = mapping_of(value)
    return Settings({f"env.{_ENV_KEYS.get(key, key)}": one for key, one in given.items()})


REJAX = System(
    "rejax",
    "Rejax",
    (
        taken("env", "env", "CartPole-v1", Parsed(_env, "brax/ant is brax:ant")),
        taken("env_params", "env.*", values=Parsed(_env_params, "keys of the environment")),
        taken("agent_kwargs", "network", {}, Parsed(_agent, "activation, hidden_layer_sizes")),
        taken("total_timesteps", "env_steps", 131_072),
        taken("seed", "seed"),
        taken("eval_freq", "evaluation.every", 4096),
        taken("num_envs", "num_envs", 64),
        taken("num_steps", "rollout_length", 64),
        taken("num_epochs", "update_epochs", 8),
        taken("num_minibatches", "num_minibatches", 16),
        taken("learning_rate", "learning_rate", 3e-4),
        taken("max_grad_norm", "max_grad_norm", float("inf"), _OFF, _CLIP_NOTE),
        taken("gamma", "gamma", 0.99),
        taken("gae_lambda", "gae_lambda", 0.95),
        taken("clip_eps", "clip_eps", 0.2),
        taken("vf_coef", "vf_coef", 0.5),
        taken("ent_coef", "ent_coef", 0.01),
        taken("normalize_observations", "normalise_observations", False, note=STATISTICS),
        taken("normalize_rewards", "normalise_rewards", False, note=STATISTICS),
        *left("rewards are normalised with the study's gamma", "reward_normalization_discount"),
        *left(OUTPUT, "skip_initial_evaluation", "eval_callback"),
    ),
    ("rejax",),
    (frozenset({"agent_kwargs", "num_minibatches"}),),
    source="github.com/keraJLi/rejax, src/rejax/algos/ppo.py",
    always={
        **PLAIN_PPO, "adam_eps": 1e-8, "value_clip_eps": "same", "initialisation": "lecun",
        "hidden_gain": 1.0, "policy_gain": 1.0, "value_gain": 1.0, "network": "mlp",
        "observation_clip": None, "reward_clip": None,
    },
    differs=(
        "actor and critic have an Adam each there, and one here, which is the same but for the "
        "clip of gradients",
        "episodes that a time limit cuts bootstrap from their last observation here; Rejax counts "
        "them as ended",
    ),
)  # fmt: skip
