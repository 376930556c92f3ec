"""Evaluates heuristics on many seeds and loads in one program; also runs baselines and traces.

Request streams depend only on the seed. All heuristics and loads with the same seed get the same
draws, so their differences are paired.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Int, UInt32

from ....errors import ConfigError
from ...evaluation import Carry, Episodes, last_step, reset_keys, restart_keys, step_words
from ...pytree import Pytree, pytree, where
from ..contract import Environment, Step, differing, pushed, unwrapped
from .heuristics import Heuristic, make_heuristic
from .network_state import Offers, OpticalState, take
from .optical_environment import OpticalEnvironment
from .spectrum import TICKS_PER_HOLDING, unpack
from .traffic import WORDS_PER_REQUEST, OpticalParams, random_words

Words = UInt32[Array, " n"]
Answer = tuple[Int[Array, ""], Int[Array, ""], Any]  # path, start slot, memory after the request


@runtime_checkable
class Agent(Protocol):
    def begin(self) -> Any:
        """Return the initial memory of an episode, a pytree of arrays."""
        ...

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        """Return the placement of the current request, and the updated memory."""
        ...


Rule = str | Heuristic | Agent  # the name of a heuristic, a heuristic, or an agent


@dataclass(frozen=True)
class _HeuristicAgent:
    heuristic: Heuristic

    def begin(self) -> Any:
        return ()

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        return *self.heuristic(state, offers, params), memory


def make_agent(rule: Rule, environment: OpticalEnvironment) -> Agent:
    if isinstance(rule, Agent):
        return rule
    return _HeuristicAgent(make_heuristic(rule, environment))


def begin_all(agent: Agent, count: int) -> Any:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), agent.begin())


_SAMPLING = 0x5A3B1E  # separates an agent's random numbers from the request's


@pytree
class _Memory(Pytree):
    observations: Any  # the policy's last ones, oldest first; None if it sees only the newest
    inner: Any  # memory of its network


@dataclass(frozen=True, eq=False)
class PolicyRule:
    environment: OpticalEnvironment  # `check_fits` tests whether the policy can act in it
    policy: Any  # with `history`, `begin` and `act` of `SavedPolicy`
    greedy: bool = True  # take the most likely action instead of a sample

    def begin(self) -> _Memory:
        observations, length = None, self.policy.history
        if length > 1:
            struct = self.environment.observation_struct
            observations = jnp.zeros((length, *struct.shape), struct.dtype)
        return _Memory(observations, self.policy.begin())

    def choose(
        self, state: OpticalState, offers: Offers, params: OpticalParams, memory: Any, words: Words
    ) -> Answer:
        shown = self.environment.observe(state, params)
        observations = key = None
        if memory.observations is not None:
            shown = observations = pushed(memory.observations, shown)
        if not self.greedy:
            key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
            key = jax.random.fold_in(key, _SAMPLING)
        mask = self.environment.action_mask(state, params)
        action, inner = self.policy.act(shown, mask, memory.inner, key)
        return *self.environment.decode(state, offers, action), _Memory(observations, inner)


def check_fits(learnt_in: Environment, environment: OpticalEnvironment) -> None:
    for what, trained, given in differing(unwrapped(learnt_in), environment):
        raise ConfigError(
            f"the {what} in the policy's training ({trained}) differ from those of this "
            f"environment ({given}); use the same slots, k, aggregate_slots, no_op, "
            "observation and topology as in training"
        )


BLOCK = 128  # requests whose random words are drawn at once
TILE = 8  # lanes that run side by side on one device


@dataclass(frozen=True)
class HeuristicSummary:
    mean: float
    std: float  # ddof 1; 0 for one seed
    error: float  # standard error of the mean
    low: float  # lower end of the 95 % interval; nan for fewer than 5 seeds
    high: float  # upper end; 3 / requests, the 95 % bound, if nothing was blocked


@dataclass(frozen=True, eq=False)
class HeuristicSums:
    """A heuristic's sums over the evaluated requests: one row per load, one column per seed."""

    loads: np.ndarray  # Erlang, [P]
    requests: int  # requests counted per seed, warm-up excluded
    blocked: np.ndarray  # services, float64 [P, seeds]
    bitrate: np.ndarray  # Gb/s asked for, float64 [P, seeds]
    bitrate_blocked: np.ndarray  # Gb/s refused, float64 [P, seeds]
    utilisation: np.ndarray  # mean share of slots in use, float64 [P, seeds]; nan if not requested

    @property
    def service_blocking(self) -> np.ndarray:
        return self.blocked / self.requests

    @property
    def bitrate_blocking(self) -> np.ndarray:
        return self.bitrate_blocked / np.maximum(self.bitrate, np.finfo(np.float64).tiny)

    def service_summary(self, load: int = 0) -> HeuristicSummary:
        return summarise_seeds(self.service_blocking[load], self.requests)

    def bitrate_summary(self, load: int = 0) -> HeuristicSummary:
        return summarise_seeds(self.bitrate_blocking[load], self.requests)


def summarise_seeds(values: np.ndarray, requests: int) -> HeuristicSummary:
    """Return the mean, standard deviation, standard error and 95 % Student t interval over seeds.

    The interval is nan for fewer than 5 seeds, and if all rates are equal and above 0.
    """
    from scipy import stats

    count = len(values)
    mean, std = float(values.mean()), 0.0
    if count > 1:
        std = float(values.std(ddof=1))
    error = std / math.sqrt(count)
    if not values.any():
        return HeuristicSummary(0.0, 0.0, 0.0, 0.0, 3.0 / (count * requests))
    if count < 5 or values.min() == values.max():
        return HeuristicSummary(mean, std, error, math.nan, math.nan)
    reach = float(stats.t.ppf(0.975, count - 1)) * error
    return HeuristicSummary(mean, std, error, max(mean - reach, 0.0), min(mean + reach, 1.0))


def evaluate_heuristic(
    environment: OpticalEnvironment,
    name: Rule,
    *,
    seeds: int = 10,
    steps: int = 20_000,
    seed: int = 0,
    loads: Sequence[float] | None = None,
    utilisation: bool = False,
) -> HeuristicSums:
    """Serve `steps` requests per seed with a heuristic, after the environment's warm-up.

    If the environment has episodes, a new one starts whenever an episode ends. Seed i uses the
    random stream `fold_in(key(seed), i)`. Seeds are spread over all of jax's devices.
    """
    if loads is None:
        loads = [environment.settings.load]
    chosen = np.array(loads, np.float64)
    make_agent(name, environment)  # refuses an unknown name before anything is compiled
    lanes = len(chosen) * seeds
    devices = math.gcd(lanes, len(jax.local_devices()))
    program = _lanes_program(environment, name, steps, utilisation, devices)
    streams = seed_streams(seed, seeds)
    keys = jnp.broadcast_to(streams[None], (len(chosen), seeds)).reshape(lanes)
    erlang = jnp.asarray(np.repeat(chosen, seeds), jnp.float32)
    sums = jax.device_get(program(keys, erlang))
    rows = {
        name: np.asarray(value, np.float64).reshape(len(chosen), -1)
        for name, value in sums.items()
    }
    used = rows.pop("utilisation", np.full_like(rows["blocked"], np.nan)) / steps
    return HeuristicSums(chosen, steps, **rows, utilisation=used)


def seed_streams(seed: int, seeds: int) -> jax.Array:
    fold = functools.partial(jax.random.fold_in, jax.random.key(seed))
    return jax.vmap(fold)(jnp.arange(seeds, dtype=jnp.uint32))


@functools.lru_cache(maxsize=32)
def _lanes_program(
    environment: OpticalEnvironment, rule: Rule, steps: int, utilisation: bool, devices: int
) -> Callable[[jax.Array, jax.Array], dict[str, jax.Array]]:
    run = _Lanes(environment, rule, steps, utilisation).sums
    if devices == 1:
        return jax.jit(run)
    mesh = Mesh(np.array(jax.local_devices()[:devices]), ("devices",))
    each = PartitionSpec("devices")
    # check_vma is off: lanes do not communicate, and otherwise every leaf of the scan's constant
    # start would have to be marked as varying.
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=each, out_specs=each, check_vma=False))


@dataclass(frozen=True, eq=False)
class _Lanes:
    environment: OpticalEnvironment
    rule: Rule
    steps: int  # counted after the warm-up
    utilisation: bool

    def sums(self, keys: jax.Array, loads: jax.Array) -> dict[str, jax.Array]:
        """Return sums [lanes] by name; lanes run in tiles that fit into a core's cache."""
        lanes = len(loads)
        tile = next(size for size in range(min(TILE, lanes), 0, -1) if lanes % size == 0)
        tiles = (keys.reshape(-1, tile), loads.reshape(-1, tile))
        tiled = lax.map(lambda each: self._sums_of_tile(*each), tiles)
        return {key: value.reshape(lanes) for key, value in tiled.items()}

    def _sums_of_tile(self, keys: jax.Array, loads: jax.Array) -> dict[str, jax.Array]:
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
                state, info = jax.vmap(self._serve_request)(words, split[:, 0], state, params)
                add = counted.astype(jnp.float32)
                return (state, jax.tree.map(lambda s, x: s + add * x, sums, info)), None

            # Within a block, sums are integers below 2**24 if bitrates are integers.
            zero = {key: jnp.zeros(lanes) for key in sums}
            (state, part), _ = lax.scan(request, (state, zero), (words, counted))
            return (state, {key: _kahan_add(sums[key], part[key]) for key in sums}), None

        sums = {key: (jnp.zeros(lanes), jnp.zeros(lanes)) for key in self._info_names}
        blocks = jnp.arange(-(-(warmup + self.steps) // BLOCK), dtype=jnp.uint32)
        (_, sums), _ = lax.scan(block, ((state, memory), sums), blocks)
        return {key: high for key, (high, _) in sums.items()}

    @property
    def _info_names(self) -> tuple[str, ...]:
        return ("blocked", "bitrate", "bitrate_blocked", "utilisation")[: 3 + self.utilisation]

    def _serve_request(
        self, words: Array, reset_key: Array, going: Any, params: Any
    ) -> tuple[Any, dict[str, Array]]:
        environment, (state, memory) = self.environment, going
        agent, offers = make_agent(self.rule, environment), environment.offers(state, params)
        path, start, memory = agent.choose(state, offers, params, memory, words)
        step = environment.serve(words, state, offers, path, start, params=params)
        info = {key: step.info[key] for key in self._info_names}
        if environment.never_ends:
            return (step.state, memory), info
        fresh, _ = environment.reset(jax.random.fold_in(reset_key, words[0]), params)
        done = step.terminated | step.truncated
        return where(done, (fresh, agent.begin()), (step.state, memory)), info


def _kahan_add(total: tuple[Array, Array], part: Array) -> tuple[Array, Array]:
    """Add a term by Kahan summation; return (sum, rounding error so far)."""
    high, lost = total
    term = part - lost
    new = high + term
    return new, (new - high) - term


def evaluate_baseline(
    environment: OpticalEnvironment,
    rule: Rule,
    params: OpticalParams,
    keys: UInt32[np.ndarray, "R 2"],
    *,
    episodes: int,
    steps: int | None,
) -> Episodes:
    """Return a heuristic's results for the requests of R replicates, [R, episodes] on the host."""

    def run(key: UInt32[Array, "2"]) -> Any:
        return _run_replicate(environment, rule, params, key, episodes=episodes, steps=steps)

    return jax.device_get(jax.jit(lambda keys: Episodes(*jax.lax.map(run, keys)))(keys))


def _run_replicate(
    environment: OpticalEnvironment,
    rule: Rule,
    params: OpticalParams,
    key: UInt32[Array, "2"],
    *,
    episodes: int,
    steps: int | None,
) -> tuple[Array, Array, dict[str, Array]]:
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    state, _ = jax.vmap(environment.reset, (0, None))(reset_keys(key, episodes), params)
    agent = make_agent(rule, environment)

    memories = begin_all(agent, episodes)

    def serve(words: UInt32[Array, "2"], state: Any, memory: Any) -> tuple[Step, Any]:
        offers = environment.offers(state, params)
        path, start, memory = agent.choose(state, offers, params, memory, words)
        key = jax.random.wrap_key_data(words, impl="threefry2x32")
        drawn = random_words(key, WORDS_PER_REQUEST)
        after = environment.serve(drawn, state, offers, path, start, params=params)
        return after.replace(observation=()), memory

    def step(carry: Carry) -> Carry:
        words = step_words(key, carry.step, episodes)
        after, memory = jax.vmap(serve)(words, carry.env_state, carry.memory)

        def fresh() -> tuple[Any, Any, Any]:
            started, _ = jax.vmap(environment.reset, (0, None))(restart_keys(words), params)
            return started, (), memories

        return carry.after(environment, after, memory, steps, fresh)

    carry = Carry.initial((episodes,), state, (), memories).with_info(step)
    return carry.played(environment, step, last_step(environment, steps))


def trace_heuristic(
    environment: OpticalEnvironment, name: Rule, *, steps: int | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Serve `steps` requests (None: one episode), with warm-up, starting from an empty network.

    Returns columns with one row per request. Nodes are the topology's ids, and `slots_needed`
    includes guard slots. Times are measured from the start of the episode, in the unit of
    `mean_holding_time` or of the request list. `departure` is inf if services never end. If the
    action refuses its request, km, hops and slots are 0. `occupancy`, bool [links, S], is the
    state after the last request.
    """
    count = steps
    if count is None:
        count = environment.max_requests
    key = jax.random.fold_in(jax.random.key(seed), jnp.uint32(0))
    rows, words = jax.device_get(_trace_program(environment, name, count)(key))
    tables, ended = environment.tables, rows.pop("ended")
    pair, path = rows.pop("pair"), rows["path"]
    ids = np.array(tables.topology.node_ids)
    ends = tables.paths.pairs[pair]
    episode = np.concatenate([[0], np.cumsum(ended)[:-1]])
    hops, km = _path_lengths(environment, pair, path)
    arrival, departure = _arrival_times(environment, rows, episode)
    columns = {
        "step": np.arange(len(pair)),
        "episode": episode,
        "source": ids[ends[:, 0]],
        "destination": ids[ends[:, 1]],
        "bitrate": rows["bitrate"],
        "action": rows["action"],
        "path": path,
        "path_km": km,
        "hops": hops,
        "slot": rows["slot"],
        "slots_needed": np.where(hops > 0, rows["need"], 0),
        "accepted": rows["accepted"],
        "arrival": arrival,
        "departure": departure,
        "valid_actions": rows["valid_actions"],
    }
    return {**columns, "occupancy": np.asarray(unpack(jnp.asarray(words[-1]), environment.slots))}


def _path_lengths(
    environment: OpticalEnvironment, pair: np.ndarray, path: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    tables = environment.tables
    counts, hops = np.asarray(tables.hop_counts), np.asarray(tables.hops)
    real = (path >= 0) & (path < environment.num_paths)
    at = (pair, np.where(real, path, 0))
    count = np.where(real, counts[at], 0)
    counted = np.arange(hops.shape[-1]) < count[:, None]
    return count, np.where(counted, tables.km[hops[at]], 0.0).sum(1)


def _arrival_times(
    environment: OpticalEnvironment, rows: dict[str, np.ndarray], episode: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    given = environment.traffic.requests
    if given is not None:
        at = np.minimum(rows["number"], len(given) - 1)
        arrival, lasts = given.arrival[at], given.duration[at]
    else:
        tick = float(environment.default_params.mean_holding_time) / TICKS_PER_HOLDING
        waits = rows["wait"].astype(np.float64)
        clock = np.concatenate([[0.0], np.cumsum(waits)[:-1]])
        first = np.searchsorted(episode, episode)  # row of each episode's first request
        arrival = (clock - clock[first]) * tick
        lasts = rows["holding"].astype(np.float64) * tick
    if environment.settings.incremental:
        lasts = np.full(len(lasts), np.inf)
    return arrival, arrival + lasts


@functools.lru_cache(maxsize=32)
def _trace_program(environment: OpticalEnvironment, name: Rule, steps: int):
    params, agent = environment.default_params, make_agent(name, environment)

    def request(carry: Any, words_of: tuple[Array, Array]) -> tuple[Any, Any]:
        (state, memory), reset_key = carry
        words, reset_words = words_of
        offers = environment.offers(state, params)
        path, start, memory = agent.choose(state, offers, params, memory, words)
        step = environment.serve(words, state, offers, path, start, params=params)
        done = step.terminated | step.truncated
        row = {
            "pair": state.request.pair,
            "number": state.number,
            "bitrate": state.request.bitrate * params.bitrate_scale,
            "action": environment.encode(state, offers, path, start),
            "path": path,
            "slot": start,
            "need": take(offers.need, jnp.clip(path, 0, environment.num_paths - 1)),
            "accepted": step.info["blocked"] == 0,
            "holding": state.request.holding,
            "wait": environment.traffic.wait(words, state.number, params),
            "valid_actions": environment.action_mask(state, params).sum(dtype=jnp.int32),
            "ended": done,
        }
        fresh, _ = environment.reset(jax.random.fold_in(reset_key, reset_words), params)
        after = where(done, (fresh, agent.begin()), (step.state, memory))
        return (after, reset_key), (row, environment.resources.occupancy(step.state.held))

    def run(key: Array) -> Any:
        reset_key, stream = jax.random.split(key)
        state, _ = environment.reset(reset_key, params)
        blocks = -(-steps // BLOCK)
        keys = jax.vmap(functools.partial(jax.random.fold_in, stream))(
            jnp.arange(blocks, dtype=jnp.uint32)
        )
        words = jax.vmap(lambda k: random_words(k, BLOCK * WORDS_PER_REQUEST))(keys)
        words = words.reshape(-1, WORDS_PER_REQUEST)[:steps]
        start = ((state, agent.begin()), reset_key)
        return lax.scan(request, start, (words, words[:, 0]))[1]

    return jax.jit(run)
