"""Policies that began as heuristics: the numbers of the page are those of the kept values."""

import json
import re
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
ROWS = [
    ("nsfnet", "ksp_ff"), ("cost239", "ksp_bf"), ("usnet", "ksp_ff"), ("jpn48", "ff_ksp"),
    ("nsfnet_from_200", "ksp_ff"), ("nsfnet_from_200", "ksp_bf"),
    ("nsfnet_from_200_again", "ksp_ff"), ("nsfnet_from_200_again", "ksp_bf"),
    ("usnet_from_380", "ksp_ff"), ("usnet_from_380", "kca_ff"),
    ("cost239_from_470", "ksp_bf"), ("cost239_from_470", "ksp_ff"),
    ("jpn48_from_265", "ff_ksp"), ("jpn48_from_265", "ksp_ff"),
]  # fmt: skip
told = run_path(str(ROOT / "benchmarks" / "from_heuristics.py"))["table"]


@pytest.fixture(scope="module")
def kept():
    return json.loads((ROOT / "benchmarks" / "from_heuristics.json").read_text())


@pytest.mark.parametrize(("study", "rule"), ROWS)
def test_the_page_shows_the_kept_blocking(kept, study, rule):
    page = (ROOT / "docs" / "optical.md").read_text()
    policy, heuristic = (
        np.array(v) for v in (kept[study]["policy"], kept[study]["heuristics"][rule])
    )
    apart = policy - heuristic
    low, high = stats.t.interval(0.95, len(apart) - 1, apart.mean(), stats.sem(apart))
    [row] = [
        line for line in page.splitlines()
        if line.startswith("|") and f" {policy.mean():.5f} |" in line
        and re.search(rf"{rule} {heuristic.mean():.5f}\b", line)
    ]  # fmt: skip
    assert f"{apart.mean():+.4f} [{low:+.4f}, {high:+.4f}]" in row
    assert f"{apart.mean():+.4f} [{low:+.4f}, {high:+.4f}]" in told({study: kept[study]})


def test_each_study_has_a_file_of_its_settings(kept):
    for study, one in kept.items():
        name = study.removesuffix("_again")
        text = (ROOT / "studies" / "from_heuristics" / f"{name}.yaml").read_text()
        assert f"topology: {one['topology']}" in text and f"load: {one['trained_at']:g}" in text
        assert len(one["policy"]) == int(re.search(r"per_config: (\d+)", text)[1])
