"""Trials that wait at rungs and go on: decided as the paper says, and exact to the bit."""

import dataclasses
import errno
import math
import os

import pyarrow.parquet as pq
import pytest

from helpers import search_samples as samples
from hpo.errors import ConfigError, StoreError
from hpo.search.checks import check_runnable
from hpo.search.engine.commits import PausedStates
from hpo.search.engine.loop import Loop
from hpo.search.engine.rung_decisions import judge
from hpo.search.lanes.resolver import Resolver
from hpo.search.rules.stopping import PromotingAsha
from hpo.search.run import RunOptions, run
from hpo.search.state.loop_state import LoopState
from hpo.search.state.schedule import schedule_of
from hpo.search.state.search_state import SearchState
from hpo.search.state.trials import Replicate, RunState, Trial
from hpo.store import Stream, TrialState, tables_equal
from hpo.store.journal import Journal
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget, Executor
from hpo.studies.search_spec import EarlyTerminate, Metric, SearchSpec, Seeds

NEVER = RunOptions(publish_seconds=1e9, commit_seconds=1e9)
ALWAYS = RunOptions(publish_seconds=1e9, commit_seconds=0.0)
PAUSE = EarlyTerminate("asha", 2_000, 2.0, pause=1_000)
QUANTA = {"16": 500, "32": 1_000, "64x64": 2_000}


def table(folder, name, *keys):
    rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
    return [tuple(row[key] for key in keys) for row in rows]


def actions(folder):
    with Journal(folder) as journal:
        return [(d.trial, d.rung, d.action, d.rank, d.judged) for d in journal.decisions()]


# ---------------------------------------------------------------------- what is decided


def get_job_of_the_paper(losses, rungs, eta, trials):
    """Li et al. 2020, Algorithm 2, with one worker: the runs of trials, in order.

    Behind the last of `trials`, where the paper draws on for ever, nobody is drawn; then the best
    of the highest rung goes on while no trial has run to its end.
    """
    seen = [{} for _ in range(rungs)]  # rung -> trial -> loss there
    promoted = [set() for _ in range(rungs)]
    jobs, drawn, finished = [], 0, 0

    def get_job():
        nonlocal drawn
        for rung in reversed(range(rungs)):
            ordered = sorted(seen[rung], key=lambda trial: (seen[rung][trial], trial))
            candidates = ordered[: math.floor(len(ordered) / eta)]
            promotable = [trial for trial in candidates if trial not in promoted[rung]]
            if promotable:
                promoted[rung].add(promotable[0])
                return promotable[0], rung + 1
        if drawn < trials:
            drawn += 1
            return drawn - 1, 0
        for rung in reversed(range(rungs)) if not finished else ():
            waiting = [trial for trial in seen[rung] if trial not in promoted[rung]]
            if waiting:
                best = min(waiting, key=lambda trial: (seen[rung][trial], trial))
                promoted[rung].add(best)
                return best, rung + 1
        return None

    while (job := get_job()) is not None:
        trial, rung = job
        jobs.append(job)
        if rung < rungs:
            seen[rung][trial] = losses[trial][rung]
        else:
            finished += 1
    return jobs


@pytest.mark.parametrize(("eta", "trials", "seed"), [(2.0, 14, 1), (3.0, 12, 5), (4.0, 3, 2)])
def test_single_lane_follows_get_job_of_asha_paper(tmp_path, eta, trials, seed):
    rule = EarlyTerminate("asha", 1_000, eta, pause=1_000)
    asked = samples.study(
        early_terminate=rule, seeds=Seeds(1), budget=Budget(trials=trials), seed=seed
    )
    factory = samples.AnalyticFactory(seed=seed, lanes=1, block=1, diverges_above=9.0)
    marks = [steps * 1_000 for steps in schedule_of(asked, 1_000).rungs]
    run(asked, tmp_path / "paused", factory, (), NEVER)
    every = dataclasses.replace(asked.evaluation, every=1_000)
    whole = dataclasses.replace(asked, early_terminate=None, evaluation=every)
    run(whole, tmp_path / "whole", factory, (), NEVER)
    shown = {}
    for trial, at, value in table(
        tmp_path / "whole", "evaluations", "trial", "env_steps", "episode_return"
    ):
        shown.setdefault((trial, at), []).append(value)
    losses = [
        [-sum(shown[trial, at]) / len(shown[trial, at]) for at in marks] for trial in range(trials)
    ]
    jobs = get_job_of_the_paper(losses, len(marks), eta, trials)
    ends = [0, *marks, 16_000]
    wanted = [
        (trial, at)
        for trial, rung in jobs
        for at in range(ends[rung] + 1_000, ends[rung + 1] + 1, 1_000)
    ]
    assert table(tmp_path / "paused", "curves", "trial", "env_steps") == wanted
    assert "promote" in {action for _, _, action, _, _ in actions(tmp_path / "paused")}


def trial(number, *values, chunks=2):
    runs = [
        Replicate(
            number, Stream.SEARCH, index, RunState.RUNNING, chunks=chunks, rung_values=list(own)
        )
        for index, own in enumerate(values)
    ]
    return Trial(number, TrialState.RUNNING, "random", 0, "a", {}, runs=runs)


def search_state_of(study, *trials):
    found = SearchState(study, LoopState(), resolver=Resolver(study, samples.AnalyticFactory()))
    for entry in trials:
        found.add(entry)
    return found


STUDY = samples.study(early_terminate=PAUSE)
SCHEDULES = {"a": schedule_of(STUDY, 1_000)}
RULE = PromotingAsha(2.0, 1_000)


def rows(search_state):
    return [
        (d.trial, d.rung, d.action, d.rank, d.judged) for d in search_state.unwritten.decisions
    ]


def test_paused_trial_is_promoted_when_cutoff_allows():
    search_state = search_state_of(STUDY, trial(0, [5.0]))
    assert judge(search_state, RULE, SCHEDULES) == []  # floor(1 / 2) = 0 go on
    first = search_state.trials[0]
    assert first.state is TrialState.PAUSED and first.runs[0].state is RunState.PAUSED
    assert rows(search_state) == [(0, 0, "pause", 1, 1)] and search_state.state.told == [0]
    search_state.add(trial(1, [3.0]))
    assert judge(search_state, RULE, SCHEDULES) == [first]  # the best 1 of 2
    assert first.state is TrialState.RUNNING and first.stop_rule == ""
    assert first.runs[0].state is RunState.WAITING and first.runs[0].kept
    assert rows(search_state) == [(1, 0, "pause", 2, 2), (0, 0, "promote", 1, 2)]


def test_promoted_trial_is_judged_at_next_rung_immediately():
    search_state = search_state_of(STUDY, trial(0, [5.0, 5.5]))
    judge(search_state, RULE, SCHEDULES)
    search_state.add(trial(1, [3.0]))
    assert judge(search_state, RULE, SCHEDULES) == []  # it waits again, one rung further
    assert search_state.trials[0].paused_at == [0, 1]
    assert rows(search_state)[1:] == [(0, 0, "promote", 1, 2), (0, 1, "pause", 1, 1)]


def test_trial_with_all_replicates_finished_is_not_paused():
    search_state = search_state_of(STUDY, trial(0, [5.0]))
    search_state.trials[0].runs[0].end()
    judge(search_state, RULE, SCHEDULES)
    assert rows(search_state) == [(0, 0, "continue", 1, 1)]


def test_paused_trial_furthest_from_cutoff_is_stopped():
    rule = PromotingAsha(2.0, 2)
    search_state = search_state_of(
        STUDY, *(trial(n, [v]) for n, v in enumerate([9.0, 8.0, 7.0, 6.0, 5.0]))
    )
    judge(search_state, rule, SCHEDULES)
    # the best 2 of 5 go on; of 7, 6 and 5 the worst is one too many
    assert [t.number for t in search_state.paused()] == [2, 3]
    assert search_state.trials[4].state is TrialState.STOPPED
    assert search_state.trials[4].stop_rule == "asha eta=2 pause"


def test_briefly_paused_trial_counts_as_running_before():
    search_state = search_state_of(STUDY, trial(0, [5.0]), trial(1, [4.0]))
    judge(search_state, PromotingAsha(4.0, 1), SCHEDULES)
    assert search_state.state.told == [0, 1, 1]  # the second one was paused and let go
    assert [past.state for past in search_state.history()] == [TrialState.STOPPED] * 2
    before = search_state.history(unseen=search_state.state.told)
    assert [past.state for past in before] == [TrialState.RUNNING] * 2
    own = [decision for decision in search_state.unwritten.decisions if decision.trial == 1]
    assert Trial.from_row(search_state.trials[1].row(), own, {}).paused_at == [0]


def test_samplers_see_a_paused_trial_as_stopped_until_more_is_known():
    search_state = search_state_of(STUDY, trial(0, [5.0]))
    judge(search_state, RULE, SCHEDULES)
    (past,) = search_state.history()
    assert (past.state, past.reports) == (TrialState.STOPPED, (-5.0,))
    (before,) = search_state.history(unseen=[0])
    assert (before.state, before.reports) == (TrialState.RUNNING, ())
    search_state.add(trial(1, [3.0]))
    judge(search_state, RULE, SCHEDULES)
    assert search_state.history()[0] == past  # that it goes on is no news
    first = search_state.trials[0]
    first.runs[0].start()
    first.runs[0].measure(4.0, (), 1)
    judge(search_state, RULE, SCHEDULES)
    assert first.paused_at == [0, 1] and search_state.history()[0].reports == (-5.0, -4.0)
    assert search_state.history(unseen=[0])[0] == past
    again = SearchState(
        STUDY,
        LoopState.from_text(search_state.state.to_text()),
        resolver=Resolver(STUDY, samples.AnalyticFactory()),
    )
    assert again.history() == search_state.history()
    assert again.history(unseen={0}) == search_state.history(unseen=[0])


# ---------------------------------------------------------------------- what is kept

SEVERAL = (Metric(), Metric("eval/thrift", "maximize"))
CASES = {
    "seeds in turns": (samples.study(seeds=Seeds(3)), {"lanes": 4}),
    "buckets": (samples.study(samples.WITH_BUCKETS), {"lanes": 6, "quanta": QUANTA}),
    "warm-up": (samples.study(seeds=Seeds(1)), {"lanes": 5, "warmup_chunks": 2}),
    "several objectives": (samples.study(objectives=SEVERAL), {"lanes": 8}),
    "parts of rows": (samples.study(log_every=3_000, seeds=Seeds(1)), {"lanes": 3}),
}


@pytest.mark.parametrize("case", CASES)
def test_resumed_trial_equals_unpaused_trial(tmp_path, case):
    asked, lanes = CASES[case]
    asked = dataclasses.replace(asked, early_terminate=PAUSE, budget=Budget(trials=16))
    factory = samples.AnalyticFactory(seed=asked.seed, diverges_above=9.0, **lanes)
    run(asked, tmp_path / "paused", factory, (), NEVER)
    if case == "warm-up":  # every state through a file
        run(asked, tmp_path / "on disk", factory, (), ALWAYS)
        assert tables_equal(tmp_path / "paused", tmp_path / "on disk") == []
    nobody = dataclasses.replace(PAUSE, pause=0, audit=1.0)  # is stopped at the same rungs
    whole = dataclasses.replace(asked, early_terminate=nobody)
    run(whole, tmp_path / "whole", factory, (), NEVER)
    keys = ("trial", "replicate", "env_steps", "skill")
    mine = table(tmp_path / "paused", "curves", *keys)
    assert set(mine) <= set(table(tmp_path / "whole", "curves", *keys)) and len(set(mine)) > 40
    assert len(mine) == len(set(mine))
    found = [action for _, _, action, _, _ in actions(tmp_path / "paused")]
    assert found.count("promote") >= 2 and found.count("pause") >= 3
    states = {state for (state,) in table(tmp_path / "paused", "trials", "state")}
    assert "paused" not in states and not list((tmp_path / "paused" / "checkpoints").glob("*"))


def test_paused_trials_with_lanes_keep_their_state(tmp_path, monkeypatch):
    """A promoted trial enters a lane when its bucket is looked at, which another one may win."""
    asked = samples.study(samples.WITH_BUCKETS, early_terminate=PAUSE, seeds=Seeds(2))
    factory = samples.AnalyticFactory(seed=asked.seed, lanes=6, quanta=QUANTA)
    ahead = dataclasses.replace(asked, search=SearchSpec("random", ahead="never"))
    forget, apart = PausedStates.forget, []

    def watched(self):
        going = [run for trial in self._search_state.going_on() for run in trial.runs if run.kept]
        forget(self)
        apart.extend(run for run in going if run.lane is not None)
        assert {(r.trial, r.replicate) for r in going} == set(self._kept)

    monkeypatch.setattr(PausedStates, "forget", watched)
    for number, one in enumerate((asked, ahead)):
        run(one, tmp_path / str(number), factory, (), NEVER)
    assert apart


class Gone(BaseException):
    """A process that ends."""


def stopped_at(monkeypatch, boundary):
    passes = Loop._pass_boundary

    def until(self):
        if self._search_state.state.boundary == boundary:
            self._engine.committer.commit()
            raise Gone
        return passes(self)

    monkeypatch.setattr(Loop, "_pass_boundary", until)


def test_paused_state_is_written_once_and_restored(tmp_path, monkeypatch):
    asked = samples.study(early_terminate=PAUSE, seeds=Seeds(1))
    factory = samples.AnalyticFactory(seed=asked.seed, lanes=4)
    seen = {}
    save = PausedStates.save

    def watched(self, checkpoint):
        save(self, checkpoint)
        for path in checkpoint.glob("paused/*/lane.json"):
            seen.setdefault(path.parent.name, set()).add(path.stat().st_ino)

    monkeypatch.setattr(PausedStates, "save", watched)
    with monkeypatch.context() as patch, pytest.raises(Gone):
        stopped_at(patch, 12)
        run(asked, tmp_path, factory, (), ALWAYS)
    assert len(seen) > 3 and all(len(files) == 1 for files in seen.values())
    for path in (tmp_path / "checkpoints").glob("lanes-*/paused/*"):
        (path / "lane.json").unlink()
        path.rmdir()
    lost = r"no lane in .* for trial \d+, which is paused; restore .*copy"
    with pytest.raises(StoreError, match=lost):
        run(asked, tmp_path, factory, (), ALWAYS)


def test_paused_states_are_copied_without_hard_links(tmp_path, monkeypatch):
    asked = samples.study(early_terminate=PAUSE, seeds=Seeds(1), budget=Budget(trials=8))
    factory = samples.AnalyticFactory(seed=asked.seed, lanes=4)
    run(asked, tmp_path / "links", factory, (), ALWAYS)

    def refuses(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuses)
    run(asked, tmp_path / "copies", factory, (), ALWAYS)
    assert tables_equal(tmp_path / "links", tmp_path / "copies") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"early_terminate": dataclasses.replace(PAUSE, audit=0.5)}, "audit does not work"),
        ({"early_terminate": dataclasses.replace(PAUSE, type="median")}, "not a key of median"),
        ({"early_terminate": dataclasses.replace(PAUSE, pause=-1)}, "pause is -1"),
        ({"executor": Executor("ray", 2)}, r"executor.type: local \(here: ray\)"),
        ({"env": EnvSpec("gym:CartPole-v1")}, "does not work with gym:CartPole-v1"),
    ],
)
def test_unsupported_pause_is_refused_without_file(changes, words):
    with pytest.raises(ConfigError, match=words):
        check_runnable(samples.study(**{"early_terminate": PAUSE, **changes}))


def test_budget_end_stops_paused_trials(tmp_path):
    asked = samples.study(
        early_terminate=PAUSE, seeds=Seeds(1), budget=Budget(trials=None, env_steps=60_000)
    )
    results = run(asked, tmp_path, samples.AnalyticFactory(lanes=4), (), NEVER)
    assert results.usage.env_steps <= 60_000
    found = {trial: action for trial, _, action, _, _ in actions(tmp_path)}
    states = dict(table(tmp_path, "trials", "trial", "state"))
    waiting = [trial for trial, action in found.items() if action == "pause"]
    assert waiting and {states[trial] for trial in waiting} == {"stopped"}
