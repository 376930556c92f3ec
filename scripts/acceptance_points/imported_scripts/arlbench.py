"""Configurations of ARLBench, and the settings that each trains with."""

from __future__ import annotations

from typing import Any

from .script import PPO, Script, sized


def _arl(path: str, sha256: str, *given: str, **rest: Any) -> Script:
    return Script("arlbench", "automl/arlbench", f"{_CONFIGS}{path}.yaml", sha256, given, **rest)


_CONFIGS = "examples/configs/"
_BESIDE = ((f"{_CONFIGS}algorithm/ppo.yaml", "74b59565790e"),)
_ARL = {
    **PPO,
    **sized(8, 128, 10, minibatch_size=64),
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
SCRIPTS = (
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
