"""Names that several systems share, and those of systems without a table of their own.

They are taken where no system is recognised; their values are ours. A name whose values mean
something else in one system stands, with its transform, in that system's table.
"""

from __future__ import annotations

from collections.abc import Mapping

from .rows import Row, System, left, refused, taken
from .transforms import ANNEAL, VALUE_CLIP, words

__all__ = [
    "COMMON",
    "COMPUTED",
    "MACHINE",
    "METRICS_ELSEWHERE",
    "OUTPUT",
    "PPO_ALONE",
    "SEARCH_METHODS",
    "each",
]

OUTPUT = "output is chosen by `loggers` and `checkpoint`"
MACHINE = "lanes use all local devices; see `population`"
COMPUTED = "computed from other names there"
PPO_ALONE = "a study trains with PPO alone"

SEARCH_METHODS = {"bayes": "tpe", "bayesian": "tpe", "bayesopt": "gp", "cma-es": "cmaes",
                  "cma": "cmaes", "random_search": "random", "grid_search": "grid",
                  "nsga-ii": "nsga2"}  # fmt: skip
"""Search method elsewhere -> ours."""

METRICS_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("rollout/ep_rew_mean", "eval/mean_reward", "charts/episodic_return",
         "charts/mean_reward", "eval/episodic_return", "eval/episode_reward",
         "returned_episode_returns", "reward_mean", "eval_rewards"), "eval/return_mean"),
    **dict.fromkeys(
        ("rollout/ep_len_mean", "eval/mean_ep_length", "charts/episodic_length",
         "charts/mean_ep_length", "eval/mean_length", "returned_episode_lengths"),
        "eval/length_mean"),
    "eval/std_reward": "eval/return_std", "eval/min_reward": "eval/return_min",
    "eval/max_reward": "eval/return_max",
}  # fmt: skip
"""What other systems log of episodes, in small letters -> the metric of an evaluation here.

Theirs are mostly of episodes seen in training; ours are of greedy episodes on seeds of their own.
"""


def each(target: str, *names: str, **rest: object) -> tuple[Row, ...]:
    """Return one row for each name of one target."""
    return tuple(taken(name, target, **rest) for name in names)  # type: ignore[arg-type]


_NETWORKS = words(
    {"rnn": "lstm", "recurrent": "lstm", "MlpPolicy": "mlp", "CnnPolicy": "cnn",
     "MlpLstmPolicy": "lstm"}
)  # fmt: skip

_STUDY = (
    *each("env", "env", "env_id", "env_name", "environment", "gym_id", "env_type", "task",
          "task_id", "env.id"),
    *each("env_steps", "env_steps", "total_timesteps", "total_steps", "num_timesteps",
          "timesteps", "total_env_steps", "num_env_steps", "max_timesteps", "n_timesteps"),
    taken("seed", "seed"),
    *each("seeds.per_config", "num_learners", "num_seeds", "n_seeds"),
    *each("evaluation.episodes", "eval_episodes", "n_eval_episodes", "num_eval_episodes"),
)  # fmt: skip

_OPTIMISATION = (
    *each("learning_rate", "lr", "lr_actor", "step_size"),
    *each("lr_schedule", "anneal_lr", values=ANNEAL),
    taken("lr_critic", "vf_learning_rate"),
    *each("max_grad_norm", "max_gradient_norm"),
    *each("adam_beta1", "beta1"),
    *each("adam_beta2", "beta2"),
    taken("momentum", "sgd_momentum"),
    *each("optimiser", "opt"),
    taken("separate_vf_optimizer", "separate_vf_optimiser"),
)

_PPO = (
    *each("gamma", "discount", "advantage_gamma"),
    *each("gae_lambda", "lambda", "advantage_lambda"),
    *each("vf_gae_lambda", "critic_lambda", "value_lambda"),
    *each("clip_eps", "clip_epsilon", "ppo_clip_eps", "clip_coefficient", "clip_range",
          "clip_coef"),
    *each("value_clip_eps", "vf_clip_eps", "clip_range_vf"),
    *each("value_clip_eps", "clip_value_loss", "clip_vloss", values=VALUE_CLIP),
    *each("vf_coef", "value_coef", "ppo_value_coeff", "value_loss_coefficient"),
    *each("ent_coef", "entropy_coef", "ppo_entropy_coeff", "entropy_loss_coefficient"),
    *each("normalise_observations", "norm_obs", "obs_norm"),
    *each("normalise_rewards", "norm_reward", "reward_norm"),
    *each("normalise_advantages", "norm_adv", "normalize_advantage", "normalise_advantage"),
    taken("reward_centring", "reward_centering"),
    *each("priority_alpha", "importance_sampling_alpha", "prio_alpha"),
    *each("priority_beta0", "importance_sampling_beta", "prio_beta0"),
    taken("anneal_prio_beta", "anneal_priority_beta"),
    *each("rho_clip", "advantage_rho_clip", "vtrace_rho_clip"),
    *each("c_clip", "advantage_c_clip", "vtrace_c_clip"),
    *each("update_epochs", "n_epochs", "num_epochs", "epochs"),
)  # fmt: skip

_SHAPE = (
    *each("num_envs", "n_envs"),
    *each("rollout_length", "n_steps", "num_steps", "rollout_steps", "num_steps_epoch"),
    *each("num_minibatches", "num_batches", "n_minibatches"),
    *each("minibatch_size", "batch_size"),
    *each("network", "network", "architecture", "arch", "policy", "policy_type", "network_type",
          "model_type", values=_NETWORKS),
    *each("history", "frame_stack", "num_frames"),
    *each("hidden_sizes", "net_arch", "hidden_layers"),
    *each("recurrent_size", "rnn_size", "lstm_hidden_size"),
    *each("activation", "activation", "activation_fn", values=words({"swish": "silu"})),
)  # fmt: skip

_REST = (
    *each("loggers.wandb", "wandb", "track", "use_wandb"),
    *each("loggers.wandb.project", "project", "wandb_project", "wandb_project_name"),
    *each("loggers.wandb.entity", "wandb_entity", "entity"),
    *left(OUTPUT, "experiment_name", "exp_name", "save_model", "capture_video", "verbose",
          "tensorboard_log", "log_dir", "run_name", "group"),
    *left("it counts updates, calls or env steps, as its program has it; "
          "`checkpoint: {policies_every: ...}` counts env steps",
          "save_interval", "save_freq", "checkpoint_interval"),
    *left("it counts updates, episodes or env steps, as its program has it; `log_every` counts "
          "env steps", "log_interval", "log_freq", "log_frequency"),
    *left(MACHINE, "device", "cuda", "gpu", "num_devices", "visible_devices", "num_workers",
          "torch_deterministic", "preallocate_mem", "preallocate_mem_fraction", "num_threads"),
    *refused(PPO_ALONE, "algo", "algorithm",
             harmless=(None, "ppo", "PPO", "ppo_continuous_action", "recurrent_ppo")),
)  # fmt: skip

COMMON = System(
    "none",
    "any system",
    (*_STUDY, *_OPTIMISATION, *_PPO, *_SHAPE, *_REST),
    source="names that are spelled alike in many places",
)
