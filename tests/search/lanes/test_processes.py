"""Studies of a command: what processes report, how they end, and what a killed study keeps."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.process_study import alive, rows_of, study_of, write_script
from hpo.cli import main
from hpo.errors import ConfigError, StudyError
from hpo.machine.processes import share_of_gpus
from hpo.search.api import run
from hpo.search.lanes.contract import Refill, RunsAlone
from hpo.search.lanes.process_factory import ProcessFactory
from hpo.search.lanes.process_population import ProcessPopulation
from hpo.search.lanes.process_setup import seed_of
from hpo.store.rows import Stream, TrialState
from hpo.store.study_folder import StudyFolder
from hpo.studies.evaluation import goal_note
from hpo.studies.load import load, loads
from hpo.studies.resolved import resolved_yaml
from hpo.views.charts.search_charts import curves
from hpo.views.charts.snapshot import read_snapshot


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_script(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_study_of_processes_ends_with_a_value_for_each_trial(folder):
    results = run(study_of(folder))
    trials, evaluations = rows_of(results)
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 3
    for trial in trials:  # the last line: rate * 8, and seed 0
        assert trial.value == pytest.approx(8 * trial.params["rate"])
    assert {row.env_steps for row in evaluations} == {800}
    assert alive(folder) == []


@pytest.mark.slow
def test_the_default_is_compared_on_test_seeds(folder):
    more = "confirm: {default: {rate: 2.0}, top_k: 1, choose: 2, report: 8}\n"
    results = run(study_of(folder, trials=6, more=more))
    assert results.conclusion.against.verdict == "better"
    trials, _ = rows_of(results)
    assert trials[0].params == {"rate": 2.0}
    assert list(trials[0].report_values) == [16.0 + seed / 100 for seed in range(8)]


def test_failed_test_seed_is_named_and_can_be_retried(folder, capsys):
    script = folder / "script.py"
    whole = script.read_text()
    script.write_text("import os, sys\nif os.environ['HPO_SEED'] == '2001': sys.exit(5)\n" + whole)
    study_of(folder, more="confirm: {default: {rate: 2.0}, top_k: 1, choose: 0, report: 8}\n")
    assert main(["run", "study.yaml"]) == 0
    out, said = capsys.readouterr()
    assert "Failed runs of " in out and " on test seeds count as diverged." in out
    assert "hpo run study.yaml --retry-failed" in said
    script.write_text(whole)
    assert main(["run", "study.yaml", "--retry-failed"]) == 0
    out, said = capsys.readouterr()
    assert "diverged" not in out and "To run failed trials" not in said


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("crash", "exit code 1: RuntimeError: out of memory"),
        ("code", "exit code 3: a last word"),
        ("killed", "ended by SIGKILL"),
        ("short", "exited by itself at 200 of 800 env steps"),
        ("hang", "no metric for 1 s; raise processes.timeout"),
        ("deaf", "no metric for 1 s"),
        ("silent", "ended without score; it reported no metric"),
        ("other", "ended without score; it reported los"),
        ("forks and crashes", "exit code 1"),
    ],
)
def test_failing_process_records_error_and_leaves_no_process(folder, how, words):
    results = run(study_of(folder, how, trials=1))
    trials, _ = rows_of(results)
    assert trials[0].state is TrialState.FAILED
    assert trials[0].error.startswith(words)
    assert "(all output: processes/trial_0/search_0/)" in trials[0].error
    assert alive(folder) == []


def test_failure_of_a_process_gives_no_count_of_chunks_as_its_steps(folder, capsys):
    study_of(folder, "other", trials=1)
    main(["run", "study.yaml"])
    lines = capsys.readouterr().err.splitlines()
    said = next(line for line in lines if line.startswith("trial 0 failed"))
    assert said.startswith("trial 0 failed: ended without score; it reported los; name one")


def test_a_metric_that_is_not_finite_is_a_divergence(folder):
    trials, _ = rows_of(run(study_of(folder, "nan", trials=1)))
    assert trials[0].state is TrialState.DIVERGED
    assert alive(folder) == []


@pytest.mark.parametrize(
    ("how", "state", "at"),
    [("nan", TrialState.DIVERGED, 400), ("crash", TrialState.FAILED, 250)],
)
def test_lost_process_has_the_env_steps_that_it_reported(folder, how, state, at):
    """All its reports are read at once, before its first chunk of 50 steps is counted."""
    script = folder / "script.py"
    text = script.read_text().replace("flush=True", "flush=False")
    script.write_text(
        text.replace('nan"))\n            wait()', 'nan"))\n            sys.exit(0)')
    )
    trials, _ = rows_of(run(study_of(folder, how, trials=1)))
    assert trials[0].state is state and trials[0].env_steps == at
    assert state is TrialState.FAILED or f"at {at} env steps" in trials[0].error


def test_children_of_a_process_end_with_it(folder):
    trials, _ = rows_of(run(study_of(folder, "forks", trials=1)))
    assert trials[0].state is TrialState.FINISHED
    assert alive(folder) == []


def test_a_process_without_steps_is_measured_at_its_end(folder):
    trials, evaluations = rows_of(run(study_of(folder, "stepless", trials=2)))
    assert [trial.value for trial in trials] == [trial.params["rate"] for trial in trials]
    assert set(evaluations[0].metrics) == {"score", "nested/loss"}


@pytest.mark.parametrize("pause", [0, 2])
def test_a_stopped_process_ends_at_its_rung(folder, pause):
    more = f"early_terminate: {{type: asha, min: 200, eta: 2, pause: {pause}}}\n"
    trials, _ = rows_of(run(study_of(folder, "slow", trials=6, more=more)))
    stopped = [trial for trial in trials if trial.state is TrialState.STOPPED]
    assert stopped
    for trial in stopped:
        record = folder / f"results/study/processes/trial_{trial.trial}/search_0/run.json"
        assert json.loads(record.read_text())["last_step"] >= trial.rung_env_steps
        assert trial.rung_value == trial.params["rate"] * trial.rung_env_steps / 100
    assert alive(folder) == []


def test_a_process_is_halted_at_a_rung_until_it_is_judged(folder):
    more = "early_terminate: {type: asha, min: 200, eta: 2}\n"
    factory = ProcessFactory(study_of(folder, "slow", more=more))
    factory.begin(folder / "place")
    refill = Refill(0, factory.resolve(factory.study.default()), Stream.SEARCH, 0, trial=0)
    population = factory.make(refill.resolved, 1)
    for _ in range(3):  # the rung is the fourth chunk
        population.advance([refill], [0])
    halted = population._runs[0]
    while not halted.process.is_paused:
        population.ready([], [0])
    stat = Path(f"/proc/{halted.process.group}/stat")
    while sys.platform == "linux" and stat.read_text().split()[2] not in ("T", "t"):
        time.sleep(0.01)
    population.advance([], [0])
    while halted.process.is_paused:
        population.ready([], [0])
    population.ready([], [])  # nothing wants it any more
    factory.close()
    assert alive(folder) == []


def test_the_last_step_of_a_run_that_ended_early_is_noted(folder):
    """A trial is stopped at its rung while its process has already come to its end."""
    factory = ProcessFactory(study_of(folder))
    factory.begin(folder / "place")
    refill = Refill(0, factory.resolve(factory.study.default()), Stream.SEARCH, 0, trial=0)
    population = factory.make(refill.resolved, 1)
    population.advance([refill], [0])
    process = population._runs[0].process
    while process.look() is None:
        time.sleep(0.01)
    population.ready([], [])  # nothing wants it any more
    record = json.loads((factory.setup.folder_of(refill) / "run.json").read_text())
    assert record["last_step"] == 800
    factory.close()


def test_env_steps_of_processes_match_their_rungs(folder):
    """The rungs and the count of env steps do not depend on what trains."""
    more = "early_terminate: {type: asha, min: 200, eta: 2}\n"
    trials, _ = rows_of(run(study_of(folder, "slow", trials=8, more=more)))
    assert {trial.state for trial in trials} == {TrialState.FINISHED, TrialState.STOPPED}
    for trial in trials:
        end = 800 if trial.state is TrialState.FINISHED else trial.rung_env_steps
        assert end <= trial.env_steps <= end + 50


def test_a_paused_process_may_resume_from_its_checkpoint(folder):
    more = 'early_terminate: {type: asha, min: 200, eta: 2, pause: 3}\nresume: "... --load"\n'
    trials, _ = rows_of(run(study_of(folder, "resumes", trials=8, more=more)))
    finished = [trial for trial in trials if trial.state is TrialState.FINISHED]
    assert finished
    for trial in finished:
        assert trial.value == pytest.approx(8 * trial.params["rate"])
    assert alive(folder) == []


def test_seeds_of_different_streams_are_disjoint():
    study = loads(
        "command: python a.py {x} {seed}\nlength: 10\nspace: {x: {min: 0.0, max: 1.0}}\n"
        "metric: {name: y}\n"
    )
    seeds = [seed_of(study, stream, replicate) for stream in Stream for replicate in range(1000)]
    assert len(set(seeds)) == 3000


def test_metrics_are_read_from_files(folder):
    script = folder / "script.py"
    script.write_text(
        "import sys\nfolder, rate = sys.argv[5], float(sys.argv[2])\n"
        "with open(folder + '/progress.csv', 'w') as file:\n"
        "    print('time,global_step,score', file=file)\n"
        "    for part in range(1, 9):\n"
        "        print(f'1,{part * 100},{rate * part}', file=file)\n"
    )
    more = "metrics: {type: csv, step: global_step, mean_of: 2}\n"
    trials, _ = rows_of(run(study_of(folder, trials=2, more=more)))
    assert [trial.value for trial in trials] == [7.5 * trial.params["rate"] for trial in trials]


def test_a_finished_process_is_not_run_again(folder):
    study = study_of(folder, "slow", trials=1)
    factory = ProcessFactory(study)
    factory.begin(folder / "place")
    refill = Refill(0, factory.resolve(study.default()), Stream.SEARCH, 0, trial=0)
    population = factory.make(refill.resolved, 1)
    for _ in range(factory.setup.chunk_sizes.chunks):
        population.advance([refill], [0])
    log = factory.setup.folder_of(refill) / "stdout.log"
    written = log.stat().st_mtime_ns
    again = factory.make(refill.resolved, 1)  # a study that could not commit any of it
    for _ in range(factory.setup.chunk_sizes.chunks):
        again.advance([refill], [0])
    assert again.evaluate([0])[0].metrics["score"] == population.evaluate([0])[0].metrics["score"]
    assert log.stat().st_mtime_ns == written
    factory.close()


def test_process_lanes_are_saved_and_restored(folder):
    study = study_of(folder, "slow", trials=2)
    factory = ProcessFactory(study)
    factory.begin(folder / "place")
    resolved = factory.resolve(study.default())
    population = factory.make(resolved, 2)
    assert isinstance(population, RunsAlone)
    refills = [Refill(lane, resolved, Stream.SEARCH, lane, trial=lane) for lane in range(2)]
    for _ in range(2):
        population.advance(refills, [0, 1])
    population.advance([], [0, 1])
    before = population.advance([], [0, 1])
    population.save(folder / "saved")
    factory.close()
    assert alive(folder) == []
    other = ProcessFactory(study)
    other.begin(folder / "place")
    restored = other.make(resolved, 2)
    restored.restore(folder / "saved")
    restored.advance([], [0, 1])
    after = restored.advance([], [0, 1])
    assert (after.metrics["score"] - before.metrics["score"]).tolist() == [5.0, 5.0]
    while restored._runs[0].chunks < other.setup.chunk_sizes.chunks:
        restored.advance([], [0, 1])
    values = [one.metrics["score"][0] for one in restored.evaluate([0, 1])]
    assert np.diff(values).tolist() == pytest.approx([0.01])  # of the seeds
    other.close()


def test_an_interrupted_run_resumes_from_its_checkpoint(folder):
    study = study_of(folder, "resumes", more='resume: "... --load"\n')
    factory = ProcessFactory(study)
    factory.begin(folder / "place")
    refill = Refill(0, factory.resolve(study.default()), Stream.SEARCH, 0, trial=0)
    population = factory.make(refill.resolved, 1)
    for _ in range(6):
        population.advance([refill], [0])
    population.save(folder / "saved")
    factory.close()
    other = ProcessFactory(study)
    other.begin(folder / "place")
    restored = other.make(refill.resolved, 1)
    restored.restore(folder / "saved")
    while restored._runs[0].chunks < other.setup.chunk_sizes.chunks:
        restored.advance([], [0])
    log = (other.setup.folder_of(refill) / "stdout.log").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in log]
    assert steps[-1] == 800
    assert steps.count(100) == 1  # the second process did not start over
    record = json.loads((other.setup.folder_of(refill) / "run.json").read_text())
    assert record["resumed_by"][-1] == "--load"
    other.close()


def test_a_run_whose_checkpoint_is_damaged_starts_over(folder):
    study = study_of(folder, "resumes", more='resume: "... --load"\n')
    factory = ProcessFactory(study)
    factory.begin(folder / "place")
    refill = Refill(0, factory.resolve(study.default()), Stream.SEARCH, 0, trial=0)
    population = factory.make(refill.resolved, 1)
    for _ in range(6):
        population.advance([refill], [0])
    factory.close()
    (factory.setup.folder_of(refill) / "checkpoint").write_text("")
    other = ProcessFactory(study)
    other.begin(folder / "place")
    again = other.make(refill.resolved, 1)
    for _ in range(other.setup.chunk_sizes.chunks):
        result = again.advance([refill], [0])
        assert not result.failed
    log = (other.setup.folder_of(refill) / "stdout.log").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log] == list(range(100, 900, 100))
    other.close()


@pytest.mark.slow
def test_killed_command_study_resumes_without_orphans(folder):
    study_of(folder, "slow", trials=6)
    command = [sys.executable, "-m", "hpo", "run", "study.yaml"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = folder / "results/study/processes/trial_2"
    while not done.exists():
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert alive(folder) == []
    starts = _starts(folder)
    results = run(load(folder / "study.yaml"))
    trials, evaluations = rows_of(results)
    assert [trial.state for trial in trials] == [TrialState.FINISHED] * 6
    assert len(evaluations) == 6
    ended = [path for path, record in starts.items() if record.get("exit_code") == 0]
    assert [_starts(folder)[path] for path in ended] == [starts[path] for path in ended]


def _starts(folder):
    paths = Path(folder).glob("results/study/processes/*/*/run.json")
    return {path: json.loads(path.read_text()) for path in paths}


def test_run_record_contains_command_and_versions(folder):
    results = run(study_of(folder, trials=1))
    record = json.loads((results.folder / "processes/trial_0/search_0/run.json").read_text())
    assert record["command"][1:3] == ["script.py", "plain"]
    assert record["seed"] == 0
    assert record["exit_code"] == 0
    assert record["python"].count(".") == 2


def test_process_receives_its_environment_variables(folder):
    script = folder / "script.py"
    script.write_text(
        "import json, os\n"
        "names = 'HPO_SEED', 'HPO_TRIAL', 'HPO_ENV_STEPS', 'OMP_NUM_THREADS', 'LEVEL'\n"
        "print(json.dumps({'score': 1.0, **{name: int(os.environ[name]) for name in names}}))\n"
    )
    study = study_of(
        folder,
        trials=1,
        **{"at_once: 2": "at_once: 2, threads: 3", "command: ": "command: LEVEL=5 "},
    )
    _, evaluations = rows_of(run(study))
    found = {name: float(value[0]) for name, value in evaluations[0].metrics.items()}
    assert found == {
        "score": 1.0,
        "HPO_SEED": 0.0,
        "HPO_TRIAL": 0.0,
        "HPO_ENV_STEPS": 800.0,
        "OMP_NUM_THREADS": 3.0,
        "LEVEL": 5.0,
    }


def test_gpus_are_packed():
    gpus = ["4", "7"]
    shown = [share_of_gpus(lane, 0.5, gpus)["CUDA_VISIBLE_DEVICES"] for lane in range(4)]
    assert shown == ["4", "4", "7", "7"]
    assert share_of_gpus(0, 0, gpus) == {"CUDA_VISIBLE_DEVICES": ""}
    assert share_of_gpus(1, 1, gpus) == {"CUDA_VISIBLE_DEVICES": "7"}


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("{name: loss}", "metric.goal is maximize (the default); for a loss, use goal: minimize"),
        ("{name: loss, goal: minimize}", ""),
        ("{name: loss, goal: maximize}", ""),
        ("{name: score}", ""),
    ],
)
def test_loss_maximized_by_default_is_a_warning(folder, capsys, metric, words):
    study_of(folder, trials=1, **{"{name: score}": metric})
    for command in (["check", "study.yaml", "--no-time"], ["run", "study.yaml"]):
        assert main(command) == 0
        said = capsys.readouterr()
        text = said.out + said.err
        assert ("metric.goal" in text) == bool(words)
        assert words in " ".join(text.split())


@pytest.mark.parametrize("name", ["val_loss", "valError", "loss", "test/Perplexity", "cost2"])
def test_goal_of_each_objective_is_noticed(name):
    text = "command: python t.py {{lr}}\nlength: 8\nspace: {{lr: {{min: 0.1, max: 1}}}}\n"
    text += "objectives: {}\n"
    given = text.format(f"[{{name: score}}, {{name: {name}}}]")
    assert goal_note(loads(given)).startswith(f"the goal of {name} in objectives is maximize")
    given = text.format(f"[{{name: lossless}}, {{name: {name}, goal: minimize}}]")
    assert goal_note(loads(given)) == ""


def test_missing_program_is_refused(folder):
    study = study_of(folder, **{sys.executable: "no-such-program"})
    with pytest.raises(ConfigError, match="no-such-program was not found here"):
        run(study)


def test_processes_do_not_copy_each_other(folder):
    factory = ProcessFactory(study_of(folder))
    population = ProcessPopulation(factory.setup, 1)
    population.change([])
    with pytest.raises(ConfigError, match="cannot copy each other"):
        population.change([object()])


MISTAKES = {
    "command: python a.py {seed}": "space has 'x', but command does not use {x}",
    "space: {'x <b>': {min: 0.0, max: 1.0}}": "space has 'x <b>', which cannot be a placeholder",
    "command: python a.py {x} {seed} {z}": "command has {z}, which is neither searched nor fixed",
    "command: ''": "command is ''; allowed: a command line",
    "command: python a.py {x} 'open": "No closing quotation",
    "env: CartPole-v1": "creates the environment itself; remove env",
    "population: {lanes: 4}": "population is not a key of a study with command",
    "network: mlp": "put it into the command, such as --network {network}",
    "confirm: {default: {y: 1}}": "confirm.default has 'y', which is not searched",
    "early_terminate: {type: pbt}": "copies states between trials",
    "algorithm: a.py:A": "command and algorithm are both given",
    "resume: python a.py {w}": "resume has {w}",
    "evaluation: {episodes: 3}": "evaluation accepts only `every`",
    "executor: {type: slurm}": "processes.at_once is auto, but SLURM has no fixed number of "
    "slots; give the number of simultaneous jobs, such as processes: {at_once: 8}",
    "executor: {type: ray, workers: 3}": "use processes: {at_once: 3}",
    "executor: {type: ray, cpus: 2}": "use processes: {threads: 2}",
    "executor: {type: ray, partition: x}": "executor.partition needs executor: {type: slurm}",
    "executor: {type: slurm, address: x}": "executor.address needs executor: {type: ray}; remove",
    "executor: {type: slurm, options: {time: 3}}": "use executor.time instead, such as 4h",
    "executor: {type: slurm, options: {x: [1]}}": "executor.options.x is [1]; allowed: a string",
    "executor: {type: slurm, time: 3s}": "executor.time is '3s'; allowed: a time such as",
    "executor: {type: slrum}": "unknown type 'slrum'; did you mean 'slurm'",
}


@pytest.mark.parametrize(("line", "words"), MISTAKES.items(), ids=MISTAKES)
def test_command_study_mistakes_report_one_sentence_with_line(line, words):
    lines = {
        "command": "command: python a.py {x} {seed}",
        "length": "length: 10 epochs",
        "space": "space: {x: {min: 0.0, max: 1.0}}",
        "metric": "metric: {name: y}",
    }
    lines[line.partition(":")[0]] = line
    with pytest.raises(StudyError) as caught:
        loads("\n".join(lines.values()))
    assert words in str(caught.value)
    assert str(caught.value).startswith("study.yaml:")


PLACES = "processes: {at_once: 2}\n"


@pytest.mark.parametrize("kind", ["ray", "slurm"])
def test_paused_processes_keep_no_places_of_a_cluster(kind):
    text = (
        "command: python a.py {x}\nlength: 100\nspace: {x: {min: 0.0, max: 1.0}}\n"
        "metric: {name: y}\nearly_terminate: {type: asha, min: 10, pause: 2}\n"
        f"executor: {{type: {kind}}}\n{PLACES}"
    )
    with pytest.raises(
        StudyError, match="keeps paused processes on the cluster's CPUs and GPUs; set resume"
    ):
        loads(text)
    assert loads(f"{text}resume: ... --load\n").executor.type == kind


def test_parts_of_a_gpu_are_not_for_slurm():
    text = (
        "command: python a.py {x}\nlength: 100\nspace: {x: {min: 0.0, max: 1.0}}\n"
        "metric: {name: y}\nexecutor: {type: slurm}\nprocesses: {at_once: 2, gpus: 0.5}\n"
    )
    with pytest.raises(StudyError, match=r"gpus is 0\.5, but SLURM jobs get whole GPUs"):
        loads(text)
    assert loads(text.replace("0.5}", "2}")).executor.poll == 15.0


def test_lanes_are_not_for_slurm():
    text = "env: CartPole-v1\nenv_steps: 10k\nexecutor: {type: slurm}\n"
    with pytest.raises(StudyError, match="is slurm, which applies only to a study with command"):
        loads(text)


def test_a_metric_is_needed():
    text = "command: python a.py {x} {seed}\nlength: 10\nspace: {x: {min: 0.0, max: 1.0}}\n"
    with pytest.raises(StudyError, match="metric: name a metric that the command prints"):
        loads(text)


def test_the_resolved_study_loads_to_itself():
    text = (
        "command: python a.py {x} {n} {w} {seed}\nlength: 10 epochs\nmetric: {name: y}\n"
        "space: {x: {min: 0.0, max: 1.0}, n: {min: 1, max: 4}, w: {values: [a, b]}}\n"
        "confirm: {default: {x: 0.25, n: 2, w: b}}\nprocesses: {at_once: 2}\n"
        "executor: {type: slurm, time: 4h, options: {mem: 8G, exclusive: true}, setup: a b}\n"
    )
    study = loads(text)
    assert study.executor.options == {"mem": "8G", "exclusive": True}
    written = resolved_yaml(study)
    assert resolved_yaml(loads(written)) == written
    assert study.default() == {"x": 0.25, "n": 2, "w": "b"}
    assert (study.algorithm.unit, study.env_steps) == ("epochs", 10)


def test_command_study_without_default_compares_none():
    study = loads(
        "command: python a.py {x} {seed}\nlength: 10\nmetric: {name: y}\nconfirm: {}\n"
        "space: {x: {min: 0.0, max: 1.0}}\n"
    )
    assert study.confirm is not None
    assert not study.confirm.default
    assert study.default() == {"x": 0.5}


def test_no_jax_is_loaded(folder):
    study_of(folder, trials=1)
    code = (
        "import sys\nfrom hpo.cli import main\n"
        "sys.argv = ['hpo', 'run', 'study.yaml']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('jax', 'flax', 'gymnax') if name in sys.modules])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert ran.stdout.splitlines()[-1] == "[]"


def test_commands_describe_process_output(folder, capsys):
    study_of(folder, trials=2)
    assert main(["run", "study.yaml"]) == 0
    assert "# save the winner's command" in capsys.readouterr().out
    assert main(["show", "1"]) == 0
    assert "Output of its processes: results/study/processes/trial_1/" in capsys.readouterr().out
    assert main(["best", "--export", "kept"]) == 0
    kept = json.loads((folder / "kept/process.json").read_text())
    assert kept["command"][1] == "script.py" and kept["about"]["study"] == "study"
    assert main(["eval", "kept"]) == 2
    assert "kept holds the command of a process" in capsys.readouterr().err
    assert main(["replay", "0"]) == 2
    assert "ran as a process, which hpo cannot replay bit for bit" in capsys.readouterr().err
    assert main(["check", "study.yaml", "--time"]) == 0
    checked = capsys.readouterr().out
    assert "2 at once" in checked
    assert "reports score, loss" in checked


def test_views_of_failed_trials_suggest_nothing_that_is_refused(folder, capsys):
    """Trials above the middle of the range fail."""
    fails = "import sys\nif float(sys.argv[2]) > 5.5: sys.exit(4)\n"
    (folder / "script.py").write_text(fails + (folder / "script.py").read_text())
    study_of(folder, trials=6, more="confirm: {default: {rate: 2.0}, choose: 0, report: 4}\n")
    assert main(["run", "study.yaml"]) == 0
    capsys.readouterr()
    assert main(["query", "--csv", "SELECT trial FROM trials WHERE state = 'failed'"]) == 0
    failed = capsys.readouterr().out.split()[1:]
    assert failed
    assert main(["compare", "0", failed[0]]) == 2
    said = capsys.readouterr().err
    assert f"because trial {failed[0]} failed" in said and "hpo confirm" not in said
    found = curves(read_snapshot(StudyFolder(folder / "results/study"))).caption
    assert re.findall(r"In grey: (\d).* of 4", found) == [str(4 - len(failed))]
    assert "training panels" not in found
    assert main(["bundle", "study", "-o", "study.zip"]) == 0
    capsys.readouterr()
    for more in ([], ["--play", "--retrain"]):
        assert main(["verify", "study.zip", *more]) == 0
        out = capsys.readouterr().out
        assert out.count("the runs of this study are processes") == 2 and "jax" not in out
