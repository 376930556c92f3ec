"""`hpo watch` shows each commit of a study that another process writes, and how it ends."""

import io
import itertools
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from helpers import view_samples as samples
from hpo.cli import main
from hpo.search.run import run
from hpo.search.state.loop_state import LoopState
from hpo.search.state.progress import Best, Observer, bounds_of, recorded_progress
from hpo.search.state.schedule import BUDGET_ENDED
from hpo.store.journal import Journal
from hpo.store.lock import StudyLock
from hpo.store.rows import Commit, TrialRow, TrialState
from hpo.store.study_folder import StudyFolder
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Constraint, Evaluation, Metric, Racing, Seeds
from hpo.views.commands.watch_serve import picture_of, standings
from hpo.views.live.study_status import read_standing


def commit(folder, phase="running"):
    """Commit what is there once more, as a study does that goes on."""
    with Journal(folder, writable=True) as journal:
        head = journal.head()
        journal.commit(Commit(head.number + 1, head.loop_state, None, head.at, phase=phase))
        return head.number + 1


def test_watch_shows_each_commit_once(tmp_path):
    folder = samples.make_results(tmp_path).folder
    first = commit(folder)
    steps = iter([None, "running", None, "running", "finished"])

    def wait(seconds):
        phase = next(steps)
        if phase:
            commit(folder, phase)

    clock = itertools.count(0.0, 1e6).__next__
    with StudyLock(folder):
        seen = [s.head.number for s in standings(StudyFolder(folder), wait, clock)]
    assert seen == [first, first + 1, first + 2, first + 3]


def test_watch_ends_when_the_study_process_dies(tmp_path):
    folder = samples.make_results(tmp_path).folder
    number = commit(folder)
    lock = StudyLock(folder)
    looks = standings(StudyFolder(folder), lambda seconds: lock.release())
    assert [(s.head.number, s.word) for s in looks] == [(number, "running"), (number, "died")]


def test_a_finished_study_answers_with_its_verdict(tmp_path, capsys):
    """Not with the value of the search, which is another than the one on test seeds."""
    results = samples.make_results(tmp_path)
    assert main(["watch", str(results.folder)]) == 0
    out, err = capsys.readouterr()
    verdict, _, following = out.partition("Next: hpo top")
    assert " ".join(verdict.split()) == f"small is finished: {results.conclusion.said[0]}"
    assert following and not err


@pytest.mark.parametrize("phase, told", [("running", "has died"), ("interrupted", "interrupted")])
def test_watch_reports_how_a_study_ended(tmp_path, capsys, phase, told):
    folder = samples.make_results(tmp_path).folder
    number = commit(folder, phase)
    assert main(["watch", "--out", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert told in err and f"after commit {number}" in err


def test_watch_json_prints_one_document_per_line(tmp_path, capsys):
    folder = samples.make_results(tmp_path).folder
    assert main(["watch", str(folder), "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    data = json.loads(line)
    assert data["state"] == "finished" and data["share"] == 1.0 and data["lanes"] == 12
    assert data["best"]["trial"] == 0 and "compiles" not in data


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"constraints": (Constraint("eval/return_max", max=0.6),)},
        {"objectives": (Metric(), Metric("eval/return_min", "minimize"))},
        {"seeds": Seeds(8, racing=Racing(5)), "budget": Budget(trials=6)},
    ],
    ids=["plain", "constraints", "objectives", "racing"],
)
def test_recorded_progress_matches_observer_progress(tmp_path, changes):
    """At every commit the progress read from outside is the one its observers were shown."""
    told, pairs = [], []

    class Watching(Observer):
        def on_chunk(self, progress):
            if told:  # the commit behind the last boundary is of what was told then
                seen = read_standing(tmp_path / "small").progress
                pairs.append((told[-1], seen))
            told.append(progress)

    settings = samples.search.quick(commit_seconds=0.0)
    run(samples.study(**changes), tmp_path / "small", samples.FACTORY, [Watching()], settings)
    compared = [(a, b) for a, b in pairs if b is not None and a.env_steps == b.env_steps]
    assert len(compared) > 10
    for shown, seen in compared:
        for name in ("phase", "eval_env_steps", "best", "proposed", "trials_total"):
            assert getattr(seen, name) == getattr(shown, name), name
        assert seen.lanes in (shown.lanes, 0) and seen.lanes_busy <= 12
        if shown.leader is not None and seen.leader is not None:
            assert seen.leader == shown.leader


def test_racing_adjusted_value_has_no_interval():
    """It is the mean of five seeds moved by what the sixth of others showed."""
    seeds = (0.86, 0.88, 0.9, 0.92, 0.94)
    moved = Best.of(7, 0.75, seeds, "mean", BUDGET_ENDED)
    assert (moved.value, moved.low, moved.high, moved.seed_values) == (0.75, None, None, seeds)
    lost_one = Best.of(7, 0.75, seeds, "mean", "")  # five of six, one of which diverged
    assert (lost_one.low, lost_one.high) == (None, None)
    own = Best.of(7, 0.9, seeds, "mean", "")
    assert own.low is not None and own.high is not None and own.low < 0.9 < own.high


def test_best_value_of_identical_seeds_has_no_interval():
    """The leaderboard had none, but the running study showed one."""
    values = (90.0, 91.0, 92.0, 93.0, 94.0)
    row = TrialRow(0, TrialState.FINISHED, "default", 0, "", {}, value=92.0, seed_values=values)
    study = samples.study(seeds=Seeds(5))
    found = [
        recorded_progress(study, LoopState(), [one]).best
        for one in (row, replace(row, copies=("search",)))
    ]
    assert [one.low is None for one in found] == [False, True]


def test_best_value_interval_respects_return_bounds():
    """In a study of CartPole no mean is above 500."""
    seeds, bounds = (500.0, 500.0, 500.0, 500.0, 380.0), bounds_of(samples.study())
    best = Best.of(7, 476.0, seeds, "mean", "", bounds=bounds)
    assert best.high == 500 and best.low == pytest.approx(409.4, abs=0.1)
    assert bounds_of(samples.study(metric=Metric("eval/length_mean"))).high == math.inf
    longer = samples.study(evaluation=Evaluation(env={"max_steps_in_episode": 900}))
    assert bounds_of(longer).high == 900


def test_watch_uses_the_live_view(tmp_path):
    folder = samples.make_results(tmp_path).folder
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(picture_of(None))
    console.print(picture_of(read_standing(folder)))
    text = console.export_text()
    assert "reading" in text and "100%" in text and "compile" not in text
    assert "phase      done" in text and "commit 2" in text
    assert max(map(len, text.splitlines())) <= 80
