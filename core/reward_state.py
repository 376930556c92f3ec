"""What a lane remembers of its rewards: the deviation of returns, and the average reward.

Both are the units in which a critic values states, so they travel with a saved policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .lane_state import LaneState
from .normalise import RunningStatistics
from .plan import Plan
from .pytree import Leaf, Pytree, pytree

__all__ = ["RewardState", "reward_notes"]

_PARTS = ("count", "mean", "square")
_USES = {"normalise_rewards": "reward statistics", "reward_centering": "average reward"}


@pytree
class RewardState(Pytree):
    """Reward memory of one lane; None where there is none.

    Attributes:
        returns: of the discounted return, or with `raw_reward_deviation` of the reward, as
            `normalise_rewards` gathers it.
        average: the average reward, as `reward_centering` tracks it.
        trace: how much of a step's weight that average has seen.
    """

    returns: RunningStatistics | None = None
    average: Float[Leaf, ""] | None = None
    trace: Float[Leaf, ""] | None = None

    @classmethod
    def of(cls, state: LaneState) -> RewardState:
        """Return what a lane remembers; nothing of what it has never measured."""
        seen = float(state.return_statistics.count) > 0.0
        centred = float(state.average_trace) > 0.0
        return cls(
            state.return_statistics if seen else None,
            state.average_reward if centred else None,
            state.average_trace if centred else None,
        )

    def for_plan(self, plan: Plan) -> RewardState:
        """Return the part that lanes of a plan use."""
        normalises = "normalise_rewards" in plan.features
        centres = "reward_centering" in plan.features
        return RewardState(
            self.returns if normalises else None,
            self.average if centres else None,
            self.trace if centres else None,
        )

    def in_units(self, saved: bool, here: frozenset[bool]) -> RewardState:
        """Leave out the deviation where lanes may take one of another quantity.

        Args:
            saved: `raw_reward_deviation` of the policy.
            here: its values in the study that starts from it.
        """
        return self if here == frozenset((saved,)) else self.replace(returns=None)

    def fields(self) -> dict[str, Any]:
        """Return the fields of `LaneState` that this replaces."""
        found = {
            "return_statistics": self.returns,
            "average_reward": self.average,
            "average_trace": self.trace,
        }
        return {name: value for name, value in found.items() if value is not None}

    def as_data(self) -> dict[str, Any]:
        """Return JSON data that `from_data` turns back into the same bits."""
        returns, average, trace = self.returns, self.average, self.trace
        statistics = None
        if returns is not None:
            statistics = {name: float(getattr(returns, name)) for name in _PARTS}
        centring = None
        if average is not None and trace is not None:
            centring = {"average": float(average), "trace": float(trace)}
        return {"returns": statistics, "centring": centring}

    @classmethod
    def from_data(
        cls, returns: Mapping[str, float] | None, centring: Mapping[str, float] | None
    ) -> RewardState:
        """Return what `as_data` was made of."""
        return cls(
            None if returns is None else RunningStatistics(*_floats(returns, _PARTS)),
            *((None, None) if centring is None else _floats(centring, ("average", "trace"))),
        )


def _floats(data: Mapping[str, float], names: tuple[str, ...]) -> list[Array]:
    return [jnp.float32(data[name]) for name in names]


def reward_notes(plan: Plan, rewards: RewardState | None, same_units: bool = True) -> list[str]:
    """Return which reward memory lanes of a plan need and a saved policy with its critic lacks.

    Args:
        plan: of the lanes.
        rewards: of the policy; None if an earlier version wrote it, which kept none.
        same_units: `raw_reward_deviation` is what it was, in all lanes.
    """
    found = RewardState() if rewards is None else rewards
    here = {"normalise_rewards": found.returns, "reward_centering": found.average}
    lacks = [name for name, value in here.items() if name in plan.features and value is None]
    if not lacks:
        return []
    words = " and ".join(f"{_USES[name]} ({name})" for name in lacks)
    why = (
        "it was trained without them"
        if same_units
        else "raw_reward_deviation is or may be another"
    )
    if rewards is None:
        why = "an earlier version wrote it; train it once more to have them"
    return [f"init: the saved policy holds no {words}, which start fresh here: {why}"]
