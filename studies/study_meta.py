"""The metadata of a study on this machine, as it is recorded in its journal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ..spaces.space import Space
from ..store.codec import param_kind, plain_json
from ..store.rows import StudyMeta
from .resolved import resolved_yaml, study_hash
from .spec import Study
from .study_environments import SCORE, labels, scales
from .study_files import files_of_study


def study_meta(study: Study, versions: Mapping[str, str], backend: str, devices: int) -> StudyMeta:
    """Return what a journal records about a study.

    Args:
        study: the study.
        versions: the versions that results depend on, see `machine.software.versions_of_study`.
        backend: jax's backend, or "processes" for a command.
        devices: the number of devices.
    """
    objectives, metric = [asdict(one) for one in study.objectives], study.metric.name
    if study.more_envs:
        metric = SCORE
    if objectives and study.more_envs:
        objectives[0]["name"] = SCORE
    return StudyMeta(
        name=study.name,
        param_kinds=_param_kinds(study.space),
        study_hash=study_hash(study),
        study_text=resolved_yaml(study),
        metric=metric,
        goal=study.metric.goal,
        aggregate=study.metric.aggregate,
        versions=versions,
        backend=backend,
        devices=devices,
        created_at=time.time(),
        objectives=objectives,
        constraints=[asdict(constraint) for constraint in study.constraints],
        environments=[
            {"name": name, "random": scale.random, "reference": scale.reference}
            for name, scale in zip(labels(study), scales(study), strict=True)
        ],
        files=files_of_study(study),
    )


def _param_kinds(space: Space) -> dict[str, str]:
    values: dict[str, list[Any]] = {}
    for parameter in space.parameters:
        some = values.setdefault(parameter.name, [])
        some += [*parameter.distribution.ends(), parameter.default]
    return {name: param_kind([*map(plain_json, some)]) for name, some in values.items()}
