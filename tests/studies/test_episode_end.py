"""Episodes that no environment ends are cut by what training sees, and it is said before."""

import dataclasses

import pytest

from hpo.core.evaluation import STEP_LIMIT
from hpo.environments.table import ENVIRONMENTS
from hpo.studies.check import check
from hpo.studies.env_spec import EnvSpec
from hpo.studies.evaluation import (
    LONGEST,
    cut_after,
    cut_words,
    endless_note,
    may_cut,
    own_limit,
    window_note,
)
from hpo.studies.load import loads


def study(env="CartPole-v1", steps="4k", more=""):
    """Return a study; one of imported code's environment is not read from a file."""
    given = loads(f"env: CartPole-v1\nenv_steps: {steps}\nbudget: {{trials: 2}}\n{more}", "s.yaml")
    return dataclasses.replace(given, env=EnvSpec(env))


@pytest.mark.parametrize("id_", list(ENVIRONMENTS))
def test_environments_with_time_limit_use_default_cutoff(id_):
    assert LONGEST == STEP_LIMIT == 100_000
    assert cut_after(study(id_)) == LONGEST
    assert endless_note(study(id_)) == "" and not may_cut(study(id_))


def test_episode_limit_is_read_from_file_or_environment():
    assert own_limit(study()) == 500
    shorter = dataclasses.replace(study(), env=EnvSpec("CartPole-v1", {"max_steps_in_episode": 9}))
    assert own_limit(shorter) == 9 and own_limit(study("own")) is None


def test_atari_frame_limit_is_converted_to_env_steps():
    pytest.importorskip("ale_py")
    assert own_limit(study("gym:ALE/Pong-v5")) == 27_000
    spec = EnvSpec("gym:ALE/Pong-v5", {"frameskip": 3, "max_num_frames_per_episode": 400})
    found = dataclasses.replace(study(), env=spec)
    assert own_limit(found) == 134 and endless_note(found) == "" and not may_cut(found)


@pytest.mark.parametrize(("steps", "limit"), [("4k", 20_000), ("50k", 50_000), ("1M", 100_000)])
def test_episodes_without_known_limit_are_cut_with_a_note(steps, limit):
    found = study("own", steps)
    assert cut_after(found) == limit and may_cut(found)
    assert f"own has no known episode limit, so evaluations truncate episodes after {limit:,}" in (
        endless_note(found)
    )
    assert endless_note(found) in check(found).warnings
    assert cut_words(found, [limit, 30, limit]) == (
        f"2 of 3 evaluation episodes were truncated at {limit:,} env steps because they "
        "had not ended."
    )
    assert cut_words(found, [limit - 1]) == ""


def test_fixed_evaluation_steps_need_no_cutoff():
    found = study("own", more="evaluation: {steps: 1000}\n")
    assert endless_note(found) == "" and cut_words(found, [20_000]) == ""


def test_limit_above_maximum_is_cut_and_reported():
    spec = EnvSpec("CartPole-v1", {"max_steps_in_episode": 1_000_000})
    found = dataclasses.replace(study(), env=spec)
    assert may_cut(found) and "1 of 2 evaluation episodes" in cut_words(found, [100_000, 7])


@pytest.mark.parametrize("steps", [300, 1000])
def test_fixed_steps_in_episodes_that_end_are_noted(steps):
    """CartPole pays 1 per step, so each trial had the value 300 (or 1,000)."""
    found = study(more=f"evaluation: {{steps: {steps}}}\n")
    assert window_note(found) in check(found).warnings
    assert "across episodes, which end after at most 500 in CartPole-v1;" in window_note(found)
    said = f"Each evaluation covered {steps:,} env steps across episodes, not whole episodes."
    assert cut_words(found, [steps, steps]) == said
    assert window_note(study()) == window_note(study("own", more="evaluation: {steps: 9}\n")) == ""
    assert "end after at most 70 in own" in window_note(
        study("own", more="evaluation: {steps: 9}\n"), lambda env: 70
    )
