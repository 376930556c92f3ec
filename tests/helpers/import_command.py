"""`hpo import` of a text, as a user runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpo.cli import main

Importer = Callable[..., tuple[Any, str]]


def importer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Importer:
    """Return what imports a text: it gives the study's data (or None) and what is said.

    What is said is the written file, or the error where there is none. The file's head repeats
    what the screen says.
    """

    def run(kind: str, text: str, *flags: str, name: str = "train.py") -> tuple[Any, str]:
        source = tmp_path / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        env = [word for word in flags if word.startswith("--env=")]
        rest = [word for word in flags if word not in env]
        code = main(["import", kind, str(source), *env, *(["--", *rest] if rest else [])])
        out, err = capsys.readouterr()
        assert "Traceback" not in err and (code == 0 or (code == 2 and not out))
        return (yaml.safe_load(out), out) if code == 0 else (None, err)

    return run
