"""A Python file of the repository that is not a module, such as another test file."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path
from types import ModuleType, SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]


def script_module(name: str) -> ModuleType:
    """Import a module of scripts/, such as `tuned_parts.check`."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def run_file(file: str) -> SimpleNamespace:
    return SimpleNamespace(**run_path(str(ROOT / file)))
