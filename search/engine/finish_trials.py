"""Ends trials when their runs end or the budget cuts them, and keeps the best policies.

When a run ends, its lane still contains its policy until the next refill.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from ...files.atomic_files import copy_folder, delete_folder, make_folder, sync_tree
from ...store.rows import REFERENCE_TRIAL, Stream, TrialState
from ...studies.execution_spec import Checkpoint
from ...studies.study_environments import value_words
from ..state.buckets import Bucket
from ..state.schedule import BUDGET_ENDED, CLEARLY_BELOW, stages
from ..state.search_state import SearchState
from ..state.trials import Replicate, RunState, Trial, any_live, cut, in_state
from .extend_run import keep_for_growth


def clearly_worse(losses: Sequence[float], best: Sequence[float], risk: float) -> bool:
    """Return whether the mean of `losses` is clearly above that of `best`, paired by seed.

    This is a one-sided paired t-test: the lower bound of the mean difference, at level 1 - risk,
    is above zero. It needs at least two pairs.

    >>> clearly_worse([5.0, 6.0, 7.0], [1.0, 2.1, 2.9], risk=0.05)
    True
    """
    differences = [own - other for own, other in zip(losses, best, strict=True)]
    count = len(differences)
    if count < 2 or not all(map(math.isfinite, differences)):
        return False
    error = statistics.stdev(differences) / math.sqrt(count)
    return statistics.fmean(differences) - float(stdtrit(count - 1, 1.0 - risk)) * error > 0.0


def more_seeds(search_state: SearchState, trial: Trial) -> list[Replicate]:
    """Return additional replicates for a trial whose runs have ended; possibly none.

    The total risk of dropping a trial that is as good as the best one is 1 - confidence, divided
    evenly among the looks (Bonferroni).
    """
    seeds = search_state.study.seeds
    done = len(trial.runs_of(Stream.SEARCH))
    if seeds.racing is None or done >= seeds.per_config or trial.audited:
        return []
    looks = stages(seeds.first, seeds.per_config)
    best = _best_in_full(search_state)
    if best is not None:
        ended = in_state(trial.runs_of(Stream.SEARCH), RunState.ENDED)
        own = [search_state.objective.loss(run.value or 0.0) for run in ended]
        other = [search_state.objective.loss(best.seed_values[run.replicate]) for run in ended]
        if clearly_worse(own, other, (1.0 - seeds.racing.confidence) / (len(looks) - 1)):
            trial.stop_by(f"{CLEARLY_BELOW} trial {best.number} on {len(own)} seeds")
            return []
    wanted = next(size for size in looks if size > done)
    return [Replicate(trial.number, Stream.SEARCH, replicate) for replicate in range(done, wanted)]


def value_of(search_state: SearchState, trial: Trial) -> float:
    """Return a finished trial's value.

    A trial with fewer seeds than the best trial may have run on easier seeds. Its value is
    therefore the best trial's value plus the mean difference on the shared seeds.
    """
    values = trial.values_of(Stream.SEARCH)
    plain = search_state.objective.aggregate(values)
    if (
        search_state.study.seeds.racing is None
        or len(values) >= search_state.study.seeds.per_config
    ):
        return plain
    best = _best_in_full(search_state)
    if best is None:
        return plain
    ended = in_state(trial.runs_of(Stream.SEARCH), RunState.ENDED)
    shared = [best.seed_values[run.replicate] for run in ended]
    return statistics.fmean(best.seed_values) + plain - statistics.fmean(shared)


def _best_in_full(search_state: SearchState) -> Trial | None:
    """Return the best feasible trial that has a value on every seed."""
    number = search_state.whole.best()
    if number is None:
        return None
    return search_state.trials[number]


_FOLDER = re.compile(r"trial_(\d+)(?:_(steps|best|seeds))?")


class KeptPolicies:
    """The saved policies of a study, in a sub-folder `trial_N` per trial.

    With `each_seed`, the policy of each seed is in `trial_N_seeds/S`, and the policy of the first
    seed is also in `trial_N`. Snapshots are in `trial_N_steps/S/ENV_STEPS`, and each trial's best
    policy in `trial_N_best`.
    """

    def __init__(
        self,
        search_state: SearchState,
        buckets: Mapping[str, Bucket],
        directory: Path,
        wanted: Checkpoint,
    ):
        self._search_state, self._buckets = search_state, buckets
        self._directory, self._wanted = directory, wanted

    def snapshot(self, runs: Iterable[Replicate]) -> None:
        """Write the due snapshots of replicates in lanes; called between two chunks."""
        for run in runs:
            if run.stream is Stream.SEARCH and run.lane is not None and self._is_due(run):
                path = self._directory / f"trial_{run.trial}_steps" / str(run.replicate)
                self._write_policy(run, path / str(self._bucket_of(run).env_steps_of(run)))

    def _is_due(self, run: Replicate) -> bool:
        every = self._wanted.policies_every
        if every is None or run.state not in (RunState.RUNNING, RunState.ENDED):
            return False
        here = self._bucket_of(run).env_steps_of(run)
        return here // every > (here - self._bucket_of(run).schedule.quantum) // every >= 0

    def consider(self, runs: Sequence[Replicate]) -> None:
        """Save policies of replicates that were just evaluated and are still in their lanes."""
        state = self._search_state.state
        for run in runs:
            has_lane = self._bucket_of(run).population is not None
            if run.stream is not Stream.SEARCH or run.value is None or not has_lane:
                continue
            if run.state is RunState.ENDED and self._wanted.each_seed:
                self._write_policy(run, self._trial_path(run.trial, "_seeds") / str(run.replicate))
            if run.state not in (RunState.RUNNING, RunState.ENDED):
                continue
            shown = run.value
            if run.alone is not None:  # over time, of one measure
                shown = run.alone
            loss = self._search_state.objective.loss(shown)
            if self._wanted.best_of_each and state.beats_own(run.trial, loss):
                self._write_policy(run, self._trial_path(run.trial, "_best"))
            if self._wanted.best_evaluation and state.beats_all(run.trial, loss):
                self._write_policy(run, self._directory / "best_evaluation")

    def offer(self, trial: Trial) -> None:
        """Save a finished trial's policy if it is among the best so far."""
        search_state, most = self._search_state, self._wanted.keep_best
        there = in_lanes(trial.runs_of(Stream.SEARCH))
        seeds = []
        if self._wanted.each_seed:
            seeds = self._seeds_of(trial)
        if trial.value is None or not (seeds or there or self._trial_path(trial.number).is_dir()):
            return
        numbers = [policy.trial for policy in search_state.state.kept] + [trial.number]
        ordered = search_state.order(search_state.trials[number] for number in numbers)
        kept = ordered[:most]
        search_state.keep_policies(kept)
        for other in ordered[most:]:
            if not _has_won(other):
                delete_folder(self._trial_path(other.number))
        self._delete_folders("seeds", but=self._kept_or_live())
        if all(one is not trial for one in kept):
            return
        if seeds:
            delete_folder(self._trial_path(trial.number))
            copy_folder(seeds[0], self._trial_path(trial.number))
        elif there:
            self.export(there[0])

    def _seeds_of(self, trial: Trial) -> list[Path]:
        """Return the policy folders of the finished seeds, in order of seed."""
        folder = self._trial_path(trial.number, "_seeds")
        runs = trial.runs_of(Stream.SEARCH)
        ended = {str(run.replicate): run for run in runs if run.state is RunState.ENDED}
        for path in folder.glob("*"):
            if path.name.isdecimal() and path.name not in ended:
                delete_folder(path)
        for name, run in ended.items():
            if run.lane is not None and not (folder / name).is_dir():
                self._write_policy(run, folder / name)
        return [folder / name for name in sorted(ended, key=int) if (folder / name).is_dir()]

    def export(self, run: Replicate) -> None:
        has_lane = run.lane is not None and self._bucket_of(run).population is not None
        if self._wanted.keep_best > 0 and has_lane:
            self._write_policy(run, self._trial_path(run.trial))

    def forget_snapshots(self) -> None:
        if self._has_snapshots:
            self._search_state.state.forget_bests(self._search_state.numbers_going_on())
            self._delete_folders("steps", but=self._kept_or_live())

    def tidy_snapshots(self) -> None:
        """On resuming, delete snapshots newer than the last commit."""
        if not self._has_snapshots:
            return
        self.forget_snapshots()
        for path, number, kind in self._trial_folders():
            trial = self._search_state.trials.get(number)
            can_continue = trial is not None and (trial.is_live or trial.is_paused)
            if kind not in ("steps", "best"):
                continue
            if trial is None:
                delete_folder(path)
            elif kind == "steps" and can_continue:
                self._tidy_steps(trial, path)
            elif kind == "best" and can_continue and number not in self._search_state.state.bests:
                delete_folder(path)

    def _tidy_steps(self, trial: Trial, path: Path) -> None:
        """Delete the snapshots of a trial that are newer than its replicates."""
        done: dict[str, int] = {}
        if trial.bucket in self._buckets:
            runs = trial.runs_of(Stream.SEARCH)
            done = {str(run.replicate): self._bucket_of(run).env_steps_of(run) for run in runs}
        for snapshot in path.glob("*/*"):
            if int(snapshot.name) > done.get(snapshot.parent.name, 0):
                delete_folder(snapshot)

    def tidy(self, winner: Trial | None) -> None:
        """At the end of a study, delete policies of trials that are not kept or have no value."""
        trials, state = self._search_state.trials, self._search_state.state
        lost = {
            number
            for number, trial in trials.items()
            if trial.value is None and trial.state is not TrialState.UNFINISHED
        }
        state.keep([one for one in state.kept if one.trial not in lost])
        kept = state.kept_trials
        kept |= {number for number, trial in trials.items() if _has_won(trial)}
        if winner is not None:
            kept.add(winner.number)
        self._delete_folders("", but=kept)
        self._delete_folders("seeds", but=trials.keys() - lost)

    @property
    def _has_snapshots(self) -> bool:
        return self._wanted.policies_every is not None or self._wanted.best_of_each

    def _kept_or_live(self) -> set[int]:
        return self._search_state.numbers_going_on() | self._search_state.state.kept_trials

    def _trial_folders(self) -> list[tuple[Path, int, str]]:
        """Return each trial folder, with trial number and kind ("" for the policy itself)."""
        paths = self._directory.glob("trial_*")
        found = ((path, _FOLDER.fullmatch(path.name)) for path in paths)
        return [(path, int(match[1]), match[2] or "") for path, match in found if match]

    def _delete_folders(self, kind: str, but: Collection[int]) -> None:
        for path, number, which in self._trial_folders():
            if which == kind and number not in but:
                delete_folder(path)

    def _write_policy(self, run: Replicate, path: Path) -> None:
        bucket = self._bucket_of(run)
        if run.lane is None or bucket.population is None:
            raise RuntimeError(f"{run} has no lane")
        delete_folder(path)
        make_folder(path.parent)
        trained = bucket.trained(run)
        evaluated = trained in bucket.schedule.evaluations or trained == bucket.schedule.length
        objective = self._search_state.objective.on(run.stream)
        about: dict[str, Any] = {
            "trial": run.trial,
            "stream": str(run.stream),
            "replicate": run.replicate,
            "env_steps": bucket.env_steps_of(run),
            "metric": value_words(
                self._search_state.study, alone=not objective.metric.training_weight
            ),
            "value": None,
        }
        if evaluated:
            about["value"] = run.value  # of this very policy
        resolved = self._search_state.resolved_of(run.trial)
        bucket.population.export_policy(run.lane, resolved, path, about)
        sync_tree(path)

    def _bucket_of(self, run: Replicate) -> Bucket:
        return self._buckets[self._search_state.trials[run.trial].bucket]

    def _trial_path(self, trial: int, kind: str = "") -> Path:
        return self._directory / f"trial_{trial}{kind}"


def _has_won(trial: Trial) -> bool:
    """Return whether a trial won earlier; its policy is kept, because the trial may win again."""
    is_default = trial.number in (0, REFERENCE_TRIAL) and not trial.schedule
    return bool(trial.report_values and (trial.choose_values or not is_default))


def in_lanes(runs: list[Replicate]) -> list[Replicate]:
    """Return the replicates that ended in this chunk, whose lanes are not yet free."""
    return [run for run in runs if run.lane is not None and run.state is RunState.ENDED]


def finish_trials(
    search_state: SearchState, buckets: Mapping[str, Bucket], policies: KeptPolicies
) -> None:
    """End the search trials that have no live replicates."""
    for trial in search_state.live():
        if trial.lost or not trial.runs or any_live(trial.runs):
            continue
        if in_state(trial.runs, RunState.CUT):
            _end_cut(search_state, trial, policies)
            continue
        further = more_seeds(search_state, trial)
        if further:
            for run in in_lanes(trial.runs_of(Stream.SEARCH))[:1]:
                policies.export(run)  # the budget may end before further seeds run
            trial.add(further)
            buckets[trial.bucket].enqueue(further)
            continue
        keep_for_growth(search_state, trial)
        search_state.set_value(trial, value_of(search_state, trial))
        policies.offer(trial)


def close_search(search_state: SearchState, policies: KeptPolicies) -> None:
    """End the remaining trials: live ones as unfinished, paused ones as stopped."""
    for trial in search_state.live():
        cut(trial.runs)
        _end_cut(search_state, trial, policies)
    for trial in search_state.paused():
        search_state.end(trial, TrialState.STOPPED)


def _end_cut(search_state: SearchState, trial: Trial, policies: KeptPolicies) -> None:
    """End a trial that the budget cut; with racing, it gets a value if its first seeds ended."""
    whole = [run for run in trial.runs if run.state is not RunState.CUT]
    if search_state.study.seeds.racing is None or len(whole) < search_state.study.seeds.first:
        if trial.lost:
            search_state.end(trial, TrialState.DIVERGED, trial.error)
        else:
            search_state.end(trial, TrialState.UNFINISHED)
        return
    trial.forget_cut()
    trial.stop_by(f"{BUDGET_ENDED} ran out before more seeds could run")
    search_state.set_value(trial, value_of(search_state, trial))
    policies.offer(trial)
