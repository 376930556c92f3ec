"""Checks an environment's shapes before anything is compiled or written.

Errors in the environment's code are shown in full, with the user's file and line. Differences from
the declared shapes, or from the result of `reset`, are listed leaf by leaf.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from ...errors import ConfigError, HpoError, format_traceback, shown_path
from ..pytree import is_key
from ..traced_twice import trace_twice
from . import contract
from .contract import Box, Discrete, Environment, MultiDiscrete, agents_of

_PARTS = ("id", "action_space", "observation_struct", "has_mask", "never_ends", "warmup_steps",
          "default_params", "reset", "step", "action_mask", "summarise")  # fmt: skip
_MOST = 8


def trace_once(env: Any) -> None:
    """Reject an environment that would not compile, by tracing it without computing anything."""
    if isinstance(env, contract.HostedEnvironment):  # checked by its library, when it is made
        return
    _check_parts(env)
    key = jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32"))
    params = jax.tree.map(lambda _: jax.ShapeDtypeStruct((), np.float32), env.default_params)
    state, observation = _state_and_observation(env, _result_shapes(env, "reset", key, params))
    expected = {"observation": _per_agent(env, env.observation_struct)}
    _compare_parts(env, "reset", {"observation": observation}, expected)
    number, flag = (jax.ShapeDtypeStruct((), dtype) for dtype in (np.float32, np.bool_))
    reward = jax.ShapeDtypeStruct(lead_axes(env), np.float32)
    wanted = {"state": state, **expected, "reward": reward, "terminated": flag, "truncated": flag}
    after = _result_shapes(env, "step", key, state, action_struct(env), params)
    _check_step(env, "step", after, wanted)
    if isinstance(env, contract.ShadowedEnvironment) and env.has_shadow:
        shadow = _result_shapes(env, "shadow_step", key, state, params)
        _check_step(env, "shadow_step", shadow, wanted)
    if env.has_mask:
        mask = jax.ShapeDtypeStruct((*lead_axes(env), mask_size(env)), np.bool_)
        given = _result_shapes(env, "action_mask", state, params)
        _compare_parts(env, "action_mask", {"the mask": given}, {"the mask": mask})
    metrics = dict(_result_shapes(env, "summarise", dict.fromkeys(after.info, number), number))
    scalars = {name: jax.ShapeDtypeStruct((), leaf.dtype) for name, leaf in metrics.items()}
    _compare_parts(env, "summarise", {"metrics": metrics}, {"metrics": scalars})


@contextmanager
def calling(what: str) -> Generator[None, None, None]:
    """Convert errors in user code into a `ConfigError` with their traceback."""
    try:
        yield
    except HpoError:
        raise
    except Exception as error:
        raise ConfigError(f"{what}: {format_traceback(error)}") from error


def lead_axes(env: Environment) -> tuple[int, ...]:
    if agents_of(env) == 1:
        return ()
    return (agents_of(env),)


def action_struct(env: Environment) -> jax.ShapeDtypeStruct:
    space, lead = env.action_space, lead_axes(env)
    if isinstance(space, Discrete):
        return jax.ShapeDtypeStruct(lead, np.int32)
    if isinstance(space, MultiDiscrete):
        return jax.ShapeDtypeStruct((*lead, len(space.nvec)), np.int32)
    return jax.ShapeDtypeStruct((*lead, *space.shape), np.float32)


def mask_size(env: Environment) -> int:
    space = env.action_space
    if isinstance(space, Box):
        raise ConfigError(f"{env.id} sets has_mask = True, but Box actions have no mask")
    if isinstance(space, Discrete):
        return space.n
    return sum(space.nvec)


def _check_step(env: Environment, method: str, after: Any, wanted: Mapping[str, Any]) -> None:
    missing = [name for name in (*wanted, "info") if not hasattr(after, name)]
    if missing:
        raise ConfigError(
            f"{_place_of(env, method)}: {env.id}.{method} returns {_type_phrase(after)}, which "
            f"has no {missing[0]}; return "
            "hpo.core.envs.contract.Step(state=..., observation=..., ...)"
        )
    wanted = {**wanted, "info": dict.fromkeys(after.info, jax.ShapeDtypeStruct((), np.float32))}
    given = {name: getattr(after, name) for name in wanted} | {"info": dict(after.info)}
    _compare_parts(env, method, given, wanted)


def _check_parts(env: Any) -> None:
    missing = [name for name in _PARTS if not hasattr(env, name)]
    if missing:
        raise ConfigError(
            f"{_place_of(env)}: {type(env).__name__} has no {', '.join(missing)}; an environment "
            "needs all members of hpo.core.envs.contract.Environment"
        )
    if not isinstance(env.action_space, (Discrete, MultiDiscrete, Box)):
        raise ConfigError(
            f"{_place_of(env)}: {env.id}.action_space is {_type_phrase(env.action_space)}; "
            "allowed: Discrete, MultiDiscrete and Box of hpo.core.envs.contract"
        )
    params = env.default_params
    if not dataclasses.is_dataclass(params) or isinstance(params, type):
        raise ConfigError(
            f"{_place_of(env)}: {env.id}.default_params is {_type_phrase(params)}; use a "
            "frozen dataclass of floats, registered with jax.tree_util.register_dataclass"
        )
    leaves = jax.tree.leaves(params)
    if len(leaves) != len(dataclasses.fields(params)) or any(leaf is params for leaf in leaves):
        raise ConfigError(
            f"{_place_of(params)}: jax cannot find the fields of {type(params).__name__}; "
            "decorate it with @jax.tree_util.register_dataclass, and give each field one float"
        )


def _result_shapes(env: Environment, method: str, *structs: Any) -> Any:
    """Return the shapes of a method's results.

    The method is traced twice, which reveals numbers drawn by Python; in a compiled program they
    would be the same in every step.
    """
    with calling(f"environment {env.id}, while {method} is traced"):
        found = trace_twice(getattr(env, method), *structs)
    if found.difference:
        raise ConfigError(f"environment {env.id}, {method}: {found.difference}")
    return found.shapes


def _state_and_observation(env: Environment, made: Any) -> tuple[Any, Any]:
    if isinstance(made, Sequence) and len(made) == 2:
        return made[0], made[1]
    raise ConfigError(
        f"{_place_of(env, 'reset')}: {env.id}.reset returns {_type_phrase(made)}; return (state, "
        "observation)"
    )


def _per_agent(env: Environment, struct: Any) -> Any:
    return jax.tree.map(
        lambda one: jax.ShapeDtypeStruct((*lead_axes(env), *one.shape), one.dtype), struct
    )


_SOURCES = {"state": ", as returned by reset", "observation": ", as in observation_struct"}


def _compare_parts(
    env: Environment, method: str, given: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    found = list(differences(given, wanted, _SOURCES)) or _other_structures(given, wanted)
    if not found:
        return
    lines = found[:_MOST]
    if len(found) > _MOST:
        lines.append(f"and {len(found) - _MOST} more")
    text = "".join(f"\n  {line}" for line in lines)
    raise ConfigError(
        f"{_place_of(env, method)}: {env.id}.{method} returns the wrong structure:{text}"
    )


def _other_structures(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for part in wanted:
        given_tree, wanted_tree = map(jax.tree.structure, (given[part], wanted[part]))
        if given_tree != wanted_tree:
            found.append(
                f"{part} is {given_tree}; it must be {wanted_tree}{_SOURCES.get(part, '')}"
            )
    return found


def differences(
    given: Mapping[str, Any], wanted: Mapping[str, Any], sources: Mapping[str, str] = {}
) -> Iterator[str]:
    """Yield one line per leaf of the `given` pytrees that differs from the `wanted` ones.

    Pytrees are given by name; `sources` describes the origin of each wanted pytree in words.
    """
    given_leaves, wanted_leaves = _named_leaves(given), _named_leaves(wanted)
    for path, leaf in given_leaves.items():
        other, source = wanted_leaves.get(path), _source_of_leaf(path, sources)
        if other is None:
            yield f"{path} is {_dtype_and_shape(leaf)}; remove it"
        elif (leaf.shape, leaf.dtype) != (other.shape, other.dtype):
            hint = _dtype_hint(leaf, other)
            yield (
                f"{path} is {_dtype_and_shape(leaf)}; it must be {_dtype_and_shape(other)}"
                f"{source}{hint}"
            )
    for path, other in wanted_leaves.items():
        if path not in given_leaves:
            yield (
                f"{path} is missing; it must be {_dtype_and_shape(other)}"
                f"{_source_of_leaf(path, sources)}"
            )


def _source_of_leaf(path: str, sources: Mapping[str, str]) -> str:
    return next((words for name, words in sources.items() if path.startswith(name)), "")


def _named_leaves(trees: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"{name}{jax.tree_util.keystr(path)}": leaf
        for name, tree in trees.items()
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _dtype_and_shape(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def _dtype_hint(leaf: Any, other: Any) -> str:
    if is_key(leaf) or is_key(other) or leaf.shape != other.shape:
        return ""
    return f" (write .astype(jnp.{other.dtype}))"


def _type_phrase(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"


def _place_of(thing: Any, method: str | None = None) -> str:
    owner: Any = getattr(thing, "user_class", None)  # of a class with gymnax's API
    if owner is None:
        owner = type(thing)
    elif method is not None:
        method = f"{method}_env"
    code = owner
    if method is not None:
        code = getattr(owner, method, owner)
    try:
        unwrapped: Callable[..., Any] = inspect.unwrap(code)
        line = inspect.getsourcelines(unwrapped)[1]
        path = inspect.getsourcefile(unwrapped)
    except (OSError, TypeError):  # defined at a prompt, without a file
        return f"{type(thing).__name__}"
    return f"{shown_path(str(path))}:{line}"
