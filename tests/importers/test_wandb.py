import re
from pathlib import Path

import pytest

from helpers import imported_sweeps as sweeps
from hpo.cli import main
from hpo.errors import HpoError
from hpo.importers.wandb_sweeps import read_sweep
from hpo.studies.load import load, loads
from hpo.studies.yaml_io import plain, read_text
from hpo.views.words import on_command_line


def imported(tmp_path, text, **given):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    draft = read_sweep(path, given)
    draft.override(given)
    return draft, draft.text()


def test_at_least_thirty_example_sweeps_exist():
    assert len(sweeps.SWEEPS) >= 30
    assert len({text for text, _ in sweeps.SWEEPS.values()}) == len(sweeps.SWEEPS)


@pytest.mark.parametrize("name", sweeps.SWEEPS)
def test_a_sweep_becomes_a_study_or_is_refused_with_a_reason(name, tmp_path):
    text, expected = sweeps.SWEEPS[name]
    if isinstance(expected, str):
        with pytest.raises(HpoError) as told:
            imported(tmp_path, text)
        assert re.search(expected, on_command_line(told.value))
        return
    draft, written = imported(tmp_path, text)
    loads(written)  # it is a study
    data = plain(read_text(written, "study.yaml"))
    for key, value in expected.items():
        if key == "left_out":
            assert any(item.startswith(value) for item in draft.left_out)
            assert value in written  # in the head of the file
            continue
        section, _, inner = key.partition(".")
        found = data[section] if not inner else data[section][inner]
        assert found == value


def test_flags_after_dashes_override_the_sweep(tmp_path):
    text, _ = sweeps.SWEEPS["a_metric_of_no_counterpart"]
    given = {"metric": "eval/return_mean", "env": "Acrobot-v1", "gamma": "0.95", "lr": "1e-3",
             "budget.trials": "7"}  # fmt: skip
    _, written = imported(tmp_path, text, **given)
    study = loads(written)
    assert study.env.id == "Acrobot-v1" and study.budget.trials == 7
    assert study.fixed["gamma"] == 0.95 and study.fixed["learning_rate"] == 1e-3
    assert study.metric.goal == "maximize" and not study.space.parameters


def test_given_flag_without_counterpart_is_refused(tmp_path):
    with pytest.raises(HpoError, match="dropout is given, but"):
        imported(tmp_path, sweeps.SWEEPS["uniform"][0], dropout="0.1")


def test_sweep_without_environment_suggests_env_flag(tmp_path):
    text = "method: random\nparameters: {gamma: {values: [0.9, 0.99]}}\n"
    with pytest.raises(HpoError, match="no environment is named; name one") as told:
        imported(tmp_path, text)
    assert on_command_line(told.value).endswith(" (-- --env CartPole-v1)")


def test_without_flag_drops_one_of_two_conflicting_names(tmp_path):
    text, _ = sweeps.SWEEPS["two_names_that_end_alike"]
    draft, written = imported(tmp_path, text, without="critic.lr")
    bounds = loads(written).space.parameters[0].distribution
    assert (bounds.min, bounds.max) == (1e-5, 1e-4)
    assert "critic.lr: as requested" in draft.left_out


def test_integer_grid_covers_every_value(tmp_path):
    text, _ = sweeps.SWEEPS["a_grid_of_whole_numbers"]
    study = loads(imported(tmp_path, text)[1])
    tried = list(study.space.grid(study.search.options["points"]))
    assert len(tried) == 8 * 4 * 2 and {one["update_epochs"] for one in tried} == {*range(1, 9)}
    assert sorted({one["clip_eps"] for one in tried}) == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_dotted_keys_after_dashes_set_their_sections(tmp_path):
    text, _ = sweeps.SWEEPS["uniform"]
    given = {"executor.type": "ray", "executor.workers": "4", "env": "Pendulum-v1",
             "eval_env.m": "0.5"}  # fmt: skip
    study = loads(imported(tmp_path, text, **given)[1])
    assert (study.executor.type, study.executor.workers) == ("ray", 4)
    assert study.evaluation.env == {"m": 0.5} and study.env.values == {}


PROGRAM_SWEEP = """
program: train.py
method: bayes
metric: {name: val/acc, goal: maximize}
parameters:
  lr: {distribution: log_uniform_values, min: 0.001, max: 0.1}
  optimizer.name: {values: [adam, sgd]}
  note: {value: a b}
  seed: {values: [1, 2, 3]}
run_cap: 3
"""


def test_sweep_with_unknown_program_becomes_command_study(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(PROGRAM_SWEEP)
    Path("train.py").write_text("")
    assert main(["import", "wandb", "sweep.yaml", "--to", "study.yaml"]) == 0
    study = load("study.yaml")
    assert study.command == (
        "WANDB_MODE=offline WANDB_DIR={folder} python train.py --note='a b' --seed={seed} "
        "--lr={lr} --optimizer.name={optimizer.name}"
    )
    assert (study.metric.name, study.metric.goal) == ("val/acc", "maximize")
    assert (study.search.method, study.budget.trials) == ("tpe", 3)
    assert study.space.names == ("lr", "optimizer.name")
    assert study.seeds.per_config == 3
    said = capsys.readouterr().err
    assert "the number of seeds in the space (3) becomes seeds.per_config" in said
    assert "seed: each run of a trial gets a different value" in said


def test_hyperband_counts_logged_metrics(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = "early_terminate: {type: hyperband, max_iter: 27, s: 2, eta: 3}\ncommand: "
    words = '["${env}", "${interpreter}", -u, "${program}", "${args_no_hyphens}"]\n'
    Path("sweep.yaml").write_text(PROGRAM_SWEEP + more + words)
    Path("train.py").write_text("")
    assert main(["import", "wandb", "sweep.yaml", "--to", "study.yaml"]) == 0
    study = load("study.yaml")
    assert (study.env_steps, study.algorithm.unit) == (27, "logs")
    assert study.early_terminate.min == 3
    assert " python -u train.py note='a b' seed={seed} lr={lr} " in f"{study.command} "


PROGRAM_GRID = """
program: train.py
method: grid
metric: {name: acc, goal: maximize, target: 5}
parameters:
  layers: {distribution: int_uniform, min: 1, max: 20}
  drop: {distribution: q_uniform, min: 0, max: 0.5, q: 0.1}
early_terminate: {type: hyperband, max_iter: 9, s: 2, min_iter: 2, strict: true}
"""


@pytest.fixture
def import_program(tmp_path, monkeypatch, capsys):
    """Return a function that imports a sweep next to its program; it returns study and output."""
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(PROGRAM_GRID)
    Path("train.py").write_text("")

    def run(*words, code=0, to="study.yaml"):
        assert main(["import", "wandb", "sweep.yaml", "--to", to, *words]) == code
        said = capsys.readouterr().err
        if code:
            return None, said
        return load(to), said

    return run


def test_grid_of_program_sweep_tries_every_step(import_program):
    study, said = import_program()
    assert study.search.options["points"] == {"layers": 20, "drop": 6}
    for name in ("metric.target", "early_terminate.min_iter", "early_terminate.strict"):
        assert f"left out: {name}: " in said
        assert f"# left out: {name}: " in Path("study.yaml").read_text()


def test_flags_after_dashes_override_program_sweep(import_program):
    flags = ("--drop", "0.2", "--budget.trials", "5", "--confirm.report", "6", "--name", "mine")
    study, _ = import_program("--", *flags, "--length", "12 logs", "--without", "layers")
    assert study.command.endswith("python train.py --drop=0.2") and study.space.names == ()
    assert (study.name, study.budget.trials, study.env_steps) == ("mine", 5, 12)
    assert study.confirm is not None and study.confirm.report == 6


def test_unknown_flag_of_program_sweep_is_rejected(import_program):
    _, said = import_program("--", "--learning_rate", "0.2", code=2)
    assert "learning_rate is given, but is no parameter of the sweep" in said


def test_program_sweep_is_written_next_to_its_program(import_program, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    _, said = import_program(code=2, to="elsewhere/study.yaml")
    assert "which has no train.py; write it to study.yaml" in said
    _, said = import_program("--space", code=2)
    assert "already has a search space" in said


def test_env_flag_imports_program_sweep_as_ppo_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep = PROGRAM_SWEEP.replace("lr:", "learning_rate:")
    for line in ("  optimizer.name: {values: [adam, sgd]}\n", "  note: {value: a b}\n"):
        sweep = sweep.replace(line, "")
    Path("sweep.yaml").write_text(sweep.replace("val/acc", "return"))
    Path("train.py").write_text("")
    command = ["import", "wandb", "sweep.yaml", "--to", "study.yaml", "--", "--env", "CartPole-v1"]
    assert main([*command, "--without", "seed"]) == 0
    assert load("study.yaml").algorithm.is_ppo
