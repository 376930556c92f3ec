"""A script of another project: the study that it must become, and what most PPO scripts share.

Every value was read from the script, and from the code that it calls, at the commit given here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COMMITS = {
    "luchris429/purejaxrl": "31756b197773a52db763fdbe6d635e4b46522a73",
    "RunnersNum40/lerax": "67006e1a9e1ad5157426c8f4cb562c826549893e",
    "cdelv/JaxDEM": "5d9c13ad1a777bfc56b916fcf7fe8eda3030d097",
    "vwxyzjn/cleanrl": "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
    "DLR-RM/rl-baselines3-zoo": "22e3ff2450fd92033f7f032915e1f64894a09584",
    "micdoh/XLRON": "158ef03f22d1afe3b546a2e0a1c56d716e168b99",
    "automl/arlbench": "bd4c15ddbbb29f16851a75aff9e5a38aeb81bd63",
}
"""GitHub repository -> commit."""


@dataclass(frozen=True)
class Script:
    """One script, with the study that it must become, or the reason for its rejection."""

    kind: str
    repository: str
    path: str
    sha256: str  # first digits
    given: tuple[str, ...] = ()
    env: str = ""
    env_steps: int = 0
    trains: dict[str, Any] = field(default_factory=dict[str, Any])
    refused: str = ""  # part of the message
    command: int | None = None  # for a page: the number of its training command
    commit: str = ""  # of an earlier version; by default that of its repository
    # other keys of the study, by dotted names
    study: dict[str, Any] = field(default_factory=dict[str, Any])
    beside: tuple[tuple[str, str], ...] = ()  # files that it refers to: path, sha256


PPO: dict[str, Any] = {
    "optimiser": "adam",
    "adam_eps": 1e-5,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "weight_decay": 0.0,
    "max_grad_norm": 0.5,
    "lr_schedule": "constant",
    "lr_warmup_multiplier": 1.0,
    "lr_schedule_multiplier": 1.0,
    "schedule_on_gradient_steps": False,
    "clip_eps_schedule": "constant",
    "ent_schedule": "constant",
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "vf_gae_lambda": None,
    "gae_lambda_initial": None,
    "gae_lambda_final": None,
    "clip_eps": 0.2,
    "value_clip_eps": None,
    "vf_coef": 0.5,
    "ent_coef": 0.0,
    "target_kl": None,
    "logr_clip": None,
    "adv_clip": None,
    "separate_vf_optimiser": False,
    "normalise_advantages": True,
    "normalise_observations": False,
    "normalise_rewards": False,
    "reward_scale": 1.0,
    "reward_clip": None,
    "reward_centering": False,
    "priority_alpha": 0.0,
    "rho_clip": None,
    "c_clip": None,
    "off_policy_masking": False,
    "valid_mass_coef": 0.0,
    "accumulate_minibatches": 1,
    "network": "mlp",
    "hidden_sizes": (64, 64),
    "activation": "tanh",
    "layer_norm": False,
    "shared_encoder": False,
    "initialisation": "orthogonal",
    "hidden_gain": 2.0**0.5,
    "policy_gain": 0.01,
    "value_gain": 1.0,
    "history": 1,
    "dtype": "float32",
}
"""PPO as in most implementations; each script lists its differences."""
TO_ZERO = {"lr_schedule": "linear", "lr_end_fraction": 0.0}
RUNNING = {"normalise_observations": True, "observation_clip": 10.0, "normalise_rewards": True,
           "reward_clip": 10.0}  # fmt: skip
UNIFORM_GAIN = 0.57735  # equinox: uniform within 1/sqrt(inputs), so the variance is 1/(3 inputs)


def sized(num_envs: int, rollout_length: int, epochs: int, **more: Any) -> dict[str, Any]:
    return {
        "num_envs": num_envs,
        "rollout_length": rollout_length,
        "update_epochs": epochs,
        **more,
    }
