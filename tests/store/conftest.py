"""Small deterministic rows for the store's tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpo.store import StudyFolder, StudyMeta, TrialRow, TrialState

KINDS = {
    "learning_rate": "float",
    "num_minibatches": "int",
    "activation": "text",
    "normalise_advantages": "bool",
    "hidden_sizes": "json",
    "env.load": "float",
}


def params(trial: int) -> dict[str, object]:
    chosen: dict[str, object] = {
        "learning_rate": 10.0 ** -(2 + trial % 3) * (1 + trial / 7),
        "num_minibatches": 2 ** (trial % 4),
        "activation": ("tanh", "relu")[trial % 2],
        "hidden_sizes": [64, 64 * (1 + trial % 2)],
        "env.load": 200.0 + trial,
    }
    if trial % 3:
        chosen["normalise_advantages"] = bool(trial % 2)
    return chosen


@pytest.fixture(scope="session")
def make_trial() -> Callable[..., TrialRow]:
    def make(trial: int, state: TrialState = TrialState.FINISHED, **changes: Any) -> TrialRow:
        row = TrialRow(trial, state, "tpe", trial // 4, "b0", params(trial))
        return dataclasses.replace(row, **changes)

    return make


@pytest.fixture(scope="session")
def meta() -> StudyMeta:
    return StudyMeta(
        name="toy",
        study_hash="abc",
        study_text="name: toy\n",
        metric="eval/return_mean",
        goal="maximize",
        aggregate="mean",
        param_kinds=KINDS,
        versions={"jax": "0.10.2"},
        backend="cpu",
        devices=2,
        created_at=1.5,
    )


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "toy")
