"""Processes of a command on Ray: over actors that stand in for Ray's, and over Ray itself."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.fake_ray import FakeRay, RaySystemError
from helpers.process_study import alive, rows_of, study_of, write_script
from hpo.errors import ConfigError, SearchError
from hpo.machine import guard
from hpo.machine.processes import Launch
from hpo.search.api import run
from hpo.search.cluster import via_ray
from hpo.search.cluster.ray_processes import RayProcesses
from hpo.store.rows import TrialState
from hpo.studies.execution_spec import Processes
from hpo.studies.load import load

RAY = "executor: {type: ray}\n"
PATIENT = {"timeout: 1s": "timeout: 60s"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_script(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ray(monkeypatch):
    fake = FakeRay()

    @contextmanager
    def connected(executor, purpose, processes=0):
        yield fake

    monkeypatch.setattr(via_ray, "connected", connected)
    yield fake
    for actor in fake.actors:
        actor.die()


def launched(folder, how="slow", **settings):
    place = folder / "place/run"
    place.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "script.py", how, "1.0", "0", "800", str(place)]
    return Launch(argv, {"HPO_FOLDER": str(place), **settings}, folder, place)


def until(is_so):
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_study_runs_on_the_workers(ray, folder):
    changes = {"at_once: 2": "threads: 2"}  # of 4 CPUs: two at once
    results = run(study_of(folder, "slow", 4, RAY, **changes, **PATIENT))
    trials, _ = rows_of(results)
    assert [trial.value for trial in trials] == [8 * trial.params["rate"] for trial in trials]
    assert {actor.resources["num_cpus"] for actor in ray.actors} == {2}
    assert all(actor.dead for actor in ray.actors)
    assert alive(folder) == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("crash", "exit code 1: RuntimeError: out of memory"),
        ("killed", "ended by SIGKILL"),
        ("deaf", "no metric for 1 s"),
        ("forks and crashes", "exit code 1"),
    ],
)
def test_a_process_that_fails_says_why_and_leaves_nothing(ray, folder, how, words):
    trials, _ = rows_of(run(study_of(folder, how, 1, RAY)))
    assert trials[0].state is TrialState.FAILED
    assert trials[0].error.startswith(words)
    assert alive(folder) == []


@pytest.mark.parametrize("rest", ["", ', pause: 2}\nresume: "... --load"\n'])
def test_stopped_processes_end_at_their_rungs(ray, folder, rest):
    more = f"{RAY}early_terminate: {{type: asha, min: 200, eta: 2{rest or '}'}\n"
    how = "resumes" if rest else "slow"
    trials, _ = rows_of(run(study_of(folder, how, 6, more, **PATIENT)))
    stopped = [trial for trial in trials if trial.state is TrialState.STOPPED]
    assert stopped
    assert {trial.state for trial in trials} <= {TrialState.STOPPED, TrialState.FINISHED}
    for trial in trials:
        end = trial.rung_env_steps if trial in stopped else 800
        assert end <= trial.env_steps <= end + 50
    assert alive(folder) == []


def test_an_idle_worker_runs_the_next_process(ray, folder):
    executor = RayProcesses(ray, Processes(at_once=1))
    for how in ("slow", "crash"):
        process = executor.start(launched(folder, how), 0)
        until(lambda process=process: process.look() is not None)
    executor.close()
    assert len(ray.actors) == 1


def test_a_process_is_halted_and_resumed(ray, folder):
    executor = RayProcesses(ray, Processes(at_once=1))
    process = executor.start(launched(folder), 0)
    log = folder / "place/run/stdout.log"
    until(lambda: process.look() is None and log.exists() and log.stat().st_size)
    process.pause()
    stat = Path(f"/proc/{guard.marked(f'HPO_FOLDER={folder}')[0]}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] in ("T", "t"))
    process.go_on()
    until(lambda: process.look() == 0)
    executor.close()


def test_a_process_without_a_place_does_not_hang(ray, folder):
    """Eight processes at once on four CPUs: the timeout does not count the time in the queue."""
    script = (folder / "script.py").read_text()
    (folder / "script.py").write_text(script.replace("time.sleep(0.03)", "time.sleep(0.5)"))
    study = study_of(folder, "slow", 8, RAY, **{"at_once: 2": "at_once: 8", "60s": "3s"})
    trials, _ = rows_of(run(study))
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 8
    executor = RayProcesses(ray, Processes(at_once=1, threads=4))
    first = executor.start(launched(folder, "hang"), 0)
    until(lambda: first.look() is None and not first.is_waiting)
    second = executor.start(launched(folder, "hang"), 1)
    assert second.look() is None
    assert second.is_waiting
    second.end()
    first.end()
    assert alive(folder) == []


def test_a_trial_whose_worker_dies_runs_again(ray, folder):
    study = study_of(folder, "slow", 2, RAY, **PATIENT)
    killed = threading.Thread(target=_kill_first, args=(ray, folder), daemon=True)
    killed.start()
    trials, _ = rows_of(run(study))
    killed.join()
    assert [trial.value for trial in trials] == [8 * trial.params["rate"] for trial in trials]
    assert sum(actor.dead for actor in ray.actors) == 3  # one died, two were ended
    assert alive(folder) == []


def _kill_first(ray, folder):
    until(lambda: list(folder.glob("results/study/processes/*/*/stdout.log")))
    ray.actors[0].die()


def test_a_trial_that_kills_its_workers_fails(ray, folder):
    dead = threading.Event()

    def kill_all():
        while not dead.wait(0.02):
            for actor in ray.actors:
                if actor.folders and guard.marked(f"HPO_FOLDER={actor.folders[-1]}\0"):
                    actor.die()

    killer = threading.Thread(target=kill_all, daemon=True)
    killer.start()
    trials, _ = rows_of(run(study_of(folder, "hang", 1, RAY, **PATIENT)))
    dead.set()
    killer.join()
    words = "the Ray worker died: The actor died unexpectedly, 3 times in a row"
    assert trials[0].error.startswith(words)


def test_a_cluster_that_is_gone_ends_the_study(ray, folder, monkeypatch):
    def gone(reference):
        raise RaySystemError("connection refused")

    monkeypatch.setattr(ray, "get", gone)
    words = "lost the Ray cluster: connection refused; all commits are safe; run the same"
    with pytest.raises(SearchError, match=words):
        run(study_of(folder, "slow", 1, RAY, **PATIENT))
    assert alive(folder) == []


def test_a_node_that_does_not_see_the_folder_is_named(ray, folder):
    executor = RayProcesses(ray, Processes(at_once=1))
    launch = launched(folder)
    launch.folder.rmdir()
    process = executor.start(launch, 0)
    words = "place/run does not exist on .*; put the study and its results in a folder that"
    with pytest.raises(SearchError, match=words):
        until(lambda: process.look() is not None)


def test_shares_of_gpus_and_threads_are_resources(folder):
    fake = FakeRay(cpus=8, gpus=2)
    executor = RayProcesses(fake, Processes(gpus=0.5))
    assert executor.at_once == 4
    assert RayProcesses(fake, Processes(threads=3)).at_once == 2
    assert RayProcesses(fake, Processes(gpus=0.5, threads=4)).at_once == 2
    (folder / "script.py").write_text(
        "import json, os, sys\n"
        "names = 'OMP_NUM_THREADS', 'XLA_PYTHON_CLIENT_MEM_FRACTION', 'CUDA_VISIBLE_DEVICES'\n"
        "print(json.dumps({name: os.environ.get(name) for name in names}))\n"
    )
    process = executor.start(launched(folder), 0)
    until(lambda: process.look() == 0)
    executor.close()
    resources = fake.actors[0].resources
    assert (resources["num_cpus"], resources["num_gpus"]) == (1, 0.5)
    seen = json.loads((folder / "place/run/stdout.log").read_text())
    assert seen["OMP_NUM_THREADS"] == "1"
    assert seen["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.45"
    assert seen["CUDA_VISIBLE_DEVICES"] == os.environ.get("CUDA_VISIBLE_DEVICES")  # Ray sets it


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"gpus": 0.5}, "processes.gpus is 0.5, but no node of the cluster has more than 0 GPUs"),
        ({"threads": 9}, "processes.threads is 9, but no node of the cluster has more than 4 CPU"),
    ],
)
def test_a_process_larger_than_a_node_is_refused(folder, settings, words):
    with pytest.raises(ConfigError, match=words):
        RayProcesses(FakeRay(), Processes(**settings)).check("", folder)


# ---------------------------------------------------------------------- Ray itself


@pytest.fixture(scope="module")
def there():
    pytest.importorskip("ray", reason="the extra `ray` is not installed")


pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
]  # what Ray and its packages warn of is theirs


def _in_background(folder):
    command = [sys.executable, "-m", "hpo", "run", "study.yaml"]
    with (folder / "said.txt").open("w") as said:
        return subprocess.Popen(command, stdout=said, stderr=said)


def _parent(process):
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_rays_worker_is_killed_and_the_trial_runs_again(there, folder):
    script = (folder / "script.py").read_text()
    (folder / "script.py").write_text(script.replace("time.sleep(0.03)", "time.sleep(0.2)"))
    study_of(folder, "slow", 2, RAY, **PATIENT)
    head = _in_background(folder)
    place = folder / "results/study/processes"
    until(lambda: guard.marked(f"HPO_FOLDER={place}"))
    first = guard.marked(f"HPO_FOLDER={place}")[0]
    os.kill(_parent(first), signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{first}"))  # with its worker
    assert head.wait() == 0, (folder / "said.txt").read_text()
    trials, _ = rows_of(run(load(folder / "study.yaml")))
    assert [trial.value for trial in trials] == [8 * trial.params["rate"] for trial in trials]
    assert alive(folder) == []


def test_a_killed_head_leaves_nothing_and_resumes(there, folder):
    study_of(folder, "slow", 4, RAY, **PATIENT)
    head = _in_background(folder)
    until(lambda: list(folder.glob("results/study/processes/trial_2")))
    head.send_signal(signal.SIGKILL)
    head.wait()
    assert alive(folder) == []
    records = list(folder.glob("results/study/processes/*/*/run.json"))
    ended = {path: path.read_text() for path in records}
    ended = {path: text for path, text in ended.items() if json.loads(text).get("exit_code") == 0}
    assert ended
    trials, evaluations = rows_of(run(load(folder / "study.yaml")))
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 4
    assert len(evaluations) == 4
    assert {path: path.read_text() for path in ended} == ended
    assert alive(folder) == []


def test_rungs_and_ends_with_ray(there, folder):
    more = f"{RAY}early_terminate: {{type: asha, min: 200, eta: 2}}\n"
    trials, _ = rows_of(run(study_of(folder, "slow", 6, more, **PATIENT)))
    stopped = [trial for trial in trials if trial.state is TrialState.STOPPED]
    assert stopped
    for trial in stopped:
        record = folder / f"results/study/processes/trial_{trial.trial}/search_0/run.json"
        assert json.loads(record.read_text())["last_step"] >= trial.rung_env_steps
        assert trial.env_steps <= trial.rung_env_steps + 50
    assert alive(folder) == []
