"""What hangs together in JaxDEM's trainer: its updates, and the horizon of its cosine."""

from __future__ import annotations

from ..amounts import count_of
from .draft import Draft
from .take import Source
from .words import read_word

__all__ = ["JaxdemRules"]

_UPDATES = 1000


class JaxdemRules:
    """Rules for `elsewhere.SYSTEMS["jaxdem"]`."""

    def before(self, draft: Draft, source: Source) -> None:
        """Turn the number of updates into env steps."""
        if "total_timesteps" in source.names() or "env_steps" in source.names():
            source.drop("num_epochs")
            return
        updates = count_of(read_word(source.constants.pop("num_epochs", _UPDATES)))
        envs = count_of(source.values("num_envs", 1024)[0])
        steps = count_of(source.values("num_steps_epoch", 64)[0])
        if updates and envs and steps:
            source.constants["env_steps"] = updates * envs * steps
            draft.note(
                f"num_epochs: {updates:,} updates of {envs} x {steps} env steps are "
                f"{updates * envs * steps:,} env steps"
            )

    def after(self, draft: Draft, source: Source) -> None:
        """Let the cosine end where it does there: after as many gradient steps as updates."""
        parts = draft.fixed.get("num_minibatches")
        together = draft.fixed.get("accumulate_minibatches", 1)
        if isinstance(parts, int) and isinstance(together, int):
            parts = -(-parts // together)
        if draft.fixed.get("lr_schedule") == "cosine" and isinstance(parts, int) and parts > 1:
            draft.fixed["lr_schedule_multiplier"] = 1.0 / parts
            draft.note(
                f"lr_schedule_multiplier: 1/{parts}, as the cosine counts gradient steps there "
                "and is over after as many of them as there are updates; 1 for the whole run"
            )
