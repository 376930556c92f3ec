"""`hpo.run` and its like as a notebook has them; lanes follow formulas, but for one policy."""

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import hpo
from helpers import view_samples as samples
from helpers.analytic_lanes import AnalyticFactory
from hpo.errors import (
    ConfigError,
    MissingExtraError,
    SearchError,
    StoreError,
    StudyError,
    UnknownNameError,
)
from hpo.search.lanes import local
from hpo.store import query
from hpo.store.leaderboard import leaderboard_of
from hpo.store.rows import BaselineRow, StudyMeta, TrialRow, TrialState
from hpo.store.study_verdict import concluded
from hpo.studies.execution_spec import Logger
from hpo.studies.load import load, read_study
from hpo.studies.search_spec import Metric
from hpo.views.python import calls
from hpo.views.python.calls import OneLine

MAPPING = {
    "name": "small",
    "env": "CartPole-v1",
    "env_steps": "16k",
    "space": {
        "learning_rate": {"min": np.float64(1e-5), "max": 1e-1, "distribution": "log_uniform"},
        "hidden_sizes": {"values": ([16], (32,))},
    },
    "search": {"method": "random"},
    "confirm": {"top_k": 2, "choose": 3, "report": 6},
    "budget": {"trials": np.int64(12)},
}
TEXT = """\
name: small
env: CartPole-v1
env_steps: 16k
space:
  learning_rate: {min: 1e-5, max: 1e-1, distribution: log_uniform}
  hidden_sizes: {values: [[16], [32]]}
search: {method: random}
confirm: {top_k: 2, choose: 3, report: 6}
budget: {trials: 12}
"""


class Factory(AnalyticFactory):
    def check(self, config):
        """Every configuration can run."""


@pytest.fixture(autouse=True)
def _formulas(monkeypatch, tmp_path):
    monkeypatch.setattr(local, "LocalFactory", lambda *parts, **more: Factory())
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "LocalFactory", lambda *parts, **more: Factory())
        return hpo.run(MAPPING, folder)


# ---------------------------------------------------------------------- what a study is given as


FORMS = {
    "path": lambda: "small.yaml",
    "whole path": lambda: Path("small.yaml").resolve(),
    "text": lambda: hpo.yaml(TEXT),
    "mapping": lambda: MAPPING,
}


def in_json(results):
    return [entry.as_json() for entry in results.leaderboard]


@pytest.mark.parametrize("form", [*FORMS, "loaded study"])
def test_all_forms_of_a_study_give_equal_results(done, tmp_path, form):
    (tmp_path / "small.yaml").write_text(TEXT)
    if form == "loaded study":
        results = hpo.run(load("small.yaml"), str(tmp_path / "a"), study_text=TEXT)
    else:
        results = hpo.run(FORMS[form](), tmp_path / "a")
    assert results.state == "finished" and results.folder == tmp_path / "a" / "small"
    assert in_json(results) == in_json(done)
    kept = (results.folder / "study.yaml").read_text()
    if form == "mapping":
        assert kept == (done.folder / "study.yaml").read_text()
    else:
        assert kept == TEXT
    assert hpo.run(hpo.yaml(kept), tmp_path / "a").leaderboard == results.leaderboard


def test_study_name_can_be_given_and_has_a_default():
    nameless = {key: value for key, value in MAPPING.items() if key != "name"}
    assert read_study(nameless)[0].name == "study"
    assert read_study(hpo.yaml(TEXT), "other")[0].name == "other"
    assert read_study(load_of(TEXT), "other")[0].name == "other"
    assert hpo.run(nameless, name="mine").folder.name == "mine"


def load_of(text):
    return read_study(hpo.yaml(text))[0]


def unknown_logger():
    return replace(load_of(TEXT), loggers=(Logger("cvs"),))


REFUSED = {
    "unknown hyperparameter": (
        lambda: hpo.run({**MAPPING, "fixed": {"learning_rat": 1e-3}}),
        StudyError,
        r"^the mapping: .*did you mean 'learning_rate'",
    ),
    "unknown key": (
        lambda: hpo.check(hpo.yaml(TEXT.replace("trials: 12", "trails: 12"))),
        StudyError,
        r"^hpo\.yaml\(\.\.\.\):9: ",
    ),
    "unknown key in a file": (lambda: hpo.run("wrong.yaml"), StudyError, r"wrong.yaml:10: "),
    "no YAML": (
        lambda: hpo.check(hpo.yaml("env: [CartPole")),
        StudyError,
        r"^hpo\.yaml\(\.\.\.\):1: is not valid YAML",
    ),
    "bare text": (lambda: hpo.run(TEXT), ConfigError, r"use hpo\.yaml\("),
    "missing file": (
        lambda: hpo.train("smal.yaml"),
        StudyError,
        r"smal\.yaml: cannot be read",
    ),
    "number": (lambda: hpo.run(3), ConfigError, "given as int"),
    "object in a mapping": (
        lambda: hpo.run({**MAPPING, "seed": object()}),
        ConfigError,
        "cannot contain a object",
    ),
    "unknown logger": (
        lambda: hpo.run(unknown_logger()),
        UnknownNameError,
        "did you mean 'csv'",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_python_api_errors_name_source_and_key(tmp_path, case):
    call, error, words = case
    (tmp_path / "wrong.yaml").write_text(TEXT + "nonsense: 1\n")
    with pytest.raises(error, match=words):
        call()
    assert not (tmp_path / "results").exists()


def test_check_returns_the_command_data(monkeypatch):
    monkeypatch.undo()
    found = hpo.check(MAPPING)
    assert not found.mistakes and found.as_data()["name"] == "small"
    assert "programs" in found.as_data() and "small" in repr(found)
    assert found._repr_html_().startswith("<pre>")


# ---------------------------------------------------------------------- what comes out


def test_study_tables_are_available_as_pandas_and_arrow(done):
    study = hpo.open(done.folder)
    for name in ("trials", "evaluations", "curves"):
        columns, rows = query(
            done.folder,
            f"SELECT * EXCLUDE (param) FROM {name}"
            if name == "trials"
            else f"SELECT * FROM {name}",
        )
        frame, table = getattr(study, name), study.table(name)
        assert isinstance(table, pa.Table) and list(frame.columns) == columns
        assert len(frame) == table.num_rows == len(rows) > 0
    assert list(study.trials["trial"]) == [entry.trial for entry in done.leaderboard]
    assert study.table("curves", ["trial"]).column_names == ["trial"]
    best = study.query("SELECT value FROM trials ORDER BY rank LIMIT 1")
    assert best["value"][0] == done.best.value
    with pytest.raises(StoreError, match="known: trials, evaluations, curves, baselines"):
        study.table("trails")
    with pytest.raises(
        UnknownNameError, match=r"column of curves 'trail'; did you mean 'trial'\?"
    ):
        study.table("curves", ["env_steps", "trail"])
    with pytest.raises(StoreError, match="has no baselines"):
        _ = study.baselines


def test_opened_study_matches_the_run_results(done):
    study = done.open()
    assert list(study.leaderboard) == list(done.leaderboard) and study.best == done.best
    assert (study.name, study.state) == ("small", "finished")
    assert hpo.open("small", done.folder.parent) == study
    assert study.conclusion.winner == f"trial {done.best.trial}"
    with pytest.raises(StoreError, match="there is no study 'smal'; did you mean 'small'"):
        hpo.open("smal", done.folder.parent)


def test_notebook_html_is_complete(done):
    study = done.open()
    for shown in (study, study.leaderboard, done):
        html = shown._repr_html_()
        assert html.count("<table>") == html.count("</table>") == 1
        assert html.count("<tr>") == 1 + 10 + 1 and "2 more" in html
        assert f"<td>{done.best.trial}</td>" in html and "<th>search*" in html
    assert "<li>" in study._repr_html_() and "finished" in repr(study)
    assert repr(done).startswith("<Results of small: finished, trial ")


def test_multi_objective_leaderboard_repr_has_objective_columns(tmp_path):
    objectives = (Metric(), Metric("eval/thrift", "minimize"))
    made = samples.make_results(tmp_path, "front", objectives=objectives)
    found = hpo.open(made.folder).leaderboard
    header, *_ = repr(found).splitlines()
    assert {"front", "thrift"} <= set(header.split()) and "search" not in header


def test_plot_methods_return_matplotlib_axes(done, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    plot = done.open().plot
    axes = plot.history()
    assert axes.get_xlabel() and axes.lines
    assert isinstance(plot.slices(), list) and len(plot.slices()) == 2
    assert plot.curves() is not None and plot.parallel() is not None
    own = pyplot.figure().subplots()
    assert plot.history(own) is own and own.lines
    with pytest.raises(ConfigError, match="2 panels; remove ax"):
        plot.slices(own)
    with pytest.raises(StoreError, match="nothing to draw for 'small'"):
        plot.pareto()
    pyplot.close("all")


def test_missing_pandas_names_the_extra(done, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[notebook\]'"):
        _ = hpo.open(done.folder).curves
    assert hpo.open(done.folder).table("curves").num_rows > 0


def test_missing_policy_of_a_trial_is_refused(done):
    with pytest.raises(StoreError, match="has no saved policy for trial 99"):
        done.policy(99)


# ---------------------------------------------------------------------- conclusions


def test_verdict_uses_test_seeds_only():
    meta = StudyMeta("s", "h", "", "eval/return_mean", "maximize", "mean", {})

    def row(trial, report, **more):
        made = {"value": 1.0, "seed_values": (1.0,), "choose_values": (float(trial),) * 3}
        return TrialRow(
            trial,
            TrialState.FINISHED,
            "default",
            0,
            "b",
            {},
            **{**made, "report_values": report, **more},
        )

    def said(*rows, baselines=()):
        return concluded(meta, rows, leaderboard_of(meta, rows), baselines)

    high, low = tuple(5.0 + x / 10 for x in range(8)), tuple(1.0 + x / 9 for x in range(8))
    assert said(row(0, low), row(1, high)).verdict == "better"
    assert said(row(0, ()), row(1, high)).verdict == "nothing"
    assert said(row(0, (), choose_values=(9.0,) * 3), row(1, ())).winner is None
    assert said(row(0, high, choose_values=(9.0,) * 3), row(1, ())).verdict == "default"
    evolved = ({"env_steps": 0},)
    assert said(row(0, low, schedule=evolved), row(1, high)).verdict == "nothing"
    rule = BaselineRow("ksp_ff", {"report": low}, {})
    assert [a.verdict for a in said(row(1, high), baselines=[rule]).baselines] == ["better"]
    several = [{"name": name, "goal": "maximize"} for name in ("a", "b")]
    assert concluded(replace(meta, objectives=several), [], []).winner is None


# ---------------------------------------------------------------------- while it runs


def test_non_interactive_run_prints_only_warnings(capsys, monkeypatch):
    def factory(study, compiling, warn, environments):
        warn("one environment is slow")
        warnings.warn("and this", UserWarning, stacklevel=1)
        return Factory()

    monkeypatch.setattr(local, "LocalFactory", factory)
    hpo.run(MAPPING)
    shown = capsys.readouterr()
    assert shown.err == "warning: one environment is slow\nwarning: and this\n" and not shown.out


def test_notebook_progress_updates_one_line(monkeypatch):
    shown = []

    class Handle:
        def update(self, data, raw):
            shown.append(data["text/plain"])

    def display(data, raw, display_id):
        shown.append(data["text/plain"])
        return Handle()

    module, part = ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())
    part.display = display
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", part)
    hpo.run(MAPPING)
    assert shown[0].startswith("starting study small: environment CartPole-v1")
    assert shown[-1].startswith("finished: ") and "100%" in shown[-1]
    before = len(shown)
    hpo.run({**MAPPING, "name": "again"}, progress=False)
    assert len(shown) == before


def test_progress_lines_respect_the_minimum_interval():
    said = []
    hpo.run(MAPPING, "a", [OneLine(said.append, every_seconds=1e9)], progress=False)
    assert sum("env steps" in line for line in said) == 2  # the first, and the last


def test_script_progress_is_printed_only_on_request(capsys):
    hpo.run(MAPPING, "a")
    hpo.train(MAPPING, "b")
    assert capsys.readouterr() == ("", "")  # nobody looks: a script says what it wants to
    hpo.run(MAPPING, "c", progress=True)
    out, told = capsys.readouterr()
    assert out == "" and "\r" not in told and "\x1b" not in told
    assert sum("env steps" in line for line in told.splitlines()) == 2  # the first, and the last


# ---------------------------------------------------------------------- one policy


def test_learn_returns_a_policy_and_leaves_no_files(tmp_path, monkeypatch, quickly):
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    policy = hpo.learn(
        "CartPole-v1",
        {
            "hidden_sizes": [4],
            "num_envs": 2,
            "rollout_length": 8,
            "minibatch_size": 16,
            "update_epochs": 1,
        },
        seed=3,
        env_steps=160,
    )
    action, _ = policy.predict([0.0, 0.1, 0.0, -0.1])
    assert int(action) in (0, 1) and policy.about["study"] == "learn"
    assert list(tmp_path.iterdir()) == []
    assert isinstance(policy, hpo.SavedPolicy)


def test_learn_over_several_environments_is_refused_before_it_trains(monkeypatch):
    monkeypatch.setattr(calls, "train", lambda *_, **__: pytest.fail("it trained"))
    with pytest.raises(ConfigError, match=r"^env is \['CartPole-v1', .*; allowed: an id or a ma"):
        hpo.learn(["CartPole-v1", "Acrobot-v1"])


def test_learn_without_a_policy_reports_the_reason(monkeypatch):
    class Broken(Factory):
        def make(self, resolved, lanes):
            raise RuntimeError("no room")

    monkeypatch.setattr(local, "LocalFactory", lambda *parts, **more: Broken())
    with pytest.raises(SearchError, match=r"produced no policy: .*RuntimeError: no room"):
        hpo.learn("CartPole-v1")


UNUSABLE = [
    ({"callbacks": 3}, r"^callbacks is 3; allowed: "),
    ({"observers": "x"}, r"^observers is 'x'; allowed: "),
    ({"progress": "yes"}, r"^progress is 'yes'; allowed: "),
    # a callback that would never be called
    ({"callbacks": [3]}, r"^a callback is .*; allowed: an object with"),
    ({"callbacks": [lambda event: None]}, r"^a callback is .*; allowed: an object with"),
    ({"callbacks": [hpo.Callback]}, r"^a callback is .*; allowed: an object with"),
]


@pytest.mark.parametrize(("options", "words"), UNUSABLE)
def test_unusable_run_options_get_one_line_errors(options, words, tmp_path):
    with pytest.raises(ConfigError, match=words) as raised:
        hpo.run({"env": "CartPole-v1", "env_steps": 1000}, tmp_path, **options)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_learn_refuses_a_non_mapping_configuration():
    with pytest.raises(ConfigError, match=r"config is \['gamma'\]; allowed: a mapping of"):
        hpo.learn("CartPole-v1", ["gamma"], env_steps=160)


def test_wrong_env_steps_unit_gets_a_suggestion(capsys):
    for given, meant in (("20q", "20k"), ("2 m", "2M")):
        words = rf"env_steps is '{given}'; did you mean {meant}\? allowed: a whole number"
        with pytest.raises(StudyError, match=words):
            hpo.learn("CartPole-v1", env_steps=given)
    with pytest.raises(StudyError, match="env_steps is 'many'; allowed"):
        hpo.learn("CartPole-v1", env_steps="many")
    assert capsys.readouterr() == ("", "")


def test_import_stays_light_and_dir_is_complete():
    code = (
        "import sys, hpo; heavy = {'jax', 'numpy', 'pandas', 'pyarrow', 'duckdb', 'matplotlib'};"
        "assert set(hpo.__all__) <= set(dir(hpo)); print(sorted(heavy & set(sys.modules)));"
        "[getattr(hpo, name) for name in ('open', 'yaml', 'load_policy', 'HpoError')];"
        "print(sorted({'jax', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.stdout.splitlines() == ["[]", "[]"], shown.stderr
    assert {"open", "run", "train", "check", "learn", "yaml", "load_policy"} <= set(dir(hpo))
    assert load.__module__ == "hpo.studies.load"
