"""A study that is killed, interrupted or slowed down ends with the tables of an unbroken one."""

import dataclasses
import functools
import os
import random
import signal
import threading
import time

import pytest

from helpers import search_samples as samples
from helpers.forking import forks
from hpo.errors import StoreError
from hpo.search.run import RunOptions, run
from hpo.search.samplers.proposal_queue import AskAhead, Proposer
from hpo.search.state.progress import Observer
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import EarlyTerminate, SearchSpec, Seeds

pytestmark = pytest.mark.slow

Factory = samples.AnalyticFactory

_QUANTA = {"16": 500, "32": 1_000, "64x64": 2_000}
AUDITED = EarlyTerminate("asha", 2_000, 3.0, audit=0.2)
CONFIRM = samples.Confirm(3, 3, 4)

HYPERBAND = EarlyTerminate("hyperband", 2_000, 2.0)
PLATEAU = EarlyTerminate("plateau", 2_000, patience=2, tolerance=0.1)
SMALL_GENERATIONS = SearchSpec("nsga2", options={"population_size": 8})

STUDIES = {
    "random": samples.study(method="random", confirm=CONFIRM, early_terminate=AUDITED),
    "sobol": samples.study(method="sobol", confirm=CONFIRM),
    "grid": samples.study(samples.FINITE, "grid", confirm=CONFIRM, budget=Budget(trials=None)),
    "tpe": samples.study(
        method="tpe", confirm=CONFIRM, budget=Budget(trials=40), seeds=Seeds(3, tolerate=1)
    ),
    "tpe with buckets": samples.study(
        samples.WITH_BUCKETS, "tpe", confirm=CONFIRM, budget=Budget(trials=40)
    ),
    "thompson": samples.study(
        samples.WITH_BUCKETS, "thompson", budget=Budget(trials=40), seeds=Seeds(3, tolerate=1)
    ),
    "nsga2 with hyperband": dataclasses.replace(
        samples.study(confirm=CONFIRM, budget=Budget(trials=40), early_terminate=HYPERBAND),
        search=SMALL_GENERATIONS,
    ),
    "cmaes with plateau": samples.study(
        method="cmaes", budget=Budget(trials=40), early_terminate=PLATEAU
    ),
    "budget of env steps": samples.study(
        samples.WITH_BUCKETS, "tpe", budget=Budget(trials=None, env_steps=700_000), confirm=CONFIRM
    ),
}
KILLS = 4
FACTORY = Factory(lanes=12, block=4, quanta=_QUANTA, diverges_above=0.3, chunk_seconds=0.004)


def same(one, other):
    """Return what differs between two studies: tables, decisions, batches."""
    differences = tables_equal(one, other)
    with Journal(one) as first, Journal(other) as second:
        if first.decisions() != second.decisions():
            differences.append("decisions")
        if first.asks() != second.asks():
            differences.append("asks")
    return differences


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Run a study of that name to its end, once for all tests; give its folder and chunks."""

    @functools.cache
    def run_whole(name):
        folder = tmp_path_factory.mktemp("unbroken") / "study"
        factory = dataclasses.replace(FACTORY, chunk_seconds=0.0)
        results = run(STUDIES[name], folder, factory, (), samples.quick())
        assert results.state == "finished"
        return folder, results.usage.chunks

    return run_whole


@pytest.mark.parametrize("name", STUDIES)
def test_killed_study_resumes_with_equal_tables(unbroken, tmp_path, name):
    """Killed wherever it is by then; at the latest it waits behind its share of the chunks."""
    study, broken, (whole, chunks) = STUDIES[name], tmp_path / "broken", unbroken(name)
    context, rng = forks(), random.Random(name)
    for _ in range(KILLS):
        observers = [samples.WaitAt(chunks // (KILLS + 1))]
        arguments = (study, broken, FACTORY, observers, RunOptions(commit_seconds=0.02))
        child = context.Process(target=run, args=arguments)
        child.start()
        while not (broken / "journal.sqlite").exists() and child.is_alive():
            time.sleep(0.005)
        child.join(rng.uniform(0.0, 0.35))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    results = run(study, broken, FACTORY, (), samples.quick())
    assert results.state == "finished"
    assert same(whole, broken) == []


class CutAt(Observer):
    """Asks for a clean end after some chunks, by a real signal."""

    def __init__(self, chunks, presses=1):
        self.left, self.presses, self.told = chunks, presses, 0

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            for _ in range(self.presses):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)

    def on_interrupt(self):
        self.told += 1


@pytest.mark.parametrize("name", STUDIES)
def test_interrupted_study_resumes_with_equal_tables(unbroken, tmp_path, name):
    study, factory = STUDIES[name], dataclasses.replace(FACTORY, chunk_seconds=0.0)
    whole, chunks = unbroken(name)
    rng, state, rounds = random.Random(name), "interrupted", 0
    while state == "interrupted":
        observer = CutAt(rng.randrange(1, chunks // 3))
        state = run(study, tmp_path / "broken", factory, [observer], samples.quick()).state
        assert observer.told == 1 or state == "finished"
        rounds += 1
    assert rounds >= 3
    assert same(whole, tmp_path / "broken") == []


def test_second_ctrl_c_exits_immediately_and_study_resumes(unbroken, tmp_path):
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background
    study, factory = STUDIES["tpe"], dataclasses.replace(FACTORY, chunk_seconds=0.0)
    settings = samples.quick(commit_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "broken", factory, [CutAt(20, presses=2)], settings)
    assert signal.getsignal(signal.SIGINT) is before
    with Journal(tmp_path / "broken") as journal:
        assert journal.head().number >= 20 and journal.head().phase == "running"
    run(study, tmp_path / "broken", factory, (), samples.quick())
    assert same(unbroken("tpe")[0], tmp_path / "broken") == []


def test_study_runs_outside_main_thread(tmp_path):
    found = []
    study = samples.study(budget=Budget(trials=4))
    thread = threading.Thread(
        target=lambda: found.append(run(study, tmp_path / "s", Factory(), (), samples.quick()))
    )
    thread.start()
    thread.join()
    assert found[0].state == "finished"


def test_commit_times_do_not_change_results(unbroken, tmp_path):
    study, factory = STUDIES["tpe with buckets"], dataclasses.replace(FACTORY, chunk_seconds=0.0)
    run(study, tmp_path / "always", factory, (), samples.quick(commit_seconds=0.0))
    assert same(unbroken("tpe with buckets")[0], tmp_path / "always") == []


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_slow_proposals_do_not_change_results(unbroken, tmp_path, monkeypatch, seconds):
    study, (plain, _) = STUDIES["tpe"], unbroken("tpe")
    threads = set()
    quick = Proposer.propose

    def slow(self, batch, trials, history):
        threads.add(threading.current_thread().name)
        time.sleep(seconds)
        return quick(self, batch, trials, history)

    monkeypatch.setattr(Proposer, "propose", slow)
    factory = dataclasses.replace(FACTORY, chunk_seconds=0.01 if not seconds else 0.0)
    run(study, tmp_path / "slow", factory, (), samples.quick())
    assert len(threads) == 2, "some batches are drawn beside the chunk, some in the loop's time"
    assert same(plain, tmp_path / "slow") == []


def test_a_batch_is_joined_before_the_next_begins():
    class Slow:
        def propose(self, batch, trials, history):
            return batch

    ahead = AskAhead(Slow())
    with pytest.raises(RuntimeError, match="no batch"):
        ahead.join()
    ahead.start(3, [1], [])
    with pytest.raises(RuntimeError, match="already"):
        ahead.start(4, [2], [])
    assert ahead.join() == 3
    ahead.close()


def test_sampler_errors_propagate(tmp_path, monkeypatch):
    quick = Proposer.propose

    def broken(self, batch, trials, history):
        if batch == 2:
            raise ZeroDivisionError("in the sampler")
        return quick(self, batch, trials, history)

    monkeypatch.setattr(Proposer, "propose", broken)
    with pytest.raises(ZeroDivisionError):
        run(samples.study(), tmp_path / "s", Factory(lanes=4), (), samples.quick())


def test_missing_lane_files_are_reported(tmp_path):
    study, factory = STUDIES["random"], dataclasses.replace(FACTORY, chunk_seconds=0.0)
    run(study, tmp_path / "s", factory, [CutAt(5)], samples.quick())
    with Journal(tmp_path / "s") as journal:
        name = journal.head().checkpoint
    for path in (tmp_path / "s" / "checkpoints" / name).iterdir():
        path.rename(path.with_name("elsewhere"))
    with pytest.raises(StoreError, match=r"has no lanes in .* for the program"):
        run(study, tmp_path / "s", factory, (), samples.quick())


def test_resume_with_changed_program_is_refused(tmp_path):
    study, factory = STUDIES["random"], dataclasses.replace(FACTORY, chunk_seconds=0.0)
    run(study, tmp_path / "s", factory, [CutAt(5)], samples.quick())

    class Other(Factory):
        def resolve(self, config):
            return dataclasses.replace(super().resolve(config), bucket="other")

    with pytest.raises(StoreError, match="would now be compiled as other"):
        run(study, tmp_path / "s", Other(), (), samples.quick())


def test_the_store_is_free_again_after_an_error(tmp_path):
    study = samples.study(budget=Budget(trials=4))

    class Watcher(Observer):
        def on_chunk(self, progress):
            raise ValueError("in a view")

    with pytest.raises(ValueError, match="in a view"):
        run(study, tmp_path / "s", Factory(), [Watcher()], samples.quick())
    assert run(study, tmp_path / "s", Factory(), (), samples.quick()).state == "finished"
