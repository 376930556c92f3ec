"""Rules judged over a record of several environments: by its scores, not by pooled returns."""

import dataclasses
from pathlib import Path
from statistics import fmean

import pytest

from helpers.loading import run_file
from hpo.search.run import run
from hpo.search.what_if import matches, read_record, replay, what_if
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import EarlyTerminate, Evaluation, Racing, Seeds

_TESTS = Path(__file__).parents[1]
engine = run_file("tests/search/engine/test_several_environments.py")
single = run_file("tests/search/what_if/test_what_if.py")
EVERY = Evaluation(every=1_000)


def quantum(_study, _config):
    return 1_000


def asked(**changes):
    base = {"budget": Budget(trials=9), "seed": 3, "evaluation": EVERY, "seeds": Seeds(3)}
    return engine.several(**{**base, **changes})


def parts(seed):
    """Lanes of three environments, of which one alone diverges, and often."""
    each = ((seed, 9.0), (seed + 1, 0.02), (seed + 2, 9.0))
    return [
        engine.samples.AnalyticFactory(seed=at, lanes=6, diverges_above=limit)
        for at, limit in each
    ]


def ran(folder, study):
    run(study, folder, engine.factory(study, parts(study.seed)), (), engine.samples.quick())
    return folder


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Nobody was stopped; some diverged on the second environment."""
    folder = ran(tmp_path_factory.mktemp("r") / "whole", asked(early_terminate=None))
    return folder, read_record(folder, quantum)


RULES = {
    "asha": {"early_terminate": EarlyTerminate("asha", 1_000, 2.0)},
    "median": {"early_terminate": EarlyTerminate("median", 2_000, 4.0)},
    "plateau": {"early_terminate": EarlyTerminate("plateau", 1_000, patience=2, tolerance=0.3)},
    "racing": {"early_terminate": None, "seeds": Seeds(3, racing=Racing(2))},
    "fewer seeds": {"early_terminate": EarlyTerminate("asha", 2_000, 3.0), "seeds": Seeds(1)},
}


@pytest.mark.parametrize("rule", RULES)
def test_replayed_rule_equals_study_with_that_rule(tmp_path, record, rule):
    _, found = record
    assert sum(row.state == "diverged" for row in found.trials) >= 2
    study = asked(**RULES[rule])
    single.assert_same(found, study, ran(tmp_path / "real", study))


@pytest.mark.parametrize("over", ["worst", "iqm"])
def test_what_if_value_uses_aggregate_of_the_study(tmp_path, over):
    rule = EarlyTerminate("asha", 1_000, 2.0)
    whole, real = (
        dataclasses.replace(asked(early_terminate=early, seeds=Seeds(1)), over_environments=over)
        for early in (None, rule)
    )
    found = read_record(ran(tmp_path / "whole", whole), quantum)
    single.assert_same(found, real, ran(tmp_path / "real", real))


def test_replay_matches_record_and_counts_every_environment(record):
    folder, found = record
    same, judged = matches(found, replay(found, found.study))
    assert same == judged > 0
    table = what_if(folder, ["none", "asha,eta=2"], quantum=quantum)
    none, asha = table.rows
    assert table.metric == "score" and none.exact and none.lost == 0.0
    with Journal(folder) as journal:
        rows = [row for row in journal.trials() if row.trial >= 0]
    assert none.env_steps == sum(row.env_steps for row in rows)
    assert none.saved == pytest.approx(0.0)
    assert asha.stopped > 0 and 0.2 < asha.saved < 1.0


def test_trial_value_is_mean_of_its_scores(record):
    folder, found = record
    trial = next(row.trial for row in found.trials if row.value is not None)
    with Journal(folder) as journal:
        row = journal.trial(trial)
    value = found.value(trial, 16_000)
    assert value == pytest.approx(row.value) == pytest.approx(fmean(row.scores))
