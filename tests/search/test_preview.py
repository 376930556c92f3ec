import pytest

from hpo.search.lanes import local
from hpo.search.study_estimate import preview
from hpo.studies.load import load, loads

TEXT = """\
env: CartPole-v1
env_steps: 100k
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  hidden_sizes: {values: [[8], [16, 16]]}
budget: {trials: 20}
"""


def test_lanes_and_memory_are_those_of_the_programs(monkeypatch):
    def compiled(*args):
        raise AssertionError("nothing is compiled for a check")

    monkeypatch.setattr("hpo.core.program.Program.compile", compiled)
    study = loads(TEXT)
    report, note = preview(study)
    assert note == ""
    factory = local.LocalFactory(study)
    for bucket, cost in report.buckets:
        params = {**study.space.default(), **bucket.static}
        resolved = factory.resolve(study.complete(params))
        program = factory.expected_program(resolved, 2)
        assert factory.program_of(resolved).lanes == 24
        assert cost.lanes == program.lanes == 16  # half of 20 trials, in blocks of 8
        assert cost.memory_bytes == program.memory_bytes() > 0
    small, large = (cost.memory_bytes for _, cost in report.buckets)
    assert small < large


def test_a_study_for_another_machine_is_checked_all_the_same():
    report, note = preview(loads(TEXT + "population: {device: gpu}\n"))
    assert report.buckets[0][1].lanes is None
    assert "not known here: device is 'gpu'" in note


def test_user_code_does_not_run_in_a_check(tmp_path):
    (tmp_path / "mine.py").write_text("raise RuntimeError('ran')\n")
    (tmp_path / "s.yaml").write_text("imports: [mine.py]\n" + TEXT)
    report, note = preview(load(tmp_path / "s.yaml"))
    assert report.bucket_count == 2
    assert "imports" in note


@pytest.mark.parametrize("lanes", [8, 32])
def test_given_lanes_are_taken(lanes):
    report, _ = preview(loads(TEXT + f"population: {{lanes: {lanes}}}\n"))
    assert report.buckets[0][1].lanes == lanes


def test_given_lanes_are_rounded_up_to_the_devices():
    report, _ = preview(loads(TEXT + "population: {lanes: 15}\n"))
    devices = len(local.LocalFactory(loads(TEXT)).devices)
    assert report.buckets[0][1].lanes == -(-15 // devices) * devices
