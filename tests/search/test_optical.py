"""Optical networks as lanes: warm-up at refill, bitwise independence, metrics in the tables."""

from functools import partial

import numpy as np
import pytest

from helpers import search_samples as samples
from hpo.errors import ConfigError
from hpo.knobs import complete
from hpo.search.lanes.contract import Refill
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store import Stream
from hpo.store.baselines import baselines_of
from hpo.store.journal import Journal
from hpo.store.query import query
from hpo.studies.load import loads

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]


STUDY = """\
name: small
env: {id: rmsa, topology: ring4, k: 2, slots: 12, warmup_requests: 20, mean_holding_time: 5}
env_steps: 256
fixed: {num_envs: 4, rollout_length: 8, num_minibatches: 2, hidden_sizes: [8]}
space:
  env.load: {min: 2, max: 60, distribution: uniform}
  learning_rate: {min: 1e-4, max: 1e-2}
  env.aggregate_slots: {values: [12, 4]}
metric: {name: eval/service_blocking_probability, goal: minimize}
evaluation: {steps: 50, episodes: 3}
seeds: {per_config: 2}
search: {method: random}
baselines: []
population: {lanes: 4}
budget: {trials: 4}
"""
CHUNKS = 4


@pytest.fixture(scope="module")
def factory():
    return LocalFactory(loads(STUDY))


@pytest.fixture(scope="module")
def config(factory):
    return partial(resolved_by, factory)


def resolved_by(factory, load, blocks=12, **knobs):
    fixed = {"num_envs": 4, "rollout_length": 8, "num_minibatches": 2, "hidden_sizes": (8,)}
    given = {"env.load": load, "env.aggregate_slots": blocks, **fixed, **knobs}
    return factory.resolve(complete(given))


def curve(population, refills, lane):
    """Metrics [CHUNKS] of one lane."""
    rows = []
    lanes = [refill.lane for refill in refills]
    for chunk in range(CHUNKS + population.warmup_chunks):
        seen = population.advance(refills if chunk == 0 else [], lanes).metrics
        rows.append({name: values[lane] for name, values in seen.items()})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.fixture(scope="module")
def alone(factory, config):
    population = factory.make(config(10.0), None)
    return curve(population, [Refill(0, config(10.0), Stream.SEARCH, 1)], 0), population


def test_lanes_with_other_loads_do_not_change_results(config, alone):
    """Nor does what the lanes were before."""
    expected, population = alone
    others = [Refill(i, config(60.0, learning_rate=1e-2), Stream.SEARCH, i) for i in (0, 1, 3)]
    mine = Refill(2, config(10.0), Stream.SEARCH, 1)
    found = curve(population, [*others, mine], 2)
    assert set(found) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


def test_load_is_traced(config, alone):
    _, population = alone
    rows = [Refill(i, config(load), Stream.SEARCH, 0) for i, load in enumerate((2.0, 60.0))]
    low, high = (
        curve(population, rows, lane)["env/service_blocking_probability"] for lane in (0, 1)
    )
    assert low[-1] < high[-1]
    assert population.compiles == 1


def test_warmup_steps_networks_without_training(alone):
    found, population = alone
    warm = population.warmup_chunks
    assert warm * population.steps_per_chunk >= 20 * 4  # requests x environments
    norms = found["param_norm"]
    assert len(set(norms[:warm])) == 1
    assert len(set(norms[warm - 1 :])) == CHUNKS + 1
    assert np.all(found["grad_norm"][:warm] == 0.0)
    used = found["env/utilisation"]
    assert 0.0 < used[0] < used[-1]  # from the empty network to a full one


def test_moved_lane_continues_bitwise(tmp_path, config, alone):
    """What a paused trial goes through; its lane is another's in between."""
    expected, population = alone
    mine, other = (Refill(0, config(load), Stream.SEARCH, 1) for load in (10.0, 60.0))
    before = CHUNKS // 2 + population.warmup_chunks
    for chunk in range(before):
        population.advance([mine] if chunk == 0 else [], [0])
    (state,) = population.take([0])
    population.save_state(state, tmp_path / "state")
    population.advance([other], [0])
    population.put({3: (population.restore_state(tmp_path / "state"), config(10.0))})
    for chunk in range(before, before + CHUNKS - CHUNKS // 2):
        seen = population.advance([], [0, 3]).metrics
        for name, values in expected.items():
            np.testing.assert_array_equal(seen[name][3], values[chunk], err_msg=name)


def test_searched_static_keys_have_separate_programs(config):
    small, large = (config(10.0, blocks).payload.plan for blocks in (12, 4))
    assert dict(small.env.keys)["aggregate_slots"] == 12
    assert "load" not in dict(small.env.keys)
    assert config(10.0).bucket == config(20.0).bucket
    assert config(10.0).bucket != config(10.0, 4).bucket
    assert large.env == large.eval_env


def test_evaluation_env_with_different_observations_is_refused():
    text = STUDY.replace("evaluation:", "eval_env: {topology: ring7}\nevaluation:")
    factory = LocalFactory(loads(text))
    with pytest.raises(ConfigError, match=r"observations of eval_env .* differ"):
        factory.make(resolved_by(factory, 10.0), None)


def test_optical_study_tables_contain_metrics_and_warmup(tmp_path):
    study = loads(STUDY)
    results = run(study, tmp_path / "study", LocalFactory(study), (), samples.quick())
    assert results.state == "finished"
    _, rows = query(
        tmp_path / "study",
        "SELECT env_steps, warmup_env_steps, value FROM trials ORDER BY trial",
    )
    assert len(rows) == 4
    for trained, warmup, value in rows:
        assert trained == 2 * 256
        assert warmup == 2 * 96  # 20 requests in 4 networks, rounded up to whole chunks
        assert 0.0 <= value <= 1.0
    _, [found] = query(
        tmp_path / "study",
        "SELECT count(*), min(episode_length), max(requests), min(utilisation), "
        "max(service_blocking_probability) FROM evaluations",
    )
    assert found[:3] == (4 * 2 * 3, 50, 50.0)
    assert found[3] > 0.0
    assert 0.0 < found[4] <= 1.0
    assert results.best is not None
    assert results.best.value == min(row[2] for row in rows)


ONE_CHOICE = """\
name: one-choice
env: {id: rmsa, topology: ring4, k: 1, slots: 12, aggregate_slots: 12, warmup_requests: 20,
      load: 30}
env_steps: 64
fixed: {num_envs: 4, rollout_length: 8, num_minibatches: 2, hidden_sizes: [8]}
space: {learning_rate: {min: 1e-4, max: 1e-2}}
metric: {name: eval/service_blocking_probability, goal: minimize}
evaluation: {steps: 50, episodes: 3}
baselines: [ksp_lf, ksp_ff, ksp_ff@2:distance]
seeds: {per_config: 2}
search: {method: random}
confirm: {top_k: 1, choose: 1, report: 5}
population: {lanes: 4}
budget: {trials: 1}
"""


class Listener(Observer):
    def __init__(self):
        self.baselines = []

    def on_baseline(self, baseline, value):
        self.baselines.append((baseline, value))


def test_baselines_serve_the_same_requests_as_policies(tmp_path):
    """One path and one block leave a policy no choice: it is ksp_ff, request for request."""
    study, folder, heard = loads(ONE_CHOICE), tmp_path / "study", Listener()
    results = run(study, folder, LocalFactory(study), (heard,), samples.quick())
    [trial] = results.leaderboard
    assert trial.value_from == "report" and 0.0 < trial.value < 1.0
    same = {entry.baseline: entry for entry in results.baselines}["ksp_ff"]
    assert same.values == trial.values and same.stream == "report" and len(same.values) == 5
    assert same.difference == 0.0
    assert same.difference_around.low is None, "seeds that all agree say nothing of others"
    assert [name for name, _ in heard.baselines] == ["ksp_lf", "ksp_ff", "ksp_ff@2:distance"]
    wider = {entry.baseline: entry for entry in results.baselines}["ksp_ff@2:distance"]
    assert wider.difference == pytest.approx(trial.value - np.mean(wider.values))
    assert wider.difference > 0.0, "a second path serves requests that one refuses"
    with Journal(folder) as journal:
        first = journal.trials()[0]
        kept = {row.baseline: row for row in baselines_of(journal)}
    assert kept["ksp_ff"].values["search"] == first.seed_values
    assert kept["ksp_ff"].values["choose"] == first.choose_values
    assert set(kept) == {"ksp_ff", "ksp_lf", "ksp_ff@2:distance"}
    columns, rows = query(
        folder,
        "SELECT b.replicate, b.value, avg(e.service_blocking_probability), b.utilisation, "
        "avg(e.utilisation) FROM baselines b JOIN evaluations e USING (stream, replicate) "
        "WHERE b.baseline = 'ksp_ff' GROUP BY ALL",
    )
    assert len(columns) == 5 and len(rows) == 2 + 1 + 5
    for _, value, blocked, used, seen in rows:
        assert value == pytest.approx(blocked, rel=1e-6)
        assert used == pytest.approx(seen, rel=1e-6)
    again = run(study, folder, LocalFactory(study), (heard,), samples.quick())
    assert len(heard.baselines) == 3 and again.baselines == results.baselines


def test_baselines_do_not_depend_on_history_length():
    """A heuristic sees the network itself, so that what it blocks does not depend on it."""
    measured = []
    for history in (1, 3):
        study = loads(STUDY.replace("fixed: {", f"fixed: {{history: {history}, "))
        seeds = [(Stream.SEARCH, 0), (Stream.CHOOSE, 1)]
        factory = LocalFactory(study)
        seen = resolved_by(factory, 20.0, history=history)
        measured.append(factory.baseline("ksp_ff", seen, seeds))
    for plain, stacked in zip(*measured, strict=True):
        for name, values in plain.metrics.items():
            np.testing.assert_array_equal(values, stacked.metrics[name])
    assert measured[0][0].metrics["service_blocking_probability"].mean() > 0.0
