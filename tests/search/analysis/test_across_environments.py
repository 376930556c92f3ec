"""Scores over several environments, against a loop over the published tables."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from helpers.analytic_lanes import AnalyticPopulation
from helpers.loading import run_file
from hpo.search.analysis.across_environments import environment_scores
from hpo.search.run import run
from hpo.store.journal import Journal
from hpo.store.rows import Stream
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Confirm, EarlyTerminate, Racing, Seeds

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


def test_environment_names_come_from_the_stored_study(study):
    with Journal(study[0]) as journal:
        names = [{**one, "name": f"old_{one['name']}"} for one in journal.meta.environments]
        begun = SimpleNamespace(
            meta=dataclasses.replace(journal.meta, environments=names),
            decisions=journal.decisions,
            evaluations=journal.evaluations,
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


def test_environment_scores_equal_published_tables(study):
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


@pytest.mark.parametrize(
    "changes",
    [
        {
            "early_terminate": None,
            "seeds": Seeds(4, racing=Racing(2)),
            "budget": Budget(trials=5),
        },
        {"early_terminate": EarlyTerminate("pbt", every=4_000), "budget": Budget(trials=6)},
        {"early_terminate": EarlyTerminate("plateau", 2_000, patience=2)},
    ],
    ids=["racing", "pbt", "plateau"],
)
def test_trial_value_is_mean_of_environment_scores(tmp_path, changes):
    _, _, rows, scores = ran(tmp_path / "s", **{"seeds": Seeds(2), **changes})
    by_number = {row.trial: row for row in rows}
    for (trial, stream), seeds in scores.seeds.items():
        row = by_number[trial]
        values = {
            Stream.SEARCH: row.seed_values,
            Stream.CHOOSE: row.choose_values,
            Stream.REPORT: row.report_values,
        }[stream]
        assert [sum(given) / 3 for given in seeds.values()] == pytest.approx(list(values))


def diverge(monkeypatch, replicate):
    """Make a seed of trials that discount little diverge before its first evaluation."""
    step = AnalyticPopulation.train_chunk

    def dies(self, lane):
        unlucky = lane.replicate == replicate and lane.payload["gamma"] > 0.994
        return step(self, lane) or (unlucky and lane.chunks == 2)

    monkeypatch.setattr(AnalyticPopulation, "train_chunk", dies)


@pytest.mark.parametrize("seeds", [3, 4])  # the lost seed is alone in its look, and is not
def test_diverged_racing_seed_counts_as_lost(tmp_path, monkeypatch, seeds):
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


def test_racing_seed_cut_by_budget_is_not_lost(tmp_path):
    budget = Budget(trials=12, env_steps=450_000)
    _, _, rows, scores = ran(tmp_path / "s", confirm=None, seeds=RACE, budget=budget)
    ended = [row for row in rows if row.stop_rule.startswith("racing: the budget")]
    assert ended and all(len(row.seed_values) == 2 for row in ended)
    for row in ended:
        of = scores.of(row.trial, Stream.SEARCH)
        assert set(of) == {0, 1} and all(map(math.isfinite, (*of[0], *of[1])))
