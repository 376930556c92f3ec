"""Lanes that a foreign scheduler drives: here one in this process, that does what a test says."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from hpo.errors import ConfigError, SearchError
from hpo.search import run as running
from hpo.search.ray_tune.desk import DeskRequest
from hpo.search.ray_tune.loop import Driven
from hpo.search.run import run
from hpo.search.samplers.proposal_queue import Proposer
from hpo.search.samplers.registry import make_sampler
from hpo.search.state.trials import lineage_of
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Confirm, Evaluation, SearchSpec, Seeds

FACTORY = samples.AnalyticFactory(lanes=8, block=2, diverges_above=0.3)


def study(trials=8, **changes):
    """Runs of 16 chunks, evaluated every 2 of them."""
    base = {
        "early_terminate": None,
        "evaluation": Evaluation(every=2_000),
        "budget": Budget(trials=trials),
        "search": SearchSpec("random", driver="ray_tune"),
        "seeds": Seeds(1),
    }
    return samples.study(**{**base, **changes})


class FakeDesk:
    """A scheduler that decides by a function of (number, report): go, stop, (source, params)."""

    def __init__(self, study, search_state, decide):
        plain = dataclasses.replace(study, search=SearchSpec("random"))
        found = Proposer(plain, make_sampler(plain)).propose(0, range(study.budget.trials), ())
        self.points = {
            one.trial: one.params
            for one in found.found
            if one.trial not in search_state.trials or search_state.trials[one.trial].is_live
        }
        self.decide, self.widths = decide, []
        self._new, self._running, self._ended, self._count = [], set(), [], 0
        self._waiting, self._after, self._asleep = {}, {}, set()
        self._held = {}  # number -> the report of a trial that waits

    def begin(self, width, schedule):
        self.width, self.schedule, self._todo = width, schedule, list(self.points)
        self._start()

    def _start(self):
        while self._todo and len(self._running) < self.width:
            number = self._todo.pop(0)
            self._running.add(number)
            self._ask("train", number, self.points[number])

    def _ask(self, kind, number, params, state=None):
        self._count += 1
        request = DeskRequest(f"{self._count}", kind, number, params, state)
        self._waiting[request.key] = request
        self._new.append(request)

    @property
    def is_over(self):
        return not self._running and not self._todo

    def wait(self, seconds):
        new, self._new = self._new, []
        return new

    def answer(self, replies):
        for key, reply in replies.items():
            request = self._waiting.pop(key)
            if isinstance(reply, str):
                copy, params = self._after[request.trial].pop()
                self._ask("train", copy, params, reply)
            else:
                self._decide(request.trial, reply)
        for number, report in list(self._held.items()):
            if self.decide(number, report) != "wait":
                self._asleep.discard(number)
                self._decide(number, self._held.pop(number))

    def _decide(self, number, report):
        verdict = "stop" if report.done else self.decide(number, report)
        if verdict == "go":
            self._ask("train", number, self.points[number])
        elif verdict == "wait":
            self._asleep.add(number)
            self._held[number] = report
        elif verdict == "stop":
            self._running.discard(number)
            self._ended.append(number)
            self._start()
        else:
            source, params = verdict
            self.points[number] = params
            self._after.setdefault(source, []).append((number, params))
            self._ask("keep", source, {})

    def expected(self):
        return len(self._running - self._asleep)

    def has_more(self):
        return bool(self._todo)

    def ended(self):
        ended, self._ended = self._ended, []
        return ended

    def paused(self):
        return self._asleep


@pytest.fixture
def driven(monkeypatch, tmp_path):
    """Runs a study with a scheduler that decides by a function; gives results, rows, desk."""

    def go(
        asked,
        decide=lambda number, report: "go",
        name="s",
        copies=False,
        observers=(),
        factory=FACTORY,
        **settings,
    ):
        desks = []

        def drive(engine, interrupts):
            desk = FakeDesk(asked, engine.search_state, decide)
            desks.append(desk)
            return Driven(engine, desk, "fake", copies).run(interrupts)

        monkeypatch.setattr(running, "drive", drive)
        path = tmp_path / name
        results = run(asked, path, factory, observers, samples.quick(**settings))
        with Journal(path) as journal:
            rows = {row.trial: row for row in journal.trials()}
            return SimpleNamespace(
                results=results,
                rows=rows,
                decisions=journal.decisions(),
                desks=desks,
                evaluations=list(episodes_in(journal)),
                path=path,
                about={row.name: row.value for row in journal.attributes() if row.trial is None},
            )

    return go


def ours(asked, path, factory=FACTORY):
    """The same study by our own loop, nobody stopped."""
    plain = dataclasses.replace(asked, search=SearchSpec("random"))
    run(plain, path, factory, (), samples.quick())
    with Journal(path) as journal:
        return {row.trial: row for row in journal.trials()}


def what_counts(row):
    return (row.params, row.value, row.seed_values, row.env_steps, str(row.state))


@pytest.mark.parametrize("space", [samples.REAL, samples.WITH_BUCKETS], ids=["one", "buckets"])
def test_scheduler_without_stops_equals_native_loop(driven, tmp_path, space):
    asked = study(12, space=space, seeds=Seeds(2), confirm=Confirm(2, 2, 2))
    seen, alone = driven(asked), ours(asked, tmp_path / "alone")
    assert {n: what_counts(row) for n, row in seen.rows.items()} == {
        n: what_counts(row) for n, row in alone.items()
    }
    assert seen.results.state == "finished"
    best = seen.results.best
    assert (
        best.confirmed and seen.rows[best.trial].report_values == alone[best.trial].report_values
    )


def test_stopped_trial_keeps_its_reports(driven):
    seen = driven(study(), lambda number, report: "stop" if number % 2 else "go")
    for number, row in seen.rows.items():
        if row.state == "stopped":
            assert number % 2 and row.env_steps == 2_000 and row.stop_rule == "fake"
            assert row.rung == 0 and row.rung_value is not None
    states = [str(row.state) for row in seen.rows.values()]
    assert states.count("stopped") >= 3 and states.count("finished") >= 3
    stops = [entry for entry in seen.decisions if entry.action == "stop"]
    assert all(entry.trial % 2 and entry.rung == 0 for entry in stops)
    first = [entry for entry in seen.decisions if entry.rung == 0]
    ranked = sorted(first, key=lambda entry: -entry.value)
    assert ranked[0].rank == 1 and {entry.judged for entry in first} == {len(first)}


def test_freed_lanes_are_reused_for_next_trial(driven):
    seen = driven(study(12), lambda number, report: "stop" if number % 2 else "go")
    states = [str(row.state) for row in seen.rows.values()]
    assert len(states) == 12 and set(states) <= {"finished", "stopped", "diverged"}
    assert seen.results.usage.occupancy == 1.0  # the lanes of one are the next one's at once


def test_expected_trials_advance_together(driven):
    seen = driven(study(16))
    steps = seen.about["ray_tune"]
    assert steps["mean_width"] == steps["mean_live"] > 6
    assert seen.results.usage.occupancy == 1.0  # while trials were still to begin


def test_copied_trial_continues_with_new_hyperparameters(driven, tmp_path):
    new = {"learning_rate": 2e-3, "gamma": 0.99}

    def decide(number, report):
        return (0, new) if (number, report.env_steps) == (3, 4_000) else "go"

    seen = driven(study(4), decide, copies=True)
    row = seen.rows[3]
    way = [(part.env_steps, part.trial, dict(part.params)) for part in lineage_of(row)]
    assert way == [(0, 0, seen.rows[0].params), (4_000, 3, new)]
    assert row.params == new and row.state == "finished" and row.env_steps == 16_000
    copied = [entry for entry in seen.decisions if entry.action == "copy"]
    assert [(entry.trial, entry.source, entry.env_steps) for entry in copied] == [(3, 0, 4_000)]
    again = driven(study(4), decide, name="again", copies=True)
    assert again.rows[3].value == row.value
    assert row.value != driven(study(4), name="plain").rows[3].value


def test_diverged_trial_reports_worst_value_and_may_copy(driven):
    asked, wide = study(12), dataclasses.replace(FACTORY, lanes=12)
    new = {"learning_rate": 1e-3, "gamma": 0.99}
    seen, worst, furthest = {}, {}, {}

    def decide(number, report):
        furthest[number] = max(report.env_steps, furthest.get(number, 0))
        if report not in seen.setdefault(number, []):
            seen[number].append(report)
            values = [one.value for reports in seen.values() for one in reports]
            worst.setdefault(number, min(values))
        if number not in diverging or report is not seen[number][0]:
            return "go"
        return (0, new) if furthest.get(0, 0) >= report.env_steps else "wait"

    diverging = {
        number for number, row in driven(asked).rows.items() if str(row.state) == "diverged"
    }
    assert diverging and 0 not in diverging
    seen.clear()
    worst.clear()
    furthest.clear()
    after = driven(asked, decide, name="copied", copies=True, factory=wide)
    for number in diverging:
        assert after.rows[number].state == "finished" and after.rows[number].params == new
        assert seen[number][0].value == worst[number]
        assert seen[number][-1].value > worst[number]
    never = driven(asked, name="never", copies=True, factory=wide)
    assert all(str(never.rows[number].state) == "diverged" for number in diverging)


@pytest.mark.parametrize("env_steps", [200_000, 201_500])
def test_the_budget_is_never_exceeded(driven, env_steps):
    asked = study(20, budget=Budget(trials=20, env_steps=env_steps), confirm=Confirm(1, 1, 1))
    seen = driven(asked)
    usage = seen.results.usage
    kept_back = 3 * 16_000  # one seed that chooses, and one that reports of winner and default
    assert env_steps - kept_back - 1_000 <= usage.search_env_steps <= env_steps - kept_back
    assert usage.env_steps <= env_steps
    assert {"finished", "unfinished"} <= {str(row.state) for row in seen.rows.values()}


def test_interrupted_ray_tune_study_resumes(driven):
    asked = study(12, confirm=Confirm(2, 2, 2))
    whole = driven(asked, name="whole")
    for chunks in (5, 7, 20):
        cut = driven(asked, name="cut", observers=[samples.CutAt(chunks)])
        assert cut.results.state == "interrupted"
    seen = driven(asked, name="cut")
    assert seen.results.state == "finished"
    assert {n: what_counts(row) for n, row in seen.rows.items()} == {
        n: what_counts(row) for n, row in whole.rows.items()
    }
    assert sorted(map(repr, seen.evaluations)) == sorted(map(repr, whole.evaluations))
    decided = [entry.trial for entry in seen.decisions]  # one of each rung, over all its lives
    assert {n: decided.count(n) for n in seen.rows} == {
        n: r.rung + 1 for n, r in seen.rows.items()
    }


def test_an_error_in_the_lanes_fails_the_trials_in_them(driven):
    class Broken(samples.AnalyticFactory):
        def make(self, resolved, lanes):
            made = super().make(resolved, lanes)
            advance, calls = made.advance, []

            def once(refills, busy):
                calls.append(busy)
                if len(calls) == 3 and not self.__dict__.get("broke"):
                    self.__dict__["broke"] = True
                    raise MemoryError("too much")
                return advance(refills, busy)

            made.advance = once
            return made

    seen = driven(study(12), factory=Broken(lanes=8, block=2))
    states = [str(row.state) for row in seen.rows.values()]
    assert states.count("failed") == 8 and set(states[8:]) <= {"finished", "diverged"}
    assert "MemoryError: too much" in seen.rows[0].error


def test_scheduler_error_ends_study_with_its_message(driven, monkeypatch):
    def failing(self, seconds):
        raise SearchError("Ray Tune failed: KeyError: x")

    monkeypatch.setattr(FakeDesk, "wait", failing)
    with pytest.raises(SearchError, match="Ray Tune failed"):
        driven(study())


def test_trials_that_copy_need_a_lane_each(driven):
    with pytest.raises(ConfigError, match="9 x 1 seed, but the population has only 8 lanes"):
        driven(study(9), copies=True)
    with pytest.raises(ConfigError, match="has 9 seeds"):
        driven(study(2, seeds=Seeds(9)), name="wide")


def test_budget_used_up_by_confirm_is_refused_early(driven, monkeypatch):
    monkeypatch.setattr(FakeDesk, "begin", lambda *_: pytest.fail("it began"))
    asked = study(budget=Budget(trials=8, env_steps=100_000), confirm=Confirm(5, 8, 16))
    with pytest.raises(ConfigError, match="after the 1179648 reserved for confirm"):
        driven(asked)


class Breaking(samples.AnalyticFactory):
    """The method `broken` of its populations raises in the calls that `when` names."""

    broken, when = "advance", staticmethod(lambda call: True)

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        good = getattr(made, self.broken)

        def sometimes(*args):
            self.calls.append(args)
            if self.when(len(self.calls)):
                raise MemoryError("too much")
            return good(*args)

        setattr(made, self.broken, sometimes)
        self.populations.append(made)
        return made


def breaking(broken, when):
    fields = {"broken": broken, "when": staticmethod(when), "calls": [], "populations": []}
    return type("Broken", (Breaking,), fields)(lanes=8, block=2, diverges_above=2.0)


def test_study_over_max_failures_stays_stopped(driven):
    asked, factory = study(budget=Budget(trials=30, max_failures=2)), breaking("advance", bool)
    with pytest.raises(SearchError, match=r"2 errors.*MemoryError: too much"):
        driven(asked, factory=factory)
    sound = breaking("advance", lambda call: False)
    with pytest.raises(SearchError, match="2 errors"):
        driven(asked, factory=sound)
    assert len(factory.calls) == 2 and not sound.calls


def test_failing_evaluation_fails_trials_but_keeps_lanes(driven):
    factory = breaking("evaluate", lambda call: call == 2)
    seen = driven(study(12), factory=factory)
    states = [str(row.state) for row in seen.rows.values()]
    assert states == ["failed"] * 8 + ["finished"] * 4
    assert len(factory.populations) == 1 and seen.results.usage.failures == 1


def test_program_that_cannot_be_made_fails_its_trials(driven):
    class Unmakable(samples.AnalyticFactory):
        def make(self, resolved, lanes):
            if resolved.bucket == "64x64":
                raise RuntimeError("cannot compile")
            return super().make(resolved, lanes)

    asked = study(9, space=samples.WITH_BUCKETS)
    rows = driven(asked, factory=Unmakable(lanes=8, block=2, diverges_above=2.0)).rows.values()
    found = {(tuple(row.params["hidden_sizes"]) == (64, 64), str(row.state)) for row in rows}
    assert found == {(True, "failed"), (False, "finished")}
    assert all("cannot compile" in row.error for row in rows if row.state == "failed")


def test_default_that_cannot_compile_ends_study_in_one_line(driven):
    class Unmakable(samples.AnalyticFactory):
        def make(self, resolved, lanes):
            raise RuntimeError("cannot compile\nmany lines of it")

    told = "the default configuration does not run, so Ray Tune has no lanes: .*cannot compile$"
    with pytest.raises(SearchError, match=told):
        driven(study(9), factory=Unmakable(lanes=8, block=2))


@pytest.mark.parametrize(("scheduler", "kept"), [("asha", False), ("pbt", True)])
def test_states_of_ended_trials_are_requested_only_for_copies(scheduler, kept):
    """An environment stepped by the host has no state to keep, so a stop ended its study."""
    pytest.importorskip("ray")
    from hpo.search.ray_tune.tune import TuneDesk, _StatusReporter

    asked = study(search=SearchSpec("random", driver="ray_tune", scheduler=scheduler))
    with contextlib.closing(TuneDesk(None, asked, None)) as desk:
        config = desk._run_config(_StatusReporter(desk.name))
    assert config.checkpoint_config.checkpoint_at_end is kept
