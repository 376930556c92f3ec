import json
from dataclasses import replace

import pytest

from helpers import view_samples as samples
from hpo.errors import StoreError
from hpo.store import study_folder
from hpo.store.journal import Journal
from hpo.store.leaderboard import leaderboard
from hpo.store.rows import REFERENCE_TRIAL, TrialState
from hpo.store.study_folder import StudyFolder
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Confirm, Metric
from hpo.views.formatting import number, steps
from hpo.views.trial_page import ReturnPoint, trial_page
from hpo.views.trial_text import trial_text


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return samples.make_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def folder(results):
    return StudyFolder(results.folder)


def seen(page, **changes):
    """Return a page of a trial that the screens see otherwise."""
    return replace(page, view=replace(page.view, **changes))


def of_state(results, state):
    return next(e.trial for e in results.leaderboard if str(e.state) == state and not e.confirmed)


def test_show_of_the_winner_has_stages_decisions_and_rank(results, folder):
    page = trial_page(folder, results.best.trial)
    data = page.as_json()
    assert data["rank"] == 1 and data["confirmed"] and data["value_from"] == "report"
    assert len(data["report_values"]) == 6 and len(data["choose_values"]) == 5
    assert [row["action"] for row in data["decisions"]] == ["continue"] * 2
    streams = [(row["stream"], row["replicate"]) for row in data["evaluations"]]
    assert streams.count(("search", 0)) == 3  # two rungs and the end
    assert {name for name, _ in streams} == {"search", "choose", "report"}
    text = trial_text(page)
    first = text.splitlines()[0]
    assert first.startswith(f"Trial {results.best.trial} is the default and the winner: ")
    assert first.endswith(" on 6 test seeds.")
    first = trial_text(seen(page, is_default=False)).splitlines()[0]
    assert first.startswith(f"Trial {results.best.trial} is the winner: ")
    assert first.endswith(" on 6 test seeds (rank 1 of 24).")
    stages = [line.split()[:3] for line in text.splitlines() if line[:6] in _STAGES]
    assert [stage for stage, _, _ in stages] == ["search"] * 3 + ["select", "test"]
    assert [seeds for _, _, seeds in stages] == ["2", "2", "2", "5", "6"]
    assert "learning_rate" in text and "continued, " in text and "chosen" in text
    assert len(text.splitlines()) <= 15 and "bucket" not in text and "batch" not in text
    stopped = seen(
        page,
        is_default=False,
        is_confirmed=False,
        state=TrialState.STOPPED,
        stop="asha eta=2 with a long name of its own",
    )
    head = trial_text(stopped).split("\n\n")[0]
    assert "was stopped by asha" in head and max(map(len, head.splitlines())) <= 80
    more = trial_text(page, verbose=True)
    for words in ("search     2 seeds: ", "bucket", "proposed   by", "cut-off", "study time"):
        assert words in more
    details = ["Of the trials", "that its seeds chose from " * 4]
    long = replace(page, verdict=replace(page.verdict, details=details))
    more = trial_text(long, verbose=True)
    assert "\n           that its" in more and "\n            " not in more.split("verdict")[1]


_STAGES = ("search", "select", "test  ")


def test_stage_rows_show_mean_worst_and_best_seed(results, folder):
    page = trial_page(folder, results.best.trial)
    text = trial_text(page)
    (test,) = (line.split() for line in text.splitlines() if line.startswith("test  "))
    values = page.row.report_values
    mean = sum(values) / len(values)
    assert test[3:] == [number(mean), number(min(values)), number(max(values))]
    lower = trial_text(replace(page, goal="minimize"))
    (test,) = (line.split() for line in lower.splitlines() if line.startswith("test  "))
    assert test[4:] == [number(max(values)), number(min(values))]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Half of a value is of training; in the first chunk no episode ends."""
    metric = Metric(training_weight=0.5)
    root = tmp_path_factory.mktemp("mixed")
    return StudyFolder(samples.make_audited(root, metric=metric).folder)


def test_stage_rows_show_the_ranked_values(mixed):
    for trial in range(0, 60, 7):
        page = trial_page(mixed, trial)
        data, text = page.as_json(), trial_text(page)
        found = [line.split() for line in text.splitlines() if line[:6] in _STAGES]
        means = {(words[0], words[1]): words[3] for words in found}
        for judged in data["decisions"]:
            assert means["search", steps(judged["env_steps"])] == number(judged["value"])
        if data["search_value"] is not None:
            assert [*means.values()][len(data["decisions"])] == number(data["search_value"])
        assert "Training returns have weight 0.5 in search and select." in text
    plain = trial_text(replace(page, training_weight=0.0), verbose=True)
    assert "raining returns count" not in plain


def test_missing_training_returns_are_not_mentioned(tmp_path):
    results = samples.make_results(tmp_path, metric=Metric(training_weight=0.5))
    page = trial_page(StudyFolder(results.folder), 1)
    assert "raining returns count" not in trial_text(page, verbose=True)


@pytest.mark.parametrize("state", ["diverged", "failed"])
def test_diverged_or_failed_default_has_no_rank(results, folder, state):
    page = trial_page(folder, of_state(results, "diverged"))
    at_rung = replace(page.entry, rung_value=4.4, search_seeds=0)
    lost = seen(replace(page, entry=at_rung), is_default=True, state=TrialState(state))
    said = trial_text(lost).splitlines()[0]
    assert said == f"Trial {page.view.trial} is the default, which {state} in the search."


def test_trial_data_is_json_and_text_fits_the_width(results, folder):
    assert results.leaderboard
    for entry in results.leaderboard:
        page = trial_page(folder, entry.trial)
        json.dumps(page.as_json(), allow_nan=False)
        assert max(map(len, trial_text(page).splitlines())) <= 100


def test_stopped_trial_names_the_stopping_rule(results, folder):
    page = trial_page(folder, of_state(results, "stopped"))
    data = page.as_json()
    assert data["value"] is None and data["decisions"][-1]["action"] == "stop"
    at = steps(data["decisions"][-1]["env_steps"])
    assert f" was stopped by {data['stop_rule']} at {at} env steps: " in trial_text(page)
    waits = trial_text(seen(page, state=TrialState.PAUSED))
    assert f"is paused by {data['stop_rule']} at {at}" in waits
    default = trial_text(seen(page, is_default=True))
    assert f"In the search, it was stopped by {data['stop_rule']} at {at} env steps." in default


def test_a_diverged_trial_has_no_value(results, folder):
    text = trial_text(trial_page(folder, of_state(results, "diverged")))
    assert " diverged (rank " in text.splitlines()[0] and ": " not in text.splitlines()[0]


def test_trial_evaluation_means_match_the_episodes(results, folder):
    from hpo.store.query import query

    trial = results.best.trial
    evaluations = trial_page(folder, trial).as_json()["evaluations"]
    assert evaluations
    for row in evaluations:
        _, found = query(
            folder.path,
            "SELECT avg(episode_return), min(episode_return), count(*) FROM evaluations WHERE "
            f"trial = {trial} AND stream = '{row['stream']}' AND replicate = {row['replicate']} "
            f"AND env_steps = {row['env_steps']}",
        )
        mean, least, count = found[0]
        assert row["return_mean"] == pytest.approx(mean)
        assert (row["return_min"], row["episodes"]) == (least, count)


def test_unknown_trial_error_lists_the_range(folder):
    with pytest.raises(StoreError, match=r"no trial 99; its trials are 0 to 23"):
        trial_page(folder, 99)


def test_trial_without_published_tables_has_no_curve(results, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(results.folder, copy)
    (copy / "curves.parquet").unlink()
    page = trial_page(StudyFolder(copy), 0)
    assert page.as_json()["curve"] == []
    trial_text(page)


def test_trial_curve_is_drawn_with_or_without_unicode(results, folder):
    points = [ReturnPoint(at, value) for at, value in ((10, None), (20, 1.0), (30, 9.0))]
    page = trial_page(folder, of_state(results, "stopped"))
    drawn = replace(page, curve=points)
    assert "1  ▁█ 9" in trial_text(drawn)
    assert trial_text(drawn, blocks=False).isascii()


def test_default_is_never_described_as_chosen(tmp_path):
    """Also where it is confirmed, on the seeds that chose another trial."""
    poor = samples.search.parameter(
        "learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform"
    )
    results = samples.make_results(
        tmp_path,
        early_terminate=None,
        budget=Budget(trials=6),
        confirm=Confirm(6, 5, 6),
        space=samples.search.Space((poor, samples.search.REAL.parameters[1])),
    )
    assert results.best.trial != 0
    text = trial_text(trial_page(StudyFolder(results.folder), 0))
    assert text.startswith("Trial 0 is the default: ") and "chosen" not in text
    winner = trial_text(trial_page(StudyFolder(results.folder), results.best.trial))
    assert " is the winner: " in winner and " on 6 test seeds" in winner and "chosen" in winner


def test_ranks_are_among_the_studys_trials_without_the_reference(folder, monkeypatch):
    """Trial -1, the reference of a population, is on the leaderboard but no trial of the study."""
    rows = study_folder.trials_seen(Journal(folder.path))
    last = leaderboard(rows)[-1].trial
    reference = replace(rows[0], trial=REFERENCE_TRIAL)
    monkeypatch.setattr("hpo.views.trial_page.trials_seen", lambda _: [*rows, reference])
    page = trial_page(folder, last)
    assert (page.entry.rank, page.place, page.trials) == (25, 24, 24)
    assert page.as_json()["rank"] == 24 and "(rank 24 of 24)" in trial_text(page)
    page = trial_page(folder, REFERENCE_TRIAL)
    assert page.as_json()["rank"] is None and "rank" not in trial_text(page).splitlines()[0]
