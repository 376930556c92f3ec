"""How trials end by themselves: at the end of their runs, with a value, or cut by the budget.

Also keeps the best policies: a lane still holds its policy at the boundary where its run ends.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from ...files.atomic_files import copy_folder, delete_folder, make_folder, sync_tree
from ...store.rows import Stream, TrialState
from ...studies.several_environments import metric_words
from ...studies.spec import Checkpoint
from ..state.buckets import Bucket
from ..state.loop_state import KeptPolicy
from ..state.schedule import BUDGET_ENDED, CLEARLY_BELOW, stages
from ..state.search_state import Ledger
from ..state.trials import Run, RunState, Trial, cut
from .extend_run import keep_for_growth


def clearly_worse(losses: Sequence[float], best: Sequence[float], risk: float) -> bool:
    """Return whether the mean of `losses` lies above that of `best`, seed by seed.

    A one-sided paired t-test: the lower bound of the mean difference, at level 1 - risk, is above
    zero. Fewer than two pairs say nothing.

    >>> clearly_worse([5.0, 6.0, 7.0], [1.0, 2.1, 2.9], risk=0.05)
    True
    """
    differences = [own - other for own, other in zip(losses, best, strict=True)]
    count = len(differences)
    if count < 2 or not all(map(math.isfinite, differences)):
        return False
    error = statistics.stdev(differences) / math.sqrt(count)
    return statistics.fmean(differences) - float(stdtrit(count - 1, 1.0 - risk)) * error > 0.0


def more_seeds(ledger: Ledger, trial: Trial) -> list[Run]:
    """Return the replicates that a trial whose runs are over should run besides; maybe none.

    The risk of dropping an equal of the best trial is 1 - confidence in all: it is shared out
    evenly among the looks (Bonferroni).
    """
    seeds = ledger.study.seeds
    done = len(trial.runs_of(Stream.SEARCH))
    if seeds.racing is None or done >= seeds.per_config or trial.audited:
        return []
    looks = stages(seeds.first, seeds.per_config)
    best = _best_in_full(ledger)
    if best is not None:
        ended = [run for run in trial.runs_of(Stream.SEARCH) if run.state is RunState.ENDED]
        own = [ledger.objective.loss(run.value or 0.0) for run in ended]
        other = [ledger.objective.loss(best.seed_values[run.replicate]) for run in ended]
        if clearly_worse(own, other, (1.0 - seeds.racing.confidence) / (len(looks) - 1)):
            trial.stop_by(f"{CLEARLY_BELOW} trial {best.number} on {len(own)} seeds")
            return []
    wanted = next(size for size in looks if size > done)
    return [Run(trial.number, Stream.SEARCH, replicate) for replicate in range(done, wanted)]


def value_of(ledger: Ledger, trial: Trial) -> float:
    """Return a finished trial's value.

    A trial with fewer seeds than others cannot be held against their means as it is: its seeds
    may be the easy ones. So it has the value of the best trial on all seeds plus their mean
    difference on those that both ran.
    """
    values = trial.values_of(Stream.SEARCH)
    plain = ledger.objective.aggregate(values)
    if ledger.study.seeds.racing is None or len(values) >= ledger.study.seeds.per_config:
        return plain
    best = _best_in_full(ledger)
    if best is None:
        return plain
    ended = [run for run in trial.runs_of(Stream.SEARCH) if run.state is RunState.ENDED]
    shared = [best.seed_values[run.replicate] for run in ended]
    return statistics.fmean(best.seed_values) + plain - statistics.fmean(shared)


def _best_in_full(ledger: Ledger) -> Trial | None:
    """Return the best trial that has a value on every seed and keeps the constraints."""
    whole = [
        trial
        for trial in ledger.trials.values()
        if trial.state is TrialState.FINISHED
        and len(trial.seed_values) == ledger.study.seeds.per_config
        and ledger.violation(trial.constraints) == 0.0
    ]
    return ledger.best(whole) if whole else None


_FOLDER = re.compile(r"trial_(\d+)_(steps|best)")
Write = Callable[[Ledger, Bucket, Run, Path], None]


class Snapshots:
    """Keeps policies on the way.

    Args:
        directory: the folder of policies.
        every: env steps between two snapshots of a replicate; None: no snapshots.
        best_of_each: whether each trial's policy at its best evaluation is kept.
        write: writes the policy in a replicate's lane into a folder.
    """

    def __init__(self, directory: Path, every: int | None, best_of_each: bool, write: Write):
        self._directory, self._write = directory, write
        self._every, self._best_of_each = every, best_of_each

    @property
    def _on(self) -> bool:
        return self._every is not None or self._best_of_each

    def take(self, ledger: Ledger, bucket: Bucket, runs: Iterable[Run]) -> None:
        """Write the snapshots that are due of replicates in lanes, at the boundary of a chunk."""
        for run in runs:
            if run.stream is Stream.SEARCH and run.lane is not None and self._is_due(bucket, run):
                at = bucket.trained(run) * bucket.schedule.quantum
                path = self._directory / f"trial_{run.trial}_steps" / str(run.replicate) / str(at)
                self._write(ledger, bucket, run, path)

    def _is_due(self, bucket: Bucket, run: Run) -> bool:
        """Return whether a multiple of the interval was passed in the chunk, or met at its end."""
        if self._every is None or run.state not in (RunState.RUNNING, RunState.ENDED):
            return False
        trained, quantum = bucket.trained(run), bucket.schedule.quantum
        return trained * quantum // self._every > (trained - 1) * quantum // self._every >= 0

    def compare(self, ledger: Ledger, bucket: Bucket, run: Run) -> None:
        """Keep the policy of a replicate evaluated just now if its trial had no better one."""
        if not self._best_of_each or run.value is None:
            return
        if ledger.state.beats_own(run.trial, ledger.objective.loss(run.value)):
            self._write(ledger, bucket, run, self._directory / f"trial_{run.trial}_best")

    def forget(self, ledger: Ledger) -> None:
        """Delete the snapshots of trials that have ended and are not kept."""
        if not self._on:
            return
        live = {trial.number for trial in ledger.going_on()}
        kept = {policy.trial for policy in ledger.state.kept}
        ledger.state.forget_bests(live)
        for path, number, kind in self._folders():
            if kind == "steps" and number not in live | kept:
                delete_folder(path)

    def tidy(self, ledger: Ledger, trained: Callable[[Run], int]) -> None:
        """Delete what the last commit does not know, when a study goes on.

        Args:
            ledger: as of that commit.
            trained: gives the training env steps of a replicate.
        """
        if not self._on:
            return
        self.forget(ledger)
        for path, number, kind in self._folders():
            trial = ledger.trials.get(number)
            goes_on = trial is not None and (trial.is_live or trial.is_paused)
            if trial is None or (kind == "best" and goes_on and number not in
                                 ledger.state.bests):  # fmt: skip
                delete_folder(path)
            elif kind == "steps" and goes_on:
                done = {str(run.replicate): trained(run) for run in trial.runs_of(Stream.SEARCH)}
                for snapshot in path.glob("*/*"):
                    if int(snapshot.name) > done.get(snapshot.parent.name, 0):
                        delete_folder(snapshot)

    def _folders(self) -> list[tuple[Path, int, str]]:
        """Return the folders of snapshots, with trial and kind."""
        found = (
            (path, _FOLDER.fullmatch(path.name)) for path in self._directory.glob("trial_*_*")
        )
        return [(path, int(match[1]), match[2]) for path, match in found if match]


def about(ledger: Ledger, bucket: Bucket, run: Run) -> dict[str, Any]:
    """Return what a policy's `policy.json` says of where it comes from.

    `value` is the study's metric in an evaluation of this very policy, null where none was made.
    """
    trained = bucket.trained(run)
    evaluated = trained in bucket.schedule.evaluations or trained == bucket.schedule.length
    return {
        "trial": run.trial,
        "stream": str(run.stream),
        "replicate": run.replicate,
        "env_steps": trained * bucket.schedule.quantum,
        "metric": metric_words(ledger.study),
        "value": run.value if evaluated else None,
    }


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
