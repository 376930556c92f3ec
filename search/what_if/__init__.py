"""A study under different stopping rules: the engine reads recorded values instead of training.

Trials are proposed in the recorded order. For a method that does not learn (random, grid, sobol),
the replay equals a study with that rule. For a search method that learns, the verdict applies only
to the recorded trials. At each point, the value of a replicate is its latest evaluation so far.
"""

from .compare_rules import WhatIf, WhatIfRow, what_if
from .record import read_record
from .replay import matches, replay
from .rules import asked_rules

__all__ = [
    "WhatIf",
    "WhatIfRow",
    "asked_rules",
    "matches",
    "read_record",
    "replay",
    "what_if",
]
