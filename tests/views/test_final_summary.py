import dataclasses
import io
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from helpers import view_samples as samples
from hpo.cli import main
from hpo.store.journal import Journal
from hpo.store.verdict import Evidence, conclude
from hpo.store.verdict_text import sentences
from hpo.studies.search_spec import Confirm, EarlyTerminate
from hpo.views.commands import train
from hpo.views.commands.watched_run import (
    StudyWords,
    next_commands,
    nothing_learnt,
    print_results,
    results_data,
)
from hpo.views.leaderboard_text import target, winner_line


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return samples.make_results(Path("results"))


def test_best_notes_hyperparameters_changed_during_training(tmp_path, results, capsys):
    rule, budget = EarlyTerminate("pbt", every=2_000), samples.search.Budget(trials=6)
    copied = samples.make_results(tmp_path, early_terminate=rule, budget=budget, confirm=None)
    for found, several in ((copied, True), (results, False)):
        with Journal(found.folder) as journal:
            assert (len(journal.trial(found.best.trial).schedule) > 1) is several
        assert main(["best", "--study", str(found.folder)]) == 0
        said = (
            f"the trial was trained with different values earlier; see hpo show {found.best.trial}"
        )
        assert (said in capsys.readouterr().err) is several


def printed(results, **how):
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    print_results(console, results, StudyWords("eval/return_mean"), **how)
    return console.file.getvalue()


def test_suggested_next_commands_run(results, capsys):
    assert len(next_commands(results.folder, results.leaderboard, results.conclusion)) == 2
    commands = next_commands(results.folder, results.leaderboard, results.conclusion, verbose=True)
    assert len(commands) == 3
    for command, _ in commands:
        words = shlex.split(command)
        assert words[0] == "hpo"
        assert main(words[1:]) == 0, capsys.readouterr().err


def test_next_command_trains_the_default_if_better(results):
    worse = conclude(Evidence({0: 1.0}, dict(enumerate([2.0, 3.0]))))
    worse = dataclasses.replace(worse, against=dataclasses.replace(worse.against, verdict="worse"))
    commands = dict(next_commands(results.folder, results.leaderboard, worse))
    train = next(command for command in commands if "--export" in command)
    words = shlex.split(train)
    assert words[:2] == ["hpo", "train"] and Path(words[2]) == results.folder / "study.yaml"
    assert words[3:5] == ["--name", "small-default"] and "the default" in commands[train]


def test_next_command_runs_the_heuristic_if_better(results):
    policy, rule = ({seed: at + 0.1 * seed for seed in range(8)} for at in (1.0, 5.0))
    found = conclude(Evidence(policy, policy, name="trial 3", baselines={"ksp_ff": rule}))
    found = dataclasses.replace(found, said=tuple(sentences(found)))
    assert found.said[0].startswith("ksp_ff is better than trial 3: by ")
    commands = next_commands(results.folder, results.leaderboard, found)
    words = shlex.split(commands[0][0])
    assert words[:3] == ["hpo", "eval", "--env"] and words[4:] == ["--heuristic", "ksp_ff"]
    assert Path(words[3]) == results.folder / "study.yaml"
    assert not any("hpo best" in command or "confirm" in command for command, _ in commands)


def test_next_commands_name_the_study_if_several_exist(results, tmp_path, capsys):
    assert target(results.folder) == ""
    samples.make_results(Path("results"), "other")
    assert target(results.folder) == " --study small"
    elsewhere = samples.make_results(tmp_path / "else where")
    assert target(elsewhere.folder) == f" --study '{elsewhere.folder}'"
    for each in (results, elsewhere):
        for command, _ in next_commands(each.folder, each.leaderboard, each.conclusion):
            if "--export" not in command:
                assert main(shlex.split(command)[1:]) == 0


def test_run_summary_fits_80_columns_and_16_lines(results):
    text = printed(results)
    assert max(map(len, text.splitlines())) <= 80 and len(text.splitlines()) <= 16
    assert text.splitlines()[0] == results.conclusion.said[0]
    rows = [line.split() for line in text.splitlines() if line[:2].strip().isdigit()]
    assert [int(row[1]) for row in rows if row[1].isdigit()][:2] == [
        entry.trial for entry in results.leaderboard[:2]
    ]
    assert "22 more: hpo top -n 24" in text and "24 trials, " in text and "Next:" in text
    assert "lanes busy" not in text and "time:" not in text
    more = printed(results, verbose=True)
    assert "lanes busy" in more and "time:" in more and "hpo query" in more
    idle = f"{results.usage.idle_share:.0%}"
    assert f"idle {idle} of the time (no training, no evaluation)" in more


def test_undecided_summary_gives_the_deciding_confirm_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    poor = samples.search.parameter(
        "learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform"
    )
    space = samples.search.Space((poor, samples.search.REAL.parameters[1]))
    results = samples.make_results(Path("results"), confirm=Confirm(2, 3, 3), space=space)
    assert results.conclusion.verdict == "undecided" and results.best.trial != 0
    more = results.conclusion.against.more_seeds
    command = f"hpo confirm {results.best.trial} 0 --seeds {3 + more}"
    cost = rf"{2 * more} runs, {2 * more * 16}k env steps, about \d+s"
    [line] = [line for line in printed(results).splitlines() if command in line]
    assert re.fullmatch(rf"  {command}  # decide: {cost}", line.rstrip()) and len(line) <= 80
    assert main(["top"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"To decide \({cost}\):", lines[2]) and lines[3] == f"  {command}"
    monkeypatch.setattr(train, "watch_run", lambda *given: SimpleNamespace(state="interrupted"))
    assert main(shlex.split(command)[1:]) == 130  # its cost is said before it starts
    assert f"2 trials on {3 + more} test seeds: {2 * more} runs" in capsys.readouterr().err


def test_next_commands_of_long_study_names_fit_and_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    long = "a-study-with-a-long-name-as-sweeps-of-many-things-have"
    samples.make_results(Path("results"), "other")
    results = samples.make_results(Path("results"), long)
    text = printed(results)
    assert max(map(len, text.splitlines())) <= 80
    typed = text.partition("Next:")[2].replace("\\\n", "")
    commands = [shlex.split(line, comments=True) for line in typed.splitlines()]
    commands = [words for words in commands if words]
    assert [words[1] for words in commands] == ["best", "show"]
    for words in commands:
        assert words[-2:] == ["--study", long]
        assert main(words[1:]) == 0, capsys.readouterr().err


def test_export_reports_trial_seed_and_value_of_the_policy(results, capsys):
    best = results.best
    assert main(["best", "--export", "policy", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    origin = data["exported"]
    assert (origin["trial"], origin["stream"], origin["replicate"]) == (best.trial, "report", 0)
    assert origin["value"] == best.values[0]
    assert main(["best", "--export", "again"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith(
        f"wrote the policy of trial {best.trial}, test seed 0, "
        f"eval/return_mean {best.values[0]:.4g} after "
    )


def test_quiet_prints_the_leaderboard_and_the_winner_only(results):
    text = printed(results, quiet=True)
    assert "Next:" not in text and "# trial" in text
    assert text.splitlines()[0] == results.conclusion.said[0]


def test_results_json_has_the_python_fields(results):
    data = json.loads(json.dumps(results_data(results), allow_nan=False))
    parts = {
        "state",
        "folder",
        "report",
        "best",
        "hypervolume",
        "leaderboard",
        "baselines",
        "advice",
        "finished_at",
    }
    assert set(data) == {*parts, "usage", "conclusion"}
    assert data["conclusion"]["sentences"] == list(results.conclusion.said)
    assert data["best"]["trial"] == results.best.trial
    assert len(data["leaderboard"]) == 24
    assert data["usage"]["env_steps"] == results.usage.env_steps


@pytest.mark.parametrize(
    ("states", "nothing"),
    [((), False), (("failed", "diverged"), True), (("failed", "stopped"), False)],
)
def test_study_with_only_failed_trials_is_detected(states, nothing):
    found = SimpleNamespace(leaderboard=[SimpleNamespace(state=state) for state in states])
    assert nothing_learnt(found) is nothing


def test_summary_of_failed_trials_suggests_new(results):
    entries = [
        dataclasses.replace(entry, state="failed", value=None) for entry in results.leaderboard
    ]
    text = winner_line(entries, "eval/return_mean")
    assert "Every trial failed; `hpo show TRIAL` shows why." in text and "--new" in text
    lost = [*entries[1:], dataclasses.replace(entries[0], state="diverged")]
    assert winner_line(lost, "eval/return_mean").startswith("Every trial diverged or failed; ")
    some = [*entries[1:], dataclasses.replace(entries[0], state="stopped")]
    assert winner_line(some, "eval/return_mean").startswith("No trial has finished its run")
