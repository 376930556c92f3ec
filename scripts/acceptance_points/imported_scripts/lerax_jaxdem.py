"""Scripts of the trainers Lerax and JaxDEM, and the settings that each trains with."""

from __future__ import annotations

from typing import Any

from .script import PPO, UNIFORM_GAIN, Script, sized


def _lerax(path: str, sha256: str, **rest: Any) -> Script:
    return Script("lerax", "RunnersNum40/lerax", f"examples/{path}.py", sha256, **rest)


_LERAX = {
    **PPO,
    **sized(4, 2048, 10, num_minibatches=32),
    "learning_rate": 3e-4,
    "adam_eps": 1e-8,
    "activation": "relu",
    "initialisation": "lecun",
    "hidden_gain": UNIFORM_GAIN,
    "policy_gain": UNIFORM_GAIN,
    "value_gain": UNIFORM_GAIN,
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
        trains={**_LERAX, **sized(4, 512, 16, num_minibatches=32)},
        commit="bbc056fbbb6b430b9f05135d4f12d218eb96a6a7",
    ),
)

_INTRO = ("jaxdem", "cdelv/JaxDEM", "examples/intro_to_rl.py", "ea1ccb1e4dcf")
_JAXDEM_SCRIPTS = (
    Script(
        *_INTRO,
        ("--env=navigators",),
        "navigators",
        100 * 32 * 64,
        {
            **PPO,
            **sized(32, 64, 1, num_minibatches=4),
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
            **sized(512, 32, 1, num_minibatches=4),
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

SCRIPTS = (*_LERAX_SCRIPTS, *_JAXDEM_SCRIPTS)
