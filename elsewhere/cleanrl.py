"""CleanRL's PPO scripts: one file each, with the same flags and different defaults.

Flags are written with hyphens or underscores. `batch_size`, `minibatch_size` and
`num_iterations` are computed there whatever is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .builtin import LINEAR, NORMALISED, PLAIN_PPO
from .common import MACHINE, OUTPUT
from .rows import UNKNOWN, Row, System, left, taken
from .values import Times, Words

__all__ = ["CLEANRL", "another_algorithm"]

_COMPUTED = "computed from other flags there"
_UNREAD = "nothing in this script reads it"
_ANNEAL = Words({True: LINEAR, False: "constant"})
_VALUE_CLIP = Words({True: "same", False: None})
_KL = Times(1.0 / 1.5)
_SOURCE = "github.com/vwxyzjn/cleanrl"
_DIFFERS = (
    "episodes that a time limit cuts bootstrap from their last observation here; CleanRL counts "
    "them as ended",
)
_KL_NOTE = (
    "divided by 1.5, as an update is cut short at 1.5 times ours; CleanRL looks after each epoch, "
    "here every minibatch is looked at"
)


def _rows(defaults: dict[str, Any], unread: tuple[str, ...] = ()) -> tuple[Row, ...]:
    """Return the rows of a script; what it does not read is left out."""

    def of(name: str, target: str, values: Any = None, note: str = "") -> Row:
        if name in unread:
            return Row(name, "left out", because=_UNREAD)
        rest = {} if values is None else {"values": values}
        return taken(name, target, defaults.get(name, UNKNOWN), note=note, **rest)

    return (
        *(of(name, "env") for name in ("env_id", "gym_id")),
        of("total_timesteps", "env_steps"),
        of("seed", "seed"),
        of("learning_rate", "learning_rate"),
        of("num_envs", "num_envs"),
        of("num_steps", "rollout_length"),
        of("anneal_lr", "lr_schedule", _ANNEAL),
        of("gamma", "gamma"),
        of("gae_lambda", "gae_lambda"),
        of("num_minibatches", "num_minibatches"),
        of("update_epochs", "update_epochs"),
        of("norm_adv", "normalise_advantages"),
        of("clip_coef", "clip_eps"),
        of("clip_vloss", "value_clip_eps", _VALUE_CLIP),
        of("ent_coef", "ent_coef"),
        of("vf_coef", "vf_coef"),
        of("max_grad_norm", "max_grad_norm"),
        of("target_kl", "target_kl", _KL, _KL_NOTE),
        *left(_COMPUTED, "batch_size", "minibatch_size", "num_iterations", "num_updates"),
        *left(OUTPUT, "exp_name", "track", "wandb_project_name", "wandb_entity", "capture_video",
              "save_model", "upload_model", "hf_entity"),
        *left(MACHINE, "torch_deterministic", "cuda"),
    )  # fmt: skip


_PPO = {
    "env_id": "CartPole-v1", "total_timesteps": 500_000, "seed": 1, "learning_rate": 2.5e-4,
    "num_envs": 4, "num_steps": 128, "anneal_lr": True, "gamma": 0.99, "gae_lambda": 0.95,
    "num_minibatches": 4, "update_epochs": 4, "norm_adv": True, "clip_coef": 0.2,
    "clip_vloss": True, "ent_coef": 0.01, "vf_coef": 0.5, "max_grad_norm": 0.5, "target_kl": None,
}  # fmt: skip
_CONTINUOUS = {
    **_PPO, "env_id": "HalfCheetah-v4", "total_timesteps": 1_000_000, "learning_rate": 3e-4,
    "num_envs": 1, "num_steps": 2048, "num_minibatches": 32, "update_epochs": 10, "ent_coef": 0.0,
}  # fmt: skip
_ATARI = {
    **_PPO, "env_id": "BreakoutNoFrameskip-v4", "total_timesteps": 10_000_000, "num_envs": 8,
    "clip_coef": 0.1,
}  # fmt: skip
_ENVPOOL = {**_ATARI, "env_id": "Breakout-v5"}
_TOWERS = {"network": "mlp", "hidden_sizes": [64, 64], "activation": "tanh"}
_IMAGES = {"network": "cnn", "shared_encoder": True, "activation": "relu"}
_WRAPPED = "Atari's wrappers (no-ops, frame skip, lost lives, signs of rewards) are not added here"


def _script(
    name: str,
    program: str,
    defaults: dict[str, Any],
    always: dict[str, Any],
    differs: tuple[str, ...] = (),
    unread: tuple[str, ...] = (),
    marks: tuple[frozenset[str], ...] = (),
) -> System:
    return System(
        name,
        f"CleanRL's {program}.py",
        _rows(defaults, unread),
        (f"{program}.py", f"cleanrl.{program}"),
        marks,
        source=f"{_SOURCE}, cleanrl/{program}.py",
        always={**PLAIN_PPO, "adam_eps": 1e-5, **always},
        differs=(*_DIFFERS, *differs),
    )


_STACKED = {**_IMAGES, "history": 4}
_XLA_UNREAD = ("clip_vloss", "target_kl")

CLEANRL = (
    _script("cleanrl", "ppo", _PPO, _TOWERS, marks=(
        frozenset({"clip_coef", "norm_adv"}), frozenset({"clip_coef", "num_steps"}),
        frozenset({"clip_vloss", "update_epochs"}), frozenset({"clip_coef", "update_epochs"}),
        frozenset({"learning_rate", "clip_coef"}),
    )),
    _script("cleanrl_continuous", "ppo_continuous_action", _CONTINUOUS,
            {**_TOWERS, **NORMALISED, "distribution": "gaussian"},
            ("running statistics are shared by a trial's environments and change once a rollout "
             "here; there each environment has its own, which change with every env step",)),
    _script("cleanrl_atari", "ppo_atari", _ATARI, _STACKED, (_WRAPPED,)),
    _script("cleanrl_envpool", "ppo_atari_envpool", _ENVPOOL, _STACKED, (_WRAPPED,)),
    _script("cleanrl_envpool_xla", "ppo_atari_envpool_xla_jax", _ENVPOOL, _STACKED, (_WRAPPED,),
            _XLA_UNREAD),
    _script("cleanrl_envpool_scan", "ppo_atari_envpool_xla_jax_scan", _ENVPOOL, _STACKED,
            (_WRAPPED,), _XLA_UNREAD),
)  # fmt: skip
"""The scripts whose training has a counterpart."""

_OTHERS = {
    "ppo_atari_lstm": "an LSTM behind convolutions, which no network here is",
    "ppo_procgen": "residual convolutions (IMPALA), which no network here has",
    "ppo_rnd_envpool": "random network distillation",
    "ppo_trxl": "a Transformer with a memory of past steps",
    "ppo_atari_multigpu": "gradients averaged over several devices",
    "ppo_pettingzoo_ma_atari": "two agents in one game of PettingZoo",
    "ppo_continuous_action_isaacgym": "Isaac Gym",
    "ppg_procgen": "phasic policy gradients",
    "rpo_continuous_action": "noise on the mean of the policy (RPO)",
    "qdagger": "Q-learning", "dqn": "Q-learning", "c51": "Q-learning", "rainbow": "Q-learning",
    "pqn": "Q-learning", "sac_": "SAC", "td3_": "TD3", "ddpg_": "DDPG",
}  # fmt: skip
"""Parts of the names of other scripts -> what they train with, which a study cannot."""


def another_algorithm(words: Iterable[str]) -> str:
    """Return what the script of a command trains with, if a study cannot; nothing otherwise.

    >>> another_algorithm(["python", "cleanrl/sac_atari.py", "--exp-name", "dqn"])
    'sac_atari.py trains with SAC, which a study cannot'
    """
    for word in words:
        if not word.endswith(".py") and not word.startswith("cleanrl."):
            continue
        script = word.rsplit("/", 1)[-1].removeprefix("cleanrl.")
        for part, what in _OTHERS.items():
            if script.startswith(part):
                return f"{script} trains with {what}, which a study cannot"
    return ""
