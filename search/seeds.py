"""Random numbers of the search, derived from (seed, purpose, numbers) instead of a sequence.

So a draw does not depend on how many were made before, and a resumed study repeats it.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return the generator for one purpose, the same on every machine.

    >>> a, b = generator(0, "random", 7), generator(0, "random", 7)
    >>> float(a.random()) == float(b.random())
    True
    """
    return np.random.Generator(np.random.PCG64(_seed_digest(seed, purpose, numbers)))


def integer(seed: int, purpose: str, *numbers: int) -> int:
    """Return a 32-bit seed for a library that needs an integer."""
    return _seed_digest(seed, purpose, numbers) % 2**32


def study_seed(seed: int, purpose: str, *numbers: int) -> int:
    """Return a seed that a study accepts: 31 bits, because programs store it as an int32."""
    return integer(seed, purpose, *numbers) % 2**31


def uniform(seed: int, purpose: str, *numbers: int) -> float:
    return (_seed_digest(seed, purpose, numbers) % 2**53) / 2**53


def _seed_digest(seed: int, purpose: str, numbers: tuple[int, ...]) -> int:
    text = repr((int(seed), purpose, tuple(int(number) for number in numbers)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
