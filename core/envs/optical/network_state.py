"""The state of an optical network, and what an observation of it may read beside it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int

from ...pytree import Pytree, pytree
from .network_tables import NetworkTables
from .optical_settings import OpticalSettings
from .resources import Offers, Resources
from .traffic import OpticalParams, Request, Traffic

__all__ = ["Network", "OpticalState"]


@pytree
class OpticalState(Pytree):
    """State of one network at the moment a request arrives.

    Attributes:
        held: what services hold (`Spectrum` or `Lightpaths`).
        request: the request to serve now.
        number: how many requests came before it in this episode; int32 [].
        shares: cumulative shares of the pairs, float32 [R]; None unless redrawn at each reset.
    """

    held: Any
    request: Request
    number: Int[Array, ""]
    shares: Float[Array, " R"] | None


@runtime_checkable
class Network(Protocol):
    """What does not change while requests come and go, as `OpticalEnvironment` has it."""

    settings: OpticalSettings
    tables: NetworkTables
    traffic: Traffic
    resources: Resources
    num_paths: int
    slots: int

    @property
    def largest_bitrate(self) -> float:
        """Gb/s before `bitrate_scale`: of the traffic's list, or of the given requests."""
        ...

    def offers(self, state: OpticalState, params: OpticalParams) -> Offers:
        """Return where the current request could start on each candidate path."""
        ...
