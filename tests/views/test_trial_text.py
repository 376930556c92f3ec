import json
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

from hpo.errors import StoreError
from hpo.store.study_folder import StudyFolder
from hpo.views.trial_text import trial_data, trial_text

samples = SimpleNamespace(**run_path(str(Path(__file__).with_name("samples.py"))))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return samples.make_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def folder(results):
    return StudyFolder(results.folder)


def of_state(results, state):
    return next(e.trial for e in results.leaderboard if str(e.state) == state and not e.confirmed)


def test_the_winner_has_everything(results, folder):
    data = trial_data(folder, results.best.trial)
    assert data["rank"] == 1 and data["confirmed"] and data["value_from"] == "report"
    assert len(data["report_values"]) == 6 and len(data["choose_values"]) == 5
    assert [row["action"] for row in data["decisions"]] == ["continue"] * 2
    streams = [(row["stream"], row["replicate"]) for row in data["evaluations"]]
    assert streams.count(("search", 0)) == 3  # two rungs and the end
    assert {name for name, _ in streams} == {"search", "choose", "report"}
    text = trial_text(data)
    for words in ("confirmed, rank 1 of 24", "6 fresh seeds that did not select it",
                  "learning_rate", "decisions at rungs", "report",
                  "search     2 seeds: "):  # fmt: skip
        assert words in text


def test_every_trial_is_json_and_fits_eighty_columns(results, folder):
    for entry in results.leaderboard:
        data = trial_data(folder, entry.trial)
        json.dumps(data, allow_nan=False)
        assert max(map(len, trial_text(data).splitlines())) <= 100


def test_a_stopped_trial_says_by_whom(results, folder):
    data = trial_data(folder, of_state(results, "stopped"))
    assert data["value"] is None and data["decisions"][-1]["action"] == "stop"
    assert "stopped    by asha" in trial_text(data)
    waits = trial_text({**data, "state": "paused"})
    assert "paused     by asha" in waits and "stopped    by" not in waits


def test_a_diverged_trial_has_no_value(results, folder):
    text = trial_text(trial_data(folder, of_state(results, "diverged")))
    assert ": diverged, rank" in text and "value  " not in text


def test_the_means_are_those_of_the_episodes(results, folder):
    from hpo.store.query import query

    trial = results.best.trial
    for row in trial_data(folder, trial)["evaluations"]:
        _, found = query(
            folder.path,
            "SELECT avg(episode_return), min(episode_return), count(*) FROM evaluations WHERE "
            f"trial = {trial} AND stream = '{row['stream']}' AND replicate = {row['replicate']} "
            f"AND env_steps = {row['env_steps']}",
        )
        mean, least, count = found[0]
        assert row["return_mean"] == pytest.approx(mean)
        assert (row["return_min"], row["episodes"]) == (least, count)


def test_an_unknown_trial_is_refused_with_those_there_are(folder):
    with pytest.raises(StoreError, match=r"no trial 99; its trials are 0 to 23"):
        trial_data(folder, 99)


def test_before_the_tables_are_published_there_is_no_curve(results, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(results.folder, copy)
    (copy / "curves.parquet").unlink()
    data = trial_data(StudyFolder(copy), 0)
    assert data["curve"] == []
    trial_text(data)


def test_a_curve_is_drawn_with_blocks_or_without():
    data = {
        **dict.fromkeys(("stop_rule", "error"), ""),
        "trial": 1, "study": "s", "confirmed": False, "state": "running", "rank": 1, "trials": 1,
        "value": None, "report_values": [], "choose_values": [], "seed_values": [], "params": {},
        "proposed_by": "random", "batch": 0, "bucket": "b", "env_steps": 10, "eval_env_steps": 0,
        "warmup_env_steps": 0, "started_at": None, "ended_at": None, "decisions": [],
        "evaluations": [], "schedule": [],
        "curve": [{"env_steps": at, "episode_return": value}
                  for at, value in ((10, None), (20, 1.0), (30, 9.0))],
    }  # fmt: skip
    assert "1  ▁█ 9" in trial_text(data)
    assert trial_text(data, blocks=False).isascii()
