"""The static part of a configuration: hashable Python values that identify a program.

Values that may differ between lanes are in `hypers.Hypers`; no field is in both.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..environments.table import ENVIRONMENTS
from ..errors import ConfigError, counted
from ..knobs import KNOBS, RECURRENT_NETWORKS, complete, matters


@dataclass(frozen=True)
class Backend:
    # Real conditionals skip resets and bootstrap values in steps where no episode ends. On a GPU
    # with thousands of environments few steps are like that, and a conditional costs three
    # kernels.
    branches: bool = True
    # The numbers of a step are one array, and episodes are summed per environment, so that a step
    # ends with fewer kernels.
    one_record: bool = False
    advantage_unroll: int = 1  # steps per iteration of the advantage loop
    refill_batch: int = 1  # lanes started side by side
    # Spectra of optical networks are stored as one bit per slot if the study leaves the format
    # open; networks see the same numbers.
    packs_observations: bool = False
    # Short loops inside a step of an optical environment are unrolled, because each iteration
    # would be a launch.
    unrolls_steps: bool = False
    # Gradients of a layer's kernel and bias are one product if the layer has fewer inputs than
    # outputs.
    joins_biases: bool = False
    # Gradient norms are summed before any value computed from them is written, so that the new
    # values replace the old in place.
    sums_first: bool = False
    # The log probability of an action is a masked sum over all actions, which avoids a scatter.
    selects_actions: bool = False
    # float32 products with very many inputs or actions are computed as six products of bfloat16
    # parts on tensor cores, with float32 accuracy.
    splits_wide_products: bool = False
    # An MLP's first layers read packed spectra as bytes, which are exact in bfloat16: float32
    # accuracy takes three products, instead of six for two floats.
    reads_flags: bool = False
    # Parameters are cast to the network's precision once per rollout.
    cast_once: bool = False
    # Values are computed after a rollout, for many steps at once, so that the critic's weights are
    # not read in every step.
    values_after: bool = False


CPU = Backend()
_SWITCHES = [each for each in dataclasses.fields(Backend) if isinstance(each.default, bool)]
GPU = Backend(  # every switch inverted
    advantage_unroll=16, refill_batch=64, **{each.name: not each.default for each in _SWITCHES}
)


def backend_of(platform: str) -> Backend:
    if platform == "cpu":
        return CPU
    return GPU


# Features that cost time even when off, and the hyperparameters that turn them on when truthy. A
# Plan compiles in only those that its study can switch on.
FEATURES: Mapping[str, str] = {
    "normalise_observations": "normalise_observations",
    "normalise_rewards": "normalise_rewards",
    "off_policy_masking": "off_policy_masking",
    "priority": "priority_alpha",
    "raw_reward_deviation": "raw_reward_deviation",
    "reward_centering": "reward_centering",
    "schedule_on_gradient_steps": "schedule_on_gradient_steps",
    "v_trace": "rho_clip",
    "valid_mass_loss": "valid_mass_coef",
    "vf_gae_lambda": "vf_gae_lambda",
}

# `gradient_accumulation` until `memory.for_platform` decides, when a `Program` is made
AUTOMATIC = 0

_OVER_LINKS = ("gnn", "transformer")
_FLAT_SPECTRA = ("rmsa", "rsa", "rwa")  # optical environments that can observe one bit per slot

# Networks with a carry, which learn from whole segments; registering one adds its name.
RECURRENT: set[str] = set(RECURRENT_NETWORKS)


@dataclasses.dataclass(frozen=True)
class EnvPlan:
    id: str
    keys: tuple[tuple[str, Any], ...] = ()  # (name, value), as written, sorted by name
    # folder of files among the values; not in the plan's hash, so that a study may be moved
    folder: str = dataclasses.field(default="", repr=False)
    history: int = 1  # number of observations stacked
    # whether short loops of a step are unrolled, see `Backend`
    unrolled: bool = dataclasses.field(default=False, repr=False)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The static part of a configuration; equal plans share a compiled program.

    Its fields are the static hyperparameters in `knobs.KNOBS`; those that this network does not
    use have their defaults. `history` and `transformer_obs_type` are part of the environments.
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
    link_critic_sees: str
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
    features: tuple[str, ...] = ()  # costly features compiled in, see `FEATURES`
    accumulate_minibatches: int = dataclasses.field(default=1, repr=False)
    path_mlp_begins: str = dataclasses.field(default="path", repr=False)
    cnn_residual_blocks: int = dataclasses.field(default=0, repr=False)
    backend: Backend = dataclasses.field(default=CPU, repr=False)  # set when a `Program` is made

    @property
    def steps_per_update(self) -> int:
        return self.num_envs * self.rollout_length

    @property
    def gradient_parts(self) -> int:
        if self.gradient_accumulation == AUTOMATIC:
            raise ConfigError(
                "gradient_accumulation is auto, which depends on the device; give a number, or "
                "call core.memory.for_platform(plan, 'cpu') first, as a Program does"
            )
        return self.gradient_accumulation

    @property
    def by_segments(self) -> bool:
        """Whether minibatches consist of segments (T steps of an environment) instead of steps."""
        drawn = "priority" in self.features and self.priority_over == "segments"
        return self.network in RECURRENT or "v_trace" in self.features or drawn

    @property
    def has_free_minibatches(self) -> bool:
        """Whether the number and the size of minibatches are both given (prioritised sampling)."""
        return self.num_minibatches != math.ceil(self.steps_per_update / self.minibatch_size)


On = tuple[str, ...] | None  # features that a plan compiles in; None: those that are switched on


def make_plan(
    config: Mapping[str, Any], env: EnvPlan, eval_env: EnvPlan | None = None, features: On = None
) -> Plan:
    """Complete a configuration with `knobs.complete`, and return its static part."""
    given: dict[str, Any] = {}
    if features is not None:
        off = [knob for name, knob in FEATURES.items() if name not in features]
        given = {knob: False for knob in off if KNOBS[knob].default}
    return plan_of(complete({**given, **config}), env, eval_env, features)


def plan_of(
    full: Mapping[str, Any], env: EnvPlan, eval_env: EnvPlan | None = None, features: On = None
) -> Plan:
    """Return the static part of a complete configuration.

    `features` are the costly features that this study may turn on; by default, those that `full`
    turns on. Without `eval_env`, evaluation uses `env`.

    Raises:
        ConfigError: an enabled feature is not in `features`, or does not fit this plan.
    """
    on = tuple(name for name, knob in FEATURES.items() if full[knob])
    if features is None:
        features = on
    _check_features(on, features)
    env_plans = {"env": as_seen(env, full), "eval_env": as_seen(eval_env or env, full)}
    plan = Plan(**env_plans, features=tuple(sorted(features)), **_static_values(full))
    _check_minibatches(plan)
    return plan


def _check_features(on: tuple[str, ...], features: tuple[str, ...]) -> None:
    unused = set(features) - set(FEATURES)
    if unused:
        raise ConfigError(f"unknown features {sorted(unused)}; known: {', '.join(FEATURES)}")
    missing = [name for name in on if name not in features]
    if missing:
        raise ConfigError(f"{missing[0]} is on, but this plan was made without it")


def _static_values(full: Mapping[str, Any]) -> dict[str, Any]:
    """Return the static hyperparameters, with defaults for those that have no effect.

    Configurations that differ only in ineffective values therefore share a program.
    """
    names = {field.name for field in dataclasses.fields(Plan)} & set(KNOBS)
    defaults = {name: KNOBS[name].default for name in names}
    network = full["network"]
    chosen = defaults | {name: full[name] for name in names if matters(name, network)}
    if chosen["gradient_accumulation"] == "auto":
        chosen["gradient_accumulation"] = 1
        if network in _OVER_LINKS:
            chosen["gradient_accumulation"] = AUTOMATIC
    if network == "transformer":
        chosen["shared_encoder"] |= full["transformer_share_layers"]
    if network in _OVER_LINKS and chosen["shared_encoder"]:  # no separate critic
        chosen["link_critic_sees"] = defaults["link_critic_sees"]
    if not full["transformer_enable_dropout"]:
        for name in ("transformer_dropout", "transformer_attention_dropout"):
            chosen[name] = defaults[name]
    return chosen


def _check_minibatches(plan: Plan) -> None:
    if plan.has_free_minibatches and "priority" not in plan.features:
        raise ConfigError(
            f"num_minibatches is {plan.num_minibatches} and minibatch_size "
            f"{plan.minibatch_size}, which together need prioritised sampling: set or search "
            "priority_alpha above 0, or remove one of the two"
        )
    if not plan.by_segments:
        return
    if plan.priority_over == "steps" and "priority" in plan.features:
        reason = plan.network
        if "v_trace" in plan.features:
            reason = "V-trace"
        raise ConfigError(
            f"priority_over is 'steps', but {reason} learns from whole segments; use "
            "'segments', or remove priority_over"
        )
    if plan.has_free_minibatches:
        return
    if plan.num_minibatches > plan.num_envs:
        raise ConfigError(
            f"num_minibatches is {plan.num_minibatches}, but minibatches consist of whole "
            f"segments here, one per environment; allowed: at most num_envs, which is "
            f"{plan.num_envs}"
        )
    segments = math.ceil(plan.num_envs / plan.num_minibatches)
    if plan.gradient_accumulation > segments:
        raise ConfigError(
            f"gradient_accumulation is {plan.gradient_accumulation}, but a minibatch has only "
            f"{counted(segments, 'whole segment')}; allowed: at most {segments}"
        )


def as_seen(env: EnvPlan, config: Mapping[str, Any]) -> EnvPlan:
    """Return the environment with the observations that the network of `config` reads."""
    env = dataclasses.replace(env, history=config["history"])
    tokens = f"link_{config['transformer_obs_type']}"
    shown = {"gnn": "graph", "path_mlp": "paths", "transformer": tokens}
    keys, network = dict(env.keys), config["network"]
    if network not in shown or "observation" in keys or not _is_optical(env.id):
        return env
    keys["observation"] = shown[network]
    return dataclasses.replace(env, keys=tuple(sorted(keys.items())))


def for_backend(env: EnvPlan, backend: Backend) -> EnvPlan:
    """Return the environment in the form that suits a backend; networks see the same numbers.

    Spectra of optical networks are packed if the study leaves the format open, except for shared
    lightpaths, which need more than one bit per slot.

    >>> for_backend(EnvPlan("rmsa", (("k", 3),)), GPU).keys
    (('k', 3), ('observation', 'packed'))
    """
    keys = dict(env.keys)
    flat = env.id in _FLAT_SPECTRA and env.history == 1 and "observation" not in keys
    if flat and backend.packs_observations:
        keys["observation"] = "packed"
    unrolled = env.unrolled or (backend.unrolls_steps and _is_optical(env.id))
    return dataclasses.replace(env, keys=tuple(sorted(keys.items())), unrolled=unrolled)


def _is_optical(id_: str) -> bool:
    known = ENVIRONMENTS.get(id_)
    return known is not None and known.source == "optical"


def features_of(possible: Mapping[str, set[Any]]) -> tuple[str, ...]:
    return tuple(
        name for name, knob in FEATURES.items() if any(possible.get(knob, {KNOBS[knob].default}))
    )


def plan_hash(plan: Plan) -> str:
    """Return eight hex digits that identify a plan, the same in every process.

    Fields added later are not in the plan's `repr`. They enter the hash only if they differ from
    their defaults, so that the hashes of older plans do not change.
    """
    text = repr(plan)
    for field in dataclasses.fields(plan):
        value = getattr(plan, field.name)
        if not field.repr and value != field.default:
            text += f", {field.name}={value!r}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]
