"""The static hyperparameters: fields of `Plan`, which determine the compiled program."""

from __future__ import annotations

import math
from typing import Any

from .knob import POSITIVE, Knob, KnobType, static

RECURRENT_NETWORKS = ("lstm", "gru")  # networks with a memory; they learn from whole segments
_FLAT = ("mlp", "path_mlp", "lstm", "gru")
_LAYERS = {"low": 0, "high": 64}
_RATE = {"low": 0.0, "high": 0.99}
_POOLINGS = ("mean", "sum", "min_mean_max", "attention")


def _network_knob(
    network: str, name: str, type_: KnobType, default: Any, meaning: str, **rest: Any
) -> Knob:
    given = {"networks": (network,), **rest}
    if type_ == "int":
        given = {"low": 1, "high": 16384, **given}
    return static(name, type_, default, meaning, **given)


def _gnn_knob(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _network_knob("gnn", f"gnn_{name}", type_, default, meaning, **rest)


def _transformer_knob(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _network_knob("transformer", f"transformer_{name}", type_, default, meaning, **rest)


NETWORK_KNOBS = (
    _network_knob(
        "cnn",
        "cnn_channels",
        "widths",
        None,
        "channels of each convolution; unset: [32, 64, 64], or [16] for images below 36 pixels",
        off=True,
        search={"values": [[16], [16, 32]]},
    ),
    _network_knob(
        "cnn",
        "cnn_kernels",
        "widths",
        None,
        "side length of each kernel in pixels; unset: [8, 4, 3], or [3] for small images",
        off=True,
    ),
    _network_knob(
        "cnn",
        "cnn_strides",
        "widths",
        None,
        "stride of each convolution in pixels; unset: [4, 2, 1], or [1] for small images",
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
        "residual blocks after each convolution and its max pooling (IMPALA: 2); 0: none; above "
        "0, sizes default to IMPALA's (16, 32, 32 channels, 256 units)",
        low=0,
        high=16,
        search={"values": [0, 2]},
    ),
    _network_knob(
        "recurrent",
        "recurrent_size",
        "int",
        64,
        "size of the recurrent cell after the hidden layers",
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
            "link features for a separate critic: every slot, or only the share of slots in "
            "use, without the request"
        ),
        choices=("slots", "shares"),
        networks=("gnn", "transformer"),
        search={"values": ["slots", "shares"]},
    ),
    _gnn_knob(
        "message_passing_steps",
        "int",
        3,
        "rounds of message passing",
        high=64,
        search={"values": [2, 3, 4]},
    ),
    _gnn_knob("edge_embedding_size", "int", 128, "width of the edge embedding"),
    _gnn_knob("node_embedding_size", "int", 16, "width of the node embedding"),
    _gnn_knob("global_embedding_size", "int", 8, "width of the graph embedding"),
    _gnn_knob(
        "edge_mlp_layers", "int", 2, "number of hidden layers in the edge update", **_LAYERS
    ),
    _gnn_knob(
        "node_mlp_layers", "int", 2, "number of hidden layers in the node update", **_LAYERS
    ),
    _gnn_knob(
        "global_mlp_layers", "int", 1, "number of hidden layers in the graph update", **_LAYERS
    ),
    _gnn_knob("edge_mlp_latent", "int", 128, "width of the edge update's hidden layers"),
    _gnn_knob("node_mlp_latent", "int", 128, "width of the node update's hidden layers"),
    _gnn_knob("global_mlp_latent", "int", 16, "width of the graph update's hidden layers"),
    _gnn_knob(
        "attn_mlp_layers",
        "int",
        1,
        "number of hidden layers in the edge attention; 0: no attention",
        **_LAYERS,
    ),
    _gnn_knob("attn_mlp_latent", "int", 64, "width of the edge attention's hidden layers"),
    _gnn_knob(
        "num_spectral_features",
        "int",
        8,
        "number of Laplacian coordinates per node",
        low=0,
        high=8,
    ),
    _gnn_knob(
        "layer_norm", "bool", True, "layer normalisation after each round of message passing"
    ),
    _gnn_knob("mlp_layer_norm", "bool", False, "layer normalisation inside the MLPs"),
    _gnn_knob(
        "normalise_by_link_length",
        "bool",
        False,
        "weight links by their share of the path's length",
    ),
    _gnn_knob("node_features", "bool", True, "include node features; off: zeros instead"),
    _transformer_knob("layers", "int", 1, "number of blocks", high=64, search={"values": [1, 2]}),
    _transformer_knob("heads", "int", 4, "attention heads", high=256, search={"values": [4, 8]}),
    _transformer_knob(
        "embedding_size", "int", 128, "width of a token", search={"values": [64, 128]}
    ),
    _transformer_knob("intermediate_size", "int", 256, "hidden width of the feed-forward layers"),
    _transformer_knob(
        "obs_type",
        "choice",
        "departure",
        "slot features in link tokens, if `observation` is omitted",
        choices=("departure", "occupancy", "capacity"),
        search={"values": ["departure", "occupancy"]},
    ),
    _transformer_knob(
        "wire_features", "int", 8, "number of coordinates in the rotary encoding", low=0, high=8
    ),
    _transformer_knob("actor_mlp_width", "int", 128, "hidden width of the actor's head"),
    _transformer_knob(
        "actor_mlp_depth", "int", 1, "number of hidden layers in the actor's head", **_LAYERS
    ),
    _transformer_knob("critic_mlp_width", "int", 128, "hidden width of the critic's head"),
    _transformer_knob(
        "critic_mlp_depth", "int", 2, "number of hidden layers in the critic's head", **_LAYERS
    ),
    _transformer_knob(
        "actor_pooling",
        "choice",
        "mean",
        "pooling of the tokens along a candidate path",
        choices=_POOLINGS,
        search={"values": ["mean", "sum"]},
    ),
    _transformer_knob(
        "critic_pooling", "choice", "mean", "pooling of all tokens", choices=_POOLINGS
    ),
    _transformer_knob(
        "share_layers", "bool", False, "actor and critic share the blocks, as with shared_encoder"
    ),
    _transformer_knob(
        "dropout",
        "float",
        0.1,
        "dropout rate after attention and feed-forward layers, if dropout is on",
        **_RATE,
    ),
    _transformer_knob(
        "attention_dropout",
        "float",
        0.1,
        "dropout rate of attention weights, if dropout is on",
        **_RATE,
    ),
    _transformer_knob(
        "enable_dropout",
        "bool",
        False,
        "use dropout in training, with the same masks in acting and learning",
    ),
)


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
        "type of network, built-in or registered by user code",
        choices=("mlp", "cnn", "gnn", "transformer", "path_mlp", "lstm", "gru"),
        search={"values": ["mlp", "gnn", "transformer"]},
    ),
    static(
        "history",
        "int",
        1,
        "number of stacked observations; the stack is cleared when an episode ends",
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
        "optimiser, built-in or registered by user code; muon updates matrices, adam the rest; "
        "adam_l2 adds weight_decay to the gradient",
        choices=("adam", "adamw", "adam_l2", "sgd", "muon"),
        search={"values": ["adam", "muon"]},
    ),
    static(
        "gradient_accumulation",
        "int",
        "auto",
        (
            "parts per minibatch, whose gradients are summed; auto: 1, or for a gnn or "
            "transformer on a CPU, enough for each part to fit into the cache"
        ),
        low=1,
        high=65536,
        choices=("auto",),
    ),
    static(
        "accumulate_minibatches",
        "int",
        1,
        "number of minibatches whose gradients are averaged for one optimiser step",
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
        "action distribution, built-in or registered by user code; unset: from the action space",
        choices=("categorical", "gaussian", "tanh_gaussian", "beta", "multi_discrete"),
        off=True,
        search={"values": ["gaussian", "tanh_gaussian", "beta"]},
    ),
    static(
        "action_low",
        "float",
        None,
        "lower bound of every action component; unset: taken from the action space",
        off=True,
    ),
    static(
        "action_high",
        "float",
        None,
        (
            "upper bound of every action component; tanh_gaussian and beta fill the range, "
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
