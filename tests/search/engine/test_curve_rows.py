"""How often curves have rows changes no result, and crashes change no row."""

import math
import re
from dataclasses import replace

import pytest

from helpers import search_samples as samples
from hpo.core.metrics import joined
from hpo.search.run import run
from hpo.search.state.schedule import chunks_of_row
from hpo.store import query, tables_equal
from hpo.store.journal import Journal
from hpo.studies.chunk_sizes import row_ends, rows_per_chunk
from hpo.studies.search_spec import EarlyTerminate

CONFIRM = samples.Confirm(2, 2, 2)
PBT = EarlyTerminate("pbt", every=4_000)
STUDIES = {
    "asha": samples.study(confirm=CONFIRM, budget=samples.Budget(trials=8)),
    "pbt": samples.study(early_terminate=PBT, budget=samples.Budget(trials=6)),
}


def go(study, folder, rows=1, observers=(), **settings):
    factory = samples.AnalyticFactory(rows=rows, diverges_above=0.3)
    run(study, folder, factory, observers, samples.quick(**settings))
    return folder


def curve(folder):
    """Return (trial, stream, replicate) -> its rows (env_steps, skill, loss) in their order."""
    found = {}
    for *key, at, skill, loss in query(
        folder, "SELECT trial, stream, replicate, env_steps, skill, loss FROM curves"
    )[1]:
        found.setdefault(tuple(key), []).append((at, skill, loss))
    return found


def other_tables(one, other):
    return [text for text in tables_equal(one, other) if "curves" not in text]


@pytest.fixture(scope="module", params=STUDIES)
def plain(request, tmp_path_factory):
    """A study with a row a chunk of 1,000 env steps."""
    study = STUDIES[request.param]
    return study, go(study, tmp_path_factory.mktemp("plain") / "s")


def test_curve_rows_within_chunks_do_not_change_results(plain, tmp_path):
    study, whole = plain
    split = go(replace(study, log_every=250), tmp_path / "s", rows=4)
    assert other_tables(whole, split) == []
    before, after = curve(whole), curve(split)
    assert before.keys() == after.keys()
    for key, rows in before.items():
        assert [at for at, *_ in after[key]] == [
            at - b for at, *_ in rows for b in (750, 500, 250, 0)
        ]
        assert after[key][3::4] == rows  # what is linear within a chunk ends where it ends


def test_joined_curve_rows_equal_rows_of_their_chunks(plain, tmp_path):
    """Three chunks a row, cut at rungs and ends; the mean is taken from the rows of chunks."""
    study, whole = plain
    long = go(replace(study, log_every=3_500), tmp_path / "s")
    assert other_tables(whole, long) == []
    after = curve(long)
    rungs = (2, 8) if study.early_terminate.type == "asha" else (4, 8, 12)
    ends = sorted({*range(3, 17, 3), *rungs, 16})
    compared = 0
    for key, rows in curve(whole).items():
        expected, first = [], 0
        for end in ends:
            part = rows[first:end]
            if len(part) == end - first:
                means = [math.fsum(row[at] for row in part) / len(part) for at in (1, 2)]
                expected.append((end * 1_000, *means))
            first = end
        seen = after.get(key, [])
        assert [at for at, *_ in seen] == [at for at, *_ in expected]
        for now, then in zip(seen, expected, strict=True):
            assert now == pytest.approx(then, rel=1e-12)
        compared += len(seen)
    assert compared > 50


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("commit_seconds", [0.0, 1e9])
def test_partial_curve_rows_survive_crash(tmp_path, name, commit_seconds):
    study = replace(STUDIES[name], log_every=3_500)
    halves = set()
    for chunks in (1, 6, 3):
        with pytest.raises(KeyboardInterrupt):
            go(study, tmp_path / "cut", 1, [samples.Stop(chunks)], commit_seconds=commit_seconds)
        with Journal(tmp_path / "cut") as journal:
            halves |= set(re.findall(r'"half_row_chunks":(\d)', journal.head().loop_state))
    assert ("1" in halves) == (commit_seconds == 0.0)  # else nothing was committed
    go(study, tmp_path / "cut")
    assert tables_equal(tmp_path / "cut", go(study, tmp_path / "straight")) == []


def test_curve_rows_are_at_most_log_every_apart():
    """Against every interval and chunk: whole updates, all of them, the fewest rows."""
    for updates in range(1, 40):
        for every in range(1, 6 * updates * 5):
            ends = row_ends(updates, rows_per_chunk(every, 5, updates)) or (updates,)
            chunks = chunks_of_row(every, updates * 5)
            sizes = [b - a for a, b in zip((0, *ends), ends, strict=False)]
            asked = math.ceil(every / 5)
            assert sum(sizes) == updates and max(sizes) - min(sizes) <= 1
            if chunks == 1:
                assert max(sizes) <= asked
                assert len(sizes) == 1 or math.ceil(updates / (len(sizes) - 1)) > asked
            else:
                assert len(sizes) == 1
                assert chunks * updates * 5 <= every < (chunks + 1) * updates * 5


def test_curve_row_without_episodes_is_skipped_in_mean():
    none = {"episodes": 0.0, "episode_return": math.nan}
    some = {"episodes": 3.0, "episode_return": 5.0}
    assert joined(none, some, 1.0) == joined(some, none, 1.0) == some
    assert math.isnan(joined(none, none, 1.0)["episode_return"])


@pytest.mark.parametrize(("rows", "log_every"), [(1, None), (4, 250), (1, 3_500)])
def test_curve_rows_have_elapsed_seconds_and_speed(tmp_path, rows, log_every):
    """Their seconds are those of the chunks; speeds and seconds give the env steps again."""
    study = samples.study(log_every=log_every, budget=samples.Budget(trials=3), confirm=None)
    factory = samples.AnalyticFactory(rows=rows, chunk_seconds=0.003, lanes=6)
    result = run(study, tmp_path / "s", factory, (), samples.quick())
    found = {}
    for *key, at, elapsed, speed in query(
        result.folder,
        "SELECT trial, replicate, env_steps, elapsed_seconds, env_steps_per_second FROM curves",
    )[1]:
        found.setdefault(tuple(key), [(0, 0.0)]).append((at, elapsed))
        (was, before), (now, after) = found[tuple(key)][-2:]
        assert after - before >= 0.003 / 4 * (now - was) / 1_000
        assert speed * (after - before) == pytest.approx(now - was, rel=1e-6)
    longest = max(rows[-1][1] for rows in found.values())
    assert 16 * 0.003 <= longest <= result.usage.chunk_seconds * (1 + 1e-9)
