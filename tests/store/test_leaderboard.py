"""The order of trials, by hand and by hypothesis."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.errors import ConfigError
from hpo.store import Entry, TrialRow, TrialState, leaderboard

Make = Callable[..., TrialRow]


def order(rows: list[TrialRow], goal: str = "maximize") -> list[int]:
    return [entry.trial for entry in leaderboard(rows, goal)]


def test_leaderboard_orders_trials_by_state_group(make_trial: Make) -> None:
    rows = [
        make_trial(0, TrialState.WAITING),
        make_trial(1, TrialState.FAILED, error="out of memory"),
        make_trial(2, TrialState.DIVERGED),
        make_trial(3, TrialState.UNFINISHED, rung=2, rung_value=900.0),
        make_trial(4, TrialState.RUNNING, rung=0, rung_value=999.0),
        make_trial(5, TrialState.STOPPED, rung=0, rung_value=800.0),
        make_trial(6, TrialState.STOPPED, rung=1, rung_value=10.0),
        make_trial(7, value=5.0, seed_values=(5.0,)),
        make_trial(8, value=7.0, seed_values=(7.0,)),
        make_trial(9, value=1.0, choose_values=(2.0, 4.0)),
    ]
    # 3 was cut by the budget behind its third rung; 4 runs, and leads at its rung
    assert order(rows) == [9, 8, 7, 3, 6, 4, 5, 2, 1, 0]
    assert order(rows, "minimize") == [9, 7, 8, 3, 6, 5, 4, 2, 1, 0]
    assert [entry.rank for entry in leaderboard(rows)] == list(range(1, 11))
    paused = make_trial(10, TrialState.PAUSED, rung=0, rung_value=900.0)
    lost = make_trial(11, TrialState.PAUSED, rung=0, rung_value=math.inf)
    assert order([*rows, paused, lost]) == [9, 8, 7, 3, 6, 4, 10, 5, 11, 2, 1, 0]


def test_leaderboard_ranks_by_selection_seeds_and_shows_test_seeds(make_trial: Make) -> None:
    """The better report mean of trial 2 must not win: report seeds choose nothing."""
    report = tuple(float(value) for value in range(400, 416))
    rows = [
        make_trial(1, value=500.0, choose_values=(490.0,) * 8, report_values=report),
        make_trial(2, value=499.0, choose_values=(480.0,) * 8),
        make_trial(3, value=600.0, seed_values=(600.0,)),
    ]
    first, second, third = leaderboard(rows)
    assert (first.trial, first.value, first.value_from, first.seeds) == (1, 407.5, "report", 16)
    assert first.ci_kind == "bootstrap" and first.ci_low and first.ci_high
    assert first.ci_low < 407.5 < first.ci_high
    assert (first.choose_value, first.search_value) == (490.0, 500.0)
    assert (second.trial, second.value, second.value_from, second.ci_kind) == (
        *(2, 480.0, "choose"),
        "none",
    )
    assert (third.trial, third.confirmed, third.value_from) == (3, False, "search")
    assert (third.ci_low, third.ci_high, third.values) == (None, None, (600.0,))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_non_finite_values_never_rank_first(make_trial: Make, bad: float, goal: str) -> None:
    rows = [
        make_trial(0, value=bad, seed_values=(bad,)),
        make_trial(1, value=3.0, choose_values=(bad, 1.0)),
        make_trial(2, value=3.0, choose_values=(1.0, 1.0), report_values=(bad,)),
        make_trial(3, TrialState.STOPPED, rung=3, rung_value=bad),
        make_trial(4, TrialState.STOPPED, rung=0, rung_value=-1e9),
    ]
    assert order(rows, goal)[0] == 4
    text = json.dumps([entry.as_json() for entry in leaderboard(rows, goal)], allow_nan=False)
    assert json.loads(text)[0]["trial"] == 4


def test_stopped_trials_show_no_value_even_when_audited(make_trial: Make) -> None:
    row = make_trial(1, TrialState.STOPPED, rung=1, rung_value=4.0, value=9.0, audited=True)
    entry = leaderboard([row])[0]
    assert (entry.value, entry.rung, entry.rung_value, entry.search_value) == (None, 1, 4.0, 9.0)


def test_leaderboard_ties_are_broken_by_trial_number(make_trial: Make) -> None:
    assert order([make_trial(n, value=1.0) for n in (4, 2, 9)]) == [2, 4, 9]


def test_an_unknown_goal_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown goal 'max'"):
        leaderboard([], "max")


def test_leaderboard_json_has_the_documented_fields(make_trial: Make) -> None:
    row = make_trial(3, value=1.5, seed_values=(1.0, 1.5, 2.0, 1.25, 1.75), env_steps=40)
    fields = leaderboard([row])[0].as_json()
    promised = {"trial", "state", "value", "ci_low", "ci_high", "confirmed", "seeds"}
    assert promised | {"env_steps", "params"} <= set(fields)
    assert fields["state"] == "finished" and fields["params"]["hidden_sizes"] == [64, 128]
    assert fields["ci_low"] < 1.5 < fields["ci_high"]


LIVE = (TrialState.PAUSED, TrialState.RUNNING, TrialState.INTERRUPTED)
NUMBER = st.one_of(st.none(), st.floats())
ROWS = st.builds(
    TrialRow,
    trial=st.integers(0, 10_000),
    state=st.sampled_from(TrialState),
    proposed_by=st.just("tpe"),
    batch=st.just(0),
    bucket=st.just(""),
    params=st.just({}),
    value=NUMBER,
    rung=st.integers(-1, 3),
    rung_value=NUMBER,
    choose_values=st.lists(st.floats(-9, 9), max_size=2).map(tuple),
    report_values=st.just(()),
)


def group(entry: Entry) -> int:
    if entry.confirmed:
        return 0
    finished = entry.state is TrialState.FINISHED
    if finished and entry.value is not None and math.isfinite(entry.value):
        return 1
    reached = entry.rung_value is not None and math.isfinite(entry.rung_value)
    at_a_rung = (*LIVE, TrialState.STOPPED, TrialState.UNFINISHED)
    return 2 if entry.state in at_a_rung and reached else 3


@given(st.lists(ROWS, max_size=20, unique_by=lambda row: row.trial), st.randoms())
def test_leaderboard_order_is_independent_of_row_order(rows: list[TrialRow], random) -> None:
    entries = leaderboard(rows, "minimize")
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert [entry.trial for entry in leaderboard(shuffled, "minimize")] == [
        entry.trial for entry in entries
    ]
    groups = [group(entry) for entry in entries]
    assert groups == sorted(groups)
    finished = [entry.value for entry in entries if group(entry) == 1]
    assert finished == sorted(finished, key=float)
