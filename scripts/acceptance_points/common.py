"""Shared by all points: the outcome, the checkout, and the command line in a process."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent.parent
BENCHMARKS = ROOT / "benchmarks"


@dataclass(frozen=True)
class Outcome:
    """Whether a promise is kept, and the numbers observed."""

    passed: bool
    numbers: str


def load_file(path: Path) -> ModuleType:
    """Import a Python file that is not in a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_importable() -> None:
    """Make `import hpo` find the checkout, here and in child processes, if not installed."""
    load_file(BENCHMARKS / "checkout.py").make_importable()


def hpo_command(python: str | Path = sys.executable) -> list[str]:
    """Return the words that run the command line, with the installed script if there is one."""
    script = Path(python).parent / "hpo"
    if script.is_file():
        return [str(script)]
    return [str(python), "-c", "import sys; from hpo.cli import main; sys.exit(main())"]


def call(
    words: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; if it fails, its messages are part of the error."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        shown = " ".join(Path(str(word)).name for word in words[:4])
        raise RuntimeError(f"`{shown}` ended with {done.returncode}: {tail[-600:]}")
    return done


def said_here(words: Sequence[str | Path]) -> tuple[int, str]:
    """Run a command in this process; return its exit code and its output."""
    from hpo.cli import main

    seen = io.StringIO()
    with contextlib.redirect_stdout(seen), contextlib.redirect_stderr(seen):
        code = main([str(word) for word in words])
    return code, seen.getvalue()


def call_here(words: Sequence[str | Path], cwd: Path) -> None:
    """Run a command in this process to its end, like `call` in a separate one."""
    with contextlib.chdir(cwd):
        code, said = said_here(words)
    if code:
        raise RuntimeError(f"`hpo {words[0]}` ended with {code}: {said[-600:]}")
