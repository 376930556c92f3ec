"""A confirm stage opened again runs only what it has not seen, and ends as if run at once."""

import dataclasses
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

from hpo.search.lanes.analytic import AnalyticPopulation
from hpo.search.run import run
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal

samples = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "samples.py")))
LENGTH = 16_000


@dataclasses.dataclass(frozen=True)
class Failing(samples.AnalyticFactory):
    """Fails in the middle of the runs on seeds that choose."""

    def make(self, resolved, lanes):
        return FailingPopulation(self, resolved.steps_per_chunk, lanes or self.lanes)


class FailingPopulation(AnalyticPopulation):
    chunks = 0

    def advance(self, refills, busy):
        self.chunks += any(
            lane is not None and lane.stream is Stream.CHOOSE for lane in self._state
        )
        if self.chunks == 9:
            raise RuntimeError("out of memory")
        return super().advance(refills, busy)


def go(folder, confirm, factory=None):
    study = samples.study(confirm=samples.Confirm(*confirm))
    return run(study, folder, factory or samples.AnalyticFactory(), (), samples.quick())


@pytest.mark.parametrize("after", [(2, 6, 4), (2, 3, 9), (3, 5, 6), (2, 2, 2)])
def test_a_confirm_stage_that_changed_ends_as_if_it_had_been_so(tmp_path, after):
    before = (2, 3, 4)
    first = go(tmp_path / "twice", before)
    again = go(tmp_path / "twice", after)
    at_once = go(tmp_path / "once", after)
    assert again.leaderboard == at_once.leaderboard
    new = at_once.usage.confirm_env_steps - first.usage.confirm_env_steps
    spent = again.usage.confirm_env_steps - first.usage.confirm_env_steps
    assert spent == max(0, new)
    if new >= 0:  # else there are more rows than would have been needed
        assert tables_equal(tmp_path / "twice", tmp_path / "once") == []


def test_a_confirm_stage_that_was_cut_is_made_whole(tmp_path):
    broken = go(tmp_path / "twice", (2, 3, 4), Failing())
    assert not any(entry.confirmed for entry in broken.leaderboard)
    with Journal(tmp_path / "twice") as journal:
        assert any("out of memory" in row.error for row in journal.trials())
    again = go(tmp_path / "twice", (2, 3, 5))
    at_once = go(tmp_path / "once", (2, 3, 5))
    assert again.leaderboard == at_once.leaderboard and again.best.value_from == "report"
    assert tables_equal(tmp_path / "twice", tmp_path / "once") == []
