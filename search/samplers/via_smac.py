"""SMAC, through its ask-and-tell interface; a random forest models the objective.

Every batch gets a new facade, seeded by (seed, batch number), with the current history. A
resumed study therefore makes the same proposals, without any stored SMAC state.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...spaces.via_configspace import from_configuration, to_configspace, to_values
from ..seeds import generator, integer
from .history_window import Window, estimates, penalised
from .registry import Draw, PriorTrial, ProposalBatch, SamplerSpec, options_of

_CHALLENGERS, _LOCAL_SEARCHES, _PLATEAU_STEPS = 10_000, 10, 10  # SMAC's own defaults


class Smac:
    """SMAC (Lindauer et al. 2022): expected improvement under a random forest.

    Running trials count as average (the constant liar), so proposals avoid them. The model
    accounts for conditions and for rules written as mappings. Several objectives are combined with
    weights (ParEGO, Knowles 2006), separately in each batch. A trial that violates a constraint
    counts as worse than all feasible ones.
    """

    window = Window(best=100, latest=400)

    def __init__(self, spec: SamplerSpec):
        self.space, self.seed, self.objectives = spec.space, spec.seed, spec.objectives
        self.options = options_of("smac", spec.options)
        to_configspace(spec.space)  # raises if it cannot be converted

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> ProposalBatch:
        selected = self.window.of(history)
        return _SmacBatch(self, batch, selected, penalised(estimates(selected), selected))


class _SmacBatch:
    """One batch drawn by one facade, which is created at the first draw."""

    def __init__(
        self,
        method: Smac,
        batch: int,
        selected: Sequence[PriorTrial],
        losses: Mapping[int, Sequence[float]],
    ):
        self._method, self._batch, self._selected, self._losses = method, batch, selected, losses
        self._kept: list[Mapping[str, Any]] = []
        self._facade: Any = None

    def draw(self, trial: int, attempt: int) -> Draw | None:
        if len(self._losses) < max(1, self._method.options["n_startup_trials"]):
            rng = generator(self._method.seed, "smac-start", trial, attempt)
            return Draw(self._method.space.draw(rng))
        if self._facade is None:
            live = [past.params for past in self._selected if past.is_live]
            history = self._scaled_costs()
            columns = zip(*[costs for _, costs in history], strict=True)
            mean = [sum(column) / len(history) for column in columns]
            history += [(params, mean) for params in (*live, *self._kept)]
            self._facade = _make_facade(self._method, self._batch, history)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = self._facade.ask()
        return Draw(from_configuration(self._method.space, dict(asked.config)))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch.keep`; the facade remembers its proposals."""
        self._kept.append(params)

    def _scaled_costs(self) -> list[tuple[Mapping[str, Any], list[float]]]:
        """Return (configuration, costs); a cost is 0 for the best so far and 1 for the worst."""
        columns = list(zip(*self._losses.values(), strict=True))
        low = [min(column) for column in columns]
        width = [(max(column) - least) or 1.0 for column, least in zip(columns, low, strict=True)]
        found: list[tuple[Mapping[str, Any], list[float]]] = []
        for past in self._selected:
            if past.trial in self._losses:
                losses = zip(self._losses[past.trial], low, width, strict=True)
                found.append((past.params, [(loss - least) / w for loss, least, w in losses]))
        return found


def _make_facade(
    method: Smac, batch: int, history: Sequence[tuple[Mapping[str, Any], list[float]]]
) -> Any:
    """Return SMAC's hyperparameter facade, given a history."""
    from ConfigSpace import Configuration
    from smac import HyperparameterOptimizationFacade, Scenario  # pyright: ignore[reportMissingImports]
    from smac.multi_objective.parego import ParEGO  # pyright: ignore[reportMissingImports]
    from smac.runhistory.dataclasses import TrialInfo, TrialValue  # pyright: ignore[reportMissingImports]

    logging.getLogger("smac").setLevel(logging.ERROR)
    seed = integer(method.seed, "smac", batch) % 2**31
    config_space = to_configspace(method.space, seed)
    names = [f"objective_{index}" for index in range(method.objectives)]
    objectives, algorithm = names[0], None

    def config(params: Mapping[str, Any]) -> Any:
        return Configuration(config_space, values=to_values(method.space, params))

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if len(names) > 1:
            objectives = names
        scenario = Scenario(
            config_space,
            output_directory=Path(folder),
            deterministic=True,
            n_trials=2**31,
            objectives=objectives,
            seed=seed,
        )
        if len(names) > 1:
            algorithm = ParEGO(scenario)
        of = HyperparameterOptimizationFacade
        first = config(history[0][0])
        smac = of(
            scenario,
            model=of.get_model(scenario, n_trees=method.options["n_trees"]),
            acquisition_maximizer=_ordered_maximizer(scenario),
            initial_design=of.get_initial_design(
                scenario, n_configs=0, additional_configs=[first]
            ),
            multi_objective_algorithm=algorithm,
            logging_level=False,
            overwrite=True,
        )
        for params, costs in history:
            value = TrialValue(cost=costs[0] if len(costs) == 1 else costs)
            smac.tell(TrialInfo(config=config(params), seed=0), value, save=False)
    return smac


def _ordered_maximizer(scenario: Any) -> Any:
    """Return SMAC's own maximiser, with local searches in a reproducible order.

    SMAC keeps starting points in a set of configurations, whose string hashes differ between
    processes, and its searches share one random stream.
    """
    from smac.acquisition.maximizer import LocalAndSortedRandomSearch, LocalSearch  # pyright: ignore[reportMissingImports]

    class Ordered(LocalSearch):
        def _get_initial_points(self, *args: Any, **kwargs: Any) -> list[Any]:
            points = super()._get_initial_points(*args, **kwargs)
            return sorted(points, key=lambda point: point.get_array().tobytes())

    space, seed = scenario.configspace, scenario.seed
    found = LocalAndSortedRandomSearch(
        space, challengers=_CHALLENGERS, local_search_iterations=_LOCAL_SEARCHES, seed=seed
    )
    found._local_search = Ordered(space, seed=seed, n_steps_plateau_walk=_PLATEAU_STEPS)
    return found
