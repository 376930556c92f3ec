import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location(
    "hostile_studies", Path(__file__).with_name("hostile.py")
)
hostile = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hostile)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hostile.hostile_files(tmp_path_factory.mktemp("hostile"))


def test_there_are_two_hundred_of_every_category(files):
    assert len(files) == len(set(files)) == 200
    categories = {path.stem.split("_", 1)[1] for path in files}
    assert categories >= {
        "unknown_key", "wrong_value", "distribution", "code", "tag", "path", "bomb", "deep",
        "duplicate", "circle", "large", "bytes",
    }  # fmt: skip
    assert len({path.read_bytes() for path in files}) == 200


def test_each_is_refused_at_a_line_within_a_second(files):
    faults = {path.name: hostile.fault_of_load(path) for path in files}
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_nothing_was_written_or_run(files):
    before = sorted(files[0].parent.iterdir())
    assert before == sorted(files)
    assert not Path("pwned").exists()


def test_the_judge_notices_a_file_that_is_accepted(tmp_path):
    path = tmp_path / "fine.yaml"
    path.write_text("env: CartPole-v1\nenv_steps: 1k\n")
    assert hostile.fault_of_load(path) == "was accepted"
