"""A finished study that grows keeps what fresh seeds have shown, and runs only what is new."""

import math
import shutil

import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from hpo.environments.registry import Reference
from hpo.search.analysis.checkpoint_values import fresh_seeds
from hpo.search.engine.commits import Committer
from hpo.search.lanes.multi_environment import SeveralFactory
from hpo.search.run import run
from hpo.store import Stream, tables_equal
from hpo.store.journal import Journal
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget, Checkpoint
from hpo.studies.search_spec import Constraint, EarlyTerminate, Metric, Racing, Seeds

LENGTH = 16_000
CONFIRM = samples.Confirm(2, 3, 6)
POOR = samples.parameter("learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform")
SPACE = samples.Space((POOR, samples.REAL.parameters[1]))
PLACES = (
    EnvSpec("CartPole-v1", {}, Reference(0.0, 80.0)),
    EnvSpec("Acrobot-v1", {}, Reference(20.0, 60.0)),
)
KINDS = {
    "asha": {},
    "no rule": {"early_terminate": None},
    "pausing": {"early_terminate": EarlyTerminate("asha", 2_000, 3.0, pause=3)},
    "racing": {"seeds": Seeds(4, racing=Racing(2, 0.9)), "early_terminate": None},
    "constraint": {"constraints": (Constraint("eval/skill", min=0.3),)},
    "several objectives": {"objectives": (Metric(), Metric("eval/thrift"))},
    "several environments": {"env": PLACES[0], "more_envs": PLACES[1:]},
    "both": {
        "env": PLACES[0],
        "more_envs": PLACES[1:],
        "objectives": (Metric(), Metric("eval/return_min")),
    },
}


@pytest.fixture(autouse=True)
def anything_runs():
    """Objectives of "both" are refused by the rules of study files; the engine knows them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpo.search.run.check_runnable", lambda study: None)
        yield


class Died(BaseException):
    """A process that is gone; nothing of ours catches it."""


def study(trials, confirm=CONFIRM, **changes):
    asked = {"space": SPACE, "confirm": confirm, "budget": Budget(trials=trials), **changes}
    return samples.study(**asked)


def factory_of(asked):
    lanes = [samples.AnalyticFactory(lanes=8, seed=number) for number in range(2)]
    return SeveralFactory(asked, lanes) if asked.more_envs else lanes[0]


def go(folder, asked):
    return run(asked, folder, factory_of(asked), (), samples.quick())


def rows_of(folder):
    with Journal(folder) as journal:
        return {row.trial: row for row in journal.trials()}


def nothing_is_lost(before, after):
    """Assert that every trial has the values on fresh seeds that it had."""
    for number, row in before.items():
        now = after[number]
        assert now.choose_values[: len(row.choose_values)] == row.choose_values
        known = now.by_report_seed
        for seed, value in row.by_report_seed.items():
            assert known[seed] == value or (math.isnan(value) and math.isnan(known[seed]))


@pytest.mark.parametrize("kind", KINDS)
def test_confirmed_trials_keep_values_in_extended_study(tmp_path, kind):
    changes = KINDS[kind]
    first = go(tmp_path, study(8, **changes))
    before = rows_of(tmp_path)
    again = go(tmp_path, study(24, **changes))
    after = rows_of(tmp_path)
    assert len(after) >= 24 and again.state == "finished"
    nothing_is_lost(before, after)
    entries = {entry.trial: entry for entry in again.leaderboard}
    for number, row in before.items():  # on the same seeds as the new candidates
        assert entries[number].confirmed or not row.choose_values
        assert entries[number].choose_seeds == len(after[number].choose_values)
    # Only who was not measured before runs: candidates, and the winner where it is another one.
    new = sum(bool(row.choose_values) for row in after.values())
    new -= sum(bool(row.choose_values) for row in before.values())
    seeds = new * CONFIRM.choose
    if first.best.trial != again.best.trial and not study(1, **changes).objectives:
        seeds += CONFIRM.report
    spent = again.usage.confirm_env_steps - first.usage.confirm_env_steps
    assert spent == seeds * LENGTH * study(1, **changes).spread


@pytest.fixture
def dies(monkeypatch):
    """Let a study commit at one boundary after it began or went on, and die behind that."""

    def at(boundary):
        passed = []

        def commit_if_due(self):
            passed.append(1)
            if len(passed) == boundary:
                self.commit()
                raise Died

        monkeypatch.setattr(Committer, "commit_if_due", commit_if_due)
        return passed

    return at


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_extended_study_killed_midway_equals_uninterrupted(tmp_path, kind, dies, monkeypatch):
    changes = KINDS[kind]
    go(tmp_path / "small", study(8, **changes))
    for name in ("whole", "broken"):
        shutil.copytree(tmp_path / "small", tmp_path / name)
    passed = dies(0)
    go(tmp_path / "whole", study(24, **changes))
    early_and_late = [(0.2, 0.9), (0.5, 0.97)]  # by turns: amid the search, and confirming
    for share in early_and_late[list(KINDS).index(kind) % 2]:
        monkeypatch.undo()
        shutil.rmtree(tmp_path / "broken")
        shutil.copytree(tmp_path / "small", tmp_path / "broken")
        dies(max(1, round(share * len(passed))))
        with pytest.raises(Died):
            go(tmp_path / "broken", study(24, **changes))
        monkeypatch.undo()
        go(tmp_path / "broken", study(24, **changes))
        assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []


@pytest.mark.parametrize("phase", ["choose", "report"])
def test_study_extended_during_confirm_reuses_finished_runs(tmp_path, phase, monkeypatch):
    """One lane, so that some seeds have ended and others not; then the study grows."""
    asked, lane = study(8), samples.AnalyticFactory(lanes=1)
    ends = 2 if phase == "choose" else 2 * CONFIRM.choose + 4

    def commit_if_due(self):
        runs = [run for trial in self._search_state.state.live.values() for run in trial.runs]
        fresh = [run for run in runs if run.stream is not Stream.SEARCH]
        if sum(run.state == "ended" for run in fresh) == ends:
            self.commit()
            raise Died

    monkeypatch.setattr(Committer, "commit_if_due", commit_if_due)
    with pytest.raises(Died):
        run(asked, tmp_path, lane, (), samples.quick())
    monkeypatch.undo()
    with Journal(tmp_path) as journal:
        known = fresh_seeds(journal)
    assert sum(map(len, known.values())) == ends
    before = rows_of(tmp_path)
    results = run(study(12), tmp_path, lane, (), samples.quick())
    nothing_is_lost(before, rows_of(tmp_path))
    with Journal(tmp_path) as journal:
        now = fresh_seeds(journal)
        rows = [
            (row.trial, row.stream, row.replicate, row.episode)
            for row in episodes_in(journal)
            if row.stream != Stream.SEARCH
        ]
    assert len(rows) == len(set(rows)), "no seed ran a second time"
    assert all(now[key].items() >= seeds.items() for key, seeds in known.items())
    assert results.usage.confirm_env_steps <= (sum(map(len, now.values())) + 4) * LENGTH


@pytest.mark.parametrize("after", [(1, 8, 4), (2, 9, 3), (2, 4, 0)])
def test_more_selection_seeds_keep_values_of_former_candidates(tmp_path, after):
    """They are not compared with who ran on more of them, and still have their values."""
    go(tmp_path / "twice", study(24, samples.Confirm(4, 2, 2)))
    before = rows_of(tmp_path / "twice")
    asked = study(24, samples.Confirm(*after))
    again, at_once = go(tmp_path / "twice", asked), go(tmp_path / "once", asked)
    nothing_is_lost(before, rows_of(tmp_path / "twice"))
    shown = [[(e.trial, e.confirmed, e.state) for e in r.leaderboard] for r in (again, at_once)]
    assert shown[0] == shown[1]
    assert again.conclusion == at_once.conclusion or not after[2]
    assert sum(entry.confirmed for entry in again.leaderboard) == after[0]
    smaller = [e for e in again.leaderboard if e.choose_seeds == 2]
    assert len(smaller) == 4 - after[0] and not any(e.confirmed for e in smaller)
    assert all(e.value == e.search_value for e in smaller)


def test_fewer_confirm_seeds_keep_measured_values(tmp_path):
    first = go(tmp_path, study(24, samples.Confirm(4, 5, 6)))
    again = go(tmp_path, study(24, samples.Confirm(2, 3, 2)))
    assert again.usage.confirm_env_steps == first.usage.confirm_env_steps or (
        again.best.trial != first.best.trial
    )
    confirmed = [entry for entry in again.leaderboard if entry.confirmed]
    assert len(confirmed) == 4 and {entry.choose_seeds for entry in confirmed} == {3}
    was = next(entry for entry in again.leaderboard if entry.trial == first.best.trial)
    assert was.report_seeds == 6 and was.report_value == first.best.report_value
    default = next(entry for entry in again.leaderboard if entry.is_default)
    assert default.report_seeds == 6


def test_a_seed_that_diverged_is_not_run_again(tmp_path):
    lanes = samples.LosingFactory(
        lanes=8, replicate=4, chunk=9, among=lambda config: config["learning_rate"] == 1e-5
    )
    first = run(study(8, seeds=Seeds(1)), tmp_path, lanes, (), samples.quick())
    before = rows_of(tmp_path)[0]
    assert before.report_diverged == (4,) and len(before.report_values) == 5
    confirm = samples.Confirm(2, 3, 9)
    again = run(study(8, confirm, seeds=Seeds(1)), tmp_path, lanes, (), samples.quick())
    after = rows_of(tmp_path)[0]
    assert after.report_diverged == (4,) and after.report_values[:5] == before.report_values
    spent = again.usage.confirm_env_steps - first.usage.confirm_env_steps
    assert spent == 2 * (9 - 6) * LENGTH


def test_policy_of_former_winner_is_kept(tmp_path):
    """Its runs on fresh seeds are not run again, so that no lane would have it."""
    keeps = Checkpoint(keep_best=1)
    first = go(tmp_path, study(8, checkpoint=keeps))
    won = first.best.trial
    for trials in (24, 30):
        results = go(tmp_path, study(trials, checkpoint=keeps))
        assert results.best.trial != won
        names = {path.name for path in (tmp_path / "policies").iterdir()}
        assert f"trial_{won}" in names and f"trial_{results.best.trial}" in names


def test_selection_seeds_outside_budget_do_not_start(tmp_path):
    """They were trained up to where the budget ended, and chose nothing."""
    study = samples.study(
        budget=Budget(trials=8, env_steps=432_000),
        early_terminate=None,
        seeds=Seeds(1),
        confirm=samples.Confirm(3, 2, 2),
    )
    folder, factory = tmp_path / "study", samples.AnalyticFactory()
    before = run(study, folder, factory, (), samples.quick())
    grown = samples.dataclasses.replace(study, confirm=samples.Confirm(3, 6, 4))
    results = run(grown, folder, factory, (), samples.quick())
    assert results.usage.env_steps == before.usage.env_steps == 256_000
    with Journal(folder) as journal:
        rows = {row.trial: row for row in journal.trials()}
    confirmed = [row for row in rows.values() if row.choose_values]
    assert len(confirmed) == 3 and all(len(row.choose_values) == 2 for row in confirmed)
    told = "4 of 6 selection seeds did not start: budget.env_steps does not cover them"
    assert {row.error for row in confirmed} == {told}
    enough = samples.dataclasses.replace(grown, budget=Budget(trials=8, env_steps=700_000))
    results = run(enough, folder, factory, (), samples.quick())
    with Journal(folder) as journal:
        whole = [row for row in journal.trials() if len(row.choose_values) == 6]
    assert len(whole) == 3 and not any(row.error for row in whole)


ALONE = {
    "one trial": {"budget": Budget(trials=1, env_steps=64_000)},
    "enqueued": {"budget": Budget(trials=1, env_steps=64_000), "enqueue": ({"gamma": 0.9},)},
    "learnt": {
        "budget": Budget(trials=1, env_steps=64_000),
        "search": samples.SearchSpec("random", portfolio=3),
    },
    "no space": {"space": samples.Space(), "budget": Budget(env_steps=64_000)},
}


@pytest.mark.parametrize("name", ALONE)
def test_budget_reserve_counts_default_only_study_once(tmp_path, name):
    """A run, a selection seed and two test seeds are 64,000 env steps; kept were two more."""
    study = samples.study(
        early_terminate=None, seeds=Seeds(1), confirm=samples.Confirm(1, 1, 2), **ALONE[name]
    )
    assert (study.confirming, study.tested) == (3, 2)
    results = run(study, tmp_path / "study", samples.AnalyticFactory(), (), samples.quick())
    assert results.usage.env_steps == 64_000
    with Journal(tmp_path / "study") as journal:
        (row,) = journal.trials()
    assert len(row.report_values) == 2


def test_former_selection_is_named_if_new_seeds_give_no_winner(tmp_path):
    """Every candidate diverges on the fourth selection seed, so the earlier winner stays."""
    small = samples.study(confirm=samples.Confirm(2, 2, 2), budget=Budget(trials=8))
    factory = samples.LosingFactory(replicate=3)
    before = run(small, tmp_path, factory, (), samples.quick())
    assert "still compared" not in str(before.conclusion)
    grown = samples.dataclasses.replace(small, confirm=samples.Confirm(2, 4, 2))
    after = run(grown, tmp_path, factory, (), samples.quick())
    assert after.best.trial == before.best.trial
    told = f"trial {after.best.trial}: 1 of 4 selection seeds returned no value"
    assert after.conclusion.said[-1] == (
        "The trials are still compared on 2 selection seeds (no trial has a value on all 4 of "
        f"`confirm.choose`; {told})."
    )
