"""One configuration on several environments: each shows what it shows alone."""

from __future__ import annotations

import dataclasses
import json
import math

import pyarrow.parquet as pq
import pytest

import hpo
from helpers import search_samples as samples
from hpo.environments.registry import Reference
from hpo.errors import ConfigError
from hpo.search.analysis.verdict import front_values
from hpo.search.lanes.multi_environment import SeveralFactory
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store import tables_equal
from hpo.store.aggregate_environments import together
from hpo.store.journal import Journal
from hpo.store.leaderboard import leaderboard_of
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import (
    Constraint,
    EarlyTerminate,
    Evaluation,
    Metric,
    Racing,
    SearchSpec,
    Seeds,
)
from hpo.studies.study_environments import alone, labels

SCALES = (Reference(0.0, 80.0), Reference(20.0, 60.0), Reference(100.0, 50.0))
IDS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")
PARTS = [
    samples.AnalyticFactory(seed=seed, lanes=12, block=4, diverges_above=limit)
    for seed, limit in ((0, 0.3), (1, 0.2), (2, 0.5))
]


def several(space=samples.REAL, method="random", **changes):
    first, *more = (EnvSpec(id_, {}, scale) for id_, scale in zip(IDS, SCALES, strict=True))
    asked = samples.study(space, method, **changes)
    return dataclasses.replace(asked, env=first, more_envs=tuple(more))


def factory(study, parts=PARTS):
    return SeveralFactory(study, parts)


def rows(folder, table):
    return pq.read_table(folder / f"{table}.parquet").to_pylist()


def test_each_environment_equals_a_single_environment_study(tmp_path):
    asked = several(early_terminate=None, budget=Budget(trials=10))
    run(asked, tmp_path / "all", factory(asked), (), samples.quick())
    for index, (label, scale) in enumerate(zip(labels(asked), SCALES, strict=True)):
        folder = tmp_path / label
        run(alone(asked, index), folder, PARTS[index], (), samples.quick())
        ended = {row["trial"] for row in rows(tmp_path / "all", "trials") if row["value"]}
        for table in ("evaluations", "curves"):
            mine = [r for r in rows(tmp_path / "all", table) if r["environment"] == label]
            theirs = rows(folder, table)
            keys = [key for key in theirs[0] if not key.endswith(("_seconds", "_per_second"))]
            wanted = {tuple(row[key] for key in keys) for row in theirs if row["trial"] in ended}
            assert len(wanted) > 20
            found = {tuple(row[key] for key in keys) for row in mine if row["trial"] in ended}
            assert found == wanted
        values = {row["trial"]: row["value"] for row in rows(folder, "trials")}
        for row in rows(tmp_path / "all", "trials"):
            if row["value"] is not None:
                score = (values[row["trial"]] - scale.random) / (scale.reference - scale.random)
                assert row[f"score.{label}"] == pytest.approx(score)
                assert row[f"raw.{label}"] == pytest.approx(values[row["trial"]])


@pytest.mark.parametrize("over", ["mean", "iqm", "worst"])
def test_seed_value_is_aggregate_of_environment_scores(tmp_path, over):
    asked = several(early_terminate=None, budget=Budget(trials=3))
    asked = dataclasses.replace(asked, over_environments=over)
    run(asked, tmp_path, factory(asked), (), samples.quick())
    seen: dict[tuple[int, int], list[float]] = {}
    for label, scale in zip(labels(asked), SCALES, strict=True):
        returns: dict[tuple[int, int], list[float]] = {}
        for row in rows(tmp_path, "evaluations"):
            if row["environment"] == label and row["env_steps"] == 16_000:
                key = (row["trial"], row["replicate"])
                returns.setdefault(key, []).append(row["episode_return"])
        for key, found in returns.items():
            mean = sum(found) / len(found)
            score = (mean - scale.random) / (scale.reference - scale.random)
            seen.setdefault(key, []).append(score)
    valued = [row for row in rows(tmp_path, "trials") if row["value"] is not None]
    assert valued
    for row in valued:
        wanted = [together(seen[row["trial"], seed], over) for seed in range(2)]
        assert row["seed_values"] == pytest.approx(wanted)
        assert row["value"] == pytest.approx(sum(wanted) / 2)


def test_rungs_compare_value_over_all_environments(tmp_path):
    asked = several(budget=Budget(trials=24))
    results = run(asked, tmp_path, factory(asked), (), samples.quick())
    with Journal(tmp_path) as journal:
        decisions = journal.decisions()
    stopped = {d.trial for d in decisions if d.action == "stop"}
    assert len(stopped) > 5
    for decision in decisions[:20]:
        at_rung = [
            [
                row
                for row in rows(tmp_path, "evaluations")
                if (row["trial"], row["env_steps"]) == (decision.trial, decision.env_steps)
                and row["environment"] == label
            ]
            for label in labels(asked)
        ]
        scores = [
            (sum(r["episode_return"] for r in part) / len(part) - scale.random)
            / (scale.reference - scale.random)
            for part, scale in zip(at_rung, SCALES, strict=True)
        ]
        assert decision.value == pytest.approx(sum(scores) / 3)
    curves = rows(tmp_path, "curves")
    for trial in stopped:  # nobody runs on beyond a rung on one environment alone
        steps = {row["env_steps"] for row in curves if row["trial"] == trial}
        per = [
            max(
                r["env_steps"] for r in curves if r["trial"] == trial and r["environment"] == label
            )
            for label in labels(asked)
        ]
        assert len(set(per)) == 1
        assert max(steps) in (2_000, 8_000)
    assert results.usage.occupancy > 0.9


CONFIRM = samples.Confirm(3, 3, 4)
STUDIES = {
    "asha": several(
        method="tpe",
        confirm=CONFIRM,
        early_terminate=EarlyTerminate("asha", 2_000, 3.0, 0.2),
        budget=Budget(trials=14),
    ),
    "paused": several(
        method="tpe",
        early_terminate=EarlyTerminate("asha", 2_000, 2.0, pause=8),
        budget=Budget(trials=14),
    ),
    "buckets": several(samples.WITH_BUCKETS, confirm=CONFIRM, budget=Budget(trials=16)),
    "racing": several(
        early_terminate=None, seeds=Seeds(4, racing=Racing(2, 0.95)), budget=Budget(trials=12)
    ),
    "plateau": several(
        budget=Budget(trials=8), early_terminate=EarlyTerminate("plateau", 2_000, patience=2)
    ),
    "pbt": several(
        early_terminate=EarlyTerminate("pbt", every=4_000),
        budget=Budget(trials=6),
        confirm=CONFIRM,
    ),
    "pb2": several(early_terminate=EarlyTerminate("pb2", every=4_000), budget=Budget(trials=6)),
    "budget": several(budget=Budget(trials=None, env_steps=2_000_000), confirm=CONFIRM),
    "costs": several(
        method="nsga2",
        budget=Budget(trials=10),
        objectives=(Metric(), Metric("env_steps", "minimize")),
        confirm=CONFIRM,
        constraints=(Constraint("env_steps", max=1e6),),
    ),
    "joined rows": several(budget=Budget(trials=12), log_every=4_000, seeds=Seeds(3, tolerate=1)),
}


class Killed(BaseException):
    pass


class Kill(Observer):
    """Raises behind the n-th boundary, between two commits."""

    def __init__(self, after: int):
        self.left = after

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_is_killed_ends_with_equal_tables(tmp_path, name):
    asked = STUDIES[name]
    whole = run(asked, tmp_path / "whole", factory(asked), (), samples.quick())
    assert whole.state == "finished"
    for after, seconds in ((7, 0.01), (9, 0.0)):
        settings = samples.quick(commit_seconds=seconds)
        with pytest.raises(Killed):
            run(asked, tmp_path / "killed", factory(asked), [Kill(after)], settings)
    run(asked, tmp_path / "killed", factory(asked), (), samples.quick())
    assert tables_equal(tmp_path / "whole", tmp_path / "killed") == []
    with Journal(tmp_path / "whole") as one, Journal(tmp_path / "killed") as other:
        assert one.decisions() == other.decisions()


def test_front_values_use_scores_of_selection_seeds(tmp_path):
    asked = STUDIES["costs"]
    run(asked, tmp_path, factory(asked), (), samples.quick())
    with Journal(tmp_path) as journal:
        rows = journal.trials()
        values = front_values(journal, rows)
    confirmed = [row for row in rows if row.choose_objectives]
    assert confirmed and sorted(values) == [row.trial for row in confirmed]
    for row in confirmed:
        seeds = list(values[row.trial].values())
        assert tuple(score for score, _ in seeds) == row.choose_values
        assert {cost for _, cost in seeds} == {row.choose_objectives[1]}


def test_scores_of_stopped_trial_are_from_its_rung(tmp_path):
    """Its seeds wait for lanes by turns, so that some are past the rung when it is judged."""
    asked = several(evaluation=Evaluation(every=1_000), seeds=Seeds(3), budget=Budget(trials=20))
    parts = [dataclasses.replace(part, lanes=4) for part in PARTS]
    run(asked, tmp_path, factory(asked, parts), (), samples.quick())
    with Journal(tmp_path) as journal:
        entries = leaderboard_of(journal.meta, journal.trials())
    stopped = [one for one in entries if one.value is None and one.scores and one.stop_rule]
    assert len(stopped) > 5
    for one in stopped:
        assert sum(one.scores) / 3 == pytest.approx(one.rung_value)


class WithoutSkill(samples.AnalyticFactory):
    """Does not measure `eval/skill`."""

    def make(self, resolved, lanes):
        population = super().make(resolved, lanes)
        evaluate = population.evaluate
        population.evaluate = lambda lanes: [
            dataclasses.replace(one, metrics={}) for one in evaluate(lanes)
        ]
        return population


def test_environment_without_metric_is_reported(tmp_path):
    asked = several(metric=Metric("eval/skill"), budget=Budget(trials=4))
    parts = [*PARTS[:2], WithoutSkill(seed=3, lanes=12, block=4)]
    run(asked, tmp_path, factory(asked, parts), (), samples.quick())
    with Journal(tmp_path) as journal:
        errors = {row.error for row in journal.trials() if row.error}
        errors = {error for error in errors if "not finite" not in error}
    (error,) = errors
    assert "MountainCar-v0 does not measure eval/skill; it measures eval/" in error


def test_env_steps_count_on_every_environment(tmp_path):
    asked = STUDIES["budget"]
    results = run(asked, tmp_path, factory(asked), (), samples.quick())
    assert results.usage.env_steps <= 2_000_000
    won = results.best.trial == 0  # a default that wins leaves its share of the report
    assert results.usage.env_steps + won * 4 * 3 * 16_000 > 1_900_000
    spent = sum(row["env_steps"] for row in rows(tmp_path, "trials"))
    assert spent == results.usage.search_env_steps
    finished = [row for row in rows(tmp_path, "trials") if row["search_value"] is not None]
    assert finished
    assert all(row["env_steps"] == 3 * 2 * 16_000 for row in finished)


def test_a_lane_diverges_with_any_of_its_environments(tmp_path):
    asked = several(early_terminate=None, budget=Budget(trials=30))
    run(asked, tmp_path, factory(asked), (), samples.quick())
    with Journal(tmp_path) as journal:
        trials = journal.trials()
    diverged = [row.state == "diverged" for row in trials]
    # the smallest of the three limits
    assert diverged == [row.params["learning_rate"] > 0.2 for row in trials]
    assert {*diverged} == {True, False}


def test_policies_are_saved_per_environment(tmp_path):
    asked = several(budget=Budget(trials=6))
    results = run(asked, tmp_path, factory(asked), (), samples.quick())
    folder = tmp_path / "policies" / f"trial_{results.best.trial}"
    assert sorted(path.name for path in folder.iterdir()) == sorted(labels(asked))
    about = json.loads((folder / "Acrobot-v1" / "policy.json").read_text())["about"]
    assert about["environment"] == "Acrobot-v1"
    assert about["trial"] == results.best.trial


def test_environment_specific_parameter_is_inactive_elsewhere(tmp_path):
    asked = several()
    force = dataclasses.replace(asked.space.parameters[0], name="env.force")
    space = dataclasses.replace(asked.space, parameters=(*asked.space.parameters, force))
    asked = dataclasses.replace(asked, space=space)
    resolved = factory(asked).resolve(asked.default())
    assert ["env.force" in one.config for one in resolved.payload] == [False, False, True]
    assert "env.force" not in alone(asked, 0).space.names
    assert "env.force" in alone(asked, 2).space.names


def test_different_chunk_lengths_are_refused():
    asked = several()
    odd = dataclasses.replace(PARTS[1], quanta={"64x64": 500})
    asked = dataclasses.replace(asked, env=dataclasses.replace(asked.env, place="s.yaml:3"))
    told = r"s\.yaml:3: env steps per chunk differ \(CartPole-v1 1000, Acrobot-v1 500"
    with pytest.raises(ConfigError, match=told):
        factory(asked, [PARTS[0], odd, PARTS[2]]).resolve(asked.default())


def test_different_warmups_are_refused():
    asked = several()
    asked = dataclasses.replace(asked, env=dataclasses.replace(asked.env, place="s.yaml:3"))
    late = dataclasses.replace(PARTS[1], warmup_chunks=2)
    made = factory(asked, [PARTS[0], late, PARTS[2]])
    with pytest.raises(ConfigError, match=r"s\.yaml:3: .* CartPole-v1 0, Acrobot-v1 2"):
        made.check(made.resolve(asked.default()))


def test_lane_count_is_minimum_over_environments():
    asked = several()
    wide = dataclasses.replace(PARTS[2], lanes=16)
    made = factory(asked, [PARTS[0], PARTS[1], wide])
    assert made.make(made.resolve(asked.default()), None).lanes == 12


def test_a_sampler_learns_from_the_value_over_environments(tmp_path):
    asked = several(method="tpe", budget=Budget(trials=40), search=SearchSpec("tpe"))
    results = run(asked, tmp_path, factory(asked), (), samples.quick())
    assert results.best.value > 0.0
    assert len(results.best.scores) == 3


SCHEDULED = """\
name: short
env: [{id: CartPole-v1}, {id: Acrobot-v1, scores: {random: -500, reference: -80}}]
env_steps: 160
log_every: 1
budget: {trials: 1}
population: {lanes: 2}
fixed: {num_envs: 4, rollout_length: 8, hidden_sizes: [4], num_minibatches: 1, update_epochs: 1,
        gae_lambda_initial: 0.3, gae_lambda_final: 0.9, gae_lambda_schedule_multiplier: 0.2}
evaluation: {episodes: 1}
"""


@pytest.mark.usefixtures("quickly_compiled")
def test_short_schedule_runs_to_its_end_on_each_environment(tmp_path):
    """Lambda of each of 5 updates: 0.3 + 0.6 (1 - sech(3 p / 0.2)), p = 0, 0.2, ... 0.8."""
    (tmp_path / "short.yaml").write_text(SCHEDULED)
    folder = hpo.run(tmp_path / "short.yaml", tmp_path).folder
    curves = rows(folder, "curves")
    for label in ("CartPole-v1", "Acrobot-v1"):
        made = [row["gae_lambda"] for row in curves if row["environment"] == label]
        wanted = [0.3 + 0.6 * (1 - 1 / math.cosh(3 * update / 5 / 0.2)) for update in range(5)]
        assert made == pytest.approx(wanted, abs=1e-6)
        assert wanted[2] > 0.3 + 0.6 * 0.91  # where it used to stop
