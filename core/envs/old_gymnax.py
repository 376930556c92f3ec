"""Adapts gymnax 1.0 environments to libraries that were written for gymnax 0.0.9."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


def old_gymnax(env: Any) -> Any:
    """Return an environment whose `step` returns the five values of gymnax 0.0.9.

    gymnax 1.0 returns `terminated` and `truncated`, six values in all. rejax, purejaxrl and most
    other code written for gymnax 0.0.9 expect (observation, state, reward, done, info). An
    environment that already returns five values is not changed.

    >>> import gymnax, jax
    >>> env, params = gymnax.make("CartPole-v1")
    >>> env = old_gymnax(env)
    >>> observation, state = env.reset(jax.random.key(0), params)
    >>> with jax.numpy_dtype_promotion("standard"):
    ...     len(env.step(jax.random.key(1), state, 0, params))
    5
    """
    if not hasattr(env, "is_truncated"):
        return env
    return OldGymnax(env)


class OldGymnax:
    """See `old_gymnax`; all other attributes come from the wrapped environment."""

    def __init__(self, env: Any):
        self._env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # looked up by copy and pickle before `_env` exists
            raise AttributeError(name)
        return getattr(self._env, name)

    def __deepcopy__(self, memo: Any) -> OldGymnax:
        return self  # it has no state, and its jitted methods cannot be copied

    def reset(self, key: Any, params: Any = None) -> tuple[Any, Any]:
        return self._env.reset(key, params)

    def step(self, key: Any, state: Any, action: Any, params: Any = None) -> tuple[Any, ...]:
        observation, state, reward, terminated, truncated, info = self._env.step(
            key, state, action, params
        )
        return observation, state, reward, jnp.logical_or(terminated, truncated), info

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        """Step without a reset; `done` includes the time limit, as in gymnax 0.0.9."""
        observation, state, reward, terminated, info = self._env.step_env(
            key, state, action, params
        )
        truncated = self._env.is_truncated(state, params)
        return observation, state, reward, jnp.logical_or(terminated, truncated), info
