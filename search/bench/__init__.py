"""Searches over recorded runs: the real engine, served from a table instead of training."""

from .bench import BenchResults, Outcome, run_bench, search_table
from .table_lanes import SeedPlan, TableFactory, plan_seeds
from .tables import Table, read_table

__all__ = [
    "BenchResults", "Outcome", "SeedPlan", "Table", "TableFactory", "plan_seeds", "read_table",
    "run_bench", "search_table",
]  # fmt: skip
