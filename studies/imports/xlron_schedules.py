"""XLRON's schedules in our terms, by what its code does.

- `warmup_cosine` rises from LR itself to LR x WARMUP_MULTIPLIER, so that by default (1) there is
  no ramp: the start fraction is 1.
- `cosine` hands LR x LR_END_FRACTION to optax as the *fraction* `alpha`, so that it ends at
  LR x LR x LR_END_FRACTION, which is nearly 0; the schedules of the entropy and the valid mass
  likewise. `linear` and `warmup_cosine` end where they say.
- Schedules of the learning rate count gradient steps. Those of the entropy, the valid mass and
  lambda count updates (with STEP_ON_GRADIENT gradient steps), while the horizon of the first two
  is in gradient steps and that of lambda in updates.
"""

from __future__ import annotations

import math
from typing import Any

from .draft import Draft
from .take import Source

__all__ = ["read_schedules"]


def read_schedules(draft: Draft, source: Source) -> None:
    """Resolve the flags of schedules."""
    separate = any(source.values("SEPARATE_VF_OPTIMIZER", False))
    kinds = set(source.values("LR_SCHEDULE", "cosine"))
    own = {kind for kind in source.values("VF_LR_SCHEDULE", None) if kind is not None}
    _warm_up(draft, kinds | (own if separate else set()))
    if separate:
        _critic(draft, source, kinds, own or kinds)
    _end(draft, source, kinds, "LR", "LR_END_FRACTION", 5e-4, 0.1)
    for prefix, value, default in (("ENT", "ENT_COEF", 0.1), ("VML", "VALID_MASS_LOSS_COEF", 10)):
        own = set(source.values(f"{prefix}_SCHEDULE", "constant"))
        if own != {"constant"}:
            _end(draft, source, own, value, f"{prefix}_END_FRACTION", 0.0, default)
            _horizon(draft, source, f"{prefix}_SCHEDULE_MULTIPLIER", by_updates=False)
    if source.values("GAE_LAMBDA", None) == [None]:
        _horizon(draft, source, "LAMBDA_SCHEDULE_MULTIPLIER", by_updates=True)


def _warm_up(draft: Draft, kinds: set[Any]) -> None:
    if "warmup_cosine" in kinds:
        draft.fixed["lr_warmup_start_fraction"] = 1.0
        draft.note(
            "lr_warmup_start_fraction: 1, as XLRON's warm-up begins at LR and rises to "
            "LR x WARMUP_MULTIPLIER (by default 1: no rise); the critic's likewise"
        )


def _critic(draft: Draft, source: Source, kinds: set[Any], own: set[Any]) -> None:
    """Write down what the critic's optimiser has of its own there and takes over here."""
    if "VF_SCHEDULE_MULTIPLIER" not in source.names():
        draft.fixed["vf_schedule_multiplier"] = 1.0
    fraction = source.values("VF_LR_END_FRACTION", None)
    if fraction == [None] and "LR_END_FRACTION" not in source.searched:
        source.constants["VF_LR_END_FRACTION"] = source.values("LR_END_FRACTION", 0.1)[0]
    rates = [value for value in source.values("VF_LR", None) if value is not None]
    if not rates:
        rates = [rate / 3.0 for rate in source.values("LR", 5e-4)]
    _scale_end(draft, source, own, rates, "VF_LR_END_FRACTION", 0.1)


def _end(
    draft: Draft, source: Source, kinds: set[Any], value: str, fraction: str,
    default: float, end: float,
) -> None:  # fmt: skip
    _scale_end(draft, source, kinds, source.values(value, default), fraction, end)


def _scale_end(
    draft: Draft, source: Source, kinds: set[Any], values: list[float], fraction: str, end: float
) -> None:
    """Turn the end fraction of a cosine into what it is there: the value times itself."""
    if "cosine" not in kinds:
        return
    if len(kinds) > 1:
        draft.note(
            f"{fraction}: as it is for linear; cosine ends at nearly 0 in XLRON, which "
            "multiplies by the value twice"
        )
        return
    factor = _middle(values)
    if fraction in source.searched:
        fields = source.searched[fraction]
        for key in ("min", "max"):
            if key in fields:
                fields[key] = _rounded(fields[key] * factor)
        if "values" in fields:
            ends = (end if one is None else float(one) for one in fields["values"])
            fields["values"] = [_rounded(one * factor) for one in ends]
    else:
        given = source.find(fraction)
        source.constants[fraction] = _rounded((end if given is None else given) * factor)
    exactly = "" if len(set(values)) == 1 else ", here the middle of what is searched"
    draft.note(
        f"{fraction}: times {factor:.4g}, as the cosine of XLRON ends at the value times itself "
        f"times the fraction{exactly}"
    )


def _horizon(draft: Draft, source: Source, name: str, *, by_updates: bool) -> None:
    """Stretch a horizon by what the counter there lags behind it, or runs ahead of it."""
    epochs, parts = source.values("UPDATE_EPOCHS", 1), source.values("NUM_MINIBATCHES", 1)
    on_gradient = any(source.values("STEP_ON_GRADIENT", False))
    if by_updates != on_gradient:
        return
    steps = [epoch * part for epoch in epochs for part in parts]
    if set(steps) == {1}:
        return
    factor = _middle([float(step) for step in steps])
    factor = 1.0 / factor if by_updates else factor
    if name in source.searched:
        fields = source.searched[name]
        for key in ("min", "max"):
            if key in fields:
                fields[key] *= factor
        if "values" in fields:
            fields["values"] = [float(one) * factor for one in fields["values"]]
    else:
        source.constants[name] = float(source.find(name) or 1.0) * factor
    counted = ("gradient steps", "updates") if by_updates else ("updates", "gradient steps")
    draft.note(
        f"{name}: times {factor:.4g}, as XLRON counts {counted[0]} over a horizon of {counted[1]}"
    )


def _middle(values: list[float]) -> float:
    """Return the one value, or the middle of a range on a logarithmic scale."""
    positive = [float(value) for value in values if value > 0]
    if not positive:
        return 0.0
    return _rounded(math.sqrt(min(positive) * max(positive)))


def _rounded(value: float) -> float:
    return float(f"{value:.12g}")
