"""Traced Adam, AdamW, SGD, Muon and registered optimisers, for the policy and the critic.

Policy and critic share the gradient clip, moments and step size, unless a lane turns on
`separate_vf_optimiser`. The critic's parameters then use the `vf_*` hyperparameters.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from .hypers import OFF, Hypers, annealed_lambda, scheduled
from .lane_state import LaneState
from .own_optimisers import Params, Settings, own_optimiser, start_own, step_own
from .plan import Plan
from .policy import is_critic, kernels_of_heads
from .pytree import Pytree, pytree

# Steps taken, first and second moments; a scalar takes the place of a moment that a leaf lacks.
Moments = optax.ScaleByAdamState

State = Any  # `Moments`, or the state of a registered optimiser

# A quintic whose iterates take singular values in (0, 1] to about 1 (Jordan 2024, "Muon").
_QUINTIC, _ITERATIONS = (3.4445, -4.7750, 2.0315), 5
_SMALL = 2048  # leaves with fewer numbers are cheaper to copy than to launch a kernel for


@pytree
class StepSizes(Pytree):
    policy: Float[Array, ""]
    critic: Float[Array, ""]


def step_sizes(hypers: Hypers, progress: Float[Array, ""]) -> StepSizes:
    policy = scheduled(
        hypers,
        progress,
        initial=hypers.learning_rate,
        kind=hypers.lr_schedule,
        end_fraction=hypers.lr_end_fraction,
        multiplier=hypers.lr_schedule_multiplier,
        peak=hypers.lr_warmup_multiplier,
    )
    critic = scheduled(
        hypers,
        progress,
        initial=hypers.vf_learning_rate,
        kind=hypers.vf_lr_schedule,
        end_fraction=hypers.vf_lr_end_fraction,
        multiplier=hypers.vf_schedule_multiplier,
        width=hypers.vf_warmup_fraction,
        peak=hypers.vf_warmup_multiplier,
        start=hypers.vf_warmup_start_fraction,
    )
    return StepSizes(policy, jnp.where(hypers.separate_vf_optimiser > 0.0, critic, policy))


def _policy_and_critic(params: Params) -> tuple[Params, Params]:
    critic = {name: value for name, value in params.items() if is_critic(name)}
    return {name: value for name, value in params.items() if name not in critic}, critic


def init_moments(plan: Plan, params: Params) -> tuple[State, State]:
    policy, critic = (_init_group(plan, group) for group in _policy_and_critic(params))
    return policy, critic


def _init_group(plan: Plan, group: Params) -> State:
    own = own_optimiser(plan.optimiser)
    if own is not None:
        return start_own(own, group)

    def second(leaf: Array) -> Array:
        if plan.optimiser == "sgd" or (plan.optimiser == "muon" and leaf.ndim == 2):
            return jnp.zeros((), leaf.dtype)
        return jnp.zeros_like(leaf)

    zeros = jax.tree.map(jnp.zeros_like, group)
    return Moments(jnp.zeros((), jnp.int32), zeros, jax.tree.map(second, group))


def tree_norm(tree: Any) -> Float[Array, ""]:
    return jnp.sqrt(_squared_norm(tree))


def _squared_norm(tree: Any) -> Float[Array, ""]:
    return jnp.sum(jnp.stack([jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)]))


def group_squares(gradients: Params) -> tuple[Float[Array, ""], Float[Array, ""]]:
    policy, critic = (_squared_norm(group) for group in _policy_and_critic(gradients))
    return policy, critic


def squares_and_distance(
    gradients: Params, mean: Params
) -> tuple[tuple[Float[Array, ""], Float[Array, ""]], Float[Array, ""]]:
    """Return `group_squares` and |g - m|; on a GPU, one kernel per leaf computes both."""
    (policy, near), (critic, far) = map(
        _group_sums, _policy_and_critic(gradients), _policy_and_critic(mean)
    )
    return (policy, critic), jnp.sqrt(near + far)


def _group_sums(group: Params, mean: Params) -> tuple[Float[Array, ""], Float[Array, ""]]:
    leaves, centres = (_few_leaves(tree) for tree in (group, mean))
    sums = [_two_sums(leaf, centre) for leaf, centre in zip(leaves, centres, strict=True)]
    own, away = (jnp.sum(jnp.stack(parts)) for parts in zip(*sums, strict=True))
    return own, away


def _two_sums(leaf: Array, centre: Array) -> tuple[Array, Array]:
    def add(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
        return one[0] + other[0], one[1] + other[1]

    zero = jnp.zeros((), leaf.dtype)
    squares = (jnp.square(leaf), jnp.square(leaf - centre))
    own, away = jax.lax.reduce(squares, (zero, zero), add, tuple(range(leaf.ndim)))
    return own, away


def _few_leaves(tree: Any) -> list[Array]:
    leaves = jax.tree.leaves(tree)
    small = [leaf.reshape(-1) for leaf in leaves if leaf.size <= _SMALL]
    few = [leaf for leaf in leaves if leaf.size > _SMALL]
    if small:
        few.append(jnp.concatenate(small))
    return few


# Fields of `Settings` -> hyperparameters; the critic's have the prefix `vf_`.
_SHARED = {"max_grad_norm": "max_grad_norm", "beta1": "adam_beta1", "beta2": "adam_beta2",
           "eps": "adam_eps", "weight_decay": "weight_decay"}  # fmt: skip


def _optimiser_settings(plan: Plan, hypers: Hypers, sizes: StepSizes) -> tuple[Settings, Settings]:
    separate = hypers.separate_vf_optimiser > 0.0
    momentum = hypers.sgd_momentum
    if plan.optimiser == "muon":
        momentum = hypers.muon_momentum
    shared = {field: getattr(hypers, name) for field, name in _SHARED.items()}
    own = {
        field: jnp.where(separate, getattr(hypers, f"vf_{name}"), shared[field])
        for field, name in _SHARED.items()
    }
    policy = Settings(sizes.policy, **shared, momentum=momentum)
    return policy, Settings(sizes.critic, **own, momentum=momentum)


def apply_gradients(
    plan: Plan,
    hypers: Hypers,
    sizes: StepSizes,
    gradients: Params,
    *,
    params: Params,
    moments: tuple[State, State],
    squares: tuple[Float[Array, ""], Float[Array, ""]] | None = None,
) -> tuple[Params, tuple[State, State], Float[Array, ""]]:
    """Take one step; return new parameters, new moments and the global gradient norm.

    `squares` are the gradients' `group_squares`; if None, they are computed here.

    Gradients are clipped by their global norm (over all parameters, or over each group with
    `separate_vf_optimiser`) and give a direction d. A parameter p becomes p - lr (d + decay p):

    - adam (Kingma & Ba 2015, no decay), adamw (Loshchilov & Hutter 2019)
    - adam_l2: adam of g + decay p with clipped g, and no further decay in d (`weight_decay` of
      torch.optim.Adam)
    - sgd: m = momentum m + g, d = m (Sutskever et al. 2013, without Nesterov's look-ahead)
    - muon (Jordan 2024): matrices by `_muon_directions`, all other parameters as in adamw with
      Nesterov's look-ahead (Dozat 2016), as in optax.contrib.muon

    A registered optimiser returns the update to add to p (see `own_optimisers.register`).
    """
    own = own_optimiser(plan.optimiser)
    separate = hypers.separate_vf_optimiser > 0.0
    square_policy, square_critic = squares or group_squares(gradients)
    norm = jnp.sqrt(square_policy + square_critic)
    norms = [jnp.where(separate, jnp.sqrt(own), norm) for own in (square_policy, square_critic)]
    new_params: Params = {}
    new_moments = []
    for group, gradient, moment, group_norm, settings in zip(
        _policy_and_critic(params),
        _policy_and_critic(gradients),
        moments,
        norms,
        _optimiser_settings(plan, hypers, sizes),
        strict=True,
    ):
        scale = jnp.minimum(1.0, settings.max_grad_norm / group_norm)
        clipped = jax.tree.map(lambda g, scale=scale: g * scale, gradient)
        if own is not None:
            moved, moment = step_own(own, settings, group, clipped, moment)
        else:
            moved, moment = _step_group(plan, settings, group, clipped, moment)
        new_params |= moved
        new_moments.append(moment)
    return new_params, (new_moments[0], new_moments[1]), norm


def _step_group(
    plan: Plan, settings: Settings, group: Params, gradient: Params, state: Moments
) -> tuple[Params, Moments]:
    decay, size = settings.weight_decay, settings.learning_rate

    def decayed(tree: Any) -> Any:
        return jax.tree.map(lambda d, p: d + decay * p, tree, group)

    if plan.optimiser == "adam_l2":
        gradient = decayed(gradient)
    if plan.optimiser == "sgd":
        direction = jax.tree.map(lambda m, g: settings.momentum * m + g, state.mu, gradient)
        state = Moments(state.count + 1, direction, state.nu)
    elif plan.optimiser == "muon":
        direction, state = _muon_directions(plan, settings, gradient, state)
    else:
        direction, state = _adam_directions(settings, gradient, state)
    if plan.optimiser not in ("adam", "adam_l2"):
        direction = decayed(direction)
    return jax.tree.map(lambda p, d: p - size * d, group, direction), state


def _adam_directions(
    settings: Settings, gradient: Any, moments: Moments, nesterov: bool = False
) -> tuple[Any, Moments]:
    adam = optax.scale_by_adam(settings.beta1, settings.beta2, settings.eps, nesterov=nesterov)
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an int32 power
        direction, moved = adam.update(gradient, moments)
    assert isinstance(moved, Moments)
    return direction, moved


def _muon_directions(
    plan: Plan, settings: Settings, gradient: Params, moments: Moments
) -> tuple[Params, Moments]:
    """Return Muon's directions for matrices, and Adam-Nesterov directions for everything else.

    With m = b m + (1 - b) g, both terms bias-corrected, a matrix moves along the orthogonalised b
    m + (1 - b) g (Nesterov's look-ahead), times sqrt(max(1, outputs / inputs)).
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(gradient)
    first, second = (jax.tree.leaves(tree) for tree in (moments.mu, moments.nu))
    directions: list[Any] = [None] * len(paths)
    rest = [i for i, (_, leaf) in enumerate(paths) if leaf.ndim != 2]
    beta, step = settings.momentum, jnp.asarray(moments.count).astype(jnp.float32) + 1.0
    for i, (path, leaf) in enumerate(paths):
        if leaf.ndim == 2:
            first[i] = beta * first[i] + (1.0 - beta) * leaf
            ahead = beta * first[i] / (1.0 - beta ** (step + 1.0))
            ahead = ahead + (1.0 - beta) * leaf / (1.0 - beta**step)
            directions[i] = orthogonalised(ahead) * _width_factor(plan, path, leaf)
    other = [paths[i][1] for i in rest]
    other_first, other_second = [first[i] for i in rest], [second[i] for i in rest]
    rest_moments = Moments(moments.count, other_first, other_second)
    moved, state = _adam_directions(settings, other, rest_moments, nesterov=True)
    moved_first, moved_second = jax.tree.leaves(state.mu), jax.tree.leaves(state.nu)
    for place, i in enumerate(rest):
        directions[i] = moved[place]
        first[i], second[i] = moved_first[place], moved_second[place]
    direction, mu, nu = (structure.unflatten(leaves) for leaves in (directions, first, second))
    return direction, Moments(state.count, mu, nu)


def _width_factor(plan: Plan, path: tuple[Any, ...], matrix: Float[Array, "m n"]) -> float:
    inputs, outputs = matrix.shape
    if jax.tree_util.keystr(path, simple=True, separator="/") in kernels_of_heads(plan):
        inputs, outputs = outputs, inputs
    return max(1.0, outputs / inputs) ** 0.5


def orthogonalised(matrix: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """Return approximately U V^T for X = U S V^T; the final singular values are about 0.7 to 1.2.

    Five steps X <- a X + (b X X^T + c (X X^T)^2) X from X / |X| (a Newton-Schulz iteration with
    the coefficients of Jordan 2024), on the side with fewer rows.
    """
    a, b, c = _QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (jnp.sqrt(jnp.sum(jnp.square(x))) + 1e-8)
    for _ in range(_ITERATIONS):
        gram = jnp.matmul(x, x.T, precision="highest")
        poly = b * gram + c * jnp.matmul(gram, gram, precision="highest")
        x = a * x + jnp.matmul(poly, x, precision="highest")
    return x.T if tall else x


@pytree
class Coefficients(Pytree):
    clip_eps: Float[Array, ""]
    ent_coef: Float[Array, ""]
    valid_mass_coef: Float[Array, ""]
    gae_lambda: Float[Array, ""]
    vf_gae_lambda: Float[Array, ""]


@pytree
class Scheduled(Pytree):
    progress: Float[Array, ""]  # completed share of the full run
    priority_beta: Float[Array, ""]  # exponent of the importance weights
    coefficients: Coefficients
    sizes: StepSizes


def progress_of(
    plan: Plan, hypers: Hypers, state: LaneState, minibatches: int, taken: Float[Array, ""]
) -> Float[Array, ""]:
    """Return the completed share of one lane's full run.

    This is the number of completed updates divided by the number of updates in the full run. With
    `schedule_on_gradient_steps`, gradient steps are counted instead of updates; progress may then
    end below 1, because target_kl skips steps. `state` is the state before this update. Each of an
    epoch's `minibatches` is one gradient step, or each group of `accumulate_minibatches` of them.
    `taken` counts this update's gradient steps so far.
    """
    done = jnp.maximum(state.updates, 0).astype(jnp.float32)
    updates = jnp.maximum(state.total_updates, 1).astype(jnp.float32)
    progress = done / updates
    if "schedule_on_gradient_steps" not in plan.features:
        return progress
    steps_per_epoch = math.ceil(minibatches / plan.accumulate_minibatches)
    steps = updates * (hypers.update_epochs * steps_per_epoch).astype(jnp.float32)
    by_steps = (state.gradient_steps.astype(jnp.float32) + taken) / steps
    return jnp.where(hypers.schedule_on_gradient_steps > 0.0, by_steps, progress)


def scheduled_values(hypers: Hypers, progress: Float[Array, ""]) -> Scheduled:
    one = jnp.ones_like(progress)
    clip_eps = scheduled(
        hypers,
        progress,
        initial=hypers.clip_eps,
        kind=hypers.clip_eps_schedule,
        end_fraction=hypers.clip_eps_end_fraction,
        multiplier=one,
    )
    ent_coef = scheduled(
        hypers,
        progress,
        initial=hypers.ent_coef,
        kind=hypers.ent_schedule,
        end_fraction=hypers.ent_end_fraction,
        multiplier=hypers.ent_schedule_multiplier,
    )
    valid_mass_coef = scheduled(
        hypers,
        progress,
        initial=hypers.valid_mass_coef,
        kind=hypers.valid_mass_schedule,
        end_fraction=hypers.valid_mass_end_fraction,
        multiplier=hypers.valid_mass_schedule_multiplier,
    )
    ends = (hypers.gae_lambda_initial, hypers.gae_lambda_final)
    gae_lambda = annealed_lambda(*ends, progress, hypers.gae_lambda_schedule_multiplier)
    own = hypers.vf_gae_lambda < OFF
    vf_gae_lambda = jnp.where(own, hypers.vf_gae_lambda, gae_lambda)
    share = jnp.where(hypers.anneal_priority_beta > 0.0, jnp.minimum(progress, 1.0), 0.0)
    return Scheduled(
        progress=progress,
        priority_beta=hypers.priority_beta0 + (1.0 - hypers.priority_beta0) * share,
        coefficients=Coefficients(clip_eps, ent_coef, valid_mass_coef, gae_lambda, vf_gae_lambda),
        sizes=step_sizes(hypers, progress),
    )
