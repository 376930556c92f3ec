"""Trials that a study names run on test seeds, whatever became of them, and are added to it."""

import dataclasses
import importlib
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from helpers.loading import run_file
from hpo.cli import main
from hpo.errors import HpoError
from hpo.search import api
from hpo.search.api import ask
from hpo.search.engine.commits import Committer
from hpo.search.engine.extend_run import as_begun, asked_for
from hpo.search.lanes.multi_environment import SeveralFactory
from hpo.search.run import run
from hpo.store import Stream, TrialState, tables_equal
from hpo.store.journal import Journal
from hpo.store.lock import StudyLock
from hpo.store.rows import REFERENCE_TRIAL
from hpo.store.study_folder import StudyFolder
from hpo.studies.execution_spec import Budget
from hpo.studies.load import loads
from hpo.studies.resolved import resolved_yaml
from hpo.studies.search_spec import EarlyTerminate

growing = run_file("tests/search/engine/test_growing_confirm.py")
LENGTH, KINDS = growing.LENGTH, growing.KINDS
anything_runs = growing.anything_runs
CONFIRM = samples.Confirm(2, 3, 6)
PBT = EarlyTerminate("pbt", every=2_000)


def study(confirm=CONFIRM, **changes):
    return samples.study(**{"space": growing.SPACE, "confirm": confirm, **changes})


def factory_of(asked):
    lanes = [samples.AnalyticFactory(lanes=8, seed=number) for number in range(2)]
    return SeveralFactory(asked, lanes) if asked.more_envs else lanes[0]


def go(folder, asked, factory=None):
    return run(asked, folder, factory or factory_of(asked), (), samples.quick())


def rows_of(folder):
    with Journal(folder) as journal:
        return {row.trial: row for row in journal.trials()}


def reported(folder):
    """Return (trial, replicate) of every evaluation on test seeds, each episode once."""
    with Journal(folder) as journal:
        rows = [row for row in episodes_in(journal) if row.stream == Stream.REPORT]
    keys = [(row.trial, row.replicate, row.episode) for row in rows]
    assert len(keys) == len(set(keys)), "no seed ran a second time"
    found = {}
    for trial, replicate, _ in keys:
        found.setdefault(trial, set()).add(replicate)
    return {trial: len(replicates) for trial, replicates in found.items()}


def some(rows, results):
    """Return a trial of each kind that the study has: how it stands -> its number."""
    winner = results.best.trial
    confirmed = {entry.trial for entry in results.leaderboard if entry.confirmed}
    found = {"winner": winner, "default": 0}
    for number, row in sorted(rows.items()):
        if number > 0 and number != winner:
            kind = "confirmed" if number in confirmed else str(row.state)
            found.setdefault(kind, number)
    return found


def unchanged_but_for_values(before, after, asked):
    """Assert that rows are what they were, but for the test seeds of those asked for."""
    for number, row in before.items():
        now = after[number]
        if number in asked:
            fields = ["report_values", "report_scores", "report_diverged", "bucket"]
            fields += ["error"] if now.report_diverged and not row.error else []
            now = dataclasses.replace(now, **{name: getattr(row, name) for name in fields})
        assert now == row


@pytest.mark.parametrize("kind", KINDS)
def test_confirm_also_adds_test_values_and_changes_nothing_else(tmp_path, kind):
    asked = study(**KINDS[kind])
    first = go(tmp_path, asked)
    before, shown = rows_of(tmp_path), first.leaderboard
    numbers = some(before, first)
    assert {"winner", "default"} <= numbers.keys() and len(numbers) >= 4
    wanted = dict.fromkeys(numbers.values(), 6)
    ran = reported(tmp_path)
    again = go(tmp_path, asked_for(asked, wanted))
    after = rows_of(tmp_path)
    unchanged_but_for_values(before, after, wanted)
    lost = {number: len(row.report_diverged) for number, row in after.items()}
    shown_by = {number: 6 - lost[number] for number in wanted if lost[number] < 6}
    assert {**ran, **shown_by} == reported(tmp_path)
    for number in wanted:
        assert len(after[number].by_report_seed) == 6
        assert len(after[number].report_values) == 6 - lost[number]
    spent = again.usage.confirm_env_steps - first.usage.confirm_env_steps
    assert again.usage.asked_env_steps == spent
    whole = sum(6 - ran.get(n, 0) for n in shown_by) * LENGTH * asked.spread
    assert spent == whole if not sum(lost.values()) else spent > whole
    assert [e.trial for e in again.leaderboard] == [e.trial for e in shown]
    assert again.conclusion == first.conclusion, "constraints are those of the compared trials"
    assert again.state == "finished"


def test_missing_default_is_reported_as_left_to_confirm(tmp_path):
    bare = study(confirm=None)
    first, *_, last = (entry.trial for entry in go(tmp_path, bare).leaderboard if entry.values)
    assert first != 0
    said = go(tmp_path, asked_for(bare, {last: 8})).conclusion.said
    assert said == ("Undecided: the winner has no value on the test seeds.",)
    said = go(tmp_path, asked_for(bare, {first: 8})).conclusion.said
    assert said[0] == f"There is nothing to compare trial {first} with."
    text = "The default did not run on these seeds; also confirm trial 0."
    assert said[1] == text
    said = go(tmp_path, asked_for(bare, {first: 8, 0: 8})).conclusion.said
    assert text not in said and "better" in said[0]
    loses = samples.LosingFactory(
        lanes=8, chunk=2, among=lambda config: config["learning_rate"] == 1e-5
    )
    first = go(tmp_path / "lost", bare, loses).best.trial
    assert rows_of(tmp_path / "lost")[0].state is TrialState.DIVERGED
    assert go(tmp_path / "lost", asked_for(bare, {first: 8}), loses).conclusion.said[1] == text


def test_diverged_candidate_leaves_default_to_confirm(tmp_path):
    """It was the winner of a study that left the default out, and diverges on a selection seed."""
    loses = samples.LosingFactory(lanes=8, replicate=2, chunk=9)
    alone = study(samples.Confirm(1, 0, 2, default=False))
    first = go(tmp_path, alone, loses).best.trial
    said = go(tmp_path, study(samples.Confirm(1, 3, 2)), loses).conclusion.said
    text = "The default did not run on these seeds; also confirm trial 0."
    assert said == (f"There is nothing to compare trial {first} with.", text)


def test_also_confirmed_trials_equal_confirmed_winner(tmp_path):
    """The winner of one study, named in another one that ran none of it, has the same values."""
    asked = study()
    first = go(tmp_path / "whole", asked)
    winner = first.best.trial
    bare = study(confirm=None)
    go(tmp_path / "bare", bare)
    assert reported(tmp_path / "bare") == {}
    go(tmp_path / "bare", asked_for(bare, {winner: 6, 0: 6}))
    ours, theirs = rows_of(tmp_path / "whole"), rows_of(tmp_path / "bare")
    for number in (winner, 0):
        assert ours[number].report_values == theirs[number].report_values
        assert theirs[number].choose_values == ()
    # These seeds rank nobody: the best of the search alone is shown with its test value.
    first, *others = go(tmp_path / "bare", bare).leaderboard
    assert first.search_value == max(e.search_value for e in (first, *others) if e.search_value)
    assert (first.value_from == "report") == bool(first.report_seeds)
    assert {e.value_from for e in others} <= {"search", ""}


def test_trials_confirmed_from_start_or_later_have_equal_tables(tmp_path):
    asked = study()
    go(tmp_path / "later", asked)
    whole = asked_for(asked, {3: 8, 5: 6})
    go(tmp_path / "later", whole)
    go(tmp_path / "once", whole)
    assert tables_equal(tmp_path / "later", tmp_path / "once") == []


def test_more_seeds_run_only_the_additional_ones(tmp_path):
    asked = study()
    first = go(tmp_path, asked)
    winner = first.best.trial
    go(tmp_path, asked_for(asked, {3: 6, winner: 6}))
    before = rows_of(tmp_path)
    go(tmp_path, asked_for(asked, {3: 9, winner: 9}))
    after = rows_of(tmp_path)
    for number in (3, winner):
        assert after[number].report_values[:6] == before[number].report_values
        assert len(after[number].report_values) == 9
    assert reported(tmp_path)[winner] == 9 and len(after[0].report_values) == 6
    with Journal(tmp_path) as journal:
        looks = [row.value for row in journal.attributes() if row.name == "looks"]
    first, second, third = sorted([[0, 6, False], [winner, 6, True]]), [3, 6, False], [3, 9, False]
    assert looks == [[*first, second, third, [winner, 9, True]]]


@pytest.mark.parametrize("bound", ["env_steps", "wall_seconds"])
def test_confirm_also_is_outside_the_budget(tmp_path, bound):
    budget = Budget(trials=None, env_steps=1_000_000)
    if bound == "wall_seconds":
        budget = Budget(trials=10, wall_seconds=1e-9)
    asked = study(budget=budget)
    first = go(tmp_path, asked)
    number = next(n for n, row in rows_of(tmp_path).items() if n and not row.report_values)
    again = go(tmp_path, asked_for(asked, {number: 40}))
    assert len(rows_of(tmp_path)[number].report_values) == 40
    assert len(again.leaderboard) == len(first.leaderboard)
    if bound == "env_steps":
        assert again.usage.env_steps > budget.env_steps >= again.usage.bounded_env_steps
        assert again.usage.bounded_env_steps == first.usage.env_steps


def test_runs_cut_by_budget_are_completed_when_confirmed_explicitly(tmp_path):
    """Also in the same life, in which the first rows of its curves are written already."""
    base = study(budget=Budget(trials=None, env_steps=1_000_000))
    winner = go(tmp_path / "twice", base).best.trial
    shutil.copytree(tmp_path / "twice", tmp_path / "once")
    confirm, budget = samples.Confirm(2, 3, 12), Budget(trials=None, env_steps=1_050_000)
    grown = dataclasses.replace(base, confirm=confirm, budget=budget)
    go(tmp_path / "twice", grown)
    cut = rows_of(tmp_path / "twice")[winner]
    assert "of 12 report seeds returned no value" in cut.error and len(cut.report_values) == 6
    named = asked_for(grown, {winner: 12})
    for name in ("once", "twice"):
        go(tmp_path / name, named)
        row = rows_of(tmp_path / name)[winner]
        assert len(row.report_values) == 12 and row.error == ""
    assert tables_equal(tmp_path / "once", tmp_path / "twice") == []


def test_confirmed_pbt_trial_follows_its_schedule(tmp_path):
    asked = study(early_terminate=PBT, budget=Budget(trials=8))
    first = go(tmp_path, asked)
    rows = rows_of(tmp_path)
    assert rows[0].schedule and not rows[REFERENCE_TRIAL].schedule
    copied = [n for n, row in rows.items() if row.schedule and n != first.best.trial]
    wanted = {copied[0]: 6, REFERENCE_TRIAL: 9}
    go(tmp_path, asked_for(asked, wanted))
    after = rows_of(tmp_path)
    assert len(after[copied[0]].report_values) == 6
    assert after[REFERENCE_TRIAL].report_values[:6] == rows[REFERENCE_TRIAL].report_values
    assert len(after[REFERENCE_TRIAL].report_values) == 9
    unchanged_but_for_values(rows, after, wanted)


def test_missing_reference_default_is_created(tmp_path):
    asked = study(None, early_terminate=PBT, budget=Budget(trials=8))
    go(tmp_path, asked)
    assert REFERENCE_TRIAL not in rows_of(tmp_path)
    go(tmp_path, asked_for(asked, {REFERENCE_TRIAL: 5}))
    made = rows_of(tmp_path)[REFERENCE_TRIAL]
    assert made.state is TrialState.REFERENCE and len(made.report_values) == 5


def test_confirm_also_restores_lanes_of_released_programs(tmp_path):
    asked = samples.study(space=samples.WITH_BUCKETS, confirm=CONFIRM)
    first = go(tmp_path, asked)
    rows = rows_of(tmp_path)
    by_bucket = {row.bucket: n for n, row in rows.items() if not row.report_values}
    assert len(by_bucket) > 1 and first.best
    go(tmp_path, asked_for(asked, dict.fromkeys(by_bucket.values(), 5)))
    after = rows_of(tmp_path)
    assert all(len(after[n].report_values) == 5 for n in by_bucket.values())


@pytest.mark.parametrize("kind", ["asha", "several objectives", "several environments"])
def test_extended_study_keeps_values_and_named_trials(tmp_path, kind):
    changes = KINDS[kind]
    asked = study(budget=Budget(trials=8), **changes)
    go(tmp_path / "asked", asked)
    go(tmp_path / "asked", asked_for(asked, {3: 6}))
    go(tmp_path / "plain", asked)
    grown = study(budget=Budget(trials=24), **changes)
    bare = as_begun(grown, tmp_path / "plain")
    named = as_begun(grown, tmp_path / "asked")
    assert bare == grown and named.confirm.also == ((3, 6),)
    before = rows_of(tmp_path / "asked")
    again, plain = go(tmp_path / "asked", named), go(tmp_path / "plain", bare)
    growing.nothing_is_lost(before, rows_of(tmp_path / "asked"))
    assert [e.trial for e in again.leaderboard] == [e.trial for e in plain.leaderboard]
    assert again.usage.bounded_env_steps == plain.usage.env_steps


# ---------------------------------------------------------------------- killed


@pytest.fixture(scope="module")
def points():
    scripts = str(Path(__file__).resolve().parents[3] / "scripts")
    sys.path.insert(0, scripts)
    yield importlib.import_module("acceptance_points.commit_points")
    sys.path.remove(scripts)


@pytest.mark.slow
def test_confirm_also_resumed_at_every_boundary_equals_uninterrupted(points, tmp_path):
    """Finished first, then asked for: two trials that were stopped, the winner, the default."""
    case = points.paused_case()
    first = points.live(case, tmp_path / "base", points.Life())
    rows = rows_of(tmp_path / "base")
    stopped = [n for n, row in rows.items() if row.state is TrialState.STOPPED][:2]
    wanted = {stopped[0]: 5, stopped[1]: 4, first.best.trial: 6, 0: 5}
    case = dataclasses.replace(case, study=asked_for(case.study, wanted))
    shutil.copytree(tmp_path / "base", tmp_path / "whole")
    whole = points.Life()
    points.live(case, tmp_path / "whole", whole)
    count = len(whole.passed)
    assert count > 100
    for at in range(0, count, 25):
        shutil.rmtree(tmp_path / "broken", ignore_errors=True)
        shutil.copytree(tmp_path / "base", tmp_path / "broken")
        behind = min(count - 1, at + (at // 25) % 4)
        died = points.live(case, tmp_path / "broken", points.Life(0, {at}, behind))
        assert died is None
        rest = points.Life(at)
        assert points.live(case, tmp_path / "broken", rest).state == "finished"
        assert all(held == whole.passed[n] for n, held in rest.passed.items()), at
        assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []


def test_changed_confirm_request_reuses_finished_runs(points, tmp_path):
    case = points.paused_case()
    points.live(case, tmp_path, points.Life())
    rows = rows_of(tmp_path)
    one, other = [n for n, row in rows.items() if row.state is TrialState.STOPPED and n][:2]
    both = dataclasses.replace(case, study=asked_for(case.study, {one: 5, other: 5}))
    case = dataclasses.replace(case, study=asked_for(case.study, {one: 5}))
    shutil.copytree(tmp_path, tmp_path.with_name("at_once"))
    points.live(both, tmp_path.with_name("at_once"), points.Life())
    assert points.live(case, tmp_path, points.Life(commits={40}, dies=41)) is None
    assert 0 < reported(tmp_path)[one] < 5
    assert points.live(both, tmp_path, points.Life()).state == "finished"
    assert tables_equal(tmp_path, tmp_path.with_name("at_once")) == []


# ---------------------------------------------------------------------- the study file


def test_confirm_also_in_file_is_resolved():
    text = "{env: CartPole-v1, env_steps: 10k, space: {learning_rate: {min: 0.1, max: 1}}, %s}"
    named = loads(text % "confirm: {also: {6: 16, 2: 5, -1: 9}}", "x.yaml")
    assert named.confirm.also == ((-1, 9), (2, 5), (6, 16))
    assert loads(resolved_yaml(named)).confirm == named.confirm
    assert "also" not in resolved_yaml(loads(text % "confirm: {}", "x.yaml"))
    assert named.confirm.runs(1) == samples.Confirm().runs(1)


@pytest.mark.parametrize(
    "given", ["{x: 3}", "{6: 0}", "{6: a}", "{6: true}", "{-2: 4}", "{99: 5}"]
)
def test_invalid_confirm_also_in_file_is_refused(given):
    text = "env: CartPole-v1\nenv_steps: 10k\nspace: {learning_rate: {min: 0.1, max: 1}}\n"
    with pytest.raises(HpoError, match=r"x.yaml:\d+: confirm.also has"):
        loads(f"{text}confirm:\n  also: {given}\n", "x.yaml")


# ---------------------------------------------------------------------- the command


@contextmanager
def formulas(asked, *_):
    yield samples.AnalyticFactory(lanes=8)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a study in `files`, finished in `results`."""
    folder = tmp_path_factory.mktemp("small")
    file = folder / "files" / "small.yaml"
    file.parent.mkdir()
    file.write_text(resolved_yaml(study()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpo.search.api.factory_of", formulas)
        patch.chdir(folder)
        assert main(["run", str(file), "--quiet"]) == 0
    return folder


@pytest.fixture
def small(finished, tmp_path, monkeypatch):
    """A copy of it, run with lanes over formulas by every command."""
    monkeypatch.setattr("hpo.search.api.factory_of", formulas)
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return StudyFolder(tmp_path / "results" / "small")


def stopped_of(folder):
    return [n for n, row in rows_of(folder.path).items() if row.state is TrialState.STOPPED]


def files_of(folder):
    return {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file() and p.name != "lock"}


def test_confirm_command_decides_a_comparison(small, capsys):
    one, other = stopped_of(small)[:2]
    assert main(["compare", str(one), str(other)]) == 0
    assert "env steps, the last point both reached" in " ".join(capsys.readouterr().out.split())
    assert main(["confirm", str(one), str(other), "--seeds", "8", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert main(["compare", str(one), str(other)]) == 0
    assert capsys.readouterr().out == said and "8 shared test seeds" in " ".join(said.split())
    before = rows_of(small.path)
    assert main(["run", "files/small.yaml", "--quiet"]) == 0  # neither refused nor forgotten
    assert rows_of(small.path) == before
    with Journal(small.path) as journal:
        recorded = journal.meta.study_text
    assert loads(recorded).confirm.also == tuple(sorted({one: 8, other: 8}.items()))
    assert small.study_file.read_text() == Path("files/small.yaml").read_text()
    assert main(["run", "files/small.yaml", "--set", "budget.trials=30", "--quiet"]) == 0
    after = rows_of(small.path)
    assert len(after) == 30 and after[one].report_values == before[one].report_values


def test_confirm_command_prints_leaderboard_for_one_or_three_trials(small, capsys):
    numbers = [str(n) for n in stopped_of(small)[:3]]
    assert main(["confirm", "small", *numbers, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert main(["top"]) == 0
    assert capsys.readouterr().out == said
    assert all(len(rows_of(small.path)[int(n)].report_values) == 6 for n in numbers)


def test_confirm_command_warns_about_too_few_seeds(small, capsys):
    one, other = map(str, stopped_of(small)[:2])
    assert main(["confirm", one, other, "--seeds", "3"]) == 0
    out, err = capsys.readouterr()
    assert "3 test seeds cannot decide a comparison" in err and out.startswith("Undecided: ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["999"], "study 'small' has no trial 999 (to list them: hpo top small)"),
        (["smal", "3"], "there is no study 'smal'; did you mean 'small'"),
        (["3", "x"], "'x' is not a trial number"),
        (["small"], "give the trials to confirm, such as: hpo confirm small 9 6"),
        (["small", "3", "--study", "small"], "the study is given twice"),
        (["running"], "is being written by host"),
        (["version"], "loop state has version 3, but this version of hpo reads 99"),
    ],
)
def test_confirm_command_refuses_in_one_line_and_writes_nothing(
    small, words, told, capsys, monkeypatch
):
    lock = StudyLock(small.path) if words == ["running"] else None
    if words == ["version"]:
        monkeypatch.setattr("hpo.search.state.loop_state.VERSION", 99)
    before = files_of(small)
    try:
        assert main(["confirm", *(["3"] if len(words[0]) > 5 else words)]) == 2
    finally:
        if lock is not None:
            lock.release()
    out, err = capsys.readouterr()
    assert told in err and out == "" and len(err.strip().splitlines()) == 1
    assert files_of(small) == before


class TooLarge(samples.AnalyticFactory):
    """Has no memory for one of the networks."""

    def make(self, resolved, lanes):
        if resolved.bucket == "64x64":
            raise MemoryError("bad luck")
        return super().make(resolved, lanes)


def test_confirm_of_failed_trial_is_refused(tmp_path):
    budget = Budget(trials=24, max_failures=100)
    asked = samples.study(space=samples.WITH_BUCKETS, confirm=CONFIRM, budget=budget)
    go(tmp_path, asked, TooLarge(lanes=8))
    failed = [n for n, row in rows_of(tmp_path).items() if row.state is TrialState.FAILED]
    words = rf"trial {failed[0]} of .* failed, so it cannot run on new seeds: .*bad luck"
    with pytest.raises(HpoError, match=words):
        ask(StudyFolder(tmp_path), failed[:1])


def test_confirm_during_search_is_refused(tmp_path, monkeypatch):
    def commit_if_due(self):
        self.commit()
        if self._search_state.state.boundary == 3:
            raise growing.Died

    monkeypatch.setattr(Committer, "commit_if_due", commit_if_due)
    with pytest.raises(growing.Died):
        go(tmp_path, study())
    with pytest.raises(HpoError, match=r"the search of .* has not finished"):
        ask(StudyFolder(tmp_path), [0])


def test_confirm_finds_imported_files_or_asks_for_folder(small, tmp_path):
    extra = tmp_path / "files" / "extra.py"
    extra.write_text("")
    file = tmp_path / "files" / "own.yaml"
    text = Path("files/small.yaml").read_text()
    file.write_text(text.replace("imports: []", "imports: [extra.py]"))
    assert main(["run", str(file), "--name", "own", "--quiet"]) == 0
    own = StudyFolder(tmp_path / "results" / "own")
    assert ask(own, [3]).study.source == str(file.parent)  # the command kept says where
    assert ask(own, [3], source=file.parent).seeds == 6
    with pytest.raises(HpoError, match=r"extra.py, which the study needs, .* the folder"):
        ask(own, [3], source=tmp_path)
    assert api.ask(own, [-1]).trials == (0,)
