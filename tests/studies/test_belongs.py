"""A key in the wrong section is told where it belongs, and what to type."""

import pytest

from hpo.errors import StudyError
from hpo.studies.load import loads

BASE = "env: CartPole-v1\nenv_steps: 100k\nspace: {learning_rate: {min: 1e-4, max: 1e-2}}\n"


def told(text, overrides=()):
    with pytest.raises(StudyError) as caught:
        loads(BASE + text, "s.yaml", overrides=overrides)
    [mistake] = caught.value.mistakes
    return mistake.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "search: {population: 6}",
            "the population of pbt and pb2 consists of all trials: use `budget: {trials: 6}`",
        ),
        (
            "search: {method: random, options: {population_size: 6}}",
            "the population of pbt and pb2 consists of all trials: use `budget: {trials: 6}`",
        ),
        (
            "early_terminate: {type: pbt, population: 6}",
            "the population of pbt and pb2 consists of all trials: use `budget: {trials: 6}`",
        ),
        (
            "population: {members: 6}",
            "the population of pbt and pb2 consists of all trials: use `budget: {trials: 6}`",
        ),
        (
            "search: {population: {lanes: 8}}",
            "it belongs at the top of the file, not under `search`",
        ),
        ("search: {trials: 20}", "it belongs under `budget`: use `budget: {trials: 20}`"),
        ("trials: 20", "it belongs under `budget`: use `budget: {trials: 20}`"),
        ("lanes: 8", "it belongs under `population`: use `population: {lanes: 8}`"),
        ("seeds: {report: 8}", "it belongs under `confirm`: use `confirm: {report: 8}`"),
        ("evaluation: {seeds: 3}", "it belongs at the top of the file, not under `evaluation`"),
        ("budget: {wal: 3h}", "did you mean 'wall'?"),
        ("confirm: {type: x}", "Known: top_k"),  # of several sections: nobody knows which
        ("loggers: [{type: csv, top_k: 5}]", "Known: none"),
    ],
)
def test_misplaced_key_reports_its_section(text, words):
    found = told(text)
    assert found.startswith("unknown key ") and words in found
    assert ("belongs" in found) == ("belongs" in words)


def test_misplaced_override_suggests_correct_override():
    found = told("", ["search.population=6"])
    assert found.endswith("consists of all trials: use budget.trials=6")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "search:\n\tmethod: tpe",
            "not valid YAML: there is a tab; indent YAML with spaces",
        ),
        ("search: @tpe", "cannot start any token"),
        ("confirm: true", "confirm is true; allowed: a mapping such as {top_k: 5} or null"),
        ("seeds: 3", "seeds is 3; allowed: a mapping such as {per_config: 3}"),
        ("seeds: many", "seeds is 'many'; allowed: a mapping such as {per_config: 1}"),
        ("search: tpe", "search is 'tpe'; allowed: a mapping such as {method: tpe}"),
        ("search: bayes", "search is 'bayes'; allowed: a mapping such as {method: tpe}"),
        ("early_terminate: median", "allowed: a mapping such as {type: median} or null"),
        ("metric: eval/length_mean", "allowed: a mapping such as {name: eval/length_mean}"),
        ("metric: {name: reward}", "unknown metric 'reward'; did you mean 'eval/return_mean'?"),
    ],
)
def test_common_beginner_mistakes_have_specific_messages(text, words):
    assert words in told(text)
