"""Fresh seeds that diverged have their result; those that failed run again if asked for."""

import dataclasses
import json

import pytest

from helpers import search_samples as samples
from hpo.search.run import run
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Seeds

CONFIRM = samples.Confirm(3, 3, 5)
STUDY = samples.study(
    early_terminate=None, budget=Budget(trials=6), seeds=Seeds(1), confirm=CONFIRM
)


@dataclasses.dataclass(frozen=True)
class Losing(samples.AnalyticFactory):
    """Some replicates of one stream diverge, or fail, in a chunk."""

    stream: Stream = Stream.CHOOSE
    lost: tuple[int, ...] = (1,)
    chunk: int = 9
    fails: str = ""  # why; "" if they diverge
    among: str = "all"
    seen: list[tuple[str, int]] = dataclasses.field(default_factory=list)

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        step, advance = made.train_chunk, made.advance

        def is_lost(lane):
            default = lane.payload["learning_rate"] == 3e-4
            hit = lane.stream is self.stream and lane.replicate in self.lost
            return hit and lane.chunks >= self.chunk and (default or self.among == "all")

        def watched(refills, busy):
            self.seen.extend((str(one.stream), one.replicate) for one in refills)
            result = advance(refills, busy)
            failed = {index: self.fails for index in busy if is_lost(made.lane_at(index))}
            return dataclasses.replace(result, failed=failed) if self.fails else result

        made.advance = watched
        if not self.fails:
            made.train_chunk = lambda lane: bool(step(lane)) or is_lost(lane)
        return made


def go(folder, study=STUDY, factory=None, *observers, **settings):
    factory = factory or Losing(lanes=8)
    return run(study, folder, factory, observers, samples.quick(**settings))


def grown(report, choose=3, top_k=3, **changes):
    return dataclasses.replace(STUDY, confirm=samples.Confirm(top_k, choose, report), **changes)


def rows_of(folder):
    """Return what the trials measured; candidates of an earlier attempt stay on test seeds."""
    facts = ("trial", "state", "value", "choose_values", "report_values", "report_diverged")
    with Journal(folder) as journal:
        return [{name: getattr(row, name) for name in facts} for row in journal.trials()]


@pytest.mark.parametrize("stream", [Stream.CHOOSE, Stream.REPORT])
def test_a_diverged_seed_does_not_run_again_when_the_study_is_reopened(tmp_path, stream):
    first = go(tmp_path, factory=Losing(lanes=8, stream=stream, among="default"))
    again = Losing(lanes=8, stream=stream, among="default")
    later = go(tmp_path, grown(7), again)
    with Journal(tmp_path) as journal:
        tested = sum(bool(row.report_values) for row in journal.trials())
    spent = later.usage.confirm_env_steps - first.usage.confirm_env_steps
    assert spent == tested * 2 * 16_000
    assert sorted(again.seen) == [("report", 5)] * tested + [("report", 6)] * tested


@pytest.mark.parametrize("stream", [Stream.CHOOSE, Stream.REPORT])
def test_a_diverged_seed_does_not_run_again_after_more_trials(tmp_path, stream):
    go(tmp_path, factory=Losing(lanes=8, stream=stream))
    again = Losing(lanes=8, stream=stream)
    go(tmp_path, grown(5, budget=Budget(trials=7)), again)
    with Journal(tmp_path) as journal:
        new = {row.trial for row in journal.trials() if row.trial >= 6}
    fresh = [one for one in again.seen if one[0] == str(stream)]
    assert len(fresh) <= len(new) * (3 if stream is Stream.CHOOSE else 5)


@pytest.mark.parametrize("stream", [Stream.CHOOSE, Stream.REPORT])
def test_diverged_seed_does_not_run_again_after_interruption(tmp_path, stream):
    """Its trial has no values on these seeds, so that no row of it names the seed."""
    chunks = {Stream.CHOOSE: 16 + 5, Stream.REPORT: 2 * 16 + 5}
    factory = Losing(lanes=24, stream=stream, chunk=3)
    first = go(tmp_path, STUDY, factory, samples.CutAt(chunks[stream]))
    assert first.state == "interrupted" and (str(stream), 1) in factory.seen
    again = Losing(lanes=24, stream=stream, chunk=3)
    go(tmp_path, grown(6, choose=4), again)
    assert (str(stream), 0) in again.seen and (str(stream), 1) not in again.seen


@pytest.mark.parametrize("stream", [Stream.CHOOSE, Stream.REPORT])
def test_failed_seed_runs_again_with_retry_failed(tmp_path, stream):
    whole = go(tmp_path / "whole", factory=Losing(lanes=8, lost=()))
    broken = Losing(lanes=8, stream=stream, fails="licence server does not answer")
    go(tmp_path / "study", factory=broken)
    told = []
    nothing_lost = Losing(lanes=8, lost=())
    results = go(tmp_path / "study", STUDY, nothing_lost, retry_failed=True, warn=told.append)
    assert told == [
        "no search trial has failed; rerunning missing test seeds",
    ]
    assert nothing_lost.seen
    assert results.best.trial == whole.best.trial
    tables = [rows_of(tmp_path / name) for name in ("whole", "study")]
    assert tables[0] == tables[1]
    told.clear()
    go(tmp_path / "study", STUDY, nothing_lost, retry_failed=True, warn=told.append)
    assert told == ["no search trial has failed"]


@pytest.mark.parametrize("fails", ["", "licence server does not answer"])
def test_only_a_failed_run_on_a_test_seed_is_called_failed(tmp_path, fails):
    factory = Losing(lanes=8, stream=Stream.REPORT, fails=fails, among="default")
    found = go(tmp_path, factory=factory).conclusion
    assert bool(found.failed) == bool(fails)


def test_default_that_diverged_in_search_and_test_has_not_failed(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Diverging(samples.AnalyticFactory):
        def make(self, resolved, lanes):
            made = super().make(resolved, lanes)
            step = made.train_chunk
            made.train_chunk = lambda lane: (
                bool(step(lane)) or lane.payload["learning_rate"] == 3e-4
            )
            return made

    found = go(tmp_path, factory=Diverging(lanes=8)).conclusion
    assert found.against.diverged == 5 and found.failed == ()


def test_retry_failed_ignores_diverged_seeds(tmp_path):
    """Neither one of the search, which the study tolerates, nor a fresh one."""
    study = dataclasses.replace(STUDY, seeds=Seeds(2, tolerate=1))
    go(tmp_path, study, samples.LosingFactory(lanes=8, replicate=1, chunk=9))
    told = []
    factory = samples.LosingFactory(lanes=8, replicate=1, chunk=9)
    go(tmp_path, study, factory, retry_failed=True, warn=told.append)
    assert told == ["no search trial has failed"]


def test_study_with_lost_seeds_equals_itself_after_interruptions(tmp_path):
    study = dataclasses.replace(STUDY, seeds=Seeds(2, tolerate=1))

    def lanes():
        return samples.LosingFactory(lanes=8, replicate=1, chunk=9)

    go(tmp_path / "whole", study, lanes())
    for _ in range(100):
        results = go(tmp_path / "broken", study, lanes(), samples.CutAt(5))
        if results.state == "finished":
            break
    assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []
    lost = []
    for name in ("whole", "broken"):
        with Journal(tmp_path / name) as journal:
            lost.append(json.loads(journal.head().loop_state)["lost"])
    assert lost[0] == lost[1] and lost[0]


@pytest.mark.parametrize("stream", [Stream.CHOOSE, Stream.REPORT])
def test_repeated_retry_failed_does_not_restart(tmp_path, stream):
    """The same command, with the flag, repeated after each interruption."""
    for name in ("whole", "broken"):
        broken = Losing(lanes=3, stream=stream, fails="licence server does not answer")
        go(tmp_path / name, factory=broken)
    go(tmp_path / "whole", STUDY, Losing(lanes=3, lost=()), retry_failed=True)
    for _ in range(60):
        cut = samples.CutAt(4)
        found = go(tmp_path / "broken", STUDY, Losing(lanes=3, lost=()), cut, retry_failed=True)
        if found.state == "finished":
            break
    assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []
