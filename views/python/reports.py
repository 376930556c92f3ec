"""`hpo.report`: the page of a study, whose errors say what to type in Python."""

from __future__ import annotations

from pathlib import Path

from ...store.study_folder import RESULTS
from ..report import report as pages
from ..words import speaks_python

__all__ = ["report"]


def report(
    study: str | Path | None = None, out: str | Path = RESULTS, to: str | Path | None = None
) -> Path:
    """Write the report of a study as one HTML file and return its path; `hpo report` in Python.

    Args:
        study: its name, or its folder; None means the only one in `out`.
        out: the folder of results.
        to: the file; None writes `report.html` into the study's folder.

    Raises:
        StoreError: there is no such study, or its journal is damaged.
    """
    with speaks_python():
        return pages.report(study, out, to)
