"""Random words of a typed threefry key, the same bits as `jax.random.bits`, in one fused kernel.

On CPU jax lowers threefry to a loop of five rounds, whose dispatch costs more than a whole step of
these environments; written out, the rounds melt into the step's own kernels.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt32

__all__ = ["exponential", "random_words", "uniform"]

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def random_words(key: PRNGKeyArray, count: int) -> UInt32[Array, " count"]:
    """Return `count` uniform 32-bit words: Threefry-2x32 with 20 rounds over a counter.

    Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.

    Args:
        key: one typed threefry key.
        count: words, below 2**32.
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
    """Numbers in (0, 1], multiples of 2**-24 shifted by half a step."""
    return (words >> np.uint32(8)).astype(jnp.float32) * np.float32(2**-24) + np.float32(2**-25)


def exponential(words: UInt32[Array, "*n"]) -> Float[Array, "*n"]:
    """Exponential variables of mean 1, at most 17.4."""
    return -jnp.log(uniform(words))
