"""What other systems call the parts of a study that are no knobs: steps, seeds, environment.

Knobs have their foreign names in the knob table, keys of environments in theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FOREIGN", "IGNORED", "SECTION_KEYS", "TOP_KEYS", "plain_name"]

TOP_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        ("env", "env_id", "env_name", "environment", "gym_id", "env_type", "task", "task_id"),
        "env",
    ),
    **dict.fromkeys(
        ("env_steps", "total_timesteps", "total_steps", "num_timesteps", "timesteps",
         "total_env_steps", "num_env_steps", "max_timesteps"),
        "env_steps",
    ),
    "seed": "seed",
}  # fmt: skip
"""Foreign name -> key at the top of the study file."""

SECTION_KEYS: Mapping[str, tuple[str, str]] = {
    "num_learners": ("seeds", "per_config"),
    "num_seeds": ("seeds", "per_config"),
    "n_seeds": ("seeds", "per_config"),
    "eval_episodes": ("evaluation", "episodes"),
    "n_eval_episodes": ("evaluation", "episodes"),
    "num_eval_episodes": ("evaluation", "episodes"),
}
"""Foreign name -> section and key."""

FOREIGN: Mapping[str, str] = {
    "off_policy_iam": "off_policy_masking",
    "iam_damping": "masking_damping",
    "iam_gating": "masking_gating",
    "iam_gating_min_actions": "masking_gate_min_actions",
    "valid_mass_loss_coef": "valid_mass_coef",
    "vml_schedule": "valid_mass_schedule",
    "vml_end_fraction": "valid_mass_end_fraction",
    "vml_schedule_multiplier": "valid_mass_schedule_multiplier",
    "initial_average_reward": "average_reward_initial",
    "reward_stepsize": "average_reward_step",
    "prio_alpha": "priority_alpha",
    "prio_beta0": "priority_beta0",
    "importance_sampling_alpha": "priority_alpha",
    "importance_sampling_beta": "priority_beta0",
    "step_on_gradient": "schedule_on_gradient_steps",
    "message_passing_steps": "gnn_message_passing_steps",
    **{
        f"{part}_{name}": f"gnn_{part}_{name}"
        for part in ("edge", "node", "global", "attn")
        for name in ("embedding_size", "mlp_layers", "mlp_latent")
    },
    "num_spectral_features": "gnn_num_spectral_features",
    "mlp_layer_norm": "gnn_mlp_layer_norm",
    "normalize_by_link_length": "gnn_normalise_by_link_length",
    "transformer_num_layers": "transformer_layers",
    "transformer_num_heads": "transformer_heads",
    "num_wire_features": "transformer_wire_features",
    "transformer_dropout_rate": "transformer_dropout",
    "transformer_attention_dropout_rate": "transformer_attention_dropout",
}
"""Foreign names of knobs that the knob table does not list among its own; lower case."""

_OUTPUT = "output is chosen by `loggers` and `checkpoint`"
_MACHINE = "lanes use all local devices; see `population`"
IGNORED: Mapping[str, str] = {
    **dict.fromkeys(
        ("wandb", "track", "project", "wandb_project", "wandb_project_name", "wandb_entity",
         "entity", "experiment_name", "exp_name", "log_interval", "log_freq", "save_model",
         "save_interval", "save_freq", "checkpoint_interval", "capture_video", "verbose",
         "log_loss_info", "enhanced_logging", "downsample_factor", "data_output_file",
         "traj_data_output_file", "tensorboard_log", "log_dir", "run_name", "group"),
        _OUTPUT,
    ),
    **dict.fromkeys(
        ("device", "cuda", "gpu", "num_devices", "visible_devices", "num_workers",
         "torch_deterministic", "preallocate_mem", "preallocate_mem_fraction", "num_threads"),
        _MACHINE,
    ),
}  # fmt: skip
"""Foreign names that decide nothing about a result -> why they are left out."""


def plain_name(name: str) -> str:
    """Give a name as the tables of this file spell it.

    >>> plain_name("TOTAL-Timesteps"), plain_name("config.env_id")
    ('total_timesteps', 'env_id')
    """
    return name.rsplit(".", 1)[-1].replace("-", "_").lower()
