"""How trials end by themselves: at the end of their runs, with a value, or cut by the budget.

Also keeps the best policies: a lane still holds its policy at the boundary where its run ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..store.rows import Stream, TrialState
from .buckets import Bucket
from .ledger import Ledger, cut
from .population import Population
from .racing import more_seeds, value_of
from .state import KeptPolicy
from .trials import Run, RunState, Trial

__all__ = ["Policies", "close_search", "settle"]


class Policies:
    """The policies kept in a folder, one sub-folder `trial_N` each.

    Args:
        directory: the folder.
        keep: how many trials' policies, as they are at the end of their runs.
        best_evaluation: also keep, as `best_evaluation`, the one with the best evaluation of all.
    """

    def __init__(self, directory: Path, keep: int, best_evaluation: bool = False):
        self._directory, self._keep = directory, keep
        self._best_evaluation = best_evaluation

    def consider(self, ledger: Ledger, bucket: Bucket, runs: Sequence[Run]) -> None:
        """Keep the policy of a replicate that was evaluated just now, if none was ever better."""
        if not self._best_evaluation or bucket.population is None:
            return
        for run in runs:
            if run.stream is not Stream.SEARCH or run.value is None or run.lane is None:
                continue
            if run.state not in (RunState.RUNNING, RunState.ENDED):
                continue
            best, loss = ledger.state.best_evaluation, ledger.objective.loss(run.value)
            if best is None or loss < best.loss:
                ledger.state.best_evaluation = KeptPolicy(run.trial, loss)
                self._write(ledger, bucket.population, run, self._directory / "best_evaluation")

    def offer(self, ledger: Ledger, trial: Trial, bucket: Bucket) -> None:
        """Keep a finished trial's policy if it is among the best so far.

        It is that of the last replicate to end, of several the first.
        """
        if trial.value is None:
            return
        numbers = [policy.trial for policy in ledger.state.kept] + [trial.number]
        ordered = ledger.order(ledger.trials[number] for number in numbers)
        dropped = [entry.number for entry in ordered[self._keep :]]
        ledger.state.kept = [
            KeptPolicy(entry.number, ledger.losses(entry)[0]) for entry in ordered[: self._keep]
        ]
        for number in dropped:
            shutil.rmtree(self._path(number), ignore_errors=True)
        if trial.number not in dropped:
            self.export(ledger, bucket, in_lanes(trial.runs_of(Stream.SEARCH))[0])

    def export(self, ledger: Ledger, bucket: Bucket, run: Run) -> None:
        """Write the policy in a replicate's lane in place of what is kept of its trial."""
        if self._keep < 1 or bucket.population is None or run.lane is None:
            return
        self._write(ledger, bucket.population, run, self._path(run.trial))

    @staticmethod
    def _write(ledger: Ledger, population: Population, run: Run, path: Path) -> None:
        if run.lane is None:
            raise RuntimeError(f"{run} has no lane")
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        population.export_policy(run.lane, ledger.config_of(run.trial), path)

    def _path(self, trial: int) -> Path:
        return self._directory / f"trial_{trial}"


def in_lanes(runs: list[Run]) -> list[Run]:
    """Give the replicates that ended at this boundary: their lanes are not freed yet."""
    return [run for run in runs if run.lane is not None and run.state is RunState.ENDED]


def settle(ledger: Ledger, buckets: Mapping[str, Bucket], policies: Policies) -> None:
    """End the trials of the search that have no replicate left to run.

    Where seeds race, a trial that may still win runs on more of them instead.
    """
    for trial in ledger.live():
        if trial.lost or not trial.runs or any(run.is_live for run in trial.runs):
            continue
        if any(run.state is RunState.CUT for run in trial.runs):
            _end_cut(ledger, trial)
            continue
        further = more_seeds(ledger, trial)
        if further:
            trial.runs += further
            buckets[trial.bucket].enqueue(further)
            continue
        _take_values(ledger, trial)
        ledger.end(trial, TrialState.FINISHED)
        policies.offer(ledger, trial, buckets[trial.bucket])


def _take_values(ledger: Ledger, trial: Trial) -> None:
    """Give a trial that has run to its end its values."""
    trial.value = value_of(ledger, trial)
    if ledger.objectives.is_plain:
        return
    extras = ledger.objectives.aggregate(trial.extras_of(Stream.SEARCH), trial.costs())
    if ledger.objectives.others:
        trial.objectives = (trial.value, *ledger.objectives.values(extras))
    trial.constraints = ledger.objectives.limited(extras)


def close_search(ledger: Ledger) -> None:
    """End what the budget left over: trials that still wait or run are unfinished."""
    for trial in ledger.live():
        cut(trial.runs)
        _end_cut(ledger, trial)


def _end_cut(ledger: Ledger, trial: Trial) -> None:
    """End a trial that the budget has cut: it is unfinished, or had diverged before.

    Unless seeds race and it has a value on those that it began with: then further ones were
    under way, and it is finished without them.
    """
    whole = [run for run in trial.runs if run.state is not RunState.CUT]
    if ledger.study.seeds.racing is None or len(whole) < ledger.study.seeds.first:
        ledger.end(trial, TrialState.DIVERGED if trial.lost else TrialState.UNFINISHED)
        return
    trial.runs = whole
    trial.stop_rule = "racing: the budget ended before further seeds"
    _take_values(ledger, trial)
    ledger.end(trial, TrialState.FINISHED)
