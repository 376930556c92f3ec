"""Tables of recorded runs: every configuration on every seed, without early stopping."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from .space import Space, read_space

PLACES = (
    Path(__file__).resolve().parent / "data",  # installed
    Path(__file__).resolve().parents[3] / "results",  # in a checkout
)
FOLDERS = ("held_out", "atlas", "portfolio")
ABOUT = b"hpo.atlas"  # metadata of trials.parquet: JSON with the study and its machine


def check_seed(seed: Any, seeds: int) -> None:
    """Raise ValueError for a seed that is not a whole number from 0 to `seeds` - 1."""
    if not isinstance(seed, Integral) or not 0 <= seed < seeds:
        raise ValueError(f"seed is {seed}; allowed: 0 to {seeds - 1}")


def folders() -> dict[str, Path]:
    """Return name -> folder for every table; `HPO_TABLES` sets a different location."""
    given = os.environ.get("HPO_TABLES")
    places = (Path(given),) if given else PLACES
    for place in places:
        found = {
            path.parent.name: path.parent
            for folder in FOLDERS
            for path in sorted((place / folder).glob("*/trials.parquet"))
        }
        if found:
            return found
    raise FileNotFoundError(f"no tables in {' or '.join(map(str, places))}")


def names() -> list[str]:
    """Return the names of all tables."""
    return sorted(folders())


def load(name: str) -> Table:
    """Read a table.

    Raises:
        KeyError: there is no table with that name.
    """
    known = folders()
    if name not in known:
        raise KeyError(f"no table {name!r}; known: {', '.join(sorted(known))}")
    return read(known[name])


@dataclass(frozen=True)
class Evaluation:
    """One recorded run, up to a number of env steps."""

    value: float  # the metric: a mean return, or a blocking probability
    loss: float  # smaller is better
    training_return: float  # mean of the last 100 training episodes, NaN if none ended
    env_steps: int
    seconds: float  # mean CPU-seconds of such a run in this table
    row: int  # row of the recorded configuration that was used
    # from the requested one: 0 if it was recorded, 1 if every range is crossed end to end
    distance: float


@dataclass(frozen=True, eq=False)
class Table:
    """c configurations (row 0 is the default of PPO), s seeds, p points of a run."""

    name: str
    space: Space
    configurations: tuple[dict[str, Any], ...]  # in the form used by optimisers
    env_steps: np.ndarray  # [p]
    values: np.ndarray  # [c, s, p], NaN from the point where a seed diverged
    training_returns: np.ndarray  # [c, s, p]
    goal: str  # maximize or minimize
    metric: str
    about: Mapping[str, Any]  # environment, study, commit, versions, CPU-seconds

    @property
    def default(self) -> dict[str, Any]:
        return dict(self.configurations[0])

    @property
    def seeds(self) -> int:
        return self.values.shape[1]

    @property
    def length(self) -> int:
        """Env steps of a full run."""
        return int(self.env_steps[-1])

    @cached_property
    def losses(self) -> np.ndarray:
        """Losses at all points [c, s, p]; a diverged seed has the worst one at that point."""
        sign = -1.0 if self.goal == "maximize" else 1.0
        signed = sign * self.values
        worst = np.nanmax(signed, axis=(0, 1))
        return np.where(np.isfinite(signed), signed, worst)

    @cached_property
    def is_ceiling(self) -> bool:
        """Whether at least a fifth of the configurations share the best mean."""
        means = self.losses[:, :, -1].mean(axis=1)
        return float(np.mean(means == means.min())) >= 0.2

    @cached_property
    def seconds_per_run(self) -> float:
        spent = self.about.get("cpu_seconds")
        runs = self.values.shape[0] * self.values.shape[1]
        return float("nan") if spent is None else float(spent) / runs

    def evaluate(
        self, configuration: Mapping[str, Any], seed: int = 0, env_steps: int | None = None
    ) -> Evaluation:
        """Return the recorded run of a configuration, or of the nearest recorded one.

        Args:
            configuration: a value for every hyperparameter in `space`.
            seed: 0 to `seeds` - 1.
            env_steps: read the run at the last recorded point up to here; None: at its end.

        Raises:
            ValueError: a name, a value, the seed or the env steps are not in the table.
        """
        row, distance = self.find(configuration)
        check_seed(seed, self.seeds)
        asked = self.length if env_steps is None else env_steps
        point = int(np.searchsorted(self.env_steps, asked, side="right")) - 1
        if not asked >= self.env_steps[0]:  # also NaN
            raise ValueError(f"env_steps is {asked}; the first point is at {self.env_steps[0]}")
        reached = int(self.env_steps[point])
        return Evaluation(
            value=float(self.values[row, seed, point]),
            loss=float(self.losses[row, seed, point]),
            training_return=float(self.training_returns[row, seed, point]),
            env_steps=reached,
            seconds=self.seconds_per_run * reached / self.length,
            row=row,
            distance=distance,
        )

    def find(self, configuration: Mapping[str, Any]) -> tuple[int, float]:
        """Return the nearest recorded row and its distance.

        The distance is the root mean square of the differences in position over hyperparameters,
        each from 0 to 1 in its range; different choices differ by 1. `hpo bench` uses the same
        distance.
        """
        self.space.check(configuration)
        asked = [one.place(configuration[one.name]) for one in self.space.hyperparameters]
        apart = np.abs(self._places - np.array(asked))
        choices = [one.kind == "choice" for one in self.space.hyperparameters]
        apart[:, choices] = apart[:, choices] > 1e-9
        distances = np.sqrt(np.mean(apart**2, axis=1))
        row = int(distances.argmin())
        return row, float(distances[row]) if distances[row] > 1e-9 else 0.0

    @cached_property
    def _places(self) -> np.ndarray:
        return np.array(
            [
                [one.place(configuration[one.name]) for one in self.space.hyperparameters]
                for configuration in self.configurations
            ]
        )


def read(folder: Path) -> Table:
    trials = pq.read_table(folder / "trials.parquet").sort_by("trial")
    about = json.loads(pq.read_schema(folder / "trials.parquet").metadata[ABOUT])
    study = yaml.safe_load(about["study"])
    space = read_space(study["space"])
    recorded = [json.loads(text) for text in trials["params"].to_pylist()]
    configurations = tuple(
        {one.name: one.seen(params[one.recorded_name]) for one in space.hyperparameters}
        for params in recorded
    )
    shape = (len(recorded), study["seeds"]["per_config"])
    points, values = _cube(folder / "evaluations.parquet", "value", shape)
    _, returns = _cube(folder / "curves.parquet", "episode_return_100", shape)
    metric = study["metric"]
    return Table(
        name=folder.name,
        space=space,
        configurations=configurations,
        env_steps=points,
        values=values,
        training_returns=returns,
        goal=metric["goal"],
        metric=metric["name"],
        about=about,
    )


def _cube(path: Path, column: str, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return env steps [p] and a column [c, s, p], NaN where rows are missing."""
    rows = pq.read_table(path, columns=["trial", "replicate", "env_steps", column])
    trial, seed, steps = (
        rows[name].to_numpy().astype(np.int64) for name in ("trial", "replicate", "env_steps")
    )
    points = np.unique(steps)
    found = np.full((*shape, len(points)), np.nan)
    found[trial, seed, np.searchsorted(points, steps)] = rows[column].to_numpy()
    return points, found
