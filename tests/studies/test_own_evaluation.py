"""A searched key of the environment that evaluates as well is told, with what to type."""

import pytest

from hpo.search.analysis.verdict import apart, evaluated_in
from hpo.studies.evaluation import own_evaluation_note
from hpo.studies.load import loads
from hpo.studies.resolved import resolved_yaml
from hpo.studies.yaml_io import plain, read_text

STUDY = """\
env: Pendulum-v1
env_steps: 8k
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  env.g: {min: 5.0, max: 15.0, distribution: uniform}
EVAL
budget: {trials: 4}
"""


def study(more="", text=STUDY):
    return loads(text.replace("EVAL\n", more), "s.yaml")


def test_note_on_searched_eval_environment_suggests_eval_env():
    told = own_evaluation_note(study())
    assert told == (
        "env.g is searched and also used in evaluation, so trials with an easier environment rank "
        "higher; to evaluate all trials in the same one, use eval_env: {g: 10.0}"
    )


@pytest.mark.parametrize("line", ["", "  env.m: {min: 1.0, max: 3.0, distribution: uniform}\n"])
def test_suggested_eval_env_is_equal_for_all_trials(line):
    given = study(line)
    told = own_evaluation_note(given)
    assert ("env.m" in told) == bool(line)
    typed = told.partition("use ")[2] + "\n"
    fixed = study(line + typed)
    assert own_evaluation_note(fixed) == ""
    a, b = {"env.g": 6.0, "env.m": 1.5}, {"env.g": 14.0, "env.m": 2.5}
    if not line:
        a, b = {"env.g": 6.0}, {"env.g": 14.0}
    worlds = [
        [evaluated_in(plain(read_text(resolved_yaml(s), "s.yaml")), p) for p in (a, b)]
        for s in (given, fixed)
    ]
    assert apart(*worlds[0]) and not apart(*worlds[1])


def test_no_note_without_searched_environment_keys():
    text = STUDY.replace("  env.g: {min: 5.0, max: 15.0, distribution: uniform}\n", "")
    assert own_evaluation_note(study(text=text)) == ""
