"""What we write for other tools comes back as it was: spaces, conditions, rules, best trials."""

import math
from dataclasses import replace

import numpy as np
import optuna
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from hpo.errors import ConfigError
from hpo.files.plain_data import as_lists
from hpo.importers.storages import read_space, read_storage
from hpo.search.analysis.checkpoint_values import CheckpointValues
from hpo.search.analysis.to_optuna_storage import write_storage
from hpo.spaces.via_configspace import as_configspace, write_configspace
from hpo.spaces.via_optuna import open_storage
from hpo.store.rows import StudyMeta, TrialRow, TrialState
from hpo.studies.load import loads
from hpo.studies.resolved import resolved

quick = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
LEFT = ("name", "enqueue", "population", "executor", "checkpoint", "loggers")
"""Keys that an export does not have, as they concern one run of a study."""


def numbers(low, high):
    return st.floats(low, high).map(lambda one: float(f"{one:.4g}"))


@st.composite
def ranges(draw, low, high, kinds, zero=False):
    """A range of a real hyperparameter, sometimes with a step, a default or a chance of 0."""
    first, second = sorted(draw(st.tuples(numbers(low, high), numbers(low, high))))
    assume(second > 1.01 * first)
    fields = {"min": first, "max": second, "distribution": draw(st.sampled_from(kinds))}
    if zero and draw(st.booleans()):
        fields["zero"] = draw(st.sampled_from([0.1, 0.5]))
    return fields


PARAMETERS = {
    "learning_rate": ranges(1e-5, 1e-1, ["log_uniform", "uniform"]),
    "gamma": ranges(0.8, 0.9999, ["one_minus_log", "logit", "uniform"]),
    "ent_coef": ranges(1e-5, 1e-1, ["log_uniform", "uniform"], zero=True),
    "clip_eps": st.sampled_from(
        [{"min": 0.1, "max": 0.4, "q": 0.1, "distribution": "uniform"}, {"values": [0.1, 0.2]}]
    ),
    "vf_coef": st.sampled_from(
        [{"mu": 0.5, "sigma": 0.1}, {"mu": 0.6, "sigma": 0.2, "min": 0.1, "max": 1.0}]
    ),
    "update_epochs": st.sampled_from(
        [{"min": 1, "max": 8, "distribution": "log_int_uniform"}, {"min": 2, "max": 4}]
    ),
    "num_minibatches": st.sampled_from(
        [{"values": [2, 4, 8]}, {"values": [1, 4], "distribution": "ordinal"}]
    ),
    "hidden_sizes": st.sampled_from(
        [{"values": [[16], [64, 64]]}, {"values": [[8], [8, 8], [16]]}]
    ),
    "max_grad_norm": st.sampled_from([{"values": [None, 0.5]}, {"values": [0.5, 1.0, 2.0]}]),
    "normalise_observations": st.just({"values": [True, False]}),
    "env.g": ranges(1.0, 20.0, ["uniform", "log_uniform"]),
}
OPTIMISERS = ["adam", "adamw", "sgd"]


@st.composite
def studies(draw, branches=True):
    """The text of a study of Pendulum with conditions, rules and, with `branches`, name pairs."""
    names = draw(st.lists(st.sampled_from(list(PARAMETERS)), min_size=1, unique=True))
    space = {name: dict(draw(PARAMETERS[name])) for name in names}
    space = {"optimiser": {"values": OPTIMISERS}, **space}
    for name in names:
        if draw(st.booleans()):
            some = st.lists(st.sampled_from(OPTIMISERS), min_size=1, max_size=2, unique=True)
            space[name]["when"] = {"optimiser": draw(some)}
    if branches and draw(st.booleans()):
        space["adam_beta1"] = [
            {"min": 0.8, "max": 0.9, "when": {"optimiser": ["adam"]}},
            {"min": 0.9, "max": 0.99, "when": {"optimiser": ["adamw"]}},
        ]
    rules = []
    if "hidden_sizes" in names and draw(st.booleans()):
        value = space["hidden_sizes"]["values"][0]
        rules.append({"optimiser": ["sgd"], "hidden_sizes": [value]})
    if {"gamma", "ent_coef"} <= set(names) and draw(st.booleans()):
        rules.append("gamma < ent_coef")
    fixed = draw(st.sampled_from([{}, {"gae_lambda": 0.9}, {"rollout_length": 64}]))
    data = {
        "env": {"id": "Pendulum-v1"},
        "env_steps": draw(st.sampled_from([20_000, 50_000])),
        "fixed": fixed,
        "space": space,
        "forbid": rules,
        "seeds": {"per_config": draw(st.integers(1, 3))},
    }
    if draw(st.booleans()):
        data |= {"early_terminate": {"type": "asha", "min": 5_000}, "confirm": {"top_k": 2}}
    return data


def study_of(data):
    from hpo.studies.yaml_io import to_yaml

    text = to_yaml({key: value for key, value in data.items() if value not in ({}, [])})
    try:
        return loads(f"name: one\n{text}")
    except Exception as error:  # an illegal draw, such as a default outside of its range
        assume("StudyError" not in type(error).__name__)
        raise


def exported(study, url, seed):
    """Write a study with twelve finished trials; return their configurations, the best first."""
    rng = np.random.default_rng(seed)
    drawn = [study.space.sample(rng) for _ in range(12)]
    rows = {
        number: TrialRow(
            number, TrialState.FINISHED, "random", 0, "bucket", params, value=float(number)
        )
        for number, params in enumerate(drawn)
    }
    meta = StudyMeta("one", "hash", "", study.metric.name, study.metric.goal, "mean", {})
    write_storage(url, "one", meta, CheckpointValues(study, rows, {}))
    return drawn[::-1]


@quick
@given(data=studies(), seed=st.integers(0, 100))
def test_optuna_round_trip_keeps_study_and_best_trials(data, seed, tmp_path_factory):
    study = study_of(data)
    url = str(tmp_path_factory.mktemp("optuna") / "trials.log")
    best = exported(study, url, seed)
    draft = read_storage(url, None, {})
    back = loads(draft.text())
    there, here = resolved(study), resolved(back)
    assert {key: there[key] for key in there if key not in LEFT} == {
        key: here[key] for key in here if key not in LEFT
    }
    distinct = [one for at, one in enumerate(best) if one not in best[:at]]
    assert as_lists(draft.rest["enqueue"]) == as_lists(distinct[:10])


@quick
@given(data=studies(branches=False))
def test_configspace_round_trip_keeps_the_space(data, tmp_path_factory):
    study = study_of(data)
    path = tmp_path_factory.mktemp("space") / "space.json"
    write_configspace(as_configspace(study.space), path)
    back = loads(read_space(path, {"env": "Pendulum-v1", "env_steps": "50k"}).text())
    one, other = resolved(study), resolved(back)
    assert dict(other["space"]) == dict(one["space"])
    assert sorted(map(str, other["forbid"])) == sorted(map(str, one["forbid"]))


def test_conditional_pairs_of_one_name_are_refused_by_configspace():
    pair = [
        {"min": 0.8, "max": 0.9, "when": {"optimiser": ["adam"]}},
        {"min": 0.9, "max": 0.99, "when": {"optimiser": ["adamw"]}},
    ]
    study = study_of(
        {
            "env": "Pendulum-v1",
            "env_steps": 20_000,
            "space": {"optimiser": {"values": OPTIMISERS}, "adam_beta1": pair},
        }
    )
    with pytest.raises(ConfigError, match="several distributions"):
        as_configspace(study.space)


def test_several_environments_survive_optuna_round_trip(tmp_path):
    study = study_of(
        {
            "env": [{"id": "CartPole-v1"}, {"id": "Acrobot-v1"}],
            "env_steps": 20_000,
            "space": {"gamma": {"min": 0.9, "max": 0.99}},
        }
    )
    url = str(tmp_path / "trials.log")
    exported(study, url, 1)
    back = loads(read_storage(url, None, {}).text())
    assert [one.id for one in (back.env, *back.more_envs)] == ["CartPole-v1", "Acrobot-v1"]


def test_an_export_without_its_study_is_refused(tmp_path):
    """Exports of earlier versions kept neither conditions nor rules."""
    import optuna

    study = study_of(
        {"env": "Pendulum-v1", "env_steps": 20_000, "space": {"gamma": {"min": 0.9, "max": 0.99}}}
    )
    url = str(tmp_path / "trials.log")
    exported(study, url, 1)
    theirs = optuna.load_study(study_name="one", storage=open_storage(url))
    said = {key: one for key, one in theirs.user_attrs["hpo"].items() if key != "study"}
    theirs.set_user_attr("hpo", said)
    with pytest.raises(ConfigError, match="export it again"):
        read_storage(url, None, {})


def test_an_infinite_value_is_not_the_best(tmp_path):
    study = study_of(
        {"env": "Pendulum-v1", "env_steps": 20_000, "space": {"gamma": {"min": 0.9, "max": 0.99}}}
    )
    url = str(tmp_path / "trials.log")
    rows = {
        number: TrialRow(
            number, TrialState.FINISHED, "random", 0, "b", {"gamma": gamma}, value=value
        )
        for number, (gamma, value) in enumerate([(0.91, math.inf), (0.92, 1.0), (0.93, 2.0)])
    }
    meta = StudyMeta("one", "hash", "", study.metric.name, study.metric.goal, "mean", {})
    write_storage(url, "one", meta, CheckpointValues(study, rows, {}))
    enqueued = [one["gamma"] for one in read_storage(url, None, {}).rest["enqueue"]]
    assert enqueued == [0.93, 0.92, 0.91]


def written_with(url, data, rows):
    study = study_of({"env": "Pendulum-v1", "env_steps": 20_000, **data})
    meta = StudyMeta("one", "hash", "", study.metric.name, study.metric.goal, "mean", {})
    goals = [one.goal for one in study.objectives]
    if len(goals) > 1:
        names = [one.name for one in study.objectives]
        meta = replace(
            meta, objectives=[{"name": n, "goal": g} for n, g in zip(names, goals, strict=True)]
        )
    write_storage(url, "one", meta, CheckpointValues(study, rows, {}))


SPACE = {"space": {"gamma": {"min": 0.9, "max": 0.99}}}


def test_waiting_trials_of_an_export_are_enqueued(tmp_path):
    url = str(tmp_path / "trials.log")
    states = (TrialState.FINISHED, TrialState.WAITING)
    rows = {
        at: TrialRow(at, state, "random", 0, "b", {"gamma": 0.91 + at / 100}, value=1.0)
        for at, state in enumerate(states)
    }
    written_with(url, SPACE, rows)
    opened = open_storage(url)
    for value in (0.95, 0.5):
        optuna.load_study(study_name="one", storage=opened).enqueue_trial({"gamma": value})
    draft = read_storage(url, None, {})
    assert [one["gamma"] for one in draft.rest["enqueue"]] == [0.91, 0.92, 0.95]
    text = "enqueue: the waiting trials (2 of 3); skips 1 trial with values outside the space"
    assert text in draft.notes


def test_the_front_of_several_objectives_is_enqueued_first(tmp_path):
    """Sorted by the first objective, the last front member would be among the dominated ones."""
    url = str(tmp_path / "trials.log")
    pairs = [(9.0, 1.0), *((8.0 - at / 10, 0.0) for at in range(12)), (1.0, 5.0), (3.0, 4.0)]
    rows = {
        at: TrialRow(
            at, TrialState.FINISHED, "random", 0, "b", {"gamma": 0.9 + at / 200}, value=pair[0],
            objectives=pair,
        )
        for at, pair in enumerate(pairs)
    }  # fmt: skip
    data = {**SPACE, "objectives": [{"name": "eval/return_mean", "goal": "maximize"},
                                 {"name": "eval/length_mean", "goal": "maximize"}]}  # fmt: skip
    written_with(url, data, rows)
    draft = read_storage(url, None, {})
    front = optuna.load_study(study_name="one", storage=open_storage(url)).best_trials
    enqueued = [one["gamma"] for one in draft.rest["enqueue"]]
    assert set(enqueued[:3]) == {one.params["gamma"] for one in front} and len(enqueued) == 10
    assert "enqueue: the best finished trials, non-dominated ones first (10 of 15)" in draft.notes
