"""Views of a study over several environments: scores, and returns of one environment at a time."""

import json
from pathlib import Path
from runpy import run_path
from statistics import fmean
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from hpo.cli import main
from hpo.search.run import run
from hpo.store.study_folder import StudyFolder
from hpo.studies.spec import Budget, Confirm
from hpo.views.charts import curves_chart
from hpo.views.charts.snapshot import read_snapshot

_TESTS = Path(__file__).parents[1]
engine = SimpleNamespace(
    **run_path(str(_TESTS / "search" / "engine" / "test_several_environments.py"))
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve trials on three environments, two seeds each; the winner on six fresh ones."""
    confirm = Confirm(top_k=2, choose=2, report=6)
    asked = engine.several(budget=Budget(trials=12), confirm=confirm)
    path = tmp_path_factory.mktemp("results") / asked.name
    run(asked, path, engine.factory(asked), (), engine.samples.quick())
    return path


def shown(capsys, *words):
    assert main([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def winner(capsys, folder):
    return shown(capsys, "best", "--study", folder)


def test_a_trial_shows_the_returns_of_each_environment(capsys, folder):
    best = winner(capsys, folder)["trial"]
    data = shown(capsys, "show", best, "--study", folder)
    episodes = pq.read_table(folder / "evaluations.parquet").to_pylist()
    report = [one for one in data["evaluations"] if one["stream"] == "report"]
    assert len(report) == 3 * 6
    for one in report:
        keys = ("environment", "stream", "replicate", "env_steps")
        own = [row["episode_return"] for row in episodes
               if row["trial"] == best and all(row[key] == one[key] for key in keys)]  # fmt: skip
        assert one["episodes"] == len(own) and one["return_mean"] == pytest.approx(fmean(own))
    assert main(["show", str(best), "--study", str(folder)]) == 0
    text = capsys.readouterr().out
    assert all(f"\non {name}\nevaluated" in text for name in engine.IDS)
    assert max(map(len, text.splitlines())) <= 80


def test_each_environment_has_its_own_panel_of_training(capsys, folder, monkeypatch):
    columns = pq.read_schema(folder / "curves.parquet").names
    shown_there = next(name for name in columns if name in ("loss", "skill"))
    monkeypatch.setattr(curves_chart, "_RETURN", shown_there)
    picture = curves_chart.curves(read_snapshot(StudyFolder(folder)))
    titles = [panel.title for panel in picture.panels]
    assert titles == [*(f"In training on {name}" for name in engine.IDS), "In evaluations"]
    best = winner(capsys, folder)["trial"]
    for panel in picture.panels[:3]:
        key = next(key for key in panel.keys if key.label.startswith(f"trial {best} "))
        assert key.label == f"trial {best} (8 seeds)"  # those that choose and that report
    assert picture.panels[-1].y.label == "score"


def test_an_exported_policy_is_a_folder_an_environment(capsys, folder, tmp_path):
    assert main(["best", "--study", str(folder), "--export", str(tmp_path / "policy")]) == 0
    told = capsys.readouterr().err
    assert "wrote the policy of trial" in told
    first = sorted(engine.IDS)[0]
    assert f"try: hpo eval {tmp_path / 'policy' / first}" in " ".join(told.split())
