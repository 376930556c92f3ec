"""The loggers of a study, against its tables; what fails or is slow harms nothing."""

import json
import struct
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from helpers import fake_mlflow
from helpers import search_samples as samples
from hpo.errors import ConfigError, MissingExtraError, UnknownNameError
from hpo.search.engine.callbacks import Callback, StopStudy
from hpo.search.loggers import make_sink, sinks_of
from hpo.search.run import run
from hpo.store import Sinks, query, tables_equal
from hpo.store.follow import FollowingSink
from hpo.store.sinks import Background
from hpo.store.study_folder import delete_results
from hpo.studies.execution_spec import Logger
from hpo.studies.resolved import resolved

TRIALS = 16
TENSORBOARD = Logger("tensorboard", {"top_k": 3, "every": 4})


def study(*loggers):
    budget = samples.Budget(trials=TRIALS)
    return samples.study(loggers=loggers, confirm=samples.Confirm(2, 2, 2), budget=budget)


class StopAt(Callback):
    """Asks for the end after so many chunks."""

    def __init__(self, chunks):
        self.left = chunks

    def on_chunk(self, event):
        self.left -= 1
        if self.left == 0:
            raise StopStudy


def go(folder, asked, sinks=None, callbacks=()):
    """Run a study that publishes at every boundary."""
    settings = samples.quick(
        sinks=sinks if sinks is not None else sinks_of(asked, pytest.fail),
        publish_seconds=0.0,
        commit_seconds=0.0,
        callbacks=callbacks,
    )
    return run(asked, folder, samples.AnalyticFactory(), (), settings)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same study without loggers."""
    return go(tmp_path_factory.mktemp("plain") / "study", study(), Sinks([])).folder


def curve(folder, trial, every):
    """Return (env steps, mean loss) of a trial from the tables, in blocks."""
    _, rows = query(
        folder,
        f"SELECT env_steps, avg(loss) FROM curves WHERE trial = {trial} AND stream = 'search' "
        "GROUP BY env_steps ORDER BY env_steps",
    )
    blocks = [rows[start : start + every] for start in range(0, len(rows), every)]
    return [(block[-1][0], sum(x for _, x in block) / len(block)) for block in blocks]


def best(folder, count):
    _, rows = query(folder, f"SELECT trial FROM trials ORDER BY rank LIMIT {count}")
    return [trial for (trial,) in rows]


# ---------------------------------------------------------------------- TensorBoard


def scalars(folder):
    """Read the event files of one run: {tag: [(step, value), ...]} in the order written."""
    from tensorboardX.proto.event_pb2 import Event

    found, plugins = {}, set()
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += length + 16
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    found.setdefault(value.tag, []).append((event.step, value.simple_value))
                plugins.add(value.metadata.plugin_data.plugin_name)
    return found, plugins


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A study with TensorBoard that is interrupted twice, and goes on."""
    folder = tmp_path_factory.mktemp("drawn") / "study"
    for chunks in (9, 14):
        assert go(folder, study(TENSORBOARD), callbacks=[StopAt(chunks)]).state == "interrupted"
    assert go(folder, study(TENSORBOARD)).state == "finished"
    return folder


def test_loggers_change_no_result(drawn, plain):
    assert tables_equal(drawn, plain) == []


def test_best_trials_have_a_tensorboard_run(drawn):
    trials = best(drawn, 3)
    assert len(trials) == 3
    for trial in trials:
        found, plugins = scalars(drawn / "tensorboard" / f"trial_{trial}")
        expected = curve(drawn, trial, 4)
        assert [step for step, _ in found["train/loss"]] == [step for step, _ in expected]
        assert [value for _, value in found["train/loss"]] == pytest.approx(
            [value for _, value in expected], rel=1e-6
        )
        assert {"eval/return_mean", "eval/skill", "train/skill", "value"} <= set(found)
        assert "hparams" in plugins


def test_interruptions_do_not_duplicate_tensorboard_points(drawn):
    folders = sorted((drawn / "tensorboard").iterdir())
    assert 3 < len(folders) < 20
    for folder in folders:
        for tag, points in scalars(folder)[0].items():
            steps = [step for step, _ in points]
            once = tag != "value" and (folder.name != "study" or tag == "value_of_trial")
            assert not once or len(set(steps)) == len(steps), (folder, tag)


def test_a_study_that_starts_over_has_new_tensorboard_runs(tmp_path):
    asked = study(TENSORBOARD)
    go(tmp_path, asked, callbacks=[StopAt(14)])
    (tmp_path / "tensorboard" / "trial_99").mkdir()  # a trial that the new study does not have
    delete_results(tmp_path)
    assert not (tmp_path / "tensorboard").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "tensorboard").symlink_to(elsewhere)
    delete_results(tmp_path)
    assert elsewhere.is_dir()


def test_final_logged_value_equals_table(drawn):
    """Told as the trial ends, and again where confirming gave it another."""
    _, rows = query(drawn, "SELECT trial, value FROM trials WHERE state = 'confirmed'")
    assert rows
    for trial, value in rows:
        points = scalars(drawn / "tensorboard" / f"trial_{trial}")[0]["value"]
        assert points[-1][1] == pytest.approx(value, rel=1e-6)
        assert len({step for step, _ in points}) == 1


def test_tensorboard_has_a_run_for_the_study(drawn):
    found, _ = scalars(drawn / "tensorboard" / "study")
    _, rows = query(drawn, "SELECT trial, search_value FROM trials WHERE search_value IS NOT NULL")
    told = dict(found["value_of_trial"])
    assert set(told) == {trial for trial, _ in rows}
    assert found["trials/finished"][-1][1] + found["trials/stopped"][-1][1] <= TRIALS
    _, ((top,),) = query(drawn, "SELECT value FROM trials WHERE rank = 1")
    assert found["best"][-1][1] == pytest.approx(top, rel=1e-6)


def test_finished_study_is_exported_to_tensorboard_once(plain, tmp_path):
    sink = make_sink(Logger("tensorboard", {"top_k": 2}), resolved(study()), tmp_path)
    for _ in range(2):  # again adds nothing
        sink.published(plain)
        sink.close()
    trial = best(plain, 1)[0]
    found, _ = scalars(tmp_path / "tensorboard" / f"trial_{trial}")
    assert found["train/loss"] == [
        (step, pytest.approx(value, rel=1e-6)) for step, value in curve(plain, trial, 1)
    ]
    assert not (plain / "tensorboard").exists() and not (plain / "sinks").exists()


# ---------------------------------------------------------------------- harm


class Hanging:
    """Never comes back from its first call, as where a network does not answer."""

    name = "hanging"

    def __init__(self):
        self.gate = threading.Event()

    def published(self, directory):
        self.gate.wait(120.0)

    def close(self):
        pass


class Failing(Hanging):
    name = "failing"

    def published(self, directory):
        raise RuntimeError("no space")


def test_sinks_that_hang_or_fail_neither_stop_nor_hold_up_a_study(tmp_path, plain):
    said, hanging = [], Hanging()
    sinks = Sinks(
        [Background(hanging, said.append, 0.2), Background(Failing(), said.append)], said.append
    )
    try:
        assert go(tmp_path / "study", study(), sinks).state == "finished"
    finally:
        hanging.gate.set()
    assert tables_equal(tmp_path / "study", plain) == []
    assert sum("the hanging logger was still busy after 0.2 s" in text for text in said) == 1
    assert sum("the failing logger failed" in text for text in said) == 1
    assert len(said) == 2


def test_unknown_or_missing_logger_is_refused_before_study(tmp_path, monkeypatch):
    data = resolved(study())
    with pytest.raises(UnknownNameError, match="did you mean 'wandb'"):
        make_sink(Logger("wandbb"), data)
    for name, package in (
        ("tensorboard", "tensorboardX"),
        ("wandb", "wandb"),
        ("mlflow", "mlflow"),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError, match=rf"{package}.*pip install .*\[{name}\]"):
            make_sink(Logger(name), data)


# ---------------------------------------------------------------------- Weights & Biases


OFFLINE = Logger(
    "wandb",
    {
        "mode": "offline",
        "project": "ppo",
        "entity": "us",
        "name": "a-name",
        "group": "some",
        "top_k": 2,
        "every": 4,
        "policy": True,
    },
)


def logged_records(path):
    """Yield records of a `.wandb` file: blocks of 32 KiB as in LevelDB's log, a header of 7."""
    data, at, parts = path.read_bytes(), 7, b""
    while at < len(data):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            yield parts
            parts = b""


def whole(path, record):
    """Read a file once it is whole: wandb's own process writes the end of it a moment later."""
    end = time.monotonic() + 300.0
    while True:
        found = [record.FromString(data) for data in logged_records(path)]
        if any(one.WhichOneof("record_type") == "exit" for one in found):
            return found
        assert time.monotonic() < end, path
        time.sleep(0.05)


def offline_runs(folder):
    """Read what wandb left on disk: {run id: (its first record, history rows, summary)}."""
    from wandb.proto.wandb_internal_pb2 import Record

    runs = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in whole(path, Record):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                run = runs.setdefault(
                    record.run.run_id,
                    SimpleNamespace(
                        first=record.run, rows=[], summary={}, artifacts=[], folders=[]
                    ),
                )
                run.folders.append(path.parent)
            elif kind == "history":
                run.rows.append(
                    {_key(item): json.loads(item.value_json) for item in record.history.item}
                )
            elif kind == "summary":
                run.summary.update(
                    {_key(item): json.loads(item.value_json) for item in record.summary.update}
                )
            elif kind == "artifact":
                run.artifacts.append(record.artifact)
    return runs


def _key(item):
    return item.key or "/".join(item.nested_key)


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A study with W&B offline that is interrupted once, and goes on; no network is touched."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
            patch.setenv(name, str(home))
        patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody answers
        folder = tmp_path_factory.mktemp("logged") / "study"
        state = go(folder, study(OFFLINE), callbacks=[StopAt(9)]).state
        assert state == "interrupted"
        assert go(folder, study(OFFLINE)).state == "finished"
    return folder, offline_runs(folder)


def named(runs, name):
    (run,) = [run for run in runs.values() if run.first.display_name == name]
    return run


def test_offline_runs_have_names_group_and_configuration(logged, plain):
    folder, runs = logged
    assert tables_equal(folder, plain) == []
    for first in (one.first for one in runs.values()):
        assert (first.project, first.entity, first.run_group) == ("ppo", "us", "some")
    assert named(runs, "a-name").first.job_type == "study"
    for trial in best(folder, 2):
        run = named(runs, f"a-name/trial-{trial}")
        config = {item.key: json.loads(item.value_json) for item in run.first.config.update}
        _, ((params,),) = query(folder, f"SELECT params FROM trials WHERE trial = {trial}")
        said = {"normalise_rewards": True, **json.loads(params)}  # a default that was another once
        assert config == {**said, "trial": trial} | {
            key: config[key] for key in config if key.startswith("_")
        }


def test_resumed_study_continues_the_same_wandb_runs(logged):
    folder, runs = logged
    assert len(named(runs, "a-name").folders) == 2
    kept = json.loads((folder / "sinks" / "wandb.json").read_text())["kept"]["runs"]
    assert set(kept.values()) == set(runs)


def test_wandb_curves_equal_tables(logged):
    folder, runs = logged
    trials = best(folder, 2)
    assert len(trials) == 2
    for trial in trials:
        run = named(runs, f"a-name/trial-{trial}")
        rows = [(row["env_steps"], row["train/loss"]) for row in run.rows if "train/loss" in row]
        assert rows == [(step, pytest.approx(value)) for step, value in curve(folder, trial, 4)]
        assert any("eval/return_mean" in row for row in run.rows)
        _, ((state,),) = query(folder, f"SELECT state FROM trials WHERE trial = {trial}")
        assert run.summary["state"] == state and run.summary["value"] > 0


def test_wandb_study_run_has_leaderboard_and_policy(logged):
    folder, runs = logged
    run = named(runs, "a-name")
    assert [artifact.type for artifact in run.artifacts if artifact.type == "policy"] == ["policy"]
    (artifact,) = [artifact for artifact in run.artifacts if artifact.type == "policy"]
    assert [entry.path for entry in artifact.manifest.contents] == ["policy.json"]
    _, ((trial, value),) = query(folder, "SELECT trial, value FROM trials WHERE rank = 1")
    assert run.summary["best"] == pytest.approx(value) and run.summary["best_trial"] == trial
    (table,) = run.folders[-1].glob("files/media/table/*.json")
    assert len(json.loads(table.read_text())["data"]) == TRIALS


def test_wandb_online_without_login_is_refused_before_study(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(ConfigError, match="run: wandb login, or set mode: offline"):
        make_sink(Logger("wandb", {"mode": "online"}), resolved(study()))
    with pytest.raises(ConfigError, match="or use mode: offline") as refused:  # of `hpo export`
        make_sink(Logger("wandb", {"mode": "online"}), resolved(study()), tmp_path)
    assert refused.value.remedies == {"setting": "mode=offline"}


# ---------------------------------------------------------------------- MLflow


OLD_SQL = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # mlflow's
MLFLOW = Logger("mlflow", {"experiment": "ppo", "name": "a-name", "top_k": 2, "every": 4})


@pytest.fixture(scope="module", params=["fake", "real"])
def tracked(request, tmp_path_factory):
    """A study with MLflow that was killed before the sink's mark was written, and goes on."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "fake":
            fake_mlflow.install(patch)
        mlflow = pytest.importorskip("mlflow")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        folder = tmp_path_factory.mktemp("tracked") / "study"
        with patch.context() as killed:
            killed.setattr(FollowingSink, "_write_news", follow_unmarked)
            assert go(folder, study(MLFLOW), callbacks=[StopAt(9)]).state == "interrupted"
        client = mlflow.MlflowClient(f"sqlite:///{folder.resolve()}/mlflow.db")
        before = {run.info.run_name: run.info.status for run in in_experiment(client)}
        assert go(folder, study(MLFLOW)).state == "finished"
        yield folder, client, before


def follow_unmarked(sink, directory, final):
    news = sink._follower.news(directory, sink._mark, final)
    sink._log_news(directory, news)
    return news


def in_experiment(client):
    return client.search_runs([client.get_experiment_by_name("ppo").experiment_id])


def history(client, run, key):
    found = client.get_metric_history(run.info.run_id, key)
    return sorted((one.step, one.value) for one in found)


@OLD_SQL
def test_mlflow_has_a_run_for_the_study_and_child_runs_for_trials(tracked, plain):
    folder, client, before = tracked
    assert tables_equal(folder, plain) == []
    runs = {run.info.run_name: run for run in in_experiment(client)}
    assert len(runs) == len(in_experiment(client)) > 2  # none is there twice
    assert before["a-name"] == "KILLED" and set(before) <= set(runs)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    own = runs["a-name"].info.run_id
    for trial in best(folder, 2):
        run = runs[f"trial-{trial}"]
        assert run.data.tags["mlflow.parentRunId"] == own
        _, ((params, value, state),) = query(
            folder, f"SELECT params, value, state FROM trials WHERE trial = {trial}"
        )
        said = {"normalise_rewards": True, **json.loads(params), "trial": trial}
        assert {name: word(text) for name, text in run.data.params.items()} == said
        assert run.data.metrics["value"] == value and run.data.tags["state"] == state
        assert all(run.data.tags.values())
    assert runs["a-name"].data.tags["best_trial"] == str(best(folder, 1)[0])
    assert [one.path for one in client.list_artifacts(own, "policy")] == ["policy/policy.json"]


def word(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@OLD_SQL
def test_killed_study_does_not_duplicate_mlflow_points(tracked):
    folder, client, _ = tracked
    runs = {run.info.run_name: run for run in in_experiment(client)}
    for trial in best(folder, 2):
        found = history(client, runs[f"trial-{trial}"], "train/loss")
        assert found == [(step, pytest.approx(x)) for step, x in curve(folder, trial, 4)]
        assert history(client, runs[f"trial-{trial}"], "eval/return_mean")
    for one in runs.values():
        for key in one.data.metrics:
            points = history(client, one, key)
            assert len(set(points)) == len(points), (one.info.run_name, key)
    _, rows = query(
        folder, "SELECT trial, search_value FROM trials WHERE search_value IS NOT NULL"
    )
    assert dict(history(client, runs["a-name"], "value_of_trial")) == dict(rows)


@OLD_SQL
@pytest.mark.parametrize("form", ["fake", "real"])
def test_a_finished_study_is_exported_to_mlflow_once(form, plain, tmp_path, monkeypatch):
    if form == "fake":
        fake_mlflow.install(monkeypatch)
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)  # where mlflow puts artifacts of a local database
    uri = f"sqlite:///{tmp_path}/elsewhere.db"
    for folder in ("first", "first", "second"):  # again adds nothing; elsewhere it is another run
        options = {**MLFLOW.options, "uri": uri}
        sink = make_sink(Logger("mlflow", options), resolved(study()), tmp_path / folder)
        sink.published(plain)
        sink.close()
    runs = in_experiment(client := mlflow.MlflowClient(uri))
    assert sorted(run.info.run_name for run in runs) == sorted(
        2 * ["a-name", *(f"trial-{trial}" for trial in best(plain, 2))]
    )
    for one in runs:
        assert all(history(client, one, key) for key in one.data.metrics)
    assert not (plain / "mlflow.db").exists() and not (plain / "sinks").exists()
