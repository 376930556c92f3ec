"""What must fit together in the environment of an optical study; files are read, nothing compiled.

The settings and file readers of `core.envs.optical` judge; this module finds the line to blame.
It is imported only for such studies, and needs no jax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.envs.optical.modulation import make_modulation
from ..core.envs.optical.optical_settings import OpticalSettings
from ..core.envs.optical.topology import make_topology
from ..core.envs.optical.traffic_files import read_requests, read_traffic_matrix
from ..environments.registry import rooted
from ..environments.table import ENVIRONMENTS
from ..errors import ConfigError
from .programs import buckets_of
from .spec import Study
from .yaml_io import Node, Notes

_SHAPES = ("directed", "slots", "k", "aggregate_slots", "fits", "no_op", "observation")
"""Keys that decide how many actions there are and what is observed."""


def read_settings(id_: str, values: Mapping[str, Any], folder: str) -> OpticalSettings:
    """Return the settings of an `env:` mapping, with every file that it names read once.

    Args:
        id_: of the environment.
        values: its keys and parameters, as written.
        folder: that relative paths start from.

    Raises:
        ConfigError: a value is wrong, two are at odds, or a file is unusable.
    """
    found = _read(id_, values, folder)
    if isinstance(found, _Fault):
        raise ConfigError(found.text)
    return found


@dataclass(frozen=True)
class _Fault:
    """What is wrong, the section to blame, and the key in it, if one is known."""

    text: str
    section: str = "env"
    key: str | None = None


def _read(id_: str, values: Mapping[str, Any], folder: str) -> OpticalSettings | _Fault:
    key: str | None = None
    try:
        settings = OpticalSettings.from_mapping({"id": id_, **rooted(id_, values, folder)})
        key = "topology"
        topology = make_topology(settings.topology, settings.directed)
        if settings.modulated:
            key = "modulation"
            make_modulation(settings.modulation)
        key = "traffic_matrix"
        read_traffic_matrix(settings.traffic_matrix, topology)
        if settings.requests:
            key = "requests"
            read_requests(settings.requests, topology)
    except ConfigError as error:
        text = str(error)
        named = [word.strip("`'.,:;()") for word in text.split()]
        first = next((word for word in named if word in ENVIRONMENTS[id_].keys), None)
        return _Fault(text, key=key or first)
    return settings


def check_optical(notes: Notes, root: Node, study: Study) -> None:
    """Note what is wrong with the environments of all buckets, each mistake once."""
    told: set[str] = set()
    for bucket in buckets_of(study).found:
        searched = {k[4:]: v for k, v in bucket.config.items() if k.startswith("env.")}
        values = {**study.env.values, **searched}
        held_out = {**values, **study.evaluation.env}
        for fault in _faults(study, values, held_out):
            if fault.text not in told:
                told.add(fault.text)
                _note(notes, root, fault)


def _faults(study: Study, values: Mapping[str, Any], held_out: Mapping[str, Any]) -> list[_Fault]:
    """Return what is wrong with one bucket's two environments."""
    settings = _read(study.env.id, values, study.source)
    if isinstance(settings, _Fault):
        return [settings]
    judged = _read(study.env.id, held_out, study.source)
    if isinstance(judged, _Fault):
        return [_Fault(f"eval_env: {judged.text}", "eval_env", judged.key)]
    faults: list[_Fault] = []
    for key in _SHAPES:
        ours, theirs = getattr(settings, key), getattr(judged, key)
        if ours != theirs:
            text = (
                f"eval_env: {key} is {theirs!r} but {ours!r} in training; a policy must see and "
                "choose among the same, so leave it out"
            )
            faults.append(_Fault(text, "eval_env", key))
    endless = judged.continuous and not judged.end_first_blocking
    if endless and study.evaluation.steps is None:
        text = (
            "evaluation.steps is not given, but the environment is continuous and no episode "
            "ends; type evaluation: {steps: 5000}, the requests counted after the warm-up"
        )
        faults.append(_Fault(text, "evaluation", "steps"))
    if study.metric.name.endswith("_share") and not judged.histograms:
        text = f"metric {study.metric.name} is reported only with env: {{histograms: true}}"
        faults.append(_Fault(text, "metric", "name"))
    return faults


def _note(notes: Notes, root: Node, fault: _Fault) -> None:
    """Note at the key to blame, where it is given or searched, or else at its section."""
    places = [(fault.section, fault.key), ("space", f"env.{fault.key}"), ("env", fault.key)]
    for section, key in places:
        node = root.value.get(section)
        if key is not None and node is not None and node.is_map and key in node.value:
            notes.add(fault.text, node, key)
            return
    if fault.section in root.value:
        notes.add(fault.text, root, fault.section)
    else:
        notes.add(fault.text, root)
