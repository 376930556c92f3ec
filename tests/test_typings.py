"""The types written for packages that have none name what those packages have."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "typings"
MODULES = sorted(ROOT.rglob("*.pyi"))


def _named(body, holder):
    """Yield what a stub says that an object has, with the object."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield holder, node.name
        elif isinstance(node, ast.AnnAssign):
            yield holder, node.target.id
        if isinstance(node, ast.ClassDef):
            yield from _named(node.body, getattr(holder, node.name))


def _has(holder, name):
    return hasattr(holder, name) or f"self.{name} =" in inspect.getsource(holder)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_type_stub_names_exist(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    pytest.importorskip(parts[0])
    module = importlib.import_module(".".join(part for part in parts if part != "__init__"))
    named = list(_named(ast.parse(path.read_text()).body, module))
    assert named and [name for holder, name in named if not _has(holder, name)] == []
