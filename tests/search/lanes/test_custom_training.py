"""Studies of custom trainings: from the file to tables, stopped and resumed."""

import json
import pickle
import re
import sys
from functools import partial
from pathlib import Path

import jax
import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from helpers.loading import run_file
from helpers.shared_programs import shared_programs
from hpo import load_training
from hpo.cli import main
from hpo.core.policy_document import read_training
from hpo.core.saved_policy import load_policy
from hpo.errors import HpoError
from hpo.search.analysis.replay import replay
from hpo.search.api import run as run_study
from hpo.search.checks import check_continues
from hpo.search.cluster.executors import LocalShares, SharedFactory
from hpo.search.engine.callbacks import StopStudy
from hpo.search.lanes.contract import Refill
from hpo.search.lanes.custom_training import TrainingFactory
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.search.study_estimate import preview
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.store.rows import Stream
from hpo.store.study_folder import StudyFolder
from hpo.studies.load import load, recorded
from hpo.studies.overrides import Given
from hpo.studies.schema import schema
from hpo.studies.spec import only_ppo
from hpo.studies.study_files import files_of_study
from hpo.studies.study_meta import study_meta
from hpo.studies.yaml_io import plain, read_text
from hpo.views.bundle.claims import claims_of

TRAINING = '''
import jax
import jax.numpy as jnp
import hpo


class Walk(hpo.Training):
    """Gradient descent on a noisy bowl, in steps."""

    unit, epoch = "steps", 40
    width = hpo.fixed(3, "of x", low=1)
    rate = hpo.traced(0.3, "step size", low=0.0)
    noise = hpo.traced(0.01, low=0.0)

    def setup(self):
        self.steps_per_update = 5

    def init(self, key, h):
        key, first = jax.random.split(key)
        return {"key": key, "x": jax.random.normal(first, (self.width,))}

    def update(self, state, h):
        key, draw = jax.random.split(state["key"])
        x = state["x"] * (1 - h.rate) + h.noise * jax.random.normal(draw, (self.width,))
        return {"key": key, "x": x}, {"loss": jnp.sum(x**2), "rate": h.rate}

    def evaluate(self, state, h, key):
        return {"return": -jnp.sum(state["x"] ** 2) + 0.01 * jax.random.normal(key),
                "size": jnp.abs(state["x"]).max()}
'''
STUDY = """
algorithm: walk.py:Walk
length: 4 epochs
space:
  rate: {min: 0.001, max: 2.2, distribution: log_uniform}
  noise: {min: 0.0001, max: 1.0, distribution: log_uniform}
search: {method: random}
evaluation: {episodes: 3}
population: {lanes: 4}
seeds: {per_config: 2}
budget: {trials: 8}
"""
KINDS = {
    "asha": "early_terminate: {type: asha, min: 20, eta: 2}\n"
    "confirm: {top_k: 2, choose: 2, report: 3}\n",
    "pause": "early_terminate: {type: asha, min: 20, eta: 2, pause: 2}\n",
    "pbt": "early_terminate: {type: pbt, every: 40}\npopulation: {lanes: 16}\n",
    "buckets": "space.width: {values: [2, 3]}\n",
}


class Cut(Observer):
    def __init__(self, chunks=0):
        self.left, self.seen = chunks, 0

    def on_chunk(self, progress):
        self.seen += 1
        if self.seen == self.left:
            raise StopStudy


@pytest.fixture(autouse=True)
def compiled_once():
    with shared_programs():
        yield


@pytest.fixture(autouse=True)
def _as_users_have_it():
    with jax.numpy_dtype_promotion("standard"):
        yield


CROSSINGS = {
    "racing": "seeds: {per_config: 4, racing: {start: 2}}\n",
    "objectives": "objectives: [{name: eval/return_mean}, {name: eval/size, goal: minimize}]\n"
    "constraints: [{metric: eval/size, max: 0.5}]\n",
    "minimize": "metric: {name: eval/size, goal: minimize}\npopulation: {lanes: 1}\n",
    "policies": "checkpoint: {keep_best: 2, best_of_each: true, policies_every: 40}\n",
    "pb2": "early_terminate: {type: pb2, every: 40}\npopulation: {lanes: 16}\n",
    "hyperband": "early_terminate: {type: hyperband, min: 20, eta: 2}\nlog_every: 10\n",
    "rules": "forbid: ['rate > 0.5 and noise > 0.01']\nenqueue: [{rate: 0.5}]\n",
}


def written(folder, kind, training=TRAINING):
    text = STUDY
    for line in {**KINDS, **CROSSINGS}.get(kind, kind).splitlines():
        key, _, value = line.partition(": ")
        if key == "space.width":
            text = text.replace("space:\n", f"space:\n  width: {value}\n")
        else:
            text = "\n".join(t for t in text.splitlines() if not t.startswith(f"{key}:"))
            text += f"\n{line}\n"
    folder.mkdir(exist_ok=True)
    (folder / "walk.py").write_text(training)
    (folder / "study.yaml").write_text(text)
    return load(folder / "study.yaml")


def tables(folder):
    timed = ("started_at", "ended_at", "train_seconds", "elapsed_seconds", "env_steps_per_second")
    return {
        name: pq.read_table(folder / f"{name}.parquet").drop_columns(
            [c for c in pq.read_schema(folder / f"{name}.parquet").names if c in timed]
        )
        for name in ("trials", "evaluations", "curves")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_custom_training_resumes_with_equal_tables(tmp_path, kind):
    study = written(tmp_path / kind, kind)
    whole, cut, counted = tmp_path / "whole", tmp_path / "cut", Cut()
    results = run(study, whole, TrainingFactory(study), [counted], samples.quick())
    assert results.state == "finished" and counted.seen > 10
    for share in (0.2, 0.3, 0.4):  # after a fifth, a half, nine tenths
        life = Cut(int(share * counted.seen))
        found = run(study, cut, TrainingFactory(study), [life], samples.quick())
        assert found.state == "interrupted"
    assert run(study, cut, TrainingFactory(study), (), samples.quick()).state == "finished"
    for name, table in tables(whole).items():
        assert table.equals(tables(cut)[name]), name


@pytest.mark.parametrize("kind", ["asha", "pbt"])
def test_custom_training_with_dying_workers_equals_one_process(tmp_path, kind):
    """Each worker gets the study without its class, and runs the file itself."""
    study = written(tmp_path, kind)
    shares = run_file("tests/search/cluster/test_shares.py")
    sent = pickle.loads(pickle.dumps(study))
    assert sent == study and sent.algorithm.made is None
    deaths = iter(["early", "late"])
    team = shares.FakeTeam(
        shares=2,
        dies=lambda share, method, number: next(deaths, "") if number % 40 == 39 else "",
    )
    team._source = partial(LocalShares, sent, 2, 1)
    for share in range(2):
        team.replace(share)
    machine = LocalShares(sent, 2, 1, 1, print).machine
    run(study, tmp_path / "shared", SharedFactory(team, machine), (), samples.quick())
    run(study, tmp_path / "alone", TrainingFactory(study), (), samples.quick())
    assert team.deaths == 2
    assert tables_equal(tmp_path / "alone", tmp_path / "shared") == []


def test_fewer_lanes_than_workers_are_refused(tmp_path):
    few = "executor: {type: ray, workers: 3}\npopulation: {lanes: 2}\n"
    with pytest.raises(HpoError, match=r"only 2 tiles of 1 lane .* executor.workers: 2"):
        preview(written(tmp_path, few))


def test_custom_training_study_can_be_reloaded_and_replayed(tmp_path):
    study = written(tmp_path / "own", "pbt")
    folder = tmp_path / "own/result"
    run(study, folder, TrainingFactory(study), (), samples.quick())
    text = (folder / "study.resolved.yaml").read_text()
    again = recorded(text)
    assert again.algorithm == study.algorithm and again.algorithm.made is None
    assert again.complete({"rate": 1.0}) == study.complete({"rate": 1.0})
    with Journal(folder) as journal:
        copied = [row.trial for row in journal.trials() if row.schedule]
    assert copied  # PBT over a custom training copies states
    found = replay(StudyFolder(folder), copied[0], Path(study.source))
    assert found.same and found.curve_same > 0
    curves = pq.read_table(folder / "curves.parquet").to_pydict()
    assert {"loss", "rate"} <= set(curves)
    values = pq.read_table(folder / "evaluations.parquet").to_pydict()
    assert set(values["stream"]) == {str(Stream.SEARCH)} and np.isfinite(values["size"]).all()


@pytest.mark.parametrize("kind", CROSSINGS)
def test_custom_training_works_with_other_features(tmp_path, kind):
    study = written(tmp_path, kind)
    found = run(study, tmp_path / "result", TrainingFactory(study), (), samples.quick())
    assert found.state == "finished"
    with Journal(tmp_path / "result") as journal:
        rows = journal.trials()
    assert len(rows) == 8 and {row.state for row in rows} <= {"finished", "stopped"}
    assert any(row.value is not None for row in rows)


def test_lane_with_nan_ends_only_its_trial(tmp_path):
    broken = TRAINING.replace("(1 - h.rate)", "jnp.where(h.rate > 0.5, jnp.nan, 1 - h.rate)")
    study = written(tmp_path, "budget: {trials: 4}", broken)
    run(study, tmp_path / "result", TrainingFactory(study), (), samples.quick())
    with Journal(tmp_path / "result") as journal:
        rows = journal.trials()
    assert {row.state for row in rows} == {"finished", "diverged"}
    for row in rows:
        assert (row.state == "diverged") == (row.params["rate"] > 0.5)


def test_saved_training_can_be_loaded_and_evaluated(tmp_path):
    study = written(tmp_path, "budget: {trials: 2}\nseeds: {per_config: 1}\n")
    folder = tmp_path / "result"
    run(study, folder, TrainingFactory(study), (), samples.quick())
    kept = next(folder.glob("policies/trial_?"))
    training, state, h = load_training(kept, study.algorithm.made)
    assert read_training(kept)["about"]["study"] == study.name
    found = training.evaluate(state, h, jax.random.key(0))
    with Journal(folder) as journal:
        told = list(episodes_in(journal, int(kept.name[-1])))[-1]
    assert np.float32(told.metrics["size"]) == np.float32(found["size"])
    assert claims_of(folder)["claims"][-1]["sentences"] == ["Training took 320 steps."]
    with pytest.raises(HpoError, match=r"read it in Python with hpo\.load_training"):
        load_policy(kept)
    (kept / "training.json").write_text("{}")
    with pytest.raises(HpoError, match=r"training.json is damaged: it has no algorithm"):
        load_training(kept, study.algorithm.made)


def test_replay_compares_the_metric_where_there_is_no_return(tmp_path):
    without = TRAINING.replace('"return"', '"score"')
    study = written(tmp_path, "budget: {trials: 1}\nmetric: {name: eval/score}\n", without)
    folder = tmp_path / "result"
    run(study, folder, TrainingFactory(study), (), samples.quick())
    found = replay(StudyFolder(folder), 0, tmp_path)
    assert found.same and np.isfinite([point.replayed for point in found.points]).all()


@pytest.mark.parametrize(
    "key", ["metric: {name: eval/sice}", "constraints: [{metric: eval/sice}]"]
)
def test_a_metric_that_evaluate_does_not_return_is_refused(tmp_path, key):
    study = written(tmp_path, key.replace("sice}", "sice, max: 1}") if "con" in key else key)
    factory = TrainingFactory(study)
    with pytest.raises(
        HpoError, match=r"e: .*walk.py:\d+: does not return eval/sice; known: eval/size, eval"
    ):
        factory.check(factory.resolve(study.default()))


def test_files_imported_by_the_file_are_part_of_the_study(tmp_path):
    (tmp_path / "steps_of_it.py").write_text("STEPS = 5\n")
    study = written(tmp_path, "asha", TRAINING.replace("import hpo", "import hpo, steps_of_it"))
    assert sorted(files_of_study(study)) == ["steps_of_it.py", "walk.py"]


def test_changed_declaration_suggests_no_resume_command(tmp_path):
    before = written(tmp_path, "asha")
    meta = study_meta(before, {}, "cpu", 1)
    after = written(tmp_path, "asha", TRAINING.replace("traced(0.01", "traced(0.015"))
    now = Given("run", "study.yaml")
    with pytest.raises(HpoError, match="undo the change") as told:
        check_continues(meta, after, None, now, same_file=True)
    assert "--set algorithm" not in str(told.value)


def test_check_reports_problems_without_compiling(tmp_path):
    report, note = preview(written(tmp_path / "s", "buckets"))
    assert report.bucket_count == 2 and note == ""
    report, _ = preview(written(tmp_path / "short", "length: 20"))
    assert any(text.startswith("a run has only 4 updates of 5 steps,") for text in report.warnings)
    broken = TRAINING.replace('"size": jnp', '"size": undefined.x, "other": jnp')
    with pytest.raises(HpoError, match=r"Walk\.evaluate: .*walk\.py:\d+: NameError"):
        preview(written(tmp_path / "broken", "asha", broken))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("algorithm: walk.py:Wolk", "walk.py has no hpo.Training class 'Wolk'; did you mean"),
        ("algorithm: walk", "allowed: ppo, FILE.py:CLASS such as my_sac.py:SAC, or rejax:SAC"),
        ("algorithm: none.py:Walk", "none.py: no such file in the study's folder"),
        ("env: CartPole-v1", "Walk creates the environment itself; remove env"),
        ("env_steps: 100", "length and env_steps are both given; keep one"),
        ("length: 4 weeks", "allowed: a number of steps, a number of epochs"),
        ("early_terminate: {type: asha, min: 1k}", "min is 1000, but a run has 160 steps;"),
        ("fixed: {rat: 1}", "Walk has no hyperparameter 'rat'; did you mean 'rate'?"),
        ("fixed: {width: 0}", "width is 0; allowed: an integer of at least 1"),
        ("fixed: {gamma: 0.9}", "Walk has no hyperparameter 'gamma'"),
        ("init: {from: x}", "init"),
        ("checkpoint: {parts: [losses]}", "saves whole states, not parts"),
    ],
)
def test_custom_training_mistakes_report_their_line(tmp_path, given, words):
    written(tmp_path, "asha")
    path = tmp_path / "study.yaml"
    key = given.partition(":")[0]
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}:")]
    path.write_text("\n".join([*lines, given]) + "\n")
    with pytest.raises(HpoError, match=r"study\.yaml:\d+: ") as told:
        load(path)
    assert words in str(told.value)


def test_length_in_epochs_needs_declared_epoch_length(tmp_path):
    assert '"steps", 40' in TRAINING
    text = TRAINING.replace('"steps", 40', '"steps", None')
    with pytest.raises(HpoError, match=r"study\.yaml:\d+: ") as told:
        written(tmp_path, "asha", text)
    assert (
        "length is '4 epochs', but Walk defines no epoch length; give length in steps, or set "
        "`epoch` in the class to the steps per epoch"
    ) in str(told.value)


@pytest.mark.parametrize("method", ["setup", "update"])
@pytest.mark.parametrize("command", ["check", "run"])
def test_sys_exit_in_a_training_is_an_error_of_the_command(
    tmp_path, capsys, monkeypatch, method, command
):
    monkeypatch.chdir(tmp_path)
    line = {"setup": "    def setup(self):\n", "update": "    def update(self, state, h):\n"}
    leaving = f"{line[method]}        import sys\n        sys.exit(0)\n"
    text = TRAINING.replace(line[method], leaving)
    assert text != TRAINING
    written(tmp_path, "asha", text)
    assert main([command, "study.yaml", *(["--no-time"] if command == "check" else [])]) == 2
    assert f"Walk.{method}: walk.py:" in (said := capsys.readouterr().err)
    assert "the code calls sys.exit(0); raise an error instead" in said
    assert not (tmp_path / "results/study/journal.sqlite").exists()


SHARED = """
    def shared(self):
        return {"drift": np.ones(3, np.float32)}
"""


def test_shared_arrays_are_not_compiled_into_the_program(tmp_path):
    """The numbers are those of the same array written into the program."""
    text = TRAINING.replace("import jax\n", "import jax\nimport numpy as np\n", 1)
    text = text.replace("    def init(", f"{SHARED}\n    def init(", 1)
    found = {}
    for name, drift in (("shared", "h.shared['drift']"), ("constant", "np.ones(3, np.float32)")):
        changed = text.replace("x = state", f"x = 1e-3 * {drift} + state", 1)
        assert changed != text
        study = written(tmp_path / name, "asha", changed)
        factory = TrainingFactory(study)
        resolved = factory.resolve(study.default())
        factory.check(resolved)
        population = factory.make(resolved, 2)
        population.advance([Refill(0, resolved, Stream.SEARCH, 0)], [0])
        found[name] = population.evaluate([0])[0].returns
    np.testing.assert_allclose(found["shared"], found["constant"], rtol=1e-6)


def test_messages_use_the_declared_unit(tmp_path, capsys, monkeypatch):
    """No message of a study whose runs count rows says env steps."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "asha", TRAINING.replace('"steps", 40', '"rows", 40'))
    where = ["--set", "loggers=[console]", "--set", "budget.trials=16"]
    said = {}
    for words in (
        ["check", "study.yaml", "-v", "--no-time"],
        ["run", "study.yaml", "-v", *where],
        ["top"],
        ["top", "--explain"],
        ["show", "0", "-v"],
        ["importance"],
        ["what-if"],
        ["confirm", "0", "1", "--seeds", "4"],
        ["best", "--export", "kept"],
        ["report"],
    ):
        assert main(words) == 0
        said[words[0]] = "".join(capsys.readouterr()) + said.get(words[0], "")
    said["the page"] = (tmp_path / "results/study/report.html").read_text()
    silent = ("report",)  # it prints where the page is
    for words, text in said.items():
        assert "env steps" not in text
        assert re.search(r"\brows\b", text) or words in silent, words
    assert "starting study study: Walk, search random" in said["run"]
    whole = "early_terminate=null"
    assert main(["run", "study.yaml", "--name", "few", "--quiet", "--set", whole, *where[:2]]) == 0
    for words, told in (
        (["importance"], "at 160 rows (here: "),
        (["what-if"], "within a run of 160 rows;"),
    ):
        assert main([*words, "--study", "few"]) == 2
        assert told in capsys.readouterr().err


def test_all_views_report_that_every_trial_diverged(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lost = TRAINING.replace('"size": jnp.abs', '"size": jnp.nan * jnp.abs')
    written(tmp_path, "metric: {name: eval/size, goal: minimize}\nbudget: {trials: 3}\n", lost)
    assert main(["run", "study.yaml", "--quiet"]) == 1
    said = "Every trial diverged; `hpo show TRIAL` shows why."
    assert " ".join(capsys.readouterr().out.split()).startswith(said)
    for words in (["top"], ["watch"]):
        assert main(words) == 0
        assert said in " ".join(capsys.readouterr().out.split())
    assert main(["confirm", "0", "1", "--seeds", "6"]) == 2
    assert "and trial 0 diverged on test seeds" in capsys.readouterr().err
    assert main(["show", "0"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "seed 0 at 160 steps: eval/size is nan in the evaluation rate" in told


def test_changed_state_shape_fails_with_its_line(tmp_path):
    """The default has another program, which is sound."""
    odd = TRAINING.replace('return {"key": key, "x": x}', 'return {"key": key, "x": x[-3:]}')
    study = written(tmp_path, "space.width: {values: [3, 4]}\n", odd)
    line = 1 + odd[: odd.index("    def update")].count("\n")
    run(study, tmp_path / "study", TrainingFactory(study), (), samples.quick())
    with Journal(tmp_path / "study") as journal:
        told = {row.error for row in journal.trials() if row.state == "failed"}
    assert len(told) == 1
    assert f"walk.py:{line}: state['x'] is float32[3]; it must be float32[4]" in told.pop()


def test_check_describes_confirm_stage_of_several_objectives(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, CROSSINGS["objectives"] + "confirm: {top_k: 2, choose: 2, report: 6}\n")
    assert main(["check", "study.yaml", "--no-time"]) == 0
    assert "confirm   best 2 and default on 2 new seeds\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"fixed": {"width": 4}}, True),
        ({"fixed": {"width": 0}}, False),
        ({"fixed": {"gamma": 0.9}}, False),
        ({"length": 160}, True),
        ({"env_steps": 160}, False),
        ({"env": "CartPole-v1"}, False),
        ({"algorithm": "ppo"}, False),
    ],
)
def test_schema_contains_hyperparameters_of_the_class(tmp_path, change, good):
    algorithm = written(tmp_path, "asha").algorithm
    validator = jsonschema.Draft202012Validator(schema(algorithm))
    validator.check_schema(schema(algorithm))
    given = plain(read_text((tmp_path / "study.yaml").read_text(), "x"))
    assert validator.is_valid({**given, **change}) == good


def test_schema_command_prints_schema_of_the_class(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    algorithm = written(tmp_path, "asha").algorithm
    assert main(["schema", "--algorithm", "walk.py:Walk"]) == 0
    assert json.loads(capsys.readouterr().out) == schema(algorithm)


def test_ppo_only_features_refuse_custom_training(tmp_path):
    with pytest.raises(
        HpoError, match="a tuned configuration supports only PPO, but study trains Walk"
    ):
        only_ppo(written(tmp_path, "asha"), "a tuned configuration")


LINE = """
import jax.numpy as jnp
import hpo


class Line(hpo.Training):
    unit = "steps"
    rate = hpo.traced(5.0, low=0.0)

    def setup(self):
        self.steps_per_update = 50

    def init(self, key, h):
        return {"time": jnp.zeros(())}

    def update(self, state, h):
        return {"time": state["time"] + 50}, {}

    def evaluate(self, state, h, key):
        return {"score": h.rate * state["time"] / 100}
"""
SCRIPT = """
import json, sys, time
rate, steps = float(sys.argv[1]), int(sys.argv[2])
for step in range(50, steps + 1, 50):
    print(json.dumps({"step": step, "score": rate * step / 100}), flush=True)
    time.sleep(0.02)
"""
RUNGS = """
length: 800 steps
space: {rate: {min: 1.0, max: 9.0}}
search: {method: random}
early_terminate: {type: asha, min: 100, eta: 3}
budget: {trials: 18}
"""


def test_rungs_save_as_many_steps_with_processes_as_in_lanes(tmp_path):
    """One at a time, so that the order in which trials reach a rung is the same."""
    (tmp_path / "line.py").write_text(LINE)
    (tmp_path / "script.py").write_text(SCRIPT)
    lanes = "algorithm: line.py:Line\npopulation: {lanes: 1}\nmetric: {name: eval/score}\n"
    processes = f"command: {sys.executable} script.py {{rate}} {{length}}\n"
    processes += "metric: {name: score}\nprocesses: {at_once: 1}\n"
    found = {}
    for name, text in (("lanes", lanes), ("processes", processes)):
        (tmp_path / f"{name}.yaml").write_text(text + RUNGS)
        results = run_study(load(tmp_path / f"{name}.yaml"), tmp_path / "results")
        with Journal(results.folder) as journal:
            found[name] = journal.trials()
    ends = {
        name: [(one.params, one.state, one.rung_env_steps) for one in trials]
        for name, trials in found.items()
    }
    assert ends["lanes"] == ends["processes"]
    steps = {name: sum(one.env_steps for one in trials) for name, trials in found.items()}
    assert steps["lanes"] < 0.7 * 18 * 800  # rungs do save
    assert steps["processes"] == pytest.approx(steps["lanes"], rel=0.05)
    trained = 0  # what the processes themselves reported, beyond rungs too
    for path in (tmp_path / "results").glob("processes/processes/*/*/run.json"):
        trained += json.loads(path.read_text())["last_step"]
    assert trained >= steps["processes"]
