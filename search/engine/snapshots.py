"""Policies kept on the way: every so many env steps of the best trials, and each trial's best.

A snapshot of replicate 0 of trial 3 at 100,000 env steps is `trial_3_steps/0/100000`; the policy
of trial 3 at its best evaluation is `trial_3_best`. Snapshots of trials that have ended and are
not among those kept are deleted, so the disk holds those of the best trials and of what runs. What
a crash leaves beyond the last commit is deleted when the study goes on, which writes it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...disk import delete_folder
from ...store.rows import Stream
from ...studies.several import metric_words
from ..book.buckets import Bucket
from ..book.ledger import Ledger
from ..book.runs import Run, RunState

__all__ = ["Snapshots", "about"]

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
