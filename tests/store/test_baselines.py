"""Baselines: through the journal and back, beside the best trial, as a table."""

import dataclasses

import pytest

from hpo.store.baselines import attribute_of, baseline_entries, baselines_of
from hpo.store.leaderboard import leaderboard
from hpo.store.rows import BaselineRow, TrialRow, TrialState
from hpo.store.tables import baselines_table

FAST = BaselineRow(
    "fast",
    {"search": (0.3, 0.5), "report": (0.1, 0.2, 0.3, 0.4, 0.6)},
    {"search": {"used/share": (0.7, 0.9)}, "report": {"used/share": (0.5,) * 5}},
)
SLOW = BaselineRow("slow", {"search": (0.9, 0.7), "report": (0.9, 0.8, 0.7, 0.6, 0.5)})
TRIAL = TrialRow(
    0, TrialState.FINISHED, "default", 0, "abc", {}, value=0.2, seed_values=(0.1, 0.3)
)


class _Kept:
    """A journal that holds attributes alone."""

    def __init__(self, attributes):
        self._attributes = attributes

    def attributes(self):
        return self._attributes


def test_baselines_round_trip_the_journal():
    other = dataclasses.replace(attribute_of(FAST), trial=3)  # a sampler's, of the same name
    assert baselines_of(_Kept([attribute_of(FAST), other, attribute_of(SLOW)])) == [FAST, SLOW]


def test_baseline_is_compared_with_an_unconfirmed_trial():
    best, worst = baseline_entries([SLOW, FAST], leaderboard([TRIAL], "minimize"), "minimize")
    assert (best.baseline, worst.baseline) == ("fast", "slow")
    assert best.value == 0.4 and best.values == (0.3, 0.5) and best.stream == "search"
    assert best.difference == pytest.approx(-0.2)  # (0.1 - 0.3, 0.3 - 0.5)
    assert best.around.low is None and best.difference_around.low is None  # two seeds
    [first, _] = baseline_entries([FAST, SLOW], leaderboard([TRIAL], "maximize"), "maximize")
    assert first.baseline == "slow"


def test_baseline_difference_uses_report_seeds_of_confirmed_trials():
    row = dataclasses.replace(TRIAL, choose_values=(0.1,), report_values=(0.0, 0.1, 0.2, 0.3, 0.5))
    [entry, _] = baseline_entries([FAST, SLOW], leaderboard([row], "minimize"), "minimize")
    assert entry.stream == "report" and len(entry.values) == 5
    # every difference is -0.1: pairing takes all of the spread away
    assert entry.difference == pytest.approx(-0.1)
    assert entry.difference_around.kind == "none"  # nothing says how far another seed's may be
    assert entry.around.low < 0.25 and entry.around.high > 0.38
    assert entry.as_json()["best_less_baseline"] == entry.difference


def test_baselines_without_a_finished_trial_have_no_difference():
    [entry, _] = baseline_entries([FAST, SLOW], [], "minimize")
    assert entry.stream == "search" and entry.difference is None
    assert entry.as_json()["difference_ci_low"] is None


def test_baseline_with_different_seed_count_is_not_paired():
    row = dataclasses.replace(TRIAL, seed_values=(0.1,))
    [entry, _] = baseline_entries([FAST, SLOW], leaderboard([row], "minimize"), "minimize")
    assert entry.difference is None and entry.value == 0.4


def test_baselines_table_has_one_row_per_seed():
    rows = baselines_table([FAST, SLOW]).to_pylist()
    assert len(rows) == 14
    assert rows[1] == {
        "baseline": "fast",
        "stream": "search",
        "replicate": 1,
        "value": 0.5,
        "used_share": 0.9,
    }
    assert rows[-1]["used_share"] is None and rows[-1]["value"] == 0.5
