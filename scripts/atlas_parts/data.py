"""The reduced tables of one environment as arrays: configurations, seeds, points of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from hpo.errors import StoreError
from hpo.search.analysis.knob_significance import columns_of
from hpo.search.bench.tables import ABOUT
from hpo.search.bench.write_table import TABLES
from hpo.store.importance import ImportanceColumn
from hpo.studies.load import recorded

DRAWN = ("random", "sobol")


@dataclass(frozen=True)
class Atlas:
    """One environment: c randomly drawn configurations, s seeds, p points of a run.

    Attributes:
        name: name of the environment.
        metric, goal: the metric of the values, and its direction.
        points: env steps of the evaluations, ascending, [p].
        values: greedy evaluations, larger is better whatever the goal, NaN if a seed had diverged,
            [c, s, p].
        columns: the position of every configuration on every hyperparameter's axis.
        about: commit, cost and study file.
        default_values: those of the default configuration, [s, p]; all NaN if it did not run.
        digest: sha256 of the three tables together.
        episodes: number per evaluation, of which a value is the mean; in continuous operation,
            number of networks; 0 if unknown.
    """

    name: str
    metric: str
    goal: str
    points: np.ndarray
    values: np.ndarray
    columns: tuple[ImportanceColumn, ...]
    about: Mapping[str, Any] = field(default_factory=dict)
    default_values: np.ndarray = field(default_factory=lambda: np.full((1, 1), np.nan))
    digest: str = ""
    episodes: int = 0

    @cached_property
    def filled(self) -> np.ndarray:
        """The values, with the worst value at a point for seeds that had diverged, [c, s, p]."""
        return np.where(np.isfinite(self.values), self.values, self._worst)

    @cached_property
    def filled_default(self) -> np.ndarray:
        """The same for the default configuration, [s, p]."""
        return np.where(np.isfinite(self.default_values), self.default_values, self._worst)

    @cached_property
    def _worst(self) -> np.ndarray:
        """The worst value at each point, [p]."""
        if not np.isfinite(self.values).any(axis=(0, 1)).all():
            raise StoreError(f"{self.name} has a point at which every seed had diverged")
        return np.nanmin(self.values, axis=(0, 1))

    @property
    def default(self) -> float:
        """The final value of the default configuration, with the metric's sign; NaN if unknown."""
        if not np.isfinite(self.default_values).any():
            return float("nan")
        return self.sign * float(self.filled_default[:, -1].mean())

    @property
    def diverged(self) -> float:
        """The share of seeds that diverged before the end."""
        return float(np.mean(~np.isfinite(self.values[:, :, -1])))

    @property
    def sign(self) -> float:
        """The factor that gives a value the metric's own sign."""
        return 1.0 if self.goal == "maximize" else -1.0

    @property
    def fractions(self) -> np.ndarray:
        """The points as shares of the whole run, [p]."""
        return self.points / self.points[-1]

    @property
    def place(self) -> str:
        """The unit of values as text."""
        return self.metric.removeprefix("eval/").replace("_", " ")


def digest_of(folder: Path) -> str:
    """Return the sha256 of the tables of one environment."""
    found = hashlib.sha256()
    for name in TABLES:
        found.update((folder / f"{name}.parquet").read_bytes())
    return found.hexdigest()


def read_atlas(folder: Path) -> Atlas:
    """Read the reduced tables of one environment.

    Raises:
        StoreError: a table is missing, is not a table of the atlas, or the numbers of seeds per
            configuration differ.
    """
    for name in TABLES:
        if not (folder / f"{name}.parquet").is_file():
            raise StoreError(f"{folder} has no {name}.parquet; make it with: scripts/atlas")
    trials = pq.read_table(folder / "trials.parquet")
    told = (trials.schema.metadata or {}).get(ABOUT)
    if told is None:
        raise StoreError(f"{folder}/trials.parquet is no table of the atlas")
    about = json.loads(told)
    study = recorded(about["study"])
    rows = trials.select(["trial", "proposed_by", "params"]).to_pylist()
    drawn = [row for row in rows if row["proposed_by"] in DRAWN]
    numbers = {row["trial"]: place for place, row in enumerate(drawn)}
    sign = 1.0 if study.metric.goal == "maximize" else -1.0
    seen = pq.read_table(folder / "evaluations.parquet")
    trial, seed, at, value = (
        seen[name].to_numpy() for name in ("trial", "replicate", "env_steps", "value")
    )
    points = np.unique(at)
    values = np.full((len(drawn), study.seeds.per_config, len(points)), np.nan)
    mine = np.isin(trial, list(numbers))
    place = np.array([numbers[number] for number in trial[mine]], np.intp)
    values[place, seed[mine], np.searchsorted(points, at[mine])] = sign * value[mine]
    own, default = (trial == 0) & (0 not in numbers), np.full(values.shape[1:], np.nan)
    default[seed[own], np.searchsorted(points, at[own])] = sign * value[own]
    return Atlas(
        name=folder.name,
        metric=study.metric.name,
        goal=study.metric.goal,
        points=points.astype(np.float64),
        values=values,
        columns=tuple(columns_of(study.space, [json.loads(row["params"]) for row in drawn])),
        about=about,
        default_values=default,
        digest=digest_of(folder),
        episodes=study.evaluation.episodes,
    )
