"""What a program is keyed by (Plan), what may differ per lane (Hypers), what a lane carries.

`Plan` holds only hashable Python values; `Hypers` holds only array leaves, one a traced knob. No
field is in both.

Letters of array shapes, used everywhere: L lanes, E environments, T steps of a rollout, N rows to
learn from (T E single steps, or E whole segments), B minibatch rows, A actions or action
components, K updates of a chunk. Where one environment has several bodies (see `envs.bodies`),
what is [E] of a learner counts segments, E times the bodies.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from ..environments import ENVIRONMENTS
from ..errors import ConfigError
from ..knobs import KNOBS, complete, matters
from .normalise import RunningStatistics
from .pytree import Pytree, pytree
from .schedules import KINDS

__all__ = [
    "FEATURES",
    "EnvPlan",
    "Hypers",
    "LaneState",
    "Plan",
    "features_of",
    "make_hypers",
    "make_plan",
    "plan_hash",
    "stack",
]

FEATURES: Mapping[str, str] = {
    "normalise_observations": "normalise_observations",
    "normalise_rewards": "normalise_rewards",
    "off_policy_masking": "off_policy_masking",
    "priority": "priority_alpha",
    "reward_centering": "reward_centering",
    "schedule_on_gradient_steps": "schedule_on_gradient_steps",
    "v_trace": "rho_clip",
    "valid_mass_loss": "valid_mass_coef",
}
"""What costs time even when off, and the knob that is neither 0 nor off where it is on.

A Plan compiles in only those that its study can switch on.
"""

RECURRENT = {"lstm", "gru"}
"""Networks with a carry, which learn from whole segments; registering one adds its name."""

if TYPE_CHECKING:
    Leaf = Any
else:  # checked when tests run: rows are NumPy arrays until they are put on a device
    Leaf = Array | np.ndarray

OFF = math.inf
"""How a clip or limit that is off looks in `Hypers`."""

SAME = -1.0
"""How `value_clip_eps: same` looks in `Hypers`."""


@dataclasses.dataclass(frozen=True)
class EnvPlan:
    """The static part of an environment: its id and its fixed keys, sorted by name.

    Attributes:
        id: of the registry.
        keys: (name, value), as written.
        folder: that files among the values are relative to; not part of the plan's hash, so that
            a study may be moved. Empty where no key names a file.
        history: observations stacked (the knob `history`).
    """

    id: str
    keys: tuple[tuple[str, Any], ...] = ()
    folder: str = dataclasses.field(default="", repr=False)
    history: int = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """The static part of a configuration; equal plans share a compiled program.

    Attributes are the static knobs of `knobs.KNOBS` (those of other networks at their defaults;
    `history` and `transformer_obs_type` are part of the environments), plus:
        env: the environment that trains.
        eval_env: the environment that evaluates.
        features: the costly switches compiled in (see `FEATURES`).
    """

    env: EnvPlan
    eval_env: EnvPlan
    num_envs: int
    rollout_length: int
    num_minibatches: int
    minibatch_size: int
    network: str
    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool
    shared_encoder: bool
    cnn_channels: tuple[int, ...] | None
    cnn_kernels: tuple[int, ...] | None
    cnn_strides: tuple[int, ...] | None
    cnn_dense: tuple[int, ...] | None
    recurrent_size: int
    gnn_message_passing_steps: int
    gnn_edge_embedding_size: int
    gnn_node_embedding_size: int
    gnn_global_embedding_size: int
    gnn_edge_mlp_layers: int
    gnn_node_mlp_layers: int
    gnn_global_mlp_layers: int
    gnn_edge_mlp_latent: int
    gnn_node_mlp_latent: int
    gnn_global_mlp_latent: int
    gnn_attn_mlp_layers: int
    gnn_attn_mlp_latent: int
    gnn_num_spectral_features: int
    gnn_layer_norm: bool
    gnn_mlp_layer_norm: bool
    gnn_normalise_by_link_length: bool
    gnn_node_features: bool
    transformer_layers: int
    transformer_heads: int
    transformer_embedding_size: int
    transformer_intermediate_size: int
    transformer_wire_features: int
    transformer_actor_mlp_width: int
    transformer_actor_mlp_depth: int
    transformer_critic_mlp_width: int
    transformer_critic_mlp_depth: int
    transformer_actor_pooling: str
    transformer_critic_pooling: str
    transformer_dropout: float
    transformer_attention_dropout: float
    transformer_enable_dropout: bool
    initialisation: str
    hidden_gain: float
    policy_gain: float
    value_gain: float
    optimiser: str
    gradient_accumulation: int
    priority_over: str | None
    distribution: str | None
    action_low: float | None
    action_high: float | None
    dtype: str
    matmul_precision: str
    features: tuple[str, ...] = ()

    @property
    def steps_per_update(self) -> int:
        """Env steps of one update of one lane."""
        return self.num_envs * self.rollout_length

    @property
    def by_segments(self) -> bool:
        """Whether minibatches are whole segments (T steps of one environment), not single steps.

        True where what a step teaches depends on the steps around it, and where segments are
        drawn by priority.
        """
        drawn = "priority" in self.features and self.priority_over == "segments"
        return self.network in RECURRENT or "v_trace" in self.features or drawn

    @property
    def has_free_minibatches(self) -> bool:
        """Whether number and size of minibatches were both given (prioritised sampling)."""
        return self.num_minibatches != math.ceil(self.steps_per_update / self.minibatch_size)


@pytree
class Hypers(Pytree):
    """The traced part of a configuration: one leaf a knob, float32 or int32, [] or [L].

    Switches are float32 0 or 1, schedules are int32 indices into `SCHEDULES`, what is off is
    infinite. `env_params` holds the environment's parameters (a pytree of float32), `eval_params`
    those of the evaluation environment.
    """

    learning_rate: Float[Leaf, "..."]
    lr_schedule: Int[Leaf, "..."]
    lr_end_fraction: Float[Leaf, "..."]
    lr_warmup_fraction: Float[Leaf, "..."]
    lr_warmup_multiplier: Float[Leaf, "..."]
    lr_warmup_start_fraction: Float[Leaf, "..."]
    lr_schedule_multiplier: Float[Leaf, "..."]
    lr_decay_exponent: Float[Leaf, "..."]
    gamma: Float[Leaf, "..."]
    gae_lambda: Float[Leaf, "..."]
    gae_lambda_initial: Float[Leaf, "..."]
    gae_lambda_final: Float[Leaf, "..."]
    gae_lambda_schedule_multiplier: Float[Leaf, "..."]
    clip_eps: Float[Leaf, "..."]
    clip_eps_schedule: Int[Leaf, "..."]
    clip_eps_end_fraction: Float[Leaf, "..."]
    value_clip_eps: Float[Leaf, "..."]
    vf_coef: Float[Leaf, "..."]
    ent_coef: Float[Leaf, "..."]
    ent_schedule: Int[Leaf, "..."]
    ent_end_fraction: Float[Leaf, "..."]
    ent_schedule_multiplier: Float[Leaf, "..."]
    max_grad_norm: Float[Leaf, "..."]
    adam_eps: Float[Leaf, "..."]
    adam_beta1: Float[Leaf, "..."]
    adam_beta2: Float[Leaf, "..."]
    weight_decay: Float[Leaf, "..."]
    sgd_momentum: Float[Leaf, "..."]
    muon_momentum: Float[Leaf, "..."]
    separate_vf_optimiser: Float[Leaf, "..."]
    vf_learning_rate: Float[Leaf, "..."]
    vf_lr_schedule: Int[Leaf, "..."]
    vf_lr_end_fraction: Float[Leaf, "..."]
    vf_warmup_fraction: Float[Leaf, "..."]
    vf_warmup_multiplier: Float[Leaf, "..."]
    vf_warmup_start_fraction: Float[Leaf, "..."]
    vf_schedule_multiplier: Float[Leaf, "..."]
    vf_adam_eps: Float[Leaf, "..."]
    vf_adam_beta1: Float[Leaf, "..."]
    vf_adam_beta2: Float[Leaf, "..."]
    vf_max_grad_norm: Float[Leaf, "..."]
    vf_weight_decay: Float[Leaf, "..."]
    reward_scale: Float[Leaf, "..."]
    reward_clip: Float[Leaf, "..."]
    reward_centering: Float[Leaf, "..."]
    average_reward_initial: Float[Leaf, "..."]
    average_reward_step: Float[Leaf, "..."]
    normalise_observations: Float[Leaf, "..."]
    observation_clip: Float[Leaf, "..."]
    normalise_rewards: Float[Leaf, "..."]
    normalise_advantages: Float[Leaf, "..."]
    logr_clip: Float[Leaf, "..."]
    adv_clip: Float[Leaf, "..."]
    target_kl: Float[Leaf, "..."]
    priority_alpha: Float[Leaf, "..."]
    priority_beta0: Float[Leaf, "..."]
    anneal_priority_beta: Float[Leaf, "..."]
    rho_clip: Float[Leaf, "..."]
    c_clip: Float[Leaf, "..."]
    log_std_init: Float[Leaf, "..."]
    log_std_min: Float[Leaf, "..."]
    log_std_max: Float[Leaf, "..."]
    update_epochs: Int[Leaf, "..."]
    action_masking: Float[Leaf, "..."]
    off_policy_masking: Float[Leaf, "..."]
    masking_gate_min_actions: Int[Leaf, "..."]
    masking_gating: Float[Leaf, "..."]
    masking_damping: Float[Leaf, "..."]
    valid_mass_target: Float[Leaf, "..."]
    valid_mass_coef: Float[Leaf, "..."]
    valid_mass_schedule: Int[Leaf, "..."]
    valid_mass_end_fraction: Float[Leaf, "..."]
    valid_mass_schedule_multiplier: Float[Leaf, "..."]
    schedule_on_gradient_steps: Float[Leaf, "..."]
    env_params: Any
    eval_params: Any


@pytree
class LaneState(Pytree):
    """Everything one lane carries from update to update.

    Attributes:
        key: raw threefry key of (seed, stream, replicate); every draw folds in a use and the
            lane's own update counter.
        updates: updates done; negative during warm-up.
        total_updates: updates of the full run, the horizon of the schedules.
        params: of the networks.
        moments: the optimiser's (count, first, second) for policy and critic parameters.
        gradient_steps: taken so far.
        env_state: of the environments [E].
        observation: raw, of the environments [E].
        carry: memory of recurrent networks [E], () for all others.
        observation_statistics: for normalise_observations, else of shape [].
        return_statistics: of the discounted return, for normalise_rewards.
        discounted_return: float32 [E], likewise.
        average_reward: for reward_centering.
        average_trace: o, how much of a step's weight the average has seen; likewise.
        episode_return: float32 [E], of the episodes that run.
        episode_length: int32 [E].
    """

    key: UInt32[Array, "... 2"]
    updates: Int[Array, "..."]
    total_updates: Int[Array, "..."]
    params: Any
    moments: Any
    gradient_steps: Int[Array, "..."]
    env_state: Any
    observation: Any
    carry: Any
    observation_statistics: RunningStatistics
    return_statistics: RunningStatistics
    discounted_return: Float[Array, "... E"]
    average_reward: Float[Array, "..."]
    average_trace: Float[Array, "..."]
    episode_return: Float[Array, "... E"]
    episode_length: Int[Array, "... E"]


def make_plan(
    config: Mapping[str, Any],
    env: EnvPlan,
    eval_env: EnvPlan | None = None,
    features: tuple[str, ...] | None = None,
) -> Plan:
    """Give the static part of a configuration.

    Args:
        config: knob -> value, as for `knobs.complete`.
        env: the environment.
        eval_env: the one that evaluates; the same if None.
        features: costly switches that this study may turn on; None: those that are on here.

    Raises:
        ConfigError: something is on that `features` leaves out, or does not go with it.
    """
    full = complete(config)
    on = tuple(name for name, knob in FEATURES.items() if full[knob])
    features = on if features is None else features
    names = {field.name for field in dataclasses.fields(Plan)} & set(KNOBS)
    unused = set(features) - set(FEATURES)
    if unused:
        raise ConfigError(f"unknown features {sorted(unused)}; known: {', '.join(FEATURES)}")
    missing = [name for name in on if name not in features]
    if missing:
        raise ConfigError(f"{missing[0]} is on, but this plan was made without it")
    network = full["network"]
    chosen = {
        name: full[name] if matters(name, network) else KNOBS[name].default for name in names
    }
    if network == "transformer":
        chosen["shared_encoder"] |= full["transformer_share_layers"]
    if not full["transformer_enable_dropout"]:
        for name in ("transformer_dropout", "transformer_attention_dropout"):
            chosen[name] = KNOBS[name].default
    plan = Plan(
        env=_as_seen(env, full),
        eval_env=_as_seen(eval_env or env, full),
        features=tuple(sorted(features)),
        **chosen,
    )
    _check_segments(plan)
    return plan


def _check_segments(plan: Plan) -> None:
    if not plan.by_segments:
        return
    if plan.priority_over == "steps" and "priority" in plan.features:
        reason = "V-trace" if "v_trace" in plan.features else plan.network
        raise ConfigError(
            f"priority_over is 'steps', but {reason} learns from whole segments; take 'segments' "
            "or leave it out"
        )
    if plan.has_free_minibatches:
        return
    if plan.num_minibatches > plan.num_envs:
        raise ConfigError(
            f"num_minibatches is {plan.num_minibatches}, but minibatches are whole segments here, "
            f"one of each environment; allowed: at most num_envs, which is {plan.num_envs}"
        )
    segments = math.ceil(plan.num_envs / plan.num_minibatches)
    if plan.gradient_accumulation > segments:
        raise ConfigError(
            f"gradient_accumulation is {plan.gradient_accumulation}, but a minibatch has only "
            f"{segments} whole segments; allowed: at most {segments}"
        )


def _as_seen(env: EnvPlan, config: Mapping[str, Any]) -> EnvPlan:
    """Give an environment that shows what the network reads: stacked, and links to link networks.

    Optical environments whose `observation` is left out show a graph to a gnn and link tokens to
    a transformer.
    """
    env = dataclasses.replace(env, history=config["history"])
    shown = {"gnn": "graph", "transformer": f"link_{config['transformer_obs_type']}"}
    keys, network = dict(env.keys), config["network"]
    if network not in shown or "observation" in keys or not _is_optical(env.id):
        return env
    keys["observation"] = shown[network]
    return dataclasses.replace(env, keys=tuple(sorted(keys.items())))


def _is_optical(id_: str) -> bool:
    known = ENVIRONMENTS.get(id_)
    return known is not None and known.source == "optical"


def features_of(possible: Mapping[str, set[Any]]) -> tuple[str, ...]:
    """Give the features some configuration of a study can switch on.

    Args:
        possible: knob -> the values it can take; a knob left out keeps its default.
    """
    return tuple(
        name for name, knob in FEATURES.items() if any(possible.get(knob, {KNOBS[knob].default}))
    )


def plan_hash(plan: Plan) -> str:
    """Give eight hex digits that name a plan, the same in every process."""
    return hashlib.sha256(repr(plan).encode()).hexdigest()[:8]


def make_hypers(config: Mapping[str, Any], env_params: Any, eval_params: Any) -> Hypers:
    """Give the traced part of a configuration as NumPy scalars, canonical in dtype.

    Every leaf is float32 or int32 and never weakly typed, so that no value recompiles a program.

    Args:
        config: knob -> value, as for `knobs.complete`.
        env_params: the environment's parameters, a pytree of numbers.
        eval_params: those of the evaluation environment.
    """
    full = complete(config)
    if full["gae_lambda_initial"] is None:  # no annealing is annealing between equals
        full["gae_lambda_initial"] = full["gae_lambda_final"] = full["gae_lambda"]
    leaves = {name: _encode(name, full[name]) for name, knob in KNOBS.items() if knob.traced}
    return Hypers(**leaves, env_params=_floats(env_params), eval_params=_floats(eval_params))


def _encode(name: str, value: Any) -> np.ndarray:
    if KNOBS[name].type == "int":
        return np.asarray(value, np.int32)
    if isinstance(value, str):
        return np.asarray(SAME, np.float32) if value == "same" else _kind(value)
    return np.asarray(OFF if value is None else value, np.float32)


def _kind(schedule: str) -> np.ndarray:
    return np.asarray(KINDS[schedule], np.int32)


def _floats(params: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)


def stack(trees: list[Any]) -> Any:
    """Stack equal pytrees along a new leading lane axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def lane_key(seed: Leaf, stream: Leaf, replicate: Leaf) -> UInt32[Array, "2"]:
    """Give the raw key of a replicate: threefry, folded from (seed, stream, replicate)."""
    key = jax.random.key(seed, impl="threefry2x32")
    key = jax.random.fold_in(jax.random.fold_in(key, stream), replicate)
    return jax.random.key_data(key)


def use_key(raw: UInt32[Leaf, "2"], use: int, counter: Leaf | int = 0) -> Array:
    """Give the typed key of one use of a lane's key at one value of its counter."""
    key = jax.random.wrap_key_data(raw, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, use), jnp.asarray(counter, jnp.int32))
