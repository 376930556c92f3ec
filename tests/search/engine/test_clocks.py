"""A machine's clocks set back while a study runs cost it nothing and make no time negative."""

import json
import time

import pytest

from helpers import search_samples as samples
from hpo.search.run import RunOptions, run
from hpo.store import Journal, tables_equal
from hpo.views.terminal.run_view import LinesView

STUDY = samples.study(samples.WITH_BUCKETS, budget=samples.Budget(trials=12))
FACTORY = samples.AnalyticFactory(lanes=8, block=4, quanta={"16": 500, "32": 1000, "64x64": 2000})
YEAR = 400 * 86_400.0


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "study"
    run(STUDY, folder, FACTORY, (), samples.quick())
    return folder


@pytest.mark.parametrize("names", [("time",), ("time", "monotonic", "perf_counter")])
def test_clocks_set_back_do_not_end_study(unbroken, tmp_path, monkeypatch, names):
    calls = []
    for name in names:
        clock = getattr(time, name)

        def late(clock=clock):
            calls.append(clock)
            return clock() - (YEAR if len(calls) > 150 else 0.0)

        monkeypatch.setattr(time, name, late)
    results = run(
        STUDY, tmp_path / "s", FACTORY, [LinesView(command="hpo")], RunOptions(0.05, 0.2)
    )
    monkeypatch.undo()
    assert results.state == "finished" and len(calls) > (150 if len(names) > 1 else 0)
    assert tables_equal(unbroken, tmp_path / "s") == []
    with Journal(tmp_path / "s") as journal:
        rows, usage = journal.trials(), json.loads(journal.head().loop_state)["usage"]
    assert all(row.train_seconds >= 0.0 for row in rows)
    assert usage["run_seconds"] >= 0.0 and usage["chunk_seconds"] >= 0.0
    if names == ("time",):
        ended = [row for row in rows if row.started_at is not None and row.ended_at is not None]
        assert ended and all(row.started_at <= row.ended_at for row in ended)
