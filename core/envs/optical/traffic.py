"""Arriving requests: drawn at random, or read from a list.

Arrivals are a Poisson process with rate load / mean_holding_time. Holding times are exponential,
bitrates are uniform over a list, and node pairs follow the traffic matrix. Times are in clock
ticks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from ...pytree import Pytree, pytree
from .spectrum import TICKS_PER_HOLDING
from .traffic_files import LONGEST_WAIT, RequestList

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def random_words(key: PRNGKeyArray, count: int) -> UInt32[Array, " count"]:
    """Return `count` uniform 32-bit words from Threefry-2x32 with 20 rounds over a counter.

    Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
    """
    data = jax.random.key_data(key)
    first, second = data[0], data[1]
    schedule = (first, second, first ^ second ^ PARITY)
    left = jnp.full(count, first)
    right = jnp.arange(count, dtype=jnp.uint32) + second
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            left = left + right
            right = (right << np.uint32(rotation)) | (right >> np.uint32(32 - rotation))
            right = left ^ right
        left = left + schedule[(group + 1) % 3]
        right = right + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return left ^ right


def uniform(words: UInt32[Array, "*n"]) -> Float[Array, "*n"]:
    """Return numbers in (0, 1], multiples of 2**-24 shifted by half a step."""
    return (words >> np.uint32(8)).astype(jnp.float32) * np.float32(2**-24) + np.float32(2**-25)


def exponential(words: UInt32[Array, "*n"]) -> Float[Array, "*n"]:
    """Return exponentially distributed numbers with mean 1; the largest possible one is 17.4."""
    return -jnp.log(uniform(words))


WORDS_PER_REQUEST = 4


@pytree
class OpticalParams(Pytree):
    load: Float[Array, "..."]  # Erlang, arrival rate times mean holding time before truncation
    mean_holding_time: Float[Array, "..."]  # the unit of time of all observations
    bitrate_scale: Float[Array, "..."]  # multiplies every bitrate


@pytree
class Request(Pytree):
    pair: Int[Array, ""]  # row of the node pair in the path table
    bitrate: Float[Array, ""]  # Gb/s before `bitrate_scale`
    holding: Int[Array, ""]  # ticks


@dataclass(frozen=True, eq=False)
class Traffic:
    bitrates: np.ndarray  # Gb/s, drawn uniformly, [B]
    # shares of the node pairs, [R], summing to 1; None redraws them at every reset
    weights: np.ndarray | None
    num_pairs: int  # R
    both_ways: bool  # an undirected pair sums two entries of a random matrix
    truncated: bool  # cut holding times at twice the mean
    requests: RequestList | None  # replaces all of the above

    @property
    def uniform(self) -> bool:
        return self.weights is not None and np.allclose(self.weights, self.weights[0], rtol=1e-9)

    @property
    def words_at_reset(self) -> int:
        if self.weights is not None:
            return 0
        if self.both_ways:
            return 2 * self.num_pairs
        return self.num_pairs

    def pair_shares(self, words: UInt32[Array, " n"]) -> Float[Array, " R"] | None:
        """Return the pairs' cumulative traffic shares from `words`; None if they are fixed."""
        if self.weights is not None:
            return None
        entries = uniform(words).reshape(-1, self.num_pairs).sum(0)
        cumulative = jnp.cumsum(entries)
        return cumulative / cumulative[-1]

    def request(
        self, words: UInt32[Array, " 4"], number: Int[Array, ""], shares: Float[Array, " R"] | None
    ) -> Request:
        """Return request `number` (from 0); three words set its pair, bitrate and holding time."""
        if self.requests is not None:
            row = jnp.minimum(number, len(self.requests) - 1)
            given = (self.requests.pair, self.requests.bitrate, self.requests.holding)
            pair, bitrate, holding = (jnp.asarray(column)[row] for column in given)
            return Request(pair, bitrate, holding)
        choices = len(self.bitrates)
        choice = jnp.minimum((uniform(words[1]) * choices).astype(jnp.int32), choices - 1)
        steps = np.diff(self.bitrates)
        if len(steps) and (steps == steps[0]).all():  # arithmetic is cheaper than a table
            bitrate = choice.astype(jnp.float32) * float(steps[0]) + float(self.bitrates[0])
        else:
            bitrate = jnp.asarray(self.bitrates, jnp.float32)[choice]
        return Request(
            self._draw_pair(words[0], shares), bitrate, self._draw_holding_time(words[2])
        )

    def wait(
        self, words: UInt32[Array, " 4"], number: Int[Array, ""], params: OpticalParams
    ) -> Int[Array, ""]:
        """Return the ticks from request `number` to the next one, drawn from the fourth word."""
        if self.requests is not None:
            row = jnp.minimum(number, len(self.requests) - 1)
            return jnp.asarray(self.requests.until_next)[row]
        ticks = exponential(words[3]) * (TICKS_PER_HOLDING / params.load)
        return jnp.minimum(ticks, LONGEST_WAIT).astype(jnp.int32)

    def time_per_tick(self, params: OpticalParams) -> Float[Array, ""]:
        if self.requests is not None:
            return jnp.asarray(self.requests.tick, jnp.float32)
        return jnp.asarray(params.mean_holding_time) / TICKS_PER_HOLDING

    def _draw_pair(
        self, word: UInt32[Array, ""], shares: Float[Array, " R"] | None
    ) -> Int[Array, ""]:
        draw = uniform(word)
        if self.uniform:
            pair = (draw * self.num_pairs).astype(jnp.int32)
        else:
            if shares is None:
                assert self.weights is not None
                shares = jnp.asarray(np.cumsum(self.weights), jnp.float32)
            pair = (shares < draw).sum(dtype=jnp.int32)
        return jnp.minimum(pair, self.num_pairs - 1)

    def _draw_holding_time(self, word: UInt32[Array, ""]) -> Int[Array, ""]:
        if not self.truncated:
            return (exponential(word) * TICKS_PER_HOLDING).astype(jnp.int32)
        # The last of five exponentials that is below twice the mean, 0 if none is: the same
        # distribution from one word, by inverting 1 - exp(-x) on the rest.
        draw, missed, kept = uniform(word), math.exp(-10.0), 1.0 - math.exp(-2.0)
        share = jnp.maximum(draw - missed, 0.0) / (1.0 - missed)
        return (-jnp.log1p(-share * kept) * TICKS_PER_HOLDING).astype(jnp.int32)
