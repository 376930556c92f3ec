"""The page about adding an importer: its table imports the files that it names."""

import pytest
import yaml

from helpers.doc_blocks import block
from hpo.errors import ConfigError
from hpo.foreign_names.tables import KINDS, SYSTEMS
from hpo.importers.readers import read_settings
from hpo.importers.wandb_sweeps import read_sweep

PAGE = "docs/reference/add-importer.md"


@pytest.fixture
def tiny(monkeypatch):
    one = block(PAGE, "TINY = System(").run()["TINY"]
    monkeypatch.setitem(SYSTEMS, one.name, one)
    return one


def imported(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    draft = read_settings(str(tmp_path / name), "tinyppo", {})
    return yaml.safe_load(draft.text()), draft


def test_data_file_import_fills_in_table_defaults(tiny, tmp_path):
    study, draft = imported(tmp_path, "config.yaml", "lr: 3e-4\nhorizon: 128\n")
    assert study["env"] == "CartPole-v1" and study["env_steps"] == 100 * 128 * 8
    fixed = {"learning_rate": 3e-4, "rollout_length": 128, "normalise_rewards": False}
    assert fixed.items() <= study["fixed"].items()
    assert "rollouts: 100 of 128 steps in 8 environments" in draft.notes


def test_command_import_recognises_the_program(tiny, tmp_path):
    study, draft = imported(tmp_path, "run.sh", "python -m tinyppo --workers 4 --rollouts 50\n")
    assert study["env_steps"] == 50 * 64 * 4 and draft.system is tiny


def test_a_refused_name_stops_the_import_with_its_reason(tiny, tmp_path):
    with pytest.raises(
        ConfigError, match=r"curiosity \(0\.1\) cannot be imported: a bonus for new"
    ):
        imported(tmp_path, "train.py", "train(lr=3e-4, curiosity=0.1)\n")
    study, _ = imported(tmp_path, "train.py", "train(lr=3e-4, curiosity=False)\n")
    assert study["fixed"]["learning_rate"] == 3e-4


def test_searched_name_used_in_env_steps_formula_is_refused(tiny, tmp_path):
    sweep = {"method": "grid", "parameters": {"horizon": {"values": [32, 64]}}}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    text = "horizon is searched, which counts env steps with rollouts, workers; import the sweep"
    with pytest.raises(ConfigError, match=text):
        read_sweep(tmp_path / "sweep.yaml", {"system": "tinyppo"})


def test_every_system_family_has_an_import_kind():
    assert {one.family for one in SYSTEMS.values()} <= set(KINDS)
    assert len(set(KINDS)) == len(KINDS)
