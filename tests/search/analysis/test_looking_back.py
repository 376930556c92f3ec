import json
import shutil
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from helpers import search_samples as samples
from helpers.episodes import evaluation
from hpo.cli import main
from hpo.errors import ConfigError
from hpo.search.analysis.checkpoint_values import (
    CheckpointValues,
    point_at,
    points_of,
    read_points,
)
from hpo.search.analysis.knob_significance import SignificantKnobs, answer_at, columns_of
from hpo.search.run import run
from hpo.search.state.objective import Objective
from hpo.store.importance import Decided, KnobShare
from hpo.store.journal import Journal
from hpo.store.rows import Commit, TrialRow, TrialState
from hpo.studies.search_spec import EarlyTerminate
from hpo.views.formatting import steps


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two small studies beside each other, over learning curves of a formula."""
    root = tmp_path_factory.mktemp("looking")
    for name, seed in (("one", 0), ("two", 1)):
        asked = samples.study(name=name, seed=seed, confirm=samples.Confirm(2, 5, 6))
        run(asked, root / name, samples.AnalyticFactory(lanes=12, block=4), (), samples.quick())
    return root


def made_up(results, decide, count=60, proposed_by="random"):
    """Points of a study whose values follow from a formula of its configurations."""
    points = read_points(results / "one")
    rng = np.random.default_rng(0)
    rows = {
        n: TrialRow(n, TrialState.FINISHED, proposed_by, 0, "b", points.study.space.sample(rng))
        for n in range(count)
    }
    return CheckpointValues(
        points.study, rows, {100: {n: decide(row.params) for n, row in rows.items()}}
    )


def test_values_at_final_point_equal_trial_values(results):
    points = read_points(results / "one")
    ends = points.values[max(points.values)]
    finished = {n: row.value for n, row in points.trials.items() if row.value is not None}
    assert finished and {n: ends[n] for n in finished} == pytest.approx(finished)


def test_point_values_equal_separately_measured_evaluations(tmp_path, results):
    """Evaluations of other episodes and metrics among them, which are measured apart."""
    shutil.copytree(results / "one", tmp_path / "one")
    with Journal(tmp_path / "one", writable=True) as journal:
        head = journal.head()
        odd = [
            evaluation(0, seed, 7, [0.1 * n + seed for n in range(5 - seed)], 3, own=1.0)
            for seed in (0, 1)
        ]
        journal.commit(Commit(head.number + 1, head.loop_state, None, head.at, evaluations=odd))
        points = points_of(journal)
        slow = defaultdict(list)
        for row in journal.evaluations():
            value = Objective(points.study.metric).measure(row)
            slow[row.stream, row.trial, row.env_steps].append(value)
    assert dict(points.seeds) == dict(slow)
    assert points.seeds["search", 0, 7] == [pytest.approx(0.2), pytest.approx(1.15)]


def test_importance_uses_latest_point_with_enough_random_trials(results):
    points = made_up(results, lambda params: params["learning_rate"])
    late = {n: 1.0 for n in range(20)}
    points = replace(points, values={100: points.values[100], 200: late})
    for share, at in ((20, 200), (9, 100)):  # the others were proposed by a model, and are stopped
        rows = {n: replace(r, proposed_by="tpe") for n, r in points.trials.items() if n >= share}
        assert point_at(replace(points, trials={**points.trials, **rows})) == at
    few = replace(points, values={100: {n: 1.0 for n in range(9)}})
    with pytest.raises(ConfigError, match=r"10 trials evaluated at 100 env steps \(here: 9\)"):
        point_at(few, at=100)


def test_what_was_proposed_before_any_result_counts_as_random(results):
    points = made_up(results, lambda params: params["learning_rate"], proposed_by="tpe")
    rows = {n: replace(row, batch=n // 15) for n, row in points.trials.items()}
    rows[3] = replace(rows[3], proposed_by="enqueue")
    points = replace(points, trials=rows, blind=frozenset({0, 1}))
    assert points.random_share() == [n for n in range(30) if n != 3]


def test_batches_before_first_finished_trial_count_as_random(tmp_path):
    asked = samples.study(method="tpe", budget=samples.Budget(trials=30))
    run(asked, tmp_path / "s", samples.AnalyticFactory(lanes=8, block=4), (), samples.quick())
    points = read_points(tmp_path / "s")
    with Journal(tmp_path / "s") as journal:
        asks, first_end = journal.asks(), next(a.batch for a in journal.asks() if a.told)
    assert 0 < first_end < len(asks) - 1
    assert points.blind == frozenset(range(first_end))
    early = {n for ask in asks[:first_end] for n in ask.trials}
    assert set(points.random_share()) == {
        n
        for n, row in points.trials.items()
        if row.proposed_by == "random" or (n in early and row.proposed_by == "tpe")
    }


def test_pbt_trials_count_with_their_current_hyperparameters(tmp_path):
    """Only up to the first copy is a value that of a trial's own knobs."""
    early = EarlyTerminate("pbt", every=2_000)
    asked = samples.study(early_terminate=early, budget=samples.Budget(trials=16))
    factory = samples.AnalyticFactory(lanes=40, diverges_above=2.0)
    run(asked, tmp_path / "s", factory, (), samples.quick())
    points = read_points(tmp_path / "s")
    assert point_at(points) == 2_000
    copied = {n: way for n, way in points.changes.items() if len(way) > 1}
    assert copied
    for trial, way in copied.items():
        (first, before), (second, between) = way[:2]
        assert points.params(trial, first) == before
        assert points.params(trial, first + 1) == points.params(trial, second) == between
        assert points.params(trial, 16_000) == points.trials[trial].params


def test_importance_uses_latest_point_that_most_trials_reached(results):
    points = made_up(results, lambda params: params["learning_rate"])
    early, late = dict(points.values[100]), {n: 1.0 for n in range(20)}
    points = CheckpointValues(points.study, points.trials, {100: early, 200: late})
    assert point_at(points) == 100
    with pytest.raises(ConfigError, match="known: 100, 200"):
        point_at(points, at=300)


def test_importance_and_compare_commands_print_results(results, capsys):
    out = ["--out", str(results)]
    assert main(["importance", "--study", "one", *out]) == 0
    assert "learning_rate" in capsys.readouterr().out
    assert main(["compare", "one", "two", *out]) == 0
    assert "not paired" in " ".join(capsys.readouterr().out.split())
    assert main(["compare", "1", "one", *out]) == 2
    assert "two studies; not one of each" in capsys.readouterr().err
    rows = read_points(results / "one").trials.values()
    stopped = next(row.trial for row in rows if row.state is TrialState.STOPPED)
    assert main(["compare", "0", str(stopped), "--study", "one", *out]) == 0
    assert "env steps, the last point both reached" in " ".join(capsys.readouterr().out.split())
    assert main(["compare", "0", "999", "--study", "one", *out]) == 2
    assert "no trial 999" in capsys.readouterr().err


def test_points_with_too_few_trials_are_listed(results, capsys):
    out = ["--study", "one", "--out", str(results)]
    points = read_points(results / "one")
    assert main(["importance", "--over-progress", *out]) == 0
    shown = capsys.readouterr().out
    few = [at for at, found in points.values.items() if len(found) < 10]
    last = " ".join(shown.partition("Fewer than ten")[2].split())
    assert last == f"trials have a value at {_listed(few)} env steps."
    every = [at for at in points.values if at not in few]
    header = next(line for line in shown.splitlines() if line.startswith("hyperparameter"))
    assert header.split()[1:] == [steps(at) for at in every][: len(header.split()) - 1]


def _listed(points):
    return ", ".join(map(steps, points))


def test_significant_hyperparameter_is_reported(results):
    points = made_up(results, lambda params: -abs(np.log10(params["learning_rate"]) + 3))
    answer = answer_at(points, point_at(points))
    assert answer.decided.names == ("learning_rate",) and answer.measured
    data = json.loads(json.dumps(answer.as_json()))
    assert set(data["knobs"]) == set(points.study.space.names)
    assert sum(point["trials"] for point in data["effects"]["learning_rate"]) == 60


def test_no_hyperparameter_is_significant_for_noise(results):
    noise = np.random.default_rng(4)
    points = made_up(results, lambda params: float(noise.normal()))
    answer = answer_at(points, point_at(points))
    assert answer.decided.names == ()
    assert answer.sentences[0] == "No hyperparameter was found to matter in 60 trials."


def test_importance_counts_tpe_trials_but_not_cmaes_trials(results):
    points = made_up(results, lambda params: params["learning_rate"])
    for method, trials, measured in (("tpe", 60, True), ("cmaes", 20, True)):
        rows = {n: replace(r, proposed_by=method) for n, r in points.trials.items() if n >= 20}
        mixed = replace(points, trials={**points.trials, **rows})
        answer = answer_at(mixed, 100)
        assert (answer.decided.trials, answer.measured) == (trials, measured)
    alone = {n: replace(row, proposed_by="cmaes") for n, row in points.trials.items()}
    mixed = replace(points, trials=alone)
    answer = answer_at(mixed, point_at(mixed))
    assert (answer.decided.trials, answer.measured) == (60, False)
    assert "the error rate of this test is unknown" in answer.sentences[-1]


def test_columns_are_positions_on_axes(results):
    space = read_points(results / "one").study.space
    params = space.sample(np.random.default_rng(0))
    columns = {column.name: column.places for column in columns_of(space, [params])}
    assert columns == {
        key: [parameter.distribution.share(params[parameter.name])]
        for key, parameter in space.keyed
    }


def test_interval_that_includes_zero_despite_significance_is_explained():
    """The permutation test and the bootstrap are two methods; they may differ at the edge."""
    clear = KnobShare("learning_rate", 24, 0.71, 0.5, 0.86, 0.3, True)
    faint = KnobShare("activation", 24, 0.054, 0.001, 0.17, 0.05, True)
    weak = KnobShare("gamma", 24, 0.01, 0.0, 0.11, 0.04, False)
    said = SignificantKnobs(10, Decided(24, (clear, faint, weak)), True, {}).sentences
    assert said[-1].startswith("activation: a permutation test shows an effect, but its")
    assert "includes 0%" not in " ".join(
        SignificantKnobs(10, Decided(24, (clear, weak)), True, {}).sentences
    )
