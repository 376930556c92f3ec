"""How trials end by themselves: at the end of their runs, with a value, or cut by the budget.

Also keeps the best policies: a lane still holds its policy at the boundary where its run ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...disk import copy_folder, delete_folder, make_folder, sync_tree
from ...store.rows import Stream, TrialState
from ...studies.spec import Checkpoint
from ..book.buckets import Bucket
from ..book.ledger import Ledger
from ..book.looks import BUDGET_ENDED
from ..book.runs import Run, RunState, cut
from ..book.state import KeptPolicy
from ..book.trials import Trial
from .growth import keep_for_growth
from .racing import more_seeds, value_of
from .snapshots import Snapshots, about

__all__ = ["Policies", "close_search", "settle"]

_TRIAL, _SEEDS = re.compile(r"trial_(\d+)"), re.compile(r"trial_(\d+)_seeds")


class Policies:
    """The policies kept in a folder, one sub-folder `trial_N` each.

    Args:
        directory: the folder.
        wanted: what is kept. `keep_best`: the policies of how many trials, as they are at the end
            of their runs; `best_evaluation`: the one with the best evaluation of all, under that
            name; `each_seed`: those of every seed of these trials, as `trial_N_seeds/S`, where
            that of the trial is the first one's; the rest is for `snapshots`.
    """

    def __init__(self, directory: Path, wanted: Checkpoint):
        self._directory, self._keep = directory, wanted.keep_best
        self._best_evaluation, self._each_seed = wanted.best_evaluation, wanted.each_seed
        every, each = wanted.policies_every, wanted.best_of_each
        self.snapshots = Snapshots(directory, every, each, self._write)

    def consider(self, ledger: Ledger, bucket: Bucket, runs: Sequence[Run]) -> None:
        """Look at the replicates that were evaluated just now, while their lanes hold them.

        The policy of one is kept if none was ever better, and if its run has ended.
        """
        for run in runs:
            if run.stream is not Stream.SEARCH or run.value is None or bucket.population is None:
                continue
            if run.state is RunState.ENDED and self._each_seed:
                path = self._seeds(run.trial) / str(run.replicate)
                self._write(ledger, bucket, run, path)
            if run.state not in (RunState.RUNNING, RunState.ENDED):
                continue
            self.snapshots.compare(ledger, bucket, run)
            loss = ledger.objective.loss(run.value)
            if self._best_evaluation and ledger.state.beats_all(run.trial, loss):
                self._write(ledger, bucket, run, self._directory / "best_evaluation")

    def offer(self, ledger: Ledger, trial: Trial, bucket: Bucket) -> None:
        """Keep a finished trial's policy if it is among the best so far.

        It is that of the last replicate to end, of several the first; with `each_seed` that of
        the first seed. Where the others ended before, and the last one diverged, which is
        tolerated, no lane holds one any more: then none is kept.
        """
        runs = trial.runs_of(Stream.SEARCH)
        there = in_lanes(runs)
        seeds = self._seeds_of(ledger, bucket, trial.number, runs) if self._each_seed else []
        if trial.value is None or not (seeds or there):
            return
        numbers = [policy.trial for policy in ledger.state.kept] + [trial.number]
        ordered = ledger.order(ledger.trials[number] for number in numbers)
        dropped = [entry.number for entry in ordered[self._keep :]]
        kept = ordered[: self._keep]
        ledger.state.keep([KeptPolicy(one.number, ledger.losses(one)[0]) for one in kept])
        for number in dropped:
            if not _has_won(ledger.trials[number]):
                delete_folder(self._path(number))
        self._forget_seeds(ledger)
        if trial.number in dropped:
            return
        if seeds:
            delete_folder(self._path(trial.number))
            copy_folder(seeds[0], self._path(trial.number))
        else:
            self.export(ledger, bucket, there[0])

    def _seeds_of(
        self, ledger: Ledger, bucket: Bucket, number: int, runs: Sequence[Run]
    ) -> list[Path]:
        """Return the policies of the seeds that came to their end, by seed.

        Those that a rule ended just now are in their lanes still; that of a seed that diverged in
        a run that was made longer is of the shorter one, and deleted.
        """
        folder = self._seeds(number)
        ended = {str(run.replicate): run for run in runs if run.state is RunState.ENDED}
        for path in folder.glob("*"):
            if path.name.isdecimal() and path.name not in ended:
                delete_folder(path)
        for name, run in ended.items():
            if run.lane is not None and not (folder / name).is_dir():
                self._write(ledger, bucket, run, folder / name)
        return [folder / name for name in sorted(ended, key=int) if (folder / name).is_dir()]

    def _forget_seeds(self, ledger: Ledger) -> None:
        """Delete the seeds' policies of trials that have ended and are not kept."""
        kept = {policy.trial for policy in ledger.state.kept}
        live = {trial.number for trial in ledger.going_on()}
        for path in self._directory.glob("trial_*_seeds"):
            found = _SEEDS.fullmatch(path.name)
            if found and int(found[1]) not in kept | live:
                delete_folder(path)

    def tidy(self, ledger: Ledger, winner: Trial | None) -> None:
        """Delete, as a study ends, the policies of trials that are not kept or have no value.

        A longer run may have cost a trial its value. One that the budget cut may go on.

        Args:
            ledger: trials, and whose policies are kept.
            winner: whose policy is kept, too.
        """
        trials = ledger.trials
        lost = {
            number for number, trial in trials.items()
            if trial.value is None and trial.state is not TrialState.UNFINISHED
        }  # fmt: skip
        ledger.state.keep([one for one in ledger.state.kept if one.trial not in lost])
        kept = {one.trial for one in ledger.state.kept}
        kept |= {number for number, trial in trials.items() if _has_won(trial)}
        kept |= set[int]() if winner is None else {winner.number}
        for path in self._directory.glob("trial_*"):
            own, seeds = _TRIAL.fullmatch(path.name), _SEEDS.fullmatch(path.name)
            if (own and int(own[1]) not in kept) or (seeds and int(seeds[1]) in lost):
                delete_folder(path)

    def export(self, ledger: Ledger, bucket: Bucket, run: Run) -> None:
        """Write the policy in a replicate's lane in place of what is kept of its trial."""
        if self._keep < 1 or bucket.population is None or run.lane is None:
            return
        self._write(ledger, bucket, run, self._path(run.trial))

    @staticmethod
    def _write(ledger: Ledger, bucket: Bucket, run: Run, path: Path) -> None:
        if run.lane is None or bucket.population is None:
            raise RuntimeError(f"{run} has no lane")
        delete_folder(path)
        make_folder(path.parent)
        resolved, origin = ledger.resolved_of(run.trial), about(ledger, bucket, run)
        bucket.population.export_policy(run.lane, resolved, path, origin)
        sync_tree(path)

    def _path(self, trial: int) -> Path:
        return self._directory / f"trial_{trial}"

    def _seeds(self, trial: int) -> Path:
        return self._directory / f"trial_{trial}_seeds"


def _has_won(trial: Trial) -> bool:
    """Return whether it won once: it may win again, without a lane that still has its policy."""
    return bool(trial.choose_values and trial.report_values)


def in_lanes(runs: list[Run]) -> list[Run]:
    """Return the replicates that ended at this boundary: their lanes are not freed yet."""
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
            trial.add(further)
            buckets[trial.bucket].enqueue(further)
            continue
        keep_for_growth(ledger, trial)
        ledger.settle(trial, value_of(ledger, trial))
        policies.offer(ledger, trial, buckets[trial.bucket])


def close_search(ledger: Ledger) -> None:
    """End what the budget left over: live trials are unfinished, paused ones stopped."""
    for trial in ledger.live():
        cut(trial.runs)
        _end_cut(ledger, trial)
    for trial in ledger.paused():
        ledger.end(trial, TrialState.STOPPED)


def _end_cut(ledger: Ledger, trial: Trial) -> None:
    """End a trial that the budget has cut: it is unfinished, or had diverged before.

    Unless seeds race and it has a value on those that it began with: then further ones were
    under way, and it is finished without them.
    """
    whole = [run for run in trial.runs if run.state is not RunState.CUT]
    if ledger.study.seeds.racing is None or len(whole) < ledger.study.seeds.first:
        ledger.end(trial, TrialState.DIVERGED if trial.lost else TrialState.UNFINISHED)
        return
    trial.forget_cut()
    trial.stop_by(BUDGET_ENDED)
    ledger.settle(trial, value_of(ledger, trial))
