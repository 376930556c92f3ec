"""Views of a study over several environments: scores, and returns of one environment at a time."""

import dataclasses
import json
import math
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.loading import run_file
from hpo.cli import main
from hpo.search.analysis.verdict import conclusion_of
from hpo.search.run import run
from hpo.store.aggregate_environments import (
    Estimate,
    beside,
    difference,
    overall,
    overall_interval,
    probability_of_improvement,
)
from hpo.store.journal import Journal
from hpo.store.rows import Stream
from hpo.store.study_folder import StudyFolder, one_policy, read_leaderboard
from hpo.studies.execution_spec import Budget
from hpo.studies.load import load
from hpo.studies.search_spec import Confirm, Seeds
from hpo.studies.train_study import single
from hpo.views.charts import search_charts
from hpo.views.charts.snapshot import read_snapshot
from hpo.views.commands import train
from hpo.views.commands.watched_run import next_commands
from hpo.views.environment_text import TOGETHER, beside_lines, signed
from hpo.views.formatting import number
from hpo.views.report.report import environments_section, profile, report_html

_TESTS = Path(__file__).parents[1]
engine = run_file("tests/search/engine/test_several_environments.py")


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
        own = [
            row["episode_return"]
            for row in episodes
            if row["trial"] == best and all(row[key] == one[key] for key in keys)
        ]
        assert one["episodes"] == len(own) and one["return_mean"] == pytest.approx(fmean(own))
    assert main(["show", str(best), "--study", str(folder)]) == 0
    text = capsys.readouterr().out
    assert all(f"\non {name}\nevaluated" in text for name in engine.IDS)
    assert max(map(len, text.splitlines())) <= 80


def test_curves_chart_has_one_training_panel_per_environment(capsys, folder, monkeypatch):
    columns = pq.read_schema(folder / "curves.parquet").names
    shown_there = next(name for name in columns if name in ("loss", "skill"))
    monkeypatch.setattr(search_charts, "_RETURN", shown_there)
    picture = search_charts.curves(read_snapshot(StudyFolder(folder)))
    titles = [panel.title for panel in picture.panels]
    assert titles == [
        *(f"In training on {name}" for name in engine.IDS),
        "In evaluations of the search",
    ]
    best = winner(capsys, folder)["trial"]
    for panel in picture.panels[:3]:
        key = next(key for key in panel.keys if key.label.startswith(f"trial {best}"))
        assert re.fullmatch(
            rf"trial {best}(, default)? \(\d selection and \d test seeds\)", key.label
        )
    assert picture.panels[-1].y.label == "score"


def test_exported_policy_has_one_folder_per_environment(capsys, folder, tmp_path):
    assert main(["best", "--study", str(folder), "--export", str(tmp_path / "policy")]) == 0
    told = capsys.readouterr().err
    assert "wrote the policy of trial" in told
    first = sorted(engine.IDS)[0]
    assert f"try: hpo eval {tmp_path / 'policy' / first}" in " ".join(told.split())


def test_next_command_saves_the_winner_policy(folder):
    entries = read_leaderboard(StudyFolder(folder))
    with Journal(folder) as journal:
        conclusion = conclusion_of(journal)
    told = dict(next_commands(folder, entries, conclusion))
    (then,) = (why for command, why in told.items() if "--export policy/" in command)
    assert then == "save the winner's policy"


@pytest.mark.parametrize("form", ["tensorboard", "wandb", "mlflow"])
def test_single_env_export_formats_are_refused(capsys, folder, tmp_path, form):
    target = tmp_path / "there"
    assert main(["export", form, "--study", str(folder), "--to", str(target)]) == 2
    assert f"hpo export {form} supports only a single environment, but" in capsys.readouterr().err
    assert not target.exists()


def test_optuna_round_trip_keeps_all_environments(capsys, folder, tmp_path):
    storage = f"sqlite:///{tmp_path / 'optuna.db'}"
    assert main(["export", "optuna", "--study", str(folder), "--to", storage]) == 0
    capsys.readouterr()
    words = ["import", "optuna", storage, "--to", str(tmp_path / "again.yaml")]
    assert main(words) == 0
    again = load(tmp_path / "again.yaml")
    assert [one.id for one in (again.env, *again.more_envs)] == [*engine.IDS]


def scores_of(folder, trial, stream):
    """[environments][seeds] of a trial at the end of its runs, from the published tables."""
    found = []
    episodes = pq.read_table(folder / "evaluations.parquet").to_pylist()
    for name, scale in zip(engine.IDS, engine.SCALES, strict=True):
        seeds = {}
        for row in episodes:
            own = (row["trial"], row["stream"], row["environment"], row["env_steps"])
            if own == (trial, stream, name, 16_000):
                seeds.setdefault(row["replicate"], []).append(row["episode_return"])
        means = [fmean(seeds[seed]) for seed in sorted(seeds)]
        found.append([(m - scale.random) / (scale.reference - scale.random) for m in means])
    return found


def test_leaderboard_has_one_column_per_environment(capsys, folder):
    data = shown(capsys, "top", "--study", folder)
    assert data["environments"] == list(engine.IDS)
    assert main(["top", "--study", str(folder)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    for name in engine.IDS:  # a column, folded at "-", or named below
        assert f" {name.partition('-')[0]}-" in text or name in text.partition("Not shown: ")[2]
    assert "scores: 0 is random, 1 the reference." in text
    first = data["leaderboard"][0]
    cells = next(line for line in text.splitlines() if line.split()[:1] == ["1"]).split()
    missing = [n for n in engine.IDS if n in text.partition("Not shown: ")[2]]
    for name, score in zip(engine.IDS, first["scores"], strict=True):
        assert (f"{score:.4g}" in cells) or name in missing
    assert cells[1] == str(first["trial"]) and len(missing) < len(engine.IDS)


def test_a_trial_shows_its_scores_with_intervals(capsys, folder):
    best = winner(capsys, folder)["trial"]
    told = shown(capsys, "show", best, "--study", folder)["over_environments"]
    given = scores_of(folder, best, "report")
    assert (told["stream"], told["seeds"], told["lost"]) == ("report", 6, 0)
    for one, scale, seeds in zip(told["environments"], engine.SCALES, given, strict=True):
        assert one["score"] == pytest.approx(fmean(seeds))
        assert one["raw"] == pytest.approx(
            scale.random + fmean(seeds) * (scale.reference - scale.random)
        )
    for over, one in told["together"].items():
        around = overall_interval(given, over)
        assert one["score"] == pytest.approx(overall(given, over))
        assert (one["ci_low"], one["ci_high"]) == pytest.approx((around.low, around.high))
    assert main(["show", str(best), "--study", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "on each environment, 6 test seeds" in text
    stopped = next(
        e for e in shown(capsys, "top", "--study", folder)["leaderboard"] if e["value"] is None
    )
    told = shown(capsys, "show", stopped["trial"], "--study", folder)
    assert "over_environments" not in told
    assert main(["show", str(stopped["trial"]), "--study", str(folder)]) == 0
    rung = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("search")
    ).split()
    value = number(told["decisions"][0]["value"])  # the score, not a mean of raw returns
    assert rung[2:5] == [value, "-", "-"]


def test_two_trials_are_compared_on_every_environment(capsys, folder):
    board = shown(capsys, "top", "--study", folder)["leaderboard"]
    a, b = (entry["trial"] for entry in board if entry["confirmed"])
    found = shown(capsys, "compare", a, b, "--study", folder)
    told = found["environments"]
    ours, theirs = (scores_of(folder, trial, "choose") for trial in (a, b))
    chance, _ = probability_of_improvement(ours, theirs)
    assert told["improvement"]["value"] == pytest.approx(chance)
    assert told["improvement"]["interval"]["low"] is None  # these seeds ranked the trials
    for one, x, y in zip(told["each"], ours, theirs, strict=True):
        assert one["difference"]["value"] == pytest.approx(fmean(x) - fmean(y))
    assert told["differences"]["iqm"]["value"] == pytest.approx(overall(ours) - overall(theirs))
    means = [one["difference"]["value"] for one in told["each"]]
    assert found["difference"] == pytest.approx(fmean(means))  # over_environments: mean
    assert main(["compare", str(a), str(b), "--study", str(folder)]) == 0
    text = capsys.readouterr().out
    words = f"the probability of improvement of trial {a} over trial {b} is "
    assert words in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def starting(widths):
    """Return where columns of these widths begin, two blanks apart, each with its width."""
    at = 0
    for width in widths:
        yield at, width
        at += width + 2


@pytest.mark.parametrize("scale", [1.0, 1e7])
def test_compare_with_long_env_names_fits_80_columns(scale):
    names = ["CartPole-v1", "deeprmsa_load=350_topology=cost239_deeprmsa"]
    rng = np.random.default_rng(0)
    sides = [
        {i: tuple(row) for i, row in enumerate(rng.normal(-1.0, 1.0, (8, 2)) * scale)}
        for _ in "AB"
    ]
    found = beside(*sides, paired=True)
    lines = beside_lines(names, tuple(sides), found, ["trial 3", "trial 12"])
    assert max(map(len, lines)) <= 80
    told = {}  # (row, column) -> cell
    for table in "\n".join(lines).split("\n\n"):
        head, rule, *rows = table.split("\n")
        widths = map(len, rule.split())
        columns = [slice(at, at + width) for at, width in starting(widths)]
        header = [head[column].strip() for column in columns]
        for row in rows:
            name, *cells = [row[column].strip() for column in columns]
            told |= {(name, title): cell for title, cell in zip(header[1:], cells, strict=True)}
    for at, name in enumerate(names):
        assert told[name, "difference, 95%"] == signed(found.each[at].difference)
        assert told[name, "P(first better)"].startswith(
            f"{found.each[at].probability.value:.2f} ["
        )
    for over, name in TOGETHER.items():
        assert told[name, "difference, 95%"] == signed(found.differences[over])
    assert found.differences["iqm"].interval.low is not None


def test_compare_reports_diverged_seeds():
    sides = {0: (0.5, 1.0), 1: (math.nan, math.nan)}, {0: (0.4, 0.9), 1: (0.2, 0.1)}
    lines = beside_lines(["a", "b"], sides, beside(*sides, paired=True), "xy")
    assert "Differences exclude 1 diverged seed; P(first better) counts each as a loss." in lines
    lines = beside_lines(["a", "b"], sides, beside(*sides, paired=False), "xy")
    assert "Differences exclude 1 diverged run; P(first better) counts each as a loss." in lines


def test_compare_refuses_different_envs_or_aggregates(capsys, tmp_path, folder):
    asked = engine.several(budget=Budget(trials=1), early_terminate=None)
    fewer = {"more_envs": asked.more_envs[:1]}
    for name, changes in (("low", {"over_environments": "worst"}), ("two", fewer)):
        asked = engine.dataclasses.replace(asked, name=name, **changes)
        parts = engine.PARTS[: asked.spread]
        run(asked, tmp_path / name, engine.factory(asked, parts), (), engine.samples.quick())
        assert main(["compare", str(folder), str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert ("takes the mean over environments and" in error) == (name == "low")
        assert ("only values from the same environment" in error) == (name == "two")


def test_compare_requires_two_trials(capsys, folder):
    assert main(["compare", "0", "--study", str(folder)]) == 2
    assert "compare needs A and B" in capsys.readouterr().err


def test_report_has_scores_and_performance_profile(folder):
    snapshot = read_snapshot(StudyFolder(folder))
    text = report_html(snapshot)
    assert '<section id="environments">' in text
    first = snapshot.winner.trial
    picture = profile(snapshot)
    shown_there = [key.label for key in picture.panels[0].keys]
    assert shown_there[0].startswith(f"trial {first}") and len(shown_there) <= 2
    line = next(mark for mark in picture.panels[0].marks if getattr(mark, "trial", None) == first)
    flat = [s for seeds in scores_of(folder, first, Stream.REPORT.value) for s in seeds]
    for tau, share in line.points[::20]:
        assert share == pytest.approx(sum(score > tau for score in flat) / len(flat))


def test_report_shows_winner_minus_default_score(folder):
    """The winner of this study is the default, so another trial is made the default."""
    snapshot = read_snapshot(StudyFolder(folder))
    first = snapshot.winner.trial
    other = next(e.trial for e in snapshot.entries if e.trial != first and e.value is not None)
    ours = snapshot.scores.of(first, Stream.REPORT)
    theirs = {seed: [score - 0.1 * seed for score in row] for seed, row in ours.items()}
    seeds = {**snapshot.scores.seeds, (other, Stream.REPORT): theirs}
    changed = dataclasses.replace(
        snapshot,
        entries=[dataclasses.replace(e, is_default=e.trial == other) for e in snapshot.entries],
        scores=dataclasses.replace(snapshot.scores, seeds=seeds),
    )
    sides = [list(zip(*side.values(), strict=True)) for side in (ours, theirs)]
    told = signed(Estimate(*difference(*sides, "iqm", paired=True)))
    assert f">{told}</td>" in environments_section(changed)


def test_train_reports_every_environment(tmp_path):
    study = single(engine.several(seeds=Seeds(3)))
    results = run(study, tmp_path / "t", engine.factory(study), (), engine.samples.quick())
    trained = train._read_trained(study, results)
    data = trained.as_json()
    picture = train._draw_curves(results)
    assert Path(picture).read_bytes().startswith(b"\x89PNG")  # a panel for each environment
    assert data["env_steps"] == 3 * 3 * 16_000 and len(data["seed_values"]) == 3
    lines = trained.text().splitlines()
    assert lines[0].endswith("3 seeds of 16k env steps on each")
    given = scores_of(tmp_path / "t", 0, "search")
    told = ", ".join(
        f"{name} {fmean(seeds):.4g}" for name, seeds in zip(engine.IDS, given, strict=True)
    )
    assert f"scores   {told}" in lines
    assert data["value"] == pytest.approx(fmean(fmean(seeds) for seeds in given))
    policy = Path(data["policy"])
    assert sorted(path.name for path in policy.iterdir()) == sorted(engine.IDS)
    assert one_policy(policy) == policy / sorted(engine.IDS)[0]


def test_multi_env_bundle_verifies(folder, tmp_path, capsys):
    path = str(tmp_path / "scores.zip")
    assert main(["bundle", str(folder), "-o", path, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)["claims"][0]
    best = read_leaderboard(StudyFolder(folder))[0]
    assert value["numbers"]["value"] == pytest.approx(best.value) and "FROM trials" in value["sql"]
    assert main(["verify", path]) == 0
