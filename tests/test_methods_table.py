"""Search methods side by side: choices and regrets by hand, and a small table of formulas."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from helpers.analytic_lanes import AnalyticFactory
from hpo.knobs import KNOBS
from hpo.search.lanes import local
from hpo.store.query import query
from hpo.studies.load import load

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
STUDY = """\
name: methods
env: CartPole-v1
env_steps: 16k
space:
  learning_rate: {min: 1e-5, max: 1e-1, distribution: log_uniform, default: 3e-4}
  gamma: {min: 0.9, max: 0.999, distribution: one_minus_log}
early_terminate: {type: asha, min: 4k, eta: 2}
seeds: {per_config: 2}
"""


SEARCHED = '"param.learning_rate", "param.gamma"'


class Formulas(AnalyticFactory):
    """Lanes that follow formulas."""

    def check(self, config):
        """Every configuration can run."""


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("methods_table")
    sys.path.remove(str(BENCHMARKS))


def test_chosen_trial_is_the_best_finished_so_far(table):
    trials = [
        table.Ended({"x": 0}, None, 10),  # stopped
        table.Ended({"x": 1}, 5.0, 20),
        table.Ended({"x": 2}, 4.0, 20),
        table.Ended({"x": 3}, 6.0, 20),
    ]
    assert table.choices(trials, [9, 29, 30, 69, 70], "maximize") == [
        None,
        None,
        {"x": 1},
        {"x": 1},
        {"x": 3},
    ]
    assert table.choices(trials, [70], "minimize") == [{"x": 2}]


def test_regret_is_the_loss_against_the_best(table):
    chosen = {"random": [[None, 4.0], [1.0, 5.0]], "tpe": [[2.0, 5.0]] * 6}
    rows = table.rows_of("s", chosen, [10.0, 20.0], 5.0, "maximize")
    assert [(row.method, row.env_steps, row.repetitions, row.regret) for row in rows] == [
        ("random", 10, 1, 4.0),
        ("random", 20, 2, 0.5),
        ("tpe", 10, 6, 3.0),
        ("tpe", 20, 6, 0.0),
    ]
    assert rows[0].low is None and (rows[2].low, rows[2].high) == (3.0, 3.0)
    (costs,) = table.rows_of("s", {"random": [[0.3]]}, [10.0], 0.1, "minimize")
    assert costs.regret == pytest.approx(0.2)
    assert "| s | tpe | 10 | 6 | 3 | [3, 3] |" in table.table(rows)


def test_median_interval_uses_order_statistics(table):
    assert table.middle([5.0, 1.0, 4.0, 2.0, 3.0]) == (3.0, None, None)
    assert table.middle([6.0, 5.0, 1.0, 4.0, 2.0, 3.0]) == (3.5, 1.0, 6.0)
    assert table.middle([float(n) for n in range(1, 11)]) == (5.5, 2.0, 9.0)
    draws, wrong = np.random.default_rng(0), 0
    for _ in range(500):  # most regret nothing, some much
        _, low, high = table.middle(draws.exponential(size=10).tolist())
        wrong += not low <= np.log(2) <= high
    assert wrong <= 25


def test_shared_best_value_is_detected(table):
    one, two, stopped = table.Ended({}, 1.0, 1), table.Ended({}, 0.5, 1), table.Ended({}, None, 1)
    assert table.shares_its_best([one, two, one, stopped], "maximize")
    assert not table.shares_its_best([one, two, one, stopped], "minimize")
    assert not table.shares_its_best([stopped, stopped], "maximize")


def test_equal_values_choose_the_lowest_trial_number(table):
    trials = [table.Ended({"x": 5}, 4.0, 10, 5), table.Ended({"x": 2}, 4.0, 10, 2)]
    assert table.choices(trials, [10, 20], "maximize") == [{"x": 5}, {"x": 2}]


def test_methods_table_resumes_with_equal_budgets(table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(local, "LocalFactory", lambda *a, **b: Formulas())
    file, out = tmp_path / "methods.yaml", tmp_path / "out"
    file.write_text(STUDY)
    words = [
        str(file),
        "--methods",
        "random,sobol",
        "--repetitions",
        "2",
        "--full-runs",
        "8",
        "--judges",
        "3",
        "--out",
        str(out),
    ]
    assert table.main(words) == 0
    first = capsys.readouterr().out
    assert table.main(words) == 0 and capsys.readouterr().out == first  # all was there
    rows = json.loads((out / "methods_table.json").read_text())["rows"]
    assert [row["method"] for row in rows if row["env_steps"] == 256_000] == ["random", "sobol"]
    assert min(row["regret"] for row in rows) >= 0.0
    data = json.loads((out / "methods_table.json").read_text())
    (beside,) = data["beside_default"]
    assert beside["searches"] == 4 and beside["better"] + beside["worse"] <= 4
    gains = [
        gain_on_judges(out / "methods", method, at)
        for method in ("random", "sobol")
        for at in (0, 1)
    ]
    assert beside["better"] == sum(gain > 0 for gain in gains)
    assert beside["worse"] == sum(gain < 0 for gain in gains)
    searched = {folder.name: told(folder) for folder in (out / "methods").glob("*-*")}
    for judge in [name for name in searched if name.startswith("judge-")]:
        trials, _, seeds = searched.pop(judge)
        assert trials >= 2 and seeds == 3  # all choices side by side, and the default
    assert sorted(searched) == ["random-00", "random-01", "sobol-00", "sobol-01"]
    assert all(0.8 * 256_000 < spent <= 256_000 for _, spent, _ in searched.values())
    words[4] = "3"
    assert table.main(words) == 0  # what was judged before is not judged again
    folders = list((out / "methods").glob("judge-3-*"))
    assert sorted(folder.name[:10] for folder in folders) == [f"judge-3-0{n}" for n in range(3)]
    words[8] = "4"
    assert table.main(words) == 0  # what three seeds judged says nothing of four
    four = list((out / "methods").glob("judge-4-*"))
    assert len(four) == 3 and {told(folder)[2] for folder in four} == {4}


def gain_on_judges(folder, method, at):
    """How much better than the default a search's choice is, out of the tables alone."""
    ((rate, gamma),) = query(
        folder / f"{method}-0{at}",
        f"SELECT {SEARCHED} FROM trials WHERE state = 'finished' "
        "ORDER BY value DESC, trial LIMIT 1",
    )[1]
    (judge,) = folder.glob(f"judge-3-0{at}-*")
    rows = query(judge, f"SELECT {SEARCHED}, value FROM trials ORDER BY trial")[1]
    (chosen,) = {value for *config, value in rows if config == [rate, gamma]}
    return chosen - rows[0][2]


def told(folder):
    """Trials, env steps and seeds of a study."""
    ((trials, spent, seeds),) = query(
        folder, "SELECT count(*), sum(env_steps), max(seeds) FROM trials"
    )[1]
    return trials, spent, seeds


def test_pbt_is_evaluated_by_its_chosen_schedule(table, tmp_path, monkeypatch):
    """Its confirm stage trains the schedule on the judge seeds; the budget is the search's."""
    monkeypatch.setattr(local, "LocalFactory", lambda *a, **b: Formulas())
    file, out = tmp_path / "methods.yaml", tmp_path / "out"
    file.write_text(STUDY)
    words = [
        str(file),
        "--methods",
        "random,pbt",
        "--repetitions",
        "2",
        "--full-runs",
        "8",
        "--judges",
        "3",
        "--out",
        str(out),
    ]
    assert table.main(words) == 0
    rows = json.loads((out / "methods_table.json").read_text())["rows"]
    (pbt,) = (row for row in rows if row["method"] == "pbt")
    assert pbt["env_steps"] == 256_000 and pbt["repetitions"] == 2 and pbt["regret"] >= 0.0
    study = out / "methods" / "pbt-00"
    ((searched,),) = query(
        study,
        "SELECT sum(env_steps) FROM (SELECT max(env_steps) AS env_steps FROM evaluations "
        "WHERE stream = 'search' GROUP BY trial, replicate)",
    )[1]
    assert searched == 256_000
    ((reports,),) = query(
        study, "SELECT count(DISTINCT replicate) FROM evaluations WHERE stream = 'report'"
    )[1]
    assert reports == 3


def test_methods_table_studies_need_one_program_each(table):
    files = sorted((BENCHMARKS / "methods").glob("*.yaml"))
    assert len(files) == 3
    for file in files:
        study = load(file)
        assert study.name == f"methods-{file.stem}" and study.env_steps % table.COPIES == 0
        assert all(KNOBS[name].traced for name in study.space.names)


def test_methods_table_refuses_unsupported_methods_and_studies(table, tmp_path, capsys):
    assert table.main(["x.yaml", "--methods", "grid"]) == 2
    said, known = capsys.readouterr().err.split("; known: ")
    assert said == "--methods: 'grid' cannot be judged here"
    assert known == "random, sobol, tpe, gp, cmaes, smac, pbt, pb2\n"
    file = tmp_path / "two.yaml"
    file.write_text("env: [CartPole-v1, Acrobot-v1]\nenv_steps: 16k\n")
    assert table.main([str(file), "--out", str(tmp_path)]) == 2
    assert "methods_table.py" in capsys.readouterr().err
