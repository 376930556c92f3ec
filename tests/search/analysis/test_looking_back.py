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
    Importance,
    Points,
    importance_at,
    points_of,
    read_points,
)
from hpo.search.analysis.knob_significance import Answer, answer_at, columns_of
from hpo.search.run import run
from hpo.search.state.objective import Objective
from hpo.store.importance import Decided, KnobShare
from hpo.store.journal import Journal
from hpo.store.rows import Commit, TrialRow, TrialState
from hpo.studies.spec import EarlyTerminate
from hpo.views.commands.analyses import _of_method
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
    return Points(points.study, rows, {100: {n: decide(row.params) for n, row in rows.items()}})


def test_values_at_points_are_those_of_the_trials(results):
    points = read_points(results / "one")
    ends = points.values[max(points.values)]
    finished = {n: row.value for n, row in points.trials.items() if row.value is not None}
    assert finished and {n: ends[n] for n in finished} == pytest.approx(finished)


def test_values_are_measured_as_evaluations_alone_are(tmp_path, results):
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


def test_the_knob_that_decides_is_found(results):
    points = made_up(results, lambda params: -abs(np.log10(params["learning_rate"]) + 3))
    found = importance_at(points)
    assert next(iter(found.shares)) == "learning_rate"
    assert found.shares["learning_rate"] > 0.7
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert (found.at, found.trials, found.random_only) == (100, 60, True)


def test_only_the_random_share_counts_unless_asked_or_too_small(results):
    points = made_up(results, lambda params: params["learning_rate"])
    rows = {n: replace(row, proposed_by="tpe") for n, row in points.trials.items() if n >= 20}
    points = replace(points, trials={**points.trials, **rows})
    found = importance_at(points, at=100)
    assert (found.trials, found.random_only, found.random_trials) == (20, True, 20)
    assert not found.caution
    found = importance_at(points, at=100, everybody=True)
    assert (found.trials, found.random_only, found.random_trials) == (60, False, 20)
    few = {n: replace(row, proposed_by="tpe") for n, row in points.trials.items() if n >= 9}
    found = importance_at(replace(points, trials={**points.trials, **few}))
    assert (found.at, found.trials, found.random_only) == (100, 60, False)
    assert found.caution.startswith("only 9 of them")


def test_what_was_proposed_before_any_result_counts_as_random(results):
    points = made_up(results, lambda params: params["learning_rate"], proposed_by="tpe")
    rows = {n: replace(row, batch=n // 15) for n, row in points.trials.items()}
    rows[3] = replace(rows[3], proposed_by="enqueue")
    points = replace(points, trials=rows, blind=frozenset({0, 1}))
    assert points.random_share() == [n for n in range(30) if n != 3]
    assert importance_at(points).trials == 29


def test_batches_are_blind_until_the_first_trial_ends(tmp_path):
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


def test_trials_that_copy_each_other_count_with_the_knobs_they_had(tmp_path):
    """Only up to the first copy is a value that of a trial's own knobs."""
    early = EarlyTerminate("pbt", every=2_000)
    asked = samples.study(early_terminate=early, budget=samples.Budget(trials=16))
    factory = samples.AnalyticFactory(lanes=40, diverges_above=2.0)
    run(asked, tmp_path / "s", factory, (), samples.quick())
    points = read_points(tmp_path / "s")
    assert importance_at(points).at == 2_000
    copied = {n: way for n, way in points.changes.items() if len(way) > 1}
    assert copied
    for trial, way in copied.items():
        (first, before), (second, between) = way[:2]
        assert points.params(trial, first) == before
        assert points.params(trial, first + 1) == points.params(trial, second) == between
        assert points.params(trial, 16_000) == points.trials[trial].params


def test_the_point_is_the_latest_that_most_trials_reached(results):
    points = made_up(results, lambda params: params["learning_rate"])
    early, late = dict(points.values[100]), {n: 1.0 for n in range(20)}
    points = Points(points.study, points.trials, {100: early, 200: late})
    assert importance_at(points).at == 100
    with pytest.raises(ConfigError, match="known: 100, 200"):
        importance_at(points, at=300)


def test_the_commands(results, capsys):
    out = ["--out", str(results)]
    assert main(["importance", "--study", "one", "--all", *out]) == 0
    shown = capsys.readouterr().out
    assert "learning_rate" in shown and "biased" not in shown  # all were drawn at random
    assert main(["importance", "--study", "one", "--all", "--over-progress", *out]) == 0
    assert capsys.readouterr().out.count("PED-ANOVA at") >= 1
    assert main(["compare", "one", "two", *out]) == 0
    assert "not paired" in " ".join(capsys.readouterr().out.split())
    assert main(["compare", "1", "one", *out]) == 2
    assert "not a trial with a study" in capsys.readouterr().err
    rows = read_points(results / "one").trials.values()
    stopped = next(row.trial for row in rows if row.state is TrialState.STOPPED)
    assert main(["compare", "0", str(stopped), "--study", "one", *out]) == 0
    assert "env steps, the last both reached" in " ".join(capsys.readouterr().out.split())
    assert main(["compare", "0", "999", "--study", "one", *out]) == 2
    assert "no trial 999" in capsys.readouterr().err


def test_only_what_a_model_proposed_is_said_to_be_biased(results):
    drawn = made_up(results, lambda params: params["gamma"])
    assert importance_at(drawn).modelled == importance_at(drawn, everybody=True).modelled == 0
    assert "proposed by a model" not in _of_method(importance_at(drawn, everybody=True), True)
    trials = {n: replace(row, proposed_by="tpe", batch=1) if n < 4 else row
              for n, row in drawn.trials.items()}  # fmt: skip
    mixed = importance_at(replace(drawn, trials=trials), everybody=True)
    assert (mixed.trials, mixed.modelled) == (60, 4)
    assert "4 were proposed by a model, which biases the shares." in _of_method(mixed, True)


def test_points_with_too_few_trials_are_named_over_progress(results, capsys):
    out = ["--study", "one", "--out", str(results)]
    points = read_points(results / "one")
    assert main(["importance", "--over-progress", "--all", *out]) == 0
    shown = capsys.readouterr().out
    few = [at for at, found in points.values.items() if len(found) < 10]
    assert few and shown.count("PED-ANOVA at") == len(points.values) - len(few)
    last = " ".join(shown.partition("Fewer than ten")[2].split())
    assert last == f"of these trials have a value at: {_listed(few)} env steps."
    assert main(["importance", "--over-progress", *out]) == 0
    shown = capsys.readouterr().out
    every = [at for at in points.values if at not in few]
    header = next(line for line in shown.splitlines() if line.startswith("hyperparameter"))
    assert header.split()[1:] == [steps(at) for at in every][: len(header.split()) - 1]


def _listed(points):
    return ", ".join(map(steps, points))


def test_the_knob_that_decides_is_named_with_its_floor(results):
    points = made_up(results, lambda params: -abs(np.log10(params["learning_rate"]) + 3))
    found = importance_at(points)
    answer = answer_at(points, found)
    assert answer.decided.names == ("learning_rate",) and answer.measured
    assert answer.other is found and answer.disagreement == ""
    data = json.loads(json.dumps(answer.as_json()))
    assert set(data["knobs"]) == set(points.study.space.names)
    assert sum(point["trials"] for point in data["effects"]["learning_rate"]) == 60


def test_where_ped_anova_ranks_another_first_one_line_says_so():
    """A study of 16 random trials: 0.0 % by one, 62 % by the other."""
    knobs = tuple(
        KnobShare(name, 16, 0.0, 0.0, 0.3, 0.25, False) for name in ("gamma", "lr", "eps", "vf")
    )
    shares = {"gamma": 0.62, "lr": 0.2, "eps": 0.1, "vf": 0.08}
    found = Importance(shares, 100, 15, True, 15)
    answer = Answer(100, Decided(16, knobs), True, {}, found)
    told = "PED-ANOVA ranks gamma first"
    assert answer.disagreement == told and told in answer.sentences
    evenly = replace(found, shares={"gamma": 0.3, "lr": 0.3, "eps": 0.2, "vf": 0.2})
    assert replace(answer, other=evenly).disagreement == ""
    named = Decided(16, (replace(knobs[1], share=0.5, decided=True), *knobs[2:], knobs[0]))
    assert replace(answer, decided=named).disagreement == told
    same = Decided(16, (replace(knobs[0], share=0.5, decided=True), *knobs[1:]))
    assert replace(answer, decided=same).disagreement == ""


def test_nothing_decides_where_values_are_noise(results):
    noise = np.random.default_rng(4)
    points = made_up(results, lambda params: float(noise.normal()))
    answer = answer_at(points, importance_at(points))
    assert answer.decided.names == ()
    assert answer.sentences[0] == "No hyperparameter is shown to matter in 60 trials."


def test_trials_of_a_model_count_where_its_errors_were_measured(results):
    points = made_up(results, lambda params: params["learning_rate"])
    for method, trials, measured in (("tpe", 60, True), ("cmaes", 20, True)):
        rows = {n: replace(r, proposed_by=method) for n, r in points.trials.items() if n >= 20}
        mixed = replace(points, trials={**points.trials, **rows})
        answer = answer_at(mixed, importance_at(mixed, at=100))
        assert (answer.decided.trials, answer.measured) == (trials, measured)
    alone = {n: replace(row, proposed_by="cmaes") for n, row in points.trials.items()}
    mixed = replace(points, trials=alone)
    answer = answer_at(mixed, importance_at(mixed))
    assert (answer.decided.trials, answer.measured) == (60, False)
    assert "how often this test errs is not known" in answer.sentences[-1]


def test_columns_are_places_on_axes(results):
    space = read_points(results / "one").study.space
    params = space.sample(np.random.default_rng(0))
    columns = {column.name: column.places for column in columns_of(space, [params])}
    assert columns == {
        key: [parameter.distribution.share(params[parameter.name])]
        for key, parameter in space.keyed
    }
