"""Steady-state blocking measured elsewhere, and ours beside it.

The figures are service blocking probabilities of XLRON 1.1.0 (10 seeds x 20,000 requests) on
directed NSFNET with 5 paths, 100 slots, 1 guard slot, mean holding time 25 and deeprmsa's formats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .heuristic_evaluation import Summary, evaluate_heuristic
from .optical_environment import make_from_keys

__all__ = ["PUBLISHED", "Comparison", "Published", "compare_with_published"]

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
