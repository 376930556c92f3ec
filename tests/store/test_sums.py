"""Checksums of the journal against a slow reference, after commits and after damage."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from helpers.episodes import episodes_in, evaluation
from hpo.errors import StoreError
from hpo.store import (
    AskRow,
    AttributeRow,
    Commit,
    DecisionRow,
    Journal,
    Part,
    StudyMeta,
    TrialRow,
)
from hpo.store.journal import Sum, sum_of

Make = Callable[..., TrialRow]
TABLES = ("meta", "head", "trials", "evaluations", "decisions", "asks", "attributes", "parts")


def slow_sum(path: Path, table: str) -> tuple[int, int]:
    """Sum the digests as the words say it: a row's cells as ASCII text, its bytes behind them."""
    connection = sqlite3.connect(path)
    count = total = 0
    for row in connection.execute(f"SELECT * FROM {table}"):
        text, blobs = "[", b""
        for index, cell in enumerate(row):
            text += ", " if index else ""
            if isinstance(cell, bytes):
                text, blobs = text + str(len(cell)), blobs + cell
            else:
                text += ascii(cell)
        hashed = blake2b((text + "]").encode() + blobs, digest_size=16, person=table.encode())
        total += _little(hashed.digest())
        count += 1
    connection.close()
    return count, total % 2**128


def _little(digest: bytes) -> int:
    return sum(byte << (8 * place) for place, byte in enumerate(digest))


def written(path: Path) -> dict[str, tuple[int, int]]:
    connection = sqlite3.connect(path)
    found = {n: (r, int(s, 16)) for n, r, s in connection.execute("SELECT * FROM sums")}
    connection.close()
    return found


def fill(journal: Journal, make_trial: Make, commits: int = 6, seed: int = 0) -> None:
    """Commit rows of every kind; trials and attributes are replaced, parts merged."""
    rng = random.Random(seed)
    for number in range(1, commits + 1):
        trials = [make_trial(rng.randrange(40), value=rng.random()) for _ in range(8)]
        first = journal.head().number
        journal.commit(
            Commit(
                number=first + 1,
                loop_state=json.dumps({"step": number, "name": "ü\u2028"}, ensure_ascii=False),
                checkpoint=None,
                at=float(number),
                trials=list({row.trial: row for row in trials}.values()),
                evaluations=[
                    evaluation(number, r, 800, [rng.random() for _ in range(4)], 9, b=0.5)
                    for r in range(3)
                ],
                decisions=[
                    DecisionRow(number, r, 100, 0.5, "stop", "asha", None, 1, 2) for r in range(4)
                ],
                asks=[AskRow(number, "tpe", (1, 2), (number,))],
                attributes=[
                    AttributeRow(None, "state", rng.random()),
                    AttributeRow(3, "state", rng.random()),
                    AttributeRow(3, "state", rng.random()),  # twice in one commit
                ],
                parts=[Part(f"{number:06d}.parquet", "ab", 5, first * 5)],
                merged=[f"{number - 2:06d}.parquet"],
            )
        )


@pytest.fixture
def journal(tmp_path: Path, meta: StudyMeta) -> Journal:
    return Journal.create(tmp_path, meta)


def test_incremental_checksums_match_a_full_recount(
    journal: Journal, make_trial: Make, meta: StudyMeta
) -> None:
    fill(journal, make_trial)
    journal.replace_meta(meta)
    with pytest.raises(StoreError, match="does not follow"):
        journal.commit(Commit(99, "{}", None, 0.0))
    with pytest.raises(StoreError, match="repeats a row"):
        journal.commit(Commit(7, "{}", None, 0.0, asks=[AskRow(1, "a", ())]))
    journal.close()
    found = written(journal.path)
    assert {table: found[table] for table in TABLES} == {
        table: slow_sum(journal.path, table) for table in TABLES
    }
    connection = sqlite3.connect(journal.path)
    assert Sum(*found["trials"]) == sum_of(connection, "trials")
    connection.close()
    Journal(journal.path.parent, writable=True).close()


CHANGES = {
    "a value": "UPDATE trials SET row = replace(row, '\"tpe\"', '\"tpf\"') WHERE trial % 2",
    "a state": "UPDATE trials SET state = 'failed' WHERE trial = (SELECT min(trial) FROM trials)",
    "a row lost": "DELETE FROM decisions WHERE trial = 2 AND rung = 1",
    "a row more": "INSERT INTO asks VALUES (77, 'tpe', '[]', '[]')",
    "bytes": "UPDATE evaluations SET returns = zeroblob(length(returns)) WHERE replicate = 1",
    "two values exchanged": "UPDATE decisions SET rung = 9 - rung",
    "loop state": "UPDATE head SET loop_state = '{}'",
    "an attribute": "UPDATE attributes SET value = '0.25' WHERE trial = -1",
    "what it is": "UPDATE meta SET value = '\"minimize\"' WHERE key = 'goal'",
    "a part": "UPDATE parts SET first = first + 1",
    "a sum": "UPDATE sums SET sum = '0' WHERE name = 'asks'",
    "a sum lost": "DELETE FROM sums WHERE name = 'attributes'",
    "all sums": "DROP TABLE sums",
    "a definition": "CREATE TABLE further (a)",
    "the format": "PRAGMA user_version = 1",
    "no format": "PRAGMA user_version = 0",
}


def read_all(folder: Path) -> list[Any]:
    with Journal(folder) as journal:
        found: list[Any] = [journal.meta, journal.head(), journal.trials(), journal.asks()]
        found += [journal.decisions(), journal.attributes(), journal.parts()]
        return [*found, list(episodes_in(journal)), journal.count_by_state()]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_external_journal_changes_are_refused(
    journal: Journal, make_trial: Make, change: str
) -> None:
    fill(journal, make_trial)
    journal.close()
    assert read_all(journal.path.parent)
    connection = sqlite3.connect(journal.path)
    connection.execute(change)
    connection.commit()
    connection.close()
    for use in (read_all, lambda folder: Journal(folder, writable=True)):
        with pytest.raises(StoreError, match=r"^\S+journal.sqlite is damaged \([^\n]*study over$"):
            use(journal.path.parent)


def test_damaged_journal_index_is_detected_on_read(journal: Journal, make_trial: Make) -> None:
    fill(journal, make_trial)
    journal.close()
    connection = sqlite3.connect(journal.path)
    index = "sqlite_autoindex_evaluations_1"
    query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
    page = connection.execute(query, (index,)).fetchone()[0]
    connection.close()
    content = bytearray(journal.path.read_bytes())
    start = 4096 * (page - 1)
    at = content.index(b"search", start)  # in the key of the entry; no row has changed
    assert at < start + 4096
    content[at] ^= 1
    journal.path.write_bytes(content)
    with Journal(journal.path.parent) as reader:
        assert reader.trials()
        with pytest.raises(StoreError, match="is damaged"):
            list(reader.evaluations())


def test_older_journal_without_checksums_is_upgraded(journal: Journal, make_trial: Make) -> None:
    fill(journal, make_trial)
    journal.close()
    connection = sqlite3.connect(journal.path)
    connection.executescript("DROP TABLE sums; PRAGMA user_version = 1;")  # as before this version
    connection.close()
    folder, old = journal.path.parent, journal.path.read_bytes()
    before = read_all(folder)
    assert journal.path.read_bytes() == old, "a reader changes nothing"
    Journal(folder, writable=True).close()
    assert repr(read_all(folder)) == repr(before)
    found = written(journal.path)
    assert {table: found[table] for table in TABLES} == {
        table: slow_sum(journal.path, table) for table in TABLES
    }


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trials SET row = '[]'",
        "UPDATE trials SET row = '{'",
        "UPDATE trials SET row = x'ff'",
        "UPDATE head SET at = 'x'",
        "DELETE FROM head",
        "UPDATE evaluations SET returns = x'00'",
        "UPDATE evaluations SET names = '7'",
        "UPDATE asks SET trials = '3'",
        "UPDATE attributes SET value = 'x'",
        "UPDATE parts SET name = '../../lock' WHERE first = 25",
        "UPDATE meta SET value = '{' WHERE key = 'goal'",
        "DELETE FROM meta WHERE key = 'goal'",
    ],
)
def test_damaged_journal_without_checksums_is_refused(
    journal: Journal, make_trial: Make, change: str
) -> None:
    fill(journal, make_trial)
    journal.close()
    connection = sqlite3.connect(journal.path)
    connection.executescript(f"DROP TABLE sums; PRAGMA user_version = 1; {change};")
    connection.close()
    with pytest.raises(StoreError, match="is damaged"):
        read_all(journal.path.parent)


def test_undecodable_journal_schema_is_refused(journal: Journal) -> None:
    journal.close()
    content = journal.path.read_bytes()
    at = content.index(b"CREATE TABLE decisions") + 14
    for place in range(at - 22, at + 20, 3):
        damaged = bytearray(content)
        damaged[place] = 0xCC  # begins a letter that does not go on
        journal.path.write_bytes(damaged)
        for use in (read_all, Journal.exists, lambda folder: Journal(folder, writable=True)):
            with suppress(StoreError):  # a sentence, or not read
                use(journal.path.parent)
        with pytest.raises(StoreError, match="is damaged"):
            Journal(journal.path.parent, writable=True)
