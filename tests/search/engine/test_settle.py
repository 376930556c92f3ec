"""Which policies a study keeps."""

import json
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

from hpo.search.lanes.analytic import AnalyticPopulation
from hpo.search.run import run
from hpo.store.journal import Journal
from hpo.studies.spec import Checkpoint, Seeds

samples = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "samples.py")))


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


def test_the_policy_of_the_best_evaluation_is_kept_if_asked(tmp_path):
    folder = go(tmp_path / "with", checkpoint=Checkpoint(1, best_evaluation=True)).folder
    kept = json.loads((folder / "policies" / "best_evaluation" / "policy.json").read_text())
    with Journal(folder) as journal:
        seen = {}
        for row in journal.evaluations():
            key = (row.trial, row.replicate, row.env_steps)
            seen.setdefault(key, []).append(row.episode_return)
        params = {row.trial: row.params for row in journal.trials()}
    trial, replicate, env_steps = max(seen, key=lambda key: sum(seen[key]))
    assert kept["config"]["learning_rate"] == params[trial]["learning_rate"]
    assert kept["replicate"] == replicate and kept["chunks"] * 1_000 == env_steps
    other = go(tmp_path / "without").folder
    assert not (other / "policies" / "best_evaluation").exists()


class LosesSecondSeeds(AnalyticPopulation):
    """The second replicate of every trial diverges late."""

    def _step(self, lane):
        diverged = super()._step(lane)
        return diverged or (lane.replicate == 1 and lane.chunks >= 12)


class LosingFactory(samples.AnalyticFactory):
    def make(self, resolved, lanes):
        return LosesSecondSeeds(self, resolved.steps_per_chunk, lanes or self.lanes)


def test_a_trial_whose_last_replicate_diverges_when_the_others_have_left_ends(tmp_path):
    """Three lanes for pairs of replicates: they do not run in step."""
    study = samples.study(seeds=Seeds(2, tolerate=1), early_terminate=None)
    results = run(study, tmp_path / "s", LosingFactory(lanes=3), (), samples.quick())
    finished = [entry for entry in results.leaderboard if entry.value is not None]
    assert len(finished) > 10 and {entry.seeds for entry in finished} == {1}
    kept = [path.name for path in (tmp_path / "s" / "policies").iterdir()]
    assert 1 <= len(kept) <= 3
