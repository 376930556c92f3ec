"""What `hpo query` prints is the same whatever pieces its rows come in, and steers nothing."""

import csv
import io
import json
import math

import pytest

from hpo.errors import StoreError
from hpo.views.commands import read_study
from hpo.views.commands.read_study import csv_pieces, json_pieces, table_pieces


class Some:
    """Rows in pieces of so many, as of `store.query.Rows`."""

    def __init__(self, columns, rows, at_once=1):
        self.columns, self._rows, self._at_once = columns, rows, at_once

    def __iter__(self):
        for begin in range(0, len(self._rows), self._at_once):
            yield self._rows[begin : begin + self._at_once]


ROWS = [
    (1, 0.5, "a\nb\x1b[2J", [1.0, None], True, {"a": 1.5}),
    (20, math.nan, None, [], False, {}),
]


def text(pieces, columns, rows, at_once=1):
    return "".join(pieces(Some(columns, rows, at_once)))


def test_query_table_is_aligned_and_escapes_control_characters():
    table = text(table_pieces, ["n", "x", "word", "list", "flag", "map"], ROWS)
    lines = table.splitlines()
    assert len(lines) == 4
    assert "\x1b" not in table and "a\\nb\\x1b[2J" in table
    assert lines[2].startswith(" 1  0.5") and lines[3].startswith("20  nan")
    assert "[1, -]" in table and "true" in table and "{a: 1.5}" in table


def test_a_query_without_rows_shows_its_columns():
    assert text(table_pieces, ["trial", "value"], []) == "trial  value\n-----  -----\n"
    assert text(table_pieces, [""], [(1,)]).splitlines()[0] == "?"
    assert text(csv_pieces, ["a", "b"], []) == "a,b\n"
    assert text(json_pieces, ["a"], []) == "[]\n"


def test_csv_can_be_read_back():
    found = text(
        csv_pieces, ["a", "b", "c"], [(1, "x,\n", [1.5, math.nan]), (None, True, {"k": [1]})]
    )
    rows = list(csv.reader(io.StringIO(found)))
    assert rows == [
        ["a", "b", "c"],
        ["1", "x,\n", "[1.5, null]"],
        ["", "true", '{"k": [1]}'],
    ]


def test_query_json_equals_json_dumps():
    columns = ["n", "n", "word", "list", "flag", "map"]
    names = ["n", "n_2", "word", "list", "flag", "map"]
    found = text(json_pieces, columns, ROWS)
    plain = [dict(zip(names, row, strict=True)) for row in ROWS]
    plain[1]["n_2"] = None
    assert found == json.dumps(plain, indent=2) + "\n"


@pytest.mark.parametrize("pieces", [csv_pieces, json_pieces, table_pieces])
def test_query_output_does_not_depend_on_batch_size(pieces, monkeypatch):
    rows = [(n, "x" * n, None if n % 3 else float(n)) for n in range(20)]
    whole = text(pieces, ["n", "word", "x"], rows, 20)
    assert [text(pieces, ["n", "word", "x"], rows, size) for size in (1, 7)] == [whole] * 2


def test_query_table_is_limited_but_csv_is_not(monkeypatch):
    monkeypatch.setattr(read_study, "CELLS", 10)
    with pytest.raises(StoreError, match=r"more than 10 cells; .* --csv or --json"):
        text(table_pieces, ["a", "b"], [(1, 2)] * 6)
    assert text(csv_pieces, ["a", "b"], [(1, 2)] * 6).count("\n") == 7
