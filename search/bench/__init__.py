"""Searches over recorded runs: the real engine, served from a table in place of training.

`tables` reads and looks up recorded runs, `table_lanes` plays it to the engine, `bench` runs
methods over it, and `compare` says which of them needs fewer env steps.
"""

from .bench import BenchResults, Outcome, run_bench, search_table
from .table_lanes import SeedPlan, TableFactory, plan_seeds
from .tables import Table, read_table

__all__ = [
    "BenchResults",
    "Outcome",
    "SeedPlan",
    "Table",
    "TableFactory",
    "plan_seeds",
    "read_table",
    "run_bench",
    "search_table",
]
