"""Choices without an environment, against a loop over the published tables."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from scipy import stats

from helpers.analytic_lanes import AnalyticPopulation
from helpers.loading import run_file
from hpo.errors import ConfigError, StoreError
from hpo.search.analysis.across_environments import (
    EnvironmentScores,
    Side,
    _adaptive,
    _over,
    _search_seeds,
    environment_scores,
    leave_one_out,
    leave_one_out_of,
)
from hpo.search.run import run
from hpo.store.journal import Journal
from hpo.store.paired import paired_interval
from hpo.store.rows import Stream
from hpo.store.score_tables import Estimate
from hpo.studies.spec import Budget, Confirm, EarlyTerminate, Racing, SearchSpec, Seeds

engine = run_file("tests/search/engine/test_several_environments.py")
RACE = Seeds(4, racing=Racing(2))
CONFIRM = Confirm(top_k=3, choose=5, report=6)


def ran(folder, **changes):
    asked = engine.several(**{"budget": Budget(trials=10), "confirm": CONFIRM, **changes})
    run(asked, folder, engine.factory(asked), (), engine.samples.quick())
    with Journal(folder) as journal, journal.at_one_commit():
        rows = journal.trials()
        return asked, journal.meta, rows, environment_scores(journal, rows)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Ten trials on three environments that all come to their end, but those that diverge."""
    folder = tmp_path_factory.mktemp("s") / "s"
    return folder, *ran(folder, early_terminate=None, seeds=Seeds(5))


def test_names_are_those_that_the_study_was_begun_with(study):
    with Journal(study[0]) as journal:
        names = [{**one, "name": f"old_{one['name']}"} for one in journal.meta.environments]
        begun = SimpleNamespace(
            meta=dataclasses.replace(journal.meta, environments=names),
            decisions=journal.decisions,
            packed_evaluations=journal.packed_evaluations,
        )
        found = environment_scores(begun, journal.trials())
    assert found.names == tuple(f"old_{name}" for name in engine.IDS)


def slow_scores(folder):
    """(trial, stream, seed) -> scores, from `evaluations.parquet`."""
    found = {}
    table = pq.read_table(folder / "evaluations.parquet").to_pylist()
    for name, scale in zip(engine.IDS, engine.SCALES, strict=True):
        returns = {}
        for row in table:
            if row["environment"] == name and row["env_steps"] == 16_000:
                key = (row["trial"], row["stream"], row["replicate"])
                returns.setdefault(key, []).append(row["episode_return"])
        for key, values in returns.items():
            score = (sum(values) / len(values) - scale.random) / (scale.reference - scale.random)
            found.setdefault(key, []).append(score)
    return found


def slow_choice(scores, by):
    totals = {}
    for (trial, stream, _), row in scores.items():
        if stream == "search" and len(row) == 3:
            totals.setdefault(trial, []).append(sum(row[at] for at in by) / len(by))
    means = {trial: sum(each) / len(each) for trial, each in totals.items() if len(each) == 5}
    return max(sorted(means), key=means.get)


def test_scores_are_those_of_the_published_tables(study):
    folder, _, _, rows, scores = study
    wanted = slow_scores(folder)
    told = {
        (trial, str(stream), seed): list(row)
        for (trial, stream), seeds in scores.seeds.items()
        for seed, row in seeds.items()
    }
    ended = {row.trial for row in rows if row.value is not None}
    assert told.keys() == {key for key in wanted if key[0] in ended}
    assert len(told) > 50 and all(told[key] == pytest.approx(wanted[key]) for key in told)
    assert len(ended) < len(rows)  # some diverged, and have no score on any environment
    assert scores.shared([0]) is not None and scores.of(99, Stream.SEARCH) == {}


def test_each_environment_is_left_out_of_the_choice(study):
    folder, _, meta, rows, scores = study
    found = leave_one_out_of(meta, rows, scores)
    slow = slow_scores(folder)
    assert found.chosen == slow_choice(slow, (0, 1, 2)) and found.choosing_seeds == 5
    assert found.adaptive == "which trials have fresh seeds (confirm)"  # random, nobody stopped
    assert len({one.trial for one in found.each}) > 1
    kinds = set()
    for left, one in enumerate(found.each):
        assert one.environment == engine.IDS[left]
        assert one.trial == slow_choice(slow, [at for at in range(3) if at != left])
        for side, other, streams in (
            (one.default, 0, ("choose", "report", "search")),
            (one.whole, found.chosen, ("choose", "report")),  # never the seeds that chose it
        ):
            if one.trial == other:
                assert side.why == "the same trial" and side.stream is None
                continue
            pairs = []
            for stream in streams:
                pairs = [
                    (slow[one.trial, stream, seed][left], slow[other, stream, seed][left])
                    for seed in range(6)
                    if {(one.trial, stream, seed), (other, stream, seed)} <= slow.keys()
                ]
                if pairs:
                    assert side.stream == stream and side.seeds == len(pairs)
                    kinds.add(stream)
                    break
            if not pairs:
                assert side.stream is None and "share no seeds" in side.why
                continue
            ours, theirs = map(list, zip(*pairs, strict=True))
            apart = [x - y for x, y in pairs]
            assert side.difference.value == pytest.approx(sum(apart) / len(apart))
            around = paired_interval(ours, theirs)
            told = side.difference.interval
            assert (told.low, told.high) == pytest.approx((around.low, around.high))
            assert (side.score, side.other) == pytest.approx(
                (sum(ours) / len(ours), sum(theirs) / len(theirs))
            )
    assert "search" in kinds


def test_the_mean_difference_over_environments_by_hand():
    apart = [(0.1, 0.3, -0.2, 0.4, 0.2, 0.5), (0.0, 0.2, 0.1, -0.1, 0.3, 0.4)]
    sides = [
        Side(0, 6, Stream.CHOOSE, difference=Estimate(sum(row) / 6), differences=row)
        for row in apart
    ]
    same = Side(0, why="the same trial")
    found = _over([*sides, same])
    seeds = [sum(pair) / 3 for pair in zip(*apart, strict=True)]
    wide = stats.t.interval(0.95, 5, sum(seeds) / 6, stats.sem(seeds))
    assert found.value == pytest.approx(sum(seeds) / 6)
    assert (found.interval.low, found.interval.high) == pytest.approx(wide)
    few = dataclasses.replace(sides[1], seeds=5, differences=apart[1][:5])
    assert _over([sides[0], few]).interval.low is None
    assert _over([*sides, Side(0, why="none")]).value is None


@pytest.mark.parametrize(
    ("changes", "adaptive"),
    [
        (
            {
                "early_terminate": None,
                "seeds": Seeds(4, racing=Racing(2)),
                "budget": Budget(trials=5),
            },
            "how many seeds each ran on (racing)",
        ),
        (
            {"early_terminate": EarlyTerminate("pbt", every=4_000), "budget": Budget(trials=6)},
            "which trials copied others (pbt)",
        ),
        ({"early_terminate": EarlyTerminate("plateau", 2_000, patience=2)}, "(plateau)"),
    ],
    ids=["racing", "pbt", "plateau"],
)
def test_what_all_environments_decided_is_said_and_its_seeds_are_not_asked(
    tmp_path, changes, adaptive
):
    _, meta, rows, scores = ran(tmp_path / "s", **{"seeds": Seeds(2), **changes})
    found = leave_one_out_of(meta, rows, scores)
    assert adaptive in found.adaptive
    for side in [side for one in found.each for side in (one.default, one.whole)]:
        if changes["early_terminate"] is not None:
            assert side.stream is not Stream.SEARCH
        assert side.stream is not Stream.SEARCH or side.seeds <= 2  # that all began with
    by_number = {row.trial: row for row in rows}
    for (trial, stream), seeds in scores.seeds.items():  # the value is that of these scores
        row = by_number[trial]
        values = {Stream.SEARCH: row.seed_values, Stream.CHOOSE: row.choose_values,
                  Stream.REPORT: row.report_values}[stream]  # fmt: skip
        assert [sum(given) / 3 for given in seeds.values()] == pytest.approx(list(values))


def test_what_a_scheduler_of_ray_tune_decided_is_said_and_its_seeds_are_not_asked():
    tune = SearchSpec("random", driver="ray_tune", scheduler="asha", searcher="optuna")
    asked = engine.several(early_terminate=None, seeds=Seeds(2))
    assert _search_seeds(asked) == 2
    asked = dataclasses.replace(asked, search=tune)
    assert _search_seeds(asked) == 0
    told = (
        "which configurations were proposed (optuna) and which trials were stopped or copied "
        "others (asha)"
    )
    assert _adaptive(asked) == told


def test_what_a_method_that_learns_proposed_is_said():
    asked = engine.several(
        method="tpe", early_terminate=EarlyTerminate("asha", 2_000, 2.0), seeds=Seeds(1)
    )
    told = "which configurations were proposed (tpe) and which trials were stopped (asha)"
    assert _adaptive(asked) == told
    assert _adaptive(engine.several(method="sobol", early_terminate=None)) == ""


def diverge(monkeypatch, replicate):
    """Make a seed of trials that discount little diverge before its first evaluation."""
    step = AnalyticPopulation._step

    def dies(self, lane):
        unlucky = lane.replicate == replicate and lane.payload["gamma"] > 0.994
        return step(self, lane) or (unlucky and lane.chunks == 2)

    monkeypatch.setattr(AnalyticPopulation, "_step", dies)


@pytest.mark.parametrize("seeds", [3, 4])  # the lost seed is alone in its look, and is not
def test_a_seed_that_racing_added_and_that_diverged_is_counted_as_lost(
    tmp_path, monkeypatch, seeds
):
    diverge(monkeypatch, seeds - 1)
    race = Seeds(seeds, tolerate=1, racing=Racing(2, 0.95))
    _, _, rows, scores = ran(tmp_path / "s", early_terminate=None, confirm=None, seeds=race)
    told = set()
    for row in rows:
        if row.value is not None:
            ended, dropped = len(row.seed_values), row.stop_rule.startswith("racing: clearly")
            of = scores.of(row.trial, Stream.SEARCH)
            assert set(of) == set(range(2 if dropped else seeds))
            lost = [seed for seed, one in of.items() if math.isnan(one[0])]
            assert lost == ([] if dropped or ended == seeds else [seeds - 1])
            told.add((dropped, len(lost)))
    assert {(False, 0), (False, 1)} <= told


def test_a_seed_that_racing_added_and_that_the_budget_cut_is_not_lost(tmp_path):
    budget = Budget(trials=12, env_steps=450_000)
    _, _, rows, scores = ran(tmp_path / "s", confirm=None, seeds=RACE, budget=budget)
    ended = [row for row in rows if row.stop_rule.startswith("racing: the budget")]
    assert ended and all(len(row.seed_values) == 2 for row in ended)
    for row in ended:
        of = scores.of(row.trial, Stream.SEARCH)
        assert set(of) == {0, 1} and all(map(math.isfinite, (*of[0], *of[1])))


def test_a_seed_that_diverged_is_in_no_difference(study):
    _, _, meta, rows, scores = study
    whole = leave_one_out_of(meta, rows, scores)
    chosen = next(one for one in whole.each if one.default.stream is Stream.SEARCH)
    key = (chosen.trial, Stream.SEARCH)
    lost = {**scores.seeds[key], 2: (math.nan,) * 3}
    study_text = meta.study_text.replace("tolerate: 0", "tolerate: 1")
    fewer = leave_one_out_of(
        dataclasses.replace(meta, study_text=study_text),
        rows,
        dataclasses.replace(scores, seeds={**scores.seeds, key: lost}),
    )
    same = next(one for one in fewer.each if one.environment == chosen.environment)
    if same.trial == chosen.trial:  # its other seeds still choose it
        assert same.default.seeds == chosen.default.seeds - 1
    everything = {
        key: dict.fromkeys(seeds, (math.nan,) * 3) for key, seeds in scores.seeds.items()
    }
    with pytest.raises(StoreError, match="no trial of 'small' has finished its run yet"):
        leave_one_out_of(meta, rows, EnvironmentScores(scores.names, scores.over, everything))


def test_a_front_and_one_environment_alone_are_refused(tmp_path, study):
    _, _, meta, rows, scores = study
    front = dataclasses.replace(meta, objectives=({"name": "a"}, {"name": "b"}))
    with pytest.raises(ConfigError, match="several objectives"):
        leave_one_out_of(front, rows, scores)
    alone = engine.samples.study(early_terminate=None, budget=Budget(trials=2))
    run(alone, tmp_path / "x", engine.PARTS[0], (), engine.samples.quick())
    with Journal(tmp_path / "x") as journal, pytest.raises(ConfigError, match="is over one"):
        leave_one_out(journal)
