"""Scripts of other projects as their authors wrote them, and the settings that each trains with.

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
_TO_ZERO = {"lr_schedule": "linear", "lr_end_fraction": 0.0}
_RUNNING = {"normalise_observations": True, "observation_clip": 10.0, "normalise_rewards": True,
            "reward_clip": 10.0}  # fmt: skip


def _sized(num_envs: int, rollout_length: int, epochs: int, **more: Any) -> dict[str, Any]:
    return {
        "num_envs": num_envs,
        "rollout_length": rollout_length,
        "update_epochs": epochs,
        **more,
    }


# ------------------------------------------------------------------------------ PureJaxRL


def _pure(path: str, sha256: str, *given: str, **rest: Any) -> Script:
    return Script(
        "purejaxrl", "luchris429/purejaxrl", f"purejaxrl/{path}.py", sha256, given, **rest
    )


_PURE = {
    **PPO,
    **_TO_ZERO,
    **_sized(4, 128, 4, num_minibatches=4),
    "learning_rate": 2.5e-4,
    "value_clip_eps": "same",
    "ent_coef": 0.01,
}
_PUREJAXRL = (
    _pure("ppo", "6650c9f8943e", env="CartPole-v1", env_steps=500_000, trains=_PURE),
    _pure(
        "ppo_continuous_action",
        "7ba6f94cd84c",
        env="brax:hopper",
        env_steps=50_000_000,
        trains={
            **PPO,
            **_sized(2048, 10, 4, num_minibatches=32),
            "learning_rate": 3e-4,
            "value_clip_eps": "same",
            "hidden_sizes": (256, 256),
            "log_std_init": 0.0,
            **_RUNNING,
            "observation_clip": None,
            "reward_clip": None,
        },
    ),
    _pure(
        "ppo_minigrid",
        "fb0293915bc5",
        "--env=CartPole-v1",
        env="CartPole-v1",
        env_steps=1_000_000,
        trains={**_PURE, **_sized(16, 128, 1, num_minibatches=8)},
    ),
    _pure("ppo_minigrid", "fb0293915bc5", refused="Navix environments are not supported"),
    _pure(
        "ppo_rnn",
        "339caa194f2e",
        env="CartPole-v1",
        env_steps=500_000,
        trains={
            **_PURE,
            "network": "gru",
            "recurrent_size": 128,
            "hidden_sizes": (128,),
            "activation": "relu",
            "shared_encoder": True,
        },
    ),
    _pure("dpo_continuous_action", "03e4d12c40b7", refused="the objective of DPO"),
    _pure("experimental/s5/ppo_s5", "6015e75b1c0d", refused="S5"),
)

# ---------------------------------------------------------------------------------- Lerax


def _lerax(path: str, sha256: str, **rest: Any) -> Script:
    return Script("lerax", "RunnersNum40/lerax", f"examples/{path}.py", sha256, **rest)


_GAIN = 0.57735  # equinox: uniform within 1/sqrt(inputs), so the variance is 1/(3 inputs)
_LERAX = {
    **PPO,
    **_sized(4, 2048, 10, num_minibatches=32),
    "learning_rate": 3e-4,
    "adam_eps": 1e-8,
    "activation": "relu",
    "initialisation": "lecun",
    "hidden_gain": _GAIN,
    "policy_gain": _GAIN,
    "value_gain": _GAIN,
}
_CARTPOLE = {"env": "CartPole-v1", "env_steps": 65_536}
_LERAX_SCRIPTS = (
    _lerax("ppo", "0e8e4dc713f1", **_CARTPOLE, trains=_LERAX),
    _lerax("gymnax_environment", "4b69b1876038", **_CARTPOLE, trains=_LERAX),
    _lerax("gym_environment", "1cd4c5b2e43b", **_CARTPOLE, trains={**_LERAX, "num_envs": 1}),
    _lerax("record", "ad64d3bea993", **_CARTPOLE, trains=_LERAX),
    _lerax("curriculum", "3c7ed73e6c8f", refused="a curriculum changes the environment"),
    # release 0.0.5, whose script does not show its version
    _lerax(
        "ppo",
        "ed047588927c",
        given=("--version=0.0.5",),
        **_CARTPOLE,
        trains={**_LERAX, **_sized(4, 512, 16, num_minibatches=32)},
        commit="bbc056fbbb6b430b9f05135d4f12d218eb96a6a7",
    ),
)

# --------------------------------------------------------------------------------- JaxDEM

_INTRO = ("jaxdem", "cdelv/JaxDEM", "examples/intro_to_rl.py", "ea1ccb1e4dcf")
_JAXDEM = (
    Script(
        *_INTRO,
        ("--env=navigators",),
        "navigators",
        100 * 32 * 64,
        {
            **PPO,
            **_sized(32, 64, 1, num_minibatches=4),
            "optimiser": "muon",
            "learning_rate": 1e-2,
            "adam_eps": 1e-12,
            "max_grad_norm": 1.5,
            "lr_schedule": "cosine",
            "lr_end_fraction": 0.0,
            "lr_schedule_multiplier": 0.25,
            "schedule_on_gradient_steps": True,
            "value_clip_eps": "same",
            "vf_coef": 2.0,
            "ent_coef": 0.001,
            "rho_clip": 1.0,
            "c_clip": 1.0,
            "priority_alpha": 0.8,
            "priority_beta0": 0.2,
            "anneal_priority_beta": True,
            "priority_over": "segments",
            "hidden_sizes": (42, 42, 42),
            "activation": "gelu",
            "shared_encoder": True,
            "policy_gain": 1.0,
            "value_gain": 0.01,
            "log_std_init": 0.0,
        },
    ),
    Script(*_INTRO, refused="JaxDEM's own environments are not supported"),
    # of 24 September 2025, recognised by `tr, _ = tr.train(tr)`
    Script(
        "jaxdem",
        "cdelv/JaxDEM",
        "examples/intro_to_rl.py",
        "d8558f2c6c7c",
        ("--env=navigators",),
        "navigators",
        100 * 512 * 32,
        {
            **PPO,
            **_sized(512, 32, 1, num_minibatches=4),
            "optimiser": "adam",
            "learning_rate": 5e-2,
            "max_grad_norm": 0.4,
            "lr_schedule": "cosine",
            "lr_end_fraction": 0.01,
            "lr_decay_exponent": 2.0,
            "lr_schedule_multiplier": 0.25,
            "schedule_on_gradient_steps": True,
            "value_clip_eps": "same",
            "ent_coef": 0.03,
            "rho_clip": 0.5,
            "c_clip": 0.5,
            "priority_alpha": 0.4,
            "priority_beta0": 0.1,
            "anneal_priority_beta": True,
            "priority_over": "segments",
            "hidden_sizes": (32, 32),
            "activation": "gelu",
            "shared_encoder": True,
            "policy_gain": 1.0,
            "value_gain": 0.01,
            "log_std_init": 0.0,
        },
        commit="d18922a65cee9c2fd9b1a6fb711b1da9a13f0a86",
    ),
)

# -------------------------------------------------------------------------------- CleanRL


def _clean(path: str, sha256: str, *given: str, **rest: Any) -> Script:
    return Script("cleanrl", "vwxyzjn/cleanrl", f"cleanrl/{path}.py", sha256, given, **rest)


_CLEAN = {
    **PPO,
    **_TO_ZERO,
    **_sized(4, 128, 4, num_minibatches=4),
    "learning_rate": 2.5e-4,
    "value_clip_eps": "same",
    "ent_coef": 0.01,
}
_FRAMES = {
    **_CLEAN,
    "num_envs": 8,
    "clip_eps": 0.1,
    "network": "cnn",
    "shared_encoder": True,
    "activation": "relu",
    "history": 4,
}
_UNCLIPPED = {**_FRAMES, "value_clip_eps": None}  # the JAX scripts define clip_vloss but ignore it
_BREAKOUT = {"env": "Breakout-MinAtar", "env_steps": 10_000_000}
_ELSEWHERE = "--env=Breakout-MinAtar"  # none of the environments here is Atari
_CLEANRL = (
    _clean("ppo", "d8dfbb7ac0b2", env="CartPole-v1", env_steps=500_000, trains=_CLEAN),
    _clean(
        "ppo_continuous_action",
        "326dd8678bf9",
        "--env=Pendulum-v1",
        env="Pendulum-v1",
        env_steps=1_000_000,
        trains={
            **_CLEAN,
            **_sized(1, 2048, 10, num_minibatches=32),
            "learning_rate": 3e-4,
            "ent_coef": 0.0,
            **_RUNNING,
            "distribution": "gaussian",
            "log_std_init": 0.0,
        },
    ),
    _clean("ppo_atari", "5fa8e1a1b609", _ELSEWHERE, **_BREAKOUT, trains=_FRAMES),
    _clean("ppo_atari_envpool", "d1672d982292", _ELSEWHERE, **_BREAKOUT, trains=_FRAMES),
    _clean(
        "ppo_atari_envpool_xla_jax", "a6963d31e4ce", _ELSEWHERE, **_BREAKOUT, trains=_UNCLIPPED
    ),
    _clean(
        "ppo_atari_envpool_xla_jax_scan",
        "e8c083b3730b",
        _ELSEWHERE,
        **_BREAKOUT,
        trains=_UNCLIPPED,
    ),
    _clean("ppo_atari", "5fa8e1a1b609", refused="BreakoutNoFrameskip-v4"),
    _clean("ppo_atari_lstm", "c7d8c1fd4fbe", refused="an LSTM after convolutions"),
)

# -------------------------------------------------------------------------------- rl-zoo3


def _zoo(env: str, *given: str, lstm: bool = False, **rest: Any) -> Script:
    name, sha256 = ("ppo_lstm", "7573ef21fa8a") if lstm else ("ppo", "3eb424c89189")
    return Script(
        "rlzoo",
        "DLR-RM/rl-baselines3-zoo",
        f"hyperparams/{name}.yml",
        sha256,
        (f"--env={env}", *given),
        "" if "refused" in rest else env,
        **rest,
    )


_ZOO = {**PPO, "learning_rate": 3e-4, "vf_coef": 1.0}  # the squared error is not halved
_ZOO_SCRIPTS = (
    _zoo(
        "CartPole-v1",
        env_steps=100_000,
        trains={
            **_ZOO,
            **_TO_ZERO,
            **_sized(8, 32, 20, minibatch_size=256),
            "gamma": 0.98,
            "gae_lambda": 0.8,
            "learning_rate": 1e-3,
            "clip_eps_schedule": "linear",
            "clip_eps_end_fraction": 0.0,
        },
    ),
    _zoo(
        "MountainCar-v0",
        env_steps=1_000_000,
        trains={**_ZOO, **_RUNNING, **_sized(16, 16, 4, minibatch_size=64), "gae_lambda": 0.98},
    ),
    _zoo(
        "Acrobot-v1",
        env_steps=1_000_000,
        trains={**_ZOO, **_RUNNING, **_sized(16, 256, 4, minibatch_size=64), "gae_lambda": 0.94},
    ),
    _zoo(
        "Acrobot-v1",
        lstm=True,
        env_steps=1_000_000,  # 128 rows are half an episode there
        trains={
            **_ZOO,
            **_RUNNING,
            **_sized(16, 256, 4, num_minibatches=16),
            "network": "lstm",
            "recurrent_size": 256,
            "gae_lambda": 0.94,
        },
    ),
    _zoo(
        "Pendulum-v1",
        "--without=use_sde",
        env_steps=100_000,
        trains={
            **_ZOO,
            **_sized(4, 1024, 10, minibatch_size=64),
            "gamma": 0.9,
            "learning_rate": 1e-3,
            "log_std_init": 0.0,
        },
    ),
    # its batch of 256 rows is the whole rollout of 8 environments
    _zoo(
        "MountainCarContinuous-v0",
        "--without=use_sde",
        env_steps=20_000,
        trains={
            **_ZOO,
            **_RUNNING,
            **_sized(1, 8, 10, minibatch_size=8),
            "gamma": 0.9999,
            "learning_rate": 7.77e-5,
            "ent_coef": 0.00429,
            "clip_eps": 0.1,
            "gae_lambda": 0.9,
            "max_grad_norm": 5.0,
            "vf_coef": 0.38,
            "initialisation": "lecun",
            "hidden_gain": _GAIN,
            "policy_gain": _GAIN,
            "value_gain": _GAIN,
            "log_std_init": 0.0,
        },
    ),
    _zoo("Pendulum-v1", refused="gSDE"),
    _zoo("BreakoutNoFrameskip-v4", refused="wrappers change the environment"),
)

# ---------------------------------------------------------------------------------- XLRON


def _xlron(path: str, sha256: str, command: int | None, env_steps: int, **rest: Any) -> Script:
    return Script(
        "xlron" if command is not None else "wandb",
        "micdoh/XLRON",
        path,
        sha256,
        env="rmsa" if "env" not in rest else rest.pop("env"),
        env_steps=env_steps,
        command=command,
        **rest,
    )


_NSFNET = {"env.topology": "nsfnet_deeprmsa", "env.directed": True, "env.slots": 100}
_TRAINING = ("docs/training.md", "d9045a644e3b")
# a cosine ends at LR x (LR x LR_END_FRACTION): XLRON passes the rate where optax takes a fraction
_FLAGS = {
    **PPO,
    **_sized(64, 150, 1, num_minibatches=1),
    "gamma": 0.999,
    "logr_clip": 10.0,
    "adv_clip": 10.0,
    "gae_lambda_initial": 0.9,
    "gae_lambda_final": 0.98,
    "lr_schedule": "cosine",
    "policy_gain": 2.0**0.5,
    "value_gain": 2.0**0.5,
}
# other networks have separate heads, with the ReLU that is Equinox's default
_RECTIFIED = {**_FLAGS, "activation": "relu"}
del _RECTIFIED["policy_gain"], _RECTIFIED["value_gain"]
_TRANSFORMER = {**_RECTIFIED, "network": "transformer"}
_COMMANDS = (
    _xlron(
        "README.md",
        "3d2c1b18b614",
        0,
        5_000_000,
        trains={**_FLAGS, "learning_rate": 5e-4, "lr_end_fraction": 5e-5},
        study={
            **_NSFNET,
            "seed": 42,
            "env.k": 50,
            "env.load": 250.0,
            "env.continuous": True,
            "env.warmup_requests": 3000,
        },
    ),
    _xlron(
        *_TRAINING,
        0,
        5_000_000,
        trains={
            **_FLAGS,
            "num_envs": 16,
            "rollout_length": 100,
            "learning_rate": 5e-4,
            "lr_end_fraction": 5e-5,
        },
        study={**_NSFNET, "env.k": 5, "env.load": 250.0, "env.warmup_requests": 0},
    ),
    _xlron(
        *_TRAINING,
        2,
        5_000_000,
        env="deeprmsa",
        trains={
            **_FLAGS,
            **_sized(16, 100, 10),
            "learning_rate": 5e-5,
            "lr_schedule": "linear",
            "lr_end_fraction": 0.1,
            "lr_warmup_multiplier": 2.0,
            "gae_lambda": 0.9,
            "gae_lambda_initial": None,
            "gae_lambda_final": None,
            "gamma": 0.95,
            "hidden_sizes": (128,) * 5,
        },
        study={
            **_NSFNET,
            "env.k": 5,
            "env.mean_holding_time": 25.0,
            "env.max_requests": 1000,
            "env.continuous": True,
        },
    ),
    _xlron(
        *_TRAINING,
        3,
        60_000_000,
        trains={
            **_TRANSFORMER,
            "learning_rate": 5e-4,
            "lr_end_fraction": 5e-5,
            "reward_centering": True,
            "average_reward_initial": 0.0,
            "ent_coef": 0.01,
            "ent_schedule": "cosine",
            "ent_end_fraction": 0.001,
            "transformer_layers": 2,
            "transformer_heads": 4,
            "transformer_embedding_size": 128,
            "transformer_obs_type": "departure",
        },
        study={
            **_NSFNET,
            "env.k": 50,
            "env.load": 200.0,
            "env.mean_holding_time": 1.0,
            "env.truncate_holding_time": True,
            "env.aggregate_slots": 20,
        },
    ),
    _xlron(
        *_TRAINING,
        4,
        10_000_000,
        trains={
            **_RECTIFIED,
            "num_envs": 32,
            "learning_rate": 3e-4,
            "lr_end_fraction": 3e-5,
            "network": "gnn",
            "gnn_message_passing_steps": 3,
            "gnn_edge_embedding_size": 128,
            "gnn_node_embedding_size": 16,
            "gnn_attn_mlp_layers": 1,
            "gnn_num_spectral_features": 8,
        },
        study={**_NSFNET, "env.k": 5, "env.load": 250.0, "env.warmup_requests": 3000},
    ),
    _xlron(
        *_TRAINING,
        5,
        20_000_000,
        trains={
            **_FLAGS,
            "rollout_length": 128,
            "learning_rate": 3e-4,
            "lr_schedule": "warmup_cosine",
            "lr_warmup_multiplier": 2.0,
            "lr_warmup_fraction": 0.1,
            "lr_warmup_start_fraction": 1.0,
            "lr_end_fraction": 0.1,
            "clip_eps": 0.08,
            "ent_coef": 0.01,
            "ent_schedule": "cosine",
            "ent_end_fraction": 0.002,
            "reward_centering": True,
            "average_reward_initial": 0.0,
            "off_policy_masking": True,
            "valid_mass_coef": 0.01,
            "reward_scale": 10.0,
        },
        study={**_NSFNET, "env.k": 50, "env.truncate_holding_time": True},
    ),
    _xlron(
        "docs/reproduce_jocn_transformer.md",
        "cb4ca4dec4f8",
        0,
        100_000_000,
        trains={
            **_TRANSFORMER,
            "num_envs": 200,
            "rollout_length": 64,
            "learning_rate": 5e-3,
            "lr_end_fraction": 5e-4,
            "transformer_layers": 2,
            "transformer_heads": 4,
            "off_policy_masking": True,
            "valid_mass_coef": 0.0002,
            "valid_mass_schedule": "constant",
            "ent_coef": 0.0175,
            "ent_schedule": "linear",
            "ent_end_fraction": 0.1,
            "vf_coef": 0.05,
            "separate_vf_optimiser": True,
            "vf_learning_rate": 1e-4,
            "vf_lr_end_fraction": 1e-5,
            "vf_schedule_multiplier": 1.0,
            "gamma": 0.996,
            "gae_lambda": 0.99,
            "gae_lambda_initial": None,
            "gae_lambda_final": None,
            "clip_eps": 0.04,
        },
        study={
            **_NSFNET,
            "env.k": 50,
            "env.load": 145.0,
            "env.mean_holding_time": 20.0,
            "env.truncate_holding_time": True,
            "env.modulation": "deeprmsa",
            "env.max_requests": 13_000,
            "env.warmup_requests": 0,
            "env.aggregate_slots": 20,
            "env.continuous": False,
        },
    ),
    _xlron(*_TRAINING, 7, 0, env="", refused="only evaluates"),
    _xlron(
        "examples/sweep.yaml",
        "d91b30096ef8",
        None,
        60_000_000,
        trains={
            **_TRANSFORMER,
            "gae_lambda_initial": None,
            "gae_lambda_final": None,
            "reward_centering": True,
            "average_reward_initial": 0.0,
            "transformer_layers": 2,
            "transformer_critic_mlp_depth": 2,
            "lr_end_fraction": 3.16227766017e-5,
        },  # from the middle of the rates
        study={
            **_NSFNET,
            "env.k": 50,
            "env.load": 200.0,
            "env.mean_holding_time": 1.0,
            "search.method": "tpe",
            "early_terminate.type": "asha",
            "early_terminate.eta": 3.0,
            "early_terminate.min": 2_222_223,  # 60M / 3^3, rounded up
            "space.gamma.min": 0.99,
            "space.gamma.max": 0.9999,
            "space.gae_lambda.min": 0.99,
            "space.gae_lambda.max": 0.999,
            "space.learning_rate.min": 1e-4,
            "space.learning_rate.max": 1e-3,
            "space.rollout_length.values": [128, 256],
            "space.clip_eps.values": [0.02, 0.04, 0.08, 0.16],
            "space.transformer_heads.values": [4, 8],
        },
    ),
)

# ------------------------------------------------------------------------------- ARLBench

_CONFIGS = "examples/configs/"
_BESIDE = ((f"{_CONFIGS}algorithm/ppo.yaml", "74b59565790e"),)


def _arl(path: str, sha256: str, *given: str, **rest: Any) -> Script:
    return Script("arlbench", "automl/arlbench", f"{_CONFIGS}{path}.yaml", sha256, given, **rest)


_ARL = {
    **PPO,
    **_sized(8, 128, 10, minibatch_size=64),
    "learning_rate": 3e-4,
    "value_clip_eps": 0.2,
}
_TUNED = {
    **_ARL,
    "clip_eps": 0.177,
    "ent_coef": 0.01,
    "gae_lambda": 0.93,
    "gamma": 0.99876,
    "learning_rate": 0.000322,
    "max_grad_norm": 0.881,
    "value_clip_eps": 0.211,
    "vf_coef": 0.5245,
}
_ARLBENCH = (
    _arl(
        "algorithm/ppo",
        "74b59565790e",
        "--env=CartPole-v1",
        env="CartPole-v1",
        env_steps=1_000_000,
        trains=_ARL,
    ),
    _arl(
        "incumbent/ppo_halfcheetah_my_optimizer",
        "1bf2530e5a15",
        env="brax:halfcheetah",
        env_steps=50_000_000,
        trains={**_TUNED, "num_envs": 2048, "activation": "relu", "log_std_init": 0.0},
        study={"env.backend": "mjx", "evaluation.greedy": True},
        beside=(*_BESIDE, (f"{_CONFIGS}environment/brax_halfcheetah.yaml", "d233fdc48c3d")),
    ),
    _arl(
        "incumbent/ppo_lunar_lander_my_optimizer",
        "796c2f0a203e",
        "--env=CartPole-v1",
        env="CartPole-v1",
        env_steps=1_000_000,
        trains=_TUNED,
        beside=(*_BESIDE, (f"{_CONFIGS}environment/box2d_lunar_lander.yaml", "842d4686362b")),
    ),
    _arl(
        "base",
        "195c125754e9",
        refused="a study trains only PPO",
        beside=(
            (f"{_CONFIGS}environment/cc_cartpole.yaml", "a87076b0dbb6"),
            (f"{_CONFIGS}algorithm/dqn.yaml", "029659103f6c"),
        ),
    ),
)

SCRIPTS = (
    *_PUREJAXRL,
    *_LERAX_SCRIPTS,
    *_JAXDEM,
    *_CLEANRL,
    *_ZOO_SCRIPTS,
    *_COMMANDS,
    *_ARLBENCH,
)
