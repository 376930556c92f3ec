"""Scripts of CleanRL, and the settings that each trains with."""

from __future__ import annotations

from typing import Any

from .script import PPO, RUNNING, TO_ZERO, Script, sized


def _clean(path: str, sha256: str, *given: str, **rest: Any) -> Script:
    return Script("cleanrl", "vwxyzjn/cleanrl", f"cleanrl/{path}.py", sha256, given, **rest)


_CLEAN = {
    **PPO,
    **TO_ZERO,
    **sized(4, 128, 4, num_minibatches=4),
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
SCRIPTS = (
    _clean("ppo", "d8dfbb7ac0b2", env="CartPole-v1", env_steps=500_000, trains=_CLEAN),
    _clean(
        "ppo_continuous_action",
        "326dd8678bf9",
        "--env=Pendulum-v1",
        env="Pendulum-v1",
        env_steps=1_000_000,
        trains={
            **_CLEAN,
            **sized(1, 2048, 10, num_minibatches=32),
            "learning_rate": 3e-4,
            "ent_coef": 0.0,
            **RUNNING,
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
