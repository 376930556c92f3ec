"""`ksp_bf@10:hops`: a heuristic with a number and an order of candidate paths of its own.

No jax here: the loader reads the names of a study before anything is started.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ....errors import ConfigError, UnknownNameError
from .candidate_paths import PATH_ORDERS
from .optical_settings import HEURISTIC_NAMES, OpticalSettings

__all__ = ["Baseline", "parse_baseline"]

MOST_PATHS = 1000


@dataclass(frozen=True)
class Baseline:
    """A heuristic, and the candidate paths that it serves on.

    Attributes:
        rule: name of the heuristic.
        k: candidate paths per node pair; None: as many as the environment has.
        path_order: one of `PATH_ORDERS`; None: the environment's.
    """

    rule: str
    k: int | None = None
    path_order: str | None = None

    def settings(self, given: OpticalSettings) -> OpticalSettings:
        """Return the settings of the network that the heuristic serves."""
        own = {"k": self.k, "path_order": self.path_order}
        return dataclasses.replace(given, **{key: v for key, v in own.items() if v is not None})


def parse_baseline(text: str) -> Baseline:
    """Return what `RULE`, `RULE@K`, `RULE:ORDER` or `RULE@K:ORDER` names.

    Raises:
        UnknownNameError: no such heuristic, or no such order of paths.
        ConfigError: K is no whole number of at least 1.

    >>> parse_baseline("ksp_bf@10:hops")
    Baseline(rule='ksp_bf', k=10, path_order='hops')
    >>> parse_baseline("ksp_ff").k is None
    True
    """
    head, colon, order = text.partition(":")
    rule, at, count = head.partition("@")
    if rule not in HEURISTIC_NAMES:
        raise UnknownNameError("heuristic", rule, HEURISTIC_NAMES)
    if at and not (count.isascii() and count.isdigit() and 1 <= int(count) <= MOST_PATHS):
        raise ConfigError(
            f"baseline {text!r}: what follows @ is the number of candidate paths, a whole number "
            f"from 1 to {MOST_PATHS}; type {rule}@10"
        )
    if colon and order not in PATH_ORDERS:
        raise UnknownNameError("path order", order, PATH_ORDERS)
    return Baseline(rule, int(count) if at else None, order if colon else None)
