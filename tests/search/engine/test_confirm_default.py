"""The default configuration runs on the report seeds beside the winner; all else stays."""

import dataclasses
import json
import math
import sqlite3

import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from hpo.search.analysis.verdict import conclusion_of
from hpo.search.engine.commits import Committer
from hpo.search.engine.engine import Engine
from hpo.search.run import run
from hpo.search.state.loop_state import Phase
from hpo.search.state.progress import Observer
from hpo.store import Stream, TrialState, tables_equal
from hpo.store.journal import FORMAT, Journal
from hpo.store.rows import REFERENCE_TRIAL
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Confirm, EarlyTerminate, Evaluation, Metric, SearchSpec, Seeds

LENGTH = 16_000
CONFIRM = samples.Confirm(2, 3, 6)
POOR = samples.parameter(
    "learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform"
)  # a default that a search beats
SPACE = samples.Space((POOR, samples.REAL.parameters[1]))
PBT = EarlyTerminate("pbt", every=2_000)


def study(confirm=CONFIRM, **changes):
    return samples.study(**{"space": SPACE, "confirm": confirm, **changes})


def go(folder, asked, factory=None, observers=(), **settings):
    factory = factory or samples.AnalyticFactory()
    return run(asked, folder, factory, observers, samples.quick(**settings))


def rows_of(folder):
    with Journal(folder) as journal:
        return {row.trial: row for row in journal.trials()}


def reported(folder):
    """Return who has an evaluation on the report seeds, with its replicates."""
    found = {}
    with Journal(folder) as journal:
        for row in episodes_in(journal):
            if row.stream == Stream.REPORT:
                found.setdefault(row.trial, set()).add(row.replicate)
    return found


class Said(Observer):
    def __init__(self):
        self.confirmed = []

    def on_confirm(self, phase, trials):
        self.confirmed.append((phase, trials))

    def on_end(self, progress, state):
        self.states = progress.states


def test_default_runs_on_test_seeds_of_winner(tmp_path):
    said = Said()
    results = go(tmp_path / "with", study(), observers=[said])
    alone = go(tmp_path / "without", study(dataclasses.replace(CONFIRM, default=False)))
    winner = results.best.trial
    assert winner != 0
    assert reported(tmp_path / "with") == {0: set(range(6)), winner: set(range(6))}
    assert reported(tmp_path / "without") == {winner: set(range(6))}
    assert said.confirmed[1] == (Phase.REPORT, (winner, 0))
    assert results.usage.confirm_env_steps - alone.usage.confirm_env_steps == 6 * LENGTH
    with_, without = rows_of(tmp_path / "with"), rows_of(tmp_path / "without")
    assert list(with_[0].by_report_seed) == list(with_[winner].by_report_seed) == list(range(6))
    assert results.best == alone.best  # what it is chosen and measured by is the same
    for number, row in with_.items():
        if number:
            assert row.value == without[number].value
            assert row.report_values == without[number].report_values
    assert with_[0].choose_values == ()
    place = next(entry for entry in results.leaderboard if entry.trial == 0)
    assert not place.confirmed and place.value_from != "report"


def test_a_default_that_wins_runs_once(tmp_path):
    results = go(tmp_path, samples.study(confirm=CONFIRM))
    assert results.best.trial == 0
    assert reported(tmp_path) == {0: set(range(6))}
    assert results.usage.confirm_env_steps == (2 * 3 + 6) * LENGTH


@pytest.mark.parametrize("case", ["stopped", "diverged", "failed"])
def test_default_is_tested_whatever_its_search_state(tmp_path, case):
    asked, factory = study(), samples.AnalyticFactory()
    if case == "diverged":
        factory = Fragile(stream=Stream.SEARCH)
    if case == "failed":
        factory = Broken()
    go(tmp_path, asked, factory)
    default = rows_of(tmp_path)[0]
    assert default.state == case
    if case == "failed":
        assert default.report_values == () and 0 not in reported(tmp_path)
        return
    assert len(default.report_values) == 6 and default.report_diverged == ()
    assert default.state == case and default.value is None
    assert default.error.startswith("seed 0 at ") == (case == "diverged")


@dataclasses.dataclass(frozen=True)
class Fragile(samples.AnalyticFactory):
    """The default diverges on one stream, on some of its replicates."""

    stream: Stream = Stream.REPORT
    replicates: tuple = tuple(range(99))

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        step = made.train_chunk
        made.train_chunk = lambda lane: (
            step(lane)
            or (
                lane.payload["learning_rate"] == 1e-5
                and lane.stream is self.stream
                and lane.replicate in self.replicates
            )
        )
        return made


class Broken(samples.AnalyticFactory):
    """The default fails in the search, with all that runs beside it."""

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        advance = made.advance

        def step(refills, busy):
            if any(refill.resolved.config["learning_rate"] == 1e-5 for refill in refills):
                raise RuntimeError("out of memory")
            return advance(refills, busy)

        made.advance = step
        return made


def test_diverged_test_seeds_of_default_are_recorded(tmp_path):
    go(tmp_path, study(), Fragile(replicates=(1, 4)))
    default = rows_of(tmp_path)[0]
    assert default.report_diverged == (1, 4) and len(default.report_values) == 4
    by_seed = default.by_report_seed
    assert [seed for seed, value in by_seed.items() if math.isnan(value)] == [1, 4]
    assert [by_seed[seed] for seed in (0, 2, 3, 5)] == list(default.report_values)
    assert default.error == "2 of 6 report seeds returned no value"


def test_default_changed_by_pbt_is_tested_as_separate_reference(tmp_path):
    asked = study(early_terminate=PBT, budget=Budget(trials=8), seeds=Seeds(1))
    factory, said = samples.AnalyticFactory(lanes=16, diverges_above=2.0), Said()
    results = go(tmp_path, asked, factory, [said])
    rows = rows_of(tmp_path)
    assert said.states == {TrialState.FINISHED: 8}
    assert rows[0].schedule and results.best.trial != REFERENCE_TRIAL
    made = rows[REFERENCE_TRIAL]
    assert made.state == TrialState.REFERENCE and made.proposed_by == "default"
    assert made.params == {"learning_rate": 1e-5, "gamma": 0.99}
    assert len(made.report_values) == 6 and rows[0].report_values == ()
    assert made.bucket == rows[0].bucket and made.value is None
    assert results.leaderboard[-1].trial == REFERENCE_TRIAL
    # It counts as no trial of the search: a study that grows goes on as if it were not there.
    assert len(rows) == 9 and results.usage.search_env_steps == 8 * LENGTH


def test_default_in_separate_program_is_tested(tmp_path):
    sizes = dataclasses.replace(samples.WITH_BUCKETS.parameters[1], default=[64, 64])
    space = samples.Space((POOR, sizes, samples.REAL.parameters[1]))
    results = go(tmp_path, study(space=space))
    rows = rows_of(tmp_path)
    assert len(rows[0].report_values) == 6 and rows[0].params["hidden_sizes"] == [64, 64]
    assert results.best.trial != 0


def test_budget_reserves_env_steps_for_default(tmp_path):
    def spent(confirm, total):
        asked = study(confirm, budget=Budget(trials=None, env_steps=total))
        return go(tmp_path / str(total), asked).usage

    alone = spent(dataclasses.replace(CONFIRM, default=False), 600_000)
    more = spent(CONFIRM, 600_000 + 6 * LENGTH)
    assert more.search_env_steps == alone.search_env_steps
    assert alone.confirm_env_steps + 6 * LENGTH == more.confirm_env_steps
    assert 600_000 + 4 * LENGTH < more.env_steps <= 600_000 + 6 * LENGTH


def test_wall_time_limit_cuts_default_before_winner(tmp_path, monkeypatch):
    def is_out_of_time(self):
        state = self.search_state.state
        if state.phase is not Phase.REPORT:
            return False
        winner = self.search_state.trials[state.winner]
        return not any(run.is_live for run in winner.runs)

    monkeypatch.setattr(Engine, "is_out_of_time", is_out_of_time)
    asked = study(budget=Budget(trials=24, wall_seconds=1e6))
    results = go(tmp_path, asked, samples.AnalyticFactory(lanes=4))
    rows = rows_of(tmp_path)
    assert len(rows[results.best.trial].report_values) == 6
    assert results.best.value_from == "report"
    assert rows[0].report_values == () and rows[0].report_diverged == ()
    assert rows[0].error.endswith("of 6 report seeds returned no value: budget.wall ran out")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (
            8,
            (
                "Undecided: no trial has a value on every selection seed.",
                "Trial 11: 3 of 3 selection seeds did not start: budget.env_steps does not "
                "cover them.",
            ),
        ),
        (
            15,
            (
                "There is nothing to compare trial 11 with.",
                "The default's test did not finish: 6 of 6 report seeds returned no value: "
                "budget.env_steps ran out.",
            ),
        ),
    ],
)
def test_budget_too_small_for_later_confirm_is_reported(tmp_path, runs, said):
    plain = study(None, budget=Budget(trials=24))
    spent = go(tmp_path / "search", plain).usage.env_steps
    budget = Budget(trials=24, env_steps=spent + runs * LENGTH)
    bounded = dataclasses.replace(plain, budget=budget)
    go(tmp_path / "study", bounded)
    later = dataclasses.replace(bounded, confirm=CONFIRM)
    assert go(tmp_path / "study", later).conclusion.said == said


def test_default_runs_with_the_front_for_several_objectives(tmp_path):
    metrics = (Metric(), Metric("eval/return_min"))
    results = go(tmp_path / "with", study(objectives=metrics))
    assert reported(tmp_path / "with") == {}
    rows = rows_of(tmp_path / "with")
    assert len(rows[0].choose_values) == 3 and len(rows[0].choose_objectives) == 2
    confirmed = [n for n, row in rows.items() if row.choose_values]
    assert len(confirmed) == 3 and 0 in confirmed
    assert results.usage.confirm_env_steps == 3 * 3 * LENGTH
    alone = dataclasses.replace(study().confirm, default=False)
    without = go(tmp_path / "without", study(alone, objectives=metrics))
    assert without.usage.confirm_env_steps == 2 * 3 * LENGTH
    assert not rows_of(tmp_path / "without")[0].choose_values


def test_stopped_default_has_no_env_steps_objective(tmp_path):
    metrics = (Metric(), Metric("env_steps", "minimize"))
    go(tmp_path, study(objectives=metrics))
    row = rows_of(tmp_path)[0]
    assert row.state is not TrialState.FINISHED and not row.choose_values
    assert row.error == "env_steps from an unfinished run cannot be compared"


def test_default_is_not_tested_without_test_seeds(tmp_path):
    results = go(tmp_path, study(samples.Confirm(2, 3, 0)))
    assert reported(tmp_path) == {} and results.best.value_from == "choose"


# ---------------------------------------------------------------------- going on


class Died(BaseException):
    """A process that is gone; nothing of ours catches it."""


@pytest.fixture
def dies(monkeypatch):
    """Let a study commit at the first boundary of a phase that is late enough, and die there."""

    def at(phase, boundary):
        passed = []

        def commit_if_due(self):
            if self._search_state.state.phase is phase:
                passed.append(1)
            if len(passed) == boundary:
                self.commit()
                raise Died

        monkeypatch.setattr(Committer, "commit_if_due", commit_if_due)

    return at


@pytest.mark.parametrize("kind", ["plain", "pbt", "own bucket"])
@pytest.mark.parametrize("boundary", [1, 2, 9, 16])
def test_crash_while_testing_default_resumes_with_equal_tables(
    tmp_path, dies, monkeypatch, kind, boundary
):
    changes = {"early_terminate": PBT, "budget": Budget(trials=8)} if kind == "pbt" else {}
    if kind == "own bucket":
        sizes = dataclasses.replace(samples.WITH_BUCKETS.parameters[1], default=[64, 64])
        changes["space"] = samples.Space((POOR, sizes, samples.REAL.parameters[1]))
    factory = samples.AnalyticFactory(lanes=16, diverges_above=2.0)
    go(tmp_path / "whole", study(**changes), factory)
    dies(Phase.REPORT, boundary)
    with pytest.raises(Died):
        go(tmp_path / "broken", study(**changes), factory)
    monkeypatch.undo()
    go(tmp_path / "broken", study(**changes), factory)
    assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []


@pytest.mark.parametrize("phase", [Phase.SEARCH, Phase.CHOOSE, Phase.REPORT])
def test_study_of_previous_version_resumes_with_default_test(tmp_path, dies, monkeypatch, phase):
    alone = dataclasses.replace(CONFIRM, default=False)
    go(tmp_path / "whole", study())
    dies(phase, 5)
    with pytest.raises(Died):
        go(tmp_path / "broken", study(alone))
    monkeypatch.undo()
    as_before(tmp_path / "broken")
    go(tmp_path / "broken", study())
    assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []


def test_finished_study_of_previous_version_is_unchanged(tmp_path):
    alone = dataclasses.replace(CONFIRM, default=False)
    first = go(tmp_path, study(alone))
    as_before(tmp_path)
    again = go(tmp_path, study())
    assert counted(again.usage) == counted(first.usage) and 0 not in reported(tmp_path)
    more = go(tmp_path, study(dataclasses.replace(CONFIRM, report=7)))
    assert more.usage.confirm_env_steps - first.usage.confirm_env_steps == (1 + 7) * LENGTH
    assert reported(tmp_path)[0] == set(range(7))


def counted(usage):
    """Return what is counted, times apart: the last commit of a study is not in its own times."""
    return {k: v for k, v in vars(usage).items() if not k.endswith("_seconds")}


def as_before(folder):
    """Make a journal what the version before would have written: nothing of the default in it."""
    path = folder / "journal.sqlite"
    assert FORMAT == 2
    with sqlite3.connect(path) as journal:
        (text,) = journal.execute("SELECT loop_state FROM head").fetchone()
        state = json.loads(text)
        assert state.pop("default") is None
        budget, confirm = json.loads(state["bounds"])
        del confirm["default"]
        state["bounds"] = json.dumps([budget, confirm])
        for trial in state["live"].values():
            del trial["report_diverged"]
        journal.execute("UPDATE head SET loop_state = ?", (json.dumps(state),))
        for number, row in journal.execute("SELECT trial, row FROM trials").fetchall():
            data = json.loads(row)
            del data["report_diverged"]
            journal.execute(
                "UPDATE trials SET row = ? WHERE trial = ?", (json.dumps(data), number)
            )
        journal.execute("DROP TABLE sums")  # which that version wrote of its own rows
        journal.execute("PRAGMA user_version = 1")
    journal.close()


def test_intermediate_evaluations_do_not_end_default_test(tmp_path):
    asked = study(evaluation=Evaluation(every=3_000))
    go(tmp_path, asked)
    default = rows_of(tmp_path)[0]
    with Journal(tmp_path) as journal:
        last = {
            row.replicate: row.env_steps
            for row in episodes_in(journal)
            if row.trial == 0 and row.stream == Stream.REPORT
        }
    assert len(default.report_values) == 6 and set(last.values()) == {LENGTH}


def test_default_is_not_stopped_when_portfolio_is_used(tmp_path):
    plain, protected = (SearchSpec("random", portfolio=learnt) for learnt in (0, 2))
    go(tmp_path / "plain", study(search=plain))
    go(tmp_path / "protected", study(search=protected))
    assert rows_of(tmp_path / "plain")[0].state is TrialState.STOPPED
    rows = rows_of(tmp_path / "protected")
    assert rows[0].state is TrialState.FINISHED
    assert any(row.state is TrialState.STOPPED for row in rows.values())  # others are
    assert [rows[trial].proposed_by for trial in range(3)] == ["default", "portfolio", "portfolio"]


def test_a_short_study_tests_its_best_trial_against_the_default(tmp_path):
    """Four runs and eight: what `hpo init` writes."""
    short = study(
        Confirm(top_k=1, choose=0, report=4),
        search=SearchSpec("tpe", portfolio=3),
        budget=Budget(trials=4),
        early_terminate=None,
        seeds=Seeds(1),
    )
    results = go(tmp_path, short)
    winner = results.best.trial
    assert winner in (1, 2, 3)
    assert reported(tmp_path) == {0: set(range(4)), winner: set(range(4))}
    assert results.usage.search_env_steps + results.usage.confirm_env_steps == 12 * LENGTH
    with Journal(tmp_path) as journal:
        assert conclusion_of(journal).against.advice == "take"
