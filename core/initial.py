"""Lanes that start from a saved policy instead of from fresh parameters.

What is not kept is drawn as ever, from the lane's own key; what is kept is the same in all lanes.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
from jaxtyping import Array

from ..errors import ConfigError
from . import policy
from .lane_state import LaneState
from .normalise import RunningStatistics
from .plan import Plan
from .pytree import Pytree, pytree
from .reward_state import RewardState

__all__ = ["Initial", "Keep", "kept", "start_from"]

Keep = Literal["all", "critic", "policy"]


@pytree
class Initial(Pytree):
    """What lanes start with; None where they start fresh.

    Attributes:
        params: top-level parameters that are kept, by name.
        statistics: of the observation normaliser.
        moments: of the optimiser.
        rewards: what the critic's rewards were measured by.
    """

    params: dict[str, Any]
    statistics: RunningStatistics | None
    moments: Any
    rewards: RewardState = RewardState()


def start_from(state: LaneState, initial: Initial | None) -> LaneState:
    """Return a fresh lane with what is kept in its place."""
    if initial is None:
        return state
    changes: dict[str, Any] = {"params": {**state.params, **initial.params}}
    if initial.statistics is not None:
        changes["observation_statistics"] = initial.statistics
    if initial.moments is not None:
        changes["moments"] = initial.moments
    changes |= initial.rewards.fields()
    return state.replace(**changes)


def kept(
    plan: Plan,
    shapes: LaneState,
    params: dict[str, Any],
    statistics: RunningStatistics,
    keep: Keep,
    normalised: bool = True,
    rewards: RewardState | None = None,
) -> Initial:
    """Choose what is kept of a saved policy, and check that it fits.

    Args:
        plan: of the lanes.
        shapes: of one of them, from `population.lane_shapes`.
        params: saved.
        statistics: saved; kept if these lanes can normalise observations.
        keep: all parameters, the critic's, or the policy's (shared layers are the policy's).
        normalised: the saved policy saw observations normalised by its statistics, which a study
            that searches `normalise_observations` gathers in all lanes.
        rewards: saved, None if unknown; kept with the critic, whose values are in their units.

    Raises:
        ConfigError: names or shapes are others than this plan's.
    """
    wanted = {
        name: tree
        for name, tree in params.items()
        if keep == "all" or policy.is_critic(name) == (keep == "critic")
    }
    here = {
        name: tree
        for name, tree in shapes.params.items()
        if keep == "all" or policy.is_critic(name) == (keep == "critic")
    }
    _check(wanted, here)
    normalises = "normalise_observations" in plan.features
    fits = statistics.mean.shape == shapes.observation_statistics.mean.shape
    if normalises and not fits and statistics.mean.shape:
        raise ConfigError(
            "init: the saved policy saw observations of another shape, so its statistics do not "
            "fit; take one that saw what this study shows"
        )
    if normalises and not fits:
        raise ConfigError(
            "init: the saved policy was trained without normalise_observations, this study can "
            "switch it on; fix normalise_observations to false"
        )
    if not normalises and normalised and statistics.mean.shape != ():
        raise ConfigError(
            "init: the saved policy saw normalised observations; fix normalise_observations to "
            "true"
        )
    remembered = RewardState() if rewards is None or keep == "policy" else rewards.for_plan(plan)
    return Initial(wanted, statistics if normalises else None, None, remembered)


def _check(given: Any, here: Any) -> None:
    """Refuse parameters of other names or shapes.

    Raises:
        ConfigError: says the first difference.
    """
    ours, theirs = _shapes(here), _shapes(given)
    for name in [*ours, *theirs]:
        one, other = ours.get(name), theirs.get(name)
        if one != other:
            raise ConfigError(
                f"init: the parameter {name} has shape {other or 'none'} in the saved policy and "
                f"{one or 'none'} here; give the network and its sizes as they were saved (they "
                "are in its policy.json), or keep less of it"
            )


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves: list[tuple[Any, Array]] = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): tuple(leaf.shape)
        for path, leaf in leaves
    }
