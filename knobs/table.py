"""The table of hyperparameters, and functions that query it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..files.plain_data import Range

KnobType = Literal["float", "int", "bool", "choice", "widths"]
SCHEDULES = ("constant", "linear", "cosine", "warmup_cosine")


@dataclass(frozen=True)
class Knob(Range):
    """One hyperparameter."""

    name: str
    type: KnobType  # `widths` is a list of positive integers
    default: Any  # None means off, or a rule given in `meaning`
    traced: bool  # whether it is a leaf of `Hypers` (may vary per lane) or a field of `Plan`
    # legal words: all of a `choice`, or those that a number also accepts
    choices: tuple[str, ...] = ()
    off: bool = False  # whether `null` and `off` are legal
    meaning: str = ""  # one line, with unit if there is one
    search: Mapping[str, Any] | None = None  # a suggested distribution, in study-file form
    networks: tuple[str, ...] = ()  # the built-in networks that use it; () for all


def number(name: str, default: Any, meaning: str, **rest: Any) -> Knob:
    return Knob(name, "float", default, True, meaning=meaning, **rest)


def switch(name: str, default: bool, meaning: str, **rest: Any) -> Knob:
    return Knob(name, "bool", default, True, meaning=meaning, **rest)


def schedule(name: str, default: str | None, meaning: str, **rest: Any) -> Knob:
    return Knob(name, "choice", default, True, choices=SCHEDULES, meaning=meaning, **rest)


def static(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return Knob(name, type_, default, False, meaning=meaning, **rest)


def log(low: float, high: float, **rest: Any) -> dict[str, Any]:
    return {"min": low, "max": high, "distribution": "log_uniform", **rest}


def uniform(low: float, high: float) -> dict[str, Any]:
    return {"min": low, "max": high, "distribution": "uniform"}


POSITIVE = {"low": 0.0, "low_open": True}
FRACTION = {"low": 0.0, "high": 1.0}


RECURRENT_NETWORKS = ("lstm", "gru")  # networks with a memory; they learn from whole segments


def _network_knob(
    network: str, name: str, type_: KnobType, default: Any, meaning: str, **rest: Any
) -> Knob:
    given = {"networks": (network,), **rest}
    if type_ == "int":
        given = {"low": 1, "high": 16384, **given}
    return static(name, type_, default, meaning, **given)


def _gnn(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _network_knob("gnn", f"gnn_{name}", type_, default, meaning, **rest)


def _transformer(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _network_knob("transformer", f"transformer_{name}", type_, default, meaning, **rest)


_LAYERS = {"low": 0, "high": 64}
_RATE = {"low": 0.0, "high": 0.99}
_POOLINGS = ("mean", "sum", "min_mean_max", "attention")

NETWORK_KNOBS = (
    _network_knob(
        "cnn",
        "cnn_channels",
        "widths",
        None,
        "channels of each convolution; unset: 32, 64, 64, or 16 for images below 36 pixels",
        off=True,
        search={"values": [[16], [16, 32]]},
    ),
    _network_knob(
        "cnn",
        "cnn_kernels",
        "widths",
        None,
        "side length of each kernel in pixels; unset: 8, 4, 3, or 3 for small images",
        off=True,
    ),
    _network_knob(
        "cnn",
        "cnn_strides",
        "widths",
        None,
        "stride of each convolution in pixels; unset: 4, 2, 1, or 1 for small images",
        off=True,
    ),
    _network_knob(
        "cnn",
        "cnn_dense",
        "widths",
        None,
        "widths of the dense layers after the convolutions; unset: 512, or 128 for small images",
        off=True,
    ),
    _network_knob(
        "cnn",
        "cnn_residual_blocks",
        "int",
        0,
        "residual blocks after each convolution and its max pooling, as in IMPALA (2 "
        "blocks; unset sizes are then 16, 32, 32 channels and 256); 0: none",
        low=0,
        high=16,
        search={"values": [0, 2]},
    ),
    _network_knob(
        "recurrent",
        "recurrent_size",
        "int",
        64,
        "units of the recurrent cell after the hidden layers",
        networks=RECURRENT_NETWORKS,
        search={"values": [32, 64, 128]},
    ),
    _network_knob(
        "path_mlp",
        "path_mlp_begins",
        "choice",
        "path",
        "initial preference: the first path with room (ksp_ff), or the lowest slot (ff_ksp)",
        choices=("path", "slot"),
        search={"values": ["path", "slot"]},
    ),
    _network_knob(
        "gnn",
        "link_critic_sees",
        "choice",
        "slots",
        (
            "link features of a separate critic: every slot, or the shares in use without "
            "the request"
        ),
        choices=("slots", "shares"),
        networks=("gnn", "transformer"),
        search={"values": ["slots", "shares"]},
    ),
    _gnn(
        "message_passing_steps",
        "int",
        3,
        "rounds of message passing",
        high=64,
        search={"values": [2, 3, 4]},
    ),
    _gnn("edge_embedding_size", "int", 128, "width of the edge embedding"),
    _gnn("node_embedding_size", "int", 16, "width of the node embedding"),
    _gnn("global_embedding_size", "int", 8, "width of the graph embedding"),
    _gnn("edge_mlp_layers", "int", 2, "hidden layers of the edge update", **_LAYERS),
    _gnn("node_mlp_layers", "int", 2, "hidden layers of the node update", **_LAYERS),
    _gnn("global_mlp_layers", "int", 1, "hidden layers of the graph update", **_LAYERS),
    _gnn("edge_mlp_latent", "int", 128, "width of the edge update's hidden layers"),
    _gnn("node_mlp_latent", "int", 128, "width of the node update's hidden layers"),
    _gnn("global_mlp_latent", "int", 16, "width of the graph update's hidden layers"),
    _gnn(
        "attn_mlp_layers",
        "int",
        1,
        "hidden layers of the edge attention; 0: no attention",
        **_LAYERS,
    ),
    _gnn("attn_mlp_latent", "int", 64, "width of the edge attention's hidden layers"),
    _gnn(
        "num_spectral_features",
        "int",
        8,
        "number of Laplacian coordinates per node",
        low=0,
        high=8,
    ),
    _gnn("layer_norm", "bool", True, "layer normalisation after each round of message passing"),
    _gnn("mlp_layer_norm", "bool", False, "layer normalisation inside the MLPs"),
    _gnn(
        "normalise_by_link_length",
        "bool",
        False,
        "weight links by their share of the path's length",
    ),
    _gnn("node_features", "bool", True, "include node features; off: zeros instead"),
    _transformer("layers", "int", 1, "number of blocks", high=64, search={"values": [1, 2]}),
    _transformer("heads", "int", 4, "attention heads", high=256, search={"values": [4, 8]}),
    _transformer("embedding_size", "int", 128, "width of a token", search={"values": [64, 128]}),
    _transformer("intermediate_size", "int", 256, "hidden width of the feed-forward layers"),
    _transformer(
        "obs_type",
        "choice",
        "departure",
        "slot features in link tokens, if `observation` is omitted",
        choices=("departure", "occupancy", "capacity"),
        search={"values": ["departure", "occupancy"]},
    ),
    _transformer(
        "wire_features", "int", 8, "number of coordinates in the rotary encoding", low=0, high=8
    ),
    _transformer("actor_mlp_width", "int", 128, "hidden width of the actor's head"),
    _transformer("actor_mlp_depth", "int", 1, "hidden layers of the actor's head", **_LAYERS),
    _transformer("critic_mlp_width", "int", 128, "hidden width of the critic's head"),
    _transformer("critic_mlp_depth", "int", 2, "hidden layers of the critic's head", **_LAYERS),
    _transformer(
        "actor_pooling",
        "choice",
        "mean",
        "pooling of the tokens along a candidate path",
        choices=_POOLINGS,
        search={"values": ["mean", "sum"]},
    ),
    _transformer("critic_pooling", "choice", "mean", "pooling of all tokens", choices=_POOLINGS),
    _transformer(
        "share_layers", "bool", False, "actor and critic share the blocks, as with shared_encoder"
    ),
    _transformer(
        "dropout",
        "float",
        0.1,
        "dropout rate after attention and feed-forward layers, if dropout is on",
        **_RATE,
    ),
    _transformer(
        "attention_dropout",
        "float",
        0.1,
        "dropout rate of attention weights, if dropout is on",
        **_RATE,
    ),
    _transformer(
        "enable_dropout",
        "bool",
        False,
        "use dropout in training, with the same masks in acting and learning",
    ),
)


_FLAT = ("mlp", "path_mlp", "lstm", "gru")

STATIC = (
    static(
        "num_envs",
        "int",
        8,
        "parallel environments per lane",
        low=1,
        high=4096,
        search={"values": [4, 8, 16, 32]},
    ),
    static(
        "rollout_length",
        "int",
        128,
        "env steps per environment between updates",
        low=2,
        high=65536,
        search={"values": [32, 64, 128, 256]},
    ),
    static(
        "num_minibatches",
        "int",
        4,
        "gradient steps per epoch",
        low=1,
        high=65536,
        search={"values": [1, 2, 4, 8]},
    ),
    static(
        "minibatch_size",
        "int",
        None,
        "samples per gradient step, instead of num_minibatches",
        low=1,
        high=2**24,
        off=True,
    ),
    static(
        "network",
        "choice",
        "mlp",
        "kind of network, or one registered by user code",
        choices=("mlp", "cnn", "gnn", "transformer", "path_mlp", "lstm", "gru"),
        search={"values": ["mlp", "gnn", "transformer"]},
    ),
    static(
        "history",
        "int",
        1,
        "number of stacked observations; cleared when an episode ends",
        low=1,
        high=1024,
        search={"values": [1, 4]},
    ),
    static(
        "hidden_sizes",
        "widths",
        (64, 64),
        "widths of the hidden layers",
        networks=_FLAT,
        search={"values": [[64, 64], [128, 128], [256, 256]]},
    ),
    static(
        "num_layers",
        "int",
        None,
        "number of hidden layers; with hidden_size, replaces hidden_sizes",
        low=1,
        high=64,
        off=True,
    ),
    static(
        "hidden_size",
        "int",
        None,
        "width of each hidden layer, with num_layers",
        low=1,
        high=16384,
        off=True,
    ),
    static(
        "activation",
        "choice",
        "tanh",
        "non-linearity of the hidden layers; unset: relu for cnn, gnn, transformer, path_mlp",
        choices=("tanh", "relu", "elu", "gelu", "leaky_relu", "silu"),
        search={"values": ["tanh", "relu", "silu"]},
    ),
    static(
        "layer_norm",
        "bool",
        False,
        "layer normalisation before each non-linearity",
        search={"values": [True, False]},
    ),
    static(
        "shared_encoder",
        "bool",
        False,
        "actor and critic share the hidden layers",
        search={"values": [True, False]},
    ),
    *NETWORK_KNOBS,
    static(
        "initialisation",
        "choice",
        "orthogonal",
        "initialisation of weight matrices",
        choices=("orthogonal", "lecun"),
    ),
    static("hidden_gain", "float", math.sqrt(2.0), "gain of the hidden layers", **POSITIVE),
    static("policy_gain", "float", 0.01, "gain of the policy head", **POSITIVE),
    static("value_gain", "float", 1.0, "gain of the value head", **POSITIVE),
    static(
        "optimiser",
        "choice",
        "adam",
        "optimiser, or one registered by user code; muon updates matrices, adam the rest; "
        "adam_l2 adds weight_decay to the gradient",
        choices=("adam", "adamw", "adam_l2", "sgd", "muon"),
        search={"values": ["adam", "muon"]},
    ),
    static(
        "gradient_accumulation",
        "int",
        "auto",
        (
            "number of parts of a minibatch, whose gradients are summed; auto: 1, but for a gnn "
            "or transformer on a CPU as many as needed for a part to fit into the cache"
        ),
        low=1,
        high=65536,
        choices=("auto",),
    ),
    static(
        "accumulate_minibatches",
        "int",
        1,
        "number of minibatches whose mean gradient makes one optimiser step",
        low=1,
        high=65536,
        search={"values": [1, 2, 4]},
    ),
    static(
        "priority_over",
        "choice",
        None,
        "unit of prioritised sampling; unset: segments if minibatches are whole segments",
        choices=("steps", "segments"),
        off=True,
    ),
    static(
        "distribution",
        "choice",
        None,
        "action distribution, or one registered by user code; unset: from the action space",
        choices=("categorical", "gaussian", "tanh_gaussian", "beta", "multi_discrete"),
        off=True,
        search={"values": ["gaussian", "tanh_gaussian", "beta"]},
    ),
    static(
        "action_low",
        "float",
        None,
        "smallest action, for every component; unset: that of the action space",
        off=True,
    ),
    static(
        "action_high",
        "float",
        None,
        (
            "largest action, for every component; tanh_gaussian and beta fill the range, "
            "gaussian is clipped to it"
        ),
        off=True,
    ),
    static(
        "dtype",
        "choice",
        "float32",
        "precision of the networks' arithmetic; parameters and statistics stay float32",
        choices=("float32", "bfloat16"),
        search={"values": ["float32", "bfloat16"]},
    ),
    static(
        "matmul_precision",
        "choice",
        "float32",
        "precision of matrix products on accelerators",
        choices=("float32", "tf32", "bfloat16"),
    ),
)


def _critic_knob(name: str, meaning: str, **rest: Any) -> Knob:
    meaning = f"the critic's {meaning}; unset follows the policy's"
    return number(name, None, meaning, off=True, **rest)


TRACED = (
    number(
        "learning_rate", 1e-3, "step size of the optimiser", **POSITIVE, search=log(1e-5, 1e-2)
    ),
    schedule(
        "lr_schedule",
        "constant",
        "how the learning rate changes over the run",
        search={"values": list(SCHEDULES)},
    ),
    number("lr_end_fraction", 0.1, "final learning rate as a fraction of the initial", **FRACTION),
    number(
        "lr_warmup_fraction",
        0.2,
        "share of the horizon used for warm-up (warmup_cosine)",
        low=0.0,
        high=0.99,
    ),
    number(
        "lr_warmup_multiplier",
        1.0,
        "peak learning rate as a multiple of learning_rate (warmup_cosine)",
        **POSITIVE,
    ),
    number(
        "lr_warmup_start_fraction",
        0.0,
        "initial learning rate as a fraction of learning_rate",
        **FRACTION,
    ),
    number(
        "lr_schedule_multiplier",
        1.0,
        "schedule horizon as a fraction of the run",
        **POSITIVE,
    ),
    number("lr_decay_exponent", 1.0, "exponent of the cosine", **POSITIVE),
    number(
        "gamma",
        0.99,
        "discount per env step",
        **FRACTION,
        search={"min": 0.9, "max": 0.9999, "distribution": "one_minus_log"},
    ),
    number(
        "gae_lambda",
        0.95,
        "lambda of generalised advantage estimation",
        **FRACTION,
        search=uniform(0.8, 1.0),
    ),
    number(
        "vf_gae_lambda",
        None,
        "lambda of the critic's targets; off: gae_lambda",
        low=0.0,
        low_open=True,
        high=1.0,
        off=True,
        search=uniform(0.9, 1.0),
    ),
    number(
        "gae_lambda_initial",
        None,
        "initial lambda; anneals to gae_lambda_final if that is set",
        **FRACTION,
        off=True,
    ),
    number("gae_lambda_final", None, "lambda at the end of annealing", **FRACTION, off=True),
    number(
        "gae_lambda_schedule_multiplier",
        1.0,
        "annealing horizon as a fraction of the run",
        **POSITIVE,
    ),
    number("clip_eps", 0.2, "clip of the probability ratio", **POSITIVE, search=log(0.02, 0.4)),
    schedule("clip_eps_schedule", "constant", "how clip_eps changes over the run"),
    number(
        "clip_eps_end_fraction", 0.0, "final clip_eps as a fraction of the initial", **FRACTION
    ),
    number(
        "value_clip_eps",
        None,
        "clip of the value's change; `same` follows clip_eps",
        **POSITIVE,
        off=True,
        choices=("same",),
    ),
    number(
        "vf_coef", 0.5, "weight of the value loss 0.5 (V - R)^2", low=0.0, search=log(0.05, 5.0)
    ),
    number(
        "ent_coef", 0.0, "weight of the entropy bonus", low=0.0, search=log(1e-4, 0.1, zero=0.2)
    ),
    schedule("ent_schedule", "constant", "how ent_coef changes over the run"),
    number("ent_end_fraction", 0.1, "final ent_coef as a fraction of the initial", low=0.0),
    number(
        "ent_schedule_multiplier", 1.0, "schedule horizon as a fraction of the run", **POSITIVE
    ),
    number(
        "max_grad_norm",
        0.5,
        "clip of the global gradient norm",
        **POSITIVE,
        off=True,
        search=log(0.1, 5.0),
    ),
    number("adam_eps", 1e-5, "epsilon of Adam", **POSITIVE),
    number(
        "adam_beta1",
        0.9,
        "decay of Adam's first moment",
        low=0.0,
        high=0.99999,
        search=uniform(0.8, 0.99),
    ),
    number(
        "adam_beta2",
        0.999,
        "decay of Adam's second moment",
        low=0.0,
        high=0.9999999,
        search=uniform(0.9, 0.999),
    ),
    number(
        "weight_decay",
        0.0,
        "decoupled weight decay (adam_l2: coupled); above 0 needs an optimiser other than adam",
        low=0.0,
    ),
    number(
        "sgd_momentum",
        0.9,
        "momentum of optimiser sgd",
        low=0.0,
        high=0.99999,
        search=uniform(0.0, 0.99),
    ),
    number(
        "muon_momentum",
        0.95,
        "momentum of optimiser muon, for matrices",
        low=0.0,
        high=0.99999,
        search=uniform(0.8, 0.99),
    ),
    switch(
        "separate_vf_optimiser",
        False,
        "separate clip, moments and schedule for all critic parameters",
    ),
    number(
        "vf_learning_rate",
        None,
        "the critic's learning rate; unset: learning_rate / 3",
        **POSITIVE,
        off=True,
    ),
    schedule(
        "vf_lr_schedule", None, "the critic's schedule; unset follows the policy's", off=True
    ),
    _critic_knob("vf_lr_end_fraction", "final learning-rate fraction", **FRACTION),
    _critic_knob("vf_warmup_fraction", "warm-up share", low=0.0, high=0.99),
    _critic_knob("vf_warmup_multiplier", "peak learning-rate factor", **POSITIVE),
    _critic_knob("vf_warmup_start_fraction", "initial learning-rate fraction", **FRACTION),
    _critic_knob("vf_schedule_multiplier", "schedule-horizon factor", **POSITIVE),
    _critic_knob("vf_adam_eps", "Adam epsilon", **POSITIVE),
    _critic_knob("vf_adam_beta1", "Adam beta1", low=0.0, high=0.99999),
    _critic_knob("vf_adam_beta2", "Adam beta2", low=0.0, high=0.9999999),
    number(
        "vf_max_grad_norm",
        "same",
        "the critic's gradient clip; `same` is the policy's",
        **POSITIVE,
        off=True,
        choices=("same",),
    ),
    number(
        "vf_weight_decay",
        "same",
        "the critic's weight decay; `same` is the policy's",
        low=0.0,
        choices=("same",),
    ),
    number(
        "shadow_weight",
        1.0,
        "share of the shadow's advantage that is subtracted, if `env.shadow` is set",
        **FRACTION,
        search={"values": [0.0, 1.0]},
    ),
    number(
        "reward_scale",
        1.0,
        "factor on the reward that the learner sees",
        **POSITIVE,
        search=log(0.1, 10.0),
    ),
    number(
        "reward_clip",
        None,
        "clip of the learner's reward; unset: 10 with normalise_rewards, else off",
        **POSITIVE,
        off=True,
    ),
    switch(
        "reward_centering",
        False,
        "subtract a running average from the learner's reward",
        search={"values": [True, False]},
    ),
    number(
        "average_reward_initial",
        None,
        "initial average reward (reward_centering), updated by average_reward_step; off: the "
        "first rollout's average",
        off=True,
    ),
    number(
        "average_reward_step",
        1e-3,
        "step size of the average reward, updated once per rollout",
        **{**POSITIVE, "high": 1.0},
        search=log(1e-4, 1e-1),
    ),
    switch(
        "normalise_observations",
        False,
        "normalise observations by running mean and variance, frozen in evaluation",
        search={"values": [True, False]},
    ),
    number("observation_clip", 10.0, "clip of normalised observations", **POSITIVE, off=True),
    switch(
        "normalise_rewards",
        True,
        "normalise rewards by the running standard deviation of the discounted return",
        search={"values": [True, False]},
    ),
    switch(
        "raw_reward_deviation",
        False,
        "normalise_rewards divides by the standard deviation of rewards, not of returns",
        search={"values": [True, False]},
    ),
    switch(
        "normalise_advantages",
        True,
        "normalise advantages to mean 0 and standard deviation 1 in every minibatch",
    ),
    number("logr_clip", 10.0, "clip of the log probability ratio", **POSITIVE, off=True),
    number("adv_clip", 10.0, "clip of normalised advantages", **POSITIVE, off=True),
    number(
        "target_kl",
        None,
        "skip the rest of an update once the KL exceeds 1.5 times this",
        **POSITIVE,
        off=True,
        search=log(0.005, 0.05),
    ),
    number(
        "priority_alpha",
        0.0,
        "exponent for sampling rows by |A|; 0 uses each row once",
        low=0.0,
        search=uniform(0.0, 1.0),
    ),
    number(
        "priority_beta0",
        1.0,
        "initial exponent of the importance weights",
        **FRACTION,
        search=uniform(0.0, 1.0),
    ),
    switch("anneal_priority_beta", True, "raise priority_beta0 to 1 over the run"),
    number(
        "rho_clip",
        None,
        "V-trace: largest weight of an error; used with c_clip",
        **POSITIVE,
        off=True,
        search=uniform(0.5, 2.0),
    ),
    number(
        "c_clip",
        None,
        "V-trace: largest weight of later errors; used with rho_clip",
        **POSITIVE,
        off=True,
        search=uniform(0.5, 2.0),
    ),
    number(
        "log_std_init",
        -0.5,
        "initial log standard deviation of Gaussian policies",
        low=-20.0,
        high=2.0,
    ),
    number("log_std_min", -20.0, "smallest log standard deviation", low=-20.0, high=2.0),
    number("log_std_max", 2.0, "largest log standard deviation", low=-20.0, high=5.0),
    Knob(
        "update_epochs",
        "int",
        4,
        True,
        low=1,
        high=1000,
        meaning="passes over each rollout",
        search={"min": 1, "max": 20, "distribution": "log_int_uniform"},
    ),
    switch("action_masking", True, "invalid actions get probability 0, if there is a mask"),
    switch(
        "off_policy_masking",
        False,
        "use the importance ratio of the unmasked policy to the masked behaviour policy",
        search={"values": [True, False]},
    ),
    Knob(
        "masking_gate_min_actions",
        "int",
        2,
        True,
        low=1,
        high=2**24,
        meaning="fewest valid actions of a row that counts in the policy loss (masking_gating)",
    ),
    switch(
        "masking_gating",
        True,
        (
            "exclude rows with too few valid actions from the policy loss, and rows with "
            "none from the value loss"
        ),
        search={"values": [True, False]},
    ),
    switch(
        "masking_damping",
        True,
        "weight each row by min(1, valid mass / valid_mass_target)",
        search={"values": [True, False]},
    ),
    number(
        "valid_mass_target",
        0.05,
        "valid mass at which a row gets the full weight (masking_damping)",
        **{**POSITIVE, "high": 1.0},
        search=log(0.02, 0.1),
    ),
    number(
        "valid_mass_coef",
        0.0,
        "weight of the loss -log(valid mass)",
        low=0.0,
        search=log(2e-4, 0.1, zero=0.2),
    ),
    schedule("valid_mass_schedule", "constant", "how valid_mass_coef changes over the run"),
    number(
        "valid_mass_end_fraction",
        10.0,
        "final valid_mass_coef as a fraction of the initial",
        low=0.0,
    ),
    number(
        "valid_mass_schedule_multiplier",
        1.0,
        "schedule horizon as a fraction of the run",
        **POSITIVE,
    ),
    switch(
        "schedule_on_gradient_steps",
        False,
        "schedules count gradient steps instead of updates",
    ),
)


KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in TRACED + STATIC}


SCHEDULE_KNOBS = tuple(name for name, knob in KNOBS.items() if knob.choices == SCHEDULES)
# hyperparameters to which user code can add choices
REGISTRABLE = ("network", "optimiser", "distribution", *SCHEDULE_KNOBS)
_REGISTERED: dict[str, list[str]] = {name: [] for name in REGISTRABLE}


# Former defaults, for studies whose record lacks these hyperparameters.
AVERAGE_REWARD = "average_reward_initial"  # its default was 0, which meant what `off` means now
DEFAULTS_OF_OLD: Mapping[str, Any] = {"learning_rate": 3e-4, "normalise_rewards": False}


def allow_choice(name: str, choice: str) -> None:
    """Make a word registered by user code legal for a hyperparameter."""
    if choice not in known_choices(name):
        _REGISTERED[name].append(choice)


def known_choices(name: str) -> tuple[str, ...]:
    """Return a hyperparameter's legal words, registered ones last."""
    return (*KNOBS[name].choices, *_REGISTERED.get(name, ()))


def choices_of(knob: Knob) -> tuple[str, ...]:
    """Return the legal words of a hyperparameter in any table."""
    if KNOBS.get(knob.name) is knob:
        return known_choices(knob.name)
    return knob.choices


def matters(name: str, network: str) -> bool:
    """Return whether a hyperparameter can affect a network; any may affect a registered network.

    >>> matters("gnn_edge_mlp_layers", "mlp"), matters("learning_rate", "mlp")
    (False, True)
    """
    knob = KNOBS[name]
    own = network not in KNOBS["network"].choices
    return own or not knob.networks or network in knob.networks
