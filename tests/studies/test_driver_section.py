"""A cluster and Ray Tune in the study file: what goes with them, and what is refused where."""

import pytest

from hpo.errors import StudyError
from hpo.studies.check import check
from hpo.studies.chunk_sizes import rung_steps
from hpo.studies.load import loads
from hpo.studies.resolved import diff, resolved, resolved_yaml, study_hash

PLAIN = """\
env: CartPole-v1
env_steps: 20k
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
"""
RAY = PLAIN + "executor: {type: ray, workers: 2}\n"
TUNE = PLAIN + "evaluation: {every: 5k}\nsearch: {driver: ray_tune}\nbudget: {trials: 8}\n"


def mistakes(text):
    with pytest.raises(StudyError) as caught:
        loads(text)
    return [(mistake.line, mistake.text) for mistake in caught.value.mistakes]


def test_a_cluster_has_workers_an_address_and_cpus():
    executor = loads(RAY.replace("workers: 2", "workers: 2, address: auto, cpus: 4")).executor
    assert (executor.type, executor.workers, executor.address, executor.cpus) == (
        "ray",
        2,
        "auto",
        4,
    )
    assert loads(RAY).executor.address is None


def test_ray_tune_has_a_scheduler_and_a_searcher():
    search = loads(
        TUNE.replace(
            "driver: ray_tune",
            "driver: ray_tune, scheduler: ray.tune.schedulers.HyperBandScheduler, searcher: "
            "optuna, scheduler_options: {reduction_factor: 3}",
        )
    ).search
    assert search.driver == "ray_tune" and search.scheduler.endswith("HyperBandScheduler")
    assert search.searcher == "optuna" and search.scheduler_options == {"reduction_factor": 3}
    assert loads(TUNE).search.method == "random"


@pytest.mark.parametrize("text", [RAY, TUNE], ids=["cluster", "tune"])
def test_resolved_ray_study_round_trip(text):
    study = loads(text)
    assert resolved(loads(resolved_yaml(study), name=study.name)) == resolved(study)


def test_plain_study_resolves_without_driver_keys():
    data = resolved(loads(PLAIN))
    assert data["executor"] == {"type": "local", "workers": 1}
    assert not {"driver", "scheduler", "searcher"} & set(data["search"])


def test_cluster_address_may_change_but_not_workers():
    one = resolved(loads(RAY))
    moved = resolved(loads(RAY.replace("workers: 2", "workers: 2, address: auto, cpus: 3")))
    assert {change.key: change.allowed for change in diff(one, moved)} == {
        "executor.address": True,
        "executor.cpus": True,
    }
    more = resolved(loads(RAY.replace("workers: 2", "workers: 3")))
    assert [change.allowed for change in diff(one, more)] == [False]
    assert study_hash(loads(RAY)) != study_hash(loads(PLAIN))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (PLAIN + "executor: {workers: 2}\n", 5, "use executor: {type: ray, workers: 2}"),
        (PLAIN + "executor: {address: auto}\n", 5, "executor.address needs executor: {type: ray}"),
        (PLAIN + "executor: {type: slrum}\n", 5, "unknown type 'slrum'"),
        (PLAIN + "search: {scheduler: asha}\n", 5, "needs search: {driver: ray_tune}"),
        (TUNE.replace("ray_tune", "ray_tune, method: tpe"), 6, "whose searcher proposes trials"),
        (TUNE.replace("ray_tune", "ray_tune, scheduler: ashaa"), 6, "did you mean 'asha'?"),
        (
            TUNE.replace("ray_tune", "ray_tune, scheduler: subprocess.Popen"),
            6,
            "use imports: [my_file.py] and my_file.MyClass",
        ),
        (
            TUNE.replace("ray_tune", "ray_tune, searcher: ray.tuner.Popen"),
            6,
            "neither in ray.tune nor in",
        ),
        (
            TUNE.replace("ray_tune", "ray_tune, searcher: tpe"),
            6,
            "search.searcher 'tpe' is unknown",
        ),
        (TUNE + "early_terminate: {type: asha, min: 5k}\n", 8, "remove it"),
        (TUNE.replace("every: 5k", "episodes: 5"), 5, "use evaluation: {every: 1250}"),
        (TUNE.replace("trials: 8", "trials: null, env_steps: 1M"), 7, "budget.trials is required"),
        (TUNE + "seeds: {per_config: 4, racing: {start: 2}}\n", 8, "racing does not work"),
        (
            TUNE + "objectives: [{name: eval/return_mean}, {name: eval/length_mean}]\n",
            8,
            "schedulers, which compare only one metric;",
        ),
        (
            TUNE.replace("ray_tune", "ray_tune, scheduler: pbt, searcher: optuna"),
            6,
            "pbt starts with random trials",
        ),
        (
            TUNE.replace("ray_tune", "ray_tune, scheduler: pbt").replace(
                "space:\n", "space:\n  hidden_sizes: {values: [[16], [32]]}\n"
            ),
            4,
            "hidden_sizes is compiled into the program",
        ),
        (
            TUNE.replace("ray_tune", "ray_tune, scheduler: pbt") + "population: {lanes: 4}\n",
            8,
            "runs all 8 trials x 1 seeds at the same time; set lanes: 8",
        ),
        (
            TUNE.replace("ray_tune", "ray_tune, scheduler: ray.tune.schedulers.PB2"),
            6,
            "PB2 models hyperparameters, which are not passed to Ray Tune; remove search.driver",
        ),
        (
            TUNE.replace(
                "ray_tune", "ray_tune, scheduler: ray.tune.schedulers.PopulationBasedTraining"
            )
            + "population: {lanes: 4}\n",
            8,
            "set lanes: 8",
        ),
    ],
)
def test_incompatible_ray_settings_are_refused_with_line(text, line, words):
    found = mistakes(text)
    assert any(at == line and words in said for at, said in found), found


def test_pbt_on_ray_needs_compiled_environment():
    pytest.importorskip("gymnasium")
    hosted = "population: {lanes: 8}\nbudget: {trials: 8}\n"
    over = RAY.replace("CartPole-v1", "gym:CartPole-v1") + hosted
    assert loads(over).executor.workers == 2
    found = mistakes(over + "early_terminate: {type: pbt, every: 5k}\n")
    assert any(at == 1 and "so pbt cannot copy its state" in said for at, said in found)


def test_ray_tune_decides_at_every_evaluation_but_the_last():
    study = loads(TUNE)
    assert rung_steps(study) == (5_000, 10_000, 15_000)
    said = check(study)
    assert "Ray Tune (random), with scheduler asha every 5,000 env steps" in said.text()
    assert said.expected.search == said.expected.full
