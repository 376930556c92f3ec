"""Searches over recorded runs: the real engine reads results from a table instead of training."""

from .bench import BenchOutcome, BenchResults, run_bench, search_table
from .table_lanes import SeedPlan, TableFactory, plan_seeds
from .tables import BenchTable, read_table

__all__ = [
    "BenchOutcome",
    "BenchResults",
    "BenchTable",
    "SeedPlan",
    "TableFactory",
    "plan_seeds",
    "read_table",
    "run_bench",
    "search_table",
]
