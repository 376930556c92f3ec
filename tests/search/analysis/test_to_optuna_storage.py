"""A study in Optuna's storage: what its own tools read there, and the way back."""

import math

import numpy as np
import optuna
import pytest

from helpers import search_samples as samples
from hpo.cli import main
from hpo.search.analysis.checkpoint_values import read_points
from hpo.search.run import run
from hpo.spaces import Parameter, Space, make_distribution
from hpo.spaces.via_optuna import told_changes, written_params
from hpo.store.journal import Journal
from hpo.store.rows import TrialState
from hpo.studies.load import load

PARTS = {
    "learning_rate": {"min": 1e-5, "max": 1.0, "distribution": "log_uniform"},
    "gamma": {"min": 0.8, "max": 0.9999, "distribution": "one_minus_log"},
    "ent_coef": {"min": 1e-4, "max": 0.1, "distribution": "log_uniform", "zero": 0.4},
    "clip_eps": {"min": 0.1, "max": 0.4, "q": 0.1},
    "vf_coef": {"mu": 0.5, "sigma": 0.1, "distribution": "normal"},
    "update_epochs": {"min": 1, "max": 8, "distribution": "log_int_uniform"},
    "num_minibatches": {"min": 2, "max": 8, "distribution": "pow2"},
    "hidden_sizes": {"values": [[16], [64, 64]]},
    "activation": {"values": ["tanh", "relu"]},
    "normalise_observations": {"values": [True, False]},
}


def parameter(name):
    distribution = make_distribution(PARTS[name])
    return Parameter(name, distribution, distribution.middle())


SPACE = Space(tuple(map(parameter, PARTS)))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    asked = samples.study(name="one", space=SPACE, confirm=samples.Confirm(2, 5, 6))
    factory = samples.AnalyticFactory(lanes=12, block=4, diverges_above=0.1)
    run(asked, root / "one", factory, (), samples.quick())
    return root


@pytest.fixture(scope="module")
def exported(home):
    url = f"sqlite:///{home / 'trials.db'}"
    assert main(["export", "optuna", "--to", url, "--out", str(home)]) == 0
    return url, optuna.load_study(study_name="one", storage=url)


def test_exported_trial_states_values_and_reports_match(home, exported):
    _, theirs = exported
    points = read_points(home / "one")
    states = {"finished": "COMPLETE", "stopped": "PRUNED", "diverged": "FAIL"}
    assert {str(row.state) for row in points.trials.values()} == set(states)
    assert [trial.number for trial in theirs.trials] == sorted(points.trials)
    for trial in theirs.trials:
        row = points.trials[trial.number]
        assert trial.state.name == states[str(row.state)]
        told = {at: v[row.trial] for at, v in points.values.items() if row.trial in v}
        assert trial.intermediate_values == pytest.approx(told)
        if row.state is TrialState.FINISHED:
            assert trial.value == row.value
        if row.state is TrialState.STOPPED:
            assert trial.value == row.rung_value
        assert trial.datetime_start.timestamp() == pytest.approx(row.started_at)
        assert trial.datetime_complete.timestamp() == pytest.approx(row.ended_at)
        assert trial.user_attrs["state"] == str(row.state)
        assert trial.user_attrs["params"] == row.params
    best = max(points.trials.values(), key=lambda row: row.value or -math.inf)
    assert theirs.best_trial.number == best.trial
    assert theirs.direction.name == "MAXIMIZE"


def test_exported_hyperparameter_values_are_readable(home, exported):
    _, theirs = exported
    points = read_points(home / "one")
    for trial in theirs.trials:
        ours = points.trials[trial.number].params
        assert trial.params["learning_rate"] == ours["learning_rate"]
        assert trial.params["gamma"] == ours["gamma"]
        assert trial.params["hidden_sizes"] in ("[16]", "[64, 64]")
        assert trial.params["normalise_observations"] is ours["normalise_observations"]
        assert ("ent_coef" in trial.params) == (ours["ent_coef"] != 0)
    spread = theirs.trials[0].distributions
    assert spread["learning_rate"] == optuna.distributions.FloatDistribution(1e-5, 1.0, log=True)
    assert spread["clip_eps"].step == 0.1
    assert spread["update_epochs"] == optuna.distributions.IntDistribution(1, 8, log=True)
    assert spread["num_minibatches"].choices == (2, 4, 8)


def test_every_sampled_configuration_can_be_exported():
    rng = np.random.default_rng(1)
    for _ in range(200):
        params = SPACE.sample(rng)
        values, spread = written_params(SPACE, params)
        optuna.trial.create_trial(params=values, distributions=spread, value=0.0)  # checks them
    changes = "\n".join(told_changes(SPACE))
    for words in (
        "gamma: one_minus_log becomes uniform",
        "vf_coef: normal becomes uniform",
        "ent_coef: Optuna trials omit the value 0",
        "num_minibatches: Optuna stores it as an unordered list",
        "hidden_sizes: Optuna stores lists as JSON text",
    ):
        assert words in changes
    assert "learning_rate" not in changes and "clip_eps" not in changes


def test_export_and_import_round_trip(home, exported, tmp_path, capsys):
    url, _ = exported
    out = tmp_path / "study.yaml"
    assert main(["import", "optuna", url, "--to", str(out)]) == 0, capsys.readouterr().err
    study, points = load(out), read_points(home / "one")
    assert study.env.id == "CartPole-v1" and study.env_steps == 16_000
    assert (study.metric.name, study.metric.goal) == ("eval/return_mean", "maximize")
    assert set(study.space.names) == set(SPACE.names)
    finished = [row for row in points.trials.values() if row.value is not None]
    best = max(finished, key=lambda row: row.value)
    first = {name: list(v) if isinstance(v, tuple) else v for name, v in study.enqueue[0].items()}
    assert {name: first[name] for name in PARTS if name in first} == {
        name: value for name, value in best.params.items() if name in first
    }
    assert set(best.params) - set(first) <= {"ent_coef"}
    sizes = next(p for p in study.space.parameters if p.name == "hidden_sizes")
    assert [list(value) for value in sizes.distribution.values] == [[16], [64, 64]]


def test_existing_optuna_study_name_is_refused(home, exported, capsys):
    url, _ = exported
    words = ["export", "optuna", "--to", url, "--out", str(home)]
    assert main(words) == 2
    assert "already has a study 'one'" in capsys.readouterr().err
    assert main([*words, "--set", "name=two"]) == 0
    names = [found.study_name for found in optuna.get_all_study_summaries(url)]
    assert sorted(names) == ["one", "two"]
    assert main([*words, "--set", "top_k=2"]) == 2
    assert "only the study's name can be set" in capsys.readouterr().err


def test_interrupted_export_leaves_nothing(home, tmp_path, monkeypatch):
    from hpo.search.analysis import to_optuna_storage

    def breaks(row, points, number):
        raise KeyboardInterrupt

    monkeypatch.setattr(to_optuna_storage, "_optuna_trial", breaks)
    url = str(tmp_path / "new.db")
    with Journal(home / "one") as journal, pytest.raises(KeyboardInterrupt):
        to_optuna_storage.write_storage(url, "one", journal.meta, read_points(home / "one"))
    assert optuna.get_all_study_summaries(f"sqlite:///{url}") == []


def test_export_includes_several_objectives_and_constraints(tmp_path):
    from hpo.search.analysis.to_optuna_storage import write_storage
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.search_spec import Constraint, Metric

    metrics = (Metric(), Metric(name="eval/thrift", goal="minimize"))
    asked = samples.study(
        name="many",
        env=EnvSpec("own"),
        imports=("own.py",),
        objectives=metrics,
        constraints=(Constraint("eval/skill", min=0.2),),
        budget=samples.Budget(10),
        early_terminate=None,
    )
    run(asked, tmp_path / "many", samples.AnalyticFactory(), (), samples.quick())
    url = str(tmp_path / "journal.log")
    points = read_points(tmp_path / "many")
    with Journal(tmp_path / "many") as journal:
        write_storage(url, "many", journal.meta, points)
    backend = optuna.storages.journal.JournalFileBackend(url)
    theirs = optuna.load_study(study_name="many", storage=optuna.storages.JournalStorage(backend))
    assert [direction.name for direction in theirs.directions] == ["MAXIMIZE", "MINIMIZE"]
    done = [trial for trial in theirs.trials if trial.state.name == "COMPLETE"]
    assert done
    for trial in done:
        row = points.trials[trial.number]
        assert tuple(trial.values) == row.objectives
        assert trial.system_attrs["constraints"] == [pytest.approx(0.2 - row.constraints[0])]
