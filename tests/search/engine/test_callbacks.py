"""Callbacks see what the tables say, change nothing, and end a study cleanly when they raise."""

from types import SimpleNamespace

import numpy as np
import pytest

import hpo
from helpers import search_samples as samples
from hpo.errors import CallbackError, SearchError
from hpo.search.engine.callbacks import Callback, StopStudy
from hpo.search.run import run
from hpo.store import query, tables_equal
from hpo.store.journal import Journal

CONFIRM = samples.Confirm(2, 2, 2)


class Watcher(Callback):
    """Keeps every event."""

    def __init__(self):
        self.chunks, self.evaluations, self.ends = [], [], []
        self.starts = []

    def on_run_start(self, event):
        self.starts.append(event)

    def on_run_end(self, event):
        self.starts.append(event)

    def on_trial_start(self, event):
        self.starts.append(event)

    def on_chunk_start(self, event):
        self.starts.append(event)

    def on_evaluation_start(self, event):
        self.starts.append(event)

    def on_chunk(self, event):
        self.chunks.append(event)

    def on_evaluation(self, event):
        self.evaluations.append(event)

    def on_trial_end(self, event):
        self.ends.append(event)


class Failing(Callback):
    """Raises at the so manieth call of one method."""

    def __init__(self, method, at, error):
        self.left = at
        setattr(self, method, lambda event: self._count(error))

    def _count(self, error):
        self.left -= 1
        if self.left == 0:
            raise error


def go(folder, *callbacks, commit_seconds=1e9, **changes):
    settings = samples.quick(callbacks=callbacks, commit_seconds=commit_seconds)
    study = samples.study(confirm=CONFIRM, **changes)
    return run(study, folder, samples.AnalyticFactory(), (), settings)


@pytest.fixture(scope="module")
def unwatched(tmp_path_factory):
    return go(tmp_path_factory.mktemp("plain") / "study").folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    watcher = Watcher()
    results = go(tmp_path_factory.mktemp("watched") / "study", watcher)
    return SimpleNamespace(watcher=watcher, folder=results.folder)


def test_callbacks_do_not_change_tables(watched, unwatched):
    assert tables_equal(watched.folder, unwatched) == []


def test_chunk_events_equal_curve_rows(watched):
    _, rows = query(
        watched.folder, "SELECT trial, stream, replicate, env_steps, skill, loss FROM curves"
    )
    told = [
        (*key, *numbers)
        for event in watched.watcher.chunks
        for key, *numbers in zip(
            zip(
                event.trials,
                map(str, event.streams),
                event.replicates,
                event.env_steps,
                strict=True,
            ),
            event.metrics["skill"],
            event.metrics["loss"],
            strict=True,
        )
    ]
    assert told == rows
    steps = [event.progress.env_steps for event in watched.watcher.chunks]
    assert steps == sorted(steps) and len(steps) > 16


def test_evaluation_events_equal_evaluations_table(watched):
    _, rows = query(
        watched.folder,
        "SELECT trial, stream, replicate, env_steps, episode_return, episode_length, skill "
        "FROM evaluations",
    )
    told = [
        (event.trial, str(event.stream), event.replicate, event.env_steps, *episode)
        for event in watched.watcher.evaluations
        for episode in zip(event.returns, event.lengths, event.metrics["skill"], strict=True)
    ]
    assert sorted(told) == sorted(rows)
    event = watched.watcher.evaluations[0]
    assert (event.returns.dtype, event.lengths.dtype) == (np.float64, np.int64)


def test_every_trial_ends_once_with_its_row(watched):
    numbers = [event.trial.trial for event in watched.watcher.ends]
    assert sorted(numbers) == list(range(24))
    with Journal(watched.folder) as journal:
        values = {row.trial: row.value for row in journal.trials()}
    assert {event.trial.trial: event.trial.value for event in watched.watcher.ends} == values


def told(watched, kind):
    return [event for event in watched.watcher.starts if isinstance(event, kind)]


def test_a_run_starts_and_ends_once(watched):
    [start], [end] = told(watched, hpo.RunStartEvent), told(watched, hpo.RunEndEvent)
    assert (start.study.name, start.folder, start.resumed) == ("small", watched.folder, False)
    assert end.state == "finished" and sum(end.progress.states.values()) == 24
    assert watched.watcher.starts[0] is start and watched.watcher.starts[-1] is end


def test_every_trial_start_event_has_its_hyperparameters(watched):
    starts = told(watched, hpo.TrialStartEvent)
    assert sorted(event.trial for event in starts) == list(range(24))
    with Journal(watched.folder) as journal:
        params = {row.trial: dict(row.params) for row in journal.trials()}
    assert {event.trial: dict(event.params) for event in starts} == params


def test_chunk_start_events_precede_matching_chunk_events(watched):
    """Each replicate stands a quantum before its row; no row is of one that did not start."""
    starts = told(watched, hpo.ChunkStartEvent)
    assert len(starts) == len(watched.watcher.chunks)
    for start, chunk in zip(starts, watched.watcher.chunks, strict=True):
        at = {(one.trial, one.stream, one.replicate): one.env_steps for one in start.replicates}
        keys = zip(chunk.trials, chunk.streams, chunk.replicates, strict=True)
        assert [at[key] + 1_000 for key in keys] == list(chunk.env_steps)


def test_every_evaluation_has_a_start_event(watched):
    announced = [
        (one.trial, one.stream, one.replicate, one.env_steps)
        for event in told(watched, hpo.EvaluationStartEvent)
        for one in event.replicates
    ]
    done = [(e.trial, e.stream, e.replicate, e.env_steps) for e in watched.watcher.evaluations]
    assert sorted(announced) == sorted(done)


def test_all_callbacks_in_list_are_called(tmp_path):
    one, other = Watcher(), Watcher()
    go(tmp_path / "study", one, other)
    assert len(one.chunks) == len(other.chunks) > 0
    assert len(one.evaluations) == len(other.evaluations) > 0


@pytest.mark.parametrize(
    ("method", "at"),
    [
        ("on_chunk", 5),
        ("on_evaluation", 30),
        ("on_trial_end", 24),
        ("on_run_start", 1),
        ("on_trial_start", 20),
        ("on_chunk_start", 9),
        ("on_evaluation_start", 4),
    ],
)
def test_one_that_raises_ends_the_study_and_loses_nothing(tmp_path, unwatched, method, at):
    folder = tmp_path / "study"
    with pytest.raises(CallbackError, match=rf"Failing\.{method} raised KeyError: 'mine'") as told:
        go(folder, Failing(method, at, KeyError("mine")))
    assert isinstance(told.value, SearchError) and isinstance(told.value.__cause__, KeyError)
    with Journal(folder) as journal:
        assert journal.head().phase == "interrupted"
        assert journal.head().number == 1  # all of it came with the error
        assert sum(row.env_steps for row in journal.trials()) > 0
    assert go(folder).state == "finished"
    assert tables_equal(folder, unwatched) == []


def test_callback_can_stop_study_without_error(tmp_path, unwatched):
    folder = tmp_path / "study"
    assert go(folder, Failing("on_chunk", 7, StopStudy())).state == "interrupted"
    assert go(folder, Failing("on_run_start", 1, StopStudy())).state == "interrupted"
    assert go(folder, Failing("on_chunk_start", 3, StopStudy())).state == "interrupted"
    assert go(folder, Failing("on_run_end", 1, StopStudy())).state == "finished"
    assert tables_equal(folder, unwatched) == []


def test_batch_drawn_ahead_is_unaffected_by_stop(tmp_path):
    """Proposals drawn ahead know nothing of the trials that ended at the boundary of the stop."""
    whole = go(tmp_path / "whole", method="tpe").folder
    stops = 0
    while go(tmp_path / "often", Failing("on_chunk", 3, StopStudy()), method="tpe").state != (
        "finished"
    ):
        stops += 1
    with Journal(whole) as one, Journal(tmp_path / "often") as other:
        assert one.asks() == other.asks() and len(one.asks()) > 3
    assert stops > 5
    assert tables_equal(whole, tmp_path / "often") == []


def test_plain_class_receives_only_events_of_its_methods(tmp_path):
    class Own:
        ends = 0

        def on_trial_end(self, event):
            self.ends += 1

    own = Own()
    results = go(tmp_path / "study", own)
    assert own.ends == len(results.leaderboard) > 0


def test_callback_classes_are_exported():
    assert hpo.Callback is Callback and hpo.StopStudy is StopStudy
