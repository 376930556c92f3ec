"""Sinks copy the results and never harm them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from hpo.store import (
    CsvSink,
    Sink,
    Sinks,
    Stream,
    StudyFolder,
    StudyMeta,
    StudyStore,
    TrialRow,
)
from hpo.store.follow import Follower
from hpo.store.tensorboard_sink import TensorBoardSink

Make = Callable[..., TrialRow]


class SinkContract:
    """What every sink must do; a subclass gives the fixture `sink`."""

    @pytest.fixture
    def sink(self) -> Sink:
        raise NotImplementedError

    def test_sink_publishes_repeatedly_without_changing_tables(
        self, sink: Sink, folder: StudyFolder, meta: StudyMeta, make_trial: Make
    ) -> None:
        with StudyStore(folder, meta) as store:
            for number in range(3):  # an empty study, a small one, a larger one
                store.publish(force=True)
                before = {path: path.read_bytes() for path in folder.path.glob("*.parquet")}
                assert len(before) == 3
                sink.published(folder.path)
                assert {path: path.read_bytes() for path in before} == before
                store.curves.add_chunk([number], [Stream.SEARCH], [0], [5], {"loss/x": [math.nan]})
                row = make_trial(number, value=math.nan)
                store.commit(loop_state="{}", checkpoint=None, trials=[row])
        sink.close()
        sink.close()

    def test_sink_name_is_an_identifier(self, sink: Sink) -> None:
        assert sink.name.isidentifier()


class TestCsvSink(SinkContract):
    @pytest.fixture
    def sink(self) -> Sink:
        return CsvSink()


class TestTensorBoardSink(SinkContract):
    @pytest.fixture
    def sink(self) -> Sink:
        return TensorBoardSink(Follower())


def test_csv_files_match_the_tables(
    folder: StudyFolder, meta: StudyMeta, make_trial: Make
) -> None:
    rows = [
        make_trial(0, value=0.1 + 0.2, seed_values=(0.1, math.nan), error='says "no", twice'),
        make_trial(1, value=math.nan),
    ]
    with StudyStore(folder, meta, sinks=Sinks([CsvSink()], warn=pytest.fail)) as store:
        store.publish()  # an empty study has headers
        assert (folder.path / "trials.csv").read_text().startswith('"rank","trial","state"')
        metrics = {"kl": [1 / 3], "loss/value": [math.nan]}
        store.curves.add_chunk([0], [Stream.SEARCH], [0], [5], metrics)
        store.commit(loop_state="{}", checkpoint=None, trials=rows)
        store.publish(force=True)
    with (folder.path / "trials.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert float(first["value"]) == 0.1 + 0.2
    assert json.loads(first["seed_values"]) == [0.1, "nan"]
    assert first["error"] == 'says "no", twice' and first["ci_low"] == ""
    assert math.isnan(float(second["value"]))
    assert json.loads(first["params"])["hidden_sizes"] == [64, 64]
    with (folder.path / "curves.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["kl"]) == 1 / 3 and row["stream"] == "search"
    assert not list(folder.path.glob("*.partial"))


class BrokenSink:
    name = "broken"

    def __init__(self) -> None:
        self.calls = 0

    def published(self, directory: Path) -> None:
        self.calls += 1
        raise OSError("disk full")

    def close(self) -> None:
        raise AssertionError("a sink that failed is left alone")


def test_a_failing_sink_never_stops_the_study(
    folder: StudyFolder, meta: StudyMeta, make_trial: Make
) -> None:
    said: list[str] = []
    sink = BrokenSink()
    with StudyStore(folder, meta, sinks=Sinks([sink, CsvSink()], warn=said.append)) as store:
        for number in range(3):
            store.commit(loop_state="{}", checkpoint=None, trials=[make_trial(number)])
            store.publish(force=True)
    assert sink.calls == 1
    assert len(said) == 1 and "the broken logger failed" in said[0] and "disk full" in said[0]
    assert len((folder.path / "trials.csv").read_text().splitlines()) == 4
