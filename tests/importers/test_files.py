"""Files and commands of other programs become studies that check, or are refused with a reason."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers import imported_files as files
from helpers import imported_trained as trained
from hpo.cli import main
from hpo.errors import HpoError
from hpo.knobs import KNOBS, complete
from hpo.studies.check import check
from hpo.studies.load import loads
from hpo.studies.yaml_io import plain, read_text

pytestmark = [
    pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning"),  # Box2D's, by SWIG
    pytest.mark.filterwarnings("ignore:MuJoCo:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning"),  # -v4 of MuJoCo's
]


def imported(tmp_path, capsys, file):
    """Return the study's text; what the command says goes into an error if it refuses."""
    source = file.text
    if file.name:
        source = str(tmp_path / file.name)
        Path(source).write_text(file.text, encoding="utf-8")
    given = [word for name, value in file.given.items() for word in (f"--{name}", str(value))]
    code = main(["import", file.kind, source, "--", *given])
    out, err = capsys.readouterr()
    if code:
        assert code == 2 and out == "" and "Traceback" not in err
        raise HpoError(err)
    return out


def test_enough_import_examples_exist():
    assert len(files.FILES) >= 60
    assert sum(isinstance(file.expected, str) for file in files.FILES.values()) >= 15


NEEDS = {"zoo_lunar_lander": ["Box2D"], "zoo_merged": ["Box2D"], "arlbench_incumbent": ["Box2D"],
         "zoo_policy_kwargs": ["mujoco", "imageio"]}  # fmt: skip
"""Packages of the extra `gym` that the environments of some files are made with."""


def skip_without_its_package(name):
    """Not by `importorskip`: Box2D cannot be imported where warnings are errors."""
    for package in NEEDS.get(name, []):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.parametrize("name", files.FILES)
def test_imported_file_passes_check_or_is_refused(name, tmp_path, capsys):
    skip_without_its_package(name)
    file = files.FILES[name]
    if isinstance(file.expected, str):
        with pytest.raises(HpoError, match=f"(?s){file.expected}"):
            imported(tmp_path, capsys, file)
        return
    text = imported(tmp_path, capsys, file)
    report = check(loads(text))
    assert not report.mistakes, report.text()
    assert file.note in " ".join(text.split())
    data = plain(read_text(text, "study.yaml"))
    for key, value in file.expected.items():
        found = data
        for part in key.split("."):
            found = found[part]
        assert found == value and type(found) is type(value), key


@pytest.mark.parametrize("name", trained.TRAINS)
def test_imported_hyperparameters_equal_those_of_the_source(name, tmp_path, capsys):
    skip_without_its_package(name)
    env_steps, trains = trained.TRAINS[name]
    study = loads(imported(tmp_path, capsys, files.FILES[name]))
    assert study.env_steps == env_steps and not study.space.parameters
    whole = complete(study.fixed)
    assert {knob: whole[knob] for knob in trains} == trains
    for knob in set(study.fixed) - set(trains):
        assert knob in ("num_layers", "hidden_size", "network", "priority_over"), knob


def test_reference_tables_list_every_hyperparameter():
    """A knob missing from the tables is off, belongs to one that is off, or to other networks."""
    quiet = ("vf_", "masking", "valid_mass", "average_reward", "lr_warmup", "ent_schedule_mult",
             "gae_lambda_", "cnn_", "log_std_m", "action_", "anneal_", "priority_", "sgd_",
             "muon_", "lr_decay", "off_policy", "ent_end", "clip_eps_end", "lr_end",
             "gradient_acc", "matmul", "distribution", "log_std_init", "observation_clip",
             "num_layers", "hidden_size", "recurrent", "shadow_")  # fmt: skip
    named = set(trained.PLAIN) | {
        "learning_rate",
        "num_envs",
        "rollout_length",
        "minibatch_size",
        "num_minibatches",
        "update_epochs",
        "vf_coef",
    }
    rest = {
        name
        for name, knob in KNOBS.items()
        if name not in named
        and not name.startswith(quiet)
        and not (knob.networks and "mlp" not in knob.networks)
    }
    assert rest == set()


def test_space_flag_adds_search_space_around_one_configuration(tmp_path, capsys):
    source = tmp_path / "ppo.yml"
    source.write_text(files.texts.ZOO)
    out = tmp_path / "study.yaml"
    code = main(
        ["import", "rlzoo", str(source), "--env", "CartPole-v1", "--space", "--to", str(out)]
    )
    assert code == 0, capsys.readouterr().err
    study = loads(out.read_text())
    assert study.space.default()["gamma"] == 0.98 and study.space.default()["update_epochs"] == 20
    assert study.fixed["lr_schedule"] == "linear" and study.budget.trials == 64
    assert study.confirm is not None and study.confirm.report == 16
    assert not check(study).mistakes
    out.unlink()
    code = main(
        [
            "import",
            "rlzoo",
            str(source),
            "--env",
            "CartPole-v1",
            "--space",
            "--to",
            str(out),
            "--",
            "--budget.trials",
            "128",
            "--search.method",
            "random",
            "--early_terminate.min",
            "10k",
            "--gamma",
            "1.0",
        ]
    )
    assert code == 0, capsys.readouterr().err
    study = loads(out.read_text())
    assert (study.budget.trials, study.search.method) == (128, "random")
    assert (study.early_terminate.min, study.early_terminate.type) == (10_000, "asha")
    assert study.fixed["gamma"] == 1.0 and "gamma" not in study.space.names
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(files.texts.CLEANRL_SWEEP)
    assert main(["import", "wandb", str(sweep), "--space"]) == 2
    assert "already has a search space" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "name", "text", "told"),
    [
        ("sb3", "x.yaml", "env: CartPole-v1\nnet_arch: {a: 1}\n", "not a pair of towers"),
        ("sb3", "x.yaml", "env: CartPole-v1\nlearning_rate: lin_1e999\n", "not a schedule"),
        ("sb3", "x.yaml", "- 1\n", "not a mapping"),
        ("sb3", "x.yaml", "a: !!python/object/apply:os.system [x]\n", "not plain YAML"),
        ("sb3", "x.yaml", "[" * 60 + "]" * 60, "nested deeper than 50 levels"),
        ("rejax", "x.yaml", "a: &a [1]\n" + "b: *a\n" * 201, "too large"),
        ("rejax", "x.json", "{", "not JSON"),
        ("rlzoo", "ppo.yml", "CartPole-v1: 3\n", "name its environment"),
        ("rlzoo", "ppo.yml", "CartPole-v1: {}\nAcrobot-v1: 3\n", "2 environments"),
        ("rlzoo", "ppo.py", "import os\n", "expected: a plain dictionary"),
        ("rlzoo", "ppo.py", "(", "not Python"),
        ("lerax", "x.py", "PPO(learning_rate=schedule(1))", "x.py:1: learning_rate is schedule"),
        ("cleanrl", "x.txt", "--a 'b", "split into words"),
        ("arlbench", "x.txt", "python a.py --seed='\x1b[31mx'", "whole number"),
    ],
)
def test_unreadable_input_is_refused_in_one_line(kind, name, text, told, tmp_path, capsys):
    file = files.File(kind, name, text, told)
    with pytest.raises(HpoError, match=told) as refusal:
        imported(tmp_path, capsys, file)
    assert str(refusal.value).count("\n") == 1 and "\x1b" not in str(refusal.value)


def test_import_does_not_execute_python_files(tmp_path, capsys):
    made = tmp_path / "made"
    text = f"open({str(made)!r}, 'w')\nconfig = {{'LR': 1e-3, 'NUM_STEPS': 64}}\n"
    imported(tmp_path, capsys, files.File("purejaxrl", "x.py", text, {}))
    assert not made.exists()
