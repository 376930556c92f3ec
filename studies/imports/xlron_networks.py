"""Which network XLRON's flags build, and which of its flags shape it."""

from __future__ import annotations

import math
from typing import Any

from ...errors import ConfigError
from .draft import Draft
from .take import Source

__all__ = ["read_networks"]

_PARTS = ("edge", "node", "global", "attn")
_LAYERS, _UNITS = 2, 64


def read_networks(draft: Draft, source: Source) -> None:
    """Resolve the flags of networks.

    Raises:
        ConfigError: one searched flag would move several knobs.
    """
    kinds = _kinds(draft, source)
    _observations(draft, source, kinds)
    _layers(draft, source, kinds)
    _shared_sizes(draft, source)
    if kinds == {"mlp"}:
        _as_the_mlp(draft, source)
    else:
        draft.note(
            "heads of gnn and transformer begin as ours do (policy_gain, value_gain); XLRON "
            "divides the logits of its gnn by --temperature (5)"
        )


def _kinds(draft: Draft, source: Source) -> set[str]:
    """Return the networks that are trained; the transformer wins over the gnn, as there."""
    transformer = set(source.values("USE_TRANSFORMER", False))
    gnn = set(source.values("USE_GNN", False))
    if len(transformer) > 1 and len(gnn) > 1:
        raise ConfigError(
            f"{draft.source}: USE_TRANSFORMER and USE_GNN are both searched; search one of them "
            "and import the sweep once for each value of the other"
        )
    if any(source.values("USE_RNN", False)) and not (transformer | gnn) - {False}:
        draft.note(
            "USE_RNN: XLRON builds no recurrent network, the flag only changes how samples are "
            "drawn: the mlp is trained; -- --network lstm for a recurrent one"
        )
    if transformer == {True}:
        source.drop("USE_GNN")
        return {"transformer"}
    if gnn == {True}:
        if len(transformer) > 1:
            source.searched["USE_TRANSFORMER"] = {"values": ["transformer", "gnn"]}
            source.searched["network"] = source.searched.pop("USE_TRANSFORMER")
            source.drop("USE_GNN")
            return {"transformer", "gnn"}
        return {"gnn"}
    if len(transformer) > 1 or len(gnn) > 1:
        name, kind = ("USE_GNN", "gnn") if len(gnn) > 1 else ("USE_TRANSFORMER", "transformer")
        source.drop("USE_TRANSFORMER", "USE_GNN")
        source.searched["network"] = {"values": ["mlp", kind]}
        draft.note(f"{name}: it is searched, so network is")
        return {"mlp", kind}
    source.drop("USE_GNN", "USE_TRANSFORMER")
    return {"mlp"}


def _observations(draft: Draft, source: Source, kinds: set[str]) -> None:
    name = "transformer_obs_type"
    if name in source.names() and "transformer" not in kinds:
        draft.leave_out(name, "no transformer is trained")
        source.drop(name)


def _layers(draft: Draft, source: Source, kinds: set[str]) -> None:
    """Fill in the default of NUM_LAYERS or NUM_UNITS beside the other; only the mlp has them."""
    pair = {"NUM_LAYERS": _LAYERS, "NUM_UNITS": _UNITS}
    named = [name for name in pair if name in source.names()]
    for name in (*named, "ACTIVATION") if "mlp" not in kinds else ():
        if name in source.names():
            draft.leave_out(name, f"the mlp's; {' and '.join(sorted(kinds))} do without")
        source.drop(name)
    if not named or "mlp" not in kinds:
        draft.silent.update({*pair, *(() if "mlp" in kinds else ("ACTIVATION",))})
        return
    for name, default in pair.items():
        if name not in named:
            source.constants[name] = default
            draft.note(f"{name}: {default}, the default of XLRON")
    if all(name in source.constants for name in pair):
        draft.put("NUM_LAYERS and NUM_UNITS", "hidden_sizes", _widths(draft, source))
        source.drop(*pair)
        draft.silent.update(pair)


def _widths(draft: Draft, source: Source) -> list[int]:
    layers, units = source.find("NUM_LAYERS"), source.find("NUM_UNITS")
    for name, given in (("NUM_LAYERS", layers), ("NUM_UNITS", units)):
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 16384:
            raise ConfigError(f"{draft.source}: {name} is {given!r}; allowed: a whole number")
    return [units] * min(layers, 65)


def _shared_sizes(draft: Draft, source: Source) -> None:
    """Spread mlp_layers and mlp_latent over the parts of the gnn; the width switches them on."""
    layers, width = source.values("mlp_layers", None), source.values("mlp_latent", None)
    if width == [None]:
        if layers != [None]:
            draft.leave_out("mlp_layers", "has no effect there without mlp_latent")
    elif len(layers) > 1 or len(width) > 1:
        raise ConfigError(
            f"{draft.source}: mlp_layers and mlp_latent set the sizes of all parts of the gnn at "
            "once, so they cannot be searched; search edge_mlp_latent and its like"
        )
    elif layers == [None]:
        raise ConfigError(f"{draft.source}: mlp_latent needs mlp_layers; XLRON fails without")
    else:
        for part in _PARTS:
            _set(source, f"{part}_mlp_latent", width[0])
            if part != "attn" or source.find("attn_mlp_layers") != 0:
                _set(source, f"{part}_mlp_layers", layers[0])
        draft.note("mlp_layers, mlp_latent: of all four parts of the gnn")
    source.drop("mlp_layers", "mlp_latent")


def _set(source: Source, name: str, value: Any) -> None:
    source.drop(name)
    source.constants[name] = value


def _as_the_mlp(draft: Draft, source: Source) -> None:
    """Begin as XLRON's mlp does, whose last layers have the gain of the others."""
    for head in ("policy_gain", "value_gain"):
        draft.fixed[head] = math.sqrt(2.0)
    draft.note("policy_gain, value_gain: sqrt(2), as in the mlp of XLRON")
    if any(source.values("mlp_layer_norm", False)):
        source.drop("mlp_layer_norm")
        draft.fixed["layer_norm"] = True
        draft.note("mlp_layer_norm: before the non-linearity here, behind it there")
