"""Recorded runs on one environment: every configuration with every seed, without early stopping.

A table is a folder in the format of `scripts/atlas` (`results/atlas/README.md`). Row 0 is the
default configuration; the others were drawn at random.
"""

from __future__ import annotations

import json
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import StoreError
from ...spaces.space import Space
from ...studies.load import recorded

ABOUT = b"hpo.atlas"  # key of the metadata of `trials.parquet`: JSON with the study file
CEILING_SHARE = 0.2
_KEYS = ("trial", "replicate", "env_steps")


def sign_of(goal: str) -> float:
    """Return the factor that makes larger values better."""
    return 1.0 if goal == "maximize" else -1.0


@dataclass(frozen=True, eq=False)
class BenchTable:
    """Complete runs: c configurations, s seeds, p points per run.

    >>> from hpo.spaces import Parameter, make_distribution
    >>> kind = make_distribution({"distribution": "uniform", "min": 0.0, "max": 1.0})
    >>> space = Space((Parameter("gamma", kind, 0.5),))
    >>> params = [{"gamma": 0.5}, {"gamma": 0.1}]
    >>> table = BenchTable("tiny", "", space, params, np.array([1000]), np.zeros((2, 4, 1)))
    >>> table.find({"gamma": 0.1}), table.find({"gamma": 0.25})
    ((1, 0.0), (1, 0.15))
    """

    name: str
    study_text: str  # file of the study that produced it
    space: Space
    params: Sequence[Mapping[str, Any]]  # row 0 is the default configuration
    points: np.ndarray  # env steps of the evaluations, multiples of the first, [p]
    # the study's metric; NaN from the point where a seed diverged
    values: Float[np.ndarray, "c s p"]
    # training metrics by name, see `curves`
    curves: Mapping[str, Float[np.ndarray, "c s p"]] = field(default_factory=dict)
    metric: str = "eval/return_mean"
    goal: str = "maximize"

    @property
    def sign(self) -> float:
        return sign_of(self.goal)

    @property
    def length(self) -> int:
        """Env steps of a full run."""
        return int(self.points[-1])

    @property
    def seeds(self) -> int:
        return self.values.shape[1]

    @cached_property
    def finals(self) -> Float[np.ndarray, "c s"]:
        """Values at the end of runs; a diverged seed has the worst value."""
        ends = self.values[:, :, -1]
        worst = self.sign * np.nanmin(self.sign * ends)
        return np.where(np.isfinite(ends), ends, worst)

    @cached_property
    def paired(self) -> Float[np.ndarray, "c s"]:
        """`finals` minus the seed effects (medians) that all configurations share."""
        effects = np.median(self.finals - self.finals.mean(axis=1, keepdims=True), axis=0)
        return self.finals - (effects - effects.mean())

    @cached_property
    def is_ceiling(self) -> bool:
        """Whether at least a fifth of the configurations share the best mean over all seeds.

        Such a table cannot separate good configurations from the best ones.
        """
        means = self.finals.mean(axis=1)
        best = self.sign * (self.sign * means).max()
        return float(np.mean(means == best)) >= CEILING_SHARE

    def find(
        self, params: Mapping[str, Any], tried: Container[Hashable] = ()
    ) -> tuple[int, float]:
        """Return the row of a configuration, or of the nearest one, and the distance.

        `tried` contains the keys (`Space.canonical`) of excluded rows; the distance is infinite if
        all rows are excluded.
        """
        name = self.space.canonical(params)
        row = self._row_by_params.get(name)
        if row is not None and name not in tried:
            return row, 0.0
        away = self.distances(params)
        away[[at for key, at in self._row_by_params.items() if key in tried]] = np.inf
        return int(away.argmin()), float(away.min())

    def distances(self, params: Mapping[str, Any]) -> Float[np.ndarray, " c"]:
        """Return each row's distance from `params`: the root mean square over hyperparameters.

        The distance between two numbers is their absolute difference, with both mapped to [0, 1]
        on their scale. The distance is 1 between two different choices, and if only one of the two
        configurations has the hyperparameter.
        """
        own, (places, choices) = _axis_positions(self.space, params), self._axis_positions
        away = np.where(choices, places != own, np.abs(places - own))
        if np.isnan(away).any():
            absent = np.isnan(places)
            away = np.where(
                absent & np.isnan(own), 0.0, np.where(absent | np.isnan(own), 1.0, away)
            )
        return np.sqrt(np.mean(away * away, axis=1))

    def share_beaten(self, row: int, seeds: Sequence[int]) -> float:
        """Return the share of random configurations that are worse on these seeds (ties: 1/2)."""
        means = self.sign * self.finals[:, list(seeds)].mean(axis=1)
        drawn, own = means[1:], means[row]
        return float(np.mean((drawn < own) + 0.5 * (drawn == own)))

    @cached_property
    def _row_by_params(self) -> dict[Any, int]:
        return {self.space.canonical(params): row for row, params in enumerate(self.params)}

    @cached_property
    def _axis_positions(self) -> tuple[np.ndarray, np.ndarray]:
        kinds = [parameter.distribution.axis.kind for _, parameter in self.space.keyed]
        places = np.array([_axis_positions(self.space, params) for params in self.params])
        return places, np.array([kind == "choice" for kind in kinds], bool)


def _axis_positions(space: Space, params: Mapping[str, Any]) -> np.ndarray:
    """Return a configuration's position on every axis, NaN if it has no value there."""
    known = {**space.constants, **params}
    found: list[float] = []
    for _, parameter in space.keyed:
        kind, name = parameter.distribution, parameter.name
        if name not in params or not parameter.active(known):
            found.append(np.nan)
        else:
            found.append(kind.column(params[name]))
    return np.array(found)


def read_table(folder: Path) -> BenchTable:
    """Read one environment's table.

    Raises:
        StoreError: a file is missing, or does not belong to a table of recorded runs.
    """
    import pyarrow.parquet as pq

    for name in ("trials", "evaluations", "curves"):
        if not (folder / f"{name}.parquet").is_file():
            raise StoreError(f"{folder} has no {name}.parquet; create it with scripts/atlas")
    trials = pq.read_table(folder / "trials.parquet").sort_by([("trial", "ascending")])
    about = (pq.read_schema(folder / "trials.parquet").metadata or {}).get(ABOUT)
    if about is None:
        raise StoreError(f"{folder}/trials.parquet is not a table made by scripts/atlas")
    text = json.loads(about)["study"]
    study = recorded(text)
    params = [json.loads(one) for one in trials["params"].to_pylist()]
    shape = (len(params), study.seeds.per_config)
    points, values = _metric_arrays(
        pq.read_table(folder / "evaluations.parquet"), shape, ["value"]
    )
    at, curves = _metric_arrays(pq.read_table(folder / "curves.parquet"), shape, None)
    if np.any(points % points[0]) or not np.array_equal(at, points):
        raise StoreError(
            f"{folder} was evaluated at unevenly spaced env steps; create it again with "
            "evaluation: {every: N} and log_every: N, where N divides the length of a run, "
            f"{max(*points, *at)} env steps"
        )
    if trials["trial"].to_pylist() != [*range(len(params))] or params[0] != study.space.default():
        raise StoreError(f"{folder}: trial 0 is not the default, or trials are missing")
    return BenchTable(
        folder.name,
        text,
        study.space,
        params,
        points,
        values["value"],
        curves,
        study.metric.name,
        study.metric.goal,
    )


def _metric_arrays(
    rows: Any, shape: tuple[int, int], names: Sequence[str] | None
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return env steps [p], and the columns as arrays [c, s, p], NaN where rows are missing."""
    trial, seed, at = (rows[name].to_numpy() for name in _KEYS)
    points = np.unique(at)
    place = trial.astype(np.intp), seed.astype(np.intp), np.searchsorted(points, at)
    found: dict[str, np.ndarray] = {}
    for name in names or [name for name in rows.column_names if name not in _KEYS]:
        found[name] = np.full((*shape, len(points)), np.nan)
        found[name][place] = rows[name].to_numpy()
    return points, found
