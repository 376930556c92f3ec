"""Checks the environments of a study that Gymnasium makes: one of each kind is made and looked at.

jax is not needed; the module that defines the environment is imported, user code is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, MissingExtraError
from ..via_gymnasium import is_gymnasium
from .buckets import buckets_of
from .notes import Notes
from .reader import Node
from .spec import Study

__all__ = ["check_gymnasium"]

_MOST_KINDS = 16


def check_gymnasium(notes: Notes, root: Node, study: Study) -> None:
    """Note environments that cannot be made or whose spaces fit no policy."""
    if not is_gymnasium(study.env.id):
        _refuse_workers(notes, root, study)
        return
    _check_timeout(notes, root, study)
    if not study.imports:  # which may register it, and run only with the study
        kinds: list[dict[str, Any]] = []
        for bucket in buckets_of(study).found:
            searched = {k[4:]: v for k, v in bucket.config.items() if k.startswith("env.")}
            if (kind := {**study.env.values, **searched}) not in kinds:
                kinds.append(kind)
        for kind in kinds[:_MOST_KINDS]:
            _look_at(notes, root, study, kind)


def _refuse_workers(notes: Notes, root: Node, study: Study) -> None:
    if study.population.workers is not None:
        text = (
            f"population.workers is {study.population.workers}, but {study.env.id} is compiled; "
            "workers step gym: environments only, so leave it out"
        )
        notes.add(text, root.value["population"], "workers")
    if study.population.step_timeout is not None:
        text = (
            f"population.step_timeout is for gym: environments, but {study.env.id} is compiled; "
            "leave it out"
        )
        notes.add(text, root.value["population"], "step_timeout")


def _check_timeout(notes: Notes, root: Node, study: Study) -> None:
    """Note a limit that nobody could enforce: a process cannot break off its own steps."""
    if study.population.step_timeout and study.population.workers == 0:
        text = (
            "population.step_timeout needs processes that can be ended, but population.workers "
            "is 0; leave workers out, or type step_timeout: 0"
        )
        notes.add(text, root.value["population"], "step_timeout")


def _look_at(notes: Notes, root: Node, study: Study, values: Mapping[str, Any]) -> None:
    """Make the environment that trains and the one that evaluates."""
    found: list[Any] = []
    for section, given in (("env", values), ("eval_env", {**values, **study.evaluation.env})):
        try:
            found.append(_code(study.env.id, given))
        except (ConfigError, MissingExtraError) as error:
            notes.add(str(error), root, section if section in root.value else "env")
            return
    if found[0] != found[1]:
        text = (
            "eval_env has other observations or actions than the environment that trains; leave "
            "out what changes them"
        )
        notes.add(text, root, "eval_env")


def _code(id_: str, values: Mapping[str, Any]) -> Any:
    from ..core.host.space_code import code_of  # numpy
    from ..via_gymnasium import make

    env = make(id_, values)
    try:
        return code_of(id_, env)
    finally:
        env.close()
