"""Heuristics over seeds and loads in one compiled program: blocking with means and intervals.

Streams of requests depend on the seed alone, never on what was accepted, so every heuristic and
every load of one seed sees the same draws and differences between them are paired.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float, Int

from ...pytree import Pytree, pytree
from .agents import Rule, begin_all, make_agent, restarted
from .heuristics import Choice, Heuristic, make_heuristic
from .network_state import FlexibleGrid, Offers, OpticalState, SharedLightpaths, share_of_slots
from .optical_environment import OpticalEnvironment, make_from_keys
from .traffic import WORDS_PER_REQUEST, OpticalParams, random_words

BLOCK = 128
"""Requests whose random words are drawn at once."""
TILE = 8
"""Lanes that run side by side on one device."""


@dataclass(frozen=True)
class Summary:
    """A figure over seeds.

    Attributes:
        mean: over seeds.
        std: of the seeds, ddof 1; 0 for one seed.
        error: standard error of the mean.
        low: lower end of the 95 % interval; nan for fewer than 5 seeds.
        high: upper end of it. Where nothing was blocked at all it is 3 / requests, the 95 % bound.
    """

    mean: float
    std: float
    error: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Sums of one heuristic over the evaluated requests, one row per load, one column per seed.

    Attributes:
        loads: Erlang, [P].
        requests: requests counted per seed, warm-up excluded.
        blocked: services, float64 [P, seeds].
        bitrate: Gb/s asked for, float64 [P, seeds].
        bitrate_blocked: Gb/s refused, float64 [P, seeds].
        utilisation: mean share of slots in use, float64 [P, seeds]; nan if not asked for.
    """

    loads: np.ndarray
    requests: int
    blocked: np.ndarray
    bitrate: np.ndarray
    bitrate_blocked: np.ndarray
    utilisation: np.ndarray

    @property
    def service_blocking(self) -> np.ndarray:
        """Share of services refused, [P, seeds]."""
        return self.blocked / self.requests

    @property
    def bitrate_blocking(self) -> np.ndarray:
        """Share of bitrate refused, [P, seeds]."""
        return self.bitrate_blocked / np.maximum(self.bitrate, np.finfo(np.float64).tiny)

    def service_summary(self, load: int = 0) -> Summary:
        """Service blocking over seeds at one load."""
        return summarise_seeds(self.service_blocking[load], self.requests)

    def bitrate_summary(self, load: int = 0) -> Summary:
        """Bitrate blocking over seeds at one load."""
        return summarise_seeds(self.bitrate_blocking[load], self.requests)


def summarise_seeds(values: np.ndarray, requests: int) -> Summary:
    """Mean, spread and 95 % interval of a blocking probability over seeds.

    The interval is Student's t; it is left out (nan) below 5 seeds.
    """
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

    Args:
        environment: the environment; its settings give warm-up, traffic and network.
        name: of a heuristic, or a rule such as `policy_rule.make_policy_rule` gives.
        seeds: independent streams.
        steps: requests counted per seed.
        seed: root of the streams.
        loads: Erlang; every load is served with the same streams. None takes the settings' load.
        utilisation: count it too (a few per cent slower).

    Raises:
        UnknownNameError: no such heuristic.
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
    table = {key: np.asarray(value, np.float64).reshape(-1, seeds) for key, value in sums.items()}
    return Evaluation(
        loads=chosen,
        requests=steps,
        blocked=table["blocked"],
        bitrate=table["bitrate"],
        bitrate_blocked=table["bitrate_blocked"],
        utilisation=table["utilisation"] / steps
        if utilisation
        else np.full_like(table["blocked"], np.nan),
    )


def seed_streams(seed: int, seeds: int) -> jax.Array:
    """Return the typed keys of streams 0 .. seeds-1 of a root."""
    fold = functools.partial(jax.random.fold_in, jax.random.key(seed))
    return jax.vmap(fold)(jnp.arange(seeds, dtype=jnp.uint32))


@functools.lru_cache(maxsize=32)
def _program(
    environment: OpticalEnvironment,
    name: Rule,
    steps: int,
    utilisation: bool,
    devices: int,
) -> Callable[[jax.Array, jax.Array], dict[str, jax.Array]]:
    """The compiled evaluation: (keys [lanes], loads [lanes]) -> sums [lanes] by name."""
    run = functools.partial(run_tiles, environment, name, steps, utilisation)
    if devices == 1:
        return jax.jit(run)
    mesh = Mesh(np.array(jax.local_devices()[:devices]), ("devices",))
    spec = PartitionSpec("devices")
    # check_vma is off: the lanes never talk to each other, and the scan's constant start would
    # have to be marked as varying leaf by leaf.
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))


def run_tiles(
    environment: OpticalEnvironment,
    name: Rule,
    steps: int,
    utilisation: bool,
    keys: jax.Array,
    loads: jax.Array,
) -> dict[str, jax.Array]:
    """`_run_lanes` on groups of lanes whose states fit a core's cache together."""
    lanes = len(loads)
    tile = next(size for size in range(min(TILE, lanes), 0, -1) if lanes % size == 0)
    run = functools.partial(_run_lanes, environment, name, steps, utilisation)
    tiled = lax.map(lambda lane: run(*lane), (keys.reshape(-1, tile), loads.reshape(-1, tile)))
    return {key: value.reshape(lanes) for key, value in tiled.items()}


def _run_lanes(
    environment: OpticalEnvironment,
    name: Rule,
    steps: int,
    utilisation: bool,
    keys: jax.Array,
    loads: jax.Array,
) -> dict[str, jax.Array]:
    """Warm-up, then `steps` counted requests, on every lane."""
    lanes, warmup = len(loads), environment.warmup_steps
    params = OpticalParams(
        load=loads,
        mean_holding_time=jnp.broadcast_to(environment.default_params.mean_holding_time, (lanes,)),
        bitrate_scale=jnp.broadcast_to(environment.default_params.bitrate_scale, (lanes,)),
    )
    split = jax.vmap(functools.partial(jax.random.split, num=2))(keys)
    state, _ = jax.vmap(environment.reset)(split[:, 0], params)
    streams = split[:, 1]
    one = functools.partial(_one_request, environment, name, utilisation)
    memory = begin_all(make_agent(name, environment), lanes)

    def block(carry: Any, number: Array) -> tuple[Any, None]:
        state, sums = carry
        block_keys = jax.vmap(jax.random.fold_in, (0, None))(streams, number)
        words = jax.vmap(lambda key: random_words(key, BLOCK * WORDS_PER_REQUEST))(block_keys)
        words = words.reshape(lanes, BLOCK, WORDS_PER_REQUEST).transpose(1, 0, 2)
        position = number.astype(jnp.int32) * BLOCK + jnp.arange(BLOCK, dtype=jnp.int32)
        counted = (position >= warmup) & (position < warmup + steps)

        def request(carry: Any, inputs: Any) -> tuple[Any, None]:
            words, counted = inputs
            state, sums = carry
            state, seen = jax.vmap(one)(words, split[:, 0], state, params)
            add = counted.astype(jnp.float32)
            return (state, jax.tree.map(lambda s, x: s + add * x, sums, seen)), None

        # Sums of a block are whole numbers below 2**24 wherever bitrates are.
        zero = {key: jnp.zeros(lanes) for key in sums}
        (state, part), _ = lax.scan(request, (state, zero), (words, counted))
        return (state, {key: _add(sums[key], part[key]) for key in sums}), None

    names = ["blocked", "bitrate", "bitrate_blocked", *(["utilisation"] if utilisation else [])]
    sums = {key: (jnp.zeros(lanes), jnp.zeros(lanes)) for key in names}
    blocks = -(-(warmup + steps) // BLOCK)
    (_, sums), _ = lax.scan(block, ((state, memory), sums), jnp.arange(blocks, dtype=jnp.uint32))
    return {key: high for key, (high, _) in sums.items()}


def _add(total: tuple[Array, Array], part: Array) -> tuple[Array, Array]:
    """Kahan's sum: (sum, what rounding lost so far)."""
    high, lost = total
    term = part - lost
    new = high + term
    return new, (new - high) - term


def _one_request(
    environment: OpticalEnvironment,
    name: Rule,
    utilisation: bool,
    words: Array,
    reset_key: Array,
    going: Any,
    params: Any,
) -> tuple[Any, dict[str, Array]]:
    """Serve one request, given (state, memory); a lane whose episode ends starts the next one."""
    state, memory = going
    agent, offers = make_agent(name, environment), environment.offers(state, params)
    path, start, memory = agent.choose(state, offers, params, memory, words)
    step = environment.serve(words, state, offers, path, start, params)
    seen = {key: step.info[key] for key in ("blocked", "bitrate", "bitrate_blocked")}
    if utilisation:
        occupancy = environment.resources.occupancy(step.state.held)
        seen["utilisation"] = share_of_slots(occupancy, environment.slots)
    if environment.never_ends:
        return (step.state, memory), seen
    again = jax.random.fold_in(reset_key, words[0])
    fresh, _ = environment.reset(again, params)
    done = step.terminated | step.truncated
    return restarted(done, (fresh, agent.begin()), (step.state, memory)), seen


PUBLISHED_SEEDS = 10
ALLOWED_ERRORS = 3.0


@dataclass(frozen=True)
class Published:
    """One figure measured elsewhere.

    Attributes:
        load: Erlang.
        heuristic: which served.
        blocking: service blocking probability.
        keys: of `env:`, beside those all figures share.
    """

    load: float
    heuristic: str
    blocking: float
    keys: dict[str, Any] = field(default_factory=dict)


PUBLISHED = (
    Published(150.0, "ksp_ff", 0.0084),
    Published(150.0, "ff_ksp", 0.0121),
    Published(200.0, "ksp_ff", 0.0546),
    Published(200.0, "ff_ksp", 0.0684),
    Published(250.0, "ksp_ff", 0.1152),
    Published(250.0, "ff_ksp", 0.1297),
    Published(250.0, "ksp_ff", 0.0246, {"truncate_holding_time": True}),
    Published(250.0, "ff_ksp", 0.0330, {"truncate_holding_time": True}),
    Published(250.0, "ksp_ff", 0.1325, {"path_order": "distance"}),
    Published(250.0, "ksp_ff", 0.1214, {"path_order": "hops_distance"}),
)


@dataclass(frozen=True)
class Comparison:
    """Our figure beside a published one.

    Attributes:
        published: the figure.
        service: our service blocking over seeds.
        bitrate: our bitrate blocking over seeds.
        errors: difference in joint standard errors; the published figure's own error is taken
            from our spread of seeds.
        agrees: whether it is at most three.
    """

    published: Published
    service: Summary
    bitrate: Summary
    errors: float
    agrees: bool


def compare_with_published(
    seeds: int = 40, steps: int = 20_000, warmup: int = 3_000, seed: int = 0
) -> Iterator[Comparison]:
    """Measure every published figure, one after the other.

    Args:
        seeds: independent streams, at least 2.
        steps: requests counted per seed.
        warmup: requests before them.
        seed: root of the streams.
    """
    for figure in PUBLISHED:
        environment = make_from_keys(load=figure.load, warmup_requests=warmup, **figure.keys)
        found = evaluate_heuristic(
            environment, figure.heuristic, seeds=seeds, steps=steps, seed=seed
        )
        service = found.service_summary()
        joint = service.std * math.sqrt(1 / seeds + 1 / PUBLISHED_SEEDS)
        errors = (service.mean - figure.blocking) / joint
        agrees = abs(errors) <= ALLOWED_ERRORS
        yield Comparison(figure, service, found.bitrate_summary(), errors, agrees)


@dataclass(frozen=True, eq=False)
class Surveyed:
    """One heuristic in one environment.

    Attributes:
        environment: that served.
        rule: name of the heuristic.
        evaluation: what it blocked, at the environment's load.
    """

    environment: OpticalEnvironment
    rule: str
    evaluation: Evaluation


@pytree
class _Paths(Pytree):
    """The arrays of `NetworkTables` that depend on the order of paths, [R, K, ...] or [O, ...]."""

    hops: Int[Array | np.ndarray, "... R K H"]
    hop_counts: Int[Array | np.ndarray, "... R K"]
    width: Float[Array | np.ndarray, "... R K"]
    capacity: Float[Array | np.ndarray, "... R K"]


def survey(
    environments: Sequence[OpticalEnvironment],
    rules: Sequence[str],
    *,
    seeds: int = 10,
    steps: int = 20_000,
    seed: int = 0,
) -> list[Surveyed]:
    """Evaluate every rule in every environment, as `evaluate_heuristic` would, in one program.

    Args:
        environments: equal in all but `path_order`.
        rules: names of heuristics.
        seeds: independent streams, those of `evaluate_heuristic`.
        steps: requests counted per seed.
        seed: root of the streams.

    Raises:
        UnknownNameError: no such heuristic.
    """
    for rule in rules:
        make_heuristic(rule, environments[0])  # refuses an unknown name
    pairs = [(env, rule) for env in range(len(environments)) for rule in range(len(rules))]
    devices = min(len(jax.local_devices()), len(pairs))
    padded = pairs + pairs[-1:] * (-len(pairs) % devices)
    # Device d takes every D-th pair, since neighbours in the list cost about the same.
    order = np.arange(len(padded)).reshape(-1, devices).T.reshape(-1)
    chosen = np.array(padded, np.int32)[order]
    base = _with_capacity_of_all(environments)
    program = _survey_program(base, tuple(rules), steps, devices)
    loads = jnp.full(seeds, base.settings.load, jnp.float32)
    sums = jax.device_get(
        program(chosen, _stacked(environments), seed_streams(seed, seeds), loads)
    )
    found = {name: np.empty_like(value) for name, value in sums.items()}
    for name, value in sums.items():
        found[name][order] = value
    return [
        Surveyed(environments[env], rules[rule], _evaluation(base, found, at, steps))
        for at, (env, rule) in enumerate(pairs)
    ]


def _evaluation(
    environment: OpticalEnvironment, found: dict[str, np.ndarray], at: int, steps: int
) -> Evaluation:
    rows = {name: np.asarray(value[at], np.float64)[None] for name, value in found.items()}
    return Evaluation(
        loads=np.array([environment.settings.load]),
        requests=steps,
        blocked=rows["blocked"],
        bitrate=rows["bitrate"],
        bitrate_blocked=rows["bitrate_blocked"],
        utilisation=rows["utilisation"] / steps,
    )


@functools.lru_cache(maxsize=16)
def _survey_program(
    environment: OpticalEnvironment, rules: tuple[str, ...], steps: int, devices: int
):
    """The compiled survey: (pairs [C, 2], tables [O], keys [seeds], loads) -> sums [C, seeds]."""

    def run(pairs: Array, tables: _Paths, keys: Array, loads: Array) -> dict[str, Array]:
        def one(pair: Int[Array, "2"]) -> dict[str, Array]:
            mine = _with_tables(environment, jax.tree.map(lambda table: table[pair[0]], tables))
            rule = _switched(mine, rules, pair[1])
            return run_tiles(mine, rule, steps, True, keys, loads)

        return lax.map(one, pairs)

    mesh = Mesh(np.array(jax.local_devices()[:devices]), ("devices",))
    split, whole = PartitionSpec("devices"), PartitionSpec()
    specs = (split, whole, whole, whole)
    # check_vma is off for the reason given in `evaluate._program`.
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False))


def _switched(
    environment: OpticalEnvironment, rules: Sequence[str], number: Int[Array, ""]
) -> Heuristic:
    """Return the rule of a traced number."""
    branches = [make_heuristic(name, environment) for name in rules]

    def choose(state: OpticalState, offers: Offers, params: OpticalParams) -> Choice:
        return lax.switch(number, branches, state, offers, params)

    return choose


def _with_tables(environment: OpticalEnvironment, paths: _Paths) -> OpticalEnvironment:
    """The environment with traced path tables; only what serves requests may be asked of it."""
    mine = copy.copy(environment)
    values = {field.name: getattr(paths, field.name) for field in dataclasses.fields(paths)}
    mine.tables = dataclasses.replace(environment.tables, **values)
    resources = environment.resources
    assert isinstance(resources, FlexibleGrid | SharedLightpaths)
    mine.resources = dataclasses.replace(resources, tables=mine.tables)
    return mine


def _with_capacity_of_all(environments: Sequence[OpticalEnvironment]) -> OpticalEnvironment:
    """Return the first environment, with room for as many services on a lightpath as any needs."""
    base = environments[0]
    resources = base.resources
    if not isinstance(resources, SharedLightpaths):
        return base
    most = max(
        env.resources.most_services
        for env in environments
        if isinstance(env.resources, SharedLightpaths)
    )
    base = copy.copy(base)
    base.resources = dataclasses.replace(resources, most_services=most)
    return base


def _stacked(environments: Sequence[OpticalEnvironment]) -> _Paths:
    """Return all tables, their hops padded to one length by repeating each path's first link."""
    tables = [env.tables for env in environments]
    longest = max(table.hops.shape[-1] for table in tables)

    def padded(hops: np.ndarray | Array) -> np.ndarray:
        missing = longest - hops.shape[-1]
        return np.concatenate([hops, np.repeat(hops[..., :1], missing, -1)], -1)

    return _Paths(
        hops=np.stack([padded(table.hops) for table in tables]),
        hop_counts=np.stack([table.hop_counts for table in tables]),
        width=np.stack([table.width for table in tables]),
        capacity=np.stack([table.capacity for table in tables]),
    )
