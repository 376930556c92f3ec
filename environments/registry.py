"""Look up environments by id, without jax; Gymnasium's are asked of that library."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import HpoError, UnknownNameError
from .table import ENVIRONMENTS, EnvEntry, EnvKey
from .via_gymnasium import PREFIX, facts_of, is_gymnasium, registered

DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "discrete": ("categorical",),
    "multi_discrete": ("multi_discrete",),
    "continuous": ("gaussian", "tanh_gaussian", "beta"),
}
"""Kind of action space -> values of `distribution` that fit; the first is the default."""
_GYMNAX_CLASS = re.compile(r"gymnax:([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")
_OWN_DISTRIBUTIONS: dict[str, list[str]] = {kind: [] for kind in DISTRIBUTIONS}


def allow_distribution(kind: str, name: str) -> None:
    _OWN_DISTRIBUTIONS[kind].append(name)


def fitting_distributions(kind: str) -> tuple[str, ...]:
    """Return the distributions that fit a kind of action space, registered ones last."""
    return (*DISTRIBUTIONS.get(kind, ()), *_OWN_DISTRIBUTIONS.get(kind, ()))


def entry(id_: str) -> EnvEntry:
    """Return the entry of an id, or raise `UnknownNameError` with the nearest."""
    if is_gymnasium(id_):
        return _gymnasium(id_)
    if id_ in ENVIRONMENTS:
        return ENVIRONMENTS[id_]
    kind, library = "environment", id_.partition(":")[0]
    if library == "playground":
        kind = "environment (of MuJoCo Playground its control suite is known, without Reacher)"
    if library == "gymnax":
        raise UnknownNameError(kind, id_, ENVIRONMENTS, "gymnax:package.module:Class")
    same = [known for known in ENVIRONMENTS if known.startswith(f"{library}:")]
    if same:
        raise UnknownNameError(kind, id_, same)
    theirs = registered()
    meant = f"{PREFIX}{id_}" if f"{PREFIX}{id_}" in theirs else None
    raise UnknownNameError(kind, id_, (*ENVIRONMENTS, *theirs), meant)


def gymnax_class(id_: str) -> tuple[str, str] | None:
    """Return module and class of an id `gymnax:module:Class`, None for others.

    >>> gymnax_class("gymnax:craftax.craftax_env:Craftax"), gymnax_class("CartPole-v1")
    (('craftax.craftax_env', 'Craftax'), None)
    """
    found = _GYMNAX_CLASS.fullmatch(id_)
    return None if found is None else (found[1], found[2])


def full_id(id_: str) -> str:
    """Return an id as studies write it: with `gym:` if only Gymnasium has it."""
    return gymnasium_id(id_) or id_


def gymnasium_id(id_: str) -> str | None:
    """Return `gym:<id>` if only Gymnasium has the id, else None."""
    theirs = f"{PREFIX}{id_}"
    return theirs if id_ not in ENVIRONMENTS and theirs in registered() else None


def find(id_: str) -> EnvEntry | None:
    """Return the entry of an id, None if it is custom or its library is not installed."""
    if not is_gymnasium(id_):
        return ENVIRONMENTS.get(id_)
    try:
        return entry(id_)
    except HpoError:
        return None


@lru_cache(maxsize=256)
def _gymnasium(id_: str) -> EnvEntry:
    facts = facts_of(id_)
    keys = {name: EnvKey(type_, default) for name, (type_, default) in facts.keys.items()}
    limit = keys["max_episode_steps"]
    keys["max_episode_steps"] = replace(limit, meaning="env steps until truncation", low=1)
    return EnvEntry(id_, "gymnasium", "any", facts.params, keys, facts.meaning)


def files_of(id_: str, keys: Mapping[str, Any]) -> dict[str, str]:
    table = ENVIRONMENTS[id_].keys if id_ in ENVIRONMENTS else {}
    return {
        name: given
        for name, given in keys.items()
        if name in table and table[name].file and isinstance(given, str) and given
        and (Path(given).suffix or not table[name].default)
    }  # fmt: skip


def rooted(id_: str, keys: Mapping[str, Any], folder: str) -> dict[str, Any]:
    here = {name: str(Path(folder) / file) for name, file in files_of(id_, keys).items()}
    return {**keys, **here}
