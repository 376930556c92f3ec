"""`early_terminate: {type: asha, pause: N}` in a study file: what it means and what is refused."""

import pytest

from hpo.errors import StudyError
from hpo.studies.check import check
from hpo.studies.load import loads
from hpo.studies.resolved import diff, resolved, resolved_yaml, study_hash

BASE = """\
env: CartPole-v1
env_steps: 160k
space:
  learning_rate: {min: 1e-5, max: 1e-2}
budget: {trials: 8}
"""
PLAIN = BASE + "early_terminate: {type: asha, min: 10k}\n"
PAUSED = BASE + "early_terminate: {type: asha, min: 10k, pause: 12}\n"


def test_pause_is_resolved_only_when_set():
    study = loads(PAUSED)
    assert study.early_terminate.pause == 12
    assert resolved(loads(resolved_yaml(study))) == resolved(study)
    assert "up to 12 trials paused" in check(study).text()
    plain = loads(PLAIN)
    assert set(resolved(plain)["early_terminate"]) == {"type", "min", "eta", "audit"}
    off = loads(PAUSED.replace("12", "0"))
    assert study_hash(off) == study_hash(plain) != study_hash(study)
    assert [change.allowed for change in diff(resolved(plain), resolved(study))] == [False]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (PAUSED.replace("pause: 12", "pause: 12, audit: 0.1"), 6, "remove one of them"),
        (PAUSED.replace("pause: 12", "pause: -1"), 6, "pause"),
        (PAUSED.replace("pause: 12", "pause: some"), 6, "pause"),
        (PAUSED.replace("asha", "hyperband"), 6, "pause is not a key of hyperband"),
        (PAUSED.replace("CartPole-v1", "gym:CartPole-v1"), 6, "work with gym:CartPole-v1"),
        (PAUSED + "executor: {type: ray, workers: 2}\n", 6, "executor.type: local (here: ray)"),
        (PAUSED + "executor: {type: ray, workers: 1}\n", 6, "executor.type: local (here: ray)"),
    ],
)
def test_incompatible_pause_settings_are_refused_with_line(text, line, words):
    with pytest.raises(StudyError) as refused:
        loads(text)
    said = [(mistake.line, mistake.text) for mistake in refused.value.mistakes]
    assert any(at == line and words in told for at, told in said), said
