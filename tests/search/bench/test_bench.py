"""Searches over a table of six configurations, whose right choice is known."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import astuple, replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from helpers import doc_blocks
from helpers.recorded_table import POINTS, RATES, values_of, write_table
from hpo.cli import main
from hpo.errors import ConfigError, HpoError, StoreError, StudyError
from hpo.search.bench import plan_seeds, read_table, run_bench, search_table
from hpo.search.bench.bench import BenchRunner, chosen_trial
from hpo.search.bench.compare import compare, needed, over_tables
from hpo.search.bench.table_lanes import TableFactory
from hpo.search.bench.tables import BenchTable
from hpo.search.run import RunOptions, run
from hpo.search.seeds import generator
from hpo.spaces import Condition, Parameter, Space, make_distribution
from hpo.store.rows import Stream
from hpo.studies import user_code
from hpo.studies.bench_file import read_bench
from hpo.studies.execution_spec import Budget
from hpo.studies.load import loads
from hpo.studies.search_methods import METHODS as METHODS_TABLE
from hpo.studies.search_spec import SearchSpec

ONE_COMMIT = RunOptions(1e9, 1e9)
SAMPLER = """\
from hpo.search.samplers.registry import Draw, option, register_sampler

class Up:
    def __init__(self, spec):
        self.spec = spec
    def begin(self, batch, history):
        return self
    def draw(self, trial, attempt):
        rate = 1e-4 * self.spec.options["factor"] ** (trial + attempt)
        return Draw({"learning_rate": min(rate, 1e-2), "lr_schedule": "constant"})
    def keep(self, trial, params):
        pass

factor = option("factor", 1.5, "of a step", low=1.0)
register_sampler("up", Up, [factor], learns_from="", ahead=False)
"""
METHODS = """\
  all:
    search: {method: random}
    seeds: {per_config: 2}
    confirm: {top_k: 2, choose: 3, report: 2}
  quick:
    search: {method: tpe}
    early_terminate: {type: asha, min: 1000, eta: 2}
    seeds: {per_config: 1}
  mine:
    imports: [up.py]
    search: {method: up, options: {factor: 2.0}}
    seeds: {per_config: 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give one folder to all: a sampler is registered once, and forgotten at the end."""
    made = tmp_path_factory.mktemp("bench")
    write_table(made / "tables" / "toy", values_of(noise=0.5))
    (made / "up.py").write_text(SAMPLER)
    tables = (METHODS_TABLE, user_code._DONE)
    before = [dict(table) for table in tables]
    yield made
    sys.modules.pop("up", None)
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def bench_file(folder, bench="tables: tables, budgets: [4, 40], searches: 3", methods=METHODS):
    path = folder / "bench.yaml"
    path.write_text(f"bench: {{{bench}}}\nmethods:\n{methods}")
    return read_bench(path)


def factory_of(folder, study, tests=2):
    table = read_table(folder / "tables" / "toy")
    return TableFactory(table, plan_seeds(study, range(8), tests), lanes=4)


def test_bench_table_round_trip(folder):
    table = read_table(folder / "tables" / "toy")
    assert np.array_equal(table.values, values_of(0.5))
    assert np.array_equal(table.curves["episode_return_100"], values_of(0.5) - 1.0)
    assert [one["learning_rate"] for one in table.params] == list(RATES)
    assert (table.length, table.seeds, table.points.tolist()) == (4000, 8, list(POINTS))


def test_best_configuration_is_chosen_and_judged_on_test_seeds(folder):
    file = bench_file(folder)
    found = BenchRunner(file).run("toy", "all", 40, 1)
    assert (found.trials, found.search_runs, found.confirm_runs) == (6, 12.0, 10.0)
    table = read_table(folder / "tables" / "toy")
    assert found.beats == found.oracle_beats == 0.9  # four of the five drawn, itself half
    order = generator(1, "bench", 1).permutation(8)  # 2 test, 2 search, 3 choose, 1 is left
    ends = table.values[:, :, -1]
    effects = [np.median([ends[c, s] - ends[c].mean() for c in range(6)]) for s in range(8)]
    fresh = [ends[3, s] - effects[s] + np.mean(effects) for s in (*order[:2], order[7])]
    assert found.value == pytest.approx(np.mean(fresh), abs=1e-12)


def test_oracle_is_not_selected_on_test_seeds(tmp_path):
    """Of equals, one picked by test seeds, too, would seem to beat more than half."""
    noise = np.random.default_rng(0).normal(size=values_of().shape)
    write_table(tmp_path / "tables" / "noise", noise)
    methods = "  all:\n    search: {method: random}\n    seeds: {per_config: 2}\n"
    runner = BenchRunner(bench_file(tmp_path, methods=methods))
    table, flattered = runner.table("noise"), 0
    for number in range(5):
        order = generator(1, "bench", number).permutation(8)
        best = int(noise[:, order[2:], -1].mean(axis=1).argmax())
        found = runner.run("noise", "all", 40, number)
        assert (found.trials, found.oracle_beats) == (6, table.share_beaten(best, order[:2]))
        flattered += int(noise[:, :, -1].mean(axis=1).argmax()) != best
    assert flattered


def test_seed_corrected_values_are_unbiased_with_lower_variance():
    rng = np.random.default_rng(3)
    true = np.linspace(0, 1, 200)[:, None]
    noise, common = 0.5 * rng.normal(size=(200, 10)), rng.normal(size=10)
    table = BenchTable(
        "made", "", Space(()), [{}], np.array([1]), (true + noise + common)[:, :, None]
    )
    picks = [rng.permutation(10)[:2] for _ in range(500)]
    plain = np.array([table.finals[:, pick].mean(axis=1) for pick in picks])
    paired = np.array([table.paired[:, pick].mean(axis=1) for pick in picks])
    assert paired.mean() == pytest.approx(table.finals.mean(), abs=0.02)
    assert paired.mean(axis=0) == pytest.approx(table.finals.mean(axis=1), abs=0.1)
    assert paired.std(axis=0).mean() < 0.6 * plain.std(axis=0).mean()


def test_served_values_equal_table_values(folder):
    file = bench_file(folder)
    study = file.budgeted(BenchRunner(file).study("toy", "all"), 40)
    factory = factory_of(folder, study)
    engine = search_table(study, factory)
    values, plan = factory.table.values, factory.seeds
    assert {trial.params["learning_rate"] for trial in engine.search_state.trials.values()} == set(
        RATES
    )
    streams = {Stream.SEARCH: "seed_values", Stream.CHOOSE: "choose_values"}
    counted = 0
    for trial in engine.search_state.trials.values():
        row = RATES.index(trial.params["learning_rate"])
        for stream, name in streams.items():
            for seed, value in enumerate(getattr(trial, name)):
                assert value == values[row, plan.column(stream, seed), -1]
                counted += 1
    assert counted == 6 * 2 + 2 * 3
    assert chosen_trial(engine) == engine.search_state.state.winner


def test_search_with_and_without_store_gives_same_results(folder, tmp_path):
    file = bench_file(folder)
    for method in ("all", "quick"):
        study = file.budgeted(BenchRunner(file).study("toy", method), 12)
        engine = search_table(study, factory_of(folder, study), move=False)
        stored = run(study, tmp_path / method, factory_of(folder, study), settings=ONE_COMMIT)
        assert stored.best is not None and stored.best.trial == chosen_trial(engine)
        ours = {n: (t.state, t.value, t.env_steps) for n, t in engine.search_state.trials.items()}
        theirs = {e.trial: (e.state, e.search_value, e.env_steps) for e in stored.leaderboard}
        assert {n: (value, spent) for n, (_, value, spent) in ours.items()} == {
            n: (value, spent) for n, (_, value, spent) in theirs.items()
        }


def test_training_returns_are_served_as_curves(folder, tmp_path):
    from hpo.store.query import query

    file = bench_file(folder)
    study = file.budgeted(BenchRunner(file).study("toy", "all"), 12)
    factory = factory_of(folder, study)
    run(study, tmp_path / "kept", factory, settings=ONE_COMMIT)
    _, rows = query(
        tmp_path / "kept",
        "SELECT stream, replicate, c.env_steps, episode_return_100, t.param.learning_rate "
        "FROM curves c JOIN trials t USING (trial)",
    )
    assert len(rows) > 40
    for stream, replicate, at, shown, rate in rows:
        row = factory.table.find({"learning_rate": rate, "lr_schedule": "constant"})[0]
        column = factory.seeds.column(Stream(stream), replicate)
        recorded = factory.table.values[row, column, POINTS.index(at)] - 1.0
        assert shown == pytest.approx(recorded, rel=1e-12)  # the engine's mean of 100 episodes


@given(
    own=some.integers(1, 7),
    chooses=some.integers(0, 20),
    tests=some.integers(1, 6),
    order=some.permutations(range(10)),
)
def test_search_selection_and_test_seeds_use_different_columns(own, chooses, tests, order):
    confirm = f"confirm: {{choose: {chooses}}}" if chooses else "confirm: null"
    study = loads(
        f"{{env: CartPole-v1, env_steps: 100k, seeds: {{per_config: {own}}}, {confirm}}}"
    )
    if own + bool(chooses) + tests > 10:
        with pytest.raises(ConfigError, match=r"lower seeds\.per_config"):
            plan_seeds(study, order, tests)
        return
    plan = plan_seeds(study, order, tests)
    kinds = [set(plan.search), set(plan.choose), set(plan.test)]
    assert sum(map(len, kinds)) == len(set.union(*kinds)) <= 10
    assert (len(plan.search), len(plan.test)) == (own, tests)
    assert len(plan.choose) == min(chooses, 10 - own - tests)
    served = {plan.column(Stream.CHOOSE, seed) for seed in range(chooses)} if chooses else set()
    assert served == set(plan.choose)


def test_the_same_search_has_the_same_test_seeds_in_every_method(folder):
    runner = BenchRunner(bench_file(folder))
    found = [runner.run("toy", method, 40, 2) for method in ("all", "mine")]
    assert found[0].trial != 0 and found[0].oracle_value == found[1].oracle_value


@settings(max_examples=40, deadline=None)
@given(seed=some.integers(0, 10**6), tried=some.sets(some.integers(0, 29), max_size=29))
def test_nearest_row_equals_brute_force(seed, tried):
    depends = (Condition("lr_schedule", ("linear",)),)
    kinds = {
        "learning_rate": ("log_uniform", {"min": 1e-4, "max": 1e-2}, 1e-3, ()),
        "lr_schedule": ("categorical", {"values": ["constant", "linear"]}, "constant", ()),
        "update_epochs": ("int_uniform", {"min": 1, "max": 8}, 4, ()),
        "gamma": ("uniform", {"min": 0.9, "max": 1.0}, 0.95, depends),
    }
    space = Space(
        tuple(
            Parameter(name, make_distribution({"distribution": kind, **given}), default, when)
            for name, (kind, given, default, when) in kinds.items()
        )
    )
    rng = np.random.default_rng(seed)
    params = [space.default(), *(space.draw(rng) for _ in range(29))]
    from hpo.search.bench import BenchTable

    table = BenchTable("drawn", "", space, params, np.array([1]), np.zeros((30, 1, 1)))
    asked = space.draw(rng)

    def apart(other):
        total = 0.0
        for name, (kind, ends, _, _) in kinds.items():
            if (name in asked) != (name in other):
                total += 1.0
            elif name in asked:
                a, b = asked[name], other[name]
                if kind == "categorical":
                    total += float(a != b)
                elif kind == "log_uniform":
                    total += (math.log(a / b) / math.log(100)) ** 2
                else:
                    width = ends["max"] - ends["min"] + (kind == "int_uniform")
                    total += ((a - b) / width) ** 2
        return math.sqrt(total / 4)

    keys = {space.canonical(params[row]) for row in tried}
    left = [row for row in range(30) if space.canonical(params[row]) not in keys]
    row, away = table.find(asked, keys)
    if left:
        assert space.canonical(params[row]) not in keys
        assert away == pytest.approx(min(apart(params[row]) for row in left), abs=1e-9)
        assert apart(params[row]) == pytest.approx(away, abs=1e-9)
    else:
        assert away == math.inf


def test_each_table_row_is_proposed_once(folder):
    file = bench_file(folder)
    study = file.budgeted(BenchRunner(file).study("toy", "mine"), 400)
    engine = search_table(study, factory_of(folder, study))
    rates = [trial.params["learning_rate"] for trial in engine.search_state.trials.values()]
    assert sorted(rates) == sorted(RATES) and engine.search_state.state.exhausted
    noted = replace(study, search=SearchSpec("cmaes"), budget=Budget(9))
    for asked, move in ((study, False), (noted, True)):
        engine = search_table(asked, factory_of(folder, study), move)
        assert not {t.params["learning_rate"] for t in engine.search_state.trials.values()} <= set(
            RATES
        )


def test_diverged_seed_ends_at_divergence(tmp_path):
    values = values_of()
    values[3, :, 2:] = np.nan  # the best one
    write_table(tmp_path / "tables" / "toy", values)
    found = BenchRunner(bench_file(tmp_path, methods=METHODS.split("  mine")[0])).run(
        "toy", "all", 40, 1
    )
    assert (found.value, found.beats) == (50.0, 0.9)
    assert found.search_runs == 5 * 2 + 2 * 0.75


def test_the_command_prints_a_row_per_method_and_writes_both_files(folder, capsys):
    bench_file(folder)
    to = folder / "out.json"
    assert main(["bench", str(folder / "bench.yaml"), "--to", str(to), "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 15 + 2 * 5  # two tables of three methods
    named = [line.split()[0] for line in lines if line[:5] in ("all  ", "quick", "mine ")]
    assert named == ["all", "quick", "mine"] * 2  # scores, then shares and ratios
    data = json.loads(to.read_text())
    rows = pq.read_table(folder / "out.parquet").to_pylist()
    assert len(data["rows"]) == 3 * 2 and len(rows) == 3 * 2 * 3
    best = [row["beats"]["value"] for row in data["rows"] if row["budget"] == 40]
    assert best[0] == best[2] == 0.9  # the third party's sampler is in the table
    assert main(["bench", str(folder / "bench.yaml"), "--to", "out.txt"]) == 2
    assert "ends in .json" in capsys.readouterr().err


def test_processes_give_the_same_results(folder):
    file = bench_file(folder)
    one, two = run_bench(file), run_bench(file, jobs=2)
    assert [replace(a, seconds=0.0) for a in one.outcomes] == [
        replace(b, seconds=0.0) for b in two.outcomes
    ]


def test_a_method_that_costs_half_has_half_the_ratio(folder):
    file = bench_file(folder, "tables: tables, budgets: [4, 8, 16], searches: 4")
    results = run_bench(file)
    value = {("all", 4): 1.0, ("all", 8): 2.0, ("all", 16): 3.0, ("quick", 4): 2.0,
             ("quick", 8): 3.0, ("quick", 16): 4.0}  # fmt: skip
    made = tuple(
        replace(
            one,
            value=value.get((one.method, one.budget), 0.0),
            confirm_runs=0.0,
            search_runs=float(one.budget),
        )
        for one in results.outcomes
    )
    found = compare(replace(results, outcomes=made))
    assert (found.baseline, found.baseline_budget, found.baseline_runs) == ("all", 16, 16.0)
    ratios = {one.method: one.ratio for one in found.ratios}
    assert ratios["all"].value == pytest.approx(1.0)
    assert astuple(ratios["quick"]) == pytest.approx((0.5, 0.5, 0.5))
    never = found.ratios[2]
    assert (never.at_least, never.each, never.ratio.high) == (True, {"toy": math.inf}, math.inf)
    assert never.ratio.value == 1.0  # at least its largest budget


def test_decreasing_cost_curve_is_made_monotone():
    at, smallest = needed(np.array([2.0, 1.0, 4.0]), np.array([1.0, 2.0, 4.0]), np.array(1.5))
    assert (float(at), bool(smallest)) == (1.0, True)
    at, smallest = needed(np.array([2.0, 1.0, 4.0]), np.array([1.0, 2.0, 4.0]), np.array(2.75))
    assert float(at) == pytest.approx(2.0 * math.sqrt(2.0)) and not smallest
    assert needed(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array(3.0))[0] == math.inf


@pytest.mark.parametrize(
    ("bench", "methods", "told"),
    [
        ("tables: tables, budget: [4]", METHODS, "yaml:1: .*'budgets'"),
        ("tables: tables, budgets: [4, 4]", METHODS, "distinct whole numbers of at least 1"),
        ("tables: tables, baseline: al", METHODS, "bench.baseline: unknown method 'al'; did you"),
        ("tables: tables, baseline_budget: 5", METHODS, "baseline_budget is not one of"),
        ("tables: tables", "  a:\n    env: CartPole-v1\n", "4: method a: unknown key 'env'"),
        ("tables: tables", "  a: 3\n", "method a is 3; allowed: a mapping"),
    ],
)
def test_mistakes_in_bench_file_report_their_lines(folder, bench, methods, told):
    with pytest.raises(StudyError, match=told):
        bench_file(folder, bench, methods)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ("search: {method: tpee}", "4: search: unknown method 'tpee'; did you mean 'tpe'"),
        ("early_terminate: {type: pbt, every: 1000}", "copied trials have no recorded runs"),
        ("seeds: {per_config: 7}", "but only 6 of 8 recorded seeds are not test seeds"),
    ],
)
def test_a_method_that_cannot_run_is_refused_before_any_search(folder, own, told):
    file = bench_file(folder, methods=f"  a:\n    {own}\n")
    with pytest.raises(HpoError, match=told):
        run_bench(file)


def test_missing_table_is_refused(folder):
    with pytest.raises(StoreError, match=r"has no trials.parquet; create it with scripts/atlas"):
        read_table(folder)
    with pytest.raises(ConfigError, match=r"unknown table of .* 'tox'; did you mean 'toy'"):
        bench_file(folder, "tables: tables, environments: [tox]").environments()


def test_bench_documentation_example_runs(folder):
    bench_file(folder)
    names = {"path": folder / "bench.yaml"}
    doc_blocks.block("docs/bench.md", "run_bench(read_bench(").run(names)
    assert names["found"].ratios


def test_score_is_zero_at_median_and_one_at_best_configuration(folder):
    """Against plain sums over the searches, with the goal either way."""
    file = bench_file(folder, methods=METHODS.partition("  quick")[0])
    table = read_table(folder / "tables" / "toy")
    ends = table.values[:, :, -1]
    for goal, sign in (("maximize", 1.0), ("minimize", -1.0)):
        results = run_bench(file)
        found = compare(replace(results, goals={"toy": goal}))
        for budget in (4, 40):
            chosen = median = best = 0.0
            for one in results.outcomes:
                if one.budget != budget:
                    continue
                order = generator(1, "bench", one.search).permutation(8)
                tests, others = order[:2], order[2:]
                means = ends[:, tests].mean(axis=1)
                chosen += one.judged
                assert one.judged in means
                assert one.best == means[ends[:, others].mean(axis=1).argmax()]
                median += sum(sorted(means)[2:4]) / 2
                best += one.best
            row = next(row for row in found.rows if row.budget == budget)
            if sign * best > sign * median:
                assert row.score == pytest.approx((chosen - median) / (best - median))
            else:
                assert row.score is None
        if sign > 0:
            assert [one.tables for one in found.scores] == [1, 1]
            assert found.ceilings == ()
        else:
            assert (found.scores, found.ceilings) == ((), ("toy",))


def test_mean_score_over_tables_uses_student_t_interval():
    values = [0.2, 0.9, 1.1, 0.4]
    found = over_tables(values)
    reach = 3.182446 * np.std(values, ddof=1) / 2
    assert found.value == pytest.approx(0.65)
    assert (found.low, found.high) == pytest.approx((0.65 - reach, 0.65 + reach), abs=1e-5)
    assert math.isnan(over_tables([0.5]).low)


def test_a_table_where_a_fifth_tie_at_the_top_is_a_ceiling():
    def table(finals, goal="maximize"):
        values = np.array(finals, float)[:, :, None]
        return BenchTable("made", "", Space(()), [{}], np.array([1]), values, goal=goal)

    tied = [[5, 5], [5, 5], [1, 2], [0, 0], [3, 1], [2, 2], [4, 4], [4, 3], [1, 1], [0, 1]]
    assert table(tied).is_ceiling
    assert not table(tied[1:]).is_ceiling
    assert table(-np.array(tied), "minimize").is_ceiling
    assert not table(tied, "minimize").is_ceiling
