"""Policies that began as heuristics: the numbers of the page are those of the kept values."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from helpers.loading import run_file
from hpo.studies.search_spec import Seeds

ROOT = Path(__file__).resolve().parents[1]
STUDIES = ROOT / "studies" / "from_heuristics"
told_module = run_file("benchmarks/from_heuristics.py")
told = told_module.table


@pytest.fixture(scope="module")
def kept():
    return json.loads((ROOT / "benchmarks" / "from_heuristics.json").read_text())


def test_optical_page_shows_the_stored_blocking(kept):
    """A row per study and heuristic, its interval as scipy has it."""
    page = (ROOT / "docs" / "optical.md").read_text().splitlines()
    lines = told(kept).splitlines()
    assert all(line in page for line in lines)
    rows = iter(lines[2:])
    for one in kept.values():
        policy = np.array(one["policy"])
        for rule in sorted(one["heuristics"], key=lambda rule: np.mean(one["heuristics"][rule])):
            heuristic = np.array(one["heuristics"][rule])
            apart = policy - heuristic
            low, high = stats.t.interval(0.95, len(apart) - 1, apart.mean(), stats.sem(apart))
            row = next(rows)
            assert f"| {policy.mean():.5f} | {rule} {heuristic.mean():.5f} |" in row
            assert row.endswith(f"| {apart.mean():+.5f} [{low:+.5f}, {high:+.5f}] |")


def test_optical_claims_hold_after_multiple_testing(kept):
    """Against every heuristic on the final requests; p times the four networks."""
    page = " ".join((ROOT / "docs" / "optical.md").read_text().split())
    readme = (ROOT / "README.md").read_text()

    def times_four(study):
        ours = np.array(kept[study]["policy"])
        return max(
            4 * stats.ttest_1samp(ours - np.array(theirs), 0.0).pvalue
            for theirs in kept[study]["heuristics"].values()
        )

    first, again, usnet = map(
        times_four, ("nsfnet_from_200", "nsfnet_from_200_again", "usnet_from_380")
    )
    assert again < 0.05 < usnet
    assert (
        f"{first:.3f} in the first run and {again:.3f} in the second" in page
        and f"For USNET it is {usnet:.3f}" in page
    )
    assert "On one of four networks, policies [block fewer" in readme


def test_best_surveyed_heuristics_are_in_the_final_comparison(kept):
    """The survey is of 50,000 requests: whoever was next in it may be the strongest."""
    few = {"nsfnet_from_200": {"ksp_ff", "ksp_bf", "ksp_ff@25", "ksp_bf@25"},
           "usnet_from_380": {"ksp_ff", "kca_ff", "ksp_ff@25"}}  # fmt: skip
    for study, rules in few.items():
        assert rules <= kept[study]["heuristics"].keys()
    strongest = {
        study: min(
            kept[study]["heuristics"], key=lambda rule: np.mean(kept[study]["heuristics"][rule])
        )
        for study in few
    }
    # The survey's first, and on USNET one that was behind it there.
    assert strongest == {"nsfnet_from_200": "ksp_ff", "usnet_from_380": "ksp_ff:hops_distance"}


@pytest.mark.slow
def test_further_heuristics_are_evaluated_on_the_same_requests(kept):
    """A heuristic that was measured by its study is measured again, to the bit."""
    study = replace(told_module.load(STUDIES / "nsfnet_from_200.yaml"), seeds=Seeds(per_config=1))
    [(rule, values)] = told_module.served(study, ["ksp_ff"])
    assert values == kept["nsfnet_from_200"]["heuristics"][rule][:1]


def test_optical_results_match_their_study_files(kept):
    for study, one in kept.items():
        name = study.removesuffix("_again")
        text = (ROOT / "studies" / "from_heuristics" / f"{name}.yaml").read_text()
        assert f"topology: {one['topology']}" in text and f"load: {one['trained_at']:g}" in text
        assert len(one["policy"]) == int(re.search(r"per_config: (\d+)", text)[1])
