import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.errors import StoreError
from hpo.search.state.loop_state import BucketState, KeptPolicy, LoopState, PendingAsk, Phase
from hpo.search.state.trials import Replicate, RunState, Trial
from hpo.search.state.usage import Usage
from hpo.store import DecisionRow, Stream, TrialState

numbers = st.integers(0, 2**53)
floats = st.floats(allow_nan=False)
runs = st.builds(
    Replicate,
    numbers,
    st.sampled_from(Stream),
    numbers,
    st.sampled_from(RunState),
    st.none() | numbers,
    numbers,
    st.lists(floats),
    st.none() | floats,
    st.lists(floats),
    st.lists(st.lists(floats)),
    floats,
    floats,
)
params = st.dictionaries(st.text(), st.none() | st.booleans() | floats | st.lists(numbers))
trials = st.builds(
    Trial,
    trial=numbers,
    params=params,
    proposed_by=st.text(),
    batch=numbers,
    bucket=st.text(),
    attributes=params,
    state=st.sampled_from(TrialState),
    runs=st.lists(runs, max_size=3),
    reports=st.lists(floats),
    value=st.none() | floats,
    seed_values=st.lists(floats).map(tuple),
    started_at=st.none() | floats,
)
states = st.builds(
    LoopState,
    phase=st.sampled_from(Phase),
    pending=st.none() | st.builds(PendingAsk, numbers, st.lists(numbers), st.lists(numbers)),
    live=st.dictionaries(numbers, trials, max_size=3),
    buckets=st.lists(st.builds(BucketState, st.text(), numbers, numbers)),
    running=st.text(),
    winner=st.none() | numbers,
    kept=st.lists(st.builds(KeptPolicy, numbers, floats)),
    best_evaluation=st.none() | st.builds(KeptPolicy, numbers, floats),
    usage=st.builds(Usage, search_env_steps=numbers, run_seconds=floats),
    bounds=st.text(),
)


@given(states)
def test_loop_state_text_round_trip(state):
    text = state.to_text()
    back = LoopState.from_text(text)
    assert back == state and back.to_text() == text


def test_loop_state_of_different_version_is_refused():
    with pytest.raises(StoreError, match="version 99"):
        LoopState.from_text(json.dumps({"version": 99}))
    with pytest.raises(StoreError, match="version None"):
        LoopState.from_text("{}")


def test_occupancy_is_one_before_anything_ran():
    assert Usage().occupancy == 1.0
    assert Usage(lane_chunks=8, busy_lane_chunks=6).occupancy == 0.75


@given(trials)
def test_trial_row_round_trip(trial):
    trial.rung = len(trial.reports) - 1
    trial.rung_value = trial.reports[-1] if trial.reports else None
    trial.extra_reports = [[value, 1.0] for value in trial.reports]
    trial.report_steps = [10] * len(trial.reports)
    decisions = [
        DecisionRow(
            *(trial.number, rung, 10, value, "continue", "asha", None, 1, 1), extras=(value, 1.0)
        )
        for rung, value in enumerate(trial.reports)
    ]
    back = Trial.from_row(trial.row(), decisions, trial.attributes)
    trial.runs = []
    assert back == trial


def test_the_rolling_mean_is_that_of_the_last_hundred_episodes():
    run, none = Replicate(0, Stream.SEARCH, 0), (math.nan, math.nan)
    assert all(map(math.isnan, run.roll(0.0, *none)))
    assert run.roll(40.0, 1.0, 7.0) == (1.0, 7.0)
    assert run.roll(0.0, *none) == (1.0, 7.0)
    assert run.roll(40.0, 3.0, 9.0) == (2.0, 8.0) and run.recent_episodes == 80.0
    # 70 new ones leave 30 of the 80 before, whose means are 2 and 8
    expected = ((30 * 2.0 + 70 * 12.0) / 100, (30 * 8.0 + 70 * 20.0) / 100)
    assert run.roll(70.0, 12.0, 20.0) == expected and run.recent_episodes == 100.0
    other = Replicate(1, Stream.SEARCH, 0)
    other.adopt(run)
    assert other.roll(50.0, 0.0, 0.0) == (expected[0] / 2, expected[1] / 2)
    assert run.roll(250.0, 5.0, 6.0) == (5.0, 6.0) and run.recent_episodes == 100.0


def test_loop_state_without_rolling_lengths_is_read():
    run = Replicate(0, Stream.SEARCH, 0, recent_episodes=60.0, recent_return=2.0)
    state = LoopState(live={0: Trial(0, TrialState.WAITING, "default", 0, "", {}, runs=[run])})
    old = json.loads(state.to_text())
    for name in ("recent_length", "half_row", "half_row_chunks", "seconds", "row_seconds"):
        del old["live"]["0"]["runs"][0][name]
    back = LoopState.from_text(json.dumps(old))
    (again,) = back.live[0].runs
    assert all(map(math.isnan, again.roll(0.0, math.nan, math.nan)[1:]))
    assert again.roll(20.0, 2.0, 30.0) == (2.0, 30.0)  # lengths begin here, returns go on
    assert again.recent_episodes == 80.0
