"""The packages that decide which bits come out, and their versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata

from ...studies.spec import Study

__all__ = ["versions", "versions_of_study"]

_PACKAGES = ("hpo-lanes", "jax", "jaxlib", "flax", "optax", "gymnax", "optuna", "numpy")
_OF_ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {
    "brax": ("brax", "mujoco", "mujoco-mjx"),
    "gym": ("gymnasium", "box2d", "mujoco"),
    "jaxmarl": ("jaxmarl",),
    "playground": ("playground", "mujoco", "mujoco-mjx"),
}
"""What an id begins with -> the packages that step it; those installed are told."""
_OF_METHODS: Mapping[str, tuple[str, ...]] = {
    "cmaes": ("cmaes",),
    "gp": ("torch",),
    "smac": ("smac", "ConfigSpace"),
}


def versions(environments: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of the packages that decide what numbers come out.

    Args:
        environments: ids; the packages that step them are told besides.
    """
    found = {package: _version(package) or "absent" for package in _PACKAGES}
    return found | _installed(package for one in environments for package in _packages(one))


def versions_of_study(study: Study) -> dict[str, str]:
    """Return the same for a study: with those of its environments and its search method."""
    found = versions(env.id for env in (study.env, *study.more_envs))
    return found | _installed(_OF_METHODS.get(study.search.method, ()))


def _installed(packages: Iterable[str]) -> dict[str, str]:
    return {name: found for name in packages if (found := _version(name)) is not None}


def _packages(id_: str) -> Iterator[str]:
    words = id_.split(":")
    yield from _OF_ENVIRONMENTS.get(words[0], ())
    if len(words) == 3:  # gymnax:module:Class, gym:module:Id-v0
        yield from _distributions().get(words[1].partition(".")[0], ())


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
