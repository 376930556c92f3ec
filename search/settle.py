"""How trials end by themselves: at the end of their runs, with a value, or cut by the budget.

Also keeps the best policies: a lane still holds its policy at the boundary where its run ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from ..store.rows import Stream, TrialState
from .buckets import Bucket
from .ledger import Ledger, cut
from .state import KeptPolicy
from .trials import Run, RunState, Trial

__all__ = ["Policies", "close_search", "settle"]


class Policies:
    """The policies kept in a folder, one sub-folder `trial_N` each."""

    def __init__(self, directory: Path, keep: int):
        self._directory, self._keep = directory, keep

    def offer(self, ledger: Ledger, trial: Trial, bucket: Bucket) -> None:
        """Keep a finished trial's policy if it is among the best so far.

        It is that of the last replicate to end, of several the first.
        """
        if trial.value is None:
            return
        kept = ledger.state.kept
        kept.append(KeptPolicy(trial.number, ledger.objective.loss(trial.value)))
        kept.sort(key=lambda policy: (policy.loss, policy.trial))
        dropped = [policy.trial for policy in kept[self._keep :]]
        del kept[self._keep :]
        for number in dropped:
            shutil.rmtree(self._path(number), ignore_errors=True)
        if trial.number not in dropped:
            self.export(ledger, bucket, in_lanes(trial.runs_of(Stream.SEARCH))[0])

    def export(self, ledger: Ledger, bucket: Bucket, run: Run) -> None:
        """Write the policy in a replicate's lane in place of what is kept of its trial."""
        if self._keep < 1 or bucket.population is None or run.lane is None:
            return
        path = self._path(run.trial)
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        bucket.population.export_policy(run.lane, ledger.config_of(run.trial), path)

    def _path(self, trial: int) -> Path:
        return self._directory / f"trial_{trial}"


def in_lanes(runs: list[Run]) -> list[Run]:
    """Give the replicates that ended at this boundary: their lanes are not freed yet."""
    return [run for run in runs if run.lane is not None and run.state is RunState.ENDED]


def settle(ledger: Ledger, buckets: Mapping[str, Bucket], policies: Policies) -> None:
    """End the trials of the search that have no replicate left to run."""
    for trial in ledger.live():
        if trial.lost or not trial.runs or any(run.is_live for run in trial.runs):
            continue
        if any(run.state is RunState.CUT for run in trial.runs):
            ledger.end(trial, TrialState.UNFINISHED)
            continue
        trial.value = ledger.objective.aggregate(trial.values_of(Stream.SEARCH))
        ledger.end(trial, TrialState.FINISHED)
        policies.offer(ledger, trial, buckets[trial.bucket])


def close_search(ledger: Ledger) -> None:
    """End what the budget left over: trials that still wait or run are unfinished."""
    for trial in ledger.live():
        cut(trial.runs)
        ledger.end(trial, TrialState.DIVERGED if trial.lost else TrialState.UNFINISHED)
