"""What other systems call the things of a study: one table of names and values for each system.

Plain data under everything else. The importers, the hints for unknown keys, `hpo knobs` and
docs/coming-from/ read these tables and hold no names of their own.
"""

from .cleanrl import another_algorithm
from .common import SEARCH_METHODS
from .metrics import METRICS_ELSEWHERE
from .rows import Row, System
from .tables import COMMON, SYSTEMS, env_names, find, hints, names_of, recognise, system
from .values import Settings, Values
from .xlron import XLRON

__all__ = [
    "COMMON",
    "METRICS_ELSEWHERE",
    "SEARCH_METHODS",
    "SYSTEMS",
    "XLRON",
    "Row",
    "Settings",
    "System",
    "Values",
    "another_algorithm",
    "env_names",
    "find",
    "hints",
    "names_of",
    "recognise",
    "system",
]
