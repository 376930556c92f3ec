"""Processes to be killed that start in a moment: forks of one that imported what they need."""

import multiprocessing
import warnings
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from typing import Any

_IMPORTED = [
    "helpers.search_samples",
    "helpers.toy_study",
    "hpo.search.run",
    "hpo.search.samplers.via_cmaes",
    "hpo.search.samplers.via_optuna",
    "pandas",  # which pyarrow imports when it makes its first array
    "pyarrow.parquet",
    "scipy.stats.qmc",
]


def forks() -> ForkServerContext:
    """Return what starts them; all tests of a process share its server, so all name the same."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context


def strictly(act: Callable[..., None], *given: Any) -> None:
    """Do it where a warning is an error, too; a target of a process is no part of a test file."""
    warnings.simplefilter("error")
    act(*given)
