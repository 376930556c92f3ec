"""The single-file PyTorch PPO that many copy: the 46 fields of its `PPOConfig`.

`lr_critic` and `recurrent` are read by nothing there, although they are fields.
"""

from __future__ import annotations

from typing import Any

from .builtin import ACTIVATIONS, PLAIN_PPO, STATISTICS, TORCH_INIT
from .common import MACHINE, OUTPUT, log_interval
from .rows import System, left, refused, taken
from .values import Parsed, Settings, Words

__all__ = ["TORCH_PPO"]

_WARMUP = {"lr_warmup_fraction": 0.1, "lr_warmup_start_fraction": 0.0}


def _schedule(kind: str, end: str) -> Words:
    """Return the words of a schedule; all but `constant` end at 0."""
    return Words(
        {
            "constant": "constant",
            "none": "constant",
            None: "constant",
            "linear": Settings({kind: "linear", end: 0.0}),
            "cosine": Settings({kind: "cosine", end: 0.0}),
            "warmup_cosine": Settings({kind: "warmup_cosine", end: 0.0, **_WARMUP}),
        }
    )


def _initialisation(orthogonal: Any) -> Settings:
    return Settings() if orthogonal not in (False, "False", "false") else Settings(TORCH_INIT)


_DISTRIBUTIONS = Words({"gaussian": Settings(), "beta": Settings(distribution="beta")})
_SQUASH = Words({True: Settings(distribution="tanh_gaussian"), False: Settings()})
_OF_REWARDS = Words({
    True: Settings(normalise_rewards=True, raw_reward_deviation=True), False: False,
})  # fmt: skip
_DTYPES = Words({True: "bfloat16", False: "float32"})

TORCH_PPO = System(
    "torch_ppo",
    "the single-file PyTorch PPO (PPOConfig)",
    (
        taken("env_id", "env", "CartPole-v1"),
        taken("num_envs", "num_envs", 4),
        taken("seed", "seed", 42),
        taken("total_timesteps", "env_steps", 1_000_000),
        taken("rollout_steps", "rollout_length", 2048),
        taken("n_epochs", "update_epochs", 10),
        taken("minibatch_size", "minibatch_size", 64),
        taken("gamma", "gamma", 0.99),
        taken("gae_lambda", "gae_lambda", 0.95),
        taken("clip_epsilon", "clip_eps", 0.2),
        taken("clip_epsilon_schedule", "clip_eps_schedule", "linear",
              _schedule("clip_eps_schedule", "clip_eps_end_fraction")),
        taken("value_clip_epsilon", "value_clip_eps", 0.2),
        taken("value_coef", "vf_coef", 0.5),
        taken("entropy_coef", "ent_coef", 0.01),
        taken("entropy_coef_schedule", "ent_schedule", "linear",
              _schedule("ent_schedule", "ent_end_fraction")),
        taken("max_grad_norm", "max_grad_norm", 0.5),
        taken("target_kl", "target_kl", 0.02),
        taken("hidden_sizes", "hidden_sizes", [64, 64]),
        taken("activation", "activation", "tanh", ACTIVATIONS),
        taken("shared_backbone", "shared_encoder", False),
        taken("continuous_dist", "distribution", "gaussian", _DISTRIBUTIONS),
        taken("log_std_init", "log_std_init", -0.5),
        taken("squash_actions", "distribution", False, _SQUASH,
              "the action before tanh is kept here; there it is found again by atanh, within "
              "0.9999"),
        taken("lr_actor", "learning_rate", 3e-4),
        taken("lr_schedule", "lr_schedule", "linear",
              _schedule("lr_schedule", "lr_end_fraction")),
        taken("optimizer", "optimiser", "adam"),
        taken("adam_eps", "adam_eps", 1e-5),
        taken("weight_decay", "weight_decay", 0.0),
        taken("normalise_obs", "normalise_observations", True, note=STATISTICS),
        taken("normalise_rewards", "normalise_rewards", True, _OF_REWARDS, STATISTICS),
        taken("reward_clip", "reward_clip", 10.0),
        taken("use_amp", "dtype", False, _DTYPES, "bfloat16 here, float16 there"),
        taken("ortho_init", "initialisation", True,
              Parsed(_initialisation, "false: PyTorch's own")),
        taken("norm_adv", "normalise_advantages", True),
        *left("nothing there reads it", "lr_critic", "recurrent"),
        *left("the environment's own actions decide", "action_space_type"),
        *left(OUTPUT, "log_dir", "experiment_name", "use_wandb", "wandb_project"),
        *left("its unit is that of the program; `checkpoint: {policies_every: ...}` counts env "
              "steps", "save_interval"),
        *log_interval("log_interval"),
        *left(MACHINE, "device"),
        *refused("a network of one's own; see docs/networks.md for how to register one",
                 "backbone_cls"),
        *refused("its checkpoints cannot be read here", "resume_from"),
    ),
    (),
    (
        frozenset({"rollout_steps", "clip_epsilon"}), frozenset({"clip_epsilon_schedule"}),
        frozenset({"entropy_coef_schedule"}), frozenset({"shared_backbone", "lr_actor"}),
        frozenset({"value_clip_epsilon"}), frozenset({"rollout_steps", "lr_actor"}),
    ),
    source="PPOConfig of the single-file PyTorch PPO",
    always={**PLAIN_PPO, "network": "mlp", "observation_clip": None},
    differs=(
        "episodes that a time limit cuts bootstrap from their last observation here; there they "
        "count as ended",
    ),
)  # fmt: skip
