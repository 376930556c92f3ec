"""Do two sides that ran the same configurations give the same results? Permutation tests.

Labels are shuffled only within each configuration, so differences between configurations do not
affect the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Pair = tuple[Sequence[float], Sequence[float]]
PERMUTATIONS = 20_000


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Return the largest distance between two empirical distributions (Kolmogorov-Smirnov).

    >>> distance(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    0.0
    >>> distance(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    1.0
    """
    at = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(side), at, "right") / len(side) for side in (first, second)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def compare(pairs: Sequence[Pair], permutations: int = PERMUTATIONS) -> dict[str, float]:
    """Compare the results of two sides, with one pair of samples per configuration.

    Args:
        pairs: (ours, theirs) for each configuration.
        permutations: number of random ones behind the p-values.

    Returns:
        mean_difference, and mean_p from a two-sided test of it; the distance of the distributions
        (of values minus their configuration's pooled mean), and distance_p from a test of it.
    """
    rng = np.random.default_rng(0)
    pooled = [np.concatenate([np.asarray(side, float) for side in pair]) for pair in pairs]
    sizes = [len(pair[0]) for pair in pairs]

    def statistics(samples: list[np.ndarray]) -> tuple[float, float]:
        split = [(values[:n], values[n:]) for values, n in zip(samples, sizes, strict=True)]
        difference = np.mean([ours.mean() - theirs.mean() for ours, theirs in split])
        centre = [values.mean() for values in samples]
        sides = [
            np.concatenate([pair[side] - c for pair, c in zip(split, centre, strict=True)])
            for side in (0, 1)
        ]
        return float(difference), distance(*sides)

    difference, gap = statistics(pooled)
    mean_hits = gap_hits = 1
    for _ in range(permutations):
        shuffled = statistics([rng.permutation(values) for values in pooled])
        mean_hits += abs(shuffled[0]) >= abs(difference) - 1e-9
        gap_hits += shuffled[1] >= gap - 1e-9
    return {
        "mean_difference": difference,
        "mean_p": mean_hits / (permutations + 1),
        "distance": gap,
        "distance_p": gap_hits / (permutations + 1),
    }
