"""`hpo tuned` and the verbs that take a tuned configuration, over records that tests make up."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import yaml

from helpers import tuned_samples as samples
from helpers.loading import script_module
from hpo.cli import main
from hpo.knobs import complete
from hpo.search import tuned_runs as verifying
from hpo.store.permutation_tests import agreement
from hpo.studies.load import loads
from hpo.studies.tuned.record import read_record
from hpo.views.commands.tuned import record_data, record_words, records_table


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder that holds `results/tuned` with one record."""
    folder = tmp_path_factory.mktemp("made")
    samples.written(folder)
    return folder


@pytest.fixture
def say(made, monkeypatch, capsys):
    """Type a command in that folder; give exit code, stdout and stderr."""
    monkeypatch.chdir(made)

    def say(*words):
        capsys.readouterr()
        code = main(list(words))
        return code, *capsys.readouterr()

    return say


def test_tuned_list_has_one_line_per_record(say):
    code, out, _ = say("tuned", "--tuned", "results/tuned")
    lines = out.splitlines()
    assert code == 0 and lines[0].split()[:2] == ["environment", "steps"]
    assert lines[2].startswith("CartPole-v1") and "better" in lines[2]
    shipped = Path(__file__).parents[2] / "results" / "tuned"
    every = [*lines, *say("tuned", "--tuned", str(shipped))[1].splitlines()]
    assert len(every) > 10 and max(map(len, every)) <= 80
    data = json.loads(say("tuned", "--tuned", "results/tuned", "--json")[1])
    assert [one["name"] for one in data] == ["CartPole-v1"]
    assert data[0]["config"]["learning_rate"] == 0.002
    assert [one["who"] for one in data[0]["results"]][:2] == ["tuned", "default"]
    assert data[0]["results"][1]["verdict"] == "better"


def test_tuned_record_is_printed_with_its_results(say):
    code, out, _ = say("tuned", "CartPole-v1")
    assert code == 0
    assert "better than the default" in out.splitlines()[0]
    assert len(out.splitlines()) <= 24 and "versions" not in out
    configuration = out.partition("\nfixed:\n")[2].partition("\n\n")[0]
    assert yaml.safe_load(f"fixed:\n{configuration}")["fixed"]["learning_rate"] == 0.002
    for words in ("# default 0.001", "32 test seeds", "rl-baselines3-zoo", "hpo train tuned:"):
        assert words in out
    code, more, _ = say("tuned", "CartPole-v1", "-v")
    for words in ("trial 7", "DLR-RM/rl-baselines3-zoo", "training"):
        assert words in more and code == 0
    assert "Details: " in out and "Details: " not in more
    loser = replace(
        samples.record(),
        contenders=(samples.contender("tuned", 40.0), samples.contender("default", 50.0)),
    )
    assert "the current default was not run" not in out
    given = {"learning_rate": 3e-4, "normalise_rewards": False}
    ran = replace(samples.contender("default", 50.0), config=complete(given))
    of_old = replace(samples.record(), contenders=(samples.contender("tuned", 60.0), ran))
    with StringIO() as stream:
        told = record_words(of_old, stream)
    words = " ".join(told.split())
    assert (
        "with learning_rate 0.0003, normalise_rewards false; the current default was not run"
        in words
    )
    assert "*  " in records_table([of_old]) and "*" not in records_table([samples.record()])
    values = {"ksp_ff": tuple(v + 3 + v / 100 for v in samples.record().tuned.greedy)}
    beside = replace(samples.record(), heuristics=values)
    with StringIO() as stream:
        told = record_words(beside, stream)
    assert "worse than the heuristic ksp_ff on the same requests, tuned minus" in " ".join(
        told.split()
    )
    row = records_table([beside]).splitlines()[2]
    assert row.split()[-1] == "-1", row
    endless = [replace(one, training=(None,) * 32) for one in beside.contenders]
    with StringIO() as stream:
        told = record_words(replace(beside, contenders=tuple(endless)), stream)
    assert "nan" not in told and "during training" not in told and "training" not in told
    assert record_data(beside)["heuristics"][0]["verdict"] == "worse"
    with open("/dev/null", "w") as stream:
        assert "worse than the default" in record_words(loser, stream)


def test_shipped_tuned_records_fit_80_columns(say):
    shipped = Path(__file__).parents[2] / "results" / "tuned"
    for path in sorted(shipped.glob("*.yaml")):
        record = read_record(path)
        with StringIO() as stream:
            lines = record_words(record, stream).splitlines()
        table = [line for line in lines if line.startswith(("---", "default ", "tuned "))]
        assert len(table) >= 3 and max(map(len, lines)) <= 80
        assert all(len(line.split()) > 1 for line in table)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tuned", "CartPole-v0"], "did you mean 'CartPole-v1'"),
        (["tuned", "verify"], "run: hpo tuned verify ENV"),
        (["tuned", "CartPole-v1", "again"], "run: hpo tuned ENV"),
        (["tuned", "verify", "CartPole-v1", "--seeds", "4"], "at least 5"),
        (["tuned", "--seeds", "64"], "--seeds works only with hpo tuned verify"),
        (["train", "tuned:Nowhere-v1"], "unknown tuned configuration 'Nowhere-v1'"),
        (["tuned", "--tuned", "elsewhere", "CartPole-v1"], "no tuned configuration in elsewhere"),
    ],
)
def test_tuned_mistakes_get_one_line_errors(say, words, told):
    code, out, err = say(*words)
    assert code == 2 and told in err and out == "" and len(err.splitlines()) == 1


def test_tuned_check_script_reports_and_repairs_faults(made, monkeypatch, capsys):
    monkeypatch.chdir(made)
    script = script_module("tuned_parts.main").main

    def say(*words):
        capsys.readouterr()
        return script(list(words)), *capsys.readouterr()

    assert say("check")[:2] == (0, "1 tuned configuration, nothing at fault\n")
    table = made / "results" / "tuned" / "curves.parquet"
    kept = table.read_bytes()
    table.unlink()
    code, _, err = say("check")
    assert code == 2 and "scripts/tuned check --write" in err
    assert len(json.loads(say("check", "--json")[1])["faults"]) == 1
    assert say("check", "--write")[0] == 0 and table.read_bytes() == kept
    code, out, err = say("add", "nothing")
    assert code == 2 and "there is no study 'nothing'" in err and out == ""


def test_init_starts_at_the_tuned_configuration(say):
    _, out, _ = say("init", "CartPole-v1")
    study = loads(out)
    plain = loads(say("init", "CartPole-v1", "--plain")[1])
    assert study.default()["learning_rate"] == 0.002 and study.env_steps == 102400
    assert plain.default()["learning_rate"] == 1e-3
    assert plain.early_terminate is None and plain.search.portfolio == 3  # twelve runs
    # the plan that benchmarks/bench/budgets.yaml compares last
    assert study.early_terminate.min == round(0.3 * study.env_steps)
    assert (study.seeds.per_config, study.confirm.top_k, study.confirm.choose) == (1, 3, 3)
    assert study.metric.training_weight == plain.metric.training_weight == 0.5


def test_query_reads_tuned_results(say, made, monkeypatch):
    sql = "SELECT who FROM trials WHERE rank = 1"
    assert say("query", "--study", "results/tuned", "--csv", sql)[1] == "who\ntuned\n"
    assert say("query", "--study", "tuned", "--csv", sql)[1] == "who\ntuned\n"
    lost = made / "results" / "lost"
    lost.mkdir()
    for path in (made / "results" / "tuned").glob("*.parquet"):
        (lost / path.name).write_bytes(path.read_bytes())
    (lost / "study.yaml").write_text(samples.STUDY)
    code, _, err = say("query", "--study", "lost", sql)  # a study without its journal is damaged
    assert code == 2 and "journal" in err


@pytest.mark.parametrize(
    ("verdict", "words", "code"),
    [
        ("bit-equal", [], 0),
        ("within the interval", [], 0),
        ("not", [], 1),
        ("within the interval", ["--bits"], 1),
        ("bit-equal", ["--bits"], 0),
    ],
)
def test_verdicts_have_exit_codes(say, monkeypatch, verdict, words, code):
    seen = agreement([1.0] * 8, [1.0] * 8 if verdict != "not" else [2.0] * 8)
    found = verifying.Verification(
        "CartPole-v1",
        verdict,
        8,
        8 if verdict == "bit-equal" else 3,
        8,
        (1.0, 2.0),
        seen,
        {"jax": ("0.1", "0.2")},
    )
    monkeypatch.setattr(verifying, "verify", lambda *_, **options: found)
    got, out, _ = say("tuned", "verify", "CartPole-v1", *words)
    assert got == code and out.startswith("CartPole-v1: ")
    assert (verdict if verdict != "not" else "NOT") in out.splitlines()[0]
    assert "jax 0.1 -> 0.2" in out
    data = json.loads(say("tuned", "verify", "CartPole-v1", "--json")[1])
    assert data["verdict"] == verdict and data["recorded"]["seeds"] == 8
