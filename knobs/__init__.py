"""The table of all hyperparameters: plain data from which everything else is derived.

`KNOBS` declares every hyperparameter once (name, type, default, legal range, traced or static,
meaning). `check_value` makes a value canonical, and `complete` completes a configuration.
"""

if __name__ == "knobs":
    raise ImportError("import hpo.knobs instead, after `pip install -e .`")

from .configuration import allowed, canonical_value, check_value, complete
from .knob import SCHEDULES, Knob
from .static_knobs import RECURRENT_NETWORKS
from .table import (
    AVERAGE_REWARD,
    DEFAULTS_OF_OLD,
    KNOBS,
    REGISTRABLE,
    SCHEDULE_KNOBS,
    allow_choice,
    canonical_name,
    check_name,
    hint_of,
    known_choices,
    matters,
)

__all__ = [
    "AVERAGE_REWARD", "DEFAULTS_OF_OLD", "KNOBS", "RECURRENT_NETWORKS", "REGISTRABLE", "SCHEDULES",
    "SCHEDULE_KNOBS", "Knob", "allow_choice", "allowed", "canonical_name", "canonical_value",
    "check_name", "check_value", "complete", "hint_of", "known_choices", "matters",
]  # fmt: skip
