"""The defaults over all tuned environments: the table of the page is that of the kept scores."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from helpers.loading import run_file
from hpo.studies.load import load

ROOT = Path(__file__).resolve().parents[1]
together = run_file("benchmarks/defaults_together.py")


@pytest.fixture(scope="module")
def kept():
    return json.loads((ROOT / "benchmarks" / "defaults_together.json").read_text())


def test_defaults_page_shows_the_stored_scores(kept):
    page = (ROOT / "docs" / "reference" / "defaults.md").read_text()
    fresh = together.that_chose_nothing(kept)
    for text in (together.table(kept), together.table(fresh), together.each(kept)):
        for line in text.splitlines():
            assert line in page


def test_selection_environments_are_excluded_from_fresh_scores(kept):
    """By the environments of the study that chose it."""
    study = load(ROOT / "studies" / "defaults_check.yaml")
    fresh = together.that_chose_nothing(kept)
    assert {env.id for env in (study.env, *study.more_envs)} == set(together.CHOSE)
    assert all(
        set(each) == set(kept[whose]) - set(together.CHOSE) for whose, each in fresh.items()
    )
    assert len(fresh["this project"]) == 17


def name_of(record):
    """Return what the studies call the environment of a tuned record."""
    family, *rest = record.split("-")
    if family in ("brax", "gym"):
        return f"{family}_{'-'.join(rest)}"
    if family in ("rmsa", "deeprmsa"):
        return f"{family}_load={rest[1]}_topology={rest[0]}_deeprmsa"
    return record


def test_default_scores_cover_tuned_envs_with_eight_seeds(kept):
    tuned = {name_of(path.stem) for path in (ROOT / "results" / "tuned").glob("*.yaml")}
    assert tuned == set(kept["this project"])
    for each in kept.values():
        assert list(each) == list(kept["this project"])
        assert {len(seeds) for seeds in each.values()} == {8}


def test_leave_one_out_finds_the_most_influential_env():
    flat = {name: [0.5] * 8 for name in "abcd"}
    scores = {
        "this project": flat | {"a": [1.0] * 8, "b": [0.9] * 8},
        "this project before 2026-11-23": flat,
    }
    # of the 32 runs a quarter is cut at either end: the gain is (0.9 - 0.5) / 2; without a, of 24
    # runs, six are cut at either end, which leaves two runs of b: (0.9 - 0.5) * 2 / 12
    rows = together.left_out(scores)
    assert [row[:2] for row in rows] == [(name, "this project") for name in "abcd"]
    assert rows[0][2] == pytest.approx((0.4 * 2 / 12) / 0.2)
    assert min(rows, key=lambda row: row[2]) == rows[0]


def test_interval_over_environments_matches_yuen_trimmed_mean():
    """By scipy's one-sample form of Yuen's test, and by hand on eight numbers."""
    apart = [-9.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 30.0]
    centre, around = together.over_environments(apart)
    # two are cut at either end: the mean of -2, -1, 0, 1; winsorised -2 -2 -2 -1 0 1 1 1
    assert centre == -0.5
    squares = sum((x + 0.5) ** 2 for x in (-2, -2, -2, -1, 0, 1, 1, 1))
    reach = stats.t.ppf(0.975, 3) * (squares / (4 * 3)) ** 0.5
    assert (around.low, around.high) == pytest.approx((-0.5 - reach, -0.5 + reach))
    assert together.over_environments(apart[::-1])[0] == centre


@pytest.mark.parametrize("count", [17, 27])
@pytest.mark.parametrize("draw", ["normal", "skewed", "mostly equal"])
def test_interval_over_environments_has_nominal_coverage(draw, count):
    """Of drawn environments 95 % of intervals hold the trimmed mean, 93 % where skewed."""
    rng = np.random.default_rng(7)
    draws = {
        "normal": lambda n: rng.normal(size=n),
        "skewed": lambda n: rng.exponential(size=n) ** 1.5,
        "mostly equal": lambda n: rng.normal(size=n) * (rng.random(n) < 0.7),
    }[draw]
    truth = stats.trim_mean(draws(400_000), 0.25)
    held = 0
    for _ in range(1_000):
        around = together.over_environments(draws(count))[1]
        held += around.low <= truth <= around.high
    assert held >= (905 if draw == "skewed" else 930)


def test_defaults_page_separates_seed_and_env_intervals(kept):
    """Its first interval is over seeds, and a second one is over environments."""
    page = (ROOT / "docs" / "reference" / "defaults.md").read_text()
    assert "over seeds of these environments" in page and "less ours, over environments" in page
    guide = " ".join((ROOT / "docs" / "defaults.md").read_text().split())
    fresh = together.that_chose_nothing(kept)
    ours = fresh["this project"]
    unclear = 0
    for whose, each in fresh.items():
        if whose != "this project":
            apart = [np.mean(each[name]) - np.mean(ours[name]) for name in ours]
            around = together.over_environments(apart)[1]
            unclear += around.low < 0 < around.high
    assert (
        unclear == 3 and "random sample, all three intervals of the differences include 0" in guide
    )
    rows = {line.split("|")[1].strip(): line for line in together.table(fresh).splitlines()[2:]}
    for whose, line in rows.items():
        score = line.split("|")[2].strip().strip("*")
        assert f"| {whose} | {score} |" in guide
