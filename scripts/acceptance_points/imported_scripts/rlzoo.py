"""Settings files of rl-zoo3, and what each environment trains with."""

from __future__ import annotations

from typing import Any

from .script import PPO, RUNNING, TO_ZERO, UNIFORM_GAIN, Script, sized


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
SCRIPTS = (
    _zoo(
        "CartPole-v1",
        env_steps=100_000,
        trains={
            **_ZOO,
            **TO_ZERO,
            **sized(8, 32, 20, minibatch_size=256),
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
        trains={**_ZOO, **RUNNING, **sized(16, 16, 4, minibatch_size=64), "gae_lambda": 0.98},
    ),
    _zoo(
        "Acrobot-v1",
        env_steps=1_000_000,
        trains={**_ZOO, **RUNNING, **sized(16, 256, 4, minibatch_size=64), "gae_lambda": 0.94},
    ),
    _zoo(
        "Acrobot-v1",
        lstm=True,
        env_steps=1_000_000,  # 128 rows are half an episode there
        trains={
            **_ZOO,
            **RUNNING,
            **sized(16, 256, 4, num_minibatches=16),
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
            **sized(4, 1024, 10, minibatch_size=64),
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
            **RUNNING,
            **sized(1, 8, 10, minibatch_size=8),
            "gamma": 0.9999,
            "learning_rate": 7.77e-5,
            "ent_coef": 0.00429,
            "clip_eps": 0.1,
            "gae_lambda": 0.9,
            "max_grad_norm": 5.0,
            "vf_coef": 0.38,
            "initialisation": "lecun",
            "hidden_gain": UNIFORM_GAIN,
            "policy_gain": UNIFORM_GAIN,
            "value_gain": UNIFORM_GAIN,
            "log_std_init": 0.0,
        },
    ),
    _zoo("Pendulum-v1", refused="gSDE"),
    _zoo("BreakoutNoFrameskip-v4", refused="wrappers change the environment"),
)
