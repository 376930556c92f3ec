"""Messages name what can be typed where they are read: arguments in Python, not options."""

import re
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

import hpo
from hpo.errors import ConfigError, StoreError
from hpo.search.run import run
from hpo.views.python import calls
from hpo.views.python.words import in_python, speaks_python

samples = SimpleNamespace(**run_path(str(Path(__file__).with_name("samples.py"))))
ROOT = Path(hpo.__file__).resolve().parent
OPTIONS = ("new", "accept-new-bits", "accept-changed-files")


def test_a_study_that_has_changed_says_what_to_type_in_python(tmp_path):
    samples.make_results(tmp_path, "small")
    with pytest.raises(StoreError) as told, speaks_python():
        run(samples.study("small", seed=3, confirm=None), tmp_path / "small", samples.FACTORY)
    assert "begin another study with new=True:" in str(told.value)
    assert "--new" not in str(told.value)
    with pytest.raises(StoreError, match="--new"):  # the command line keeps its own words
        run(samples.study("small", seed=3, confirm=None), tmp_path / "small", samples.FACTORY)


def test_calls_from_python_speak_so(monkeypatch, tmp_path):
    def refuse(study, out, observers, *, warn, **settings):
        warn("go on with --accept-new-bits")
        raise StoreError("it holds a study already; begin another with --new")

    monkeypatch.setattr(calls.api, "run", refuse)
    told = []
    study = {"env": "CartPole-v1", "env_steps": "4k", "budget": {"trials": 1}}
    with pytest.raises(StoreError, match=r"another with new=True$"):
        hpo.run(study, tmp_path, warn=told.append, progress=False)
    assert told == ["go on with accept_new_bits=True"]


@pytest.mark.parametrize("call", [hpo.open, hpo.report])
def test_looking_back_from_python_speaks_so(call, tmp_path):
    with pytest.raises(StoreError, match=r'start one with: hpo\.run\("study\.yaml"\)$'):
        call(out=tmp_path)
    for name in ("one", "two"):
        samples.make_results(tmp_path, name)
    with pytest.raises(StoreError, match=r"choose one with study=: one, two$"):
        call(out=tmp_path)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("the mapping: --name: name is 'a/b'; allowed", "the mapping: name is 'a/b'; allowed"),
        ("--seeds is 9, but the trials", "seeds is 9, but the trials"),
        ("--early-terminate asha,eta=x: eta is 'x'", "'asha,eta=x': eta is 'x'"),
    ],
)
def test_options_of_what_if_and_the_name_are_arguments(said, told):
    assert in_python(said) == told


def test_what_if_from_python_speaks_so(tmp_path):
    samples.make_results(tmp_path, "small")
    with pytest.raises(ConfigError, match=r"^seeds is 9, but"):
        hpo.open(tmp_path / "small").what_if("none", seeds=9)


def test_every_option_that_messages_name_has_a_word():
    """Whatever message below the commands names an option of running, Python says its argument."""
    rooms = ("search", "store", "studies")
    texts = [path.read_text() for room in rooms for path in (ROOT / room).rglob("*.py")]
    named = [text for text in texts if re.search(rf"--({'|'.join(OPTIONS)})(?![\\w-])", text)]
    assert len(named) > 8
    for text in named:
        assert not re.search(rf"--({'|'.join(OPTIONS)})(?![\\w-])", in_python(text))
