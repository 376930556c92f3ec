"""Lerax's PPO and its policy of perceptrons, by the arguments of their constructors."""

from __future__ import annotations

from .builtin import ACTIVATIONS, PLAIN_PPO, TORCH_INIT
from .rows import System, left, refused, taken
from .values import Words

__all__ = ["LERAX"]

_HEADS = (
    "its policy is an encoder under two heads with hidden layers of their own; here actor and "
    "critic are towers of hidden_sizes, apart or shared"
)
_CLIP_NOTE = "Lerax takes the smaller of the clipped and the unclipped loss; here it is the larger"

LERAX = System(
    "lerax",
    "Lerax",
    (
        taken("env", "env"),
        taken("total_timesteps", "env_steps"),
        taken("seed", "seed"),
        taken("learning_rate", "learning_rate", 3e-4),
        taken("num_envs", "num_envs", 4),
        taken("num_steps", "rollout_length", 2048),
        taken("num_epochs", "update_epochs", 10),
        taken("num_batches", "num_minibatches", 32),
        taken("gae_lambda", "gae_lambda", 0.95),
        taken("gamma", "gamma", 0.99),
        taken("clip_coefficient", "clip_eps", 0.2),
        taken("clip_value_loss", "value_clip_eps", False, Words({True: "same", False: None}),
              _CLIP_NOTE),
        taken("entropy_loss_coefficient", "ent_coef", 0.0),
        taken("value_loss_coefficient", "vf_coef", 0.5),
        taken("max_grad_norm", "max_grad_norm", 0.5),
        taken("normalize_advantages", "normalise_advantages", True),
        taken("activation", "activation", "relu", ACTIVATIONS),
        taken("log_std_init", "log_std_init", 0.0),
        *left("computed from num_batches there", "batch_size"),
        *left("an object there; see optimiser", "optimizer"),
        *refused(_HEADS, "feature_size", harmless=(16, None)),
        *refused(_HEADS, "feature_width", "value_width", "action_width", harmless=(64, None)),
        *refused(_HEADS, "feature_depth", "value_depth", "action_depth", harmless=(2, None)),
    ),
    ("lerax",),
    (frozenset({"clip_coefficient"}), frozenset({"entropy_loss_coefficient"}),
     frozenset({"value_loss_coefficient"})),
    source="github.com/RunnersNum40/lerax, src/lerax/algorithm/ppo.py",
    always={**PLAIN_PPO, "adam_eps": 1e-8, "network": "mlp", "hidden_sizes": [64, 64],
            **TORCH_INIT},
    differs=(_HEADS,),
)  # fmt: skip
