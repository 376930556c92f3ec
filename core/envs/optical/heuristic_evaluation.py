"""Heuristics over seeds and loads in one compiled program: blocking with means and intervals.

Streams of requests depend on the seed alone, so every heuristic and load of one seed sees the same
draws and differences between them are paired.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from ...pytree import where
from .agents import Rule, begin_all, make_agent
from .optical_environment import OpticalEnvironment
from .traffic import WORDS_PER_REQUEST, OpticalParams, random_words

BLOCK = 128
"""Requests whose random words are drawn at once."""
TILE = 8
"""Lanes that run side by side on one device."""


@dataclass(frozen=True)
class Summary:
    mean: float
    std: float  # ddof 1; 0 for one seed
    error: float  # standard error of the mean
    low: float  # lower end of the 95 % interval; nan for fewer than 5 seeds
    high: float  # upper end; 3 / requests, the 95 % bound, if nothing was blocked


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Sums of one heuristic over the evaluated requests, one row per load, one column per seed."""

    loads: np.ndarray  # Erlang, [P]
    requests: int  # requests counted per seed, warm-up excluded
    blocked: np.ndarray  # services, float64 [P, seeds]
    bitrate: np.ndarray  # Gb/s asked for, float64 [P, seeds]
    bitrate_blocked: np.ndarray  # Gb/s refused, float64 [P, seeds]
    utilisation: np.ndarray  # mean share of slots in use, float64 [P, seeds]; nan if not asked for

    @property
    def service_blocking(self) -> np.ndarray:
        return self.blocked / self.requests

    @property
    def bitrate_blocking(self) -> np.ndarray:
        return self.bitrate_blocked / np.maximum(self.bitrate, np.finfo(np.float64).tiny)

    def service_summary(self, load: int = 0) -> Summary:
        return summarise_seeds(self.service_blocking[load], self.requests)

    def bitrate_summary(self, load: int = 0) -> Summary:
        return summarise_seeds(self.bitrate_blocking[load], self.requests)


def summarise_seeds(values: np.ndarray, requests: int) -> Summary:
    """Mean, spread and Student's 95 % interval over seeds, which is nan below 5 seeds."""
    from scipy import stats

    count = len(values)
    mean, std = float(values.mean()), float(values.std(ddof=1)) if count > 1 else 0.0
    error = std / math.sqrt(count)
    if not values.any():
        return Summary(0.0, 0.0, 0.0, 0.0, 3.0 / (count * requests))
    if count < 5:
        return Summary(mean, std, error, math.nan, math.nan)
    reach = float(stats.t.ppf(0.975, count - 1)) * error
    return Summary(mean, std, error, max(mean - reach, 0.0), min(mean + reach, 1.0))


def evaluate_heuristic(
    environment: OpticalEnvironment,
    name: Rule,
    *,
    seeds: int = 10,
    steps: int = 20_000,
    seed: int = 0,
    loads: Sequence[float] | None = None,
    utilisation: bool = False,
) -> Evaluation:
    """Serve `steps` requests per seed with a heuristic, after the environment's warm-up.

    Episodes of an environment that is not continuous follow each other without a break. Seed i is
    the stream of `fold_in(key(seed), i)`. Seeds are spread over all of jax's devices.
    """
    chosen = np.array([environment.settings.load] if loads is None else loads, np.float64)
    make_agent(name, environment)  # refuses an unknown name before anything is compiled
    lanes = len(chosen) * seeds
    devices = math.gcd(lanes, len(jax.local_devices()))
    program = _program(environment, name, steps, utilisation, devices)
    streams = seed_streams(seed, seeds)
    keys = jnp.broadcast_to(streams[None], (len(chosen), seeds)).reshape(lanes)
    erlang = jnp.asarray(np.repeat(chosen, seeds), jnp.float32)
    sums = jax.device_get(program(keys, erlang))
    rows = {
        name: np.asarray(value, np.float64).reshape(len(chosen), -1)
        for name, value in sums.items()
    }
    used = rows.pop("utilisation", np.full_like(rows["blocked"], np.nan)) / steps
    return Evaluation(chosen, steps, **rows, utilisation=used)


def seed_streams(seed: int, seeds: int) -> jax.Array:
    fold = functools.partial(jax.random.fold_in, jax.random.key(seed))
    return jax.vmap(fold)(jnp.arange(seeds, dtype=jnp.uint32))


@functools.lru_cache(maxsize=32)
def _program(
    environment: OpticalEnvironment, rule: Rule, steps: int, utilisation: bool, devices: int
) -> Callable[[jax.Array, jax.Array], dict[str, jax.Array]]:
    run = _Lanes(environment, rule, steps, utilisation).sums
    if devices == 1:
        return jax.jit(run)
    mesh, each = (
        Mesh(np.array(jax.local_devices()[:devices]), ("devices",)),
        PartitionSpec("devices"),
    )
    # check_vma is off: the lanes never talk to each other, and the scan's constant start would
    # have to be marked as varying leaf by leaf.
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=each, out_specs=each, check_vma=False))


@dataclass(frozen=True, eq=False)
class _Lanes:
    environment: OpticalEnvironment
    rule: Rule
    steps: int  # counted after the warm-up
    utilisation: bool

    def sums(self, keys: jax.Array, loads: jax.Array) -> dict[str, jax.Array]:
        """Return sums [lanes] by name; lanes run in tiles that fit a core's cache together."""
        lanes = len(loads)
        tile = next(size for size in range(min(TILE, lanes), 0, -1) if lanes % size == 0)
        tiles = (keys.reshape(-1, tile), loads.reshape(-1, tile))
        tiled = lax.map(lambda each: self._tile(*each), tiles)
        return {key: value.reshape(lanes) for key, value in tiled.items()}

    def _tile(self, keys: jax.Array, loads: jax.Array) -> dict[str, jax.Array]:
        environment, lanes = self.environment, len(loads)
        warmup, default = environment.warmup_steps, environment.default_params
        params = OpticalParams(
            load=loads,
            mean_holding_time=jnp.broadcast_to(default.mean_holding_time, (lanes,)),
            bitrate_scale=jnp.broadcast_to(default.bitrate_scale, (lanes,)),
        )
        split = jax.vmap(functools.partial(jax.random.split, num=2))(keys)
        state, _ = jax.vmap(environment.reset)(split[:, 0], params)
        streams = split[:, 1]
        memory = begin_all(make_agent(self.rule, environment), lanes)

        def block(carry: Any, number: Array) -> tuple[Any, None]:
            state, sums = carry
            block_keys = jax.vmap(jax.random.fold_in, (0, None))(streams, number)
            words = jax.vmap(lambda key: random_words(key, BLOCK * WORDS_PER_REQUEST))(block_keys)
            words = words.reshape(lanes, BLOCK, WORDS_PER_REQUEST).transpose(1, 0, 2)
            position = number.astype(jnp.int32) * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)
            counted = (position >= warmup) & (position < warmup + self.steps)

            def request(carry: Any, inputs: Any) -> tuple[Any, None]:
                words, counted = inputs
                state, sums = carry
                state, seen = jax.vmap(self._request)(words, split[:, 0], state, params)
                add = counted.astype(jnp.float32)
                return (state, jax.tree.map(lambda s, x: s + add * x, sums, seen)), None

            # Sums of a block are whole numbers below 2**24 wherever bitrates are.
            zero = {key: jnp.zeros(lanes) for key in sums}
            (state, part), _ = lax.scan(request, (state, zero), (words, counted))
            return (state, {key: _add(sums[key], part[key]) for key in sums}), None

        sums = {key: (jnp.zeros(lanes), jnp.zeros(lanes)) for key in self._names}
        blocks = jnp.arange(-(-(warmup + self.steps) // BLOCK), dtype=jnp.uint32)
        (_, sums), _ = lax.scan(block, ((state, memory), sums), blocks)
        return {key: high for key, (high, _) in sums.items()}

    @property
    def _names(self) -> tuple[str, ...]:
        return ("blocked", "bitrate", "bitrate_blocked", "utilisation")[: 3 + self.utilisation]

    def _request(
        self, words: Array, reset_key: Array, going: Any, params: Any
    ) -> tuple[Any, dict[str, Array]]:
        environment, (state, memory) = self.environment, going
        agent, offers = make_agent(self.rule, environment), environment.offers(state, params)
        path, start, memory = agent.choose(state, offers, params, memory, words)
        step = environment.serve(words, state, offers, path, start, params)
        seen = {key: step.info[key] for key in self._names}
        if environment.never_ends:
            return (step.state, memory), seen
        fresh, _ = environment.reset(jax.random.fold_in(reset_key, words[0]), params)
        done = step.terminated | step.truncated
        return where(done, (fresh, agent.begin()), (step.state, memory)), seen


def _add(total: tuple[Array, Array], part: Array) -> tuple[Array, Array]:
    """Kahan's sum: (sum, rounding error so far)."""
    high, lost = total
    term = part - lost
    new = high + term
    return new, (new - high) - term
