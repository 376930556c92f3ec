"""PureJaxRL's configurations: dictionaries with keys in capitals, one in each script."""

from __future__ import annotations

from .builtin import LINEAR, PLAIN_PPO, STATISTICS
from .common import OUTPUT
from .rows import Row, System, left, taken
from .values import Settings, Words

__all__ = ["PUREJAXRL"]

_NORMALISED = Settings(
    normalise_observations=True, observation_clip=None, normalise_rewards=True, reward_clip=None
)
_NORMALISE = Words(
    {True: _NORMALISED, False: Settings(normalise_observations=False, normalise_rewards=False)}
)
_ANNEAL = Words({True: LINEAR, False: "constant"})
_ACTIVATION = Words({"relu": "relu", "tanh": "tanh"}, others="tanh")
_DIFFERS = (
    "episodes that a time limit cuts bootstrap from their last observation here; PureJaxRL counts "
    "them as ended",
)
_PPO = {
    "LR": 2.5e-4, "NUM_ENVS": 4, "NUM_STEPS": 128, "TOTAL_TIMESTEPS": 500_000,
    "UPDATE_EPOCHS": 4, "NUM_MINIBATCHES": 4, "ENT_COEF": 0.01, "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True, "NORMALIZE_ENV": False,
}  # fmt: skip
_CONTINUOUS = {
    **_PPO, "LR": 3e-4, "NUM_ENVS": 2048, "NUM_STEPS": 10, "TOTAL_TIMESTEPS": 50_000_000,
    "NUM_MINIBATCHES": 32, "ENT_COEF": 0.0, "ENV_NAME": "hopper", "ANNEAL_LR": False,
    "NORMALIZE_ENV": True,
}  # fmt: skip


def _rows(of: dict[str, object]) -> tuple[Row, ...]:
    return (
        taken("ENV_NAME", "env", of["ENV_NAME"]),
        taken("TOTAL_TIMESTEPS", "env_steps", of["TOTAL_TIMESTEPS"]),
        taken("SEED", "seed"),
        taken("NUM_SEEDS", "seeds.per_config"),
        taken("LR", "learning_rate", of["LR"]),
        taken("ANNEAL_LR", "lr_schedule", of["ANNEAL_LR"], _ANNEAL),
        taken("NUM_ENVS", "num_envs", of["NUM_ENVS"]),
        taken("NUM_STEPS", "rollout_length", of["NUM_STEPS"]),
        taken("UPDATE_EPOCHS", "update_epochs", of["UPDATE_EPOCHS"]),
        taken("NUM_MINIBATCHES", "num_minibatches", of["NUM_MINIBATCHES"]),
        taken("GAMMA", "gamma", 0.99),
        taken("GAE_LAMBDA", "gae_lambda", 0.95),
        taken("CLIP_EPS", "clip_eps", 0.2),
        taken("ENT_COEF", "ent_coef", of["ENT_COEF"]),
        taken("VF_COEF", "vf_coef", 0.5),
        taken("MAX_GRAD_NORM", "max_grad_norm", 0.5),
        taken("ACTIVATION", "activation", "tanh", _ACTIVATION),
        taken(
            "NORMALIZE_ENV", "normalise_observations", of["NORMALIZE_ENV"], _NORMALISE, STATISTICS
        ),
        *left("computed from other keys there", "NUM_UPDATES", "MINIBATCH_SIZE"),
        *left(OUTPUT, "DEBUG"),
    )


def _script(name: str, program: str, of: dict[str, object], widths: list[int]) -> System:
    return System(
        name,
        f"PureJaxRL's {program}.py",
        _rows(of),
        (f"purejaxrl/{program}.py", f"purejaxrl.{program}"),
        (frozenset({"NUM_STEPS", "ANNEAL_LR"}), frozenset({"NUM_STEPS", "LR"}))
        if name == "purejaxrl"
        else (frozenset({"NUM_STEPS", "NORMALIZE_ENV"}),),
        exact=True,
        source=f"github.com/luchris429/purejaxrl, purejaxrl/{program}.py",
        always={**PLAIN_PPO, "adam_eps": 1e-5, "value_clip_eps": "same", "network": "mlp",
                "hidden_sizes": widths},
        differs=_DIFFERS,
    )  # fmt: skip


PUREJAXRL = (
    _script("purejaxrl_continuous", "ppo_continuous_action", _CONTINUOUS, [256, 256]),
    _script("purejaxrl", "ppo", _PPO, [64, 64]),
)
