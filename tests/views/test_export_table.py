"""`hpo export table`: finished runs as a table of recorded runs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hpo
from hpo.cli import main
from hpo.search.bench.tables import ABOUT, read_table

STUDY = """
name: tiny
env: CartPole-v1
env_steps: 2048
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [8]}
space: {learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}}
evaluation: {every: 1024, episodes: 2}
log_every: 1024
search: {method: random, portfolio: 2}
seeds: {per_config: 2}
budget: {trials: 4}
"""


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of whole runs, and one whose runs may stop."""
    folder = tmp_path_factory.mktemp("studies")
    stopping = STUDY.replace("tiny", "stopping") + "early_terminate: {type: asha, min: 1024}\n"
    for text in (STUDY, stopping):
        (folder / "study.yaml").write_text(text)
        assert main(["run", str(folder / "study.yaml"), "--out", str(folder), "--quiet"]) == 0
    return folder


@pytest.fixture(autouse=True)
def _here(studies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(studies)


def test_exported_table_matches_the_runs(tmp_path: Path) -> None:
    assert main(["export", "table", "--to", str(tmp_path), "--study", "tiny"]) == 0
    table = read_table(tmp_path / "tiny")
    rows = hpo.open("tiny").rows
    assert table.values.shape == (4, 2, 2)
    shown = [row.value for row in rows]
    np.testing.assert_allclose(table.finals.mean(axis=1), shown, rtol=1e-6)
    about = json.loads(pq.read_schema(tmp_path / "tiny" / "trials.parquet").metadata[ABOUT])
    assert about["env_steps"] == 4 * 2 * 2048
    assert {"jax", "gymnax", "portfolio"} <= about["versions"].keys()


def test_export_table_refuses_studies_with_early_stopping(tmp_path, capsys) -> None:
    assert main(["export", "table", "--to", str(tmp_path), "--study", "stopping"]) == 2
    assert (
        "a table needs whole runs; run the study with `early_terminate: null`"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "stopping").exists()
