from helpers.analytic_lanes import AnalyticFactory
from hpo.search.state.buckets import Bucket, next_bucket
from hpo.search.state.schedule import EventSchedule
from hpo.search.state.trials import Replicate, RunState
from hpo.store.rows import Stream

RESOLVED = AnalyticFactory().resolve({"learning_rate": 1e-3, "gamma": 0.99, "hidden_sizes": (16,)})
SCHEDULE = EventSchedule(1000, 16, (2, 8), frozenset({2, 8, 16}))


def bucket(key="a", lanes=4, waiting=0, busy=0, first=0):
    made = Bucket(key, first, RESOLVED, SCHEDULE, AnalyticFactory().make(RESOLVED, lanes))
    made.slots = [None] * lanes
    made.enqueue(Replicate(first + index, Stream.SEARCH, 0) for index in range(busy))
    for run in made.place(busy):
        run.state = RunState.RUNNING
    made.enqueue(Replicate(first + 100 + index, Stream.SEARCH, 0) for index in range(waiting))
    return made


def places(made):
    return [None if run is None else (run.trial, run.replicate) for run in made.slots]


def test_replicates_are_placed_in_trial_order():
    made = bucket(lanes=5)
    made.enqueue([Replicate(7, Stream.SEARCH, r) for r in range(3)])
    made.enqueue([Replicate(2, Stream.SEARCH, r) for r in range(3)])
    made.place(99)
    assert places(made) == [(2, 0), (2, 1), (2, 2), (7, 0), (7, 1)]
    assert [(run.trial, run.replicate) for run in made.waiting] == [(7, 2)]


def test_freed_lanes_are_filled_from_the_lowest():
    made = bucket(lanes=4, busy=4, waiting=2)
    made.slots[1].state = RunState.ENDED
    made.slots[3].state = RunState.DIVERGED
    gone = made.slots[1]
    made.release()
    assert places(made) == [(0, 0), None, (2, 0), None] and gone.lane is None
    placed = made.place(99)
    assert [run.lane for run in placed] == [1, 3]


def test_place_respects_the_limit():
    made = bucket(lanes=4, waiting=4)
    assert len(made.place(3)) == 3 and len(made.place(-2)) == 0 and len(made.waiting) == 1


def test_waiting_replicates_of_finished_trial_are_dropped():
    made = bucket(lanes=1, waiting=3)
    made.waiting[1].state = RunState.CUT
    made.release()
    assert [run.trial for run in made.waiting] == [100, 102]


def test_warmup_does_not_count_as_training():
    factory = AnalyticFactory(warmup_chunks=2)
    made = Bucket("a", 0, RESOLVED, SCHEDULE, factory.make(RESOLVED, 2))
    run = Replicate(0, Stream.SEARCH, 0)
    seen = []
    for _ in range(4):
        seen.append((made.trains_next(run), made.trained(run)))
        run.chunks += 1
    assert seen == [(False, 0), (False, 0), (True, 0), (True, 1)]


def test_program_keeps_device_while_half_of_its_lanes_are_busy():
    a, b = bucket("a", lanes=4, busy=2), bucket("b", waiting=50, first=50)
    assert next_bucket({"a": a, "b": b}, "a") == "a"


def test_program_with_most_work_replaces_one_below_half():
    a, b = bucket("a", lanes=4, busy=1), bucket("b", waiting=2, first=50)
    assert next_bucket({"a": a, "b": b}, "a") == "b"
    c = bucket("c", waiting=3, first=90)
    assert next_bucket({"a": a, "b": b, "c": c}, "a") == "c"
    d = bucket("d", waiting=3, first=200)
    assert next_bucket({"a": a, "d": d, "c": c}, "a") == "d"  # the first of equals


def test_program_below_half_stays_if_no_other_has_more_work():
    a, b = bucket("a", lanes=8, busy=3), bucket("b", lanes=8, busy=3, first=50)
    assert next_bucket({"a": a, "b": b}, "a") == "a"
    assert next_bucket({"a": a, "b": b}, "b") == "b"


def test_busy_lanes_of_inactive_program_stay_and_count_as_work():
    a, b = bucket("a", lanes=8, busy=1), bucket("b", lanes=8, busy=3, first=50)
    assert next_bucket({"a": a, "b": b}, "a") == "b"
    assert places(a)[0] == (0, 0)


def test_first_program_is_any_with_work():
    b = bucket("b", waiting=1)
    assert next_bucket({"b": b}, "") == "b"
    assert next_bucket({}, "") == ""
