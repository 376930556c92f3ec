"""Population based training over analytic lanes: who copies whom, resume, budget, divergence."""

import dataclasses
import itertools
import math
import random
from collections import Counter

import pytest

from helpers import search_samples as samples
from helpers import view_samples
from helpers.analytic_lanes import AnalyticPopulation
from hpo.errors import ConfigError, StoreError
from hpo.search.run import run
from hpo.search.state.loop_state import LoopState
from hpo.search.state.progress import Observer
from hpo.search.state.trials import lineage_of, params_at
from hpo.spaces import Space, parse_rule
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal
from hpo.store.query import query
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Confirm, EarlyTerminate, Seeds

pytestmark = pytest.mark.slow

PBT = EarlyTerminate("pbt", every=2_000)
PB2 = EarlyTerminate("pb2", every=2_000)
FACTORY = samples.AnalyticFactory(lanes=40, diverges_above=0.3)


def study(early=PBT, **changes):
    """16 trials with 2 seeds, runs of 16 chunks, a rung every 2 of them."""
    base = {"early_terminate": early, "budget": Budget(trials=16), **changes}
    return samples.study(**base)


def go(path, asked, factory=FACTORY, observers=(), **settings):
    return run(asked, path, factory, observers, samples.quick(**settings))


def read(path):
    with Journal(path) as journal:
        return {row.trial: row for row in journal.trials()}, journal.decisions()


def test_pbt_worst_trials_copy_from_best(tmp_path):
    go(tmp_path / "s", study())
    rows, decisions = read(tmp_path / "s")
    assert {row.state for row in rows.values()} == {"finished"}
    assert [row.env_steps for row in rows.values()] == [32_000] * 16 or any(
        row.schedule for row in rows.values()
    )
    for rung in range(7):
        here = [entry for entry in decisions if entry.rung == rung]
        assert len(here) == 16 and {entry.env_steps for entry in here} == {2_000 * (rung + 1)}
        healthy = sorted((e for e in here if e.value == e.value), key=lambda e: -e.value)
        upper = {entry.trial for entry in healthy[:4]}
        copies = [entry for entry in here if entry.action == "copy"]
        assert {entry.source for entry in copies} <= upper
        sound = [entry for entry in copies if entry.value == entry.value]
        assert len(copies) >= 4 - 1 and len(sound) <= 4
        assert {entry.trial for entry in sound} <= {entry.trial for entry in healthy[-4:]}
        assert all(e.params != e.old_params for e in copies)
    last = {entry.trial: entry for entry in decisions if entry.params is not None}
    assert all(rows[trial].params == entry.params for trial, entry in last.items())


class Equals(AnalyticPopulation):
    """Every lane shows the same."""

    def result_of(self, lane):
        found = super().result_of(lane)
        return dataclasses.replace(found, returns=0.0 * found.returns + 5.0)


class EqualsFactory(samples.AnalyticFactory):
    def make(self, resolved, lanes):
        return Equals(self, resolved.steps_per_chunk, lanes or self.lanes)


def test_pbt_trials_with_equal_values_do_not_copy(tmp_path):
    asked = study(seeds=Seeds(1), budget=Budget(trials=8))
    go(tmp_path / "s", asked, EqualsFactory(lanes=8, diverges_above=2.0))
    rows, decisions = read(tmp_path / "s")
    assert len(decisions) == 8 * 7 and {entry.action for entry in decisions} == {"continue"}
    assert not any(row.schedule for row in rows.values())


def test_rolling_return_of_copy_follows_its_lineage(tmp_path):
    """One episode a chunk, so that it is the mean of all returns so far."""
    go(tmp_path / "s", study(), view_samples.ReturningFactory(lanes=40, diverges_above=0.3))
    rows, _ = read(tmp_path / "s")
    assert sum(bool(row.schedule) for row in rows.values()) >= 4
    _, found = query(
        tmp_path / "s",
        "SELECT trial, replicate, env_steps, episode_return, episode_return_100 FROM curves",
    )
    curve = {tuple(key): values for *key, a, b in found for values in [(a, b)]}
    for number, replicate in itertools.product(rows, range(2)):
        returns = []
        for at in range(1_000, 17_000, 1_000):
            way = reversed(lineage_of(rows[number]))
            trial = next(part.trial for part in way if part.env_steps < at)
            now, rolling = curve[trial, replicate, at]
            returns += [now] if math.isfinite(now) else []
            if returns:
                assert rolling == pytest.approx(math.fsum(returns) / len(returns))


def test_pbt_schedule_equals_decisions(tmp_path):
    go(tmp_path / "s", study())
    rows, decisions = read(tmp_path / "s")
    ways = {number: [(0, number)] for number in rows}
    for rung in range(7):
        before = {number: list(way) for number, way in ways.items()}
        for entry in decisions:
            if entry.rung == rung and entry.action == "copy":
                ways[entry.trial] = [*before[entry.source], (entry.env_steps, entry.trial)]
    assert any(len(way) > 2 for way in ways.values())
    for number, row in rows.items():
        lineage = lineage_of(row)
        assert [(part.env_steps, part.trial) for part in lineage] == ways[number]
        assert lineage[-1].params == row.params
        for part in lineage[1:]:
            (entry,) = [
                e for e in decisions if (e.trial, e.env_steps) == (part.trial, part.env_steps)
            ]
            assert entry.params == part.params


def test_pbt_improves_over_independent_trials(tmp_path):
    """From the same 16 beginnings the population ends better than its trials alone."""
    asked = study(space=samples.study().space)
    with_copies = go(tmp_path / "with", asked).best.value
    alone = go(tmp_path / "alone", dataclasses.replace(asked, early_terminate=None)).best.value
    assert with_copies > alone


STUDIES = {
    "pbt": study(confirm=Confirm(3, 2, 2)),
    "pb2": study(PB2, confirm=Confirm(2, 2, 2)),
    "pbt tolerant": study(
        seeds=Seeds(2, tolerate=1), early_terminate=dataclasses.replace(PBT, quantile=0.5)
    ),
    "pbt in a budget": study(budget=Budget(trials=16, env_steps=300_000)),
}


@pytest.mark.parametrize("name", STUDIES)
def test_interrupted_population_resumes_to_same_result(tmp_path, name):
    asked = STUDIES[name]
    go(tmp_path / "unbroken", asked)
    rng, state, rounds = random.Random(name), "interrupted", 0
    while state == "interrupted":
        chunks = rng.randrange(1, 5) if rounds < 3 else rng.randrange(5, 25)
        state = go(tmp_path / "broken", asked, observers=[samples.CutAt(chunks)]).state
        rounds += 1
    assert rounds >= 3
    assert tables_equal(tmp_path / "unbroken", tmp_path / "broken") == []
    assert repr(read(tmp_path / "unbroken")[1]) == repr(read(tmp_path / "broken")[1])


def test_pb2_decisions_differ_from_pbt_and_are_labelled(tmp_path):
    go(tmp_path / "pbt", study())
    go(tmp_path / "pb2", study(PB2))
    one, other = read(tmp_path / "pbt")[1], read(tmp_path / "pb2")[1]
    assert {e.rule for e in other} == {"pb2 quantile=0.25"}
    assert [e.params for e in one if e.rung == 0] == [e.params for e in other if e.rung == 0]
    assert [e.params for e in one] != [e.params for e in other]


def test_diverged_pbt_trial_continues_from_copy(tmp_path):
    go(tmp_path / "s", study(EarlyTerminate("pbt", every=3_000)))
    rows, decisions = read(tmp_path / "s")
    lost = [entry for entry in decisions if entry.value != entry.value]
    assert lost, "some learning rates of this study are above what diverges"
    assert all(entry.action == "copy" and entry.source is not None for entry in lost)
    for entry in lost:
        # It left its lanes when it diverged, so it trained less than a trial that never did.
        assert rows[entry.trial].env_steps < 32_000
    assert {rows[entry.trial].state for entry in lost} >= {"finished"}


def test_when_all_diverge_the_study_ends(tmp_path):
    results = go(tmp_path / "s", study(), dataclasses.replace(FACTORY, diverges_above=0.0))
    rows, decisions = read(tmp_path / "s")
    assert results.state == "finished" and decisions == []
    assert {row.state for row in rows.values()} == {"diverged"}
    assert all("a training metric is not finite" in row.error for row in rows.values())


def lanes_of(path):
    with Journal(path) as journal:
        return [bucket.lanes for bucket in LoopState.from_text(journal.head().loop_state).buckets]


def test_extended_population_has_lanes_for_all_trials(tmp_path):
    small, grown = study(budget=Budget(trials=2)), study(budget=Budget(trials=14))
    go(tmp_path / "s", small, dataclasses.replace(FACTORY, lanes=4))
    assert lanes_of(tmp_path / "s") == [4]
    go(tmp_path / "s", grown, dataclasses.replace(FACTORY, lanes=28))
    assert lanes_of(tmp_path / "s") == [28]


def test_population_can_be_extended_only_after_finishing(tmp_path):
    """Amid its search the new trials would take the lanes of those that diverged."""
    small, factory = study(budget=Budget(trials=2)), dataclasses.replace(FACTORY, lanes=4)
    go(tmp_path / "s", small, factory, observers=[samples.CutAt(3)])
    grown = dataclasses.replace(small, budget=Budget(trials=14))
    with pytest.raises(
        StoreError, match=r"cannot be raised yet: .* has lanes for only 2 trials; let the"
    ):
        go(tmp_path / "s", grown, factory)
    assert go(tmp_path / "s", small, factory).state == "finished"
    assert go(tmp_path / "s", grown, dataclasses.replace(FACTORY, lanes=28)).state == "finished"
    assert len(read(tmp_path / "s")[0]) == 14


def test_divergence_after_last_rung_marks_trial_diverged(tmp_path):
    """Nobody is left to copy from: lanes diverge in their last chunk."""

    class Late(AnalyticPopulation):
        def advance(self, refills, busy):
            result = super().advance(refills, busy)
            for lane in busy:
                if self._state[lane].chunks == 16 and lane < 2:
                    result.diverged[lane] = True
            return result

    class LateFactory(samples.AnalyticFactory):
        def make(self, resolved, lanes):
            return Late(self, resolved.steps_per_chunk, lanes or self.lanes)

    go(tmp_path / "s", study(), LateFactory(lanes=40, diverges_above=9.0))
    rows, _ = read(tmp_path / "s")
    assert Counter(row.state for row in rows.values()) == {"finished": 15, "diverged": 1}
    assert rows[0].state == "diverged" and rows[0].error.startswith("seed 0 at ")


class Recorded(AnalyticPopulation):
    """Writes down with which configuration every chunk of every replicate was trained."""

    def advance(self, refills, busy):
        result = super().advance(refills, busy)
        for lane in busy:
            entry = self._state[lane]
            self._factory.seen.setdefault((str(entry.stream), entry.replicate, lane), []).append(
                (entry.chunks, entry.payload["learning_rate"])
            )
        return result


@dataclasses.dataclass(frozen=True)
class RecordedFactory(samples.AnalyticFactory):
    seen: dict = dataclasses.field(default_factory=dict)

    def make(self, resolved, lanes):
        return Recorded(self, resolved.steps_per_chunk, lanes or self.lanes)


@pytest.mark.parametrize("warmup", [0, 3])
def test_confirming_follows_the_schedule(tmp_path, warmup):
    factory = RecordedFactory(lanes=40, diverges_above=0.3, warmup_chunks=warmup)
    results = go(tmp_path / "s", study(confirm=Confirm(1, 3, 2)), factory)
    assert results.best.confirmed
    with Journal(tmp_path / "s") as journal:
        row = journal.trial(results.best.trial)
    assert len(row.schedule) > 1
    lineage = lineage_of(row)
    expected = [
        (chunk, params_at(lineage, max(0, chunk - 1 - warmup) * 1_000)["learning_rate"])
        for chunk in range(1, 17 + warmup)
    ]
    fresh = [rows for (stream, *_), rows in factory.seen.items() if stream != Stream.SEARCH]
    assert sum(rows == expected for rows in fresh) == 5
    # Trial 0 was changed on the way, so the default runs apart, its knobs unchanged.
    default = [(chunk, 3e-4) for chunk in range(1, 17 + warmup)]
    assert len(fresh) == 7 and sum(rows == default for rows in fresh) == 2


def test_forbidden_rules_apply_to_pbt_copies(tmp_path):
    rule = parse_rule("learning_rate > 0.01")
    space = Space(samples.REAL.parameters, (rule,))
    go(tmp_path / "s", study(space=space))
    _, decisions = read(tmp_path / "s")
    rates = [entry.params["learning_rate"] for entry in decisions if entry.params]
    assert rates and max(rates) <= 0.01


def test_a_population_without_lanes_for_all_is_refused(tmp_path):
    for changes, words in (
        ({"budget": Budget(trials=None, env_steps=10**6)}, "budget.trials"),
        ({"early_terminate": EarlyTerminate("pbt", every=16_000)}, "every is 16000"),
    ):
        with pytest.raises(ConfigError, match=words):
            go(tmp_path / words.split()[0], study(**changes))


def test_pbt_trials_in_a_second_program_fail(tmp_path, monkeypatch):
    """Keys of an environment that no table knows pass the checks before."""
    monkeypatch.setattr("hpo.search.run.check_runnable", lambda study: None)
    results = go(tmp_path / "s", study(space=samples.WITH_BUCKETS))
    rows, _ = read(tmp_path / "s")
    failed = [row for row in rows.values() if row.state == "failed"]
    assert failed and all("of one program" in row.error for row in failed)
    assert results.state == "finished"


def test_observers_receive_pbt_leader(tmp_path):
    seen = []

    class Watcher(Observer):
        def on_chunk(self, progress):
            seen.append((progress.leader, progress.best))

    go(tmp_path / "s", study(), observers=[Watcher()])
    _, decisions = read(tmp_path / "s")
    assert seen[0] == (None, None) and seen[-1][0] is None and seen[-1][1] is not None
    for at in (2_000, 14_000):
        here = {d.trial: d.value for d in decisions if d.env_steps == at}
        best = max((v, -trial) for trial, v in here.items() if v == v)
        leader = seen[at // 1_000 - 1][0]
        assert (leader.value, leader.trial, leader.env_steps) == (best[0], -best[1], at)
