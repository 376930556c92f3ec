"""Recorded tables with the same configurations, as arrays in which larger is better.

The tables in results/held_out were drawn with one seed from one space. Their first configurations
are therefore equal, and a row number means the same configuration in each table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpo.errors import StoreError
from hpo.search.bench.tables import BenchTable, read_table

TRAINING = "episode_return_100"
WEIGHT = 0.5
"""The weight of training returns in selection values, as in the studies of `hpo init`."""
FILES = ("trials", "evaluations", "curves")
FAMILIES = {
    "bsuite": ("Catch-bsuite", "DiscountingChain-bsuite", "UmbrellaChain-bsuite"),
    "deeprmsa": ("deeprmsa-cost239", "deeprmsa-nsfnet"),
    "mazes": ("FourRooms-misc", "MetaMaze-misc"),
    "mountain car": ("MountainCar-v0", "MountainCarContinuous-v0"),
}
"""Groups of environments too similar to learn from one and judge on another."""


@dataclass(frozen=True, eq=False)
class Source:
    """One table: c shared configurations (row 0 is the default), s seeds."""

    name: str
    digest: str  # sha256 of its files
    params: Sequence[Mapping[str, Any]]
    values: np.ndarray  # at the end of a run, larger is better, [c, s]
    chooses: np.ndarray  # half of these and half training returns, if there are any, [c, s]

    @property
    def family(self) -> str:
        for family, members in FAMILIES.items():
            if self.name in members:
                return family
        return self.name


def digest_of(folder: Path) -> str:
    """Return the sha256 of a table's three files, in the order of FILES."""
    found = hashlib.sha256()
    for name in FILES:
        found.update((folder / f"{name}.parquet").read_bytes())
    return found.hexdigest()


def read_sources(folder: Path) -> list[Source]:
    """Read all tables in a folder, cut to the configurations that they have in common.

    Raises:
        StoreError: there is none, or their first configurations differ.
    """
    names = sorted(path.parent for path in folder.glob("*/trials.parquet"))
    if not names:
        raise StoreError(f"{folder} has no tables; scripts/atlas --held-out makes some")
    tables = [read_table(path) for path in names]
    count = min(len(table.params) for table in tables)
    first = tables[0]
    for table in tables:
        if table.params[:count] != first.params[:count]:
            raise StoreError(f"{table.name} and {first.name} have different configurations")
    return [_source(path, table, count) for path, table in zip(names, tables, strict=True)]


def _source(path: Path, table: BenchTable, count: int) -> Source:
    sign = 1.0 if table.goal == "maximize" else -1.0
    values = sign * table.finals[:count]
    chooses = values
    if "return_" in table.metric:  # training returns do not measure blocking
        training = sign * table.curves[TRAINING][:count, :, -1]
        mixed = WEIGHT * training + (1.0 - WEIGHT) * values
        chooses = np.where(np.isfinite(training), mixed, values)
    return Source(table.name, digest_of(path), table.params[:count], values, chooses)
