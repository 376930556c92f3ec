"""What PyTorch's optimisers do where ours of the same name do otherwise."""

from __future__ import annotations

from .draft import Draft
from .take import Source

__all__ = ["TorchRules", "decay_in_the_gradient"]


class TorchRules:
    """Rules for systems that do nothing else together than step PyTorch's optimisers."""

    def before(self, draft: Draft, source: Source) -> None:
        """Change nothing."""

    def after(self, draft: Draft, source: Source) -> None:
        """Let Adam decay as it does there."""
        decay_in_the_gradient(draft)


def decay_in_the_gradient(draft: Draft) -> None:
    """Turn adam into adam_l2 where weights decay: torch.optim.Adam adds decay to the gradient."""
    if not (draft.fixed.get("weight_decay") or "weight_decay" in draft.space):
        return
    searched = draft.space.get("optimiser", {}).get("values", ())
    if "adam" in searched:
        words = ["adam_l2" if word == "adam" else word for word in searched]
        draft.space["optimiser"] = {**draft.space["optimiser"], "values": words}
    elif draft.fixed.get("optimiser", "adam") == "adam" and not searched:
        draft.fixed["optimiser"] = "adam_l2"
    else:
        return
    draft.note("weight_decay: PyTorch's Adam adds it to the gradient, so the optimiser is adam_l2")
