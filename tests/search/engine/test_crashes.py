"""Studies that die right behind a commit end as if nothing had happened: small, and by name.

`scripts/acceptance reliability 1 2` does the same thousands of times.
"""

import random
import signal
import sys
from importlib import import_module
from pathlib import Path

import pytest

from helpers.analytic_lanes import AnalyticPopulation
from hpo.errors import SearchError
from hpo.search.engine.commits import Committer
from hpo.search.run import RunOptions, run

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
NEVER = RunOptions(publish_seconds=1e9, commit_seconds=1e9)
# The boundaries at which filling lanes a second time chooses another bucket or other replicates.
NAMED = [
    ("budget", 1003, 38),
    ("budget", 1041, 91),
    ("buckets", 1053, 26),
    ("budget", 1160, 63),
    ("budget", 1240, 57),
]
KINDS = ["plain", "pb2", "pbt", "racing", "several objectives", "buckets", "constrained", "budget",
         "paused"]  # fmt: skip


@pytest.fixture(scope="module")
def crashes():
    sys.path.insert(0, str(SCRIPTS))
    yield (
        import_module("acceptance_points.crashes"),
        import_module("acceptance_points.crash_cases"),
    )
    sys.path.remove(str(SCRIPTS))


class Died(BaseException):
    """A process that is gone; nothing of ours catches it."""


@pytest.fixture
def dies(monkeypatch):
    """Let a study commit at one boundary, and die behind that commit, before its next chunk."""

    def at(boundary):
        def commit_if_due(self):
            if self._search_state.state.boundary == boundary:
                self.commit()
                raise Died

        monkeypatch.setattr(Committer, "commit_if_due", commit_if_due)

    return at


def whole(case, folder):
    return run(case.study, folder, case.factory, (), NEVER)


@pytest.mark.parametrize(("kind", "number", "boundary"), NAMED)
def test_lanes_cut_by_budget_are_refilled_once_after_crash(
    tmp_path, crashes, dies, kind, number, boundary
):
    case = crashes[1].draw_case(kind, number)
    whole(case, tmp_path / "unbroken")
    dies(boundary)
    with pytest.raises(Died):
        whole(case, tmp_path / "broken")
    dies(-1)
    whole(case, tmp_path / "broken")
    assert crashes[0].differences(tmp_path / "unbroken", tmp_path / "broken") == []


@pytest.mark.parametrize("kind", KINDS)
def test_crash_at_random_boundary_gives_same_results(tmp_path, crashes, dies, kind):
    number, rng = 40, random.Random(kind)
    case = crashes[1].draw_case(kind, number)
    results = whole(case, tmp_path / "unbroken")
    for boundary in sorted(rng.sample(range(results.usage.chunks), 3)):
        dies(boundary)
        with pytest.raises(Died):
            whole(case, tmp_path / "broken")
    dies(-1)
    whole(case, tmp_path / "broken")
    assert crashes[0].differences(tmp_path / "unbroken", tmp_path / "broken") == []


def test_all_crash_kinds_are_covered(crashes):
    assert list(crashes[1].KINDS) == KINDS


@pytest.mark.parametrize(("kind", "number", "boundary"), NAMED[:1])
def test_ctrl_c_during_refill_commits_after_the_chunk(
    tmp_path, monkeypatch, crashes, kind, number, boundary
):
    case = crashes[1].draw_case(kind, number)
    whole(case, tmp_path / "unbroken")
    refiller = import_module("hpo.search.engine.refill").Refiller
    refill, asked = refiller.refill, []

    def interrupted(self):
        if self._search_state.state.boundary == boundary and not asked:
            asked.append(boundary)
            signal.raise_signal(signal.SIGINT)
        return refill(self)

    monkeypatch.setattr(refiller, "refill", interrupted)
    assert whole(case, tmp_path / "broken").state == "interrupted"
    assert whole(case, tmp_path / "broken").state == "finished"
    assert crashes[0].differences(tmp_path / "unbroken", tmp_path / "broken") == []


def test_error_inside_chunk_commits_no_partial_state(tmp_path, monkeypatch, crashes):
    case = crashes[1].draw_case("budget", 1003)
    whole(case, tmp_path / "unbroken")
    advance, calls = AnalyticPopulation.advance, []

    def gone(self, refills, busy):
        result = advance(self, refills, busy)  # the lanes have moved
        calls.append(1)
        if len(calls) == 30:
            raise SearchError("the cluster is gone")
        return result

    monkeypatch.setattr(AnalyticPopulation, "advance", gone)
    often = RunOptions(publish_seconds=1e9, commit_seconds=0.0)
    with pytest.raises(SearchError, match="gone"):
        run(case.study, tmp_path / "broken", case.factory, (), often)
    whole(case, tmp_path / "broken")
    assert crashes[0].differences(tmp_path / "unbroken", tmp_path / "broken") == []
