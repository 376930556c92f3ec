"""Curve rows survive only as whole, listed, undamaged parts, however many there are."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hpo.errors import StoreError
from hpo.store import CurveParts, Part, Stream
from hpo.store import parquet as parts_module
from hpo.store.parquet import part_batches, unified_schema


def add(parts: CurveParts, *indices: int, **metrics: float) -> None:
    for index in indices:
        values = {name: [value] for name, value in (metrics or {"loss": index / 3}).items()}
        parts.add_chunk([index % 5], [Stream.SEARCH], [index % 2], [index], values)


def settle(parts: CurveParts) -> None:
    """What a commit does with them."""
    parts.flush()
    parts.committed()


def read(directory: Path, live: list[Part]) -> pa.Table:
    folder = directory / "parts"
    schema = unified_schema(folder, live)
    return pa.concat_tables([schema.empty_table(), *part_batches(folder, live, schema)])


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    parts = CurveParts(tmp_path, [])
    add(parts, 0, 1)
    parts.add_chunk([7], [Stream.REPORT], [3], [9], {"loss": np.array([math.nan])})
    parts.add_chunk([], [], [], [], {})
    assert parts.rows == 3
    settle(parts)
    add(parts, 3)
    settle(parts)
    table = read(tmp_path, parts.live)
    assert table["env_steps"].to_pylist() == [0, 1, 9, 3]
    assert table["stream"].to_pylist() == ["search", "search", "report", "search"]
    assert repr(table["metric:loss"].to_pylist()) == repr([0.0, 1 / 3, math.nan, 1.0])
    assert [(part.rows, part.first) for part in parts.live] == [(3, 0), (1, 3)]


def test_later_metric_is_null_in_earlier_rows(tmp_path: Path) -> None:
    parts = CurveParts(tmp_path, [])
    add(parts, 0, a=1.0)
    add(parts, 1, b=2.0)
    settle(parts)
    add(parts, 2, c=3.0)
    settle(parts)
    table = read(tmp_path, parts.live)
    assert table["metric:a"].to_pylist() == [1.0, None, None]
    assert table["metric:c"].to_pylist() == [None, None, 3.0]


@pytest.mark.parametrize("value", ["high", [1.0]])
def test_non_numeric_curve_values_are_refused(tmp_path: Path, value: object) -> None:
    parts = CurveParts(tmp_path, [])
    with pytest.raises(StoreError, match="one number per metric"):
        parts.add_chunk([0], [Stream.SEARCH], [0], [0], {"loss": [value]})  # pyright: ignore


def test_unequal_curve_columns_are_refused(tmp_path: Path) -> None:
    parts = CurveParts(tmp_path, [])
    with pytest.raises(StoreError, match="one number per metric"):
        parts.add_chunk([1, 2], [Stream.SEARCH] * 2, [0, 0], [1, 1], {"loss": np.zeros(3)})


def test_uncommitted_curve_parts_are_deleted(tmp_path: Path) -> None:
    parts = CurveParts(tmp_path, [])
    add(parts, 0)
    settle(parts)
    add(parts, 1)
    parts.flush()  # written, but the commit never came
    (tmp_path / "parts" / "000009.parquet.partial").write_bytes(b"half")
    again = CurveParts(tmp_path, parts.live)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["000001.parquet"]
    add(again, 1)  # replayed
    settle(again)
    assert read(tmp_path, again.live)["env_steps"].to_pylist() == [0, 1]


def test_damaged_curve_part_is_named(tmp_path: Path) -> None:
    parts = CurveParts(tmp_path, [])
    for index in range(2):
        add(parts, index)
        settle(parts)
    victim = tmp_path / "parts" / "000002.parquet"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(StoreError, match=r"000002\.parquet is damaged: its sha256"):
        CurveParts(tmp_path, parts.live)
    victim.unlink()
    with pytest.raises(StoreError, match=r"000002\.parquet cannot be read"):
        CurveParts(tmp_path, parts.live)


def test_curve_parts_are_merged_without_losing_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "MERGE_PARTS", 4)
    parts = CurveParts(tmp_path, [])
    for index in range(55):
        add(parts, index, **({"loss": 1.0} if index % 7 else {"late": 2.0}))
        if index % 5 == 3:  # a commit that fails: the same parts are offered again
            parts.flush()
        settle(parts)
        assert parts.rows == index + 1
        assert len(parts.live) < 4 + 4 + 4
        listed = {part.name for part in parts.live}
        assert {path.name for path in (tmp_path / "parts").iterdir()} == listed
        table = read(tmp_path, parts.live)
        assert table["env_steps"].to_pylist() == list(range(index + 1))
    assert {part.level for part in parts.live} == {0, 1, 2}
    CurveParts(tmp_path, parts.live)


def test_crash_during_merge_loses_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "MERGE_PARTS", 4)
    parts = CurveParts(tmp_path, [])
    for index in range(3):
        add(parts, index)
        settle(parts)
    before = list(parts.live)
    add(parts, 3)
    listed, merged = parts.flush()
    assert len(listed) == 1 and merged == [part.name for part in before]
    again = CurveParts(tmp_path, before)  # the commit did not happen
    assert read(tmp_path, again.live)["env_steps"].to_pylist() == [0, 1, 2]


def test_large_curve_buffer_is_flushed_before_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_module, "BUFFER_ROWS", 10)
    parts = CurveParts(tmp_path, [])
    for index in range(25):
        add(parts, index)
    assert len(list((tmp_path / "parts").iterdir())) == 2
    listed, _ = parts.flush()
    assert [part.rows for part in listed] == [10, 10, 5]
    parts.committed()
    assert read(tmp_path, parts.live)["env_steps"].to_pylist() == list(range(25))
