"""`scripts/wheel`: builds, checks, installs and uses the wheel and the sdist.

    scripts/wheel --out dist         build from the last commit, check, install, resolve
    scripts/wheel --out dist --fast  only build and check, without an installation

It works in a temporary folder with a tools environment (build, twine, uv), a clean environment for
the wheel, and a folder in which the README's commands run. DIST/RELEASE_NOTES.md is generated from
the changelog.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .readme_commands import commands
from .release_notes import release_notes

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("build", "twine", "uv")
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = ("linux", "macos")
LINUX_ONLY = ("cuda", "cuda_aot")
"""Extras whose packages have wheels only for Linux."""
FROM_SOURCE = ("pynisher",)
"""Packages without any wheel, which smac needs."""
_SECONDS = 600.0


class NotAsPromised(Exception):
    """A step failed; the message has its command and the end of its output."""


@dataclass(frozen=True)
class Built:
    """The numbers of what was built and checked."""

    wheel: Path
    sdist: Path
    commands: int = 0
    resolved: int = 0

    def words(self) -> str:
        sizes = ", ".join(
            f"{one.name} {one.stat().st_size / 1e6:.1f} MB" for one in (self.wheel, self.sdist)
        )
        return (
            f"{sizes}; twine check passed; {self.commands} commands of README ran from the wheel; "
            f"all extras resolve on {self.resolved} of {len(PYTHONS) * len(PLATFORMS)} pairs of "
            "Python and platform"
        )


def main() -> int:
    """Return 0 if every step succeeded, else 1."""
    parser = argparse.ArgumentParser(prog="scripts/wheel", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the files")
    parser.add_argument("--fast", action="store_true", help="build and check alone")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpo-wheel-") as work:
        try:
            built = build_and_check(Path(work), args.out.resolve(), args.fast)
        except (NotAsPromised, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
    print(built.words())
    return 0


def build_and_check(work: Path, out: Path, fast: bool) -> Built:
    """Build both files from the last commit into a folder, and check them.

    Raises:
        NotAsPromised: a step failed.
    """
    tools = environment(work / "tools", TOOLS)
    source = committed(work / "source")
    out.mkdir(parents=True, exist_ok=True)
    version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
    notes = release_notes((source / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    (out / "RELEASE_NOTES.md").write_text(notes, encoding="utf-8")
    step("build", [tools / "python", "-m", "build", "--outdir", out, source], work)
    (wheel,) = out.glob(f"*-{version}-*.whl")
    (sdist,) = out.glob(f"*-{version}.tar.gz")
    step("twine", [tools / "python", "-m", "twine", "check", "--strict", wheel, sdist], work)
    if fast:
        return Built(wheel, sdist)
    clean = environment(work / "clean", (str(wheel),))
    ran = run_commands(clean, work / "use", (source / "README.md").read_text(encoding="utf-8"))
    return Built(wheel, sdist, ran, resolve_extras(tools / "uv", source / "pyproject.toml", work))


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """Create a virtual environment with packages; return its folder of commands."""
    step("venv", [sys.executable, "-m", "venv", folder], folder.parent)
    commands_of = folder / "bin"
    given = [commands_of / "python", "-m", "pip", "install", "-q", *packages]
    step("pip install", given, folder.parent)
    return commands_of


def committed(folder: Path) -> Path:
    """Copy the files of the last commit, without any other files in the folder."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    step("git archive", ["git", "archive", "-o", archive, "HEAD"], ROOT)
    step("tar", ["tar", "-xf", archive, "-C", folder], folder)
    return folder


def run_commands(commands_of: Path, folder: Path, readme: str) -> int:
    """Run the README's commands with the installed `hpo`; return their number."""
    folder.mkdir()
    env = {"PATH": f"{commands_of}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ""}
    lines = commands(readme)
    for line in lines:
        step(line, ["/bin/sh", "-c", line], folder, env)
    return len(lines)


def resolve_extras(uv: Path, project: Path, work: Path) -> int:
    """Resolve all extras for each Python and platform from wheels, without installing any.

    If all extras resolve together, each of them does. Returns the number of pairs.
    """
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    count = 0
    for python in PYTHONS:
        for platform in PLATFORMS:
            chosen = [one for one in extras if platform == "linux" or one not in LINUX_ONLY]
            words = [uv, "pip", "compile", "-q", "--python-version", python]
            words += ["--python-platform", platform, "--only-binary", ":all:"]
            words += [word for name in FROM_SOURCE for word in ("--no-binary", name)]
            words += [word for name in chosen for word in ("--extra", name)]
            step(f"extras {python} {platform}", [*words, project, "-o", os.devnull], work)
            count += 1
    return count


def step(
    name: str, words: Sequence[str | Path], cwd: Path, env: dict[str, str] | None = None
) -> None:
    """Run one command to its end.

    Raises:
        NotAsPromised: it failed, or took longer than ten minutes.
    """
    print(f"- {name}", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotAsPromised(f"{name}: not finished after {_SECONDS:.0f} s") from None
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise NotAsPromised(f"{name} ended with {done.returncode}:\n{tail}")
