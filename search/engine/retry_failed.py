"""Reruns the failed trials of a study in which other trials finished.

A rerun has the same number, configuration and random numbers as the first attempt. The commit that
records the trial as running deletes the rows of the first attempt.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import StoreError
from ...store.rows import TrialState
from ...store.study_store import StudyStore
from ..state.search_state import SearchState
from ..state.trials import Trial
from .engine import Engine

_NAMED = 8


def to_retry(search_state: SearchState) -> list[int]:
    """Return the numbers of failed search trials; `StoreError` if they cannot be rerun alone."""
    trials = search_state.trials.values()
    failed = [t.number for t in trials if t.state is TrialState.FAILED and t.number >= 0]
    early = search_state.study.early_terminate
    if failed and early is not None and early.evolves:
        raise StoreError(
            (
                f"the trials of {search_state.study.name} copy each other ({early.type}), so a "
                "failed one cannot be rerun alone; start a new study"
            ),
            new=True,
        )
    if failed and search_state.study.search.driver == "ray_tune":
        raise StoreError(
            (
                f"Ray Tune drives {search_state.study.name} and has no record of finished trials, "
                "so a failed one cannot be rerun; start a new study"
            ),
            new=True,
        )
    return sorted(failed)


def lacks_test_seeds(search_state: SearchState) -> bool:
    """Return whether a confirmed trial failed on new seeds, which then also run again."""
    return any(seed.failed and not seed.retried for seed in search_state.state.lost)


def retry(engine: Engine, store: StudyStore, numbers: Sequence[int]) -> None:
    """Queue failed trials again; called before the first step."""
    if not numbers:
        return
    store.curves.drop(numbers)
    for number in numbers:
        trial = engine.search_state.restart(number)
        bucket = engine.admit(trial, engine.study.seeds.first)
        if bucket is not None:
            bucket.enqueue(trial.runs)


def retry_note(search_state: SearchState, numbers: Sequence[int], lacks: bool) -> str:
    """Return a line that lists the trials to be rerun."""
    if not numbers:
        again = "no search trial has failed"
        if lacks:
            again += "; rerunning missing test seeds"
        return again
    first: Trial = search_state.trials[numbers[0]]
    why = first.error.partition("\n")[0]
    if len(numbers) == 1:
        return f"rerunning trial {numbers[0]}, which failed: {why}"
    some = ", ".join(map(str, numbers[:_NAMED])) + ", ..." * (len(numbers) > _NAMED)
    return f"rerunning {len(numbers)} failed trials: {some}; trial {numbers[0]} failed: {why}"
