import dataclasses
import itertools
import json
import math
import re
import time

import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from hpo.errors import ConfigError, SearchError, StoreError
from hpo.machine import software
from hpo.search.analysis.checkpoint_values import point_at, read_points
from hpo.search.run import RunOptions, run
from hpo.search.state.loop_state import LoopState, Phase
from hpo.search.state.progress import Observer
from hpo.search.state.usage import Usage
from hpo.spaces import Space, parse_rule
from hpo.store import Stream, TrialState
from hpo.store.journal import Journal
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget, Checkpoint
from hpo.studies.search_spec import EarlyTerminate, Seeds

Factory = samples.AnalyticFactory


class Watcher(Observer):
    """Keeps everything it is told."""

    def __init__(self):
        self.chunks, self.ended, self.confirms, self.ends = [], [], [], []

    def on_chunk(self, progress):
        self.chunks.append(progress)

    def on_trial_end(self, trial):
        self.ended.append(trial)

    def on_confirm(self, phase, trials):
        self.confirms.append((phase, trials))

    def on_end(self, progress, state):
        self.ends.append((progress, state))


def go(tmp_path, study, factory=None, observers=(), **settings):
    return run(
        study, tmp_path / "study", factory or Factory(), observers, samples.quick(**settings)
    )


def opened(tmp_path):
    return Journal(tmp_path / "study")


def test_every_trial_ends_and_is_accounted_for(tmp_path):
    watcher = Watcher()
    results = go(tmp_path, samples.study(), observers=[watcher])
    assert results.state == "finished"
    with opened(tmp_path) as journal:
        rows = journal.trials()
        assert [row.trial for row in rows] == list(range(24))
        assert sorted(row.trial for row in watcher.ended) == list(range(24))
        assert sum(row.env_steps for row in rows) == results.usage.search_env_steps
        assert sum(row.eval_env_steps for row in rows) == results.usage.eval_env_steps
        assert {row.state for row in rows} <= {"finished", "stopped", "diverged"}
        assert journal.head().phase == "finished"
        state = LoopState.from_text(journal.head().loop_state)
        assert state.phase is Phase.DONE and state.live == {}
    progress, outcome = watcher.ends[0]
    assert outcome == "finished" and progress.env_steps == results.usage.env_steps
    assert progress.best.trial == results.best.trial
    assert sum(progress.states.values()) == progress.proposed == 24
    assert all(entry.lanes_busy <= entry.lanes for entry in watcher.chunks)


def test_trial_values_equal_their_evaluations(tmp_path):
    go(tmp_path, samples.study())
    with opened(tmp_path) as journal:
        evaluations = {}
        for row in episodes_in(journal):
            key = (row.trial, row.replicate, row.env_steps)
            evaluations.setdefault(key, []).append(row.episode_return)
        decisions = {(row.trial, row.rung): row for row in journal.decisions()}
        for row in journal.trials():
            if row.state == "finished":
                last = [evaluations[row.trial, r, 16_000] for r in range(2)]
                assert row.seed_values == pytest.approx([sum(x) / len(x) for x in last])
                assert row.value == pytest.approx(sum(row.seed_values) / 2)
                assert row.env_steps == 32_000 and row.rung == 1 and not row.stop_rule
            elif row.state == "stopped":
                decision = decisions[row.trial, row.rung]
                assert row.value is None and row.stop_rule == decision.rule
                assert row.rung_value == decision.value < decision.cutoff
                assert decision.action == "stop" and decision.judged >= 4
            else:
                assert row.params["learning_rate"] > 0.5 and row.value is None


def test_lanes_stay_busy_while_work_remains(tmp_path):
    study = samples.study(seeds=Seeds(3), budget=Budget(trials=64), method="tpe")
    results = go(tmp_path, study, Factory(lanes=32))
    assert results.usage.lane_chunks > 0
    assert results.usage.occupancy >= 0.95
    assert results.usage.failures == 0


def test_lanes_stay_busy_with_several_buckets(tmp_path):
    study = samples.study(samples.WITH_BUCKETS, budget=Budget(trials=96))
    results = go(tmp_path, study, Factory(lanes=16, block=4))
    assert results.usage.occupancy >= 0.85
    assert {len(entry.params["hidden_sizes"]) for entry in results.leaderboard} == {1, 2}


def test_all_trials_finish_without_a_rule(tmp_path):
    study = samples.study(early_terminate=None, budget=Budget(trials=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Factory, "diverges_above", 2.0)
        results = go(tmp_path, study, Factory(diverges_above=2.0))
    assert {entry.state for entry in results.leaderboard} == {TrialState.FINISHED}
    assert results.usage.env_steps == 6 * 2 * 16_000


@pytest.mark.parametrize("total", [100_500, 333_333, 1_000_000])
@pytest.mark.parametrize("lanes", [5, 16])
def test_env_steps_budget_is_used_up_to_one_trial(tmp_path, total, lanes):
    study = samples.study(budget=Budget(trials=None, env_steps=total))
    results = go(tmp_path, study, Factory(lanes=lanes))
    assert total - 2 * 16_000 < results.usage.env_steps <= total
    with opened(tmp_path) as journal:
        rows = journal.trials()
        assert sum(row.env_steps for row in rows) == results.usage.env_steps
        assert "unfinished" not in {row.state for row in rows}


@pytest.mark.parametrize("runs", [1, 2, 6, 20])
@pytest.mark.parametrize(
    "rule",
    [
        None,
        EarlyTerminate("asha", 8_000, 4.0),
        EarlyTerminate("asha", 2_000, 4.0, pause=100),
        EarlyTerminate("hyperband", 2_000, 4.0),
        EarlyTerminate("median", 2_000, 4.0),
    ],
)
def test_budget_below_lane_count_still_gives_a_winner(tmp_path, runs, rule):
    """Started all at once, they would share the env steps and none would finish."""
    budget = Budget(trials=None, env_steps=(runs + 3 + 4) * 16_000)
    confirm = samples.Confirm(1, 3, 4, default=False)
    study = samples.study(early_terminate=rule, budget=budget, confirm=confirm, seeds=Seeds(1))
    results = go(tmp_path, study, Factory(lanes=64))
    assert results.best.confirmed and results.usage.env_steps <= budget.env_steps
    states = [entry.state for entry in results.leaderboard]
    assert "unfinished" not in states


def test_budget_reserves_confirm_stage_first(tmp_path):
    confirm = samples.Confirm(2, 3, 4, default=False)
    study = samples.study(budget=Budget(trials=None, env_steps=500_000), confirm=confirm)
    results = go(tmp_path / "without", study)
    assert results.usage.confirm_env_steps == (2 * 3 + 4) * 16_000
    assert 500_000 - 2 * 16_000 < results.usage.env_steps <= 500_000
    more = Budget(trials=None, env_steps=500_000 + 4 * 16_000)
    study = samples.study(budget=more, confirm=samples.Confirm(2, 3, 4))
    again = go(tmp_path / "with", study)
    assert again.best.trial == 0  # so its second run, which was reserved, was not needed
    counts, before = (
        {name: value for name, value in vars(usage).items() if not name.endswith("_seconds")}
        for usage in (again.usage, results.usage)
    )
    assert counts == before


def test_extended_budget_that_confirm_reserves_is_reported(tmp_path):
    """Otherwise a study with a higher budget would end at once without a word."""
    said = []
    settings = dataclasses.replace(samples.quick(), warn=said.append)
    confirm = samples.Confirm(2, 3, 4, default=False)
    for total in (500_000, 560_000):
        asked = samples.study(budget=Budget(trials=None, env_steps=total), confirm=confirm)
        results = run(asked, tmp_path / "s", Factory(), (), settings)
        assert bool(said) == (total == 560_000)
    used, longest = results.usage.env_steps, 16_000
    needed = used + (2 * 3 + 4) * longest + asked.seeds.first * longest
    assert f"budget.env_steps to at least {needed:,}" in said[0]
    asked = samples.study(budget=Budget(trials=None, env_steps=needed), confirm=confirm)
    grown = run(asked, tmp_path / "s", Factory(), (), settings)
    assert len(grown.leaderboard) == len(results.leaderboard) + 1 and len(said) == 1


def test_budget_is_respected_with_different_chunk_lengths(tmp_path):
    study = samples.study(
        samples.WITH_BUCKETS,
        budget=Budget(trials=None, env_steps=900_000),
        confirm=samples.Confirm(2, 3, 4),
    )
    factory = Factory(lanes=6, quanta={"16": 700, "32": 1_000, "64x64": 1_900})
    results = go(tmp_path, study, factory)
    assert results.usage.env_steps <= 900_000
    assert results.usage.confirm_env_steps > 0


def test_budget_smaller_than_confirm_stage_is_refused(tmp_path):
    study = samples.study(
        budget=Budget(trials=None, env_steps=100_000), confirm=samples.Confirm(5, 8, 16)
    )
    with pytest.raises(ConfigError, match="after the 1179648 reserved for confirm"):
        go(tmp_path, study)


def test_a_study_without_bounds_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="the study would never end"):
        go(tmp_path, samples.study(budget=Budget(trials=None)))
    study = samples.study(space=samples.FINITE, method="grid", budget=Budget(trials=None))
    assert len(go(tmp_path, study).leaderboard) == 12


def test_the_wall_clock_cuts_a_study_short(tmp_path, monkeypatch):
    """Each look at the clock takes 10 ms."""
    ticks = itertools.count(100_000)
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: next(ticks) / 100.0)
    study = samples.study(budget=Budget(trials=10_000, wall_seconds=6.0))
    results = go(tmp_path, study)
    monkeypatch.undo()
    assert results.state == "finished" and 1.2 <= results.usage.run_seconds < 7.0
    assert results.best.state == "finished"


def test_no_trial_starts_when_the_time_left_is_less_than_a_run_takes(tmp_path, monkeypatch):
    """16 chunks of 10 s are a run: those that start after 0, 160 and 320 s end in time."""

    def count_seconds(self, seconds):
        self.chunk_seconds += 10.0

    def count_wall(self, seconds):
        self.run_seconds = self.chunk_seconds

    monkeypatch.setattr(Usage, "count_seconds", count_seconds)
    monkeypatch.setattr(Usage, "count_wall", count_wall)
    study = samples.study(
        early_terminate=None, seeds=Seeds(1), budget=Budget(trials=None, wall_seconds=500.0)
    )
    results = go(tmp_path, study, Factory(lanes=4, diverges_above=2.0))
    assert [entry.state for entry in results.leaderboard] == ["finished"] * 12


def test_time_reserved_for_confirm_uses_chunk_speed(tmp_path, monkeypatch):
    """A start takes 200 s, 12 runs on 4 lanes 48 s, and confirming about as long."""

    def count_seconds(self, seconds):
        self.chunk_seconds += 1.0

    def count_wall(self, seconds):
        self.run_seconds = 200.0 + self.chunk_seconds

    monkeypatch.setattr(Usage, "count_seconds", count_seconds)
    monkeypatch.setattr(Usage, "count_wall", count_wall)
    study = samples.study(
        early_terminate=None,
        seeds=Seeds(1),
        confirm=samples.Confirm(2, 2, 6),
        budget=Budget(trials=12, wall_seconds=400.0),
    )
    results = go(tmp_path, study, Factory(lanes=4, diverges_above=2.0))
    assert results.best.value_from == "report" and results.usage.chunks > 48
    assert len(results.leaderboard) == 12


def test_warmup_env_steps_are_counted_separately(tmp_path):
    study = samples.study(early_terminate=None, budget=Budget(trials=3))
    results = go(tmp_path, study, Factory(warmup_chunks=2, diverges_above=2.0))
    assert results.usage.env_steps == 3 * 2 * 16_000
    assert results.usage.warmup_env_steps == 3 * 2 * 2 * 1_000
    with opened(tmp_path) as journal:
        assert {row.warmup_env_steps for row in journal.trials()} == {4_000}
        assert {row.env_steps for row in episodes_in(journal)} == {16_000}


def diverging(*rates):
    return tuple({"learning_rate": rate} for rate in rates)


def test_one_diverged_replicate_ends_its_trial_unless_tolerated(tmp_path):
    class HalfDiverges(Factory):
        def make(self, resolved, lanes):
            made = super().make(resolved, lanes)
            step = made.train_chunk
            made.train_chunk = lambda lane: (
                step(lane) or (lane.replicate == 1 and lane.chunks == 5)
            )
            return made

    study = samples.study(early_terminate=None, budget=Budget(trials=3), seeds=Seeds(3))
    results = go(tmp_path / "strict", study, HalfDiverges(diverges_above=2.0))
    assert {entry.state for entry in results.leaderboard} == {TrialState.DIVERGED}
    with opened(tmp_path / "strict") as journal:
        told = {row.error for row in journal.trials()}
    assert told == {"seed 1 at 5,000 env steps: a training metric is not finite"}
    # All three replicates end with the one that diverged in the fifth chunk.
    assert results.usage.env_steps == 3 * 3 * 5_000
    tolerant = dataclasses.replace(study, seeds=Seeds(3, tolerate=1))
    results = go(tmp_path / "tolerant", tolerant, HalfDiverges(diverges_above=2.0))
    assert {entry.state for entry in results.leaderboard} == {TrialState.FINISHED}
    assert all(len(entry.values) == 2 for entry in results.leaderboard)
    with opened(tmp_path / "tolerant") as journal:
        assert {row.error for row in journal.trials()} == {""}
    assert results.usage.env_steps == 3 * (2 * 16_000 + 5_000)


def test_an_evaluation_that_is_not_finite_is_divergence(tmp_path):
    class Blind(Factory):
        def make(self, resolved, lanes):
            made = super().make(resolved, lanes)
            good = made.evaluate
            made.evaluate = lambda which: [
                dataclasses.replace(result, returns=result.returns * math.nan)
                for result in good(which)
            ]
            return made

    results = go(tmp_path, samples.study(budget=Budget(trials=5)), Blind())
    assert {entry.state for entry in results.leaderboard} == {TrialState.DIVERGED}
    with opened(tmp_path) as journal:
        told = {row.error for row in journal.trials()}
        assert len(told) == 1 and not list(episodes_in(journal))
    assert re.fullmatch(
        r"seed 0 at [\d,]+ env steps: eval/return_mean is nan in the evaluation "
        r"\((\d+) of \1 returns not finite\)",
        told.pop(),
    )
    with pytest.raises(ConfigError, match=r"no trial has a finite value: 5 diverged .for example"):
        point_at(read_points(tmp_path / "study"))


def test_an_evaluation_beyond_1e70_is_divergence(tmp_path):
    """Its square overflowed in the intervals of leaderboards, reports and verdicts."""

    class Exploding(Factory):
        def make(self, resolved, lanes):
            made = super().make(resolved, lanes)
            good = made.evaluate
            made.evaluate = lambda which: [
                dataclasses.replace(result, returns=result.returns * 1e200)
                for result in good(which)
            ]
            return made

    asked = samples.study(budget=Budget(trials=3), seeds=Seeds(5), early_terminate=None)
    results = go(tmp_path, asked, Exploding())
    assert {entry.state for entry in results.leaderboard} == {TrialState.DIVERGED}
    with opened(tmp_path) as journal:
        assert all("in the evaluation" in trial.error for trial in journal.trials())


def test_study_stops_when_first_20_trials_diverge(tmp_path):
    study = samples.study(budget=Budget(trials=100))
    with pytest.raises(SearchError, match="first 20 trials diverged"):
        go(tmp_path, study, Factory(diverges_above=0.0))
    with opened(tmp_path) as journal:
        assert journal.head().phase == "interrupted"
        assert journal.count_by_state()["diverged"] >= 20
    with pytest.raises(SearchError, match="first 20 trials diverged"):
        go(tmp_path, study, Factory(diverges_above=0.0))


def test_audited_trials_run_to_their_end(tmp_path):
    rule = EarlyTerminate("asha", 2_000, 4.0, audit=1.0)
    results = go(tmp_path, samples.study(early_terminate=rule), Factory(diverges_above=2.0))
    assert {entry.state for entry in results.leaderboard} == {TrialState.FINISHED}
    with opened(tmp_path) as journal:
        audited = [row for row in journal.trials() if row.audited]
        assert audited and all(row.stop_rule for row in audited)
        actions = {row.action for row in journal.decisions()}
        assert actions == {"continue", "audit"}


def test_winner_is_selected_and_tested_on_separate_seeds(tmp_path):
    watcher = Watcher()
    study = samples.study(confirm=samples.Confirm(3, 4, 6))
    results = go(tmp_path, study, observers=[watcher])
    with opened(tmp_path) as journal:
        rows = {row.trial: row for row in journal.trials()}
        streams = {row.stream for row in episodes_in(journal)}
    finished = [row for row in rows.values() if row.value is not None]
    best = sorted(finished, key=lambda row: (-row.value, row.trial))[:3]
    confirmed = [row for row in rows.values() if row.choose_values]
    assert {row.trial for row in confirmed} == {row.trial for row in best}
    assert all(len(row.choose_values) == 4 for row in confirmed)
    winner = max(confirmed, key=lambda row: (sum(row.choose_values), -row.trial))
    assert [row.trial for row in rows.values() if row.report_values] == [winner.trial]
    assert len(winner.report_values) == 6 and streams == set(Stream)
    assert results.best.trial == winner.trial and results.best.value_from == "report"
    assert watcher.confirms == [
        (Phase.CHOOSE, tuple(row.trial for row in best)),
        (Phase.REPORT, (winner.trial,)),
    ]
    assert all(set(row.seed_values) for row in best)


def test_candidate_diverging_on_selection_seeds_is_not_confirmed(tmp_path):
    class Fragile(Factory):
        def make(self, resolved, lanes):
            made = super().make(resolved, lanes)
            step = made.train_chunk
            made.train_chunk = lambda lane: (
                step(lane)
                or (
                    lane.stream is Stream.CHOOSE
                    and lane.replicate == 2
                    and lane.payload["learning_rate"] == 3e-4
                )
            )
            return made

    study = samples.study(
        early_terminate=None, budget=Budget(trials=4), confirm=samples.Confirm(4, 3, 2)
    )
    results = go(tmp_path, study, Fragile(diverges_above=2.0))
    with opened(tmp_path) as journal:
        default = journal.trial(0)
    assert (
        default.choose_values == () and default.error == "1 of 3 selection seeds returned no value"
    )
    assert sum(entry.confirmed for entry in results.leaderboard) == 3
    assert results.best.trial != 0


def test_the_best_policies_are_kept(tmp_path):
    study = samples.study(checkpoint=Checkpoint(2), confirm=samples.Confirm(2, 2, 3))
    results = go(tmp_path, study)
    kept = {path.name: path / "policy.json" for path in (results.folder / "policies").iterdir()}
    finished = sorted(
        (entry for entry in results.leaderboard if entry.search_value is not None),
        key=lambda entry: -entry.search_value,
    )
    assert set(kept) == {f"trial_{entry.trial}" for entry in finished[:2]}
    winner = json.loads(kept[f"trial_{results.best.trial}"].read_text())
    assert winner["stream"] == "report" and winner["chunks"] == 16
    assert winner["config"]["learning_rate"] == results.best.params["learning_rate"]


def test_no_policy_is_kept_when_none_is_wanted(tmp_path):
    study = samples.study(checkpoint=Checkpoint(0), confirm=samples.Confirm(2, 2, 2))
    assert not (go(tmp_path, study).folder / "policies").exists()


def test_forbidden_draws_are_reported(tmp_path):
    rule = parse_rule("learning_rate > 0.001")
    study = samples.study(dataclasses.replace(samples.REAL, forbid=(rule,)))
    results = go(tmp_path, study)
    assert 0.3 < results.rejected_share < 0.9
    assert all(entry.params["learning_rate"] <= 0.001 for entry in results.leaderboard)


def test_empty_space_runs_one_trial(tmp_path):
    results = go(tmp_path, samples.study(Space()))
    assert [entry.trial for entry in results.leaderboard] == [0]
    assert results.state == "finished"


def test_finished_study_commits_nothing_when_run_again(tmp_path):
    study = samples.study()
    first = go(tmp_path, study)
    with opened(tmp_path) as journal:
        commits = journal.head().number
    again = go(tmp_path, study)
    with opened(tmp_path) as journal:
        assert journal.head().number == commits
    assert again.leaderboard == first.leaderboard and again.state == "finished"


def test_larger_trial_budget_extends_the_study(tmp_path):
    study = samples.study(confirm=samples.Confirm(2, 2, 2))
    small = go(tmp_path / "grown", study)
    grown = dataclasses.replace(study, budget=Budget(trials=40))
    larger = go(tmp_path / "grown", grown)
    assert len(small.leaderboard) == 24 and len(larger.leaderboard) == 40
    before = {entry.trial: entry.search_value for entry in small.leaderboard}
    after = {entry.trial: entry.search_value for entry in larger.leaderboard}
    assert all(after[trial] == value for trial, value in before.items())
    assert sum(entry.confirmed for entry in larger.leaderboard) >= 2
    assert larger.best.value_from == "report"


def test_changed_study_is_refused_with_its_changes(tmp_path):
    go(tmp_path, samples.study())
    with pytest.raises(StoreError, match="env_steps: 16000 -> 32000"):
        go(tmp_path, samples.study(env_steps=32_000))
    with pytest.raises(StoreError, match="already has a study; start a new one"):
        go(tmp_path, samples.study(), resume=False)


def test_different_machine_is_refused_or_marked(tmp_path):
    study = samples.study(budget=Budget(trials=8))
    go(tmp_path, study, Factory(device_count=4))
    grown = dataclasses.replace(study, budget=Budget(trials=16))
    told = (
        r"ran on 4 \w+ devices; on 2 \w+ devices its results will differ in the last digits; .* "
    )
    with pytest.raises(StoreError, match=f"{told}or accept the difference"):
        go(tmp_path, grown, Factory(device_count=2))
    go(tmp_path, grown, Factory(device_count=2), accept_new_bits=True)
    with opened(tmp_path) as journal:
        assert [row.bits for row in journal.trials()] == [0] * 8 + [1] * 8
        assert journal.meta.devices == 2 and journal.meta.bits == 1


def test_different_machine_is_marked_despite_early_crash(tmp_path):
    class Dies(Observer):
        def on_start(self, study, folder, resumed):
            raise KeyboardInterrupt

    study = samples.study(budget=Budget(trials=8))
    go(tmp_path, study, Factory(device_count=4))
    grown = dataclasses.replace(study, budget=Budget(trials=16))
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, grown, Factory(device_count=2), [Dies()], accept_new_bits=True)
    go(tmp_path, grown, Factory(device_count=2))
    with opened(tmp_path) as journal:
        assert [row.bits for row in journal.trials()] == [0] * 8 + [1] * 8


def test_different_environment_package_version_is_marked(tmp_path, monkeypatch):
    study = samples.study(env=EnvSpec("gym:CartPole-v1"), budget=Budget(trials=8))
    go(tmp_path, study)
    installed = software._installed_version
    monkeypatch.setattr(
        software,
        "_installed_version",
        lambda name: "0.1" if name == "gymnasium" else installed(name),
    )
    go(tmp_path, dataclasses.replace(study, budget=Budget(trials=16)))
    with opened(tmp_path) as journal:
        assert [row.bits for row in journal.trials()] == [0] * 8 + [1] * 8


def test_a_finished_study_is_shown_on_any_machine(tmp_path):
    study = samples.study(budget=Budget(trials=8))
    first = go(tmp_path, study, Factory(device_count=4))
    assert go(tmp_path, study, Factory(device_count=2)).leaderboard == first.leaderboard
    with opened(tmp_path) as journal:
        assert journal.meta.devices == 4 and journal.meta.bits == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"early_terminate": EarlyTerminate("asha", 0, 4.0)}, "min of at least 1 env step"),
        ({"early_terminate": EarlyTerminate("asha", 10, 1.0)}, "eta above 1"),
        ({"seeds": Seeds(8, 1), "metric": None}, "iqm needs 8 values"),
    ],
)
def test_impossible_settings_are_refused_before_writing(tmp_path, changes, words):
    study = samples.study()
    if "metric" in changes:
        changes = {**changes, "metric": dataclasses.replace(study.metric, aggregate="iqm")}
    with pytest.raises(ConfigError, match=words):
        go(tmp_path, dataclasses.replace(study, **changes))
    assert not (tmp_path / "study").exists()


def test_settings_have_the_documented_defaults():
    assert (RunOptions().commit_seconds, RunOptions().publish_seconds) == (None, 30.0)
