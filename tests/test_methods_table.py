"""Search methods side by side: choices and regrets by hand, and a small table of formulas."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hpo.search.lanes import local
from hpo.search.lanes.analytic import AnalyticFactory
from hpo.store.query import query

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


class Formulas(AnalyticFactory):
    """Lanes that follow formulas."""

    def check(self, config):
        """Every configuration can run."""


@pytest.fixture(scope="module")
def table():
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("methods_table")
    sys.path.remove(str(BENCHMARKS))


def test_the_choice_is_the_best_that_had_ended(table):
    trials = [
        table.Ended({"x": 0}, None, 10),  # stopped
        table.Ended({"x": 1}, 5.0, 20),
        table.Ended({"x": 2}, 4.0, 20),
        table.Ended({"x": 3}, 6.0, 20),
    ]
    assert table.choices(trials, [9, 29, 30, 69, 70], "maximize") == [
        None, None, {"x": 1}, {"x": 1}, {"x": 3},
    ]  # fmt: skip
    assert table.choices(trials, [70], "minimize") == [{"x": 2}]


def test_regret_is_how_much_worse_the_choice_is(table):
    chosen = {"random": [[None, 4.0], [1.0, 5.0]], "tpe": [[2.0, 5.0]] * 5}
    rows = table.rows_of("s", chosen, [10.0, 20.0], 5.0, "maximize")
    assert [(row.method, row.env_steps, row.repetitions, row.regret) for row in rows] == [
        ("random", 10, 1, 4.0), ("random", 20, 2, 0.5), ("tpe", 10, 5, 3.0), ("tpe", 20, 5, 0.0),
    ]  # fmt: skip
    assert rows[0].low is None and (rows[2].low, rows[2].high) == (3.0, 3.0)
    (costs,) = table.rows_of("s", {"random": [[0.3]]}, [10.0], 0.1, "minimize")
    assert costs.regret == pytest.approx(0.2)
    assert "| s | tpe | 10 | 5 | 3 | [3, 3] |" in table.table(rows)


def test_a_whole_table_resumes_and_spends_equally(table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(local, "LocalFactory", lambda *a, **b: Formulas())
    file, out = tmp_path / "methods.yaml", tmp_path / "out"
    file.write_text(STUDY)
    words = [str(file), "--methods", "random,sobol", "--repetitions", "2", "--full-runs", "8",
             "--judges", "3", "--out", str(out)]  # fmt: skip
    assert table.main(words) == 0
    first = capsys.readouterr().out
    assert table.main(words) == 0 and capsys.readouterr().out == first  # all was there
    rows = json.loads((out / "methods_table.json").read_text())["rows"]
    assert [row["method"] for row in rows if row["env_steps"] == 256_000] == ["random", "sobol"]
    assert min(row["regret"] for row in rows) >= 0.0
    searched, judged = {}, 0
    for folder in sorted((out / "methods").glob("*-*")):
        if folder.is_dir():
            sql = "SELECT sum(env_steps), max(seeds) FROM trials"
            ((spent, seeds),) = query(folder, sql)[1]
            if folder.name.startswith("judge-"):
                judged += 1
                assert seeds == 3
            else:
                searched[folder.name] = spent
    assert sorted(searched) == ["random-00", "random-01", "sobol-00", "sobol-01"] and judged >= 2
    assert all(0.8 * 256_000 < spent <= 256_000 for spent in searched.values())


def test_what_cannot_be_judged_is_a_line(table, tmp_path, capsys):
    assert table.main(["x.yaml", "--methods", "pbt"]) == 2
    assert capsys.readouterr().err == (
        "--methods: 'pbt' cannot be judged here; known: random, sobol, tpe, gp, cmaes, smac\n"
    )
    file = tmp_path / "two.yaml"
    file.write_text("env: [CartPole-v1, Acrobot-v1]\nenv_steps: 16k\n")
    assert table.main([str(file), "--out", str(tmp_path)]) == 2
    assert "methods_table.py" in capsys.readouterr().err
