"""How often a short study ends with a better configuration than the default.

Each recorded table is replayed with a portfolio that was learnt without its family. A study ends
with a better configuration if it chooses a learnt one that beats the default, on seeds that did
not select it, by more than MARGIN of the difference between the median configuration and the best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpo.store.statistics import t_quantile

from .learn import DEFAULT
from .plans import JUDGES, Replay, short_study
from .sources import Source

PLACES, SEEDS = (1, 3, 5, 7), (3, 4)
MARGIN = 0.05


def share_better(
    source: Source, rows: Sequence[int], places: int, seeds: int, replays: int
) -> tuple[float, float]:
    """Return the share of replays that end with a better configuration, and with a worse one."""
    draw = np.random.Generator(np.random.PCG64(5))
    plan, configurations = short_study(places, seeds), len(source.values)
    means = source.values.mean(axis=1)
    margin = MARGIN * float(means.max() - np.median(means))
    better, worse = 0, 0
    for _ in range(replays):
        order = draw.permutation(source.values.shape[1])
        replay = Replay(source, order, np.arange(configurations), rows)
        row, _ = plan(replay)
        judged = source.values[:, order[-JUDGES:]].mean(axis=1)
        lead = float(judged[row] - judged[DEFAULT])
        better += row != DEFAULT and lead > margin
        worse += row != DEFAULT and lead < -margin
    return better / replays, worse / replays


def forecast(
    sources: Sequence[Source], rows: Mapping[str, Sequence[int]], replays: int
) -> list[dict[str, Any]]:
    """Return a forecast for each plan: the mean share over tables, with Student's interval.

    `brier` is the mean squared error if each table is forecast by the mean of the others.
    """
    found = list[dict[str, Any]]()
    for places in PLACES:
        for seeds in SEEDS:
            shares = [
                share_better(source, rows[source.name], places, seeds, replays)
                for source in sources
            ]
            better = np.array([one[0] for one in shares])
            found.append({"portfolio": places, "report": seeds, **_summary(better, shares)})
    return found


def _summary(better: np.ndarray, shares: Sequence[tuple[float, float]]) -> dict[str, Any]:
    count, mean = len(better), float(better.mean())
    reach = t_quantile(0.975, count - 1) * float(better.std(ddof=1)) / math.sqrt(count)
    others = (better.sum() - better) / (count - 1)
    errors = better * (1.0 - others) ** 2 + (1.0 - better) * others**2
    return {
        "better": round(mean, 3),
        "low": round(max(0.0, mean - reach), 3),
        "high": round(min(1.0, mean + reach), 3),
        "worse": round(float(np.mean([one[1] for one in shares])), 3),
        "brier": round(float(errors.mean()), 3),
        "tables": count,
    }
