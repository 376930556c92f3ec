"""Every example in a docstring runs; only modules that have one are imported."""

import doctest
import importlib
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def with_examples():
    for package in PACKAGES:
        folder = ROOT.joinpath(*package.split(".")[1:])
        for path in sorted(folder.glob("*.py")):
            if ">>> " in path.read_text() and path.name != "setup.py":
                yield package if path.stem == "__init__" else f"{package}.{path.stem}"


MODULES = list(with_examples())


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_pass(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def test_doctests_cover_several_packages():
    assert {"hpo.knobs.table", "hpo.errors", "hpo.environments.registry"} <= set(MODULES)
