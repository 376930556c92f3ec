"""What is told of trials: where a rule stopped them, who is interrupted, what was measured."""

import json
import os
import signal
import sqlite3

import pytest

from helpers import search_samples as samples
from hpo.cli import main
from hpo.search.engine.commits import Committer
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store.journal import Journal
from hpo.store.lock import StudyLock
from hpo.store.query import query
from hpo.store.rows import TrialState
from hpo.store.study_folder import StudyFolder, read_leaderboard
from hpo.studies.search_spec import EarlyTerminate
from hpo.views.live.study_status import read_standing

POOR = samples.parameter("learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform")
STUDY = samples.study(
    samples.Space((POOR, samples.REAL.parameters[1])),
    early_terminate=EarlyTerminate("asha", 2_000, 2.0),
    confirm=samples.Confirm(2, 3, 6),
)


class Died(BaseException):
    """A process that is gone; nothing of ours catches it."""


class AskedToEnd(Observer):
    def on_chunk(self, progress):
        if progress.states.get(TrialState.FINISHED):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "small"
    return run(STUDY, folder, samples.AnalyticFactory(), (), samples.quick())


def test_stopped_trials_record_env_steps_per_seed_at_rung(results):
    with Journal(results.folder) as journal:
        at = {(row.trial, row.rung): row.env_steps for row in journal.decisions()}
        rows = journal.trials()
    stopped = [row for row in rows if row.state is TrialState.STOPPED]
    assert {row.rung_env_steps for row in stopped} >= {2_000, 4_000}
    for row in rows:
        assert row.rung_env_steps == at.get((row.trial, row.rung))
    entries = {entry.trial: entry.rung_env_steps for entry in results.leaderboard}
    assert entries == {row.trial: row.rung_env_steps for row in rows}
    _, found = query(results.folder, "SELECT trial, rung_env_steps FROM trials")
    assert dict(found) == entries


def test_rung_env_steps_of_old_rows_come_from_decisions(results, tmp_path):
    whole = read_leaderboard(StudyFolder(results.folder))
    with sqlite3.connect(results.folder / "journal.sqlite") as source:
        copy = sqlite3.connect(tmp_path / "journal.sqlite")
        source.backup(copy)
    source.close()
    with copy:
        for number, text in copy.execute("SELECT trial, row FROM trials").fetchall():
            row = json.loads(text)
            del row["rung_env_steps"]
            copy.execute("UPDATE trials SET row = ? WHERE trial = ?", (json.dumps(row), number))
        copy.execute("DROP TABLE sums")
        copy.execute("PRAGMA user_version = 1")
    copy.close()
    assert read_leaderboard(StudyFolder(tmp_path)) == whole


def test_stopped_default_is_measured_by_its_test_value(results):
    default = next(entry for entry in results.leaderboard if entry.is_default)
    assert default.state is TrialState.STOPPED and default.value is None
    assert default.measured_value == default.report_value is not None
    assert (default.measured_from, default.measured_seeds) == ("report", 6)
    sql = "SELECT trial, measured_value, measured_from, measured_seeds FROM trials ORDER BY rank"
    _, found = query(results.folder, sql)
    assert found == [
        (e.trial, e.measured_value, e.measured_from, e.measured_seeds) for e in results.leaderboard
    ]
    winner = results.best
    assert (winner.measured_value, winner.measured_from) == (winner.value, "report")
    told = default.as_json()
    assert told["measured_value"] == default.report_value and told["measured_seeds"] == 6


def test_running_trials_of_interrupted_study_are_interrupted(tmp_path, capsys):
    folder = tmp_path / "small"
    results = run(STUDY, folder, samples.AnalyticFactory(), [AskedToEnd()], samples.quick())
    assert results.state == "interrupted"
    shows_interrupted(folder, capsys)
    assert TrialState.INTERRUPTED in {entry.state for entry in results.leaderboard}
    with Journal(folder) as journal:  # which a study goes on from
        assert TrialState.RUNNING in {row.state for row in journal.trials()}
    ended = run(STUDY, folder, samples.AnalyticFactory(), (), samples.quick())
    assert not {"running", "interrupted"} & {entry.state for entry in ended.leaderboard}


def test_running_trials_of_killed_process_are_interrupted(tmp_path, capsys, monkeypatch):
    def commit_if_due(self):
        if self._search_state.state.boundary == 9:
            self.commit()
            self._store.publish(force=True)
            raise Died

    monkeypatch.setattr(Committer, "commit_if_due", commit_if_due)
    folder = tmp_path / "small"
    with pytest.raises(Died):
        run(STUDY, folder, samples.AnalyticFactory(), (), samples.quick())
    shows_interrupted(folder, capsys)


def shows_interrupted(folder, capsys):
    """Assert that all that reads a study says so, and `running` while a process writes it."""
    now = [
        lambda: {entry.state for entry in read_leaderboard(StudyFolder(folder))},
        lambda: set(read_standing(folder).progress.states),
        lambda: {state for (state,) in query(folder, "SELECT state FROM trials")[1]},
        lambda: {row["state"] for row in top(folder, capsys)},
    ]
    for look in now:
        assert "interrupted" in look() and "running" not in look()
    with StudyLock(folder):
        for look in (now[0], now[1], now[3]):
            assert "running" in look() and "interrupted" not in look()


def top(folder, capsys):
    assert main(["top", "--study", str(folder), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["leaderboard"]


class Seen(Observer):
    def __init__(self):
        self.shares, self.left = [], []

    def on_chunk(self, progress):
        self.shares.append(progress.share)
        if progress.seconds_left is not None:
            self.left.append(progress.seconds_left)


def test_progress_share_never_decreases(tmp_path, monkeypatch):
    """Every look ahead expects more than the one before."""
    from hpo.search.engine import notify
    from hpo.search.state.remaining_work import RemainingWork

    looks = []
    real = RemainingWork.of

    def of(self, search_state, buckets):
        looks.append(1)
        found = real(self, search_state, buckets)
        more = found.work.times(1.0 + len(looks) % 5)
        return type(found)(more, found.buckets, found.bounded)

    monkeypatch.setattr(RemainingWork, "of", of)
    monkeypatch.setattr(notify, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(notify, "_LOOK_SHARE", 1e9)
    seen = Seen()
    run(STUDY, tmp_path, samples.AnalyticFactory(chunk_seconds=0.002), [seen], samples.quick())
    assert len(looks) > 20 and len(set(seen.shares)) > 20
    assert seen.shares == sorted(seen.shares)
    assert len(seen.left) > 20
