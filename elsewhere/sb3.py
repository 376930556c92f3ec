"""Stable-Baselines3's PPO (and sb3-contrib's RecurrentPPO), and the keys of rl-zoo3's files.

`batch_size` is a minibatch there; the value loss is (V - R)^2, not half of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .builtin import (
    ACTIVATIONS,
    HALF_SQUARE,
    NORMALISED,
    PLAIN_PPO,
    STATISTICS,
    TORCH_INIT,
    mapping_of,
    widths_of,
)
from .common import MACHINE, OUTPUT
from .rows import Row, System, left, refused, taken
from .values import (
    NoCounterpart,
    Off,
    OneMinus,
    Parsed,
    PowerOfTwo,
    Settings,
    Values,
    Words,
)

__all__ = ["SB3"]

_RECURRENT = Settings(network="lstm", recurrent_size=256)
_POLICIES = Words(
    {
        "MlpPolicy": "mlp",
        "CnnPolicy": Settings(network="cnn", shared_encoder=True, activation="relu"),
        "MlpLstmPolicy": _RECURRENT,
        "CnnLstmPolicy": NoCounterpart("no network here has a memory behind convolutions"),
        "MultiInputPolicy": NoCounterpart("observations that are dictionaries have no network"),
        "MultiInputLstmPolicy": NoCounterpart(
            "observations that are dictionaries have no network"
        ),
    },
    others=NoCounterpart("a policy of one's own; see docs/networks.md for how to register one"),
)
_CLIP_NOTE = (
    "Stable-Baselines3 takes the loss of the clipped value; here it is the larger of that and "
    "the unclipped one, as in most others"
)
_SDE = "noise that depends on the state (gSDE) has no counterpart; without it noise is independent"
_WRAPPER = (
    "wrappers change what is trained; register the wrapped environment (docs/environments.md)"
)


@dataclass(frozen=True)
class Scheduled(Values):
    """A number, or `lin_0.001`: from there to 0, linearly.

    Attributes:
        knob: what it is.
        schedule: the knob's.
        end: its end.
    """

    knob: str
    schedule: str
    end: str

    def of(self, value: Any) -> Any:
        """Return the number, or what the schedule sets."""
        if not isinstance(value, str):
            return value
        word, _, number = value.partition("_")
        try:
            initial = float(number)
        except ValueError:
            initial = math.nan
        if word not in ("lin", "linear") or not math.isfinite(initial):
            raise NoCounterpart(f"{value!r} is no schedule such as lin_0.001")
        return Settings({self.knob: initial, self.schedule: "linear", self.end: 0.0})

    def bound(self, number: float) -> float:
        """Return the number: what is searched is constant in a run."""
        return number

    def scaled(self, width: float) -> float:
        """Return the width."""
        return width

    @property
    def meaning(self) -> str:
        """Show the form."""
        return "lin_X falls linearly from X to 0"


@dataclass(frozen=True)
class ValueClip(Off):
    """A number, or off: None, and numbers up to 0."""

    def of(self, value: Any) -> Any:
        """Return the number or None."""
        if isinstance(value, str):
            raise NoCounterpart(f"{value!r}: a clip of values has no schedule of its own")
        return super().of(value)


def _normalise(value: Any) -> Settings:
    """Read `normalize`: true, false, or arguments of VecNormalize."""
    if isinstance(value, bool) or value is None or value in ("true", "True", "false", "False"):
        on = value in (True, "true", "True")
        off = Settings(normalise_observations=False, normalise_rewards=False)
        return Settings(NORMALISED) if on else off
    given = {"norm_obs": True, "norm_reward": True, **mapping_of(value)}
    settings = Settings(
        normalise_observations=bool(given.pop("norm_obs")),
        normalise_rewards=bool(given.pop("norm_reward")),
    )
    clips = {"clip_obs": "observation_clip", "clip_reward": "reward_clip"}
    needs = {"clip_obs": "normalise_observations", "clip_reward": "normalise_rewards"}
    for name, target in clips.items():
        clip = given.pop(name, 10.0)
        if settings[needs[name]]:
            settings[target] = float(clip)
    for harmless in ("training", "epsilon"):
        given.pop(harmless, None)
    if given.pop("gamma", None) is not None:
        raise NoCounterpart("rewards are normalised with the study's own gamma here; leave it out")
    if given:
        raise NoCounterpart(f"VecNormalize's {', '.join(map(repr, given))} has no counterpart")
    return settings


def _optimiser(word: Any) -> Settings:
    name = str(word).rsplit(".", 1)[-1].lower()
    if name not in ("adam", "adamw", "sgd"):
        raise NoCounterpart(f"the optimiser {word!r}; known: Adam, AdamW, SGD")
    return Settings(optimiser=name)


def _optimiser_arguments(value: Any) -> Settings:
    given, settings = mapping_of(value), Settings()
    for name, target in (("eps", "adam_eps"), ("weight_decay", "weight_decay")):
        if name in given:
            settings[target] = given.pop(name)
    if "betas" in given:
        settings["adam_beta1"], settings["adam_beta2"] = given.pop("betas")
    if given:
        raise NoCounterpart(f"the optimiser's {', '.join(map(repr, given))} has no counterpart")
    return settings


def _initialisation(orthogonal: Any) -> Settings:
    return Settings() if orthogonal not in (False, "False", "false") else Settings(TORCH_INIT)


_ARGUMENTS: dict[str, Any] = {
    "net_arch": lambda value: Settings(hidden_sizes=widths_of(value)),
    "activation_fn": lambda value: Settings(activation=ACTIVATIONS.of(value)),
    "ortho_init": _initialisation,
    "log_std_init": lambda value: Settings(log_std_init=value),
    "lstm_hidden_size": lambda value: Settings(recurrent_size=value),
    "optimizer_class": _optimiser,
    "optimizer_kwargs": _optimiser_arguments,
}
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "enable_critic_lstm": (True,), "shared_lstm": (False,), "n_lstm_layers": (1,),
    "squash_output": (False,), "full_std": (True, False), "use_expln": (True, False),
    "share_features_extractor": (True,), "normalize_images": (True,), "use_sde": (False,),
}  # fmt: skip


def _policy_arguments(value: Any) -> Settings:
    """Read `policy_kwargs`, a mapping or a text such as `dict(net_arch=[64, 64])`."""
    settings = Settings()
    for name, given in mapping_of(value).items():
        if name in _ARGUMENTS:
            settings.update(_ARGUMENTS[name](given))
        elif name not in _HARMLESS or given not in _HARMLESS[name]:
            raise NoCounterpart(f"{name}={given!r} has no counterpart")
    return settings


def _env_arguments(value: Any) -> Settings:
    return Settings({f"env.{key}": one for key, one in mapping_of(value).items()})


def _widths(value: Any) -> list[int]:
    """Read `net_arch` alone; the words are those of rl-zoo3's own search."""
    words = {"tiny": [64], "small": [64, 64], "medium": [256, 256]}
    return words[value] if isinstance(value, str) and value in words else widths_of(value)


_RUN = (
    taken("env", "env"),
    taken("total_timesteps", "env_steps"),
    taken("n_timesteps", "env_steps"),
    taken("seed", "seed"),
    taken("n_envs", "num_envs", 1),
    taken("n_eval_episodes", "evaluation.episodes"),
    taken("eval_episodes", "evaluation.episodes"),
    taken("frame_stack", "history"),
    taken("env_kwargs", "env.*", values=Parsed(_env_arguments, "keys of the environment")),
    *refused(_WRAPPER, "env_wrapper", "vec_env_wrapper", harmless=(None, [], "")),
)

_PPO: tuple[Row, ...] = (
    taken("learning_rate", "learning_rate", 3e-4,
          Scheduled("learning_rate", "lr_schedule", "lr_end_fraction")),
    taken("lr_schedule", "lr_schedule"),
    taken("n_steps", "rollout_length", 2048),
    taken("batch_size", "minibatch_size", 64),
    taken("n_epochs", "update_epochs", 10),
    taken("gamma", "gamma", 0.99),
    taken("gae_lambda", "gae_lambda", 0.95),
    taken("clip_range", "clip_eps", 0.2,
          Scheduled("clip_eps", "clip_eps_schedule", "clip_eps_end_fraction")),
    taken("clip_range_vf", "value_clip_eps", None, ValueClip(), _CLIP_NOTE),
    taken("normalize_advantage", "normalise_advantages", True),
    taken("ent_coef", "ent_coef", 0.0),
    taken("vf_coef", "vf_coef", 0.5, HALF_SQUARE,
          "times 2, as the loss there is (V - R)^2 and half of that here"),
    taken("max_grad_norm", "max_grad_norm", 0.5),
    taken("target_kl", "target_kl", None),
    taken("normalize", "normalise_observations", False,
          Parsed(_normalise, "VecNormalize: true is both with clips of 10, or its arguments"),
          STATISTICS),
    taken("n_steps_pow", "rollout_length", values=PowerOfTwo()),
    taken("batch_size_pow", "minibatch_size", values=PowerOfTwo()),
    taken("one_minus_gamma", "gamma", values=OneMinus()),
    taken("one_minus_gae_lambda", "gae_lambda", values=OneMinus()),
    *refused(_SDE, "use_sde"),
    *left("it belongs to use_sde", "sde_sample_freq"),
)  # fmt: skip

_NETWORK: tuple[Row, ...] = (
    taken("policy", "network", "MlpPolicy", _POLICIES),
    taken("policy_kwargs", "network", values=Parsed(_policy_arguments, "read one by one")),
    taken("net_arch", "hidden_sizes", values=Parsed(_widths, "pi and vf must be equal")),
    taken("activation_fn", "activation", values=ACTIVATIONS),
    taken("activation", "activation", values=ACTIVATIONS),
    taken("ortho_init", "initialisation", values=Parsed(_initialisation, "false: PyTorch's own")),
    taken("log_std_init", "log_std_init", 0.0),
    taken("lstm_hidden_size", "recurrent_size"),
    *refused("the critic has a memory of its own here", "enable_critic_lstm",
             harmless=(True, None)),
)  # fmt: skip


def _save_freq(value: Any) -> int | Settings:
    """Return env steps; the zoo turns them into calls of all environments itself."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise NoCounterpart(f"{value!r} is no whole number of env steps")
    return int(value) if value > 0 else Settings()


_REST = (
    *refused("another buffer changes what is trained", "rollout_buffer_class",
             "rollout_buffer_kwargs"),
    *refused("a study trains with PPO alone", "algo", harmless=("ppo", "ppo_lstm", None)),
    taken("save_freq", "checkpoint.policies_every", values=Parsed(_save_freq, "-1 is off"),
          note="of the best trials, at the ends of chunks"),
    taken("log_interval", "log_every", note="in env steps here, in rollouts there"),
    *left(OUTPUT, "verbose", "tensorboard_log", "stats_window_size", "callback",
          "monitor_kwargs", "log_folder", "tb_log_name", "progress_bar", "progress",
          "wandb_group", "wandb_tags", "wandb_project_name", "wandb_entity", "track", "uuid"),
    *left(MACHINE, "device", "num_threads", "vec_env", "vec_env_type", "n_eval_envs", "n_jobs"),
)  # fmt: skip

SB3 = System(
    "sb3",
    "Stable-Baselines3 and rl-zoo3",
    (*_RUN, *_PPO, *_NETWORK, *_REST),
    ("stable_baselines3", "rl_zoo3", "rl-baselines3-zoo", "sb3", "rl_zoo"),
    (
        frozenset({"n_steps", "clip_range"}), frozenset({"n_steps", "batch_size", "n_epochs"}),
        frozenset({"n_epochs", "clip_range"}), frozenset({"policy_kwargs"}),
        frozenset({"n_steps", "n_epochs"}), frozenset({"batch_size", "clip_range"}),
        frozenset({"clip_range_vf"}), frozenset({"use_sde"}), frozenset({"one_minus_gamma"}),
    ),
    source="github.com/DLR-RM/stable-baselines3, ppo/ppo.py and common/policies.py",
    always={**PLAIN_PPO, "adam_eps": 1e-5, "hidden_sizes": [64, 64], "activation": "tanh"},
)  # fmt: skip
"""Its PPO; rl-zoo3 adds `n_envs`, `normalize`, `frame_stack`, `n_timesteps` and wrappers."""
