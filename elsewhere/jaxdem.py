"""JaxDEM's PPO trainer, by the arguments of `PPOTrainer.Create` and of its models.

`num_epochs` is the number of updates there, `minibatch_size` counts env steps of whole segments.
"""

from __future__ import annotations

from .builtin import ACTIVATIONS, PLAIN_PPO
from .rows import System, left, refused, taken
from .values import Settings, Words

__all__ = ["JAXDEM"]

_COSINE = Settings(lr_schedule="cosine", lr_end_fraction=0.0, schedule_on_gradient_steps=True)
_OTHER = "it changes what is trained and has no counterpart"

JAXDEM = System(
    "jaxdem",
    "JaxDEM",
    (
        taken("env", "env"),
        taken("seed", "seed"),
        taken("total_timesteps", "env_steps",
              note="every body's step counts there, an environment's step here"),
        taken("num_epochs", "env_steps",
              note="updates, each of num_envs x num_steps_epoch env steps"),
        taken("optimizer", "optimiser", "muon"),
        taken("learning_rate", "learning_rate", 1e-2),
        taken("anneal_learning_rate", "lr_schedule", True,
              Words({True: _COSINE, False: "constant"})),
        taken("max_grad_norm", "max_grad_norm", 1.5),
        taken("ppo_clip_eps", "clip_eps", 0.2),
        taken("ppo_value_coeff", "vf_coef", 2.0),
        taken("ppo_entropy_coeff", "ent_coef", 0.001),
        taken("advantage_gamma", "gamma", 0.99),
        taken("advantage_lambda", "gae_lambda", 0.95),
        taken("advantage_rho_clip", "rho_clip", 1.0),
        taken("advantage_c_clip", "c_clip", 1.0),
        taken("importance_sampling_alpha", "priority_alpha", 0.8),
        taken("importance_sampling_beta", "priority_beta0", 0.2),
        taken("anneal_importance_sampling_beta", "anneal_priority_beta", True),
        taken("num_envs", "num_envs", 1024),
        taken("num_steps_epoch", "rollout_length", 64),
        taken("num_minibatches", "num_minibatches", 4),
        taken("minibatch_size", "minibatch_size"),
        taken("accumulate_n_gradients", "accumulate_minibatches", 1),
        taken("architecture", "hidden_sizes", [42, 42, 42]),
        taken("activation", "activation", "gelu", ACTIVATIONS),
        taken("in_scale", "hidden_gain"),
        taken("actor_scale", "policy_gain", 1.0),
        taken("critic_scale", "value_gain", 0.01),
        *refused(_OTHER, "drip_decay", harmless=(0, 0.0, None)),
        *refused(_OTHER, "skip_frames", harmless=(0, None)),
        *refused(_OTHER, "stop_at_epoch", "actor_sigma_head"),
        *refused("give action_low and action_high, as the model has no bijector here",
                 "clip_actions"),
        *left("it belongs to clip_actions", "clip_range"),
        *left("a random key; see seed", "key"),
    ),
    ("jaxdem",),
    (frozenset({"ppo_clip_eps"}), frozenset({"ppo_value_coeff"}),
     frozenset({"num_steps_epoch"}), frozenset({"ppo_entropy_coeff"})),
    source="github.com/cdelv/JaxDEM, jaxdem/rl/trainers/ppo_trainer.py",
    always={**PLAIN_PPO, "adam_eps": 1e-12, "value_clip_eps": "same", "update_epochs": 1,
            "network": "mlp", "shared_encoder": True, "priority_over": "segments"},
    differs=(
        "segments are drawn once a rollout here, with the advantages of before its updates; "
        "JaxDEM draws them anew for each minibatch, without replacement",
    ),
)  # fmt: skip
