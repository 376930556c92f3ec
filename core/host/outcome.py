"""What became of a call of a batch: whose environments raised, and whose are gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...errors import HpoError

__all__ = ["FINE", "EnvironmentsFailed", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """Which slots did not do what was asked; all others did.

    Attributes:
        failed: slot -> what its environment raised.
        lost: slots whose environment is gone with the process that held it.
        blamed: slot -> how that process ended, where it was inside of the slot's environment.
        ended: how processes ended during this call.
    """

    failed: Mapping[int, str] = field(default_factory=dict)
    lost: Collection[int] = ()
    blamed: Mapping[int, str] = field(default_factory=dict)
    ended: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.failed or self.lost or self.ended)


FINE = Outcome()
"""Of a call that went well."""


class EnvironmentsFailed(HpoError):
    """Environments failed while policies were evaluated; `reasons` has words by policy."""

    def __init__(self, reasons: Mapping[int, str]):
        self.reasons = dict(reasons)
        super().__init__(next(iter(self.reasons.values())))
