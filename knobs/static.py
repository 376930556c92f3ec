"""Knobs of every network that are parts of `Plan`: each value is a program of its own."""

from __future__ import annotations

import math

from .knob import POSITIVE, static
from .networks import NETWORK_KNOBS

__all__ = ["STATIC"]

_FLAT = ("mlp", "path_mlp", "lstm", "gru")

STATIC = (
    static("num_envs", "int", 8, "environments a lane steps side by side", low=1, high=4096,
           search={"values": [4, 8, 16, 32]}),
    static("rollout_length", "int", 128, "env steps per environment between updates", low=2,
           high=65536, search={"values": [32, 64, 128, 256]}),
    static("num_minibatches", "int", 4, "gradient steps an epoch", low=1, high=65536,
           search={"values": [1, 2, 4, 8]}),
    static("minibatch_size", "int", None, "samples a gradient step, instead of num_minibatches",
           low=1, high=2**24, off=True),
    static("network", "choice", "mlp", "kind of network, or one that user code registers",
           choices=("mlp", "cnn", "gnn", "transformer", "path_mlp", "lstm", "gru"),
           search={"values": ["mlp", "gnn", "transformer"]}),
    static("history", "int", 1, "observations stacked; cleared where an episode ends", low=1,
           high=1024, search={"values": [1, 4]}),
    static("hidden_sizes", "widths", (64, 64), "widths of the hidden layers", networks=_FLAT,
           search={"values": [[64, 64], [128, 128], [256, 256]]}),
    static("num_layers", "int", None, "with hidden_size: instead of hidden_sizes", low=1,
           high=64, off=True),
    static("hidden_size", "int", None, "width of each of num_layers hidden layers", low=1,
           high=16384, off=True),
    static("activation", "choice", "tanh",
           "non-linearity of the hidden layers; if unset relu for cnn, gnn, transformer, path_mlp",
           choices=("tanh", "relu", "elu", "gelu", "leaky_relu", "silu"),
           search={"values": ["tanh", "relu", "silu"]}),
    static("layer_norm", "bool", False, "layer normalisation before each non-linearity",
           search={"values": [True, False]}),
    static("shared_encoder", "bool", False, "actor and critic share the hidden layers",
           search={"values": [True, False]}),
    *NETWORK_KNOBS,
    static("initialisation", "choice", "orthogonal", "of weight matrices",
           choices=("orthogonal", "lecun")),
    static("hidden_gain", "float", math.sqrt(2.0), "gain of the hidden layers", **POSITIVE),
    static("policy_gain", "float", 0.01, "gain of the policy head", **POSITIVE),
    static("value_gain", "float", 1.0, "gain of the value head", **POSITIVE),
    static("optimiser", "choice", "adam", "optimiser, or one that user code registers; muon "
           "takes matrices, adam the rest; adam_l2 adds weight_decay to the gradient",
           choices=("adam", "adamw", "adam_l2", "sgd", "muon"),
           search={"values": ["adam", "muon"]}),
    static("gradient_accumulation", "int", "auto",
           "parts that a minibatch's gradient is summed from; auto: 1, but on CPUs as many as "
           "keep a part of a gnn or transformer in cache", low=1, high=65536, choices=("auto",)),
    static("accumulate_minibatches", "int", 1,
           "minibatches of an epoch whose mean gradient makes one step of the optimiser", low=1,
           high=65536, search={"values": [1, 2, 4]}),
    static("priority_over", "choice", None,
           "what priority_alpha draws; unset: segments where minibatches are whole segments",
           choices=("steps", "segments"), off=True),
    static("distribution", "choice", None, "action distribution, or one that user code "
           "registers; unset: from the action space",
           choices=("categorical", "gaussian", "tanh_gaussian", "beta", "multi_discrete"),
           off=True, search={"values": ["gaussian", "tanh_gaussian", "beta"]}),
    static("action_low", "float", None, "smallest action, of every component; unset: the space's",
           off=True),
    static("action_high", "float", None, "largest action, likewise; tanh_gaussian and beta fill "
           "the range, gaussian is clipped to it", off=True),
    static("dtype", "choice", "float32",
           "of the networks' arithmetic; parameters and statistics stay float32",
           choices=("float32", "bfloat16"), search={"values": ["float32", "bfloat16"]}),
    static("matmul_precision", "choice", "float32", "of matrix products on accelerators",
           choices=("float32", "tf32", "bfloat16")),
)  # fmt: skip
