"""A confirm stage opened again runs only what it has not seen, and ends as if run at once."""

import dataclasses

import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticPopulation
from hpo.search.run import run
from hpo.search.state.loop_state import Phase
from hpo.search.state.progress import Observer
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Metric

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


@pytest.mark.parametrize("after", [(2, 6, 4), (2, 3, 9), (3, 5, 6)])
def test_changed_confirm_stage_equals_running_changed_stage_once(tmp_path, after):
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


class Died(BaseException):
    """A process that is gone; nothing of ours catches it."""


@pytest.mark.parametrize("phase", [Phase.CHOOSE, Phase.REPORT])
@pytest.mark.parametrize("change", ["confirm", "budget"])
def test_settings_changed_during_confirm_take_effect(tmp_path, phase, change):

    class Dies(Observer):
        chunks = 0

        def on_chunk(self, progress):
            self.chunks += progress.phase is phase
            if self.chunks == 9:
                raise Died

    def go_on(folder, observers=(), **changes):
        asked = samples.study(**{"confirm": samples.Confirm(2, 3, 4), **changes})
        settings = samples.quick(commit_seconds=0.0 if observers else 1e9)  # before it dies
        return run(asked, folder, samples.AnalyticFactory(), observers, settings)

    with pytest.raises(Died):
        go_on(tmp_path / "twice", [Dies()])
    changes = {"confirm": samples.Confirm(2, 6, 9)}
    if change == "budget":
        changes = {"budget": Budget(trials=40)}
    again = go_on(tmp_path / "twice", **changes)
    assert again.state == "finished" and again.best.value_from == "report"
    assert len(again.leaderboard) == (24 if change == "confirm" else 40)
    if change == "confirm":  # 40 trials at once are judged in another order
        assert again.leaderboard == go_on(tmp_path / "once", **changes).leaderboard
    assert go_on(tmp_path / "twice", **changes).usage == again.usage


@pytest.mark.parametrize("confirm", [(2, 3, 9), (3, 3, 4), (2, 6, 4), (4, 6, 4)])
def test_reopened_confirm_cut_by_budget_keeps_verdict(tmp_path, confirm):
    budget = Budget(trials=None, env_steps=700_000)
    for asked in ((2, 3, 4), confirm):
        study = samples.study(confirm=samples.Confirm(*asked), budget=budget)
        results = run(study, tmp_path, samples.AnalyticFactory(), (), samples.quick())
        if asked == (2, 3, 4):
            first = results
    assert first.best.value_from == "report" and first.conclusion.verdict != "nothing"
    assert results.usage.env_steps <= 700_000
    assert (results.best.value, results.best.value_from) == (first.best.value, "report")
    assert results.conclusion.verdict == first.conclusion.verdict
    budget = Budget(trials=None, env_steps=2_000_000)
    study = samples.study(confirm=samples.Confirm(*confirm), budget=budget)
    raised = run(study, tmp_path, samples.AnalyticFactory(), (), samples.quick())
    assert raised.best.value_from == "report"
    with Journal(tmp_path) as journal:
        rows = [row for row in journal.trials() if len(row.seed_values) == 2]
    rows.sort(key=lambda row: sum(row.seed_values), reverse=True)
    expected = {row.trial for row in rows[: confirm[0]]}
    if confirm[1] == 3:  # who was confirmed on as many seeds stands beside the new candidates
        expected |= {entry.trial for entry in first.leaderboard if entry.confirmed}
    assert {entry.trial for entry in raised.leaderboard if entry.confirmed} == expected


def test_former_candidates_do_not_affect_the_front(tmp_path):
    """Candidates of an earlier stage had fewer seeds; all that are compared have the same."""
    found = {}
    for name, stages in (("twice", [(4, 3, 0), (2, 8, 0)]), ("once", [(2, 8, 0)])):
        for confirm in stages:
            study = samples.study(
                confirm=samples.Confirm(*confirm),
                objectives=(Metric(), Metric("eval/return_min")),
            )
            results = run(study, tmp_path / name, samples.AnalyticFactory(), (), samples.quick())
        found[name] = results
    assert found["twice"].conclusion == found["once"].conclusion
    assert found["once"].conclusion.front.seeds == 8
    shown = [
        [(entry.trial, entry.confirmed, entry.front, entry.value) for entry in one.leaderboard]
        for one in found.values()
    ]
    assert shown[0] == shown[1]


def test_failed_confirm_stage_is_completed_when_reopened(tmp_path):
    broken = go(tmp_path / "twice", (2, 3, 4), Failing())
    assert not any(entry.confirmed for entry in broken.leaderboard)
    with Journal(tmp_path / "twice") as journal:
        assert any("out of memory" in row.error for row in journal.trials())
    again = go(tmp_path / "twice", (2, 3, 5))
    at_once = go(tmp_path / "once", (2, 3, 5))
    assert again.leaderboard == at_once.leaderboard and again.best.value_from == "report"
    assert tables_equal(tmp_path / "twice", tmp_path / "once") == []
