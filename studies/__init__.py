"""From a study file to a frozen `Study`, or to all of its mistakes at once."""

from .load import load, loads
from .spec import Study

__all__ = ["Study", "load", "loads"]
