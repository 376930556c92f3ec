"""Knobs of one network or another: parts of `Plan`, so each value is a program of its own."""

from __future__ import annotations

from typing import Any

from .knob import Knob, KnobType, static

__all__ = ["NETWORK_KNOBS", "RECURRENT_NETWORKS"]

RECURRENT_NETWORKS = ("lstm", "gru")
"""Networks with a memory, which learn from whole segments."""


def _of(network: str, name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    """Return a knob of one network."""
    networks = rest.pop("networks", (network,))
    bounds = {"low": 1, "high": 16384} if type_ == "int" else {}
    return static(name, type_, default, meaning, networks=networks, **{**bounds, **rest})


def _gnn(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _of("gnn", f"gnn_{name}", type_, default, meaning, **rest)


def _transformer(name: str, type_: KnobType, default: Any, meaning: str, **rest: Any) -> Knob:
    return _of("transformer", f"transformer_{name}", type_, default, meaning, **rest)


_LAYERS = {"low": 0, "high": 64}
_RATE = {"low": 0.0, "high": 0.99}
_POOLINGS = ("mean", "sum", "min_mean_max", "attention")

NETWORK_KNOBS = (
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
        networks=RECURRENT_NETWORKS,
        search={"values": [32, 64, 128]}),
    _of("path_mlp", "path_mlp_begins", "choice", "path",
        "what it goes by untrained: the first path with room (ksp_ff), the lowest slot (ff_ksp)",
        choices=("path", "slot"), search={"values": ["path", "slot"]}),
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
