"""A Python file of the repository that is not a module, such as another test file."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]


def run_file(file: str) -> SimpleNamespace:
    return SimpleNamespace(**run_path(str(ROOT / file)))
