"""Which policies a study keeps."""

import json
from dataclasses import replace

import pytest

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticPopulation
from helpers.episodes import episodes_in
from hpo.search.run import run
from hpo.store.journal import Journal
from hpo.store.rows import Stream
from hpo.studies.execution_spec import Budget, Checkpoint
from hpo.studies.search_spec import Confirm, EarlyTerminate, Metric, Seeds


def go(folder, **changes):
    return run(samples.study(**changes), folder, samples.AnalyticFactory(), (), samples.quick())


def test_the_policies_of_all_seeds_are_kept_if_asked(tmp_path):
    """Of the best trials alone, and that of the trial is the first seed's."""
    results = go(tmp_path / "with", checkpoint=Checkpoint(2, each_seed=True), seeds=Seeds(2))
    policies = results.folder / "policies"
    finished = [entry.trial for entry in results.leaderboard if entry.value is not None]
    kept = {path.name for path in policies.iterdir()}
    assert len(finished) > 2 and len(kept) == 4
    numbers = {name.split("_")[1] for name in kept}
    assert kept == {f"trial_{n}{part}" for n in numbers for part in ("", "_seeds")}
    for number in numbers:
        seeds = policies / f"trial_{number}_seeds"
        found = {path.name: (path / "policy.json").read_text() for path in seeds.iterdir()}
        assert {json.loads(text)["replicate"] for text in found.values()} == {0, 1}
        assert (policies / f"trial_{number}" / "policy.json").read_text() == found["0"]


def test_early_finished_seed_keeps_its_policy(tmp_path):
    """Three lanes for pairs of seeds: while a trial's second one runs, others finish."""
    study = samples.study(
        checkpoint=Checkpoint(8, each_seed=True), early_terminate=None, budget=Budget(trials=8)
    )
    factory = samples.AnalyticFactory(lanes=3, diverges_above=2.0)
    folder = run(study, tmp_path / "s", factory, (), samples.quick()).folder
    found = {
        path.name: {seed.name for seed in path.iterdir()}
        for path in (folder / "policies").glob("*_seeds")
    }
    assert found == {f"trial_{number}_seeds": {"0", "1"} for number in range(8)}


def test_policies_of_plateau_stopped_seeds_are_kept(tmp_path):
    plateau = EarlyTerminate("plateau", 1_000, patience=2, tolerance=0.3)
    go(tmp_path, checkpoint=Checkpoint(2, each_seed=True), early_terminate=plateau)
    with Journal(tmp_path) as journal:
        assert any(one.action == "finish" for one in journal.decisions())
    kept = {path.name for path in (tmp_path / "policies").iterdir()}
    numbers = {name.split("_")[1] for name in kept}
    assert len(kept) == 4 and kept == {f"trial_{n}{p}" for n in numbers for p in ("", "_seeds")}
    for number in numbers:
        found = (tmp_path / "policies" / f"trial_{number}_seeds").iterdir()
        assert {path.name for path in found} == {"0", "1"}


class OtherWinners(AnalyticPopulation):
    """On fresh seeds the smallest gamma wins, whatever the search showed."""

    def result_of(self, lane):
        found = super().result_of(lane)
        if lane.stream is Stream.SEARCH:
            return found
        return replace(found, returns=found.returns * 0 + 1.0 - lane.payload["gamma"])


class OtherFactory(samples.AnalyticFactory):
    def make(self, resolved, lanes):
        return OtherWinners(self, resolved.steps_per_chunk, lanes or self.lanes)


@pytest.mark.parametrize("seed", [45, 63])
def test_repeated_winner_has_its_policy(tmp_path, seed):
    """Further trials are better in the search, where its policy is not kept any more."""
    won = []
    for trials in (6, 40):
        confirm = Confirm(min(12, trials), 1, 2)
        study = samples.study(
            seed=seed,
            budget=Budget(trials=trials),
            early_terminate=None,
            checkpoint=Checkpoint(3),
            confirm=confirm,
        )
        results = run(study, tmp_path, OtherFactory(), (), samples.quick())
        won.append(results.best.trial)
    assert won[0] == won[1]
    searched = [entry for entry in results.leaderboard if entry.search_value is not None]
    assert max(searched, key=lambda entry: entry.search_value).trial != won[1]
    assert (tmp_path / "policies" / f"trial_{won[1]}").is_dir()


@pytest.mark.parametrize("seed", range(6))
def test_replaced_winner_keeps_its_policy(tmp_path, seed):
    """Beside the policies of a study that had so many trials at once: it may win again."""
    kept, won = {}, []
    for name, ways in (("twice", (12, 40)), ("once", (40,))):
        for trials in ways:
            results = go(
                tmp_path / name,
                seed=seed,
                budget=Budget(trials=trials),
                early_terminate=None,
                checkpoint=Checkpoint(1),
                confirm=Confirm(2, 3, 4),
            )
            won.append(results.best.trial)
        kept[name] = {path.name for path in (tmp_path / name / "policies").iterdir()}
    displaced = {f"trial_{won[0]}"}
    assert kept["twice"] == kept["once"] | displaced and f"trial_{won[1]}" in kept["once"]


def test_the_policy_of_the_best_evaluation_is_kept_if_asked(tmp_path):
    folder = go(tmp_path / "with", checkpoint=Checkpoint(1, best_evaluation=True)).folder
    kept = json.loads((folder / "policies" / "best_evaluation" / "policy.json").read_text())
    with Journal(folder) as journal:
        seen = {}
        for row in episodes_in(journal):
            key = (row.trial, row.replicate, row.env_steps)
            seen.setdefault(key, []).append(row.episode_return)
        params = {row.trial: row.params for row in journal.trials()}
    trial, replicate, env_steps = max(seen, key=lambda key: sum(seen[key]))
    assert kept["about"]["metric"] == "eval/return_mean"
    assert kept["config"]["learning_rate"] == params[trial]["learning_rate"]
    assert kept["replicate"] == replicate and kept["chunks"] * 1_000 == env_steps
    other = go(tmp_path / "without").folder
    assert not (other / "policies" / "best_evaluation").exists()


def test_trial_ends_when_its_last_replicate_diverges_late(tmp_path):
    """Three lanes for pairs of replicates: they do not run in step."""
    study = samples.study(seeds=Seeds(2, tolerate=1), early_terminate=None)
    results = run(
        study, tmp_path / "s", samples.LosingFactory(lanes=3, chunk=12), (), samples.quick()
    )
    finished = [entry for entry in results.leaderboard if entry.value is not None]
    assert len(finished) > 10 and {entry.seeds for entry in finished} == {1}
    kept = [path.name for path in (tmp_path / "s" / "policies").iterdir()]
    assert 1 <= len(kept) <= 3


def test_policy_metric_omits_missing_training_returns(tmp_path):
    results = go(tmp_path, metric=Metric(training_weight=0.5))
    path = tmp_path / "policies" / f"trial_{results.best.trial}" / "policy.json"
    about = json.loads(path.read_text())["about"]
    assert about["metric"] == "eval/return_mean"
