"""Seeds that train alike, bit for bit, are one run: no interval and no verdict from them."""

import json
from dataclasses import dataclass, replace

import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticFactory, AnalyticPopulation
from hpo.cli import main
from hpo.search.run import run
from hpo.search.state.trials import Replicate, RunState, Trial
from hpo.store.journal import Journal
from hpo.store.rows import Stream, TrialState
from hpo.studies.search_spec import Confirm

POOR = samples.Space(
    (
        samples.parameter("learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform"),
        samples.REAL.parameters[1],
    )
)


class KeylessPopulation(AnalyticPopulation):
    """Trains all seeds of a configuration alike; evaluations have their own seeds."""

    def train_chunk(self, lane):
        own, lane.replicate = lane.replicate, 0
        diverged = super().train_chunk(lane)
        lane.replicate = own
        return diverged


@dataclass(frozen=True)
class KeylessFactory(AnalyticFactory):
    def make(self, resolved, lanes):
        return KeylessPopulation(self, resolved.steps_per_chunk, lanes or self.lanes)


class LevelPopulation(AnalyticPopulation):
    """Every evaluation is at the ceiling, but training differs."""

    def evaluate(self, lanes):
        found = super().evaluate(lanes)
        return [replace(one, returns=one.returns * 0.0 + 100.0) for one in found]


@dataclass(frozen=True)
class LevelFactory(AnalyticFactory):
    def make(self, resolved, lanes):
        return LevelPopulation(self, resolved.steps_per_chunk, lanes or self.lanes)


def go(folder, factory, observers=(), **changes):
    asked = samples.study(**{"space": samples.REAL, "early_terminate": None, **changes})
    return run(asked, folder, factory, observers, samples.quick())


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copied") / "s"
    confirm = Confirm(3, 3, 16, interim=8)
    return go(folder, KeylessFactory(), name="s", confirm=confirm, space=POOR)


def test_identical_test_seeds_give_no_verdict(copied):
    found = copied.conclusion
    assert found.verdict == "nothing" and found.against.interval.low is None
    names = f"trial {copied.best.trial} and the default"
    assert found.said[0] == f"No verdict: test seeds of {names} trained identically, bit for bit."
    assert "a fixed key in `init`" in found.said[1]
    assert copied.best.report_seeds == 8  # the planned end would repeat the interim look
    assert copied.best.ci_low is None and len(set(copied.best.values)) > 1


def test_identical_seeds_give_no_suggestion_or_claim(copied, capsys, tmp_path):
    where = ["--study", str(copied.folder)]
    numbers = [str(entry.trial) for entry in copied.leaderboard if entry.report_seeds][:2]
    assert main(["compare", *numbers, *where]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("No verdict: test seeds of trial ") and "trained identically" in said
    assert "better" not in said and "hpo confirm" not in said and "[" not in said
    assert main(["compare", *numbers, *where, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["decision"] is None and data["difference_interval"]["low"] is None
    assert main(["top", *where]) == 0
    assert "To decide" not in capsys.readouterr().out
    with Journal(copied.folder) as journal:
        tested = [row for row in journal.trials() if row.report_values]
    assert tested and all("report" in row.copies for row in tested)


def test_identical_search_seeds_have_no_interval(tmp_path):
    found = go(tmp_path / "s", KeylessFactory(), confirm=None, seeds=samples.Seeds(6))
    assert all(entry.ci_low is None for entry in found.leaderboard)
    assert "search seeds of " in found.conclusion.said[0]
    usual = go(tmp_path / "t", AnalyticFactory(), confirm=None, seeds=samples.Seeds(6))
    assert usual.best.ci_low is not None and not usual.best.copies


def test_equal_values_of_different_trainings_are_not_copies(tmp_path):
    found = go(tmp_path / "s", LevelFactory(), confirm=Confirm(2, 3, 8))
    assert all(not entry.copies for entry in found.leaderboard)
    assert found.conclusion.verdict in ("ceiling", "no_difference", "default")


def test_identical_seeds_are_detected_after_resume(tmp_path):
    confirm = Confirm(2, 3, 8)
    whole = go(tmp_path / "whole", KeylessFactory(), name="s", confirm=confirm)
    found = None
    while found is None or found.state == "interrupted":
        cut = [samples.CutAt(9)]
        found = go(tmp_path / "cut", KeylessFactory(), cut, name="s", confirm=confirm)
    with Journal(whole.folder) as one, Journal(tmp_path / "cut") as other:
        told = [[(row.trial, row.copies) for row in each.trials()] for each in (one, other)]
    assert told[0] == told[1]


def ended(digests, varies=True, state=RunState.ENDED):
    runs = []
    for seed, digest in enumerate(digests):
        own = Replicate(3, Stream.SEARCH, seed, state=state)
        own.digest, own.varies = digest, varies
        runs.append(own)
    return Trial(3, TrialState.RUNNING, "random", 0, "b", {}, runs=runs)


def test_only_finished_seeds_with_varying_metrics_are_compared():
    assert ended(["a", "b", "a"]).note_copies(Stream.SEARCH)
    assert not ended(["a", "b", "c"]).note_copies(Stream.SEARCH)
    assert not ended(["a", "a"], varies=False).note_copies(Stream.SEARCH)
    assert not ended(["a", "a"], state=RunState.RUNNING).note_copies(Stream.SEARCH)
    trial = ended(["a", "a"])
    assert trial.note_copies(Stream.SEARCH) and trial.copies == ("search",)
    assert not trial.note_copies(Stream.SEARCH)  # known
    assert not trial.note_copies(Stream.REPORT)


def test_run_digest_depends_on_chunk_order():
    one, other = Replicate(0, Stream.SEARCH, 0), Replicate(0, Stream.SEARCH, 1)
    for seed, chunks in ((one, (b"a", b"b")), (other, (b"b", b"a"))):
        for metrics in chunks:
            seed.digest_chunk(metrics)
    assert one.digest != other.digest and one.varies
    level = Replicate(0, Stream.SEARCH, 2)
    level.digest_chunk(b"a")
    level.digest_chunk(b"a")
    assert not level.varies
