"""`__all__`, where there is one: sorted, no name twice, every name there.

Modules are parsed, not imported, so that optional packages do not matter.
"""

import ast
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def modules():
    for package in PACKAGES:
        folder = ROOT.joinpath(*package.split(".")[1:])
        for path in sorted(folder.glob("*.py")):
            if path.name not in ("setup.py", "conftest.py"):
                name = package if path.stem == "__init__" else f"{package}.{path.stem}"
                yield pytest.param(path, id=name)


def order(name):
    """Constants, then classes, then functions, each by the alphabet (as ruff sorts)."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def declared(tree):
    """Return the list of `__all__`, or None."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            return ast.literal_eval(node.value)
    return None


def defined(tree):
    """Return the names bound at the top level, also in the else of `if TYPE_CHECKING`."""
    names = set()
    otherwise = [inner for node in tree.body if isinstance(node, ast.If) for inner in node.orelse]
    for node in [*tree.body, *otherwise]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return names


MODULES = list(modules())


@pytest.mark.parametrize("path", MODULES)
def test_dunder_all_is_sorted_and_names_exist(path):
    tree = ast.parse(path.read_text())
    names, there = declared(tree), defined(tree)
    if names is None:
        assert path.name != "__init__.py" or not there, "a face without __all__"
        return
    assert len(names) == len(set(names)) and names == sorted(names, key=order)
    missing = set() if "__getattr__" in there else set(names) - there
    assert not missing, f"{sorted(missing)} are in __all__ but not defined"
    assert not [name for name in names if name.startswith("_") and not name.startswith("__")]


@pytest.mark.parametrize("path", [p for p in MODULES if p.values[0].name == "__init__.py"])
def test_package_init_files_define_no_functions_or_classes(path):
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    made = {node.name for node in tree.body if isinstance(node, kinds)}
    assert made <= {"__getattr__", "__dir__"}


def test_dir_lists_all_public_names():
    import hpo

    assert set(hpo.__all__) <= set(dir(hpo)) and "TYPE_CHECKING" not in dir(hpo)


TOP = [name.removeprefix("hpo.") for name in PACKAGES if name.count(".") == 1]


@pytest.mark.parametrize("name", [*TOP, "cli"])
def test_a_bare_import_from_the_checkout_says_what_to_type(name):
    folder = ROOT / name
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    with pytest.raises(ImportError, match=r"(import hpo\.|type `hpo`).*pip install -e \."):
        runpy.run_path(str(path), run_name=name)
