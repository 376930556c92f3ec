"""A table as a CARP-S objective function (extra `carps`).

    from hpo_tables.to_carps import TableObjective
    objective = TableObjective("MountainCar-v0")

In a Hydra configuration for CARP-S: `_target_: hpo_tables.to_carps.TableObjective`.
"""

from __future__ import annotations

import time
from typing import Any

from carps.objective_functions.objective_function import ObjectiveFunction
from carps.utils.trials import StatusType, TrialInfo, TrialValue

from .table import load
from .to_configspace import as_configspace, from_configspace


class TableObjective(ObjectiveFunction):
    """The cost is the loss on `trial_info.seed` (0 if it is None, modulo the table's seeds).

    `trial_info.budget` is in env steps. `virtual_time` is the CPU-seconds that the run took.
    """

    def __init__(self, table: str, seed: int | None = None, loggers: Any = None) -> None:
        super().__init__(loggers)
        self.table = load(table)
        self._configspace = as_configspace(self.table.space, seed)

    @property
    def configspace(self) -> Any:
        return self._configspace

    def _evaluate(self, trial_info: TrialInfo) -> TrialValue:
        started = time.time()
        seed = 0 if trial_info.seed is None else int(trial_info.seed) % self.table.seeds
        steps = None if trial_info.budget is None else int(trial_info.budget)
        configuration = from_configspace(self.table.space, dict(trial_info.config))
        found = self.table.evaluate(configuration, seed, steps)
        ended = time.time()
        return TrialValue(
            cost=found.loss,
            time=ended - started,
            virtual_time=found.seconds,
            status=StatusType.SUCCESS,
            starttime=started,
            endtime=ended,
            additional_info={"row": found.row, "distance": found.distance},
        )
