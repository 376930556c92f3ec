"""Every request of one stream as a row: the first stream of `evaluate_heuristic` of that seed."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...pytree import where
from .agents import Rule, make_agent
from .heuristic_evaluation import BLOCK
from .network_state import take
from .optical_environment import OpticalEnvironment
from .spectrum import TICKS_PER_HOLDING, unpack
from .traffic import WORDS_PER_REQUEST, random_words


def trace_heuristic(
    environment: OpticalEnvironment, name: Rule, *, steps: int | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Serve `steps` requests from an empty network, warm-up included; None: one episode.

    Returns columns of one row per request; nodes are the topology's own ids, `slots_needed`
    includes guard slots, times count from the start of the episode in the unit of
    `mean_holding_time` or of the request list (inf where services never end), and a refusing
    action has 0 km, hops and slots. `occupancy`, bool [links, S], is after the last request.
    """
    rows, words = _rows(environment, name, steps, seed)
    tables, ended = environment.tables, rows.pop("ended")
    pair, path = rows.pop("pair"), rows["path"]
    ids = np.array(tables.topology.node_ids)
    ends = tables.paths.pairs[pair]
    episode = np.concatenate([[0], np.cumsum(ended)[:-1]])
    hops, km = _lengths(environment, pair, path)
    arrival, departure = _times(environment, rows, episode)
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
    return {**columns, "occupancy": _in_use(environment, words[-1])}


def spectra(
    environment: OpticalEnvironment, name: Rule, *, steps: int | None = None, seed: int = 0
) -> np.ndarray:
    _, words = _rows(environment, name, steps, seed)
    return _in_use(environment, words)


def _in_use(environment: OpticalEnvironment, words: np.ndarray) -> np.ndarray:
    return np.asarray(unpack(jnp.asarray(words), environment.slots))


def _rows(
    environment: OpticalEnvironment, name: Rule, steps: int | None, seed: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    count = environment.max_requests if steps is None else steps
    key = jax.random.fold_in(jax.random.key(seed), jnp.uint32(0))
    return jax.device_get(_program(environment, name, count)(key))


def _lengths(
    environment: OpticalEnvironment, pair: np.ndarray, path: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    tables = environment.tables
    counts, hops = np.asarray(tables.hop_counts), np.asarray(tables.hops)
    real = (path >= 0) & (path < environment.num_paths)
    at = (pair, np.where(real, path, 0))
    count = np.where(real, counts[at], 0)
    counted = np.arange(hops.shape[-1]) < count[:, None]
    return count, np.where(counted, tables.km[hops[at]], 0.0).sum(1)


def _times(
    environment: OpticalEnvironment, rows: dict[str, np.ndarray], episode: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return arrivals and ends of services, float64, counted from the start of each episode."""
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
def _program(environment: OpticalEnvironment, name: Rule, steps: int):
    params, agent = environment.default_params, make_agent(name, environment)

    def request(carry: Any, words_of: tuple[Array, Array]) -> tuple[Any, Any]:
        (state, memory), reset_key = carry
        words, reset_words = words_of
        offers = environment.offers(state, params)
        path, start, memory = agent.choose(state, offers, params, memory, words)
        step = environment.serve(words, state, offers, path, start, params)
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
