"""A table as a Syne Tune blackbox (extra `syne-tune`).

from hpo_tables.to_syne_tune import TableBlackbox
blackbox = TableBlackbox("MountainCar-v0")
"""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np
from syne_tune.blackbox_repository.blackbox import Blackbox
from syne_tune.config_space import choice, lograndint, loguniform, randint, uniform

from .space import Hyperparameter
from .table import load

FIDELITY = "env_steps"
OBJECTIVES = ["metric_loss", "metric_elapsed_time"]


class TableBlackbox(Blackbox):
    """The objectives are the loss, and the CPU-seconds since the start of the run."""

    def __init__(self, table: str) -> None:
        self.table = load(table)
        hyperparameters = self.table.space.hyperparameters
        first, last = int(self.table.env_steps[0]), self.table.length
        super().__init__(
            configuration_space={one.name: _domain(one) for one in hyperparameters},
            fidelity_space={FIDELITY: randint(first, last)},
            objectives_names=OBJECTIVES,
        )

    def _objective_function(
        self,
        configuration: dict[str, Any],
        fidelity: dict[str, Number] | None = None,
        seed: int | None = None,
    ) -> Any:
        """Return the objectives at a fidelity, or at all points [p, 2]."""
        number = 0 if seed is None else int(seed) % self.table.seeds
        if fidelity is not None:
            return self._at(configuration, number, int(fidelity[FIDELITY]))
        rows = [self._at(configuration, number, int(at)) for at in self.table.env_steps]
        return np.array([[row[name] for name in OBJECTIVES] for row in rows])

    def _at(self, configuration: dict[str, Any], seed: int, steps: int) -> dict[str, float]:
        found = self.table.evaluate(configuration, seed, steps)
        return dict(zip(OBJECTIVES, (found.loss, found.seconds), strict=True))

    @property
    def fidelity_values(self) -> np.ndarray:
        return self.table.env_steps


def _domain(one: Hyperparameter) -> Any:
    if one.kind == "choice":
        return choice([*one.values])
    if one.kind == "integer":
        make = lograndint if one.log else randint
        return make(int(one.low), int(one.high))
    make = loguniform if one.log else uniform
    return make(one.low, one.high)
