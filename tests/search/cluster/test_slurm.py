"""Processes as jobs of SLURM, over programs that stand in for sbatch, squeue and scancel."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from helpers import fake_slurm
from helpers.process_study import alive, rows_of, study_of, write_script
from hpo.cli import main
from hpo.errors import ConfigError, SearchError
from hpo.machine import slurm
from hpo.machine.processes import Launch
from hpo.machine.slurm import SlurmJobs
from hpo.search.api import run
from hpo.store.journal import Journal
from hpo.store.rows import TrialState
from hpo.studies.execution_spec import Executor, Processes
from hpo.studies.load import load

pytestmark = pytest.mark.slow

SLURM = "executor: {type: slurm, poll: 0.2s}\n"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """The folder of the jobs; the study is in `tmp_path`, which is the working folder."""
    write_script(tmp_path)
    monkeypatch.chdir(tmp_path)
    root = fake_slurm.install(tmp_path / "cluster")
    monkeypatch.setenv("PATH", f"{tmp_path / 'cluster/bin'}{os.pathsep}{os.environ['PATH']}")
    yield root
    for number in fake_slurm.active(root):
        fake_slurm.fail_node(root, number)


def submitted(folder, how="slow", trials=2, more=SLURM, **changes):
    return study_of(folder, how, trials, more, **{"timeout: 1s": "timeout: 60s", **changes})


def in_background(folder):
    command = [sys.executable, "-m", "hpo", "run", "study.yaml"]
    with (folder / "said.txt").open("w") as said:
        return subprocess.Popen(command, stdout=said, stderr=said)


def until(is_so, process=None):
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end
        assert process is None or process.poll() is None
        time.sleep(0.02)


def test_a_study_runs_as_jobs(cluster, tmp_path):
    more = (
        "executor: {type: slurm, poll: 0.2s, partition: short, time: 90s, "
        "options: {account: lab, exclusive: true}, setup: export LEVEL=5}\n"
    )
    (tmp_path / "script.py").write_text(
        "import json, os\n"
        "names = 'HPO_SEED', 'OMP_NUM_THREADS', 'LEVEL', 'SLURM_JOB_ID'\n"
        "print(json.dumps({'score': 1.0, **{name: int(os.environ[name]) for name in names}}))\n"
    )
    changes = {"at_once: 2": "at_once: 2, threads: 3, gpus: 1"}
    results = run(submitted(tmp_path, "plain", more=more, **changes))
    trials, evaluations = rows_of(results)
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 2
    seen = {name: float(value[0]) for name, value in evaluations[0].metrics.items()}
    assert (seen["HPO_SEED"], seen["OMP_NUM_THREADS"], seen["LEVEL"]) == (0, 3, 5)
    jobs = fake_slurm.jobs(cluster)
    assert {job["state"] for job in jobs.values()} == {"COMPLETED"}
    options = jobs[1]["options"]
    assert (options["partition"], options["time"], options["account"]) == ("short", "2", "lab")
    assert (options["gpus"], options["cpus-per-task"]) == ("1", "3")
    assert options["exclusive"] == ""
    assert alive(tmp_path) == []


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("crash", "exit code 1: RuntimeError: out of memory"),
        ("killed", "ended by SIGKILL"),
        ("deaf", "no metric for 1 s"),
        ("other", "ended without score; it reported los"),
        ("forks and crashes", "exit code 1"),
    ],
)
def test_a_process_that_fails_says_why_and_leaves_nothing(cluster, tmp_path, how, words):
    trials, _ = rows_of(run(study_of(tmp_path, how, trials=1, more=SLURM)))
    assert trials[0].state is TrialState.FAILED
    assert trials[0].error.startswith(words)
    assert fake_slurm.active(cluster) == []
    assert alive(tmp_path) == []


def test_a_job_in_the_queue_does_not_hang(cluster, tmp_path):
    """The timeout is shorter than the wait for the only place."""
    (cluster / "slots").write_text("1")
    write_script(tmp_path)
    study = study_of(tmp_path, "slow", 2, SLURM, **{"timeout: 60s": "timeout: 3s"})
    script = (tmp_path / "script.py").read_text()
    (tmp_path / "script.py").write_text(script.replace("time.sleep(0.03)", "time.sleep(0.7)"))
    trials, _ = rows_of(run(study))
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 2


@pytest.mark.parametrize("rest", ["", ', pause: 2}\nresume: "... --load"\n'])
def test_stopped_jobs_end_at_their_rungs(cluster, tmp_path, rest):
    how = "resumes" if rest else "slow"
    more = f"{SLURM}early_terminate: {{type: asha, min: 200, eta: 2{rest or '}'}"
    trials, _ = rows_of(run(submitted(tmp_path, how, trials=5, more=f"{more}\n")))
    stopped = [trial for trial in trials if trial.state is TrialState.STOPPED]
    assert stopped
    assert {trial.state for trial in trials} <= {TrialState.STOPPED, TrialState.FINISHED}
    for trial in trials:
        end = trial.rung_env_steps if trial in stopped else 800
        assert end <= trial.env_steps <= end + 50
    for trial in stopped:
        record = tmp_path / f"results/study/processes/trial_{trial.trial}/search_0/run.json"
        assert json.loads(record.read_text())["last_step"] >= trial.rung_env_steps
        assert trial.rung_value == trial.params["rate"] * trial.rung_env_steps / 100
    assert fake_slurm.active(cluster) == []
    assert alive(tmp_path) == []


def test_a_job_whose_node_dies_runs_again(cluster, tmp_path):
    submitted(tmp_path, "slow", trials=1)
    head = in_background(tmp_path)
    until(lambda: fake_slurm.processes_of(cluster, 1) and alive_now(tmp_path), head)
    fake_slurm.fail_node(cluster, 1)
    assert head.wait() == 0
    assert [job["state"] for job in fake_slurm.jobs(cluster).values()] == [
        "NODE_FAIL",
        "COMPLETED",
    ]
    trials = kept(tmp_path)
    assert trials[0].value == 8 * trials[0].params["rate"]


def kept(folder):
    with Journal(folder / "results/study") as journal:
        return journal.trials()


def alive_now(folder):
    return list(folder.glob("results/study/processes/*/*/stdout.log"))


def test_a_job_that_is_lost_time_after_time_fails(cluster, tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(
        "import os, sys\nsys.path.insert(0, os.environ['HELPERS'])\nimport fake_slurm\n"
        "fake_slurm._change(fake_slurm.Path('cluster/slurm'), int(os.environ['SLURM_JOB_ID']), "
        "state='NODE_FAIL')\n"
        "os.kill(os.getppid(), 9)\n"
    )
    monkeypatch.setenv("HELPERS", os.path.dirname(fake_slurm.__file__))
    monkeypatch.setattr(slurm, "_LATE", 0.5)
    trials, _ = rows_of(run(submitted(tmp_path, "plain", trials=1)))
    assert trials[0].error.startswith("job 3 is gone: squeue does not list it, 3 times in a row")
    assert len(fake_slurm.jobs(cluster)) == 3


def test_jobs_outlive_a_killed_head_and_are_found_again(cluster, tmp_path):
    submitted(tmp_path, "slow", trials=4)
    script = (tmp_path / "script.py").read_text()
    (tmp_path / "script.py").write_text(script.replace("time.sleep(0.03)", "time.sleep(0.3)"))
    head = in_background(tmp_path)
    until(lambda: len(alive_now(tmp_path)) == 2, head)
    head.send_signal(signal.SIGKILL)
    head.wait()
    assert len(fake_slurm.active(cluster)) == 2
    trials, evaluations = rows_of(run(load(tmp_path / "study.yaml")))
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 4
    assert len(evaluations) == 4
    jobs = fake_slurm.jobs(cluster)
    assert [job["state"] for job in jobs.values()] == ["COMPLETED"] * 4  # none ran twice


def test_a_job_that_ended_without_a_head_is_kept(cluster, tmp_path):
    submitted(tmp_path, "slow", trials=2)
    head = in_background(tmp_path)
    until(lambda: len(alive_now(tmp_path)) == 2, head)
    head.send_signal(signal.SIGKILL)
    head.wait()
    until(lambda: not fake_slurm.active(cluster))
    trials, _ = rows_of(run(load(tmp_path / "study.yaml")))
    assert [trial.value for trial in trials] == [8 * trial.params["rate"] for trial in trials]
    assert len(fake_slurm.jobs(cluster)) == 2


def test_a_head_that_is_asked_to_end_cancels_its_jobs(cluster, tmp_path):
    (cluster / "slots").write_text("1")
    submitted(tmp_path, "hang", trials=4)
    head = in_background(tmp_path)
    until(lambda: alive_now(tmp_path) and len(fake_slurm.jobs(cluster)) == 2, head)
    head.send_signal(signal.SIGTERM)
    head.wait()
    assert [job["state"] for job in fake_slurm.jobs(cluster).values()] == ["CANCELLED"] * 2
    assert alive(tmp_path) == []


def test_a_halted_job_without_a_head_ends(cluster, tmp_path):
    more = f"{SLURM}early_terminate: {{type: asha, min: 200, eta: 2}}\n"
    study = study_of(tmp_path, "slow", trials=1, more=more)
    settings = Processes(at_once=1, timeout=0.5, grace=0.2)
    jobs = SlurmJobs(study.executor, settings, resumes=False)
    jobs.begin(tmp_path / "place")
    argv = [sys.executable, "script.py", "hang", "1.0", "0", "800", "x"]
    folder = tmp_path / "place/run"
    job = jobs.start(Launch(argv, {"HPO_FOLDER": f"{tmp_path}/"}, tmp_path, folder), 0)
    until(lambda: (folder / "stdout.log").exists())
    job.pause()
    until(lambda: not fake_slurm.active(cluster))  # nothing is asked of it any more
    assert alive(tmp_path) == []
    assert SlurmJobs(study.executor, settings, resumes=False).find(folder) is None


def test_a_job_is_cancelled_once_slurm_answers(cluster, tmp_path):
    executor = Executor("slurm", poll=0.1)
    jobs = SlurmJobs(executor, Processes(at_once=1, grace=0.2), resumes=False)
    jobs.begin(tmp_path / "place")
    argv = [sys.executable, "script.py", "hang", "1.0", "0", "800", "x"]
    folder = tmp_path / "place/run"
    job = jobs.start(Launch(argv, {"HPO_FOLDER": f"{tmp_path}/"}, tmp_path, folder), 0)
    until(lambda: (folder / "stdout.log").exists())
    (cluster / "no-answer").touch()
    job.ask_to_end(0.2)
    (cluster / "no-answer").unlink()
    until(lambda: job.look() is not None)
    assert job.lost == ""
    until(lambda: alive(tmp_path) == [])


def test_a_job_at_its_time_limit_fails(cluster, tmp_path):
    more = "executor: {type: slurm, poll: 0.2s, time: 60s}\n"
    submitted(tmp_path, "hang", trials=1, more=more)
    head = in_background(tmp_path)
    until(lambda: alive_now(tmp_path) and fake_slurm.processes_of(cluster, 1), head)
    until(
        lambda: (tmp_path / "results/study/processes/trial_0/search_0/stdout.log").stat().st_size
    )
    fake_slurm.stop(cluster, 1, "TIMEOUT")
    head.wait()
    trials = kept(tmp_path)
    words = "ended by SIGTERM: hpo: the job reached its time limit; raise executor.time"
    assert trials[0].error.startswith(words)
    assert len(fake_slurm.jobs(cluster)) == 1


def test_a_job_that_is_preempted_runs_on_from_its_checkpoint(cluster, tmp_path):
    more = f'{SLURM}resume: "... --load"\n'
    submitted(tmp_path, "resumes", trials=1, more=more)
    script = (tmp_path / "script.py").read_text()
    (tmp_path / "script.py").write_text(script.replace("time.sleep(0.1)", "time.sleep(0.3)"))
    head = in_background(tmp_path)
    until(lambda: list(tmp_path.glob("results/study/processes/*/*/checkpoint")), head)
    fake_slurm.stop(cluster, 1, "PREEMPTED")
    assert head.wait() == 0
    place = tmp_path / "results/study/processes/trial_0/search_0"
    steps = [json.loads(line)["step"] for line in (place / "stdout.log").read_text().splitlines()]
    assert steps == sorted(set(steps))  # nothing ran twice
    assert len(fake_slurm.jobs(cluster)) == 2


def test_a_study_may_move_to_the_cluster(cluster, tmp_path):
    run(submitted(tmp_path, "slow", trials=2, more=""))
    trials, _ = rows_of(run(submitted(tmp_path, "slow", trials=3)))
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 3
    assert len(fake_slurm.jobs(cluster)) == 1


def test_a_failed_trial_can_be_tried_again(cluster, tmp_path):
    (tmp_path / "mended").write_text("")
    script = (tmp_path / "script.py").read_text()
    line = 'if how == "slow" and not open("mended").read():\n    sys.exit(5)\n'
    (tmp_path / "script.py").write_text(script.replace("start = 0\n", f"{line}start = 0\n", 1))
    trials, _ = rows_of(run(submitted(tmp_path, "slow", trials=1)))
    assert trials[0].error.startswith("exit code 5")
    (tmp_path / "mended").write_text("yes")
    trials, _ = rows_of(run(load(tmp_path / "study.yaml"), retry_failed=True))
    assert trials[0].state is TrialState.FINISHED
    assert len(fake_slurm.jobs(cluster)) == 2


def test_a_damaged_checkpoint_is_not_taken_for_the_end(cluster, tmp_path):
    """A job fails to resume after its head was killed; it starts over, as the only one to run."""
    more = f'{SLURM}resume: "... --load"\n'
    submitted(tmp_path, "resumes", trials=1, more=more)
    script = (tmp_path / "script.py").read_text()
    (tmp_path / "script.py").write_text(script.replace("time.sleep(0.1)", "time.sleep(0.3)"))
    head = in_background(tmp_path)
    until(lambda: list(tmp_path.glob("results/study/processes/*/*/checkpoint")), head)
    head.send_signal(signal.SIGKILL)
    head.wait()
    fake_slurm.fail_node(cluster, 1)
    (tmp_path / "results/study/processes/trial_0/search_0/checkpoint").write_text("")
    trials, _ = rows_of(run(load(tmp_path / "study.yaml")))
    assert trials[0].value == 8 * trials[0].params["rate"]
    assert len(fake_slurm.jobs(cluster)) == 3  # lost, could not resume, started over


def test_a_refused_first_job_ends_the_study(cluster, tmp_path):
    (cluster / "refusal").write_text("invalid partition specified: sort")
    with pytest.raises(
        SearchError, match="sbatch: error: invalid partition specified: sort; correct"
    ):
        run(submitted(tmp_path))


def test_a_job_that_is_refused_for_a_while_is_sent_again(cluster, tmp_path):
    submitted(tmp_path, "slow", trials=4)
    script = (tmp_path / "script.py").read_text()
    (tmp_path / "script.py").write_text(script.replace("time.sleep(0.03)", "time.sleep(0.1)"))
    head = in_background(tmp_path)
    until(lambda: fake_slurm.jobs(cluster), head)
    (cluster / "refusal").write_text("Batch job submission failed: too many jobs")
    (cluster / "no-answer").touch()
    until(lambda: not fake_slurm.active(cluster), head)
    (cluster / "no-answer").unlink()
    time.sleep(0.5)
    (cluster / "refusal").unlink()
    assert head.wait() == 0
    trials = kept(tmp_path)
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 4


def test_without_slurm_it_is_one_sentence(tmp_path, monkeypatch, capsys):
    write_script(tmp_path)
    monkeypatch.chdir(tmp_path)
    study_of(tmp_path, more=SLURM)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["run", "study.yaml"]) == 2
    assert "executor.type is slurm, but sbatch was not found here; run" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="sbatch was not found here"):
        SlurmJobs(Executor("slurm"), Processes(at_once=1), False).check("", tmp_path)
