"""Who is stopped early: the contract of a rule that judges trials at a rung, and the registry.

A rule is a pure function of what was seen at one rung; the loop decides when a trial stands
there, ends its replicates and writes down the verdict.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Protocol

from ...errors import ConfigError, UnknownNameError
from ...studies.quanta import rung_steps
from ...studies.spec import EarlyTerminate, Study
from ..streams import uniform
from .asha import Asha
from .hyperband import Hyperband
from .median import Median
from .plateau import Plateau
from .verdict import Standing, Verdict

__all__ = [
    "PRUNERS",
    "Pruner",
    "Standing",
    "Verdict",
    "is_audited",
    "make_pruner",
    "rank_of",
    "register_pruner",
]


class Pruner(Protocol):
    """Judges the trials that stand at one rung at one boundary.

    Values are losses: the loop flips the sign of a metric that is maximised, so that lower is
    better in here.
    """

    def judge(
        self, rung: int, earlier: Sequence[Standing], arriving: Sequence[Standing]
    ) -> list[Verdict]:
        """Return one verdict for each arriving trial.

        Args:
            rung: its index.
            earlier: trials judged at this rung at former boundaries, in any order.
            arriving: those judged now, all compared with each other as well.

        Returns:
            One verdict per entry of `arriving`, in its order; the same whatever the order.
        """
        ...


def _hyperband(spec: EarlyTerminate, study: Study) -> Pruner:
    return Hyperband(spec.eta, len(rung_steps(study)), study.seed)


PRUNERS: dict[str, Callable[[EarlyTerminate, Study], Pruner]] = {
    "asha": lambda spec, study: Asha(spec.eta),
    "hyperband": _hyperband,
    "median": lambda spec, study: Median(),
    "plateau": lambda spec, study: Plateau(spec.patience, spec.tolerance),
}


def register_pruner(name: str, build: Callable[[EarlyTerminate, Study], Pruner]) -> None:
    """Make a rule known under `early_terminate: {type: name}`.

    Raises:
        ConfigError: the name is taken.
    """
    if name in PRUNERS:
        raise ConfigError(f"a rule called {name!r} is registered already; choose another name")
    PRUNERS[name] = build


def make_pruner(study: Study) -> Pruner | None:
    """Build the rule that a study names, None where nobody is stopped or a population evolves.

    Raises:
        UnknownNameError: no rule has this name.
    """
    spec = study.early_terminate
    if spec is None or spec.evolves:
        return None
    if spec.type not in PRUNERS:
        raise UnknownNameError("early_terminate type", spec.type, PRUNERS)
    return PRUNERS[spec.type](spec, study)


def rank_of(loss: float, losses: Sequence[float]) -> int:
    """Return the rank of a loss among sorted losses (itself included); 1 is the best, ties share.

    >>> rank_of(2.0, [1.0, 2.0, 2.0, 5.0])
    2
    """
    return 1 + bisect.bisect_left(losses, loss)


def is_audited(seed: int, trial: int, share: float) -> bool:
    """Return whether a trial runs on although it was stopped; fixed by the study's seed alone.

    >>> sum(is_audited(0, trial, 0.25) for trial in range(1000)) in range(200, 300)
    True
    """
    return uniform(seed, "audit", trial) < share
