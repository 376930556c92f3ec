"""What sinks read: points of the best trials, each once, whatever was published when."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from helpers.episodes import evaluation
from hpo.search.lanes.contract import EvaluationResult
from hpo.search.state.objective import measure
from hpo.store import (
    EvaluationRow,
    Stream,
    StudyFolder,
    StudyMeta,
    StudyStore,
    TrialRow,
    TrialState,
)
from hpo.store.follow import Follower, LoggedPoint, News, SinkProgress, block_means
from hpo.studies.study_keys import METRICS

SPREADS = ("_median", "_min", "_max", "_std")

Make = Callable[..., TrialRow]


class Story:
    """A study written bit by bit: `chunk` and `evaluate` for a replicate, `commit` for trials."""

    def __init__(self, store: StudyStore) -> None:
        self.store = store
        self.evaluations: list[EvaluationRow] = []

    def chunk(self, trial: int, replicate: int, env_steps: int, value: float) -> None:
        columns = {"episode_return": [value], "loss": [2 * value]}
        self.store.curves.add_chunk([trial], [Stream.SEARCH], [replicate], [env_steps], columns)

    def confirm_chunk(self, trial: int, env_steps: int) -> None:
        columns = {"episode_return": [-1.0], "loss": [-1.0]}
        self.store.curves.add_chunk([trial], [Stream.CHOOSE], [0], [env_steps], columns)

    def evaluate(self, trial: int, replicate: int, env_steps: int, *returns: float) -> None:
        self.evaluations.append(evaluation(trial, replicate, env_steps, [*returns], 7, load=1))

    def commit(self, *trials: TrialRow) -> Path:
        self.store.commit(
            loop_state="{}", checkpoint=None, trials=trials, evaluations=self.evaluations
        )
        self.evaluations = []
        self.store.publish(force=True)
        return self.store.folder.path


@pytest.fixture
def story(folder: StudyFolder, meta: StudyMeta):
    with StudyStore(folder, meta) as store:
        yield Story(store)


def running(make_trial: Make, trial: int) -> TrialRow:
    return make_trial(trial, TrialState.RUNNING, value=None)


def test_curve_point_is_published_once_all_seeds_have_values(
    story: Story, make_trial: Make
) -> None:
    follower, mark = Follower(seeds=2, planned=1), SinkProgress()
    story.chunk(0, 0, 10, 1.0)
    story.chunk(0, 0, 20, 2.0)
    story.chunk(0, 1, 10, 3.0)
    (news,) = follower.news(story.commit(running(make_trial, 0)), mark).trials
    assert [point.env_steps for point in news.points] == [10]
    assert news.points[0].values == {
        "train/episode_return": 2.0,
        "train/loss": 4.0,
        "seeds/0": 1.0,
        "seeds/1": 3.0,
    }
    assert not news.ended
    assert follower.news(story.store.folder.path, mark).trials == ()

    story.chunk(0, 1, 20, 4.0)
    story.chunk(0, 0, 30, 9.0)  # the other replicate never gets there
    (news,) = follower.news(story.commit(make_trial(0, value=5.0)), mark).trials
    assert [(p.env_steps, p.values["train/episode_return"]) for p in news.points] == [
        (20, 3.0),
        (30, 9.0),
    ]
    assert news.ended and news.row["value"] == 5.0 and news.params["activation"] == "tanh"
    assert follower.news(story.store.folder.path, mark, final=True).trials == ()


def test_evaluation_points_average_episodes_and_seeds(story: Story, make_trial: Make) -> None:
    follower, mark = Follower(seeds=2, planned=1), SinkProgress()
    story.evaluate(0, 0, 10, 1.0, 3.0)
    path = story.commit(running(make_trial, 0))
    assert follower.news(path, mark).trials == ()
    story.evaluate(0, 1, 10, 5.0, 7.0)
    (news,) = follower.news(story.commit(), mark).trials
    (point,) = news.points
    means = {name: x for name, x in point.values.items() if not name.endswith(SPREADS)}
    assert point.env_steps == 10
    assert means == {"eval/return_mean": 4.0, "eval/length_mean": 7.0, "eval/load": 1.0}
    assert follower.news(path, mark).trials == ()


def test_the_spread_of_evaluations_is_the_mean_of_the_replicates_metrics(
    story: Story, make_trial: Make
) -> None:
    """Each has the name and the value of the metric that a study may optimise."""
    given = {0: (1.0, 3.0, 8.0), 1: (5.0, -7.0, math.inf)}
    for replicate, returns in given.items():
        story.evaluate(0, replicate, 10, *returns)
    path = story.commit(running(make_trial, 0))
    (news,) = Follower(seeds=2, planned=1).news(path, SinkProgress()).trials
    shown = news.points[0].values
    assert {f"eval/{part}{word}" for part in ("return", "length") for word in SPREADS} < set(shown)
    for word in SPREADS:
        name = f"eval/return{word}"
        assert name in METRICS and f"eval/length{word}" in METRICS
        each = []
        for returns in given.values():
            finite = np.array([x for x in returns if math.isfinite(x)])
            each.append(measure(name, EvaluationResult(finite, np.full(len(finite), 7), {})))
        assert shown[name] == pytest.approx(sum(each) / 2, rel=1e-12), name
    assert shown["eval/return_min"] == (1.0 - 7.0) / 2 and shown["eval/length_std"] == 0.0


def test_points_are_averaged_in_blocks_with_a_short_last_one(
    story: Story, make_trial: Make
) -> None:
    follower, mark = Follower(every=3, planned=1), SinkProgress()
    seen: list[LoggedPoint] = []
    for index in range(7):
        story.chunk(0, 0, 10 * (index + 1), math.nan if index == 1 else float(index))
        path = story.commit(running(make_trial, 0))
        seen += [p for news in follower.news(path, mark).trials for p in news.points]
    path = story.commit(make_trial(0, value=1.0))
    seen += [p for news in follower.news(path, mark).trials for p in news.points]
    values = [(p.env_steps, p.values["train/episode_return"]) for p in seen]
    assert values == [(30, 1.0), (60, 4.0), (70, 6.0)]  # (0, 2), (3, 4, 5), (6)


def test_block_means_handles_small_and_large_blocks() -> None:
    points = [LoggedPoint(step, {"a": float(step)}) for step in range(1, 6)]
    assert block_means(points, 1) == points
    assert block_means(points, 99) == [LoggedPoint(5, {"a": 3.0})]
    assert block_means([], 4) == []


def test_top_k_trials_are_published_when_finished(story: Story, make_trial: Make) -> None:
    follower, mark = Follower(top_k=2, planned=100), SinkProgress()
    for trial in range(5):
        story.chunk(trial, 0, 10, float(trial))
    path = story.commit(*(running(make_trial, trial) for trial in range(5)))
    assert follower.news(path, mark).trials == ()
    path = story.commit(make_trial(1, value=1.0), make_trial(3, TrialState.STOPPED, value=None))
    assert [news.trial for news in follower.news(path, mark).trials] == [1]
    path = story.commit(make_trial(2, value=2.0), make_trial(4, value=4.0))
    assert [news.trial for news in follower.news(path, mark).trials] == [4, 2]
    assert follower.news(path, mark).trials == ()
    path = story.commit(make_trial(0, value=0.0))  # not among the best two
    (late,) = follower.news(path, mark, final=True).trials
    assert (late.trial, late.points, late.row["rank"]) == (1, (), 3)  # the first as it ended


def test_stopped_trials_complete_the_final_top_k(story: Story, make_trial: Make) -> None:
    follower, mark = Follower(top_k=3, planned=100), SinkProgress()
    rows = [
        make_trial(0, value=1.0),
        make_trial(1, TrialState.STOPPED, value=None, rung=0, rung_value=5.0),
        make_trial(2, TrialState.FAILED, value=None),
    ]
    for trial in range(3):
        story.chunk(trial, 0, 10, 1.0)
    path = story.commit(*rows)
    assert [news.trial for news in follower.news(path, mark).trials] == [0]
    assert [news.trial for news in follower.news(path, mark, final=True).trials] == [1]


def test_curves_exclude_confirm_seeds(story: Story, make_trial: Make) -> None:
    story.chunk(0, 0, 10, 1.0)
    story.confirm_chunk(0, 10)
    story.confirm_chunk(0, 20)
    (news,) = Follower().news(story.commit(make_trial(0, value=1.0)), SinkProgress()).trials
    assert [(p.env_steps, p.values["train/loss"]) for p in news.points] == [(10, 2.0)]


def test_trial_counts_and_endings_are_published_once(story: Story, make_trial: Make) -> None:
    follower, mark = Follower(), SinkProgress()
    rows = [running(make_trial, 0), make_trial(1, value=3.0, env_steps=40)]
    news = follower.news(story.commit(*rows), mark)
    assert news.states == {"finished": 1, "running": 1} and news.best == 3.0
    assert news.env_steps == 40 and [row["trial"] for row in news.ended] == [1]
    path = story.commit(make_trial(0, value=4.0, env_steps=2))
    news = follower.news(path, mark)
    assert [row["trial"] for row in news.ended] == [0]
    assert news.best == 4.0 and news.env_steps == 42 and list(news.table["trial"]) == [0, 1]


def test_confirmed_trial_is_published_again(story: Story, make_trial: Make) -> None:
    follower, mark = Follower(planned=2), SinkProgress()
    ended = make_trial(0, value=1.0), make_trial(1, value=2.0)
    assert len(follower.news(story.commit(*ended), mark).trials) == 2
    confirmed = make_trial(1, value=2.0, choose_values=(1.5, 1.7), report_values=(1.4, 1.6))
    path = story.commit(ended[0], confirmed)
    assert follower.news(path, mark).trials == ()
    (news,) = follower.news(path, mark, final=True).trials
    assert (news.trial, news.ended, news.points) == (1, True, ())
    assert (news.row["state"], news.row["value"]) == ("confirmed", 1.5)
    assert follower.news(path, mark, final=True).trials == ()


def test_reference_default_is_not_counted_as_search_trial(story: Story, make_trial: Make) -> None:
    apart = make_trial(-1, TrialState.REFERENCE, value=None, report_values=(1.0, 2.0))
    path = story.commit(make_trial(0, value=3.0), apart)
    news = Follower(planned=1).news(path, SinkProgress(), final=True)
    assert [one.trial for one in news.trials] == [row["trial"] for row in news.ended] == [0]
    assert news.states == {"finished": 1} and list(news.table["trial"]) == [0, -1]


def test_saved_mark_prevents_duplicate_publication(
    story: Story, make_trial: Make, tmp_path: Path
) -> None:
    story.chunk(0, 0, 10, 1.0)
    path = story.commit(running(make_trial, 0))
    first = SinkProgress()
    assert len(Follower(planned=1).news(path, first).trials) == 1
    first.kept["id"] = "abc"
    first.write(tmp_path, "some")
    again = SinkProgress.read(tmp_path, "some")
    assert vars(again) == vars(first)
    assert Follower(planned=1).news(path, again).trials == ()
    assert vars(SinkProgress.read(tmp_path, "other")) == vars(SinkProgress())


def steps_of(news: News) -> list[int]:
    return [point.env_steps for one in news.trials for point in one.points]


def test_an_extended_trial_is_followed_to_its_new_end(story: Story, make_trial: Make) -> None:
    follower, mark = Follower(planned=1), SinkProgress()
    for env_steps in (10, 20):
        story.chunk(0, 0, env_steps, 1.0)
    story.evaluate(0, 0, 20, 5.0)
    path = story.commit(make_trial(0, value=5.0))
    assert steps_of(follower.news(path, mark)) == [10, 20, 20]
    assert follower.reopen(path, mark) == [] and mark.done == [0]  # nothing has changed

    for env_steps in (30, 40):
        story.chunk(0, 0, env_steps, 2.0)
    story.evaluate(0, 0, 40, 6.0)
    path = story.commit(make_trial(0, value=6.0))
    assert follower.reopen(path, mark) == [] and mark.done == []
    news = follower.news(path, mark)
    assert steps_of(news) == [30, 40, 40]
    assert [row["value"] for row in news.ended] == [6.0]
    assert follower.reopen(path, mark) == [] and mark.done == [0]


@pytest.mark.parametrize("seen_running", [False, True])
def test_a_trial_that_starts_over_is_followed_from_its_start(
    story: Story, make_trial: Make, seen_running: bool
) -> None:
    follower, mark = Follower(planned=2), SinkProgress()
    story.chunk(0, 0, 10, 1.0)
    story.chunk(0, 0, 20, 1.0)
    path = story.commit(make_trial(0, TrialState.FAILED, value=None), make_trial(1, value=9.0))
    news = follower.news(path, mark)
    assert steps_of(news) == [10, 20]

    story.store.curves.drop([0])
    if seen_running:
        assert follower.reopen(story.commit(running(make_trial, 0)), mark) == [0]
    for env_steps in (10, 20, 30):
        story.chunk(0, 0, env_steps, 2.0)
    path = story.commit(make_trial(0, value=5.0))
    assert follower.reopen(path, mark) == [0] * (not seen_running)
    news = follower.news(path, mark)
    assert steps_of(news) == [10, 20, 30]
    assert [row["trial"] for row in news.ended] == [0]  # its value is new
    assert follower.reopen(path, mark) == []
