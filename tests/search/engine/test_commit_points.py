"""A study goes on equally from whatever it committed: the small form of reliability point 7."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from hpo.store import Stream
from hpo.store.journal import Journal

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture(scope="module")
def points():
    sys.path.insert(0, str(SCRIPTS))
    yield import_module("acceptance_points.commit_points")
    sys.path.remove(str(SCRIPTS))


@pytest.mark.slow
def test_resume_from_every_commit_equals_uninterrupted_study(points, tmp_path):
    outcome = points.every_commit(True, tmp_path)
    assert outcome.passed, outcome.numbers


def test_stop_during_test_phase_leaves_study_interrupted(points, tmp_path):
    """Its winner and the default have no value on seeds that report yet: it has not ended."""
    case = points.paused_case()
    asked = points.live(case, tmp_path, points.Life(asked=120))
    assert asked.state == "interrupted" and asked.best.value_from == Stream.CHOOSE
    assert not any(entry.report_seeds for entry in asked.leaderboard)
    with Journal(tmp_path) as journal:
        assert journal.head().phase == "interrupted"
    ended = points.live(case, tmp_path, points.Life(121))
    assert ended.state == "finished" and ended.best.value_from == Stream.REPORT
    assert [entry.report_seeds for entry in ended.leaderboard if entry.report_seeds] == [4, 4]
