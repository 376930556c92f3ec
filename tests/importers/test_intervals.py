"""How often other programs log and save, in env steps: computed where the unit is known."""

import pytest

from hpo.cli import main
from hpo.studies.yaml_io import plain, read_text

ZOO = "CartPole-v1: {n_envs: 8, n_timesteps: 100000, policy: MlpPolicy, n_steps: 32, %s}\n"
SWEEP = "program: train.py\nmethod: random\nmetric: {name: eval/return_mean}\nparameters: {%s}\n"


def imported(tmp_path, capsys, kind, text):
    path = tmp_path / "given.yaml"
    path.write_text(text)
    assert main(["import", kind, str(path)]) == 0
    out, err = capsys.readouterr()
    return plain(read_text(out, "study.yaml")), err


@pytest.mark.parametrize("rollouts", [1, 4])
def test_sb3_log_interval_becomes_env_steps(tmp_path, capsys, rollouts):
    data, _ = imported(tmp_path, capsys, "rlzoo", ZOO % f"log_interval: {rollouts}")
    assert data["log_every"] == rollouts * 8 * 32


def test_zoo_log_interval_minus_one_sets_no_interval(tmp_path, capsys):
    data, _ = imported(tmp_path, capsys, "rlzoo", ZOO % "log_interval: -1, save_freq: -1")
    assert "log_every" not in data and "checkpoint" not in data


def test_zoo_save_freq_becomes_policies_every_env_steps(tmp_path, capsys):
    data, _ = imported(tmp_path, capsys, "rlzoo", ZOO % "save_freq: 20000")
    assert data["checkpoint"] == {"policies_every": 20_000}


def test_intervals_of_unknown_unit_are_left_out_with_reason(tmp_path, capsys):
    names = "env_id: {value: CartPole-v1}, lr: {min: 0.0001, max: 0.01}, log_interval: {value: 10}"
    data, told = imported(
        tmp_path, capsys, "wandb", SWEEP % f"{names}, save_interval: {{value: 5}}"
    )
    assert "log_every" not in data and "checkpoint" not in data
    assert "`log_every` counts env steps" in told and "policies_every" in told
