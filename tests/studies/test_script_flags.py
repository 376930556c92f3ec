"""`hpo init --command`: the flags of a script, read without running it."""

from pathlib import Path

import pytest

from hpo.cli import main
from hpo.errors import ConfigError
from hpo.studies.load import load
from hpo.studies.script_flags import ScriptFlag, command_init_text, flags_of_script

ARGPARSE = """
raise SystemExit("it was run")
parser.add_argument("-l", "--lr", type=float, default=3e-4)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--steps", type=int, default=20_000)
parser.add_argument("--name", default=os.getcwd())
parser.add_argument("--quiet", action="store_true")
"""
TYRO = """
@dataclass
class Args:
    seed: int = 1
    total_timesteps: int = 500000
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    anneal_lr: bool = True
    batch_size: int = 0
"""
CLICK = """
@click.command()
@click.option("--dropout", default=0.1)
@click.option("--shuffle/--no-shuffle", default=True)
def main(dropout, shuffle): ...
"""


def test_argparse_dataclass_and_click_flags_are_read():
    found = {flag.flag: flag.default for flag in flags_of_script(ARGPARSE)}
    assert found == {
        "--lr": 3e-4, "--hidden": 64, "--seed": 1, "--steps": 20_000, "--name": None,
        "--quiet": None,
    }  # fmt: skip
    found = {flag.flag: flag.default for flag in flags_of_script(TYRO)}
    assert found["--learning-rate"] == 2.5e-4
    assert list(found)[-2:] == ["--anneal-lr", "--batch-size"]
    assert flags_of_script(CLICK) == [ScriptFlag("--dropout", 0.1), ScriptFlag("--shuffle", True)]


def test_the_study_of_a_script_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(ARGPARSE)
    assert main(["init", "--command", "python train.py", "--to", "study.yaml"]) == 0
    study = load("study.yaml")
    assert study.command == (
        "python train.py --lr {lr} --hidden {hidden} --seed {seed} --steps {length}"
    )
    assert study.env_steps == 20_000
    assert study.default() == {"lr": 3e-4, "hidden": 64}


HYDRA = """
import hydra

@hydra.main(config_path="conf", config_name="config", version_base=None)
def main(config): ...
"""
CONFIG = {
    "config.yaml": "defaults: [config, _self_, optimizer: adam, env/physics: fast]\n"
    "seed: 1\ntotal_timesteps: 20000\n"
    "hydra: {run: {lr: 3}}\nname: ${seed}\n",
    "optimizer/adam.yaml": "lr: 1e-3\nbetas: [0.9, 0.99]\n",
    "env/physics/fast.yaml": "# @package _global_\nmodel: {hidden: 64}\ngamma: 0.99\n",
}


def hydra_script(folder, text=HYDRA):
    (folder / "train.py").write_text(text)
    for name, content in CONFIG.items():
        path = folder / "conf" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_keys_of_a_hydra_configuration_are_flags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hydra_script(tmp_path)
    found = {flag.flag: flag.default for flag in flags_of_script(HYDRA, tmp_path)}
    assert found == {
        "optimizer.lr": 1e-3, "optimizer.betas": [0.9, 0.99], "model.hidden": 64, "gamma": 0.99,
        "seed": 1, "total_timesteps": 20_000, "name": "${seed}",
    }  # fmt: skip
    command = "python train.py gamma=0.9"
    assert main(["init", "--command", command, "--to", "study.yaml"]) == 0
    study = load("study.yaml")
    assert study.command == (
        f"{command} optimizer.lr={{optimizer_lr}} model.hidden={{model_hidden}} seed={{seed}} "
        "total_timesteps={length} hydra.run.dir={folder}"
    )
    assert study.env_steps == 20_000
    assert study.default() == {"optimizer_lr": 1e-3, "model_hidden": 64}


def test_a_structured_hydra_configuration_is_a_dataclass(tmp_path):
    script = HYDRA.replace('config_path="conf"', "config_path=None")
    (tmp_path / "train.py").write_text(f"{TYRO}\n{script}")
    made = command_init_text("python train.py", tmp_path)
    assert "train.py learning_rate={learning_rate} gamma={gamma} seed={seed}" in made
    assert "total_timesteps={length} hydra.run.dir={folder}" in made


def test_flags_that_the_command_gives_are_not_searched(tmp_path):
    (tmp_path / "train.py").write_text(TYRO)
    text = command_init_text("python train.py --gamma 0.9", tmp_path)
    assert "--gamma 0.9 --learning-rate {learning_rate} --seed {seed}" in text
    assert "{gamma}" not in text
    assert "batch_size" not in text.partition("space:")[2]  # its default is computed


def test_the_line_of_the_metric_asks_for_a_change(tmp_path):
    (tmp_path / "train.py").write_text(TYRO)
    lines = command_init_text("python train.py", tmp_path).splitlines()
    (metric,) = [line for line in lines if line.startswith("metric:")]
    assert metric.endswith("# change to a metric of the script")


@pytest.mark.parametrize(
    ("text", "command", "words"),
    [
        ("print(1)\n", "python train.py", "train.py has no numeric flag to search"),
        ("", "python trane.py", r"^trane\.py does not exist; did you mean train\.py\?$"),
        ("", "python a/train.py", "'python a/train.py' names no Python file here"),
        ("", "python zzz.py", "'python zzz.py' names no Python file here"),
        ("", "python -m train", "names no Python file here"),
        ("def (\n", "python train.py", "line 1: "),
    ],
)
def test_a_script_without_flags_is_refused(tmp_path, text, command, words):
    (tmp_path / "train.py").write_text(text)
    with pytest.raises(ConfigError, match=words):
        command_init_text(command, tmp_path)
