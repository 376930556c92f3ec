"""Buckets keep as many lanes as they can have replicates, and compile beside each other."""

import dataclasses
import json
import shutil
import threading
import time
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticPopulation
from hpo.errors import Leave
from hpo.machine.devices import prepare_devices
from hpo.search.engine.commits import Committer
from hpo.search.engine.engine import CompileBeside
from hpo.search.lanes.contract import Refill
from hpo.search.lanes.lane_count import startable_replicates
from hpo.search.lanes.local import LocalFactory
from hpo.search.lanes.local_population import ProgramLanes
from hpo.search.run import RunOptions, run
from hpo.search.state.loop_state import LoopState
from hpo.spaces import Space
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget, PopulationSpec
from hpo.studies.load import loads
from hpo.studies.programs import programs_note
from hpo.studies.search_spec import EarlyTerminate, Racing, SearchSpec, Seeds

QUANTA = {"16": 500, "32": 1_000, "64x64": 2_000}
FACTORY = samples.AnalyticFactory(lanes=64, block=4, quanta=QUANTA, diverges_above=0.3)
NEVER = RunOptions(publish_seconds=1e9, commit_seconds=1e9)
PLAIN = samples.study(samples.WITH_BUCKETS, early_terminate=None, seeds=Seeds(3))
GIVEN = dataclasses.replace(PLAIN, population=PopulationSpec(lanes=64))
CONFIRM = samples.Confirm(2, 3, 4)
KINDS = {
    "asha": dataclasses.replace(
        PLAIN, early_terminate=EarlyTerminate("asha", 2_000, 3.0, audit=0.2), confirm=CONFIRM
    ),
    "tpe, enqueued": dataclasses.replace(
        PLAIN,
        search=SearchSpec("tpe"),
        enqueue=({"learning_rate": 1e-3, "hidden_sizes": [64, 64]},),
        budget=Budget(trials=40),
    ),
    "racing": dataclasses.replace(PLAIN, seeds=Seeds(6, racing=Racing(2, 0.8)), confirm=CONFIRM),
    "budget": dataclasses.replace(
        PLAIN, budget=Budget(trials=None, env_steps=500_000), confirm=CONFIRM
    ),
}


def state_of(folder):
    with Journal(folder) as journal:
        return json.loads(journal.head().loop_state)


def lanes_of(folder):
    return {bucket["key"]: bucket["lanes"] for bucket in state_of(folder)["buckets"]}


def values_of(results):
    return {entry.trial: (entry.state, entry.values) for entry in results.leaderboard}


class Died(BaseException):
    """A process that is gone; nothing of ours catches it."""


# ---------------------------------------------------------------------- how many lanes


def test_small_programs_keep_few_lanes_with_high_occupancy(tmp_path):
    results = run(PLAIN, tmp_path / "s", FACTORY, (), NEVER)
    trials = {}
    with Journal(tmp_path / "s") as journal:
        for row in journal.trials():
            trials[row.bucket] = trials.get(row.bucket, 0) + 1
    assert sum(trials.values()) == 24 and len(trials) == 3
    assert lanes_of(tmp_path / "s") == {
        key: 4 * -(-3 * count // 4) for key, count in trials.items()
    }
    given = run(GIVEN, tmp_path / "given", FACTORY, (), NEVER)
    assert results.usage.occupancy > 0.9 > 0.6 > given.usage.occupancy


def test_given_lane_count_is_used_and_does_not_change_values(tmp_path):
    few, many = (
        run(s, tmp_path / s.name, FACTORY, (), NEVER)
        for s in (PLAIN, dataclasses.replace(GIVEN, name="given"))
    )
    assert set(lanes_of(tmp_path / "given").values()) == {64}
    assert values_of(few) == values_of(many)


def test_single_program_study_uses_default_lane_count(tmp_path):
    study = dataclasses.replace(samples.study(), budget=Budget(trials=5))
    run(study, tmp_path / "s", FACTORY, (), NEVER)
    assert set(lanes_of(tmp_path / "s").values()) == {64}


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_a_free_lane_is_filled_at_once(tmp_path, method):
    """Trials end in ones and twos, and no lane rests before the last trial has one."""

    class Seen(AnalyticPopulation):
        def advance(self, refills, busy):
            filled.append((len(refills), len(busy)))
            return super().advance(refills, busy)

    class SeenFactory(samples.AnalyticFactory):
        def make(self, resolved, lanes):
            return Seen(self, resolved.steps_per_chunk, lanes or self.lanes)

    filled = []
    study = samples.study(method=method, seeds=Seeds(1), budget=Budget(trials=48))
    results = run(study, tmp_path / "s", SeenFactory(lanes=8, block=4), (), NEVER)
    assert results.state == "finished" and sum(refills for refills, _ in filled) == 48
    last = max(at for at, (refills, _) in enumerate(filled) if refills)
    assert all(busy == 8 for _, busy in filled[:last])
    assert any(0 < refills < 4 for refills, _ in filled[:last])


def test_expected_trials_per_program_determine_lane_count(tmp_path):
    """With 300 trials each bucket is expected to fill what the rule gives."""
    study = dataclasses.replace(PLAIN, budget=Budget(trials=300))
    results = run(study, tmp_path / "s", FACTORY, (), NEVER)
    assert set(lanes_of(tmp_path / "s").values()) == {64}
    assert results.usage.occupancy > 0.8


def test_extended_study_gets_lanes_for_added_trials(tmp_path, monkeypatch):
    run(PLAIN, tmp_path / "s", FACTORY, (), NEVER)
    before = lanes_of(tmp_path / "s")
    assert max(before.values()) < 64
    shutil.copytree(tmp_path / "s", tmp_path / "broken")
    more = dataclasses.replace(PLAIN, budget=Budget(trials=120))
    results = run(more, tmp_path / "s", FACTORY, (), NEVER)
    assert set(lanes_of(tmp_path / "s").values()) == {64}
    assert len(results.leaderboard) == 120
    passed = []

    def commit_if_due(self):
        passed.append(1)
        if len(passed) == 5:
            self.commit()
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "commit_if_due", commit_if_due)
        with pytest.raises(Died):
            run(more, tmp_path / "broken", FACTORY, (), NEVER)
    run(more, tmp_path / "broken", FACTORY, (), NEVER)
    assert tables_equal(tmp_path / "s", tmp_path / "broken") == []


def test_startable_replicates_without_search_space_is_one_trial():
    alone = dataclasses.replace(PLAIN, space=Space(), budget=Budget(trials=None))
    assert startable_replicates(alone) == 3
    tested = dataclasses.replace(alone, confirm=CONFIRM)
    assert startable_replicates(tested) == 4  # the test seeds of the default alone
    assert startable_replicates(dataclasses.replace(alone, space=PLAIN.space)) == 4096


@pytest.mark.parametrize("name", KINDS)
def test_crashed_study_resumes_with_same_tables_and_lanes(tmp_path, monkeypatch, name):
    study, factory = KINDS[name], FACTORY
    run(study, tmp_path / "whole", factory, (), NEVER)
    boundaries = state_of(tmp_path / "whole")["boundary"]
    assert boundaries > 8
    for boundary in sorted({0, 2, boundaries // 2, boundaries - 3}):

        def commit_if_due(self, boundary=boundary):
            if self._search_state.state.boundary == boundary:
                self.commit()
                raise Died

        folder = tmp_path / f"at-{boundary}"
        with monkeypatch.context() as patched:
            patched.setattr(Committer, "commit_if_due", commit_if_due)
            with pytest.raises(Died):
                run(study, folder, factory, (), NEVER)
        run(study, folder, factory, (), NEVER)
        assert tables_equal(tmp_path / "whole", folder) == []
        assert lanes_of(folder) == lanes_of(tmp_path / "whole")


def test_lane_counts_of_earlier_state_are_kept():
    state = LoopState()
    state.note_buckets([])
    text = json.loads(state.to_text())
    text["buckets"] = [
        {"key": "a", "example": 0, "lanes": 64},
        {"key": "b", "example": 3, "lanes": 0},
    ]
    buckets = LoopState.from_text(json.dumps(text)).buckets
    assert [(bucket.lanes, bucket.settled) for bucket in buckets] == [(64, True), (0, False)]


# ---------------------------------------------------------------------- compiled beside


class Compiled(AnalyticPopulation):
    """Says what is compiled beside it, in which thread, and may take long or fail there."""

    beside, errors, seconds = (), {}, 0.0

    def compile_ahead(self):
        self._tell("traced")
        return self._ahead

    def _tell(self, what):
        here = threading.current_thread() is threading.main_thread()
        type(self).beside = (*self.beside, (what, self.steps_per_chunk, here))
        if (what, self.steps_per_chunk) in self.errors:
            raise RuntimeError("no such instruction")

    def _ahead(self):
        time.sleep(self.seconds)
        self._tell("compiled")

    def compile(self):
        if ("needed", self.steps_per_chunk) in self.errors:
            raise RuntimeError("no such instruction")
        super().compile()


@dataclasses.dataclass(frozen=True)
class CompilingFactory(samples.AnalyticFactory):
    kind: type = Compiled

    def make(self, resolved, lanes):
        return self.kind(self, resolved.steps_per_chunk, lanes or self.lanes)


def compiling(kind=Compiled, **attributes):
    made = type("Made", (kind,), {"beside": (), **attributes})
    return CompilingFactory(lanes=64, block=4, quanta=QUANTA, diverges_above=0.3, kind=made)


def test_each_program_is_compiled_in_a_thread_once(tmp_path):
    factory = compiling()
    run(PLAIN, tmp_path / "s", factory, (), NEVER)
    assert sorted(factory.kind.beside) == [
        (what, quantum, what == "traced")  # user code runs in the thread of the loop
        for what in ("compiled", "traced")
        for quantum in sorted(QUANTA.values())
    ]


def test_others_are_traced_in_the_order_of_their_work_while_the_first_compiles(tmp_path):
    """No chunk has run by then, and the lanes of the study are those without compiles ahead."""
    seen = []

    class Waits(Compiled):
        def compile(self):
            seen.append(("needed", self.steps_per_chunk, len(type(self).beside)))
            super().compile()

        def advance(self, refills, busy):
            seen.append(("chunk", self.steps_per_chunk, len(type(self).beside)))
            return super().advance(refills, busy)

    factory = compiling(Waits, seconds=0.2)
    run(PLAIN, tmp_path / "s", factory, (), NEVER)
    traced = [quantum for what, quantum, _ in factory.kind.beside if what == "traced"]
    with Journal(tmp_path / "s") as journal:
        rows = list(journal.trials())
    work = {key: sum(row.bucket == key for row in rows) for key in {row.bucket for row in rows}}
    order = sorted(QUANTA, key=lambda key: -work[key])
    assert seen[0][:2] == ("needed", traced[0]) and seen[0][2] >= len(QUANTA)
    assert traced[1:] == [QUANTA[key] for key in order if QUANTA[key] != traced[0]]
    run(PLAIN, tmp_path / "without", FACTORY, (), NEVER)
    assert lanes_of(tmp_path / "s") == lanes_of(tmp_path / "without")
    assert tables_equal(tmp_path / "s", tmp_path / "without") == []


@pytest.mark.parametrize("fails", [False, True], ids=["compiles", "fails"])
def test_first_program_compiles_before_the_others(tmp_path, fails):
    """Training waits for the first program alone; the others start even if it has an error."""
    seen = []

    class Waits(Compiled):
        def compile(self):
            if not seen:
                time.sleep(0.5)  # long enough for the others, if they were queued
                seen.append((self.steps_per_chunk, [e for e in self.beside if e[0] == "compiled"]))
                if fails:
                    raise RuntimeError("no such instruction")
            super().compile()

    factory = compiling(Waits)
    study = dataclasses.replace(PLAIN, budget=Budget(trials=24, max_failures=50))
    run(study, tmp_path / "s", factory, (), NEVER)
    (first, compiled), *_ = seen
    assert {quantum for _, quantum, _ in compiled} <= {first}
    assert {entry[1] for entry in factory.kind.beside if entry[0] == "compiled"} == set(
        QUANTA.values()
    )


def test_nothing_is_compiled_before_its_lanes_are_known(tmp_path):
    """More trials may come, so a bucket may get more lanes than its work needs now."""
    factory = compiling(seconds=0.1)
    study = dataclasses.replace(PLAIN, budget=Budget(trials=400))
    made = []

    class Counts(CompilingFactory):
        def make(self, resolved, lanes):
            made.append(lanes)
            return super().make(resolved, lanes)

    counted = Counts(lanes=16, block=4, quanta=QUANTA, diverges_above=0.3, kind=factory.kind)
    run(study, tmp_path / "s", counted, (), NEVER)
    assert len(made) <= 2 * len(QUANTA)


@pytest.mark.parametrize(
    "attributes",
    [
        {"seconds": 0.2},
        {"errors": {("traced", 500), ("traced", 1_000), ("traced", 2_000)}},
        {"errors": {("compiled", 500), ("compiled", 1_000), ("compiled", 2_000)}},
    ],
)
def test_background_compilation_does_not_change_tables(tmp_path, attributes):
    study = KINDS["asha"]
    run(study, tmp_path / "without", FACTORY, (), NEVER)
    run(study, tmp_path / "with", compiling(**attributes), (), NEVER)
    assert tables_equal(tmp_path / "without", tmp_path / "with") == []
    assert lanes_of(tmp_path / "without") == lanes_of(tmp_path / "with")
    assert not [t for t in threading.enumerate() if t.name.startswith("compile")]


def test_compile_error_fails_only_trials_of_that_program(tmp_path):
    errors = {("compiled", 2_000), ("needed", 2_000)}
    study = dataclasses.replace(PLAIN, budget=Budget(trials=24, max_failures=50))
    results = run(study, tmp_path / "s", compiling(errors=errors), (), NEVER)
    with Journal(tmp_path / "s") as journal:
        told = {row.bucket: (row.state, row.error) for row in journal.trials()}
    assert told["64x64"][0] == "failed" and "no such instruction" in told["64x64"][1]
    assert {told["16"][0], told["32"][0]} <= {"finished", "diverged"}
    assert results.usage.failures >= 1


def test_close_waits_for_running_compile_and_skips_queued_ones():
    factory = compiling(seconds=0.3)
    config = {"learning_rate": 1e-3, "gamma": 0.99}
    with CompileBeside() as beside:
        for sizes in ([16], [32], [64, 64]):
            population = factory.make(factory.resolve({**config, "hidden_sizes": sizes}), 4)
            beside.begin(population)
            beside.begin(population)  # the second time does nothing
        time.sleep(0.05)
    done = [entry[:2] for entry in factory.kind.beside]
    assert done.count(("compiled", 500)) == 1 and ("compiled", 2_000) not in done
    assert [what for what, _ in done].count("traced") == 3


def test_the_end_says_that_it_waits_for_a_compile():
    said = []

    @contextmanager
    def compiling_words(words):
        said.append(words)
        yield

    factory = compiling(seconds=0.3)
    config = {"learning_rate": 1e-3, "gamma": 0.99, "hidden_sizes": [16]}
    with CompileBeside(compiling_words) as beside:
        beside.begin(factory.make(factory.resolve(config), 4))
    assert len(said) == 1 and "no longer needed" in said[0]
    with CompileBeside(compiling_words):
        pass
    assert len(said) == 1


def test_immediate_exit_does_not_wait_for_compile():
    go_on, ended = threading.Event(), threading.Event()

    def ahead():
        go_on.wait(60)
        ended.set()

    class Population:
        compiles = 0

        def compile_ahead(self):
            return ahead

    with pytest.raises(Leave), CompileBeside() as beside:
        beside.begin(Population())
        raise Leave
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(60)


def test_training_does_not_wait_for_an_evaluation_that_compiles_in_a_thread():
    class SlowEvaluation:
        devices = prepare_devices("cpu")
        lanes, tile, updates = len(devices), 1, 1
        compiled = evaluation_compiled = False
        go_on, compiles = threading.Event(), threading.Event()

        def empty(self):
            return None

        def lane_order(self):
            return np.arange(self.lanes)

        def trace(self):
            pass

        def compile(self):
            self.compiled = True

        def compile_evaluation(self):
            self.compiles.set()
            assert self.go_on.wait(60)
            self.evaluation_compiled = True

    program = SlowEvaluation()
    lanes = ProgramLanes(program, 8, None, lambda words: nullcontext(), "words")
    thread = threading.Thread(target=lanes.compile_ahead())
    thread.start()
    assert program.compiles.wait(60)
    program.compiled = False  # so that it is not skipped: the lock alone decides
    done = threading.Thread(target=lanes.compile)
    done.start()
    done.join(60)
    assert program.compiled and not program.evaluation_compiled
    program.go_on.set()
    thread.join(60)
    assert program.evaluation_compiled


# ---------------------------------------------------------------------- a word of advice


def test_programs_note_quotes_its_numbers():
    assert programs_note(PLAIN, 1, 24) == programs_note(PLAIN, 6, None) == ""
    assert programs_note(PLAIN, 4, 24) == ""
    text = programs_note(PLAIN, 6, 24)
    assert "6 programs for 24 trials: only 4.0 trials share each program" in text
    assert text.endswith("search fewer values of hidden_sizes")
    assert programs_note(PLAIN, 6, 24, 50.0, 100.0) == ""
    assert "75% of the time is spent compiling" in programs_note(PLAIN, 6, 24, 75.0, 100.0)
    assert "75% of" in programs_note(PLAIN, 2, 1000, 75.0, 100.0)  # measured, whatever the count


def test_programs_note_of_run_uses_its_programs_and_seconds(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr("hpo.search.run.programs_note", lambda *given: heard.append(given) or "x")
    results = run(PLAIN, tmp_path / "s", FACTORY, (), NEVER)
    usage = results.usage
    assert heard == [(PLAIN, 3, 24, usage.compile_seconds, usage.run_seconds)]
    assert results.advice == "x"


TRAINED = """\
env: CartPole-v1
env_steps: 512
space: {learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}}
fixed: {num_envs: 2, rollout_length: 8, num_minibatches: 2, hidden_sizes: [4]}
budget: {trials: 20}
"""


@pytest.mark.slow
def test_background_compile_and_lane_count_do_not_change_curves():
    study = loads(TRAINED)
    factory = LocalFactory(study)
    resolved = factory.resolve(study.default())
    block = factory.make(resolved, None).block
    alone, among = (factory.make(resolved, count * block) for count in (1, 3))
    ahead = alone.compile_ahead()
    assert ahead is not None and alone.compiles == 0
    thread = threading.Thread(target=ahead)
    thread.start()
    refills = [Refill(lane, resolved, Stream.SEARCH, lane) for lane in range(2)]
    few = alone.advance(refills, [0, 1])  # waits for the thread
    thread.join()
    many = among.advance([*refills, Refill(block, resolved, Stream.SEARCH, 2)], [0, 1, block])
    assert alone.compiles == among.compiles == 1
    for name, values in few.metrics.items():
        assert values[:2].tobytes() == many.metrics[name][:2].tobytes(), name
