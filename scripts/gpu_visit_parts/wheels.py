"""Packages missing on the visited machine: collected with a network, unpacked without one."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from .common import ROOT

MOST_BYTES = 45_000_000
LIST = "wheels.json"
PYTHON = "3.12"
THERE = ("jax>=0.11,<0.12", "flax", "optax", "numpy", "scipy", "pandas", "pyarrow", "networkx")
"""Packages that such a machine has, with all their dependencies."""
_PICTURES = ("contourpy", "cycler", "fonttools", "kiwisolver", "matplotlib", "pillow", "seaborn")
"""Packages (25 MB) that gymnax uses for drawing; see `stand_in`."""
_DRAWN_WITH = ("__init__", "pyplot", "animation", "colors")
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux1")


class WheelError(Exception):
    """The folder of wheels is invalid; the message says what to do."""


def collect(folder: Path) -> list[dict[str, Any]]:
    """Download the packages that `hpo` needs and such a machine lacks, and write their list.

    Raises:
        WheelError: pip failed, or the wheels are too large.
    """
    # pip resolves for its own version
    if sys.version_info[:2] != tuple(map(int, PYTHON.split("."))):
        raise WheelError(f"this is Python {platform.python_version()}; collect with {PYTHON}")
    if folder.is_dir() and any(folder.iterdir()):
        raise WheelError(f"{folder} is not empty; name a new folder")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = _resolved(THERE)
    needed = _resolved([*project["dependencies"], *THERE])
    left_out = {*known, *_PICTURES}
    missing = [f"{name}=={version}" for name, version in needed.items() if name not in left_out]
    _pip("download", "--no-deps", *_target(), "-d", str(folder), *missing)
    return write_list(folder)


def write_list(folder: Path) -> list[dict[str, Any]]:
    """Write the names, sizes and hashes of the wheels in a folder.

    Raises:
        WheelError: their total size is too large.
    """
    rows = [
        {
            "name": path.name,
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.glob("*.whl"))
    ]
    total = sum(row["bytes"] for row in rows)
    if total > MOST_BYTES:
        largest = max(rows, key=lambda row: row["bytes"])
        raise WheelError(
            f"{folder} has {total / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:.0f}; "
            f"the largest is {largest['name']} ({largest['bytes'] / 1e6:.1f} MB)"
        )
    (folder / LIST).write_text(json.dumps(rows, indent=1) + "\n")
    return rows


def install(folder: Path, target: Path) -> list[str]:
    """Unpack the wheels whose packages are missing here to a folder; return their names.

    Raises:
        WheelError: a wheel does not match the list, or pip failed.
    """
    if not (folder / LIST).is_file():
        raise WheelError(f"{folder} has no {LIST}; make it with --collect {folder}")
    paths = []
    for row in json.loads((folder / LIST).read_text()):
        path = folder / row["name"]
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
            raise WheelError(f"{path} is missing or damaged; make {folder} again with --collect")
        if not _is_there(row["name"].split("-")[0]):
            paths.append(path)
    if paths:
        words = ("--no-index", "--no-deps", "--no-compile", "--no-cache-dir")
        _pip("install", *words, "--target", str(target), *map(str, paths))
    return [path.name for path in paths]


def stand_in(folder: Path) -> None:
    """Create an empty matplotlib if there is none, because gymnax imports it for drawing."""
    if _is_there("matplotlib"):
        return
    package = folder / "matplotlib"
    package.mkdir(parents=True)
    for name in _DRAWN_WITH:
        (package / f"{name}.py").write_text("")


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _target() -> list[str]:
    words = ["--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"]
    return words + [f"--platform={name}_x86_64" for name in _PLATFORMS]


def _resolved(requirements: Sequence[str]) -> dict[str, str]:
    """Return the version of every package that these requirements need, by normalised name."""
    with tempfile.TemporaryDirectory() as nowhere:
        report = Path(nowhere) / "report.json"
        _pip(
            "install",
            "--dry-run",
            "--ignore-installed",
            "--report",
            str(report),
            "--target",
            nowhere,
            *_target(),
            *requirements,
        )
        found = json.loads(report.read_text())["install"]
    return {
        re.sub(r"[-_.]+", "-", row["metadata"]["name"]).lower(): row["metadata"]["version"]
        for row in found
    }


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", words[0], "-q", "--disable-pip-version-check"]
    done = subprocess.run([*command, *words[1:]], capture_output=True, text=True)
    if done.returncode:
        raise WheelError(f"pip {words[0]} failed: {done.stderr.strip()[-600:]}")
