import importlib.metadata
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpo import errors
from hpo.errors import (
    ConfigError,
    HpoError,
    MissingExtraError,
    Mistake,
    SearchError,
    StoreError,
    StudyError,
    UnknownNameError,
    format_error,
    install_command,
    suggestion,
)


def classes():
    return [x for x in vars(errors).values() if isinstance(x, type) and issubclass(x, HpoError)]


def test_everything_is_an_hpo_error_with_an_exit_code():
    for kind in classes():
        assert issubclass(kind, HpoError) and kind.__doc__
        assert kind.exit_code in (1, 2)
    assert SearchError.exit_code == 1 and StudyError.exit_code == 2


def test_error_docstring_tree_lists_all_classes():
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__))
    assert drawn == {kind.__name__ for kind in classes()} - {"HpoError"}


def test_an_unknown_name_lists_and_suggests():
    error = UnknownNameError("sampler", "tpee", ["tpe", "random", "grid"])
    text = "unknown sampler 'tpee'; did you mean 'tpe'? Known: grid, random, tpe"
    assert str(error) == text and isinstance(error, ConfigError)
    assert (error.kind, error.name, error.known) == ("sampler", "tpee", ("grid", "random", "tpe"))
    assert str(UnknownNameError("sampler", "zzz", ["tpe"])) == "unknown sampler 'zzz'; Known: tpe"


def test_a_study_error_shows_every_mistake_with_its_line():
    mistakes = [Mistake(3, "unknown key 'x'"), Mistake(None, "no env")]
    error = StudyError("a/study.yaml", mistakes)
    assert str(error) == "a/study.yaml:3: unknown key 'x'\na/study.yaml: no env"
    assert error.mistakes == tuple(mistakes) and error.path == "a/study.yaml"


def test_a_missing_package_names_its_extra(monkeypatch):
    root = Path(__file__).resolve().parent.parent
    monkeypatch.setattr(errors, "__file__", str(root / "errors.py"))
    monkeypatch.chdir(root)
    error = MissingExtraError("ray", "ray", "executor: ray")
    assert "pip install -e '.[ray]'" in str(error) and "executor: ray" in str(error)


@pytest.mark.parametrize("record", [None, "gone", "wheel", "folder", "here"])
def test_extra_is_installed_from_where_the_package_came(tmp_path, monkeypatch, record):
    """From the index by name, from a checkout by its folder; `direct_url.json` is pip's."""
    source = tmp_path / "my clone"
    source.mkdir()
    (source / "pyproject.toml").touch()
    (tmp_path / "x.whl").touch()
    urls = {"gone": tmp_path / "gone", "wheel": tmp_path / "x.whl"}
    text = None if record is None else json.dumps({"url": urls.get(record, source).as_uri()})
    package = SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: package)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "hpo" / "errors.py"))
    monkeypatch.chdir(source if record == "here" else tmp_path)
    name = {"folder": str(source), "here": "."}.get(record, "hpo-lanes")
    assert install_command("brax") == f"pip install '{name}[brax]'"


def test_extra_of_an_unknown_installation_comes_from_the_index(tmp_path, monkeypatch):
    def lost(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", lost)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "hpo" / "errors.py"))
    assert install_command("ray") == "pip install 'hpo-lanes[ray]'"


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("tpee", ["tpe", "random"], " did you mean 'tpe'?"),
        ("zzz", ["tpe", "random"], ""),
        ("x", [], ""),
        (5, ["tpe"], ""),
    ],
)
def test_suggestion_finds_the_nearest_name(name, known, expected):
    assert suggestion(name, known) == expected


def test_store_error_is_not_a_config_error():
    assert not issubclass(StoreError, ConfigError)


def test_format_error_names_user_and_library_lines():
    """The user's line says what was called, the library's what was expected."""
    import yaml

    def raised(call):
        with pytest.raises(Exception) as caught:
            call()
        return format_error(caught.value)

    text = raised(lambda: yaml.safe_load("a: [1"))
    assert text.startswith("tests/test_errors.py:") and "ParserError" in text
    assert re.search(r", in yaml/parser\.py:\d+$", text)
    assert ", in " not in raised(lambda: int("x"))
    assert ", in " not in raised(lambda: [][3])
