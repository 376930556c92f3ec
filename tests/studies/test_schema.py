import re
from pathlib import Path

import jsonschema
import pytest

import hpo
from hpo.environments.table import ENVIRONMENTS
from hpo.studies.init_file import init_text
from hpo.studies.load import loads
from hpo.studies.resolved import resolved
from hpo.studies.schema import schema
from hpo.studies.yaml_io import plain, read_file, read_text

SHIPPED = sorted((Path(hpo.__file__).parent / "studies").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(schema())
BASE = "env: CartPole-v1\nenv_steps: 200k\n"


def errors(text):
    return [error.message for error in VALIDATOR.iter_errors(plain(read_text(text, "x")))]


def test_schema_is_valid_json_schema():
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_and_resolved_studies_match_schema(path):
    if path.stem.startswith("rejax"):
        pytest.importorskip("rejax")
    study = loads(path.read_text(), source=path.parent)
    validator = jsonschema.Draft202012Validator(schema(study.algorithm))
    assert list(validator.iter_errors(plain(read_file(path, path.name)))) == []
    assert list(validator.iter_errors(resolved(study))) == []


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_starter_files_load_and_match_schema(env):
    text = init_text(env)
    assert loads(text).env.id == env
    assert errors(text) == []


def test_starter_file_searches_normalisation_for_numeric_observations():
    assert "normalise_observations" in loads(init_text("CartPole-v1")).space.names
    assert "normalise_observations" not in loads(init_text("rmsa")).space.names


def test_commented_suggestions_in_starter_file_are_valid():
    text = init_text("CartPole-v1")
    lines = [
        line.replace("  # ", "  ", 1) if line.startswith("  # ") and "{" in line else line
        for line in text.splitlines()
    ]
    wide = "\n".join(lines)
    assert loads(wide).space.names != loads(text).space.names
    assert errors(wide) == []


@pytest.mark.parametrize(
    "extra",
    [
        "env_stepss: 3\n",
        "fixed: {gama: 0.9}\n",
        "fixed: {num_envs: 0}\n",
        "fixed: {activation: Tanh}\n",
        "space: {gama: {min: 0.1, max: 0.9}}\n",
        "space: {gamma: {mni: 0.1, max: 0.9}}\n",
        "space: {gamma: {min: 0.1, max: 0.9, distribution: unifrm}}\n",
        "space: {gamma: {min: 0.1, distribution: uniform}}\n",
        "space: {gamma: {min: 0.1, max: 0.9, sigma: 1, distribution: uniform}}\n",
        "space: {file: spaces/ppo.yaml, overide: {}}\n",
        "search: {method: tpee}\n",
        "search: {options: {point: 3}}\n",
        "early_terminate: {min: 3}\n",
        "budget: {wall: soon}\n",
        "seeds: {per_config: 0}\n",
        "loggers: [{type: csvv}]\n",
        "confirm: {topk: 3}\n",
        "seed: '1'\n",
    ],
)
def test_misspelt_files_are_not_valid(extra):
    assert errors(BASE) == []
    assert errors(BASE + extra) != []


@pytest.mark.parametrize(
    "extra",
    [
        "fixed: {optimizer: adamw, normalize_rewards: true, num_envs: 1k, target_kl: off}\n",
        "space: {env.length: {min: 0.4, max: 0.6}}\n",
        "space: {gamma: [{min: 0.1, max: 0.9, when: {activation: tanh}}]}\n",
        "space: {file: spaces/ppo.yaml, override: {gamma: null}}\n",
        "early_terminate: null\nconfirm: null\n",
        "budget: {trials: null, env_steps: 1M, wall: 2h}\n",
        "search: {method: grid, options: {points: {gamma: 3}}}\nspace: {gamma: {value: 0.9}}\n",
        "loggers: [csv, {type: console}]\n",
    ],
)
def test_whatever_loads_is_valid(extra):
    loads(BASE + extra)
    assert errors(BASE + extra) == []


COMMAND = (
    "command: python a.py {x} {layers} {seed}\nlength: 10 epochs\nmetric: {name: loss}\n"
    "space: {x: {min: 1e-5, max: 1}, layers: [{values: [a, b], when: {x: 1}}]}\n"
)
PAGE = Path(__file__).resolve().parents[2] / "docs" / "training-script.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.S)


@pytest.mark.parametrize("text", [one for one in BLOCKS if "command:" in one])
def test_studies_of_a_command_are_valid_in_both_forms(text):
    assert errors(text) == []
    assert list(VALIDATOR.iter_errors(resolved(loads(text)))) == []


@pytest.mark.parametrize(
    "extra",
    [
        "executor: {type: ray, address: auto}\nprocesses: {gpus: 0.5, threads: 2}\n",
        "executor: {type: slurm, time: 4h, options: {mem: 8G}, setup: module load cuda}\n"
        "processes: {at_once: 8, timeout: 2h}\n",
        "confirm: {default: {x: 0.5, layers: a}, report: 4}\n",
        "confirm: {default: false}\nmetrics: {type: csv, step: t}\nresume: ... --load\n",
        "fixed: {y: [64, 64]}\nforbid: [x < y]\n".replace("x < y", "{layers: a}"),
    ],
)
def test_whatever_loads_of_a_command_is_valid(extra):
    text = COMMAND.replace("{seed}", "{seed} {y}") if "fixed" in extra else COMMAND
    loads(text + extra)
    assert errors(text + extra) == []


@pytest.mark.parametrize(
    "extra",
    [
        "executor: {type: slrum}\n",
        "executor: {partion: gpu}\n",
        "processes: {at_onse: 4}\n",
        "metrics: {type: tensorbord}\n",
        "confirm: {defaults: {x: 1}}\n",
        "population_size: 3\n",
        "budget: {wall: soon}\n",
    ],
)
def test_misspelt_studies_of_a_command_are_not_valid(extra):
    assert errors(COMMAND) == []
    assert errors(COMMAND + extra) != []


def test_a_study_of_a_command_needs_a_metric_and_a_length():
    for key in ("length", "metric"):
        lines = [line for line in COMMAND.splitlines() if not line.startswith(f"{key}:")]
        assert errors("\n".join(lines)) != []
