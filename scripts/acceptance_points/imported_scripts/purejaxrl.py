"""Scripts of PureJaxRL, and the settings that each trains with."""

from __future__ import annotations

from typing import Any

from .script import PPO, RUNNING, TO_ZERO, Script, sized


def _pure(path: str, sha256: str, *given: str, **rest: Any) -> Script:
    return Script(
        "purejaxrl", "luchris429/purejaxrl", f"purejaxrl/{path}.py", sha256, given, **rest
    )


_PURE = {
    **PPO,
    **TO_ZERO,
    **sized(4, 128, 4, num_minibatches=4),
    "learning_rate": 2.5e-4,
    "value_clip_eps": "same",
    "ent_coef": 0.01,
}
SCRIPTS = (
    _pure("ppo", "6650c9f8943e", env="CartPole-v1", env_steps=500_000, trains=_PURE),
    _pure(
        "ppo_continuous_action",
        "7ba6f94cd84c",
        env="brax:hopper",
        env_steps=50_000_000,
        trains={
            **PPO,
            **sized(2048, 10, 4, num_minibatches=32),
            "learning_rate": 3e-4,
            "value_clip_eps": "same",
            "hidden_sizes": (256, 256),
            "log_std_init": 0.0,
            **RUNNING,
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
        trains={**_PURE, **sized(16, 128, 1, num_minibatches=8)},
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
