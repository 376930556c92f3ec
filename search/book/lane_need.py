"""How many lanes a bucket of several keeps, decided when it first gets the device.

A pure function of what the ledger knows there: the replicates that wait, and the share of the
trials to come that falls to the bucket, taken from those that have come.
"""

from __future__ import annotations

from math import inf

from ...studies.quanta import rung_steps
from ..lanes.lane_count import fitting_lanes
from .buckets import Bucket
from .budget import may_propose, trials_left
from .ledger import Ledger

__all__ = ["lanes_to_keep", "replicates_to_come"]


def lanes_to_keep(ledger: Ledger, bucket: Bucket) -> int:
    """Return the lanes that a bucket keeps of those that it was given, in whole blocks.

    Args:
        ledger: trials and state.
        bucket: with a population in which nothing has run.
    """
    block = bucket.population.block if bucket.population is not None else 1
    more = replicates_to_come(ledger, bucket.key)
    if more == inf:
        return bucket.lanes
    return fitting_lanes(bucket.lanes, block, bucket.work + int(more))


def replicates_to_come(ledger: Ledger, key: str) -> float:
    """Return the replicates of trials to come that are expected in a bucket; may be infinite."""
    state, study = ledger.state, ledger.study
    trials = trials_left(study, state.proposed) if may_propose(ledger) else 0
    if study.budget.env_steps is not None:
        left = max(0, study.budget.env_steps - state.usage.bounded_env_steps)
        shortest = min([*rung_steps(study), study.env_steps]) * study.seeds.first * study.spread
        trials = min(trials, left // max(1, shortest))
    if state.pending is not None:
        trials += len(state.pending.trials)
    if trials == inf:
        return inf
    own = sum(trial.bucket == key for trial in ledger.trials.values())
    return -(-int(trials) * own // max(1, len(ledger.trials))) * study.seeds.first
