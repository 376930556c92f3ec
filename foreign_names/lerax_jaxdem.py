"""Lerax and JaxDEM, whose trainers have changed their defaults: one table per version."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..files.plain_data import is_number
from .derived import Derived, whole
from .name_mapping import (
    PLAIN_PPO,
    TORCH_INIT,
    VALUE_CLIP,
    NameRow,
    NoCounterpart,
    PythonCalls,
    SettingsRow,
    System,
    left,
    name_sets,
    parsed,
    refused,
    table,
    taken,
    with_defaults,
    words,
)
from .optax_calls import OPTIMISERS, optimiser_settings
from .plain_values import TWO_OF_TRAIN

# fmt: off
_OPTIMISER = parsed(optimiser_settings, f"{', '.join(sorted(OPTIMISERS))} of optax, with their "
                                        "arguments")

# --------------------------------------------------------------------------------- Lerax

_HEADS = (
    "Lerax's policy is an encoder and two heads with separate hidden layers; hpo has "
    "towers of hidden_sizes for actor and critic, separate or shared"
)
_LERAX_ENVS = words({
    "CartPole": "CartPole-v1", "Acrobot": "Acrobot-v1", "Pendulum": "Pendulum-v1",
    "MountainCar": "MountainCar-v0", "ContinuousMountainCar": "MountainCarContinuous-v0",
})
_LERAX: tuple[NameRow, ...] = (  # with the defaults of the newest version
    taken("env", "env", values=_LERAX_ENVS,
          note="hpo's environment of that name; Lerax uses a different integrator"),
    *table("""
        total_timesteps env_steps; seed =; learning_rate = 3e-4; num_envs = 4
        num_steps rollout_length 2048; gamma = 0.99
        num_epochs update_epochs 10; num_batches num_minibatches 32
        gae_lambda = 0.95; clip_coefficient clip_eps 0.2
        entropy_loss_coefficient ent_coef 0.0; value_loss_coefficient vf_coef 0.5
        max_grad_norm = 0.5; log_std_init = 0.0
        normalize_advantages normalise_advantages True; activation =@activation relu"""),
    taken("clip_value_loss", "value_clip_eps", False, VALUE_CLIP, (
        "Lerax uses the smaller of the clipped and the "
        "unclipped loss, hpo the larger"
    )),
    taken("optimizer", "optimiser", values=_OPTIMISER),
    *left("computed from num_batches in Lerax", "batch_size"),
    *refused(_HEADS, "feature_size", (16, None)),
    *refused(_HEADS, "feature_width value_width action_width", (64, None)),
    *refused(_HEADS, "feature_depth value_depth action_depth", (2, None)),
    *refused("a curriculum changes the environment during training, which a study cannot do",
             "curriculum"),
)
_NEURAL_ODE = (
    *refused("neural differential equations are not available as networks", "ncde"),
    *refused("the size of states of neural differential equations has no counterpart",
             "state_magnitude_coefficient", (0, 0.0, None)),
)


@dataclass(frozen=True)
class _Version:
    """The differences between one version of a system and the newest one."""

    name: str
    tag: str
    text: str  # description of the versions
    only: str  # comma-separated names that no other version of the family has
    defaults: dict[str, Any]
    more: tuple[NameRow, ...] = ()
    differs: tuple[str, ...] = ()
    together: tuple[str, ...] = ()  # sets of names that no other version has together
    derived: tuple[Derived, ...] = ()

    def marks_if(self, newest: str, marks: str) -> tuple[frozenset[str], ...]:
        """Return the sets of names that identify the system; () for all but its newest version."""
        if self.name != newest:
            return ()
        return name_sets(marks)


def _split_names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


_LERAX_MARKS = "clip_coefficient; entropy_loss_coefficient; value_loss_coefficient"


def _lerax_system(one: _Version) -> System:
    return System(
        one.name, "Lerax", (*with_defaults(_LERAX, one.defaults), *one.more),
        programs=("lerax",), marks=one.marks_if("lerax", _LERAX_MARKS),
        python=PythonCalls(
            names=("PPO", "MLPActorCriticPolicy"),
            order={"MLPActorCriticPolicy": "env", "learn": "env _ total_timesteps"},
            around={"ScheduledCurriculum": "curriculum", "NCDEActorCriticPolicy": "ncde"},
        ),
        derived=one.derived, version=one.text, tag=one.tag, only=_split_names(one.only),
        source="github.com/RunnersNum40/lerax, algorithm/ppo.py",
        always={**PLAIN_PPO, "adam_eps": 1e-8, "network": "mlp", "hidden_sizes": [64, 64],
                **TORCH_INIT},
        differs=(_HEADS, *one.differs),
    )


def _minibatch_count(batches: Any, envs: Any) -> int | None:
    """Return the number of minibatches per epoch if each has rows of only one environment."""
    parts, width = whole(batches), whole(envs)
    if parts is None or width is None:
        return None
    return parts * width


_PER_ENVIRONMENT = Derived(
    "num_batches", ("num_batches", "num_envs"), _minibatch_count,
    note="num_batches: {num_batches} batches per environment in version 0.0.2, so an epoch "
         "has {value} minibatches",
    drops=("num_batches",), searched="skip", always=True,
)
_EARLIER_LERAX = {"num_steps": 512, "num_epochs": 16}
LERAX = (
    _lerax_system(_Version(
        "lerax_0_0_2", "0.0.2", "0.0.2, November 2025", "", _EARLIER_LERAX, _NEURAL_ODE,
        derived=(_PER_ENVIRONMENT,))),
    _lerax_system(_Version(
        "lerax_0_0_5", "0.0.5 0.0.4 0.0.3", "up to 0.0.5, January 2026",
        "NCDEActorCriticPolicy, MLPDQNPolicy, ActorCriticStatefulWrapper, OnPolicyState, "
        "OffPolicyState, state_magnitude_coefficient",
        _EARLIER_LERAX, _NEURAL_ODE)),
    _lerax_system(_Version(
        "lerax", "0.0.6", "0.0.6, since 18 February 2026",
        "LoggingCallback, TensorBoardBackend, ConsoleBackend, WandbBackend, MLPSACPolicy, "
        "MLPDeterministicPolicy, ScheduledCurriculum", {})),
)

# -------------------------------------------------------------------------------- JaxDEM

_NOT_TRAINED = "it affects training and has no counterpart"
_ENVS = NoCounterpart(
    "JaxDEM's own environments are not supported; register yours (docs/environments.md), or set "
    "env to another one, such as navigators"
)
_OWN_ENVS = frozenset(
    [f"{many}{body}" for many in ("single", "multi", "swarm")
     for body in ("navigator", "roller", "roller3d", "stacking3d")] + ["twogears", "threegears"])


def _checked_env(value: Any) -> str:
    if str(value).replace("_", "").lower() in _OWN_ENVS:
        raise _ENVS
    return str(value)


_MODELS: dict[Any, Any] = {
    "SharedActorCritic": SettingsRow(network="mlp", shared_encoder=True),
    "ActorCritic": SettingsRow(network="mlp", shared_encoder=False),
    "MinGRUActorCritic": NoCounterpart(
        "minGRU layers are not available; gru is the closest: "
        "without=model network=gru"
    ),
}

def _width_reader(layers: int) -> Any:
    """Return a reader for the width of an encoder with equally wide layers."""

    def read(value: Any) -> SettingsRow:
        if not is_number(value):
            raise NoCounterpart(f"{value!r} is not a number")
        return SettingsRow(hidden_sizes=[int(value)] * layers)

    return parsed(read, f"{layers} layer{'s' * (layers > 1)} of this width")


_JAXDEM: tuple[NameRow, ...] = (  # with the defaults of the newest version
    taken("env", "env", values=replace(
        parsed(_checked_env, "JaxDEM's own are refused"),
        table={"TwoGears": _ENVS, "ThreeGears": _ENVS})),
    taken("optimizer", "optimiser", "muon", _OPTIMISER),
    *table("""
        seed =; learning_rate = 1e-2; max_grad_norm = 1.5
        ppo_clip_eps clip_eps 0.2; ppo_value_coeff vf_coef 2.0; ppo_entropy_coeff ent_coef 0.001
        advantage_gamma gamma 0.99; advantage_lambda gae_lambda 0.95
        advantage_rho_clip rho_clip 1.0; advantage_c_clip c_clip 1.0; num_minibatches = 4
        importance_sampling_alpha priority_alpha 0.8; importance_sampling_beta priority_beta0 0.2
        anneal_importance_sampling_beta anneal_priority_beta True; num_envs = 1024
        num_steps_epoch rollout_length 64; minibatch_size =
        accumulate_n_gradients accumulate_minibatches 1; in_scale hidden_gain
        actor_scale policy_gain 1.0; critic_scale value_gain 0.01
        actor_architecture hidden_sizes; critic_architecture hidden_sizes
        lstm_features recurrent_size; architecture hidden_sizes [42, 42, 42]"""),
    taken("total_timesteps", "env_steps",
          note="JaxDEM counts the steps of every agent, hpo counts env steps"),
    taken("num_epochs", "env_steps",
          note="updates, each of num_envs x num_steps_epoch env steps"),
    *table("activation activation@activation gelu"),
    *left("actions are within the environment's bounds; see `distribution`", "action_space"),
    *left("only used by clip_actions", "clip_range"),
    *left("a random key; see seed", "key"),
    *left("determined by the environment", "observation_space_size action_space_size"),
    *left("only saves memory", "remat"),
    *refused(_NOT_TRAINED, "drip_decay", (0, 0.0, None)),
    *refused(_NOT_TRAINED, "skip_frames", (0, None)),
    *refused(_NOT_TRAINED, "stop_at_epoch actor_sigma_head cell_type"),
    *refused("a single value; give its range, as in action_low=-0.2 action_high=0.2",
             "clip_actions"),
)


_JAXDEM_MARKS = "ppo_clip_eps; ppo_value_coeff; num_steps_epoch; ppo_entropy_coeff"


def _annealing_row(**more: Any) -> NameRow:
    return taken("anneal_learning_rate", "lr_schedule", True, words({
        True: SettingsRow(lr_schedule="cosine", schedule_on_gradient_steps=True, **more),
        False: "constant"}))


def _run_length(updates: Any, envs: Any, steps: Any, *given: Any) -> Mapping[str, int] | None:
    """Return the env steps of `updates` updates, unless another name gives them directly."""
    if any(one is not None for one in given):
        return {}
    sizes = [whole(one) for one in (updates, envs, steps)]
    counts = [size for size in sizes if size]
    if len(counts) < len(sizes):
        return None
    return {"env_steps": math.prod(counts)}


_JAXDEM_LENGTH = Derived(
    "env_steps",
    ("num_epochs", "num_envs", "num_steps_epoch", "total_timesteps", "env_steps"),
    _run_length,
    note="num_epochs: {num_epochs:,} updates of {num_envs} x {num_steps_epoch} env steps are "
         "{value:,} env steps",
    drops=("num_epochs",), defaults={"num_epochs": 1000}, searched="first", always=True,
)


def _jaxdem_system(one: _Version, adam_eps: float) -> System:
    return System(
        one.name, "JaxDEM", (*with_defaults(_JAXDEM, one.defaults), *one.more),
        programs=("jaxdem",), marks=one.marks_if("jaxdem", _JAXDEM_MARKS),
        python=PythonCalls(
            names=("create", "Create"),
            order={"create": "_", "Create": "env model"},
            made={"Model": "model"},
        ),
        derived=(_JAXDEM_LENGTH,), version=one.text, tag=one.tag, only=_split_names(one.only),
        together=tuple(map(_split_names, one.together)),
        source="github.com/cdelv/JaxDEM, jaxdem/rl/trainers/ppo_trainer.py",
        always={**PLAIN_PPO, "adam_eps": adam_eps, "value_clip_eps": "same", "update_epochs": 1,
                "network": "mlp", "shared_encoder": True, "priority_over": "segments"},
        differs=(
            *one.differs,
            (
                "hpo's V-trace value targets use the rollout's values; JaxDEM recomputes them "
                "for each minibatch"
            ),
        ),
    )


def _model_row(**lstm: Any) -> NameRow:
    read = SettingsRow(network="lstm", shared_encoder=True, **lstm)
    return taken("model", "network", values=words({**_MODELS, "LSTMActorCritic": read}))


_SEPTEMBER: Mapping[str, Any] = {
    "learning_rate": 2e-2, "max_grad_norm": 0.4, "ppo_value_coeff": 0.5,
    "ppo_entropy_coeff": 0.03, "advantage_rho_clip": 0.5, "advantage_c_clip": 0.5,
    "importance_sampling_alpha": 0.4, "importance_sampling_beta": 0.1, "num_envs": 2048,
    "num_minibatches": 10, "architecture": [32, 32],
}  # fmt: skip
_OF_SEPTEMBER = (
    _annealing_row(),
    *table("""learning_rate_decay_exponent lr_decay_exponent 2.0
              learning_rate_decay_min_fraction lr_end_fraction 0.01"""),
    _model_row(initialisation="lecun", hidden_gain=1.0, policy_gain=1.0, value_gain=1.0),
    taken("hidden_features", "hidden_sizes", values=_width_reader(2)),
)
_OLD_V_TRACE = (
    "JaxDEM at that time multiplies only the reward by the clipped ratio, and "
    "bootstraps from the value of the last step; hpo multiplies the whole temporal "
    "difference, and bootstraps from the value of the next observation"
)

JAXDEM = (
    _jaxdem_system(_Version(
        "jaxdem_2025_09", "2025.09", "of September 2025, until 7 October",
        f"learning_rate_decay_exponent, learning_rate_decay_min_fraction, {TWO_OF_TRAIN}",
        dict(_SEPTEMBER), _OF_SEPTEMBER,
        ((
            "version 2025.10 has the same names but different defaults: ppo_entropy_coeff "
            "0.02 and minibatch_size 256"
        ), _OLD_V_TRACE)), 1e-5),
    _jaxdem_system(_Version(
        "jaxdem_2025_10", "2025.10", "from 23 October to 4 November 2025", "",
        {**_SEPTEMBER, "ppo_entropy_coeff": 0.02, "minibatch_size": 256}, _OF_SEPTEMBER,
        ("from 8 to 22 October, minibatch_size was a tenth of the environments by default",
         _OLD_V_TRACE),
        ("learning_rate_decay_exponent, stop_at_epoch",
         "learning_rate_decay_min_fraction, stop_at_epoch")), 1e-5),
    _jaxdem_system(_Version(
        "jaxdem", "2025.11", "since 6 November 2025, as of June 2026",
        "drip_decay, skip_frames, actor_sigma_head, MinGRUActorCritic", {},
        (_annealing_row(lr_end_fraction=0.0), _model_row(),
         taken("hidden_features", "hidden_sizes", values=_width_reader(1))),
        ((
            "hpo draws segments once per rollout, with the advantages before its "
            "updates; JaxDEM draws them for each minibatch, without replacement"
        ),)), 1e-12),
)
