"""Checks of an optical study's environment: files are read, nothing is compiled.

The settings and file readers of `core.envs.optical` judge; this module finds the line to blame.
It is imported only for such studies, and needs no jax.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..core.envs.optical.modulation import make_modulation
from ..core.envs.optical.optical_settings import OpticalSettings
from ..core.envs.optical.topology import make_topology
from ..core.envs.optical.traffic_files import read_requests, read_traffic_matrix
from ..environments.registry import rooted
from ..environments.table import ENVIRONMENTS
from ..errors import ConfigError
from .programs import env_kinds
from .spec import Study

_SHAPES = ("directed", "slots", "k", "aggregate_slots", "fits", "no_op", "observation")
"""Keys that decide the number of actions and the observation."""


class _FaultError(ConfigError):
    """With the key of the environment to blame, if one is known."""

    def __init__(self, text: str, key: str | None):
        self.key = key
        super().__init__(text)


def read_settings(id_: str, values: Mapping[str, Any], folder: str) -> OpticalSettings:
    """Return the settings of an `env:` mapping, with every file that it names read once."""
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
        named = [word.strip("`'.,:;()") for word in str(error).split()]
        first = next((word for word in named if word in ENVIRONMENTS[id_].keys), None)
        raise _FaultError(str(error), key or first) from error
    return settings


def optical_faults(study: Study) -> Iterator[tuple[str, str]]:
    """Yield (path, message) of each mistake in the environments of all buckets."""
    for values in env_kinds(study):
        section = "env"
        try:
            settings = read_settings(study.env.id, values, study.source)
            section = "eval_env"
            held_out = {**values, **study.evaluation.env}
            judged = read_settings(study.env.id, held_out, study.source)
        except _FaultError as error:
            text = str(error) if section == "env" else f"eval_env: {error}"
            yield _path(section, error.key), text
            continue
        for key in _SHAPES:
            ours, theirs = getattr(settings, key), getattr(judged, key)
            if ours != theirs:
                text = (
                    f"eval_env: {key} is {theirs!r} but {ours!r} in training; a policy must see "
                    "and choose among the same, so leave it out"
                )
                yield _path("eval_env", key), text
        endless = judged.continuous and not judged.end_first_blocking
        if endless and study.evaluation.steps is None:
            text = (
                "evaluation.steps is not given, but the environment is continuous and no episode "
                "ends; type evaluation: {steps: 5000}, the requests counted after the warm-up"
            )
            yield "evaluation.steps", text
        if study.metric.name.endswith("_share") and not judged.histograms:
            text = f"metric {study.metric.name} is reported only with env: {{histograms: true}}"
            yield "metric.name", text


def _path(section: str, key: str | None) -> str:
    """Return the places to blame: a key of a section, of `space` or of `env`, else the section."""
    return section if key is None else f"{section}.{key}|space.env.{key}|env.{key}"
