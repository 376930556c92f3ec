"""Every value that trains, of some of the files, as the source program would train with it.

Written by hand from the documented defaults of those programs.
"""

from __future__ import annotations

from typing import Any

PLAIN: dict[str, Any] = {
    "optimiser": "adam", "adam_eps": 1e-5, "adam_beta1": 0.9, "adam_beta2": 0.999,
    "weight_decay": 0.0, "max_grad_norm": 0.5, "lr_schedule": "constant",
    "clip_eps_schedule": "constant", "ent_schedule": "constant", "gae_lambda": 0.95,
    "gamma": 0.99, "clip_eps": 0.2, "value_clip_eps": None, "ent_coef": 0.0, "target_kl": None,
    "normalise_advantages": True, "normalise_observations": False, "normalise_rewards": False,
    "raw_reward_deviation": False, "accumulate_minibatches": 1,
    "logr_clip": None, "adv_clip": None, "reward_scale": 1.0, "reward_clip": None,
    "network": "mlp", "hidden_sizes": (64, 64), "activation": "tanh", "layer_norm": False,
    "shared_encoder": False, "initialisation": "orthogonal", "hidden_gain": 2.0**0.5,
    "policy_gain": 0.01, "value_gain": 1.0, "history": 1, "dtype": "float32",
    "separate_vf_optimiser": False, "reward_centering": False, "priority_alpha": 0.0,
    "rho_clip": None, "c_clip": None, "vf_gae_lambda": None, "gae_lambda_initial": None,
    "schedule_on_gradient_steps": False, "lr_schedule_multiplier": 1.0,
}  # fmt: skip
"""Proximal policy optimisation as most implement it; each table below says what differs."""

_TO_ZERO = {"lr_schedule": "linear", "lr_end_fraction": 0.0}

TRAINS: dict[str, tuple[int, dict[str, Any]]] = {
    # name -> env steps of a run, every value that trains
    "zoo_cartpole": (
        100_000,  # rounded up to whole updates
        {**PLAIN, **_TO_ZERO, "learning_rate": 1e-3, "num_envs": 8, "rollout_length": 32,
         "minibatch_size": 256, "num_minibatches": 1, "update_epochs": 20, "gamma": 0.98,
         "gae_lambda": 0.8, "clip_eps_schedule": "linear", "clip_eps_end_fraction": 0.0,
         "vf_coef": 1.0},  # 0.5 on the whole square
    ),
    "zoo_lunar_lander": (
        1_000_000,
        {**PLAIN, "learning_rate": 3e-4, "num_envs": 16, "rollout_length": 1024,
         "minibatch_size": 64, "num_minibatches": 256, "update_epochs": 4, "gamma": 0.999,
         "gae_lambda": 0.98, "ent_coef": 0.01, "vf_coef": 1.0, "log_std_init": 0.0},
    ),
    "zoo_normalised": (
        1_000_000,
        {**PLAIN, "learning_rate": 3e-4, "num_envs": 16, "rollout_length": 16,
         "minibatch_size": 64, "num_minibatches": 4, "update_epochs": 4, "gae_lambda": 0.98,
         "normalise_observations": True, "observation_clip": 10.0, "normalise_rewards": True,
         "reward_clip": 10.0, "vf_coef": 1.0},
    ),
    "zoo_policy_kwargs": (
        1_000_000,
        {**PLAIN, "learning_rate": 2.0633e-5, "num_envs": 1, "rollout_length": 512,
         "minibatch_size": 64, "num_minibatches": 8, "update_epochs": 20, "gamma": 0.98,
         "gae_lambda": 0.92, "clip_eps": 0.1, "ent_coef": 0.000401762, "max_grad_norm": 0.8,
         "vf_coef": 1.16192, "normalise_observations": True, "observation_clip": 10.0,
         "normalise_rewards": True, "reward_clip": 10.0, "hidden_sizes": (256, 256),
         "activation": "relu", "initialisation": "lecun", "hidden_gain": 0.57735,
         "policy_gain": 0.57735, "value_gain": 0.57735, "log_std_init": -2.0},
    ),
    "cleanrl_ppo": (
        500_000,
        {**PLAIN, **_TO_ZERO, "learning_rate": 2.5e-4, "num_envs": 4, "rollout_length": 128,
         "minibatch_size": 128, "num_minibatches": 4, "update_epochs": 4,
         "value_clip_eps": "same", "ent_coef": 0.01, "vf_coef": 0.5},
    ),
    "cleanrl_continuous": (
        1_000_000,
        {**PLAIN, **_TO_ZERO, "learning_rate": 3e-4, "num_envs": 1, "rollout_length": 2048,
         "minibatch_size": 64, "num_minibatches": 32, "update_epochs": 10,
         "value_clip_eps": "same", "vf_coef": 0.5, "normalise_observations": True,
         "observation_clip": 10.0, "normalise_rewards": True, "reward_clip": 10.0,
         "distribution": "gaussian", "log_std_init": 0.0},
    ),
    "cleanrl_images": (
        10_000_000,
        {**PLAIN, **_TO_ZERO, "learning_rate": 2.5e-4, "num_envs": 8, "rollout_length": 128,
         "minibatch_size": 256, "num_minibatches": 4, "update_epochs": 4, "clip_eps": 0.1,
         "value_clip_eps": "same", "ent_coef": 0.01, "vf_coef": 0.5, "network": "cnn",
         "activation": "relu", "shared_encoder": True, "history": 4},
    ),
    "arlbench_settings": (
        100_000,
        {**PLAIN, "learning_rate": 3e-4, "num_envs": 8, "rollout_length": 128,
         "minibatch_size": 64, "num_minibatches": 16, "update_epochs": 10,
         "value_clip_eps": 0.2, "vf_coef": 0.5},
    ),
    "rejax_settings": (
        100_000,
        {**PLAIN, "learning_rate": 7.5e-4, "num_envs": 5, "rollout_length": 100,
         "minibatch_size": 100, "num_minibatches": 5, "update_epochs": 5, "adam_eps": 1e-8,
         "value_clip_eps": "same", "ent_coef": 0.01, "vf_coef": 0.5, "initialisation": "lecun",
         "hidden_gain": 1.0, "policy_gain": 1.0, "value_gain": 1.0},
    ),
    "purejaxrl_dictionary": (
        500_000,
        {**PLAIN, **_TO_ZERO, "learning_rate": 2.5e-4, "num_envs": 4, "rollout_length": 128,
         "minibatch_size": 128, "num_minibatches": 4, "update_epochs": 4,
         "value_clip_eps": "same", "ent_coef": 0.01, "vf_coef": 0.5},
    ),
    "jaxdem_call": (
        6_553_600,
        {**PLAIN, "optimiser": "muon", "learning_rate": 5e-2, "lr_schedule": "cosine",
         "lr_end_fraction": 0.0, "lr_schedule_multiplier": 0.125,
         "schedule_on_gradient_steps": True, "max_grad_norm": 1.5, "adam_eps": 1e-12,
         "num_envs": 256, "rollout_length": 64, "minibatch_size": 2048, "num_minibatches": 8,
         "update_epochs": 1, "value_clip_eps": "same", "ent_coef": 0.001, "vf_coef": 0.7,
         "rho_clip": 1.0, "c_clip": 1.0, "priority_alpha": 0.4, "priority_beta0": 0.1,
         "anneal_priority_beta": True, "hidden_sizes": (42, 42, 42), "activation": "gelu",
         "shared_encoder": True, "policy_gain": 1.0, "value_gain": 0.01, "log_std_init": 0.0},
    ),
    "torch_call": (
        500_000,
        {**PLAIN, "learning_rate": 1e-3, "lr_schedule": "cosine", "lr_end_fraction": 0.0,
         "num_envs": 4, "rollout_length": 512, "minibatch_size": 64, "num_minibatches": 32,
         "update_epochs": 10, "clip_eps_schedule": "linear", "clip_eps_end_fraction": 0.0,
         "value_clip_eps": 0.2, "ent_coef": 0.01, "ent_schedule": "linear",
         "ent_end_fraction": 0.0, "vf_coef": 0.5, "normalise_observations": True,
         "observation_clip": None, "normalise_rewards": True, "raw_reward_deviation": True,
         "reward_clip": 10.0, "shared_encoder": True, "dtype": "bfloat16"},
    ),
}  # fmt: skip
