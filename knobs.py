"""The one table of hyperparameters: plain data that everything else derives from.

`KNOBS` declares every knob once (name, type, default, legal range, traced or static, meaning);
its names in other systems stand in `elsewhere`. `check_value` makes a value canonical, `complete`
fills a configuration in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .elsewhere import Row, hints
from .errors import ConfigError, suggestion

__all__ = [
    "DEFAULTS_OF_OLD",
    "KNOBS",
    "REGISTRABLE",
    "SCHEDULES",
    "SCHEDULE_KNOBS",
    "Knob",
    "allow_choice",
    "canonical_name",
    "check_name",
    "check_value",
    "complete",
    "hint_of",
    "known_choices",
    "matters",
]

KnobType = Literal["float", "int", "bool", "choice", "widths"]
SCHEDULES = ("constant", "linear", "cosine", "warmup_cosine")


@dataclass(frozen=True)
class Knob:
    """One hyperparameter.

    Attributes:
        name: ours, used in study files, tables and code.
        type: of its values; `widths` is a list of positive integers.
        default: its value when nobody sets it; None means off, or a rule that `meaning` tells.
        traced: a leaf of `Hypers` (free to vary per lane); else a part of `Plan`.
        low: smallest legal value.
        high: largest legal value.
        low_open: `low` itself is not legal.
        choices: the legal words of a `choice`; for a number, words legal beside it.
        off: whether `null` or `off` is legal.
        meaning: one line, with unit where there is one.
        search: a suggested distribution, as a study file writes it.
        networks: the built-in networks that it matters for; () for all.
    """

    name: str
    type: KnobType
    default: Any
    traced: bool
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    choices: tuple[str, ...] = ()
    off: bool = False
    meaning: str = ""
    search: Mapping[str, Any] | None = None
    networks: tuple[str, ...] = ()

    def allowed(self) -> str:
        """Return in words what is legal."""
        words = []
        if self.type == "bool":
            words.append("true or false")
        elif self.type == "choice":
            words.append("one of " + ", ".join(known_choices(self.name)))
        elif self.type == "widths":
            words.append("a list of integers of at least 1, such as [64, 64]")
        else:
            noun = "an integer" if self.type == "int" else "a number"
            bounds = []
            if self.low > -math.inf:
                bounds.append(f"{'above' if self.low_open else 'at least'} {self.low:g}")
            if self.high < math.inf:
                bounds.append(f"at most {self.high:g}")
            words.append(" ".join([noun, " and ".join(bounds)]).strip())
            words.extend(repr(choice) for choice in self.choices)
        if self.off:
            words.append("off")
        return " or ".join(words)


def _number(name: str, default: Any, meaning: str, **rest: Any) -> Knob:
    return Knob(name, "float", default, True, meaning=meaning, **rest)


def _switch(name: str, default: bool, meaning: str, **rest: Any) -> Knob:
    return Knob(name, "bool", default, True, meaning=meaning, **rest)


def _schedule(name: str, default: str | None, meaning: str, **rest: Any) -> Knob:
    return Knob(name, "choice", default, True, choices=SCHEDULES, meaning=meaning, **rest)


def _static(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return Knob(name, type_, default, False, meaning=meaning, **rest)


def _log(low: float, high: float, **rest: Any) -> dict[str, Any]:
    return {"min": low, "max": high, "distribution": "log_uniform", **rest}


def _uniform(low: float, high: float) -> dict[str, Any]:
    return {"min": low, "max": high, "distribution": "uniform"}


_POSITIVE = {"low": 0.0, "low_open": True}
_FRACTION = {"low": 0.0, "high": 1.0}
_INHERITED = "; unset follows the policy's"

_TRACED = (
    _number(
        "learning_rate",
        1e-3,
        "step size of the optimiser",
        **_POSITIVE,
        search=_log(1e-5, 1e-2),
    ),
    _schedule("lr_schedule", "constant", "how the learning rate changes over the run",
              search={"values": list(SCHEDULES)}),
    _number("lr_end_fraction", 0.1, "final learning rate as a fraction of the initial",
            **_FRACTION),
    _number("lr_warmup_fraction", 0.2, "share of the horizon that warms up (warmup_cosine)",
            low=0.0, high=0.99),
    _number("lr_warmup_multiplier", 1.0, "peak learning rate over learning_rate (warmup_cosine)",
            **_POSITIVE),
    _number("lr_warmup_start_fraction", 0.0, "first learning rate over learning_rate",
            **_FRACTION),
    _number("lr_schedule_multiplier", 1.0, "horizon of the schedule over the length of the run",
            **_POSITIVE),
    _number("lr_decay_exponent", 1.0, "exponent of the cosine", **_POSITIVE),
    _number("gamma", 0.99, "discount per env step", **_FRACTION,
            search={"min": 0.9, "max": 0.9999, "distribution": "one_minus_log"}),
    _number("gae_lambda", 0.95, "lambda of generalised advantage estimation", **_FRACTION,
            search=_uniform(0.8, 1.0)),
    _number("vf_gae_lambda", None, "lambda of the critic's targets; off: the advantages' own",
            low=0.0, low_open=True, high=1.0, off=True,
            search=_uniform(0.9, 1.0)),
    _number("gae_lambda_initial", None, "lambda at the start; with gae_lambda_final set, anneals",
            **_FRACTION, off=True),
    _number("gae_lambda_final", None, "lambda that annealing approaches", **_FRACTION, off=True),
    _number("gae_lambda_schedule_multiplier", 1.0, "horizon of the annealing over the run",
            **_POSITIVE),
    _number("clip_eps", 0.2, "clip of the probability ratio", **_POSITIVE,
            search=_log(0.02, 0.4)),
    _schedule("clip_eps_schedule", "constant", "how clip_eps changes over the run"),
    _number("clip_eps_end_fraction", 0.0, "final clip_eps as a fraction of the initial",
            **_FRACTION),
    _number("value_clip_eps", None, "clip of the value's change; `same` follows clip_eps",
            **_POSITIVE, off=True, choices=("same",)),
    _number("vf_coef", 0.5, "weight of the value loss 0.5 (V - R)^2", low=0.0,
            search=_log(0.05, 5.0)),
    _number("ent_coef", 0.0, "weight of the entropy bonus", low=0.0,
            search=_log(1e-4, 0.1, zero=0.2)),
    _schedule("ent_schedule", "constant", "how ent_coef changes over the run"),
    _number("ent_end_fraction", 0.1, "final ent_coef as a fraction of the initial", low=0.0),
    _number("ent_schedule_multiplier", 1.0, "horizon of the schedule over the run", **_POSITIVE),
    _number("max_grad_norm", 0.5, "clip of the global gradient norm", **_POSITIVE, off=True,
            search=_log(0.1, 5.0)),
    _number("adam_eps", 1e-5, "epsilon of Adam", **_POSITIVE),
    _number("adam_beta1", 0.9, "decay of Adam's first moment", low=0.0, high=0.99999,
            search=_uniform(0.8, 0.99)),
    _number("adam_beta2", 0.999, "decay of Adam's second moment", low=0.0, high=0.9999999,
            search=_uniform(0.9, 0.999)),
    _number("weight_decay", 0.0, "decoupled weight decay (adam_l2: coupled); above 0 needs an "
            "optimiser but adam", low=0.0),
    _number("sgd_momentum", 0.9, "momentum of optimiser sgd", low=0.0, high=0.99999,
            search=_uniform(0.0, 0.99)),
    _number("muon_momentum", 0.95, "momentum of the matrices of optimiser muon", low=0.0,
            high=0.99999, search=_uniform(0.8, 0.99)),
    _switch("separate_vf_optimiser", False,
            "own clip, moments and schedule for all critic parameters"),
    _number("vf_learning_rate", None, "the critic's learning rate; unset: learning_rate / 3",
            **_POSITIVE, off=True),
    _schedule("vf_lr_schedule", None, "the critic's schedule" + _INHERITED, off=True),
    _number("vf_lr_end_fraction", None, "the critic's final fraction" + _INHERITED, **_FRACTION,
            off=True),
    _number("vf_warmup_fraction", None, "the critic's warm-up share" + _INHERITED, low=0.0,
            high=0.99, off=True),
    _number("vf_warmup_multiplier", None, "the critic's peak factor" + _INHERITED, **_POSITIVE,
            off=True),
    _number("vf_warmup_start_fraction", None, "the critic's first fraction" + _INHERITED,
            **_FRACTION, off=True),
    _number("vf_schedule_multiplier", None, "the critic's horizon factor" + _INHERITED,
            **_POSITIVE, off=True),
    _number("vf_adam_eps", None, "the critic's Adam epsilon" + _INHERITED, **_POSITIVE, off=True),
    _number("vf_adam_beta1", None, "the critic's first decay" + _INHERITED, low=0.0, high=0.99999,
            off=True),
    _number("vf_adam_beta2", None, "the critic's second decay" + _INHERITED, low=0.0,
            high=0.9999999, off=True),
    _number("vf_max_grad_norm", "same", "the critic's gradient clip; `same` is the policy's",
            **_POSITIVE, off=True, choices=("same",)),
    _number("vf_weight_decay", "same", "the critic's weight decay; `same` is the policy's",
            low=0.0, choices=("same",)),
    _number("shadow_weight", 1.0,
            "part of the shadow's advantage that is subtracted, where `env.shadow` names one",
            **_FRACTION, search={"values": [0.0, 1.0]}),
    _number("reward_scale", 1.0, "factor on the reward that the learner sees", **_POSITIVE,
            search=_log(0.1, 10.0)),
    _number("reward_clip", None,
            "clip of the learner's reward; unset: 10 with normalise_rewards, else off",
            **_POSITIVE, off=True),
    _switch("reward_centering", False, "subtract a running average from the learner's reward",
            search={"values": [True, False]}),
    _number("average_reward_initial", 0.0, "first average reward (reward_centering)"),
    _number("average_reward_step", 1e-3, "step of the average reward, once a rollout",
            **{**_POSITIVE, "high": 1.0}, search=_log(1e-4, 1e-1)),
    _switch("normalise_observations", False, "by running mean and variance, frozen in evaluation",
            search={"values": [True, False]}),
    _number("observation_clip", 10.0, "clip of normalised observations", **_POSITIVE, off=True),
    _switch("normalise_rewards", True, "by the running deviation of the discounted return",
            search={"values": [True, False]}),
    _switch("raw_reward_deviation", False,
            "normalise_rewards divides by the deviation of rewards, not of returns",
            search={"values": [True, False]}),
    _switch("normalise_advantages", True, "to mean 0 and deviation 1 in every minibatch"),
    _number("logr_clip", 10.0, "clip of the log probability ratio", **_POSITIVE, off=True),
    _number("adv_clip", 10.0, "clip of normalised advantages", **_POSITIVE, off=True),
    _number("target_kl", None, "skip the rest of an update once the KL exceeds 1.5 times this",
            **_POSITIVE, off=True, search=_log(0.005, 0.05)),
    _number("priority_alpha", 0.0, "exponent of sampling rows by |A|; 0 takes each once",
            low=0.0,
            search=_uniform(0.0, 1.0)),
    _number("priority_beta0", 1.0, "first exponent of its importance weights", **_FRACTION,
            search=_uniform(0.0, 1.0)),
    _switch("anneal_priority_beta", True, "that exponent rises to 1 over the run"),
    _number("rho_clip", None, "V-trace: largest weight of an error; on with c_clip", **_POSITIVE,
            off=True,
            search=_uniform(0.5, 2.0)),
    _number("c_clip", None, "V-trace: largest weight of what follows; on with rho_clip",
            **_POSITIVE, off=True,
            search=_uniform(0.5, 2.0)),
    _number("log_std_init", -0.5, "first log standard deviation of Gaussian policies", low=-20.0,
            high=2.0),
    _number("log_std_min", -20.0, "smallest log standard deviation", low=-20.0, high=2.0),
    _number("log_std_max", 2.0, "largest log standard deviation", low=-20.0, high=5.0),
    Knob("update_epochs", "int", 4, True, low=1, high=1000, meaning="passes over each rollout",
         search={"min": 1, "max": 20, "distribution": "log_int_uniform"}),
    _switch("action_masking", True, "invalid actions get probability 0, where there is a mask"),
    _switch("off_policy_masking", False,
            "ratio of the unmasked policy to the masked one that acted",
            search={"values": [True, False]}),
    Knob("masking_gate_min_actions", "int", 2, True, low=1, high=2**24,
         meaning="valid actions a row needs to teach the policy (masking_gating)"),
    _switch("masking_gating", True,
            "rows with too few valid actions do not teach the policy, with none not the value",
            search={"values": [True, False]}),
    _switch("masking_damping", True, "rows weigh min(1, valid mass / valid_mass_target)",
            search={"values": [True, False]}),
    _number("valid_mass_target", 0.05, "valid mass from which rows weigh 1 (masking_damping)",
            **{**_POSITIVE, "high": 1.0},
            search=_log(0.02, 0.1)),
    _number("valid_mass_coef", 0.0, "weight of the loss -log(valid mass)", low=0.0,
            search=_log(2e-4, 0.1, zero=0.2)),
    _schedule("valid_mass_schedule", "constant", "how valid_mass_coef changes over the run"),
    _number("valid_mass_end_fraction", 10.0, "final valid_mass_coef over the initial", low=0.0),
    _number("valid_mass_schedule_multiplier", 1.0, "horizon of the schedule over the run",
            **_POSITIVE),
    _switch("schedule_on_gradient_steps", False,
            "schedules follow gradient steps taken, not updates done"),
)  # fmt: skip

_FLAT = ("mlp", "lstm", "gru")
_RECTIFIED = ("cnn", "gnn", "transformer")


def _of(network: str, name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    """Return a knob of one network."""
    networks = rest.pop("networks", (network,))
    bounds = {"low": 1, "high": 16384} if type_ == "int" else {}
    return _static(name, type_, default, meaning, networks=networks, **{**bounds, **rest})


def _gnn(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _of("gnn", f"gnn_{name}", type_, default, meaning, **rest)


def _transformer(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _of("transformer", f"transformer_{name}", type_, default, meaning, **rest)


_LAYERS = {"low": 0, "high": 64}
_RATE = {"low": 0.0, "high": 0.99}
_POOLINGS = ("mean", "sum", "min_mean_max", "attention")

_NETWORK_KNOBS = (
    _of("cnn", "cnn_channels", "widths", None,
        "channels of each convolution; unset: 32, 64, 64, or 16 for images below 36 pixels",
        off=True, search={"values": [[16], [16, 32]]}),
    _of("cnn", "cnn_kernels", "widths", None,
        "pixels of each kernel's side; unset: 8, 4, 3, or 3 for small images", off=True),
    _of("cnn", "cnn_strides", "widths", None,
        "pixels of each stride; unset: 4, 2, 1, or 1 for small images", off=True),
    _of("cnn", "cnn_dense", "widths", None,
        "widths of the dense layers behind; unset: 512, or 128 for small images", off=True),
    _of("recurrent", "recurrent_size", "int", 64, "units of the cell behind the hidden layers",
        networks=("lstm", "gru"),
        search={"values": [32, 64, 128]}),
    _of("gnn", "link_critic_sees", "choice", "slots",
        "what a separate critic sees of links: every slot, or the shares in use and no request",
        choices=("slots", "shares"), networks=("gnn", "transformer"),
        search={"values": ["slots", "shares"]}),
    _gnn("message_passing_steps", "int", 3, "rounds of messages", high=64,
         search={"values": [2, 3, 4]}),
    _gnn("edge_embedding_size", "int", 128, "width of what an edge carries"),
    _gnn("node_embedding_size", "int", 16, "width of what a node carries"),
    _gnn("global_embedding_size", "int", 8, "width of what the graph carries"),
    _gnn("edge_mlp_layers", "int", 2, "hidden layers of the edge update", **_LAYERS),
    _gnn("node_mlp_layers", "int", 2, "hidden layers of the node update", **_LAYERS),
    _gnn("global_mlp_layers", "int", 1, "hidden layers of the graph update", **_LAYERS),
    _gnn("edge_mlp_latent", "int", 128, "their width, for edges"),
    _gnn("node_mlp_latent", "int", 128, "their width, for nodes"),
    _gnn("global_mlp_latent", "int", 16, "their width, for the graph"),
    _gnn("attn_mlp_layers", "int", 1, "hidden layers of the attention on edges; 0 is without",
         **_LAYERS),
    _gnn("attn_mlp_latent", "int", 64, "their width, for the attention"),
    _gnn("num_spectral_features", "int", 8, "Laplacian coordinates of a node", low=0, high=8),
    _gnn("layer_norm", "bool", True, "layer normalisation after each round of messages"),
    _gnn("mlp_layer_norm", "bool", False, "layer normalisation inside its MLPs"),
    _gnn("normalise_by_link_length", "bool", False,
         "weigh links by their share of the path's length"),
    _gnn("node_features", "bool", True, "show the nodes' features; off shows a zero"),
    _transformer("layers", "int", 1, "blocks", high=64,
                 search={"values": [1, 2]}),
    _transformer("heads", "int", 4, "attention heads", high=256, search={"values": [4, 8]}),
    _transformer("embedding_size", "int", 128, "width of a token", search={"values": [64, 128]}),
    _transformer("intermediate_size", "int", 256, "hidden width of the feed-forward half"),
    _transformer("obs_type", "choice", "departure",
                 "what link tokens show of a slot, where `observation` is left out",
                 choices=("departure", "occupancy", "capacity"),
                 search={"values": ["departure", "occupancy"]}),
    _transformer("wire_features", "int", 8, "coordinates that the rotary encoding turns by",
                 low=0, high=8),
    _transformer("actor_mlp_width", "int", 128, "hidden width of the actor's head"),
    _transformer("actor_mlp_depth", "int", 1, "hidden layers of the actor's head", **_LAYERS),
    _transformer("critic_mlp_width", "int", 128, "hidden width of the critic's head"),
    _transformer("critic_mlp_depth", "int", 2, "hidden layers of the critic's head", **_LAYERS),
    _transformer("actor_pooling", "choice", "mean", "of the tokens along a candidate path",
                 choices=_POOLINGS, search={"values": ["mean", "sum"]}),
    _transformer("critic_pooling", "choice", "mean", "of all tokens", choices=_POOLINGS),
    _transformer("share_layers", "bool", False, "actor and critic share the blocks, as with "
                 "shared_encoder"),
    _transformer("dropout", "float", 0.1, "rate behind each half of a block, if dropout is on",
                 **_RATE),
    _transformer("attention_dropout", "float", 0.1, "rate on attention weights, if dropout is on",
                 **_RATE),
    _transformer("enable_dropout", "bool", False, "drop in training, the same in both halves"),
)  # fmt: skip

_STATIC = (
    _static("num_envs", "int", 8, "environments a lane steps side by side", low=1, high=4096,
            search={"values": [4, 8, 16, 32]}),
    _static("rollout_length", "int", 128, "env steps per environment between updates", low=2,
            high=65536, search={"values": [32, 64, 128, 256]}),
    _static("num_minibatches", "int", 4, "gradient steps an epoch", low=1, high=65536,
            search={"values": [1, 2, 4, 8]}),
    _static("minibatch_size", "int", None, "samples a gradient step, instead of num_minibatches",
            low=1, high=2**24, off=True),
    _static("network", "choice", "mlp", "kind of network, or one that user code registers",
            choices=("mlp", "cnn", "gnn", "transformer", "lstm", "gru"),
            search={"values": ["mlp", "gnn", "transformer"]}),
    _static("history", "int", 1, "observations stacked; cleared where an episode ends", low=1,
            high=1024, search={"values": [1, 4]}),
    _static("hidden_sizes", "widths", (64, 64), "widths of the hidden layers", networks=_FLAT,
            search={"values": [[64, 64], [128, 128], [256, 256]]}),
    _static("num_layers", "int", None, "with hidden_size: instead of hidden_sizes", low=1,
            high=64, off=True),
    _static("hidden_size", "int", None, "width of each of num_layers hidden layers", low=1,
            high=16384, off=True),
    _static("activation", "choice", "tanh",
            "non-linearity of the hidden layers; relu for cnn, gnn and transformer if unset",
            choices=("tanh", "relu", "elu", "gelu", "leaky_relu", "silu"),
            search={"values": ["tanh", "relu", "silu"]}),
    _static("layer_norm", "bool", False, "layer normalisation before each non-linearity",
            search={"values": [True, False]}),
    _static("shared_encoder", "bool", False, "actor and critic share the hidden layers",
            search={"values": [True, False]}),
    *_NETWORK_KNOBS,
    _static("initialisation", "choice", "orthogonal", "of weight matrices",
            choices=("orthogonal", "lecun")),
    _static("hidden_gain", "float", math.sqrt(2.0), "gain of the hidden layers", **_POSITIVE),
    _static("policy_gain", "float", 0.01, "gain of the policy head", **_POSITIVE),
    _static("value_gain", "float", 1.0, "gain of the value head", **_POSITIVE),
    _static("optimiser", "choice", "adam", "optimiser, or one that user code registers; muon "
            "takes matrices, adam the rest; adam_l2 adds weight_decay to the gradient",
            choices=("adam", "adamw", "adam_l2", "sgd", "muon"),
            search={"values": ["adam", "muon"]}),
    _static("gradient_accumulation", "int", "auto",
            "parts that a minibatch's gradient is summed from; auto: 1, but on CPUs as many as "
            "keep a part of a gnn or transformer in cache", low=1, high=65536, choices=("auto",)),
    _static("accumulate_minibatches", "int", 1,
            "minibatches of an epoch whose mean gradient makes one step of the optimiser", low=1,
            high=65536, search={"values": [1, 2, 4]}),
    _static("priority_over", "choice", None,
            "what priority_alpha draws; unset: segments where minibatches are whole segments",
            choices=("steps", "segments"), off=True),
    _static("distribution", "choice", None, "action distribution, or one that user code "
            "registers; unset: from the action space",
            choices=("categorical", "gaussian", "tanh_gaussian", "beta", "multi_discrete"),
            off=True, search={"values": ["gaussian", "tanh_gaussian", "beta"]}),
    _static("action_low", "float", None, "smallest action, of every component; unset: the space's",
            off=True),
    _static("action_high", "float", None, "largest action, likewise; tanh_gaussian and beta fill "
            "the range, gaussian is clipped to it", off=True),
    _static("dtype", "choice", "float32",
            "of the networks' arithmetic; parameters and statistics stay float32",
            choices=("float32", "bfloat16"), search={"values": ["float32", "bfloat16"]}),
    _static("matmul_precision", "choice", "float32", "of matrix products on accelerators",
            choices=("float32", "tf32", "bfloat16")),
)  # fmt: skip

KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in _TRACED + _STATIC}


SCHEDULE_KNOBS = tuple(name for name, knob in KNOBS.items() if knob.choices == SCHEDULES)
"""Knobs that say how another one changes over the run."""
REGISTRABLE = ("network", "optimiser", "distribution", *SCHEDULE_KNOBS)
"""Choices that user code can add to."""
_REGISTERED: dict[str, list[str]] = {name: [] for name in REGISTRABLE}


DEFAULTS_OF_OLD: Mapping[str, Any] = {"learning_rate": 3e-4, "normalise_rewards": False}
"""Knobs whose defaults have changed, with what they were in studies whose record says nothing."""


def allow_choice(name: str, choice: str) -> None:
    """Make a word that user code registers legal for a knob."""
    if choice not in known_choices(name):
        _REGISTERED[name].append(choice)


def known_choices(name: str) -> tuple[str, ...]:
    """Return the legal words of a knob, registered ones last."""
    return (*KNOBS[name].choices, *_REGISTERED.get(name, ()))


def matters(name: str, network: str) -> bool:
    """Return whether a knob can matter to a network; to a registered one every knob may.

    >>> matters("gnn_edge_mlp_layers", "mlp"), matters("learning_rate", "mlp")
    (False, True)
    """
    knob = KNOBS[name]
    own = network not in KNOBS["network"].choices
    return own or not knob.networks or network in knob.networks


def canonical_name(name: str) -> str | None:
    """Return our name of a knob known here or elsewhere, or None.

    >>> canonical_name("n_steps"), canonical_name("normalize_advantages"), canonical_name("x")
    ('rollout_length', 'normalise_advantages', None)
    """
    if name in KNOBS:
        return name
    british = _british(name)
    if british in KNOBS:
        return british
    row = _row_of(name)
    if row is not None:
        return row.target
    plain = _british(name.lower().replace("-", "_"))
    return plain if plain in KNOBS else None


def _row_of(name: str) -> Row | None:
    """Return the row of a name that is a knob's elsewhere."""
    rows = (*hints(name), *hints(_american(name)), *hints(_british(name)))
    return next((row for row in rows if row.target in KNOBS), None)


def _british(name: str) -> str:
    for american, ours in _AMERICAN.items():
        name = name.replace(american, ours)
    return name


def _american(name: str) -> str:
    for american, ours in _AMERICAN.items():
        name = name.replace(ours, american)
    return name


_AMERICAN = {
    "normalize": "normalise",
    "optimizer": "optimiser",
    "initialization": "initialisation",
}


def check_name(name: str) -> str:
    """Return `name` if it is a knob; American spellings are accepted.

    Raises:
        ConfigError: with our name for it, or the nearest.
    """
    ours = canonical_name(name)
    if ours is not None and ours.replace("s", "z") == name.replace("s", "z"):
        return ours
    if ours is not None:
        row = _row_of(name)
        means = f" ({row.values.meaning})" if row is not None and row.values.meaning else ""
        raise ConfigError(f"unknown knob {name!r}; here it is called {ours!r}{means}")
    hint = hint_of(name) or f"{suggestion(name, KNOBS)} `hpo knobs` lists all of them"
    raise ConfigError(f"unknown knob {name!r};{hint}")


def hint_of(name: str) -> str:
    """Return what a name of another system is in a study, if it is no knob; nothing if unknown.

    >>> hint_of("num_seeds"), hint_of("learning_rates")
    (' in a study it is `seeds.per_config`', '')
    """
    for row in hints(name):
        if row.fate == "taken":
            where = f"`{row.target}`" if row.target not in KNOBS else f"the knob `{row.target}`"
            return f" in a study it is {where}"
        return f" it has no counterpart: {row.because}"
    return ""


def check_value(name: str, value: Any) -> Any:
    """Make a knob's value canonical: float, int, bool, str, tuple of int, or None for off.

    Raises:
        ConfigError: says what was given and what is allowed.
    """
    knob = KNOBS[name]
    if knob.off and (value is None or value is False or value == "off"):
        return None
    checked = _CHECKS[knob.type](knob, value)
    if checked is _ILLEGAL:
        hint = suggestion(value, known_choices(name)) if isinstance(value, str) else ""
        raise ConfigError(f"{name} is {value!r};{hint} allowed: {knob.allowed()}")
    return checked


_ILLEGAL = object()
_LEAST, _MOST = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127  # float32: smaller ones are flushed to 0


def _check_bool(knob: Knob, value: Any) -> Any:
    return value if isinstance(value, bool) else _ILLEGAL


def _check_choice(knob: Knob, value: Any) -> Any:
    return value if isinstance(value, str) and value in known_choices(knob.name) else _ILLEGAL


def _check_widths(knob: Knob, value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) > 64:
        return _ILLEGAL
    whole = all(isinstance(width, int) and not isinstance(width, bool) for width in value)
    return tuple(value) if whole and all(1 <= width <= 16384 for width in value) else _ILLEGAL


def _check_number(knob: Knob, value: Any) -> Any:
    if isinstance(value, str) and value in knob.choices:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return _ILLEGAL
    if value < knob.low or value > knob.high or (knob.low_open and value == knob.low):
        return _ILLEGAL
    if knob.type == "float" and value != 0 and not _LEAST <= abs(value) <= _MOST:
        raise ConfigError(
            f"{knob.name} is {value!r}, which is no number in float32; allowed: 0, if that is "
            f"legal, or a magnitude of {_LEAST:.4g} to {_MOST:.4g}"
        )
    if knob.type == "int":
        return int(value) if value == int(value) else _ILLEGAL
    return float(value)


_CHECKS = {
    "bool": _check_bool,
    "choice": _check_choice,
    "widths": _check_widths,
    "int": _check_number,
    "float": _check_number,
}


def complete(given: Mapping[str, Any], own_words: bool = False) -> dict[str, Any]:
    """Return a whole configuration: every knob, defaults and rules applied, `env.*` kept as given.

    Rules: `activation` unset follows `network`; `reward_clip` unset is 10 with
    `normalise_rewards`; unset `vf_*` follow the policy's (`vf_learning_rate` a third of it);
    `num_layers` with `hidden_size` give `hidden_sizes`;
    `minibatch_size` and `num_minibatches` follow from each other, a remainder being a smaller
    last minibatch, unless both are given with prioritised sampling. Completing a complete
    configuration changes nothing.

    Args:
        given: knob -> value.
        own_words: take any word where user code may register some, before it has run.

    Raises:
        ConfigError: an unknown knob, an illegal value, or values that contradict each other.
    """
    config = {name: knob.default for name, knob in KNOBS.items()}
    for name, value in given.items():
        if name.startswith("env."):
            config[name] = value
        else:
            name = check_name(name)
            own = own_words and name in REGISTRABLE and isinstance(value, str)
            config[name] = value if own else check_value(name, value)
    if config["normalise_rewards"] and "reward_clip" not in given:
        config["reward_clip"] = 10.0
    _fill_hidden_sizes(config, given)
    if config["network"] in _RECTIFIED and "activation" not in given:
        config["activation"] = "relu"
    _fill_critic(config)
    _fill_minibatches(config, given)
    _check_together(config)
    return config


def _fill_hidden_sizes(config: dict[str, Any], given: Mapping[str, Any]) -> None:
    layers, width = config["num_layers"], config["hidden_size"]
    if layers is None and width is None:
        return
    if layers is None or width is None:
        raise ConfigError("num_layers and hidden_size go together; give both, or hidden_sizes")
    if "hidden_sizes" in given and config["hidden_sizes"] != (width,) * layers:
        raise ConfigError("give hidden_sizes, or num_layers with hidden_size, not all three")
    config["hidden_sizes"] = (width,) * layers
    config["num_layers"] = config["hidden_size"] = None


def _fill_critic(config: dict[str, Any]) -> None:
    if config["vf_learning_rate"] is None:
        config["vf_learning_rate"] = config["learning_rate"] / 3.0
    for name, source in _CRITIC_SOURCE.items():
        if config[name] == KNOBS[name].default:
            config[name] = config[source]


_CRITIC_SOURCE = {
    "vf_lr_schedule": "lr_schedule",
    "vf_lr_end_fraction": "lr_end_fraction",
    "vf_warmup_fraction": "lr_warmup_fraction",
    "vf_warmup_multiplier": "lr_warmup_multiplier",
    "vf_warmup_start_fraction": "lr_warmup_start_fraction",
    "vf_schedule_multiplier": "lr_schedule_multiplier",
    "vf_adam_eps": "adam_eps",
    "vf_adam_beta1": "adam_beta1",
    "vf_adam_beta2": "adam_beta2",
    "vf_max_grad_norm": "max_grad_norm",
    "vf_weight_decay": "weight_decay",
}


def _check_together(config: dict[str, Any]) -> None:
    decays = config["weight_decay"] > 0 or (config["vf_weight_decay"] or 0) > 0
    if decays and config["optimiser"] == "adam":
        raise ConfigError(
            "weight_decay above 0 needs `optimiser: adamw`, or adam_l2 (which adds it to the "
            "gradient, as torch's Adam does), sgd or muon; adam does not decay"
        )
    if (config["rho_clip"] is None) != (config["c_clip"] is None):
        raise ConfigError("rho_clip and c_clip go together; give both for V-trace, or none")
    rows, parts = config["minibatch_size"], config["gradient_accumulation"]
    if parts != "auto" and parts > rows:
        raise ConfigError(
            f"gradient_accumulation is {parts}, but a minibatch has only {rows} rows; allowed: "
            f"at most {rows}"
        )
    many, count = config["accumulate_minibatches"], config["num_minibatches"]
    if many > count:
        raise ConfigError(
            f"accumulate_minibatches is {many}, but an epoch has only {count} minibatches "
            f"(num_minibatches); allowed: at most {count}"
        )
    if (config["gae_lambda_initial"] is None) != (config["gae_lambda_final"] is None):
        raise ConfigError("gae_lambda_initial and gae_lambda_final go together; give both or none")
    low, high = config["action_low"], config["action_high"]
    if low is not None and high is not None and low >= high:
        raise ConfigError(f"action_low ({low:g}) must lie below action_high ({high:g})")
    if config["log_std_min"] > config["log_std_max"]:
        raise ConfigError("log_std_min is above log_std_max")
    _check_networks(config)


def _check_networks(config: dict[str, Any]) -> None:
    network = config["network"]
    if network == "cnn":
        _check_convolutions(config)
    width, heads = config["transformer_embedding_size"], config["transformer_heads"]
    if network == "transformer" and width % (2 * heads):
        raise ConfigError(
            f"transformer_embedding_size is {width}, but {heads} heads of an even width need a "
            f"multiple of {2 * heads}; take {max(1, round(width / (2 * heads))) * 2 * heads}"
        )


def _check_convolutions(config: dict[str, Any]) -> None:
    lengths = {name: config[f"cnn_{name}"] for name in ("channels", "kernels", "strides")}
    given = {name: len(value) for name, value in lengths.items() if value is not None}
    if given and (len(given) < 3 or len(set(given.values())) > 1):
        raise ConfigError(
            "cnn_channels, cnn_kernels and cnn_strides go together, one number a convolution; "
            "give all three with equal lengths, or none"
        )


def _fill_minibatches(config: dict[str, Any], given: Mapping[str, Any]) -> None:
    samples = config["num_envs"] * config["rollout_length"]
    rows = config["minibatch_size"]
    drawn = config["priority_alpha"] > 0 or config["priority_over"] is not None
    if drawn and rows is not None and "num_minibatches" in given:
        return
    if rows is None:
        if config["num_minibatches"] > samples:
            raise ConfigError(
                f"num_minibatches is {config['num_minibatches']}, but a rollout has {samples} "
                "samples (num_envs x rollout_length)"
            )
        rows = math.ceil(samples / config["num_minibatches"])
    elif "num_minibatches" in given and config["num_minibatches"] != math.ceil(samples / rows):
        raise ConfigError(
            "give num_minibatches or minibatch_size, not both; together they need prioritised "
            "sampling (priority_alpha above 0, or priority_over)"
        )
    config["minibatch_size"] = min(rows, samples)
    config["num_minibatches"] = math.ceil(samples / rows)
