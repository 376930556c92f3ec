"""Records: written, read, checked, and the studies and tables made of them."""

import hashlib
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.stats

from helpers import tuned_samples as samples
from helpers.loading import script_module
from hpo.environments.registry import Reference, entry
from hpo.errors import StudyError, UnknownNameError
from hpo.files.plain_data import as_lists
from hpo.knobs import KNOBS, complete
from hpo.store.query import query
from hpo.store.statistics import interval, iqm
from hpo.studies.load import load, loads
from hpo.studies.tuned.record import find_record, known_record, read_record, shipped
from hpo.studies.tuned.study_text import around_text, knobs_of, least, train_text
from hpo.studies.tuned.summary import (
    area,
    beside_heuristics,
    compare,
    comparisons,
    summary,
    time_to,
)

published_module = script_module("tuned_parts.record_file")
published, record_text = published_module.published, published_module.record_text
faults_of_folder = script_module("tuned_parts.check").faults_of_folder
tables_of = script_module("tuned_parts.tables").tables_of
threshold_of = script_module("tuned_parts.candidate").threshold_of


def test_record_round_trip(tmp_path):
    record = samples.record()
    path = tmp_path / "CartPole-v1.yaml"
    path.write_text(record_text(record))
    again = read_record(path)
    assert record_text(again) == record_text(record)
    assert [one.greedy for one in again.contenders] == [one.greedy for one in record.contenders]
    assert complete(again.tuned.config) == record.tuned.config
    assert max(map(len, path.read_text().splitlines()[2:])) <= 99


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("threshold: 90.0\n", "", "threshold is missing"),
        ("goal: maximize", "goal: upward", "allowed: maximize, minimize"),
        ("  commit: ", "  comit: ", "made.comit: unknown; known: on, commit"),
        ("env_steps: 102400\nconfig", "env_steps: many\nconfig", "has the wrong type"),
        ("  backend: cpu", "  backend: cpu\n  speed: 3", "made.speed: unknown"),
        ("    to_threshold:\n      [", "    to_threshold:\n      [1, ", "different lengths"),
        ("    greedy:\n      [", "    greedy:\n      [fine, ", "is not a number"),
    ],
)
def test_invalid_record_is_reported_with_line(tmp_path, old, new, words):
    path = tmp_path / "x.yaml"
    text = record_text(samples.record())
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(StudyError, match=rf"x\.yaml:\d+: .*{words}"):
        read_record(path)


def test_least_config_is_minimal_and_equivalent():
    given = {"learning_rate": 0.002, "normalise_rewards": False, "num_envs": 16,
             "minibatch_size": 64, "hidden_sizes": [32]}  # fmt: skip
    few = least(complete(given))
    assert as_lists(complete(few)) == as_lists(complete(given))
    assert len(few) == 5 and "reward_clip" not in few and "vf_learning_rate" not in few
    for name in few:
        fewer = {other: value for other, value in few.items() if other != name}
        assert as_lists(complete(fewer)) != as_lists(complete(given))
    assert least(complete({})) == {}


@pytest.mark.parametrize("name", ["rmsa-nsfnet-250", "CartPole-v1"])
def test_old_records_with_zero_average_reward_are_read_as_off(name):
    """It stood for the average of the first rollout, in records that centre rewards, too."""
    record = find_record(name)
    assert knobs_of(record)["average_reward_initial"] is None
    assert all(one.config["average_reward_initial"] is None for one in record.contenders)
    assert loads(train_text(record)).default()["average_reward_initial"] is None
    assert "average_reward_initial" not in train_text(record) + around_text(record)


def test_training_study_has_configuration_and_length_of_record():
    record = samples.record()
    study = loads(train_text(record), "tuned:CartPole-v1")
    assert study.default() == record.tuned.config and study.env_steps == record.env_steps
    assert study.evaluation.episodes == 20 and study.budget.trials == 1


def test_search_around_record_is_centred_on_its_configuration():
    record = samples.record()
    study = loads(around_text(record))
    assert study.default() == record.tuned.config  # whose values have four digits
    rate = next(p for p in study.space.parameters if p.name == "learning_rate").distribution
    assert rate.as_mapping()["min"] == 0.0005 and rate.as_mapping()["max"] == 0.008
    assert study.confirm is not None and study.env_steps == 102400


def test_training_weight_is_set_only_for_episodic_records():
    record = samples.record()
    assert "training_weight: 0.5" in around_text(record)
    endless = replace(record, evaluation={**record.evaluation, "steps": 4000})
    assert "training_weight" not in around_text(endless)


@pytest.mark.parametrize(
    "config",
    [
        {"gamma": 1.0},
        {"gamma": 0.99999, "ent_coef": 0.0},
        {"update_epochs": 1, "gae_lambda": 1.0},
        {"learning_rate": 0.3, "clip_eps": 0.001},
        {"ent_coef": 0.5, "update_epochs": 300},
    ],
)
def test_search_around_any_configuration_loads(config):
    record = samples.record()
    moved = replace(record.tuned, config=complete(config))
    study = loads(around_text(replace(record, contenders=(moved, *record.contenders[1:]))))
    assert study.default() == complete(config)


def test_search_around_record_rounds_values_and_comments_sections():
    record = samples.record()
    found = {
        "learning_rate": 0.0028972316587215197,
        "gamma": 0.99876806171,
        "vf_coef": 0.39949666516501814,
    }
    moved = replace(record.tuned, config=complete(found))
    text = around_text(replace(record, contenders=(moved, *record.contenders[1:])))
    default = loads(text).default()
    assert (default["learning_rate"], default["vf_coef"]) == (0.002897, 0.3995)
    assert default["gamma"] == pytest.approx(1 - 0.001232, abs=1e-9)  # four digits of 1 - gamma
    sections = [line for line in text.splitlines() if line[0].islower()]
    assert all(" # " in line for line in sections if line.split(":")[0] not in ("name", "env"))


def test_published_configurations_are_valid_and_cite_sources():
    published("CartPole-v1")
    everything = published_module._all()
    assert len(everything) >= 9
    for env, items in everything.items():
        assert env.startswith("gym:") or entry(env).id == env  # Gymnasium's need Box2D to look
        for one in items:
            assert complete(one.knobs)["learning_rate"] == one.knobs["learning_rate"]
            assert len(one.source["commit"]) == 40 and "/" in one.source["repository"]
            assert one.source["file"] and one.source["env_steps"] >= 20_000
    zoo = published("CartPole-v1")[0]
    assert (zoo.by, zoo.knobs["gae_lambda"]) == ("rl-baselines3-zoo", 0.8)
    assert zoo.knobs["lr_schedule"] == "linear" and zoo.knobs["update_epochs"] == 20
    assert published("no such environment") == ()


def test_summaries_equal_plain_formulas():
    record = samples.record()
    one = record.tuned
    seen = summary(one)
    assert seen.greedy[0] == iqm(one.greedy)
    assert seen.greedy[1].low < seen.greedy[0] < seen.greedy[1].high
    assert seen.reached == sum(steps is not None for steps in one.to_threshold)
    wins = [(a > b) + 0.5 * (a == b) for a in one.greedy for b in record.contenders[1].greedy]
    beside = compare(one, record.contenders[1])
    assert beside.greedy[0] == pytest.approx(sum(wins) / len(wins)) and beside.verdict == "better"
    assert compare(record.contenders[1], one).verdict == "worse"
    assert compare(one, one).verdict == "no_difference"
    smaller = compare(one, record.contenders[1], "minimize")
    assert smaller.verdict == "worse" and smaller.greedy[0] == pytest.approx(1 - beside.greedy[0])


def with_heuristics(**changes):
    """A record beside two rules, one of which is 10 worse and one 10 better on every seed."""
    record = samples.record(**changes)
    rng = np.random.default_rng(3)
    values = {
        name: tuple(float(v + by + rng.normal()) for v in record.tuned.greedy)
        for name, by in (("ksp_ff", -10.0), ("ksp_bf@10", 10.0))
    }
    same = tuple(float(v + rng.normal()) for v in record.tuned.greedy)
    return replace(record, heuristics={**values, "ff_ksp": same})


def test_heuristics_are_compared_seed_by_seed():
    record = with_heuristics()
    beside = {one.who: one for one in beside_heuristics(record)}
    assert [one.verdict for one in beside.values()] == ["better", "worse", "no_difference"]
    for name, values in record.heuristics.items():
        pairs = np.subtract(record.tuned.greedy, values)
        less, around = beside[name].less
        assert less == pytest.approx(pairs.mean())
        exact = scipy.stats.ttest_1samp(pairs, 0).confidence_interval(0.96)
        assert (around.low, around.high) == pytest.approx(exact)
        assert beside[name].greedy[0] == pytest.approx(np.mean(values))
    turned = beside_heuristics(replace(record, goal="minimize"))
    assert [one.verdict for one in turned] == ["worse", "better", "no_difference"]
    lost = replace(record.tuned, greedy=(None, *record.tuned.greedy[1:]))
    worst = min(record.tuned.greedy[1:])
    worse = beside_heuristics(replace(record, contenders=(lost, *record.contenders[1:])))[0]
    assert worse.less[0] == pytest.approx(
        np.subtract((worst, *record.tuned.greedy[1:]), record.heuristics["ksp_ff"]).mean()
    )


def test_values_and_differences_use_the_same_estimator(tmp_path):
    """Beside heuristics the difference is one of means, so every value of the record is a mean."""
    skewed = (-500.0, *np.linspace(100.0, 131.0, 31))  # mean and IQM differ by 19
    record = with_heuristics()
    ours = replace(record.tuned, greedy=tuple(skewed))
    record = replace(record, contenders=(ours, *record.contenders[1:]))
    seen = summary(record.tuned, record.goal, record.estimator).greedy
    assert record.estimator == "mean" and seen[0] == pytest.approx(np.mean(skewed))
    assert seen[1] == interval(skewed)
    for one in beside_heuristics(record):
        assert one.less[0] == pytest.approx(seen[0] - one.greedy[0])
    place = samples.written(tmp_path, record)
    wanted = "SELECT DISTINCT estimator FROM trials"
    assert query(place, wanted)[1] == [("mean",)]
    alone = replace(record, heuristics={})
    assert alone.estimator == "iqm"
    assert summary(alone.tuned, alone.goal, alone.estimator).greedy[0] == iqm(skewed)


def test_tables_include_search_cost(tmp_path):
    record = samples.record()
    place = samples.written(tmp_path, record)
    rows = dict(query(place, "SELECT who, searched_env_steps FROM trials")[1])
    assert rows.pop("tuned") == record.origin.env_steps
    assert set(rows.values()) == {None}


def test_episodes_that_never_end_have_no_training_return(tmp_path):
    endless = with_heuristics()
    contenders = tuple(
        replace(one, training=(None,) * 32, curve=replace(one.curve, training=(None,) * 20))
        for one in endless.contenders
    )
    endless = replace(endless, contenders=contenders)
    beside = compare(*contenders[:2])
    assert math.isnan(beside.training[0]) and beside.training[1].low is None
    assert math.isnan(summary(contenders[0]).training[0]) and beside.verdict == "better"
    place = samples.written(tmp_path, endless)
    assert faults_of_folder(place)[1] == []
    wanted = "SELECT count(training), count(training_improvement), count(area) FROM trials"
    assert query(place, wanted)[1] == [(0, 0, 5)]


def test_record_env_with_list_values_equals_study_file(tmp_path):
    text = "env: {id: deeprmsa, topology: ring4, k: 2, slots: 8, fits: [best, first]}\n"
    text += "env_steps: 102400\nevaluation: {steps: 10}\nbaselines: [ksp_ff]\n"
    text += "metric: {name: eval/service_blocking_probability, goal: minimize}\n"
    text += "space: {gamma: {min: 0.9, max: 0.99}}\n"
    study = loads(text)
    origin = replace(
        samples.record().origin,
        file="studies/tuned/own.yaml",
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )
    kept = {
        "name": "own",
        "env": "deeprmsa",
        "env_values": study.env.values,
        "metric": study.metric.name,
        "goal": "minimize",
        "evaluation": {"episodes": 10, "steps": 10, "greedy": True},
        "origin": origin,
        "contenders": samples.record().contenders[:2],
    }
    record = with_heuristics(**kept)
    place = samples.written(tmp_path, record)
    (tmp_path / "studies" / "tuned" / "own.yaml").write_text(text)
    assert faults_of_folder(place)[1] == []
    missing = replace(record, heuristics={"ksp_bf": record.heuristics["ksp_ff"]})
    (place / "own.yaml").write_text(record_text(missing))
    assert any("heuristics lacks ksp_ff" in fault for fault in faults_of_folder(place)[1])


def test_heuristics_are_written_read_and_queried(tmp_path):
    record = with_heuristics()
    path = samples.written(tmp_path, record)
    again = read_record(path / "CartPole-v1.yaml")
    assert again.heuristics == record.heuristics and record_text(again) == record_text(record)
    _, rows = query(path, "SELECT who, rank, verdict, area FROM trials ORDER BY greedy DESC")
    assert [row[1] for row in rows] == list(range(1, 9))
    assert rows[0] == ("ksp_bf@10", 1, "worse", None)
    mine = "SELECT greedy FROM evaluations WHERE who = 'ksp_ff' ORDER BY seed"
    assert [value for (value,) in query(path, mine)[1]] == list(record.heuristics["ksp_ff"])
    assert faults_of_folder(path)[1] == []
    text = record_text(record)
    start = text.index("heuristics:\n  ksp_ff:\n    [")
    (path / "CartPole-v1.yaml").write_text(text[:start] + text[start:].replace("[", "[1, ", 1))
    with pytest.raises(StudyError, match=r":\d+: .*ksp_ff needs 32 numbers"):
        read_record(path / "CartPole-v1.yaml")


def test_a_seed_that_diverged_is_the_worst_of_all():
    one = samples.contender("tuned", 100.0)
    lost = replace(one, greedy=(None, *one.greedy[1:]), to_threshold=(None,) * 32)
    whole = (min(one.greedy[1:]), *one.greedy[1:])
    assert summary(lost).greedy[0] == iqm(whole) and summary(lost).diverged == 1
    assert summary(lost).to_threshold is None and summary(lost).reached == 0
    assert compare(lost, one).greedy[0] < compare(one, one).greedy[0]


def test_area_is_the_integral_of_the_piecewise_linear_curve():
    at, values = [0, 10, 30, 35], [1.0, 3.0, -1.0, 4.0]
    fine = [i / 1000 for i in range(35_000)]

    def height(x):
        i = next(i for i in range(3) if x <= at[i + 1])
        return values[i] + (values[i + 1] - values[i]) * (x - at[i]) / (at[i + 1] - at[i])

    assert area(at, values) == pytest.approx(sum(map(height, fine)) / len(fine), abs=1e-3)
    assert area([5], [2.0]) == 2.0


def test_threshold_is_ninety_percent_of_improvement():
    curves = [samples.contender("a", 100.0).curve, samples.contender("b", 40.0).curve]
    start, end = min(c.greedy[0] for c in curves), max(c.greedy[-1] for c in curves)
    assert threshold_of(curves) == pytest.approx(start + 0.9 * (end - start), rel=1e-5)
    assert threshold_of(curves, "maximize", Reference(20.0, 500.0)) == 452.0
    assert threshold_of(curves, "minimize", Reference(0.2, 0.1)) == pytest.approx(0.11)
    assert time_to([1, 2, 3], [5.0, 3.0, 1.0], 3.0, "minimize") == 2
    assert time_to([1, 2], [math.nan, 0.0], 1.0) is None


def test_tables_equal_the_record_files(tmp_path):
    record = samples.record()
    place = samples.written(tmp_path, record)
    columns, rows = query(place, "SELECT who, rank, verdict, greedy, reached FROM trials")
    assert columns[0] == "who" and [row[1] for row in rows] == [1, 2, 3, 4, 5]
    assert rows[0][0] == "tuned" and rows[0][2] == "" and rows[0][3] == iqm(record.tuned.greedy)
    verdicts = {one.who: one.verdict for one in comparisons(record)}
    assert {row[0]: row[2] for row in rows[1:]} == verdicts
    assert query(place, "SELECT count(*) FROM evaluations")[1] == [(5 * 32,)]
    assert query(place, "SELECT count(*) FROM curves WHERE who = 'tuned'")[1] == [(20,)]
    assert pq.read_table(place / "trials.parquet").equals(tables_of([record])["trials"])


def test_valid_record_folder_has_no_faults(tmp_path):
    records, faults = faults_of_folder(samples.written(tmp_path))
    assert faults == [] and len(records) == 1


def _edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda p: _edit(p.parents[1] / "studies/tuned/CartPole-v1.yaml", "0.99", "0.98"),
            "differs from the study that ran",
        ),
        (lambda p: (p.parents[1] / "studies/tuned/CartPole-v1.yaml").unlink(), "is not at"),
        (
            lambda p: _edit(p / "CartPole-v1.yaml", 'commit: "0000', 'commit: "+000'),
            "clean checkout",
        ),
        (
            lambda p: _edit(
                p / "CartPole-v1.yaml", "  learning_rate: 0.002", "  learning_rate: -1"
            ),
            "learning_rate",
        ),
        (
            lambda p: _edit(p / "CartPole-v1.yaml", "defaults:\n  {", "defaults:\n  {warp: 9, "),
            "no knobs of today: warp",
        ),
        (lambda p: (p / "CartPole-v1.yaml").rename(p / "Acrobot-v1.yaml"), "the file is CartPole"),
        (lambda p: _edit(p / "CartPole-v1.yaml", "seed: 77", "seed: 77  # mine"), "its text is"),
        (
            lambda p: _edit(p / "CartPole-v1.yaml", "threshold: 90.0", "threshold: 91.0"),
            "write the tables again",
        ),
        (lambda p: (p / "curves.parquet").unlink(), "curves.parquet: not what"),
        (lambda p: _edit(p / "CartPole-v1.yaml", "rejax:\n", "rejected:\n"), "results lack rejax"),
        (
            lambda p: _edit(
                p / "CartPole-v1.yaml",
                "env: CartPole-v1",
                "env: {id: CartPole-v1, max_steps_in_episode: 200}",
            ),
            "has other keys of CartPole-v1",
        ),
    ],
)
def test_each_fault_is_found(tmp_path, change, words):
    place = samples.written(tmp_path)
    change(place)
    assert any(words in fault for fault in faults_of_folder(place)[1])


def test_few_seeds_are_a_fault(tmp_path):
    few = samples.contender("tuned", 100.0, seeds=31)
    record = samples.record()
    place = samples.written(tmp_path, replace(record, contenders=(few, *record.contenders[1:])))
    assert any("results.tuned has 31 seeds" in fault for fault in faults_of_folder(place)[1])


def test_record_lookup_suggests_similar_names(tmp_path, monkeypatch):
    place = samples.written(tmp_path)
    assert find_record("CartPole-v1", place).env == "CartPole-v1"
    with pytest.raises(UnknownNameError, match="did you mean 'CartPole-v1'"):
        find_record("CartPole-v0", place)
    monkeypatch.chdir(tmp_path)
    assert known_record("CartPole-v1").origin.trial == 7  # of this folder, not the one that ships
    assert known_record("DeepSea-bsuite") is None


def test_shipped_records_have_no_faults():
    records, faults = faults_of_folder(shipped())
    assert faults == []
    for record in records:
        assert set(record.tuned.config) <= set(KNOBS) and knobs_of(record)


def test_tuning_studies_load_and_start_from_default():
    """Trial 0 is the project's default, so that a study's own conclusion is about that."""
    root = Path(shipped()).parents[1] / "studies" / "tuned"
    files = [path for path in root.glob("*.yaml") if path.name != "published.yaml"]
    assert len(files) >= 18
    for path in files:
        if path.name.startswith("gym-"):  # reading it imports Box2D, which not everybody has
            continue
        study = load(path)
        assert study.confirm is not None and study.confirm.report >= 16
        assert as_lists(study.default()) == as_lists(complete({})), path.name
