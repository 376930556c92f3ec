"""Names of the environments of several studies: equal names mean equal environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...files.plain_data import freeze
from ...search.analysis.verdict import evaluated_in
from ...studies.study_environments import env_words
from ...studies.yaml_io import recorded_data
from .snapshot import Snapshot


def environment_names(snapshots: Sequence[Snapshot]) -> list[str]:
    """Return a name for the environments in which each study's winner was evaluated.

    If studies share an id, the name includes the keys in which their environments differ, such as
    `rmsa (load=90)`. A training without an environment has the name of its algorithm.
    """
    settings = [_evaluation_settings(snapshot) for snapshot in snapshots]
    return [
        _environment_name(snapshot, own, settings)
        for snapshot, own in zip(snapshots, settings, strict=True)
    ]


def _evaluation_settings(snapshot: Snapshot) -> Mapping[str, Any]:
    study = snapshot.study
    if not study.algorithm.takes_env:
        return {"env": study.algorithm.name}
    resolved, params = recorded_data(snapshot.meta.study_text), {}
    if snapshot.winner is not None:
        params = snapshot.winner.params
    return evaluated_in(resolved, params)


def _environment_name(
    snapshot: Snapshot, own: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]
) -> str:
    if not snapshot.study.algorithm.takes_env:
        return snapshot.study.algorithm.label
    alike = [other for other in settings if other["env"] == own["env"]]
    different = [key for key in own if _is_different(key, own, alike)]
    name = env_words(snapshot.study)
    if not different:
        return name
    return f"{name} ({', '.join(f'{key}={own[key]}' for key in different)})"


def _is_different(key: str, own: Mapping[str, Any], alike: Sequence[Mapping[str, Any]]) -> bool:
    return any(freeze(own[key]) != freeze(other.get(key)) for other in alike)
