import optuna
import pytest
import yaml
from ConfigSpace import (
    ConfigurationSpace,
    EqualsCondition,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    InCondition,
)
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)
from optuna.distributions import FloatDistribution
from optuna.trial import create_trial

from hpo.cli import main
from hpo.errors import ConfigError
from hpo.importers.storages import read_storage
from hpo.spaces.via_configspace import write_configspace
from hpo.studies.load import load, loads


def test_import_command_reads_configspace_file(tmp_path, capsys):
    theirs = ConfigurationSpace()
    optimiser = CategoricalHyperparameter("optimizer", ["adam", "adamw"])
    decay = UniformFloatHyperparameter("weight_decay", 1e-6, 1e-2, log=True)
    theirs.add(optimiser, decay, UniformIntegerHyperparameter("n_epochs", 1, 8))
    theirs.add(InCondition(decay, optimiser, ["adamw"]))
    write_configspace(theirs, tmp_path / "space.yaml")
    out = tmp_path / "study.yaml"
    code = main(
        [
            "import",
            "configspace",
            str(tmp_path / "space.yaml"),
            "--to",
            str(out),
            "--",
            "--env",
            "CartPole-v1",
            "--env_steps",
            "200k",
        ]
    )
    assert code == 0, capsys.readouterr().err
    study = load(out)
    assert set(study.space.names) == {"optimiser", "weight_decay", "update_epochs"}
    conditional = next(p for p in study.space.parameters if p.name == "weight_decay")
    assert conditional.when[0].name == "optimiser" and conditional.when[0].values == ("adamw",)
    assert study.env_steps == 200_000


def of_configspace(tmp_path, theirs):
    write_configspace(theirs, tmp_path / "space.yaml")
    out = tmp_path / "study.yaml"
    assert (
        main(
            [
                "import",
                "configspace",
                str(tmp_path / "space.yaml"),
                "--to",
                str(out),
                "--",
                "--env",
                "CartPole-v1",
            ]
        )
        == 0
    )
    return load(out)


def test_configspace_conditions_and_forbidden_values_are_converted(tmp_path):
    """SB3 counts the value loss twice as high as we do: their 0.5 is our 1.0."""
    theirs = ConfigurationSpace()
    steps = UniformIntegerHyperparameter("n_epochs", 1, 8)
    size = CategoricalHyperparameter("n_steps", [64, 128])
    value = CategoricalHyperparameter("vf_coef", [0.25, 0.5, 1.0])
    entropy = CategoricalHyperparameter("ent_coef", [0.0, 0.01])
    power = CategoricalHyperparameter("batch_size_pow", [5, 8])
    decay = UniformFloatHyperparameter("max_grad_norm", 0.1, 1.0)
    theirs.add(steps, size, value, entropy, power, decay)
    theirs.add(EqualsCondition(decay, value, 0.5))
    theirs.add(
        ForbiddenAndConjunction(
            ForbiddenEqualsClause(value, 0.5), ForbiddenEqualsClause(entropy, 0.01)
        )
    )
    theirs.add(
        ForbiddenAndConjunction(ForbiddenEqualsClause(power, 8), ForbiddenEqualsClause(size, 64))
    )
    space = of_configspace(tmp_path, theirs).space
    by_name = {parameter.name: parameter for parameter in space.parameters}
    assert by_name["vf_coef"].distribution.values == (0.5, 1.0, 2.0)
    assert by_name["max_grad_norm"].when[0].values == (1.0,)
    found = [
        {
            **space.default(),
            "vf_coef": coef,
            "ent_coef": entropy,
            "minibatch_size": size,
            "rollout_length": steps,
        }
        for coef in (0.5, 1.0, 2.0)
        for entropy in (0.0, 0.01)
        for size in (32, 256)
        for steps in (64, 128)
    ]
    refused = [one for one in found if space.forbidden(one)]
    assert len(refused) == 4 + 6 - 1 and all(
        (one["vf_coef"], one["ent_coef"]) == (1.0, 0.01)
        or (one["minibatch_size"], one["rollout_length"]) == (256, 64)
        for one in refused
    )


@pytest.fixture
def storage(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    study = optuna.create_study(study_name="one", storage=url, direction="maximize")

    def objective(trial):
        rate = trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True)
        trial.suggest_categorical("activation", ["tanh", "relu"])
        trial.suggest_float("reward_scale", 1.0, 5.0, step=1.0)
        return -abs(rate - 1e-3)

    study.optimize(objective, n_trials=12)
    return url, study


def test_optuna_study_becomes_hpo_study(storage):
    url, theirs = storage
    draft = read_storage(url, None, {"env": "CartPole-v1"})
    study = loads(draft.text())
    assert set(study.space.names) == {"learning_rate", "activation", "reward_scale"}
    scale = next(p for p in study.space.parameters if p.name == "reward_scale").distribution
    assert set(scale.grid(99)) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert len(study.enqueue) == 10
    assert study.enqueue[0]["learning_rate"] == theirs.best_params["learning_rate"]
    assert study.metric.goal == "maximize"


def test_flag_after_dashes_removes_name_from_search(storage, tmp_path, capsys):
    url, _ = storage
    out = tmp_path / "study.yaml"
    code = main(
        [
            "import",
            "optuna",
            url,
            "--to",
            str(out),
            "--",
            "--env",
            "CartPole-v1",
            "--activation",
            "relu",
            "--learning_rate",
            "0.002",
        ]
    )
    assert code == 0, capsys.readouterr().err
    study = load(out)
    assert study.fixed["activation"] == "relu" and study.fixed["learning_rate"] == 0.002
    assert study.space.names == ("reward_scale",)
    assert study.enqueue and all(set(one) == {"reward_scale"} for one in study.enqueue)
    written = yaml.safe_load(out.read_text())["enqueue"]
    kept = {one["reward_scale"] for one in written}
    assert 0 < len(written) == len(kept) <= 5  # of ten trials on five steps
    assert f"enqueue: the best finished trials ({len(kept)} of 12)" in out.read_text()
    code = main(
        [
            "import",
            "optuna",
            url,
            "--to",
            str(tmp_path / "none.yaml"),
            "--",
            "--env",
            "CartPole-v1",
            "--activation",
            "relu",
            "--learning_rate",
            "0.002",
            "--reward_scale",
            "2.0",
        ]
    )
    assert code == 0 and "enqueue" not in yaml.safe_load((tmp_path / "none.yaml").read_text())


def test_a_storage_without_the_study_is_refused(storage, tmp_path):
    url, _ = storage
    with pytest.raises(ConfigError, match="known: one"):
        read_storage(url, "two", {})
    with pytest.raises(ConfigError, match="no such file"):
        read_storage(str(tmp_path / "none.db"), None, {})


def test_rl_zoo3_study_names_and_values_are_converted(tmp_path):
    url = f"sqlite:///{tmp_path / 'zoo.db'}"
    study = optuna.create_study(study_name="zoo", storage=url, direction="maximize")

    def objective(trial):
        size = trial.suggest_int("batch_size_pow", 5, 7)
        less = trial.suggest_float("one_minus_gamma", 1e-4, 0.03, log=True)
        trial.suggest_float("vf_coef", 0.25, 0.75)
        trial.suggest_categorical("net_arch", ["tiny", "medium"])
        return -less - size

    study.optimize(objective, n_trials=4)
    draft = read_storage(url, None, {"env": "CartPole-v1", "n_envs": "8"})
    draft.override({"n_envs": "8"})
    ours = loads(draft.text())
    data = draft.space
    assert data["minibatch_size"] == {"values": [32, 64, 128], "default": 64}
    assert data["gamma"] == {"min": 0.97, "max": 0.9999, "distribution": "one_minus_log"}
    assert data["vf_coef"] == {
        "min": 0.5, "max": 1.5, "distribution": "uniform", "default": 1.0,
    }  # fmt: skip
    assert data["hidden_sizes"] == {"values": [[64], [256, 256]]}
    assert ours.fixed["num_envs"] == 8 and not any(
        text.startswith("n_envs") for text in draft.notes
    )
    best, first = study.best_params, ours.enqueue[0]
    assert first["minibatch_size"] == 2 ** best["batch_size_pow"]
    assert first["gamma"] == pytest.approx(1 - best["one_minus_gamma"], abs=1e-11)
    assert first["vf_coef"] == pytest.approx(2 * best["vf_coef"], rel=1e-11)
    assert first["hidden_sizes"] == ((64,) if best["net_arch"] == "tiny" else (256, 256))


def test_without_flag_drops_refused_configspace_name(tmp_path, capsys):
    theirs = ConfigurationSpace()
    theirs.add(UniformFloatHyperparameter("learning_rate", 1e-5, 1e-2, log=True))
    theirs.add(CategoricalHyperparameter("use_sde", [True, False]))
    write_configspace(theirs, tmp_path / "space.json")
    words = ["import", "configspace", str(tmp_path / "space.json"), "--env", "CartPole-v1"]
    assert main(words) == 2 and "--without use_sde" in capsys.readouterr().err
    assert main([*words, "--", "--without", "use-sde"]) == 0
    assert set(loads(capsys.readouterr().out).space.names) == {"learning_rate"}


def test_waiting_and_failed_trials_do_not_make_parameters_conditional(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    study = optuna.create_study(study_name="one", storage=url, direction="maximize")
    for kind in ("adam", "sgd"):
        trial = study.ask()
        trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
        trial.suggest_categorical("optimiser", ["adam", "sgd"])
        if kind == "adam":
            trial.suggest_float("adam_b1", 0.8, 0.95)
            trial.suggest_float("clip_eps", 0.1, 0.3)
        study.tell(trial, 1.0)
    study.enqueue_trial({"learning_rate": 2e-3})
    study.tell(study.ask(), state=optuna.trial.TrialState.FAIL)
    study.enqueue_trial({"learning_rate": 3e-3})
    draft = read_storage(url, None, {"env": "CartPole-v1", "without": "adam_b1"})
    notes = [note for note in draft.notes if "only some trials" in note]
    assert [note.partition(":")[0] for note in notes] == ["clip_eps"]


def test_waiting_trials_are_enqueued_after_the_best_ones(storage):
    url, theirs = storage
    for given in (
        {"learning_rate": 2e-3, "activation": "relu", "reward_scale": 3.0},
        {"learning_rate": 4e-3},
        {"learning_rate": 0.5},
        {"learning_rate": "fast"},
        {"learning_rate": 4e-3},
    ):
        theirs.enqueue_trial(given)
    draft = read_storage(url, None, {"env": "CartPole-v1"})
    enqueued = loads(draft.text()).enqueue
    assert len(enqueued) == 12
    assert enqueued[0]["learning_rate"] == theirs.best_params["learning_rate"]
    assert enqueued[10] == {"learning_rate": 2e-3, "activation": "relu", "reward_scale": 3.0}
    assert enqueued[11]["learning_rate"] == 4e-3
    notes = [note for note in draft.notes if note.startswith("enqueue: ")]
    assert notes == [
        "enqueue: the best finished trials (10 of 12)",
        "enqueue: the waiting trials (2 of 5); skips 2 trials with values outside the space; "
        "skips 1 duplicate trial",
    ]


def test_trials_that_violate_a_constraint_are_enqueued_last(storage):
    url, theirs = storage
    trial = create_trial(
        values=[1.0],
        params={"learning_rate": 9e-3},
        distributions={"learning_rate": FloatDistribution(1e-5, 1e-2, log=True)},
        system_attrs={"constraints": [0.5, -1.0]},
    )
    theirs.add_trial(trial)
    draft = read_storage(url, None, {"env": "CartPole-v1"})
    assert all(one["learning_rate"] != 9e-3 for one in draft.rest["enqueue"])
