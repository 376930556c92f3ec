"""A study file becomes a frozen `Study`, or all of its mistakes at once."""

from .load import load, loads
from .spec import Study

__all__ = ["Study", "load", "loads"]
