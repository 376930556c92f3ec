"""Changes a copy's hyperparameters by resampling or perturbation (Jaderberg et al. 2017, 4.1).

Jaderberg, M. et al. (2017). Population Based Training of Neural Networks. arXiv:1711.09846.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.random import Generator

from ...spaces.space import Parameter, Space
from ...studies.search_spec import EarlyTerminate
from ...studies.spec import Study


@dataclass(frozen=True)
class Gain:
    """The gain of one trial between two rungs, and its hyperparameters there."""

    rung: int  # where the interval ends
    params: dict[str, Any]
    before: float  # loss of the state from which it started
    after: float


@dataclass(frozen=True)
class Situation:
    """The results available when a copy is made."""

    rung: int
    loss: float  # of the copied state
    # from earlier intervals, including the one that ends here, oldest first
    gains: Sequence[Gain] = ()
    # hyperparameters and loss of every trial whose next interval is already decided
    others: Sequence[tuple[Mapping[str, Any], float]] = field(default_factory=tuple)


class Explorer(Protocol):
    """Chooses the hyperparameters of copies."""

    def explore(
        self, params: Mapping[str, Any], situation: Situation, rng: Generator
    ) -> dict[str, Any]:
        """Return a configuration that is in the space."""
        ...


@dataclass(frozen=True)
class Perturb:
    """Resample each hyperparameter with some probability, otherwise perturb it by a factor.

    The paper multiplies each value; here a value moves along the axis of its distribution. For
    example, a learning rate is multiplied, as is 1 - gamma, but lambda moves up or down by a share
    of its range.
    """

    space: Space
    resample: float
    factors: tuple[float, ...]

    def explore(
        self, params: Mapping[str, Any], situation: Situation, rng: Generator
    ) -> dict[str, Any]:

        def choose(_: str, parameter: Parameter) -> Any:
            return self.moved(parameter, params, rng)

        return self.space.resolve(choose)

    def moved(self, parameter: Parameter, params: Mapping[str, Any], rng: Generator) -> Any:
        """Return one new value; a value that the copied trial does not have is sampled."""
        distribution, name = parameter.distribution, parameter.name
        resamples = float(rng.random()) < self.resample
        if resamples or name not in params or distribution.why_not(params[name]) is not None:
            return distribution.sample(rng)
        factor = self.factors[int(rng.integers(len(self.factors)))]
        return distribution.nudged(params[name], factor)


def build(early: EarlyTerminate, study: Study) -> Perturb:
    return Perturb(study.space, early.resample, early.perturb)
