"""Optimisers registered by user code: optax transformations with traced settings.

The hyperparameter `optimiser` selects them instead of adam, and they receive clipped gradients.
The critic's parameters have a separate state, and separate settings with `separate_vf_optimiser`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ..errors import ConfigError, require_new
from ..knobs import allow_choice, known_choices
from .pytree import Pytree, pytree


@pytree
class Settings(Pytree):
    """Traced settings for one optimiser step of the policy or the critic."""

    learning_rate: Float[Array, ""]  # scheduled
    max_grad_norm: Float[Array, ""]  # infinite if off; gradients are already clipped
    beta1: Float[Array, ""]  # `adam_beta1`
    beta2: Float[Array, ""]  # `adam_beta2`
    eps: Float[Array, ""]  # `adam_eps`
    weight_decay: Float[Array, ""]  # the optimiser decides whether it is decoupled
    momentum: Float[Array, ""]  # `sgd_momentum`, or `muon_momentum` for muon


Params = dict[str, Any]  # name -> tree of arrays
OptimiserFactory = Callable[[Settings], optax.GradientTransformation]  # see `register`

_OWN: dict[str, OptimiserFactory] = {}


def register(name: str, factory: OptimiserFactory) -> None:
    """Add an optimiser, so that studies can select it by `optimiser: name`.

    `factory(settings)` is called at every step with that step's values, inside the compiled
    program. A learning rate taken from `settings` therefore follows its schedule; one that `init`
    stores in the state does not. `factory` returns an `optax.GradientTransformation` whose updates
    are added to the parameters (optax's updates include the sign and the learning rate).
    `testing.OptimiserContract` checks all requirements.

    Raises:
        ConfigError: the name is taken.
    """
    require_new("optimiser", name, known_choices("optimiser"))
    _OWN[name] = factory
    allow_choice("optimiser", name)


def own_optimiser(name: str) -> OptimiserFactory | None:
    return _OWN.get(name)


def start_own(factory: OptimiserFactory, params: Params) -> Any:
    half = jnp.float32(0.5)
    settings = Settings(half, half, half, half, half, half, half)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state = factory(settings).init(params)
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), state)


def step_own(
    factory: OptimiserFactory, settings: Settings, params: Params, gradient: Params, state: Any
) -> tuple[Params, Any]:
    """Return parameters and state after one step along a clipped gradient.

    Raises:
        ConfigError: the state's structure, shapes or dtypes changed.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        updates, moved = factory(settings).update(gradient, state, params)
        params = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates)
    before, after = (
        jax.tree.map(lambda x: (jnp.shape(x), jnp.asarray(x).dtype), tree)
        for tree in (state, moved)
    )
    if jax.tree.flatten(before) != jax.tree.flatten(after):
        raise ConfigError(
            "the `update` of a registered optimiser changes the structure, a shape or a dtype of "
            "the state; `init` and `update` must agree on all three"
        )
    return params, jax.tree.map(lambda x: jnp.asarray(x, jnp.asarray(x).dtype), moved)
