"""Times of a study never go back, whatever is done to the machine's clock."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from hpo.store import StudyFolder, StudyMeta, StudyStore
from hpo.store.study_store import CommitClock


def test_clock_is_monotonic_when_wall_clock_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall, steady = [1000.0], [5.0]
    fake = SimpleNamespace(time=lambda: wall[0], monotonic=lambda: steady[0])
    monkeypatch.setattr("hpo.store.study_store.time", fake)
    assert CommitClock(2000.0)() == 2000.0  # no earlier than the last commit
    clock = CommitClock(0.0)
    assert clock() == 1000.0
    wall[0], steady[0] = -3e7, 7.5  # set back by a year, 2.5 s later
    assert clock() == 1002.5
    steady[0] = 1.0  # a steady clock that is none
    assert clock() == 1000.0


def test_commit_times_increase_when_clock_is_set_back(
    folder: StudyFolder, meta: StudyMeta, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []
    now = time.time()
    for jump in (0.0, -400 * 86_400.0, 0.0):
        with monkeypatch.context() as patch:
            patch.setattr("hpo.store.study_store.time.time", lambda jump=jump: now + jump)
            with StudyStore(folder, meta) as store:
                for _ in range(2):
                    store.commit(loop_state="{}", checkpoint=None)
                    seen.append(store.head.at)
    assert seen == sorted(seen) and seen[0] >= now and seen[-1] < now + 600.0
