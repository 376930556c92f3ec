"""Action distributions that user code registers: a `Family` makes one from a head's outputs.

The knob `distribution` chooses it; rollouts, losses, evaluation and saved policies ask it wherever
they would ask a built-in one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..environments import allow_distribution
from ..errors import ConfigError
from ..knobs import allow_choice, known_choices
from .distributions import Distribution
from .envs.contract import ActionSpace

__all__ = ["Actions", "Family", "own_family", "register"]

Kind = Literal["discrete", "multi_discrete", "continuous"]


@dataclass(frozen=True, eq=False)
class Actions:
    """The actions of an environment, as NumPy and plain numbers.

    Attributes:
        space: of the environment.
        shape: of one action of the policy: [] for one choice, [C] choices, [D] real numbers.
        low: smallest real action [D], after `action_low`; empty for choices.
        high: largest, likewise.
    """

    space: ActionSpace
    shape: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray

    @property
    def components(self) -> int:
        """Numbers in one action."""
        return math.prod(self.shape)


class Family:
    """What user code says of a distribution; subclass it and `register` an instance.

    Methods are pure functions of arrays and run inside compiled programs.

    Attributes:
        actions: the kind of action space that it is for.
        bounded: it needs a finite range; the user is told where there is none.
        has_log_std: it takes a log standard deviation a component, parameters of the policy that
            see no observation (`log_std_init`, `log_std_min`, `log_std_max`).
    """

    actions: ClassVar[Kind] = "continuous"
    bounded: ClassVar[bool] = False
    has_log_std: ClassVar[bool] = False

    def outputs(self, actions: Actions) -> int:
        """Return how many numbers the policy head gives; one a component unless overridden.

        A distribution of choices has one a choice.
        """
        space = actions.space
        if self.actions == "discrete":
            return getattr(space, "n", 0)
        if self.actions == "multi_discrete":
            return sum(getattr(space, "nvec", ()))
        return actions.components

    def make(
        self,
        outputs: Float[Array, "... P"],
        actions: Actions,
        mask: Bool[Array, "... A"] | None,
        log_std: Float[Array, " D"] | None,
    ) -> Distribution:
        """Return the distribution.

        Args:
            outputs: of the policy head.
            actions: of the environment.
            mask: valid choices, or None; what is not valid must have probability 0, but where
                nothing is valid the mask must be ignored.
            log_std: with `has_log_std`, clipped; else None.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `make`")

    def noise(
        self, key: PRNGKeyArray, batch: tuple[int, ...], shape: tuple[int, ...]
    ) -> Float[Array, "..."]:
        """Draw what `sample` needs, [batch, ...]: one number a component unless overridden.

        Uniform in [0, 1) for choices, standard normal for real actions.
        """
        draw = jax.random.normal if self.actions == "continuous" else jax.random.uniform
        return draw(key, (*batch, *shape), jnp.float32)

    def entropy_noise(
        self, key: PRNGKeyArray, batch: tuple[int, ...], shape: tuple[int, ...]
    ) -> Float[Array, "..."] | None:
        """Draw what `entropy` needs, [batch, ...], or None where it is exact."""
        return None

    def environment_action(
        self, action: Float[Array, "... D"], actions: Actions
    ) -> Float[Array, "... D"]:
        """Return what the environment takes for real actions of the policy.

        Where density is to be taken away from the edges of a box, an action of the policy may be
        an unbounded number, mapped into the box here.
        """
        return action

    def logits(self, outputs: Float[Array, "... P"], actions: Actions) -> Float[Array, "... A"]:
        """Return logits of the choices without a mask, by which valid mass is counted."""
        return outputs


_OWN: dict[str, Family] = {}


def register(name: str, family: Family) -> None:
    """Add a distribution; `testing.DistributionContract` checks all that is asked.

    Args:
        name: for the knob `distribution`.
        family: makes it.

    Raises:
        ConfigError: the name is taken, or it says no known kind of actions.
    """
    if name in known_choices("distribution"):
        raise ConfigError(
            f"a distribution {name!r} exists already; register it under another name"
        )
    kinds = ("discrete", "multi_discrete", "continuous")
    if family.actions not in kinds:
        raise ConfigError(
            f"distribution {name!r} is for actions {family.actions!r}; allowed: {', '.join(kinds)}"
        )
    _OWN[name] = family
    allow_distribution(family.actions, name)
    allow_choice("distribution", name)


def own_family(name: str | None) -> Family | None:
    """Return the family that is registered under a name, or None."""
    return None if name is None else _OWN.get(name)
