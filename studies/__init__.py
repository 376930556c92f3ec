"""Converts a study file to a frozen `Study`, or reports all of its mistakes at once."""

if __name__ == "studies":
    raise ImportError("import hpo.studies instead, after `pip install -e .`")

from .load import load, loads
from .spec import Study

__all__ = ["Study", "load", "loads"]
