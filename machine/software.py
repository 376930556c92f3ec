"""The versions of packages that affect results bit for bit, and jax's compile cache."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from ..environments.hosted import is_hosted
from ..environments.via_gymnasium import engine_of, is_atari
from ..studies.algorithm_section import is_library
from ..studies.portfolio import read_portfolio
from ..studies.search_methods import method_row
from ..studies.spec import Study
from ..studies.study_environments import environments_of

_LEAST_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def default_cache() -> Path:
    """Return this kind of machine's cache folder: `$XDG_CACHE_HOME/hpo/jax/<machine>`.

    Home folders may be shared over a network, so machines with different processors use different
    folders. A program with instructions that the processor lacks would crash the process.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path.home() / ".cache"
    if os.path.isabs(given):
        base = Path(given)
    return base / "hpo" / "jax" / f"{platform.machine() or 'machine'}-{_hash_of_cpu_flags()}"


def enable_compilation_cache() -> Path:
    """Turn on jax's cache and return its folder (`JAX_COMPILATION_CACHE_DIR` has precedence)."""
    import jax

    given = jax.config.values.get("jax_compilation_cache_dir")
    if not given:
        given = str(default_cache())
        jax.config.update("jax_compilation_cache_dir", given)
    if _LEAST_SECONDS not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    return Path(given)


def _hash_of_cpu_flags() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # not on Linux
        lines = [f"flags {platform.processor()}"]
    able = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return hashlib.sha256(able.encode()).hexdigest()[:8]


_PACKAGES = ("hpo-lanes", "jax", "jaxlib", "flax", "optax", "gymnax", "optuna", "numpy")
# prefix of an id -> the packages that step its environments
_OF_ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {
    "brax": ("brax", "mujoco", "mujoco-mjx"),
    "envpool": ("envpool",),
    "jaxmarl": ("jaxmarl",),
    "playground": ("playground", "mujoco", "mujoco-mjx"),
}
_OF_REJAX = ("rejax", "distrax")
_OF_ENGINES: Mapping[str, tuple[str, ...]] = {
    "box2d": ("box2d", "box2d-py"),  # one of them is installed
    "mujoco": ("mujoco",),
}


def versions(environments: Iterable[str] = ()) -> dict[str, str]:
    found = {package: _installed_version(package) or "absent" for package in _PACKAGES}
    return found | _installed_versions(
        package for one in environments for package in _packages_of_environment(one)
    )


def versions_of_study(study: Study) -> dict[str, str]:
    if study.algorithm.is_process:
        own = {"hpo-lanes": _installed_version("hpo-lanes") or "absent"}
        found = {**own, **code_version(Path(study.source))}
    else:
        found = versions(env.id for env in environments_of(study))
        if is_library(study.algorithm.name):
            found |= _installed_versions(_OF_REJAX)
    method = method_row(study.search.method)
    proposing = ("scipy", method.package, *method.rests_on)
    found |= _installed_versions(filter(None, proposing))
    if study.search.portfolio:
        found["portfolio"] = read_portfolio().digest[:12]
    return found


def code_version(folder: Path) -> dict[str, str]:
    """Return the Python version and, in a git repository, the commit and uncommitted changes.

    `git_diff` is a hash of the changes in tracked files.
    """
    found = {"python": platform.python_version()}
    commit = _git_output(folder, "rev-parse", "HEAD").strip()
    if commit:
        changes = _git_output(folder, "diff", "HEAD")
        found["git_commit"] = commit
        found["git_diff"] = "none"
        if changes:
            found["git_diff"] = hashlib.sha256(changes.encode()).hexdigest()[:12]
    return found


def _git_output(folder: Path, *words: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):  # no git, or not a repository
        return ""


def others(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    return any(now.get(package) != version for package, version in before.items())


def _installed_versions(packages: Iterable[str]) -> dict[str, str]:
    return {name: found for name in packages if (found := _installed_version(name)) is not None}


def _packages_of_environment(id_: str) -> Iterator[str]:
    words = id_.split(":")
    yield from _OF_ENVIRONMENTS.get(words[0], ())
    if is_hosted(id_):
        yield "gymnasium"
        if is_atari(id_):
            yield "ale-py"
        yield from _OF_ENGINES.get(engine_of(id_), ())
    if len(words) == 3:  # gymnax:module:Class, gym:module:Id-v0
        named = _distributions_by_module().get(words[1].partition(".")[0], [])
        if len(named) == 1:  # several share a namespace
            yield named[0]


@cache
def _distributions_by_module() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
