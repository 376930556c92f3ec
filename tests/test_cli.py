"""The command as a user types it: in this process, or in another for signals and pipes."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import hpo
from hpo import cli
from hpo.cli import main, make_parser
from hpo.studies.execution_spec import PARTS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

STUDY = """\
env: CartPole-v1
env_steps: 4k
fixed: {num_envs: 4, rollout_length: 32, hidden_sizes: [8]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  lr_schedule: {values: [linear, constant]}
search: {method: random}
evaluation: {episodes: 4}
budget: {trials: 4}
loggers: [{type: csv}]
"""
HPO = [sys.executable, "-c", "import sys; from hpo.cli import main; sys.exit(main())"]
HEAVY = ("numpy", "jax", "rich", "optuna", "pyarrow", "duckdb", "yaml", "sqlite3")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with one study file and its results: the one real run of this module."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny.yaml").write_text(STUDY)
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["run", "tiny.yaml", "--quiet"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def say(home, monkeypatch, capsys):
    """Run a command beside those results: (exit code, stdout, stderr)."""
    monkeypatch.chdir(home)

    def run(*words):
        code = main(list(words))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run


# ---------------------------------------------------------------------- the parser


def test_help_names_every_command_and_loads_nothing_heavy():
    code = f"""
import sys
from hpo.cli import main
code = main(["--help", "-v"])
print([name for name in {HEAVY!r} if name in sys.modules], code, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[] 0"
    verbs = ("init", "import", "check", "run", "train", "top", "show", "query", "best", "list",
             "export", "eval", "knobs", "envs", "schema", "replay",
             "importance", "compare", "confirm", "what-if", "plot", "report", "stop",
             "serve", "watch", "tuned", "bundle", "verify")  # fmt: skip
    assert all(re.search(rf"^  {verb}\s", done.stdout, re.M) for verb in verbs)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["top", "--help"]])
def test_help_loads_no_module_that_only_commands_need(words):
    """`dataclasses` loads `inspect`, `pathlib` loads `urllib`, and `shutil` bz2 and lzma."""
    code = f"""
import sys
before = set(sys.modules)
from hpo.cli import main
main({words!r})
later = {{"dataclasses", "inspect", "pathlib", "shutil", "shlex", "json"}}
print(sorted(later & sys.modules.keys() - before), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout and done.stderr.strip() == "[]"


def test_only_the_asked_command_is_parsed():
    whole, verbs = make_parser()
    assert set(whole.commands) == set(verbs)
    for verb in verbs:
        alone, known = make_parser([verb])
        assert set(alone.commands) == {verb} and known == verbs
        assert alone.commands[verb].format_help() == whole.commands[verb].format_help()
        assert alone.format_help() == whole.format_help()


@pytest.mark.parametrize(("columns", "width"), [("61", 61), ("0", 80), ("wide", 80), ("", 80)])
def test_help_is_as_wide_as_the_terminal(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "__stdout__", io.StringIO())
    assert cli._terminal_width() == shutil.get_terminal_size().columns == width


def test_no_arguments_print_the_help(say):
    assert say() == say("--help")


@pytest.mark.parametrize("columns", ["80", "200"])
def test_help_of_every_command_fits_into_80_columns(say, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    first, out = say("--help")[1], say("--help", "-v")[1]
    verbs = re.findall(r"^  (\S+)", out, re.M)
    assert len(verbs) == 31 and set(verbs) == set(make_parser()[1])
    assert len(out.splitlines()) <= 48 and len(first.splitlines()) <= 25
    assert all(re.search(rf"\s{verb}[\s,]", first) for verb in verbs)
    for words in ([], *([verb] for verb in verbs)):
        code, out, _ = say(*words, "--help")
        assert code == 0 and max(map(len, out.splitlines())) <= 80, words


def test_the_package_runs_as_a_module(home):
    command = [sys.executable, "-m", "hpo"]
    done = subprocess.run([*command, "list", "--json"], cwd=home, capture_output=True, check=True)
    assert [study["name"] for study in json.loads(done.stdout)] == ["tiny"]
    assert subprocess.run([*command, "show", "x"], capture_output=True).returncode == 2


@pytest.mark.parametrize("words", [["top"], ["list"], ["run", "nowhere.yaml"], ["schema"]])
def test_read_only_commands_do_not_import_jax(home, words):
    code = f"""
import sys
from hpo.cli import main
main({words!r})
print([name for name in ("jax", "optuna", "numpy") if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=home
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_run_writes_an_html_report(home):
    text = (home / "results" / "tiny" / "report.html").read_text(encoding="utf-8")
    assert "<h1>tiny</h1>" in text and text.rstrip().endswith("</html>")


def test_version_is_printed(say):
    assert say("--version")[:2] == (0, f"hpo {hpo.__version__}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rnu"], "unknown command 'rnu'; did you mean 'run'? (hpo --help lists all)\n"),
        (["xyz"], "unknown command 'xyz'; hpo --help lists all\n"),
        (["run"], "FILE"),
        (["run", "x.yaml", "--sett", "a=b"], "unknown option --sett; did you mean '--set'?"),
        (["run", "x.yaml", "--trials", "20"], "--trials; type: --set budget.trials=20\n"),
        (["train", "x.yaml", "--env-steps=1M"], "type: --set env_steps=1M\n"),
        (["check", "x.yaml", "--lanes"], "type: --set population.lanes=VALUE\n"),
        (["run", "x.yaml", "--lr", "3e-4"], "type: --set fixed.learning_rate=3e-4\n"),
        (["run", "x.yaml", "budget.trials=20"], "type: --set budget.trials=20\n"),
        (
            ["run", "x.yaml", "y.yaml"],
            "unexpected argument 'y.yaml'; hpo run --help lists all arguments\n",
        ),
        (
            ["top", "--trials", "20"],
            "unknown option --trials; hpo top --help lists all arguments\n",
        ),
        (
            ["import", "rlzoo", "ppo.yml", "--without", "use_sde"],
            "unknown option --without; type it at the end, after `--`: -- --without use_sde\n",
        ),
        (["import", "sb3", "a.py", "--env_steps", "1M"], "after `--`: -- --env_steps 1M\n"),
        (["import", "sb3", "a.py", "--tto", "b.yaml"], "--tto; did you mean '--to'? hpo import"),
        (["top", "-n", "0"], "'0' is not a whole number of at least 1"),
        (["top", "-n", "many"], "'many' is not a whole number"),
        (["show", "x"], "TRIAL: 'x' is not a trial number; `hpo top` lists them (studies"),
        (["eval", "p", "--seed", "-1"], "--seed"),
        (["query"], "SQL"),
    ],
)
def test_usage_errors_exit_with_code_2(say, words, told):
    code, out, err = say(*words)
    assert code == 2
    assert told in err
    assert out == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (
            ["run", "tny.yaml"],
            "No such file or directory; did you mean 'tiny.yaml'? ./ has tiny.yaml",
        ),
        (["check", "results"], "Is a directory; results/ has no study file (.yaml)"),
        (["run", "tiny.yaml", "--set", "budget.trial=3"], "did you mean 'trials'?"),
        (["run", "tiny.yaml", "--set", "nonsense"], "override 'nonsense'"),
        (["run", "tiny.yaml", "--name", "../up"], "override: name is"),
        (["check", "tiny.yaml", "--set", "space.gama.min=1"], "did you mean 'gamma'?"),
        (["init", "Cartpole-v1"], "did you mean 'CartPole-v1'?"),
        (["init", "CartPole-v1", "--to", "tiny.yaml"], "already exists"),
        (["top", "--study", "tny"], "there is no study 'tny'; did you mean 'tiny'?"),
        (["top", "tny"], "there is no study 'tny'; did you mean 'tiny'?"),
        (["top", "--out", "elsewhere"], "there is no study in elsewhere/"),
        (["show", "99"], "no trial 99; its trials are 0 to 3"),
        (["query", "DROP TABLE trials"], "a query must be read-only"),
        (["query", "SELECT nothing FROM trials"], "the query failed"),
        (["eval", "nowhere"], "nowhere is not a policy folder"),
        (["best", "--export", "results"], "results already exists"),
        (["run", "tiny.yaml", "--out", "tiny.yaml"], "tiny.yaml"),
        (["compare", "1", "1"], "1 is compared with itself; name two trials, or two studies"),
        (["init", "CartPole-v1", "--to", "no/x.yaml"], "no/x.yaml; fix that and run the same"),
        (["run", "tiny.yaml", "--out", "/dev/null/x"], "while writing /dev/null/x/tiny; fix"),
    ],
)
def test_errors_exit_with_code_2_and_write_nothing(say, home, words, told):
    before = sorted(home.rglob("*"))
    code, out, err = say(*words)
    assert code == 2, err
    assert told in err
    assert out == ""
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize("words", [["check", "tiny.yaml", "--no-time"], ["best"], ["top"]])
def test_piped_text_output_fits_80_columns(say, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = say(*words)
    assert code == 0 and max(map(len, out.splitlines())) <= 80


def test_study_file_mistakes_are_reported_with_lines(say, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(STUDY + "metrix: {}\nseeds: {per_config: 0}\nspce: {}\n")
    for verb in ("run", "check"):
        code, _, err = say(verb, str(bad))
        assert code == 2
        lines = [line.split(": ")[0] for line in err.strip().splitlines()]
        assert lines == [f"{bad}:11", f"{bad}:12", f"{bad}:13"]


def test_internal_errors_keep_their_traceback(monkeypatch):
    monkeypatch.setattr("hpo.views.commands.catalogue.knobs_data", lambda found: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["knobs", "--json"])


# ---------------------------------------------------------------------- study files


def test_init_writes_a_file_that_checks(say, tmp_path):
    code, out, err = say("init", "Pendulum-v1", "--to", str(tmp_path / "new.yaml"))
    assert (code, out) == (0, "")
    assert "hpo check" in err
    code, out, _ = say("check", "-v", str(tmp_path / "new.yaml"))
    assert code == 0
    assert "1 bucket" in out and " lanes; " in out and "MiB" in out
    brief = say("check", str(tmp_path / "new.yaml"), "--no-time")[1].splitlines()
    assert brief[0].startswith("OK. Runs 48 trials of Pendulum-v1") and len(brief) <= 15
    for what in ("search", "stopping", "confirm", "training"):
        assert any(line.startswith(f"  {what} ") for line in brief)
    assert f"Next: hpo run {tmp_path / 'new.yaml'}" in " ".join(" ".join(brief).split())
    assert say("init", "Pendulum-v1")[1] == (tmp_path / "new.yaml").read_text()


def test_command_after_check_keeps_the_options_on_one_line(say):
    options = ("--set", "budget.trials=30", "--set", "space.gamma={min: 0.9, max: 0.99}")
    code, out, _ = say("check", "tiny.yaml", "--no-time", *options)
    given = "tiny.yaml --set budget.trials=30 --set 'space.gamma={min: 0.9, max: 0.99}'"
    assert code == 0
    assert out.splitlines()[-2:] == [f"Next: hpo run {given}", f"Details: hpo check -v {given}"]


def test_check_json_has_lanes_and_memory_without_compiling(say, home):
    before = sorted(home.rglob("*"))
    code, out, err = say("check", "tiny.yaml", "--json", "--set", "budget.trials=100")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert data["programs"][0]["lanes"] == 64
    assert data["programs"][0]["memory_bytes"] > 0
    assert data["expected"]["search"] == 100 * data["programs"][0]["env_steps"]
    assert sorted(home.rglob("*")) == before


def test_check_fails_where_configurations_cannot_run(say):
    space = "space.hidden_size={values: [8, 16]}"
    code, out, err = say("check", "tiny.yaml", "--set", space)
    assert code == 2
    assert "hidden_size" in out + err


def test_schema_is_json(say):
    assert json.loads(say("schema")[1])["title"] == "hpo study"


def test_check_counts_one_of_each_in_the_singular(say):
    one = ["--set", "budget.trials=1", "--set", "space={gamma: {min: 0.9, max: 0.99}}"]
    out = say("check", "-v", "tiny.yaml", *one, "--set", "population={lanes: 1}")[1]
    assert "1 knob searched" in out and "1 full trial)" in out and "1 bucket," in out
    assert not re.search(r"\b1 \w+s\b(?! program)", out), out


# ---------------------------------------------------------------------- running


def test_run_writes_all_study_files(home):
    names = {path.name for path in (home / "results" / "tiny").iterdir()}
    tables = {"trials.parquet", "evaluations.parquet", "curves.parquet"}
    assert tables | {"study.yaml", "study.resolved.yaml", "trials.csv", "curves.csv"} <= names
    assert (home / "results" / "tiny" / "study.yaml").read_text() == STUDY


def test_a_finished_study_prints_its_leaderboard(say):
    code, out, err = say("run", "tiny.yaml")
    assert code == 0
    first, second = out.splitlines()[:2]
    assert re.fullmatch(r"tiny finished \S+ ago; nothing to do\.", first)
    assert re.match(r"Trial \d leads: eval/return_mean ", second)
    assert "Next:" in out and "hpo best --export policy/" in out
    assert "compiling" not in err


def test_run_json_prints_one_document(say):
    code, out, _ = say("run", "tiny.yaml", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["state"] == "finished" and len(data["leaderboard"]) == 4
    assert data["best"] == data["leaderboard"][0]


def test_changed_study_is_refused_naming_the_change(say):
    code, out, err = say("run", "tiny.yaml", "--set", "env_steps=8k")
    assert (code, out) == (2, "")
    assert "env_steps: 4000 -> 8000" in err and "--new" in err


def test_python_run_returns_the_cli_results(home, monkeypatch):
    monkeypatch.chdir(home)
    results = hpo.run("tiny.yaml")
    assert results.state == "finished"
    assert [entry.trial for entry in results.leaderboard] == [
        entry["trial"] for entry in json.loads(_top(home))["leaderboard"]
    ]
    assert not hasattr(hpo, "nothing")


def _top(home):
    done = subprocess.run([*HPO, "top", "--json"], cwd=home, capture_output=True, check=True)
    return done.stdout


# ---------------------------------------------------------------------- reading


def test_top_json_has_the_documented_fields(say):
    code, out, _ = say("top", "--json")
    whole = json.loads(out)
    assert set(whole) == {
        "study",
        "state",
        "metric",
        "goal",
        "conclusion",
        "leaderboard",
        "baselines",
        "audit",
    }
    assert whole["conclusion"] == json.loads(say("best", "--json")[1])["conclusion"]
    data = whole["leaderboard"]
    assert code == 0 and len(data) == 4
    promised = {"trial", "state", "value", "ci_low", "ci_high", "confirmed", "seeds", "env_steps",
                "params"}  # fmt: skip
    assert promised <= set(data[0])
    assert [entry["rank"] for entry in data] == [1, 2, 3, 4]
    assert len(json.loads(say("top", "--json", "-n", "2")[1])["leaderboard"]) == 2
    assert len(json.loads(say("top", "tiny", "--json")[1])["leaderboard"]) == 4
    text = say("top", "-n", "2")[1]
    assert re.match(r"Trial \d leads: ", text) and re.search(r"\d more: hpo top -n 4", text)
    assert "selection seeds" not in say("top", "--json")[1]  # as there were none
    assert "test*N" in say("top", "--explain")[1]


def test_show_json_has_params_curve_and_evaluations(say):
    code, out, _ = say("show", "0", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["params"] == {"learning_rate": 3e-4, "lr_schedule": "linear"} or data["params"]
    assert len(data["curve"]) == 16 and data["curve"][-1]["env_steps"] == data["env_steps"]
    assert data["evaluations"][-1]["episodes"] == 4
    assert "\n  training return  " in say("show", "0")[1]


def test_query_prints_table_csv_and_json(say):
    sql = "SELECT trial, value, param.learning_rate AS rate FROM trials ORDER BY rank"
    rows = json.loads(say("query", sql, "--json")[1])
    assert [set(row) for row in rows] == [{"trial", "value", "rate"}] * 4
    lines = say("query", sql, "--csv")[1].splitlines()
    assert lines[0] == "trial,value,rate" and len(lines) == 5
    assert float(lines[1].split(",")[1]) == rows[0]["value"]
    assert say("query", sql)[1].splitlines()[0].split() == ["trial", "value", "rate"]


def test_list_shows_studies_and_folders_select_them(say, home):
    studies = json.loads(say("list", "--json")[1])
    assert [study["name"] for study in studies] == ["tiny"]
    assert studies[0]["state"] == "finished"
    assert say("list")[1].splitlines()[2].startswith("tiny   finished")
    by_folder = say("top", "--json", "--study", str(home / "results" / "tiny"))
    assert by_folder == say("top", "--json")


@pytest.mark.parametrize(
    "words",
    [
        *(["list"], ["list", "--json"], ["top"], ["top", "--json"], ["show", "0"], ["best"]),
        *(["query", "SELECT 1"], ["compare", "0", "1"], ["watch"], ["report"]),
        *(["export", "csv", "--to", "{tmp}/tables"], ["plot", "history", "--to", "{tmp}/x.png"]),
    ],
)
def test_unreadable_results_folder_is_skipped_with_one_warning(
    say, home, tmp_path, cannot_enter, words
):
    found, loop = home / "results" / "lost+found", home / "results" / "loop"
    found.mkdir()
    loop.symlink_to("loop")
    cannot_enter(found)
    try:
        code, out, err = say(*(word.format(tmp=tmp_path) for word in words))
        assert code == 0, err
        assert err.count("skipped in ") == 1 and err.count("(Permission denied)") == 1
        assert "lost+found" not in out
        assert "skipped" not in say("top", "tiny")[2]
    finally:
        loop.unlink()
        found.rmdir()


def test_list_without_studies_is_empty(say, tmp_path):
    assert say("list", "--json", "--out", str(tmp_path))[:2] == (0, "[]\n")
    code, out, err = say("list", "--out", str(tmp_path))
    assert (code, out) == (0, "") and err.startswith("no study in ")


def test_the_best_policy_is_exported_and_evaluated(say, tmp_path):
    target = tmp_path / "policy"
    code, out, err = say("best", "--export", str(target))
    assert code == 0
    assert re.match(r"Trial \d leads: ", out) and "\nUndecided: all values are" in out
    configuration = yaml.safe_load(out[out.index("fixed:") :])["fixed"]
    fixed = yaml.safe_load(Path("results/tiny/study.resolved.yaml").read_text())["fixed"]
    assert configuration == {**json.loads(say("best", "--json")[1])["params"], **fixed}
    assert fixed["hidden_sizes"] == [8] and fixed["num_envs"] == 4
    assert f"hpo eval {target}" in err
    assert (target / "policy.json").is_file()
    code, _, err = say("best", "--export", str(target))
    assert code == 2 and "already exists" in err
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]

    first = json.loads(say("eval", str(target), "--episodes", "6", "--json")[1])
    assert first["episodes"] == len(first["returns"]) == 6 and first["env"] == "CartPole-v1"
    assert first == json.loads(say("eval", str(target), "--episodes", "6", "--json")[1])
    text = say("eval", str(target), "--episodes", "6", "--seed", "1", "--sample")[1]
    assert "6 episodes, sampled actions" in text


@pytest.fixture(scope="module")
def trained(home, tmp_path_factory):
    """One configuration trained on two seeds, in a folder of its own."""
    out = tmp_path_factory.mktemp("trained")
    words = ["train", str(home / "tiny.yaml"), "--name", "alone", "--out", str(out)]
    words += ["--set", "seeds.per_config=2", "--set", f"checkpoint.parts=[{', '.join(PARTS)}]"]
    assert main([*words, "--quiet", "--export", str(out / "policy")]) == 0
    return SimpleNamespace(words=words, out=out, study=out / "alone")


def test_train_reports_values_curve_plot_and_policy(say, trained):
    code, out, err = say(*trained.words)
    assert code == 0
    said = "training only the default configuration of the space: learning_rate 0.001, lr_schedule"
    assert said in " ".join(err.split())
    lines = dict(line.split(maxsplit=1) for line in out.splitlines()[1:])
    first, out = out.split("\n", 1)
    assert re.fullmatch(r"alone finished \S+ ago; nothing to do\.", first)
    assert out.startswith("alone: CartPole-v1, 2 seeds of 4.1k env steps\n")
    assert len(lines["seeds"].split()) == 2 and len(lines["return"].split()[1]) > 10
    assert lines["picture"] == str(trained.study / "training.png")
    assert (trained.study / "training.png").read_bytes().startswith(b"\x89PNG")
    assert lines["policy"].startswith(str(trained.study / "policies" / "trial_0"))
    assert out.endswith(f"all seeds: {trained.study / 'policies' / 'trial_0_seeds'}/)\n")


def test_every_seed_s_policy_is_kept_and_exported(say, trained):
    """The trained one is the first seed's; each earns what the study saw its seed earn, about."""
    kept = trained.study / "policies" / "trial_0_seeds"
    exported = trained.out / "policy" / "seeds"
    assert sorted(path.name for path in kept.iterdir()) == ["0", "1"]
    same, other = (exported / seed / "parts" / "parameters.npz" for seed in ("0", "1"))
    whole = trained.out / "policy" / "parts" / "parameters.npz"
    assert same.read_bytes() == whole.read_bytes() != other.read_bytes()
    for seed in ("0", "1"):
        told = json.loads(say("eval", str(exported / seed), "--episodes", "2", "--json")[1])
        assert told["episodes"] == 2


def test_the_parts_of_the_policy_are_numpy_files(trained):
    shapes = {}
    for part in PARTS:
        with np.load(trained.out / "policy" / "parts" / f"{part}.npz") as file:
            shapes[part] = {name: file[name].shape for name in file.files}
    assert shapes["trajectories"]["observation"] == (32, 4, 4)
    assert shapes["advantages"] == {"advantage": (32, 4), "target": (32, 4)}
    assert shapes["gradients"] == shapes["parameters"]
    assert shapes["losses"]["policy_loss"] == ()


def test_train_json_has_seed_values_and_evaluations(say, trained):
    code, out, _ = say(*trained.words, "--json")
    data = json.loads(out)
    assert code == 0 and data["state"] == "finished" and len(data["seed_values"]) == 2
    assert data["value"] == pytest.approx(sum(data["seed_values"]) / 2)
    assert {row["env_steps"] for row in data["evaluations"]} > {4096}
    assert len(data["evaluations"]) >= 2 * 8
    assert sum(row["episodes"] for row in data["evaluations"]) == 4 * len(data["evaluations"])
    rolling = json.loads(
        say(
            "query",
            "SELECT episode_return_100 AS r FROM curves WHERE env_steps = 4096",
            "--json",
            "--study",
            str(trained.study),
        )[1]
    )
    assert all(row["r"] > 5.0 for row in rolling) and len(rolling) == 2


def test_train_refuses_an_existing_export_folder(say, trained, tmp_path):
    code, _, err = say("train", "tiny.yaml", "--out", str(tmp_path), "--export", str(trained.out))
    assert code == 2 and "already exists" in err
    assert list(tmp_path.iterdir()) == []


def test_eval_trace_writes_every_env_step_as_csv(say, trained, tmp_path):
    target, policy = tmp_path / "steps.csv", str(trained.out / "policy")
    code, out, _ = say("eval", policy, "--trace", str(target), "--episodes", "3", "--json")
    told = json.loads(out)
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert code == 0 and told["env_steps"] == len(rows)
    assert set(rows[0]) >= {"episode", "step", "reward", "action", "observation_3", "terminated"}
    returns = json.loads(say("eval", policy, "--episodes", "3", "--json")[1])["returns"]
    ends = [float(row["return"]) for row in rows if "1" in (row["terminated"], row["truncated"])]
    assert ends == returns


def test_study_init_starts_from_an_exported_policy(say, trained, tmp_path):
    """With a step size of nothing, it ends with the values of the policy it starts from."""
    (tmp_path / "next.yaml").write_text(
        STUDY.replace("loggers: [{type: csv}]", "")
        + f"init: {{from: {trained.out / 'policy'}, optimiser: restored}}\n"
    )
    words = ["train", str(tmp_path / "next.yaml"), "--out", str(tmp_path / "results"), "--quiet"]
    still = ["--set", "space.learning_rate={value: 1e-30}"]
    assert say(*words, *still, "--set", "checkpoint.parts=[parameters]")[0] == 0
    files = [
        folder / "parts" / "parameters.npz"
        for folder in (trained.out / "policy", tmp_path / "results/next/policies/trial_0")
    ]
    with np.load(files[0]) as before, np.load(files[1]) as after:
        assert set(before) == set(after)
        for name in before:
            np.testing.assert_allclose(before[name], after[name], rtol=0.0, atol=1e-25)
    wider = [*words, "--name", "wider", "--set", "fixed.hidden_sizes=[9]"]
    code, _, err = say(*wider)
    assert code == 2 and "init: the parameter " in err and "(8,) in the saved" in err
    assert not (tmp_path / "results" / "wider").exists()
    several = tmp_path / "several.yaml"
    several.write_text((tmp_path / "next.yaml").read_text().replace(", hidden_sizes: [8]", ""))
    searched = ["--set", "space.hidden_sizes={values: [[8], [9]]}"]
    code, _, err = say("run", str(several), *words[2:], *searched)
    assert code == 2 and "(8,) in the saved" in err and "(of hidden_sizes=[9])" in err
    assert not (tmp_path / "results" / "several").exists()
    for file, changes in ((several, searched), (tmp_path / "next.yaml", wider[-2:])):
        code, _, err = say("check", str(file), "--no-time", *changes)
        assert code == 2 and "(8,) in the saved" in err


def test_tables_are_exported(say, tmp_path):
    code, _, err = say("export", "csv", "--to", str(tmp_path / "copy"))
    assert code == 0 and "wrote tiny for csv" in err
    names = {path.name for path in (tmp_path / "copy").iterdir()}
    assert names == {"trials.csv", "curves.csv", "evaluations.csv"}
    code, _, err = say("export", "excel", "--to", str(tmp_path / "other"))
    assert code == 2 and "excel" in err and "tensorboard" in err
    code, _, err = say("export", "tensorboard", "--to", str(tmp_path / "t"), "--set", "topk=3")
    assert code == 2 and "did you mean 'top_k'?" in err


def test_knobs_and_envs_are_listed(say):
    assert json.loads(say("knobs", "--json")[1])[0]["name"] == "learning_rate"
    assert json.loads(say("envs", "--json")[1])[0]["id"] == "CartPole-v1"
    assert "learning_rate" in say("knobs")[1] and "Pendulum-v1" in say("envs")[1]


# ---------------------------------------------------------------------- pipes and signals


def test_closed_pipe_reader_is_not_an_error(home):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*HPO, "knobs", "--json"], cwd=home, stdout=write, stderr=-1, check=False
    )
    os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.parametrize(
    "words", [["top"], ["query", "SELECT * FROM curves"], ["knobs"]], ids=" ".join
)
def test_closed_or_full_stdout_gives_no_traceback(home, words):
    command = [*HPO, *words]
    read, write = os.pipe()
    os.close(read)
    left = subprocess.run(command, cwd=home, stdout=write, stderr=-1, check=False)
    os.close(write)
    assert (left.returncode, left.stderr) == (141, b"")
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], cwd=home, stderr=-1, check=False
    )
    assert (closed.returncode, closed.stderr) == (0, b"")
    with open("/dev/full", "w") as device:
        full = subprocess.run(command, cwd=home, stdout=device, stderr=-1, check=False)
    assert full.returncode == 2
    assert full.stderr == b"No space left on device while reading or writing stdout\n"


LONG = ["run", "tiny.yaml", "--name", "long", "--set", "env_steps=40M", "--set",
        "evaluation.every=10k"]  # fmt: skip


class Running:
    """`hpo run` of a study without an end in sight; its stderr is collected line by line."""

    def __init__(self, home):
        self.process = subprocess.Popen(
            [*HPO, *LONG], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        with self.process.stderr as stderr:
            for line in stderr:
                self.lines.append(line.rstrip())

    def wait_for(self, words, seconds=600):
        end = time.monotonic() + seconds
        while not any(words in line for line in self.lines):
            assert time.monotonic() < end and self.process.poll() is None, self.lines
            time.sleep(0.02)

    def end(self):
        with self.process.stdout as stdout:
            out = stdout.read()
        code = self.process.wait(timeout=600)
        self._reader.join()
        return code, out

    def kill(self):
        self.process.kill()
        self.end()


@pytest.fixture
def running(home):
    runs = []

    def start():
        runs.append(Running(home))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.kill()


def test_ctrl_c_commits_first_and_quits_at_once_when_repeated(running, say):
    first = running()
    first.wait_for("compiled in")
    first.wait_for("| search")
    first.process.send_signal(signal.SIGINT)
    code, out = first.end()
    assert code == 130
    assert any("press Ctrl-C again" in line for line in first.lines)
    assert first.lines[-1].endswith("Resume with: hpo " + " ".join(LONG))
    assert "no winner yet" in out

    second = running()
    second.wait_for("resuming study long")
    second.wait_for("| search")
    second.process.send_signal(signal.SIGINT)
    second.wait_for("press Ctrl-C again")
    second.process.send_signal(signal.SIGINT)
    code, out = second.end()
    assert code == 130
    # The chunk may have ended between the presses: then the study left in the clean way.
    assert any("Quitting at once" in line or "Interrupted" in line for line in second.lines)
    code, out, _ = say("top", "--study", "long")
    assert code == 0
    assert "\nInterrupted: resume it with: hpo run " in out
