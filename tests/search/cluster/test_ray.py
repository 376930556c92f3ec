"""Ray itself: workers that are killed, Ray Tune with lanes that step together; small forms.

`scripts/acceptance search 4` holds the whole of it, over lanes that train.
"""

import os
import signal
import time
from dataclasses import replace
from functools import partial

import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import analytic_shares
from hpo.errors import ConfigError
from hpo.search.cluster.executors import SharedFactory
from hpo.search.cluster.via_ray import RayTeam, WorkerResources, connected
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.search.state.schedule import schedule_of
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget, Executor
from hpo.studies.search_spec import Evaluation, SearchSpec, Seeds
from hpo.studies.user_code import import_user_code

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
]  # what Ray and its packages warn of is theirs

FACTORY = samples.AnalyticFactory(lanes=8, block=2)


@pytest.fixture(scope="module")
def ray():
    with connected(Executor(), "a test", processes=8) as module:
        yield module


def tuned(scheduler, **changes):
    """A study whose trials a scheduler of Ray Tune's runs."""
    base = {
        "early_terminate": None,
        "evaluation": Evaluation(every=4_000),
        "budget": Budget(trials=4),
        "search": SearchSpec("random", driver="ray_tune", scheduler=scheduler),
        "seeds": Seeds(2),
    }
    return samples.study(**{**base, **changes})


class KillAt(Observer):
    """Kills a worker after some chunks."""

    def __init__(self, team, chunks):
        self.team, self.left = team, chunks

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            os.kill(self.team.process_of(0), signal.SIGKILL)


def test_ray_daemon_messages_do_not_reach_stdout(ray, capfd):
    said = {"lines": ["A worker died"], "pid": "raylet", "is_err": False, "ip": "", "job": ""}
    ray._private.worker.print_to_stdstream(said, ignore_prefix=False)
    assert capfd.readouterr().out == ""


def test_ray_address_without_cluster_fails_immediately(ray, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with (
        pytest.raises(
            ConfigError, match=r"no Ray cluster at '127.0.0.1:9': .*refused; start one with"
        ),
        connected(Executor("ray", 2, "127.0.0.1:9"), "a test"),
    ):
        pass


def test_a_worker_that_is_killed_loses_nothing(ray, tmp_path):
    asked = samples.study(budget=Budget(trials=8))
    run(asked, tmp_path / "alone", FACTORY, (), samples.quick())
    warnings = []
    source = partial(analytic_shares, FACTORY, 2)
    team = RayTeam(ray, 2, WorkerResources(1, 0), source, warnings.append)
    factory = SharedFactory(team, team.begin())
    assert (factory.backend, factory.device_count) == ("analytic", 2)
    run(asked, tmp_path / "shared", factory, [KillAt(team, 10)], samples.quick())
    assert tables_equal(tmp_path / "alone", tmp_path / "shared") == []
    assert len(warnings) == 1 and "worker 0 died" in warnings[0]
    team.end()


@pytest.mark.parametrize(
    ("name", "time", "length"),
    [
        ("asha", "env_steps", 16_000),
        ("ray.tune.schedulers.HyperBandScheduler", "training_iteration", 8),
        ("ray.tune.schedulers.MedianStoppingRule", "env_steps", None),
    ],
)
def test_ray_scheduler_uses_planned_time_attribute(ray, name, time, length):
    from hpo.search.ray_tune.tune import scheduler_of

    asked = tuned(name, evaluation=Evaluation(every=2_000))
    made = scheduler_of(asked, schedule_of(asked, 1_000), dict)
    known = {key.strip("_"): value for key, value in vars(made).items()}
    assert known["time_attr"] == time
    assert known.get("max_t_attr", known.get("max_t")) == length


def test_class_that_is_not_a_scheduler_is_refused(ray):
    from hpo.search.ray_tune.tune import scheduler_of

    name = "ray.tune.search.optuna.OptunaSearch"
    with pytest.raises(ConfigError, match=f"'{name}' is not a Ray Tune TrialScheduler"):
        scheduler_of(tuned(name), schedule_of(tuned(name), 1_000), dict)


def test_unimportable_scheduler_suggests_known_classes(ray):
    from hpo.search.ray_tune.tune import scheduler_of, searcher_of

    asked = tuned("ray.tune.schedulers.ASHASchduler")
    with pytest.raises(ConfigError) as told:
        scheduler_of(asked, schedule_of(asked, 1_000), dict)
    known = "'ray.tune.schedulers.ASHAScheduler'? Known: asha, pbt, ray.tune.schedulers.ASHASch"
    assert f"{asked.search.scheduler!r} cannot be imported" in str(told.value)
    assert f"did you mean {known}" in str(told.value) and "\n" not in str(told.value)
    asked = replace(asked, search=replace(asked.search, searcher="my_flie.Mine"))
    with pytest.raises(ConfigError, match=r"my_flie is neither .*; Known: optuna, .*, random, or"):
        searcher_of(asked)


def test_arbitrary_classes_are_never_called(ray, tmp_path):
    """A study file may come from anywhere: it names no class but Ray Tune's and its imports'."""
    from hpo.search.ray_tune.tune import scheduler_of, searcher_of

    options = {"args": ["touch", str(tmp_path / "touched")]}
    for name in ("subprocess.Popen", "ray._private.services.subprocess.Popen"):
        asked = tuned(name)
        asked = replace(asked, search=replace(asked.search, scheduler_options=options))
        with pytest.raises(ConfigError, match="cannot be imported"):
            scheduler_of(asked, schedule_of(asked, 1_000), dict)
        asked = tuned("asha")
        asked = replace(
            asked, search=replace(asked.search, searcher=name, searcher_options=options)
        )
        with pytest.raises(ConfigError, match="cannot be imported"):
            searcher_of(asked)
    time.sleep(0.2)
    assert not (tmp_path / "touched").exists()


def test_scheduler_from_imported_file_is_accepted(ray, tmp_path):
    from hpo.search.ray_tune.tune import scheduler_of

    (tmp_path / "hpo_test_rule.py").write_text(
        "from ray.tune.schedulers import FIFOScheduler\nclass Mine(FIFOScheduler):\n    pass\n"
    )
    asked = tuned("hpo_test_rule.Mine")
    with pytest.raises(ConfigError, match=r"use imports: \[my_file.py\]"):
        scheduler_of(asked, schedule_of(asked, 1_000), dict)
    import_user_code(["hpo_test_rule.py"], tmp_path)
    assert type(scheduler_of(asked, schedule_of(asked, 1_000), dict)).__name__ == "Mine"


class PressAt(Observer):
    """Asks for a clean end after some chunks, as Ctrl-C does."""

    def __init__(self, chunks):
        self.left = chunks

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("scheduler", ["asha", "pbt"])
def test_ray_tune_drives_lanes_in_lockstep(ray, tmp_path, scheduler):
    asked = tuned(scheduler, evaluation=Evaluation(every=4_000 if scheduler == "asha" else 8_000))
    if scheduler == "asha":
        cut = run(asked, tmp_path / "s", FACTORY, [PressAt(6)], samples.quick())
        assert cut.state == "interrupted" and 0 < cut.usage.chunks <= 7
    results = run(asked, tmp_path / "s", FACTORY, (), samples.quick())
    assert results.state == "finished"
    with Journal(tmp_path / "s") as journal:
        rows, decisions = journal.trials(), journal.decisions()
        about = next(row.value for row in journal.attributes() if row.trial is None)
    assert len(rows) == 4 and about["mean_width"] > 0.7 * about["mean_live"]
    if scheduler == "asha":
        assert all(row.state in ("finished", "stopped") for row in rows)
        assert all(row.stop_rule == "ray_tune asha" for row in rows if row.state == "stopped")
    else:
        assert all(row.state == "finished" and row.env_steps == 32_000 for row in rows)
        copies = [entry for entry in decisions if entry.action == "copy"]
        assert copies and {entry.trial for entry in copies} <= {
            row.trial for row in rows if row.schedule
        }
