import json
from pathlib import Path

from hpo.cli import main
from hpo.environments.table import ENVIRONMENTS
from hpo.knobs import KNOBS
from hpo.store.study_folder import StudySummary
from hpo.views.commands.catalogue import (
    envs_data,
    envs_listing,
    knobs_data,
    knobs_listing,
    studies_listing,
)


def test_listings_cover_all_knobs_and_environments():
    assert [row[0] for row in knobs_listing().rows] == list(KNOBS)
    assert [row[0] for row in envs_listing().rows] == list(ENVIRONMENTS)


def test_listing_json_contains_no_infinities():
    knobs = json.loads(json.dumps(knobs_data(), allow_nan=False))
    rate = next(knob for knob in knobs if knob["name"] == "learning_rate")
    assert rate["low"] == 0.0 and rate["high"] is None and rate["traced"] is True
    envs = json.loads(json.dumps(envs_data(), allow_nan=False))
    assert envs[0]["id"] == "CartPole-v1" and envs[0]["params"]["gravity"] == 9.8


def test_study_listing_shows_time_since_last_change():
    one = StudySummary("a", "running", 10, 4, 1.5, "eval/return_mean", 1000.0, Path("results/a"))
    bad = StudySummary("b", "damaged", 0, 0, None, "", None, Path("results/b"), "is damaged")
    rows = studies_listing([one, bad], now=1090.0).rows
    assert rows[0] == ["a", "running", "4 of 10", "1.5", "eval/return_mean", "1m30s ago"]
    assert rows[1] == ["b", "damaged", "0 of 0", "-", "", ""]


def test_listing_lines_fit_the_terminal_width():
    lines = knobs_listing().cropped(80).splitlines()
    assert lines[0].split() == ["hyperparameter", "default", "range", "meaning"]
    assert len(lines) == len(KNOBS) + 2 and max(map(len, lines)) <= 80
    rate = next(line for line in lines if line.startswith("learning_rate "))
    assert rate.split()[:4] == ["learning_rate", "0.001", ">", "0"]
    lines = envs_listing().cropped(80).splitlines()
    assert len(lines) == len(ENVIRONMENTS) + 2 and max(map(len, lines)) <= 80


def test_knobs_lists_common_ones_and_details_by_name(capsys):
    assert main(["knobs"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 23 and f"{len(KNOBS) - 20} more: hpo knobs --all" in out
    assert main(["knobs", "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(KNOBS) + 2
    assert main(["knobs", "gamma"]) == 0
    out = capsys.readouterr().out
    assert "a number from 0 to 1" in out and "discount" in out
    assert main(["envs", "Pendulum-v1"]) == 0
    assert "env.max_torque" in capsys.readouterr().out


def test_search_word_filters_knobs_and_environments(capsys):
    assert main(["knobs", "GAE", "--json"]) == 0
    names = [knob["name"] for knob in json.loads(capsys.readouterr().out)]
    assert "gae_lambda" in names and "learning_rate" not in names
    assert main(["knobs", "PRIO_ALPHA", "--json"]) == 0  # XLRON's name
    assert [knob["name"] for knob in json.loads(capsys.readouterr().out)] == ["priority_alpha"]
    assert main(["knobs", "lr", "--json"]) == 0
    assert "learning_rate" in {knob["name"] for knob in json.loads(capsys.readouterr().out)}
    assert main(["envs", "minatar", "--json"]) == 0
    ids = [env["id"] for env in json.loads(capsys.readouterr().out)]
    assert len(ids) == 5 and all("MinAtar" in id_ for id_ in ids)
    assert main(["envs", "gym:CartPole-v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["id"] == "gym:CartPole-v1"
    assert main(["knobs", "nothing of the kind"]) == 2
    assert "no hyperparameter has 'nothing of the kind'" in capsys.readouterr().err
    assert main(["envs", "Lunar"]) == 2  # gym:LunarLander-v3 exists
    assert "to list all: hpo envs; for Gymnasium: gym:<id>" in capsys.readouterr().err
