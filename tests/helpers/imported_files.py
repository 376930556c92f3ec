"""Files and commands as people have them for other programs, and what becomes of them here."""

from __future__ import annotations

from typing import Any, NamedTuple

from helpers import imported_texts as texts


class File(NamedTuple):
    """One source.

    Attributes:
        kind: as for `hpo import`.
        name: of the file; empty for a command as it is typed.
        text: its content.
        expected: what the study has, by dotted keys; or a word of the refusal.
        given: flags after `--`.
        note: a part of what the head of the study says.
    """

    kind: str
    name: str
    text: str
    expected: dict[str, Any] | str
    given: dict[str, Any] = {}  # noqa: RUF012 - a default of a tuple is never changed
    note: str = ""


def zoo(env: str, expected: Any, note: str = "", **given: Any) -> File:
    return File("rlzoo", "ppo.yml", texts.ZOO, expected, {"env": env, **given}, note)


def lstm(env: str, expected: Any, note: str = "", **given: Any) -> File:
    return File("rlzoo", "ppo_lstm.yml", texts.ZOO_LSTM, expected, {"env": env, **given}, note)


# fmt: off
FILES: dict[str, File] = {
    # rl-zoo3
    "zoo_cartpole": zoo("CartPole-v1", {"env": "CartPole-v1", "name": "rlzoo-CartPole-v1"},
        "is gymnax's"),
    "zoo_cartpole_of_gymnasium": zoo("gym:CartPole-v1", {"env": "gym:CartPole-v1"}),
    "zoo_lunar_lander": zoo("LunarLander-v3", {"env": "gym:LunarLander-v3", "fixed.num_envs": 16,
        "env_steps": 10**6}),
    "zoo_noise_by_state": zoo("Pendulum-v1", "gSDE.*--without use_sde"),
    "zoo_without_noise_by_state": zoo("Pendulum-v1", {"fixed.gamma": 0.9,
        "fixed.minibatch_size": 64}, without="use_sde"),
    "zoo_deviation_of_that_noise": zoo("MountainCarContinuous-v0", {"fixed.log_std_init": 0.0,
        "fixed.initialisation": "lecun"}, "log_std_init -3.29", without="use_sde"),
    "zoo_normalised": zoo("MountainCar-v0", {"fixed.normalise_rewards": True,
        "fixed.reward_clip": 10.0}),
    "zoo_policy_kwargs": zoo("HalfCheetah-v4", {"env": "gym:HalfCheetah-v4"}),
    "zoo_merged": zoo("Swimmer-v4", {"fixed.gamma": 0.9999, "fixed.normalise_observations": True}),
    "zoo_absent": zoo("Acrobot-v1", {"fixed.rollout_length": 2048}, "'default' is used"),
    "zoo_atari": zoo("BreakoutNoFrameskip-v4", {"env": {"id": "gym:ALE/Breakout-v5",
        "episodic_life": True, "repeat_action_probability": 0.0}, "fixed.network": "cnn"},
        "with AtariWrapper becomes gym:ALE/Breakout-v5"),
    "zoo_atari_skips_twice": zoo("ALE/Pong-v5", r"skips 4 frames.*--env PongNoFrameskip-v4"),
    "zoo_wrapped": zoo("CarRacing-v3", "wrappers change the environment"),
    "zoo_no_environment": File("rlzoo", "ppo.yml", texts.ZOO, r"name one \(--env "),
    "zoo_python": File("rlzoo", "ppo_config.py", texts.ZOO_PYTHON,
        {"env": "MountainCarContinuous-v0", "fixed.activation": "relu", "env_steps": 20_000,
        "fixed.log_std_init": -3.29}, {"without": "env_wrapper"}, "env_wrapper: wrappers"),
    "zoo_python_wrapped": File("rlzoo", "ppo_config.py", texts.ZOO_PYTHON, "wrappers change"),
    "zoo_saved": File("rlzoo", "config.yml", texts.ZOO_SAVED, {"fixed.clip_eps_schedule": "linear",
        "fixed.minibatch_size": 256}, {"env": "CartPole-v1"}),
    "zoo_saved_of_nothing": File(
        "rlzoo", "config.yml", texts.ZOO_SAVED, r"name its environment \(--env CartPole-v1\)"
    ),
    "zoo_of_another_algorithm": File("rlzoo", "sac.yml", texts.ZOO, "only PPO"),
    "zoo_lstm": lstm("Acrobot-v1", {"fixed.network": "lstm", "fixed.recurrent_size": 256,
        "fixed.num_minibatches": 16}, "whole rollouts"),
    "zoo_lstm_sizes": lstm("CartPole-v1", {"fixed.recurrent_size": 64, "fixed.hidden_sizes": [64],
        "fixed.num_minibatches": 1}, "before the recurrent layer"),
    "zoo_lstm_velocities_hidden": lstm("CartPoleNoVel-v1", "unknown environment 'CartPoleNoVel"),
    "zoo_lstm_one_memory": lstm("Pendulum-v1", "enable_critic_lstm"),
    # CleanRL
    "cleanrl_ppo": File("cleanrl", "", "python cleanrl/ppo.py --env-id CartPole-v1 --track",
        {"env": "CartPole-v1", "name": "cleanrl-CartPole-v1", "budget.trials": 1,
        "loggers": [{"type": "wandb"}]}),
    "cleanrl_continuous": File("cleanrl", "command.txt",
        "uv run python cleanrl/ppo_continuous_action.py \\\n  --env-id Pendulum-v1 --cuda False",
        {"env": "Pendulum-v1"}),
    "cleanrl_switches": File("cleanrl", "",
        "python cleanrl/ppo.py --no-norm-adv --anneal-lr False --no-clip-vloss",
        {"fixed.normalise_advantages": False, "fixed.lr_schedule": "constant"}),
    "cleanrl_underscores": File("cleanrl", "",
        "python -m cleanrl.ppo --env_id Acrobot-v1 --num_steps=64 --target_kl 0.03",
        {"env": "Acrobot-v1", "fixed.rollout_length": 64, "fixed.target_kl": 0.02},
        note="divided by 1.5"),
    "cleanrl_fields": File("cleanrl", "ppo.py", texts.CLEANRL_FILE, {"env": "Acrobot-v1",
        "seed": 7, "env_steps": 300_000, "fixed.target_kl": 0.01}),
    "cleanrl_images": File("cleanrl", "", "python cleanrl/ppo_atari.py --env-id Breakout-MinAtar",
        {"fixed.network": "cnn", "fixed.shared_encoder": True, "fixed.history": 4,
        "fixed.clip_eps": 0.1}),
    "cleanrl_unread_flags": File("cleanrl", "",
        "python cleanrl/ppo_atari_envpool_xla_jax_scan.py --env-id Breakout-MinAtar --clip-vloss",
        {"fixed.network": "cnn"}, note="not used by this script"),
    "cleanrl_atari": File("cleanrl", "", "python cleanrl/ppo_atari.py",
        {"env": {"id": "gym:ALE/Breakout-v5", "episodic_life": True,
        "repeat_action_probability": 0.0}, "fixed.network": "cnn"},
        note="evaluation plays whole games"),
    "cleanrl_envpool_atari": File("cleanrl", "",
        "python cleanrl/ppo_atari_envpool.py --env-id Pong-v5",
        {"env.id": "gym:ALE/Pong-v5"}),
    "cleanrl_impala": File("cleanrl", "", "python cleanrl/ppo_procgen.py --env-id starpilot",
        "residual convolutions"),
    "cleanrl_lstm": File("cleanrl", "", "python cleanrl/ppo_atari_lstm.py --num-envs 8",
        "LSTM after convolutions"),
    "cleanrl_sac": File("cleanrl", "",
        "python cleanrl/sac_continuous_action.py --env-id Hopper-v4", "uses SAC"),
    "cleanrl_sweep": File("wandb", "sweep.yaml", texts.CLEANRL_SWEEP,
        {"space.clip_eps": {"min": 0.1, "max": 0.3, "distribution": "uniform"},
        "space.normalise_advantages": {"values": [True, False]},
        "space.rollout_length": {"values": [16, 32, 64, 128]}, "metric.name": "eval/return_mean",
        "env_steps": 100_000, "fixed.num_envs": 16, "fixed.lr_schedule": "linear",
        "fixed.lr_end_fraction": 0.0, "budget.trials": 20}),
    "cleanrl_sweep_of_names": File("wandb", "sweep.yaml",
        texts.sweep("learning_rate: {min: 0.0001, max: 0.001}\nclip_coef: {values: [0.1, 0.2]}\n"
        "anneal_lr: {values: [true, false]}\nenv_id: {value: Acrobot-v1}"),
        {"space.lr_schedule": {"values": ["linear", "constant"], "default": "linear"},
         "space.learning_rate.default": 2.5e-4, "fixed.lr_end_fraction": 0.0},
        note="CleanRL"),
    "cleanrl_sweep_of_another_network": File("wandb", "sweep.yaml",
        texts.sweep("learning_rate: {min: 0.0001, max: 0.001}\nclip_coef: {values: [0.1, 0.2]}",
        program="cleanrl/ppo_procgen.py"), "ppo_procgen.py uses residual convolutions",
        {"env": "CartPole-v1"}),
    "cleanrl_file_of_another_algorithm": File("cleanrl", "dqn.py", texts.CLEANRL_FILE,
        "dqn.py uses Q-learning"),
    # Stable-Baselines3
    "sb3_call": File("sb3", "train.py", texts.SB3_SCRIPT, {"fixed.rollout_length": 512,
        "fixed.vf_coef": 0.5, "fixed.hidden_sizes": [128, 128], "fixed.value_clip_eps": 0.2,
        "fixed.activation": "relu"}, {"env": "CartPole-v1", "total_timesteps": "50k"},
        "Stable-Baselines3 uses the clipped value loss"),
    "sb3_settings": File("sb3", "ppo.yaml",
        "policy: MlpPolicy\nenv: CartPole-v1\ntotal_timesteps: 1.0e+5\nclip_range_vf: null\n"
        "target_kl: 0.03\nuse_sde: false\npolicy_kwargs: {net_arch: {pi: [32], vf: [32]}}\n",
        {"fixed.target_kl": 0.03, "fixed.hidden_sizes": [32], "env_steps": 100_000}),
    "sb3_two_towers": File("sb3", "ppo.yaml",
        "env: CartPole-v1\npolicy_kwargs: dict(net_arch=dict(pi=[64], vf=[128]))\n", "differ"),
    "sb3_dictionaries": File("sb3", "ppo.yaml", "policy: MultiInputPolicy\nenv: CartPole-v1\n",
        "no network reads dictionary observations"),
    "sb3_own_extractor": File("sb3", "ppo.yaml",
        "env: CartPole-v1\npolicy_kwargs: dict(features_extractor_class=Mine)\n",
        "features_extractor_class"),
    "sb3_another_optimiser": File("sb3", "ppo.yaml",
        "env: CartPole-v1\npolicy_kwargs: dict(optimizer_class=th.optim.RMSprop)\n", "RMSprop"),
    "sb3_sweep": File("wandb", "sweep.yaml", texts.SB3_SWEEP, {"space.vf_coef": {"min": 0.6,
        "max": 2.0, "distribution": "uniform", "default": 1.0},
        "space.minibatch_size": {"values": [64, 128], "default": 64},
        "space.hidden_sizes": {"values": [[64, 64], [256, 256]]},
        "space.activation": {"values": ["tanh", "relu"]}, "metric.name": "eval/return_mean",
        "env": "Acrobot-v1"}, note="Stable-Baselines3"),
    "sweep_of_a_loss": File("wandb", "sweep.yaml",
        texts.sweep("n_epochs: {values: [5, 10]}\nclip_range: {values: [0.1, 0.2]}",
        "metric: {name: train/value_loss, goal: minimize}"),
        "has no counterpart; name one of hpo's", {"env": "CartPole-v1"}),
    "sb3_sweep_of_gymnasium": File("wandb", "sweep.yaml",
        texts.sweep("n_epochs: {values: [5, 10]}\nclip_range: {values: [0.1, 0.2]}\n"
        "env: {value: FrozenLake-v1}", "metric: {name: eval/mean_reward, goal: maximize}"),
        {"env": "gym:FrozenLake-v1", "metric.name": "eval/return_mean"}),
    "sweep_of_a_reward_to_be_small": File("wandb", "sweep.yaml",
        texts.sweep("n_epochs: {values: [5, 10]}\nclip_range: {values: [0.1, 0.2]}",
        "metric: {name: rollout/ep_rew_mean}"), "has no counterpart; name one of hpo's",
        {"env": "CartPole-v1"}),
    # ARLBench
    "arlbench_settings": File("arlbench", "ppo.yaml", texts.ARLBENCH, {"env": "CartPole-v1",
        "fixed.num_layers": 2}, {"n_total_timesteps": "100k"}),
    "arlbench_incumbent": File("arlbench", "incumbent.yaml", texts.ARLBENCH_INCUMBENT,
        {"env": "gym:LunarLander-v3", "fixed.gamma": 0.99876, "fixed.value_clip_eps": 0.211},
        {"env_name": "LunarLander-v3"}),
    "arlbench_published_space": File("configspace", "ppo_cc.yaml", texts.ARLBENCH_SPACE,
        {"space.clip_eps.min": 5e-7, "space.value_clip_eps.max": 0.5,
        "space.minibatch_size.values": [128, 256, 512], "space.vf_coef.default": 0.5,
        "fixed.update_epochs": 10, "space.max_grad_norm.max": 1.0}, {"env": "CartPole-v1"},
        "lower bound raised to"),
    "arlbench_whole_numbers": File("configspace", "space.json", texts.ARLBENCH_WHOLE_SPACE,
        {"space.minibatch_size.values": [16, 32, 64, 128, 256, 512, 1024, 2048],
        "space.rollout_length.values": [8, 16, 32, 64, 128, 256, 512],
        "space.hidden_size.values": [2**i for i in range(12)], "fixed.num_layers": 2},
        {"env": "CartPole-v1"}, "reduced to powers of two"),
    "arlbench_dqn": File("arlbench", "dqn.yaml", "algorithm: dqn\nhp_config: {tau: 1.0}\n", "PPO"),
    # JAX trainers
    "rejax_settings": File("rejax", "cartpole.yaml", texts.REJAX, {"env": "CartPole-v1",
        "evaluation.every": 1000}),
    "rejax_brax": File("rejax", "ant.yaml",
        "ppo: {env: brax/ant, num_envs: 128, normalize_observations: true}\n", {"env": "brax:ant",
        "fixed.activation": "silu", "fixed.max_grad_norm": None}),
    "rejax_brax_time_limit": File("rejax", "reacher.yaml",
        "ppo: {env: brax/reacher, env_params: {episode_length: 50}}\n", {"env.id": "brax:reacher",
        "env.max_steps_in_episode": 50}),
    "rejax_own_network": File("rejax", "x.yaml",
        "ppo: {env: CartPole-v1, agent_kwargs: {depth: 3}}\n", "depth"),
    "purejaxrl_dictionary": File("purejaxrl", "ppo.py", texts.PUREJAXRL, {"env": "CartPole-v1"}),
    "purejaxrl_normalised": File("purejaxrl", "conf.yaml",
        "ENV_NAME: Pendulum-v1\nNUM_STEPS: 10\nNORMALIZE_ENV: true\nNUM_ENVS: 64\n",
        {"fixed.reward_clip": None, "fixed.observation_clip": None,
        "fixed.normalise_rewards": True}, {"system": "purejaxrl_continuous"}),
    "lerax_call": File("lerax", "train.py", texts.LERAX, {"fixed.vf_coef": 0.7,
        "fixed.value_clip_eps": "same", "fixed.num_minibatches": 16}, {"env": "CartPole-v1"},
        "an encoder and two heads"),
    "lerax_another_encoder": File("lerax", "train.yaml", "num_steps: 64\nfeature_size: 32\n",
        "feature_size", {"env": "CartPole-v1"}),
    "jaxdem_call": File("jaxdem", "train.py", texts.JAXDEM, {"env_steps": 400 * 256 * 64,
        "fixed.lr_schedule_multiplier": 0.125, "fixed.priority_alpha": 0.4,
        "fixed.optimiser": "muon", "fixed.priority_over": "segments"}, {"env": "navigators"},
        "400 updates of 256 x 64"),
    "jaxdem_dripped_rewards": File("jaxdem", "t.yaml", "num_envs: 8\ndrip_decay: 0.8\n",
        "drip_decay", {"env": "navigators"}),
    # the single-file PyTorch PPO
    "torch_call": File("torch_ppo", "train.py", texts.TORCH_PPO, {"fixed.shared_encoder": True,
        "fixed.dtype": "bfloat16", "fixed.clip_eps_schedule": "linear",
        "fixed.learning_rate": 1e-3}, note="lr_critic: not used in the source"),
    "torch_squashed": File("torch_ppo", "",
        "python train.py --env_id Pendulum-v1 --squash_actions true",
        {"fixed.distribution": "tanh_gaussian", "fixed.normalise_rewards": True}),
    "torch_decay": File("torch_ppo", "c.yaml",
        "rollout_steps: 256\nlr_actor: 1e-3\nweight_decay: 0.01\nnormalise_rewards: false\n",
        {"fixed.optimiser": "adam_l2", "fixed.weight_decay": 0.01},
        note="PyTorch's Adam adds it to the gradient"),
    "torch_decoupled": File("torch_ppo", "c.yaml",
        "rollout_steps: 256\nlr_actor: 1e-3\nweight_decay: 0.01\noptimizer: adamw\n",
        {"fixed.optimiser": "adamw", "fixed.raw_reward_deviation": True}),
    "sb3_decay": File("sb3", "c.yaml", "env: CartPole-v1\nn_steps: 64\nclip_range: 0.2\n"
        "policy_kwargs: dict(optimizer_kwargs=dict(weight_decay=0.02))\n",
        {"fixed.optimiser": "adam_l2", "fixed.weight_decay": 0.02}),
    "jaxdem_accumulates": File(
        "jaxdem", "t.yaml",
        "num_envs: 8\nnum_minibatches: 4\naccumulate_n_gradients: 2\nppo_clip_eps: 0.1\n",
        {"fixed.accumulate_minibatches": 2, "fixed.lr_schedule_multiplier": 0.25,
         "fixed.learning_rate": 0.02},  # the steps of two minibatches are added there
        {"env": "navigators"},
    ),
    "torch_own_backbone": File("torch_ppo", "c.yaml",
        "env_id: CartPole-v1\nbackbone_cls: TransformerPolicyBackbone\n", "docs/networks.md"),
    "nothing_known": File("sb3", "x.yaml", "colour: red\n", "no settings for Stable-Baselines3"),
    "no_such_file": File("cleanrl", "", "nowhere.yaml", "no such file"),
}
