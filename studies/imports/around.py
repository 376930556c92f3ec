"""A space around one configuration that was imported: our usual ranges, its values in them."""

from __future__ import annotations

from ...knobs import KNOBS
from .draft import Draft

__all__ = ["add_space"]

_SEARCHED = ("learning_rate", "gamma", "gae_lambda", "clip_eps", "ent_coef", "update_epochs")


def add_space(draft: Draft) -> None:
    """Search around a draft's fixed values, which become the space's default configuration."""
    for name in _SEARCHED:
        value = draft.fixed.get(name, KNOBS[name].default)
        fields = dict(KNOBS[name].search or {})
        if fields.get("distribution") == "one_minus_log" and value >= 1.0:
            draft.note(f"space: {name} stays {value!r}, the end of its range")
            continue
        draft.fixed.pop(name, None)
        if value > 0 or "zero" not in fields:
            fields["min"], fields["max"] = min(fields["min"], value), max(fields["max"], value)
        fields["default"] = value
        draft.space[name] = fields
    draft.note("space: around the file's values, which are the default and are tried first")
    draft.rest["search"] = {"method": "tpe"}
    draft.rest["early_terminate"] = {
        "type": "asha", "min": max(1, draft.rest.get("env_steps", 1_000_000) // 16), "eta": 4.0,
    }  # fmt: skip
    draft.rest["seeds"] = {"per_config": 3, **draft.rest.get("seeds", {})}
    draft.rest["budget"] = {"trials": 64}
