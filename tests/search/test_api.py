"""`hpo.run` up to the search itself, which is replaced by one that follows formulas."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import hpo
from helpers.analytic_lanes import AnalyticFactory
from hpo.errors import ConfigError, UnknownNameError
from hpo.search.lanes import local
from hpo.search.state import warm_start as book_of_warm_starts
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.store.study_folder import common_failure
from hpo.studies.load import load

TEXT = """\
env: CartPole-v1
env_steps: 16k
space:
  learning_rate: {min: 1e-5, max: 1e-1, distribution: log_uniform}
search: {method: random}
budget: {trials: 6}
"""


class Factory(AnalyticFactory):
    def check(self, config):
        """Every configuration can run."""


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A study file whose lanes follow formulas; what the factory was made of."""
    made = []

    def factory(study, compiling, warn, environments):
        made.append((study, compiling))
        return Factory()

    monkeypatch.setattr(local, "LocalFactory", factory)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(TEXT)
    return SimpleNamespace(path=tmp_path / "small.yaml", folder=tmp_path, made=made)


def test_default_output_folder_is_results(given):
    first = hpo.run("small.yaml")
    assert first.folder.resolve() == given.folder / "results" / "small"
    assert hpo.run("small.yaml").leaderboard == first.leaderboard


def test_a_resume_lists_the_settings_that_changed(given):
    study, said = load("small.yaml"), []
    hpo.run(study, warn=said.append)
    hpo.run(study, warn=said.append)
    assert said == []
    hpo.run(load("small.yaml", overrides=["budget.trials=8"]), warn=said.append)
    assert said == ["changed: budget.trials 6 -> 8"]
    more = ["budget.trials=9", "confirm.report=2", "confirm.choose=1", "checkpoint.keep_best=0"]
    hpo.run(load("small.yaml", overrides=more), warn=said.append)
    assert said[1].startswith("changed: budget.trials 8 -> 9, ") and len(said[1]) <= 71
    assert said[1].endswith(" more") and said[1].count("->") == 2
    seldom = [*more, "checkpoint.commit_every=5"]
    hpo.run(load("small.yaml", overrides=seldom), warn=said.append)
    hpo.run(load("small.yaml", overrides=more), warn=said.append)  # a record omits this default
    assert len(said) == 3 and "commit_every" in said[2]


def test_a_renamed_folder_is_resumed_under_its_new_name(given):
    first = hpo.run("small.yaml")
    first.folder.rename(first.folder.with_name("renamed"))
    said = []
    renamed = load("small.yaml", overrides=["name=renamed"])
    again = hpo.run(renamed, warn=said.append)
    assert said == ["changed: name small -> renamed"]
    assert [e.as_json() for e in again.leaderboard] == [e.as_json() for e in first.leaderboard]
    with Journal(again.folder) as journal:
        assert journal.meta.name == "renamed"
    grown = load("small.yaml", overrides=["name=renamed", "budget.trials=8"])
    plain = load("small.yaml", overrides=["budget.trials=8"])
    rows = [hpo.run(one).leaderboard for one in (grown, plain)]
    assert [e.as_json() for e in rows[0]] == [e.as_json() for e in rows[1]]


def test_new_flag_creates_numbered_folder(given):
    names = [hpo.run("small.yaml", new=new).folder.name for new in (True, True, False)]
    assert names == ["small", "small-2", "small"]


def test_configured_loggers_are_written(given):
    given.path.write_text(TEXT + "loggers: [{type: csv}, {type: console}]\n")
    assert (hpo.run("small.yaml").folder / "trials.csv").is_file()


def test_factory_receives_compile_callback(given):
    @contextmanager
    def compiling(words):
        yield

    hpo.run("small.yaml", compiling=compiling)
    assert given.made[0][1] is compiling


def test_user_code_runs_before_the_study(given):
    (given.folder / "api_code.py").write_text("raise ValueError('mine')\n")
    given.path.write_text("imports: [api_code.py]\n" + TEXT)
    with pytest.raises(ConfigError, match=r"api_code.py:1: ValueError: mine"):
        hpo.run("small.yaml")
    assert not (given.folder / "results").exists()
    (given.folder / "api_code.py").write_text("done = True\n")
    assert hpo.run("small.yaml").state == "finished"
    assert sys.modules.pop("api_code").done


def test_names_from_imports_are_checked_before_writing(given, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(given.folder)
    (given.folder / "nothing_here.py").write_text("x = 1\n")
    given.path.write_text("imports: [nothing_here.py]\n" + TEXT.replace("CartPole-v1", "Cartpole"))
    with pytest.raises(UnknownNameError, match="did you mean 'CartPole-v1'"):
        hpo.run("small.yaml")
    assert not (given.folder / "results").exists()
    sys.modules.pop("nothing_here")


class _Broken(Factory):
    """Fails in each chunk until its user mends it."""

    message = "no such key 1"

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)

        def advance(refills, busy):
            raise KeyError(self.message)

        made.advance = advance
        return made


def test_study_with_only_failed_trials_restarts_after_fix(given, monkeypatch):
    mended = local.LocalFactory
    given.path.write_text(TEXT + "imports: [own.py]\n")
    (given.folder / "own.py").write_text("x = 1\n")
    monkeypatch.setattr(local, "LocalFactory", lambda *parts, **more: _Broken())
    told = []
    first = hpo.run("small.yaml", warn=told.append)
    assert {entry.state for entry in first.leaderboard} == {"failed"} and not told
    (first.folder / "notes.txt").write_text("mine\n")
    refuses = Mock(side_effect=ConfigError("it cannot run here"))
    for place in ("hpo.search.lanes.local.LocalFactory", "hpo.search.run.make_sampler"):
        with monkeypatch.context() as still_broken, pytest.raises(ConfigError, match="cannot run"):
            still_broken.setattr(place, refuses)
            hpo.run("small.yaml")
        assert "no such key 1" in common_failure(first.folder)  # nothing is lost
    monkeypatch.setattr(local, "LocalFactory", mended)
    (given.folder / "own.py").write_text("x = 2\n")
    given.path.write_text(TEXT.replace("1e-1", "1e-2") + "imports: [own.py]\n")
    again = hpo.run("small.yaml", warn=told.append)
    assert again.best is not None and again.folder == first.folder
    assert [entry.state for entry in again.leaderboard].count("failed") == 0
    [words] = told
    assert (
        "all trials of small failed, so the study starts over" in words
        and "no such key 1" in words
    )
    assert (first.folder / "notes.txt").read_text() == "mine\n"
    whole = hpo.run("small.yaml", given.folder / "other")
    assert tables_equal(again.folder, whole.folder) == []
    hpo.run("small.yaml", warn=told.append)  # finished: nothing begins anew
    assert len(told) == 1
    sys.modules.pop("own")


def test_trials_that_failed_for_different_reasons_are_kept(given, monkeypatch):
    class Various(_Broken):
        @property
        def message(self):
            return f"reason {'abc'[len(given.made) % 3]}" + "x" * len(given.made)

        def make(self, resolved, lanes):
            given.made.append(1)
            return super().make(resolved, lanes)

    given.path.write_text(TEXT + "population: {lanes: 2}\n")
    monkeypatch.setattr(local, "LocalFactory", lambda *parts, **more: Various())
    first = hpo.run("small.yaml")
    assert {entry.state for entry in first.leaderboard} == {"failed"}
    told = []
    assert hpo.run("small.yaml", warn=told.append).leaderboard == first.leaderboard
    assert told == []


def test_untraceable_environment_fails_before_writing(given, monkeypatch):
    monkeypatch.undo()
    monkeypatch.chdir(given.folder)
    (given.folder / "api_env.py").write_text(
        "import jax\n"
        "from hpo.core.envs.navigators import Navigators\n"
        "from hpo.core.envs.registry import register\n"
        "class Mine(Navigators):\n"
        "    def step(self, key, state, action, params):\n"
        "        return state['plce']\n"
        "register('api-mine', Mine)\n"
    )
    given.path.write_text("imports: [api_env.py]\n" + TEXT.replace("CartPole-v1", "api-mine"))
    with pytest.raises(ConfigError, match=r"while step is traced: .*api_env\.py:6: "):
        hpo.run("small.yaml")
    assert not (given.folder / "results").exists()
    sys.modules.pop("api_env")


def test_an_earlier_study_is_read_once(given, monkeypatch):
    hpo.run(given.path, given.folder)
    earlier = "{method: tpe, warm_start: {study: small}}"
    warm = given.folder / "warm.yaml"
    warm.write_text(TEXT.replace("{method: random}", earlier))
    reads, told, read = [], [], book_of_warm_starts._read_earlier_trials
    monkeypatch.setattr(
        book_of_warm_starts, "_read_earlier_trials", lambda *a: reads.append(1) or read(*a)
    )
    results = hpo.run(warm, given.folder, warn=told.append)
    assert len(reads) == 1 and [line for line in told if line.startswith("warm start: ")] == told
    assert (results.folder / "warm_start.json").is_file()
