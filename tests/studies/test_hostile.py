import sys
from pathlib import Path

import pytest

from helpers import hostile


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return hostile.hostile_files(tmp_path_factory.mktemp("hostile"))


def test_hostile_files_cover_all_categories(files):
    assert len(files) == len(set(files)) == 200
    categories = {path.stem.split("_", 1)[1] for path in files}
    assert categories >= {
        "unknown_key",
        "wrong_value",
        "distribution",
        "code",
        "tag",
        "path",
        "bomb",
        "deep",
        "duplicate",
        "circle",
        "large",
        "bytes",
    }
    assert len({path.read_bytes() for path in files}) == 200


def test_each_hostile_file_is_refused_at_a_line(files, monkeypatch):
    monkeypatch.setattr(hostile, "SECONDS", 20.0)  # `scripts/acceptance engine 8` holds the second
    faults = {path.name: hostile.fault_of_load(path) for path in files}
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_hostile_files_write_and_run_nothing(files):
    before = sorted(files[0].parent.iterdir())
    assert before == sorted(files)
    assert not Path("pwned").exists()


CLI = """
import sys
from hpo.errors import HpoError
from hpo.studies.load import load
try:
    load(sys.argv[1])
except HpoError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("index", [0, 75, 140, -1])
def test_command_checker_accepts_proper_refusal(files, index, monkeypatch):
    monkeypatch.setattr(hostile, "SECONDS", 20.0)  # a loaded machine starts Python slowly
    assert hostile.fault_of_command(files[index], [sys.executable, "-c", CLI]) is None


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("pass", "exit code 0"),
        ("1 / 0", "exit code 1"),
        ("import sys; print('Traceback', file=sys.stderr); sys.exit(2)", "a traceback"),
        ("import sys; sys.exit(2)", "no file and line"),
        ("open('left', 'w').close()" + CLI, "something was written"),
    ],
)
def test_command_checker_detects_faults(files, code, fault, monkeypatch):
    monkeypatch.setattr(hostile, "SECONDS", 20.0)
    found = hostile.fault_of_command(files[0], [sys.executable, "-c", code])
    assert found is not None
    assert fault in found


def test_load_checker_detects_accepted_file(tmp_path):
    path = tmp_path / "fine.yaml"
    path.write_text("env: CartPole-v1\nenv_steps: 1k\n")
    assert hostile.fault_of_load(path) == "was accepted"


BASE = "env: CartPole-v1\nenv_steps: 1M\n"
LARGE = {
    "unknown_knobs": BASE + "fixed:\n" + "".join(f"  learning_rat{i}: 1\n" for i in range(9000)),
    "unknown_searched": BASE
    + "space:\n"
    + "".join(f"  learning_rat{i}: {{min: 1}}\n" for i in range(4500)),
    "tags": BASE + "".join(f"k{i}: !x 1\n" for i in range(9000)),
    "duplicates": BASE + "k: 1\n" * 9000,
    "long_word": BASE + "search: {method: " + "tpe" * 60_000 + "}\n",
    "long_list": BASE + "fixed: {hidden_sizes: [" + "64, " * 9000 + "64]}\n",
    "one_knob_often": BASE
    + "space:\n  gamma:\n"
    + "    - {min: 0.1, max: 0.9, when: {activation: tanh}}\n" * 199,
}


@pytest.mark.parametrize("name", LARGE)
def test_large_hostile_files_are_refused_quickly(name, tmp_path, monkeypatch):
    path = tmp_path / f"{name}.yaml"
    monkeypatch.setattr(hostile, "SECONDS", 20.0)  # `scripts/acceptance engine 8` holds the second
    path.write_text(LARGE[name])
    assert hostile.fault_of_load(path) is None
