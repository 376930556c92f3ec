"""The tables as a package without jax, held against the reader of hpo itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpo.search.bench import read_table

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "benchmarks" / "hpo_tables"
sys.path.insert(0, str(PACKAGE))
import hpo_tables  # noqa: E402
from hpo_tables.__main__ import main as hpo_tables_main  # noqa: E402
from hpo_tables.rank import (  # noqa: E402
    BASELINES,
    OutOfBudget,
    Problem,
    Ranked,
    _ranks,
    interval,
    optimiser_of,
    rank,
    text_of,
)
from hpo_tables.to_configspace import as_configspace, from_configspace  # noqa: E402

NAMES = hpo_tables.names()


def recorded(table, configuration):
    """A configuration as the study files name and scale it."""
    return {
        one.recorded_name: one.recorded(configuration[one.name])
        for one in table.space.hyperparameters
    }


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "deeprmsa-nsfnet"])
def test_table_values_and_nearest_runs_match_hpo(name):
    ours = hpo_tables.load(name)
    folder = next(ROOT.glob(f"results/*/{name}"))
    theirs = read_table(folder)
    assert np.array_equal(ours.values, theirs.values, equal_nan=True)
    returns = theirs.curves["episode_return_100"]
    assert np.array_equal(ours.training_returns, returns, equal_nan=True)
    problem = Problem(ours, np.arange(ours.seeds), 1, np.random.default_rng(0))
    for _ in range(200):
        asked = problem.draw()
        row, distance = ours.find(asked)
        expected, away = theirs.find(recorded(ours, asked))
        assert (row, distance) == (expected, pytest.approx(away, abs=1e-9))


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_configuration_is_found(name):
    table = hpo_tables.load(name)
    assert [table.find(one) for one in table.configurations] == [
        (row, 0.0) for row in range(len(table.configurations))
    ]
    found = table.evaluate(table.default, seed=2)
    assert found.distance == 0.0 and found.env_steps == table.length
    sign = -1.0 if table.goal == "maximize" else 1.0
    assert found.loss == sign * found.value


def test_draws_are_distributed_like_recorded_configurations():
    table = hpo_tables.load("Acrobot-v1")
    problem = Problem(table, np.arange(10), 1, np.random.default_rng(1))
    drawn = [problem.draw() for _ in range(1000)]
    for one in table.space.hyperparameters:
        ours = np.sort([one.share(configuration[one.name]) for configuration in drawn])
        theirs = np.sort(
            [one.share(configuration[one.name]) for configuration in table.configurations[1:]]
        )
        assert np.abs(ours - theirs).mean() < 0.03, one.name


def test_shares_and_values_undo_each_other():
    for name in NAMES:
        for one in hpo_tables.load(name).space.hyperparameters:
            for share in (0.0, 0.13, 0.5, 0.99, 1.0):
                value = one.at(share)
                assert one.at(one.share(value)) == pytest.approx(value)
                assert one.recorded(one.seen(one.recorded(value))) == one.recorded(value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": 1.0}, "learning_rate is 1.0; allowed: 0.0001 to 0.03"),
        ({"normalise_observations": "yes"}, "allowed: "),
        ({"knob": 1}, r"unknown: \['knob'\]"),
        ({"gamma": 0.99}, "; gamma is given as one_minus_gamma, which is 1 - gamma$"),
        ({"ent_coef": 0.0}, r"allowed: 1\.77828e-05 to 0\.1 \(below 0\.0001 means 0\)$"),
    ],
)
def test_invalid_configurations_are_refused(change, words):
    table = hpo_tables.load("CartPole-v1")
    with pytest.raises(ValueError, match=words):
        table.evaluate({**table.default, **change})


def test_seeds_steps_and_names_outside_of_a_table_are_refused():
    table = hpo_tables.load("CartPole-v1")
    with pytest.raises(ValueError, match="seed is 8; allowed: 0 to 7"):
        table.evaluate(table.default, seed=8)
    with pytest.raises(ValueError, match="first point is at 10240"):
        table.evaluate(table.default, env_steps=10_000)
    with pytest.raises(KeyError, match="known: Acrobot-v1"):
        hpo_tables.load("CartPole")


def test_continuing_a_run_costs_only_the_new_steps():
    table = hpo_tables.load("CartPole-v1")
    problem = Problem(table, np.arange(8), 1.5, np.random.default_rng(0))
    problem.evaluate(table.default, share=0.3)
    assert problem.spent == pytest.approx(0.3)
    problem.evaluate(table.default)
    problem.evaluate(table.default)
    assert problem.spent == pytest.approx(1.0)
    with pytest.raises(OutOfBudget):
        problem.evaluate(table.default, seed=1)
    assert problem.spent == pytest.approx(1.0)
    with pytest.raises(ValueError, match="allowed: 0 to 4"):
        problem.evaluate(table.default, seed=5)


def test_ranks_match_a_slow_count():
    losses = np.random.default_rng(0).integers(0, 3, (4, 50)).astype(float)
    for at in range(4):
        for search in range(50):
            column = losses[:, search]
            less = sum(other < column[at] for other in column)
            same = sum(other == column[at] for other in column) - 1
            assert _ranks(losses)[at, search] == 1 + less + same / 2


def test_the_best_possible_choice_ranks_first_and_the_worst_last(monkeypatch):
    monkeypatch.setattr("hpo_tables.rank.names", lambda: ["MountainCar-v0", "Reacher-misc"])

    def of_order(place):
        def optimise(problem):
            means = problem.table.losses[:, :, -1].mean(axis=1)
            return problem.table.configurations[int(np.argsort(means)[place])]

        return optimise

    best, worst = rank({"best": of_order(0), "worst": of_order(-1)}, searches=5)
    assert all(value == 1.0 for value in best.ranks.values())
    assert all(value == 2.0 for value in worst.ranks.values())
    assert min(best.scores.values()) > 0.8 > max(worst.scores.values())


def test_interval_matches_student_t():
    mean, reach = interval([1.0, 2.0, 4.0])
    assert (mean, reach) == pytest.approx((7 / 3, 4.303 * np.std([1, 2, 4], ddof=1) / 3**0.5))
    found = [Ranked("mine", {"a": 1.0, "b": 0.5}, {"a": 1.0, "b": 2.0})]
    assert text_of(found, 12, 20).splitlines()[1].split()[:2] == ["mine", "0.75"]


def test_configspace_default_and_samples_can_be_evaluated():
    for name in ("CartPole-v1", "Pendulum-v1"):
        table = hpo_tables.load(name)
        space = as_configspace(table.space, seed=1)
        default = from_configspace(table.space, dict(space.get_default_configuration()))
        assert table.find(default) == (0, 0.0)
        for configuration in space.sample_configuration(50):
            found = table.evaluate(from_configspace(table.space, dict(configuration)))
            assert np.isfinite(found.loss)


def test_command_ranks_a_user_optimiser(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def optimise(problem):\n    return problem.draw()\n")
    command = [sys.executable, "-m", "hpo_tables", f"{mine}:optimise", "--searches", "1"]
    ran = subprocess.run(command, cwd=PACKAGE, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()[:4]] == [
        "optimiser",
        "random",
        "random,",
        f"{mine}:optimise",
    ]
    missing = subprocess.run(
        [*command[:3], "no.py:f"], cwd=PACKAGE, capture_output=True, text=True
    )
    assert missing.returncode == 2
    assert "FILE.py:FUNCTION" in missing.stderr


@pytest.mark.parametrize("runs", [1, 2, 3, 8])
def test_baselines_stay_within_small_budgets(runs):
    table = hpo_tables.load("MountainCar-v0")
    for optimise in BASELINES.values():
        problem = Problem(table, np.arange(table.seeds), runs, np.random.default_rng(0))
        table.find(optimise(problem))
        assert problem.spent <= runs


@pytest.mark.parametrize("value", ["0.01", None, float("nan")])
def test_values_that_are_no_numbers_are_refused(value):
    table = hpo_tables.load("MountainCar-v0")
    with pytest.raises(ValueError, match=r"learning_rate is .*; allowed: 0\.0001 to 0\.03"):
        table.evaluate({**table.default, "learning_rate": value})
    with pytest.raises(ValueError, match="is not a configuration"):
        table.evaluate(None)
    for seed in (1.5, None):
        with pytest.raises(ValueError, match=f"seed is {seed}; allowed: 0 to 7"):
            table.evaluate(table.default, seed)
    with pytest.raises(ValueError, match="env_steps is nan"):
        table.evaluate(table.default, env_steps=float("nan"))


@pytest.mark.parametrize("flags", [("--runs", "0.5"), ("--runs", "nan"), ("--searches", "0")])
def test_command_refuses_budgets_of_nothing(monkeypatch, capsys, flags):
    monkeypatch.setattr(sys, "argv", ["hpo_tables", *flags])
    with pytest.raises(SystemExit, match="2"):
        hpo_tables_main()
    assert f"{flags[0]} is {flags[1]}; allowed: 1 or more" in capsys.readouterr().err


def test_command_refuses_an_optimiser_that_is_no_function(tmp_path):
    (tmp_path / "mine.py").write_text("thing = 3\n")
    with pytest.raises(ValueError, match="has no function thing"):
        optimiser_of(f"{tmp_path / 'mine.py'}:thing")


def test_package_imports_neither_jax_nor_hpo():
    code = "import sys, hpo_tables.rank; print({'jax', 'hpo', 'pandas'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE, capture_output=True, text=True)
    assert ran.stdout.strip() == "set()", ran.stderr
