"""The time left, against the truth: whole searches under a clock that the lanes themselves set."""

import dataclasses
import itertools
import math
import random
import statistics
import time
from types import SimpleNamespace

import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticPopulation
from hpo.search.run import run
from hpo.search.state.loop_state import Phase
from hpo.search.state.progress import Observer
from hpo.search.state.remaining_work import Ahead, Rates, RemainingWork, Work, chances_to_pass
from hpo.search.state.schedule import CLEARLY_BELOW, EventSchedule
from hpo.search.state.trials import Trial
from hpo.search.state.usage import Usage
from hpo.store import StudyStore
from hpo.store.journal import Journal
from hpo.store.rows import TrialState
from hpo.studies.search_spec import Racing, Seeds
from hpo.views.time_spent import usage_at


class Clock:
    """What `time` says; only lanes let it go on."""

    now = 1000.0

    def __call__(self):
        return self.now


class TimedPopulation(AnalyticPopulation):
    """A busy block of a chunk takes a second, a compile 20, an evaluation 2 for each block."""

    def compile(self):
        if not self.compiles:
            self._factory.clock.now += 20.0
        super().compile()

    def advance(self, refills, busy):
        blocks = len({lane // self.block for lane in busy})
        took = blocks * self._factory.chunk_cost * self.steps_per_chunk / 1000
        self._factory.clock.now += took
        return dataclasses.replace(super().advance(refills, busy), seconds=took)

    def evaluate(self, lanes):
        self._factory.clock.now += 2.0 * math.ceil(len(lanes) / self.block)
        return super().evaluate(lanes)


@dataclasses.dataclass(frozen=True)
class TimedFactory(samples.AnalyticFactory):
    clock: Clock = dataclasses.field(default_factory=Clock)
    chunk_cost: float = 1.0

    def make(self, resolved, lanes):
        return TimedPopulation(self, resolved.steps_per_chunk, lanes or self.lanes)


class Watch(Observer):
    """Keeps every picture with the time it was seen."""

    def __init__(self, clock):
        self.clock, self.seen = clock, []

    def on_chunk(self, progress):
        self.seen.append((self.clock.now, progress))


CONFIRM = samples.Confirm(top_k=3, choose=6, report=12)
STUDIES = {
    "asha": {"confirm": CONFIRM, "budget": samples.Budget(trials=64)},
    "asha, nothing confirmed": {"budget": samples.Budget(trials=96)},
    "hyperband": {"early_terminate": samples.EarlyTerminate("hyperband", 2_000, 3.0)},
    "median": {
        "early_terminate": samples.EarlyTerminate("median", 2_000, 3.0),
        "confirm": CONFIRM,
    },
    "nobody is stopped": {"early_terminate": None, "confirm": CONFIRM},
    "buckets": {
        "space": samples.WITH_BUCKETS,
        "budget": samples.Budget(trials=64),
        "confirm": CONFIRM,
    },
    "env steps alone": {
        "budget": samples.Budget(trials=None, env_steps=1_000_000),
        "confirm": CONFIRM,
    },
    "racing": {
        "seeds": Seeds(8, racing=Racing(2)),
        "early_terminate": None,
        "budget": samples.Budget(trials=32),
    },
    "pbt": {
        "early_terminate": samples.EarlyTerminate("pbt", every=2_000),
        "budget": samples.Budget(trials=16),
        "confirm": CONFIRM,
    },
}


def study_of(name):
    return samples.study(**{"budget": samples.Budget(trials=48), **STUDIES[name]})


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, found)
    return found


def watched(study, folder, clock, **changes):
    lanes = 32 if study.early_terminate and study.early_terminate.evolves else 16
    quanta = {"16": 500, "32": 1000, "64x64": 2000}
    factory = TimedFactory(lanes=lanes, block=4, quanta=quanta, clock=clock, **changes)
    watch = Watch(clock)
    results = run(study, folder, factory, [watch], samples.quick())
    assert results.state == "finished"
    return watch.seen, results


@pytest.mark.parametrize("name", STUDIES)
def test_time_left_is_accurate_and_steady(name, tmp_path, clock):
    """From a fifth of the time on: within a factor of 1.5 there, and the end promised is steady.

    In shares of the whole time, the end that is promised is never more than a quarter from the
    truth (0.3 where seeds race), moves by at most 0.2 between two looks, and usually by 0.025.
    """
    seen, _ = watched(study_of(name), tmp_path / "s", clock)
    end, began = clock.now, 1000.0
    ends = [(at, at + shown.seconds_left) for at, shown in seen if shown.seconds_left is not None]
    assert ends[0][0] == seen[0][0], "there is an estimate behind the first chunk"
    fifth = [
        (at, promised) for at, promised in ends if 0.2 <= (at - began) / (end - began) <= 0.95
    ]
    at, promised = fifth[0]
    assert 1 / 1.5 < (promised - at) / (end - at) < 1.5
    most = 0.3 if name == "racing" else 0.25
    assert max(abs(promised - end) for _, promised in fifth) < most * (end - began)
    jumps = [abs(later - earlier) for (_, earlier), (_, later) in itertools.pairwise(fifth)]
    assert max(jumps) < 0.2 * (end - began)
    assert statistics.median(jumps) < 0.025 * (end - began)


def test_time_left_includes_confirm_stage_from_start(tmp_path, clock):
    study = study_of("asha")
    plain, _ = watched(dataclasses.replace(study, confirm=None), tmp_path / "plain", clock)
    with_confirm, _ = watched(study, tmp_path / "confirmed", clock)
    cost = 16 * 16.0 / 4 * 2 + 6.0  # 18 + 12 full runs in blocks of 4, and their evaluations
    more = with_confirm[0][1].seconds_left - plain[0][1].seconds_left
    assert 0.5 * cost < more < 2.0 * cost
    at_search_end = [shown for _, shown in with_confirm if shown.phase is Phase.SEARCH][-1]
    assert at_search_end.seconds_left > 0.5 * cost and at_search_end.share < 0.9


def test_resumed_study_measures_its_speed_again(tmp_path, clock):
    """A life that was four times as slow says nothing of this one."""
    study = study_of("nobody is stopped")

    class Enough(Exception):
        pass

    class Stops(Watch):
        def on_chunk(self, progress):
            super().on_chunk(progress)
            if len(self.seen) == 20:
                raise Enough

    slow = TimedFactory(lanes=16, block=4, clock=clock, chunk_cost=4.0)
    with pytest.raises(Enough):
        run(study, tmp_path / "s", slow, [Stops(clock)], samples.quick(commit_seconds=0.0))
    clock.now += 3600.0
    seen, results = watched(study, tmp_path / "s", clock)
    first_at, first = seen[0]
    assert first.env_steps_per_second == pytest.approx(16 * 1000 / 4.0, rel=0.3)
    assert first.seconds_left == pytest.approx(clock.now - first_at, rel=0.25)
    assert results.usage.run_seconds < 3600.0


def test_a_machine_that_slows_down_makes_the_time_left_longer(tmp_path, clock):
    study = study_of("nobody is stopped")
    factory = TimedFactory(lanes=16, block=4, clock=clock)

    class Slows(Watch):
        def on_chunk(self, progress):
            super().on_chunk(progress)
            if len(self.seen) == 20:
                object.__setattr__(factory, "chunk_cost", 8.0)

    watch = Slows(clock)
    run(study, tmp_path / "s", factory, [watch], samples.quick())
    at, shown = watch.seen[60]
    assert shown.seconds_left > watch.seen[19][1].seconds_left
    assert shown.seconds_left == pytest.approx(clock.now - at, rel=0.3)


def test_a_wall_budget_bounds_the_time_left(tmp_path, clock):
    budget = samples.Budget(trials=None, wall_seconds=300.0)
    study = samples.study(budget=budget, early_terminate=None)
    seen, _ = watched(study, tmp_path / "s", clock)
    assert all(shown.seconds_left <= max(0.0, 300.0 - shown.seconds) for _, shown in seen)
    assert seen[len(seen) // 2][1].seconds_left > 50.0


@pytest.mark.parametrize("name", ["asha", "buckets", "racing"])
def test_time_parts_sum_to_run_time(name, tmp_path, clock):
    began = clock.now
    _, results = watched(study_of(name), tmp_path / "s", clock)
    parts, usage = results.usage.seconds_by_part, results.usage
    assert sum(parts.values()) == pytest.approx(usage.run_seconds)
    assert usage.run_seconds == pytest.approx(clock.now - began)
    programs = 3 if name == "buckets" else 1
    assert parts["compile"] == pytest.approx(20.0 * programs)
    assert parts["train"] > 0.0 and parts["evaluate"] > 0.0
    assert parts["between"] == pytest.approx(0.0, abs=1e-6), "only lanes let this clock go on"


def test_rates_forget_old_chunks_and_exclude_compile_time():
    rates, usage = Rates(), Usage(run_seconds=5000.0, chunk_seconds=4000.0)
    rates.begin(usage)
    ahead = Ahead(Work(10_000.0, 1_000.0, 10.0), 2.0)
    assert rates.seconds_of(ahead) is None and rates.env_steps_per_second == 0.0

    def boundary(train, evaluate=0.0, compiling=0.0, compiled=1):
        usage.count_part("compile", compiling)
        usage.count_part("evaluate", evaluate)
        usage.count_seconds(train)
        usage.count_wall(train + evaluate + compiling)
        usage.search_env_steps += 1_000
        rates.did(Work(block_steps=100.0, evaluations=1.0 if evaluate else 0.0))
        rates.pass_boundary(usage, compiled)

    boundary(2.0, 0.5, compiling=30.0)
    assert rates.seconds_of(ahead) == pytest.approx(10 * 2.0 + 10 * 0.5 + 2 * 30.0)
    assert rates.env_steps_per_second == pytest.approx(1_000 / 2.5)
    for _ in range(2000):
        boundary(1.0)
    assert rates.seconds_of(Ahead(Work(0.0, 1_000.0), 0.0)) == pytest.approx(10.0, rel=0.01)


def test_pauses_between_chunks_are_part_of_the_time_left():
    rates, usage = Rates(), Usage()
    rates.begin(usage)
    usage.count_seconds(6.0)
    usage.count_part("evaluate", 2.0)
    usage.count_part("store", 1.0)
    usage.count_wall(6.0 + 2.0 + 1.0 + 3.0)  # 3 s of which no part is known
    usage.search_env_steps = 1_200
    rates.did(Work(block_steps=100.0, evaluations=4.0))
    rates.pass_boundary(usage, 1)
    assert rates.env_steps_per_second == pytest.approx(1_200 / 12.0)
    assert rates.seconds_of(Ahead(Work(0.0, 200.0, 8.0), 0.0)) == pytest.approx(2 * 12.0)
    # Without evaluations ahead the pauses keep their share: half of the time they lie between.
    assert rates.seconds_of(Ahead(Work(0.0, 200.0), 0.0)) == pytest.approx(2 * 6.0 * 1.5)


def slow_from_here(schedule, chances, trained, trials, draws=4000):
    """Many replicates, each drawn through the rungs on its own; the last of some counts."""
    rng, totals = random.Random(7), []
    for _ in range(draws):
        longest = 0
        for _ in range(trials):
            end = schedule.length
            for rung, at in enumerate(schedule.rungs):
                if at > trained and rng.random() >= chances[rung]:
                    end = at
                    break
            longest = max(longest, end - trained)
        totals.append(longest)
    return statistics.fmean(totals)


@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("trained", [0, 2, 5])
def test_expected_remaining_chunks_equal_simulation(trained, trials):
    schedule = EventSchedule(1000, 16, (2, 8), frozenset({2, 4, 8, 12, 16}))
    chances, bucket = (0.3, 0.6), SimpleNamespace(schedule=schedule, warmup=0)
    ends = [
        RemainingWork._replicate_end(None, bucket, chances, trained, number)[0]
        for number in range(3000)
    ]
    numbers = random.Random(1).sample(range(3000), 3000)
    groups = [numbers[at : at + trials] for at in range(0, 3000, trials)]
    chunks = statistics.fmean(max(ends[number] for number in group) for group in groups)
    assert chunks == pytest.approx(slow_from_here(schedule, chances, trained, trials), rel=0.06)


def test_final_usage_equals_last_commit(tmp_path, clock, monkeypatch):
    """Publishing behind the last commit takes time that no commit holds."""
    publish = StudyStore.publish

    def slow(store, **given):
        clock.now += 7.0
        return publish(store, **given)

    monkeypatch.setattr(StudyStore, "publish", slow)
    _, results = watched(study_of("asha"), tmp_path / "s", clock)
    with Journal(tmp_path / "s") as journal:
        assert results.usage == usage_at(journal.head())


@pytest.mark.parametrize("population", [None, object()])
def test_program_without_population_uses_default_block(population):
    """After a resume or an error a bucket knows its lanes, but not yet the block of them."""
    ahead = SimpleNamespace(_block=16)
    block = 16 if population is not None else 1
    bucket = SimpleNamespace(
        population=population, block=block, lanes=64, schedule=SimpleNamespace(quantum=10)
    )
    work = RemainingWork._in_lanes(ahead, bucket, [(3, 0, 1)] * 64)
    assert (work.env_steps, work.block_steps) == (64 * 3 * 10, 4 * 3 * 10)


def test_trials_ended_by_racing_count_as_past_the_last_rung():
    """They counted as ended at it, so fewer trials were expected to pass."""
    words = (f"{CLEARLY_BELOW} trial 1 on 3 seeds", "plateau")
    raced, level = (
        Trial(0, TrialState.FINISHED, "tpe", 0, "b", {}, reports=[1.0, 1.0], stop_rule=rule)
        for rule in words
    )
    assert chances_to_pass([raced], (1.0, 1.0)) == (1.0, 1.0)
    assert chances_to_pass([level], (1.0, 1.0)) == (1.0, 12.0 / 13.0)
