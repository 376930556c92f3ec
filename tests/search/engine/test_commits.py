"""When commits fall: soon after a start, then further apart, and as often as the study says."""

import dataclasses
from types import SimpleNamespace

import pytest

from helpers import search_samples as samples
from hpo.search.engine import commits
from hpo.search.engine.commits import Committer
from hpo.search.lanes.resolver import Resolver
from hpo.search.run import run
from hpo.search.state.loop_state import LoopState
from hpo.search.state.search_state import SearchState
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.store.rows import CommitHead
from hpo.studies.execution_spec import Budget, Checkpoint
from hpo.studies.load import loads
from hpo.studies.resolved import diff, resolved, study_hash

TEXT = "env: CartPole-v1\nenv_steps: 16k\nspace: {gamma: {min: 0.9, max: 0.99}}\n"


class Clock:
    """Seconds that pass when told; a commit takes `cost` of them."""

    def __init__(self, cost=0.0):
        self.now, self.cost, self.commits, self.head = 100.0, cost, [], CommitHead()

    def commit(self, **anything):
        self.commits.append(self.now)
        self.now += self.cost

    def publish(self):
        pass


def times(monkeypatch, seconds, cost=0.0, first_chunk=0.25, boundaries=True, **settings):
    """Return when a study whose chunks take 0.25 s commits, from the start of its life on."""
    clock = Clock(cost)
    monkeypatch.setattr(commits, "time", SimpleNamespace(monotonic=lambda: clock.now))
    study = samples.study()
    resolver = Resolver(study, samples.AnalyticFactory())
    search_state = SearchState(study, LoopState(boundary=7), resolver=resolver)
    committer = Committer(clock, search_state, {}, **settings)
    committer.commit_if_due()  # before the first chunk nothing is new
    clock.now += first_chunk
    while clock.now < 100.0 + seconds:
        search_state.state.boundary += boundaries
        committer.commit_if_due()
        clock.now += 0.25
    return [round(at - 100.0, 2) for at in clock.commits]


def test_first_boundary_is_committed_then_intervals_grow(monkeypatch):
    found = times(monkeypatch, 40.0, soon=True)
    assert found == [0.25, 1.25, 3.25, 7.25, 15.25, 25.25, 35.25]


def test_first_compiled_chunk_is_committed_immediately(monkeypatch):
    assert times(monkeypatch, 45.0, first_chunk=42.0, soon=True) == [42.0, 43.0]


def test_slow_commits_use_the_usual_interval(monkeypatch):
    assert times(monkeypatch, 24.0, cost=1.0, soon=True) == [0.25, 11.25, 22.25]


def test_subsecond_commit_interval_is_respected(monkeypatch):
    found = times(monkeypatch, 2.0, soon=True, every_seconds=0.5)
    assert found == [0.25, 0.75, 1.25, 1.75]
    assert len(times(monkeypatch, 2.0, soon=True, every_seconds=0.0)) == 7


def test_nothing_is_committed_without_boundary(monkeypatch):
    assert times(monkeypatch, 40.0, boundaries=False, soon=True) == []


def test_repeated_short_processes_make_progress(tmp_path):
    study = samples.study(budget=Budget(trials=6))
    run(study, tmp_path / "whole", samples.AnalyticFactory(), (), samples.quick())
    for life in range(1, 6):
        with pytest.raises(KeyboardInterrupt):
            run(
                study,
                tmp_path / "short",
                samples.AnalyticFactory(),
                [samples.Stop(2)],
                samples.quick(),
            )
        with Journal(tmp_path / "short") as journal:
            head = journal.head()
            assert (head.number, LoopState.from_text(head.loop_state).boundary) == (life, life)
    run(study, tmp_path / "short", samples.AnalyticFactory(), (), samples.quick())
    assert tables_equal(tmp_path / "whole", tmp_path / "short") == []


def test_commit_interval_does_not_affect_study_hash():
    plain, often = loads(TEXT), loads(TEXT + "checkpoint: {commit_every: 2s}\n")
    assert plain.checkpoint.commit_seconds == 10.0 and often.checkpoint.commit_seconds == 2.0
    assert "commit_every" not in resolved(plain)["checkpoint"]
    assert [change.allowed for change in diff(resolved(plain), resolved(often))] == [True]
    again = dataclasses.replace(often, checkpoint=Checkpoint())
    assert study_hash(again) == study_hash(plain)
