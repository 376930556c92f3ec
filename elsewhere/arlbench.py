"""ARLBench's PPO: `hp_config`, `nas_config` and `autorl` of its configurations and spaces."""

from __future__ import annotations

from typing import Any

from .builtin import PLAIN_PPO, mapping_of
from .common import OUTPUT
from .rows import System, left, refused, taken
from .values import Parsed, Settings, Words

__all__ = ["ARLBENCH"]

_NETWORKS = Words(
    {True: Settings(network="cnn", shared_encoder=True), False: Settings(network="mlp")}
)


def _env_arguments(value: Any) -> Settings:
    return Settings({f"env.{key}": one for key, one in mapping_of(value).items()})


_ENV = Parsed(_env_arguments, "keys of the environment")

ARLBENCH = System(
    "arlbench",
    "ARLBench",
    (
        taken("env_name", "env", "CartPole-v1"),
        taken("environment.name", "env"),
        taken("name", "env"),
        taken("env_kwargs", "env.*", values=_ENV),
        taken("kwargs", "env.*", values=_ENV),
        taken("n_total_timesteps", "env_steps", 1_000_000),
        taken("seed", "seed"),
        taken("n_envs", "num_envs", 8),
        taken("n_eval_episodes", "evaluation.episodes"),
        taken("deterministic_eval", "evaluation.greedy"),
        taken("learning_rate", "learning_rate", 3e-4),
        taken("n_steps", "rollout_length", 128),
        taken("minibatch_size", "minibatch_size", 64),
        taken("update_epochs", "update_epochs", 10),
        taken("gamma", "gamma", 0.99),
        taken("gae_lambda", "gae_lambda", 0.95),
        taken("clip_eps", "clip_eps", 0.2),
        taken("vf_clip_eps", "value_clip_eps", 0.2),
        taken("normalize_advantage", "normalise_advantages", True),
        taken("ent_coef", "ent_coef", 0.0),
        taken("vf_coef", "vf_coef", 0.5),
        taken("max_grad_norm", "max_grad_norm", 0.5),
        taken("normalize_observations", "normalise_observations", False),
        taken("activation", "activation", "tanh"),
        taken("hidden_size", "hidden_size", 64),
        taken("cnn_policy", "network", values=_NETWORKS),
        *refused("a study trains with PPO alone", "algorithm", harmless=("ppo", "PPO", None)),
        *left("ids of gymnax stand as they are, others as gym:, brax:", "env_framework",
              "framework"),
        *left("see `evaluation`", "n_eval_steps", "eval_kwargs", "eval_env_kwargs"),
        *left("see `metric`", "objectives", "optimize_objectives"),
        *left("it belongs to hyperparameters as actions; see docs/autorl.md", "state_features"),
        *left(OUTPUT, "checkpoint", "checkpoint_name", "checkpoint_dir", "load_checkpoint",
              "track_metrics", "track_trajectories", "hpo_method"),
        *left("the precision is `dtype`", "jax_enable_x64"),
    ),
    ("arlbench",),
    (frozenset({"vf_clip_eps"}), frozenset({"minibatch_size", "n_steps"})),
    source="github.com/automl/arlbench, arlbench/core/algorithms/ppo",
    always={**PLAIN_PPO, "adam_eps": 1e-5, "num_layers": 2, "observation_clip": None},
    differs=(
        "episodes that a time limit cuts bootstrap from their last observation here; ARLBench "
        "counts them as ended",
    ),
)  # fmt: skip
