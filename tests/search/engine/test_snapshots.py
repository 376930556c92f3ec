"""Policies kept on the way: which, what they say of themselves, and what crashes leave of them."""

import json
from dataclasses import replace

import pytest

from helpers import search_samples as samples
from helpers.episodes import episodes_in
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Checkpoint
from hpo.studies.search_spec import EarlyTerminate

WANTED = Checkpoint(2, policies_every=3_500, best_of_each=True)
STUDIES = {
    "asha": samples.study(checkpoint=WANTED, budget=samples.Budget(trials=10)),
    "pbt": samples.study(
        checkpoint=WANTED,
        early_terminate=EarlyTerminate("pbt", every=4_000),
        budget=samples.Budget(trials=6),
    ),
}
ENDS = (4_000, 7_000, 11_000, 14_000)  # of chunks of 1,000 that reach a multiple of 3,500


def go(study, folder, observers=(), **settings):
    factory = samples.AnalyticFactory(diverges_above=0.3)
    return run(study, folder, factory, observers, samples.quick(**settings))


def policies(folder):
    """Return path in `policies/` -> what its policy.json says."""
    root = folder / "policies"
    return {
        str(path.parent.relative_to(root)): json.loads(path.read_text())
        for path in sorted(root.rglob("policy.json"))
    }


def evaluated(folder):
    """Return (trial, replicate, env_steps) -> mean return, of the search."""
    seen = {}
    with Journal(folder) as journal:
        for row in episodes_in(journal):
            if str(row.stream) == "search":
                key = (row.trial, row.replicate, row.env_steps)
                seen.setdefault(key, []).append(row.episode_return)
    return {key: sum(values) / len(values) for key, values in seen.items()}


@pytest.fixture(scope="module", params=STUDIES)
def straight(request, tmp_path_factory):
    study, folder = STUDIES[request.param], tmp_path_factory.mktemp("straight") / "s"
    assert go(study, folder).state == "finished"
    return study, folder


def test_best_trials_have_periodic_policy_snapshots(straight):
    _, folder = straight
    found, values = policies(folder), evaluated(folder)
    kept = {name.removeprefix("trial_") for name in found if name.count("_") == 1}
    expected = {f"trial_{n}_steps/{seed}/{at}" for n in kept for seed in (0, 1) for at in ENDS}
    assert len(kept) == 2 and {name for name in found if "_steps" in name} == expected
    for name in expected:
        trial, seed, at = name.removeprefix("trial_").replace("_steps", "").split("/")
        told = found[name]["about"]
        assert (told["trial"], told["replicate"], told["env_steps"]) == (
            *map(int, (trial, seed, at)),
        )
        assert told["stream"] == "search" and told["metric"] == "eval/return_mean"
        assert told["value"] == values.get((int(trial), int(seed), int(at)))
        assert found[name]["chunks"] * 1_000 == int(at)


def test_each_evaluated_trial_keeps_its_best_policy(straight):
    _, folder = straight
    values = evaluated(folder)
    best = {}
    for (trial, replicate, env_steps), value in values.items():
        if trial not in best or value > best[trial][0]:
            best[trial] = (value, replicate, env_steps)
    found = {n: said["about"] for n, said in policies(folder).items() if n.endswith("_best")}
    assert set(found) == {f"trial_{trial}_best" for trial in best} and len(found) > 5
    for trial, (value, replicate, env_steps) in best.items():
        told = found[f"trial_{trial}_best"]
        assert told["value"] == value and told["trial"] == trial
        assert (told["replicate"], told["env_steps"]) == (replicate, env_steps)


def test_snapshots_change_only_policies(straight, tmp_path):
    study, folder = straight
    plain = go(replace(study, checkpoint=Checkpoint(2)), tmp_path / "s").folder
    assert tables_equal(folder, plain) == []
    assert {name for name in policies(folder) if name.count("_") == 1} == set(policies(plain))


@pytest.mark.parametrize("commit_seconds", [0.0, 1e9])
def test_crashes_leave_same_policies_as_uninterrupted_study(straight, tmp_path, commit_seconds):
    study, folder = straight
    for chunks in (5, 4, 3):
        with pytest.raises(KeyboardInterrupt):
            go(study, tmp_path / "s", [samples.Stop(chunks)], commit_seconds=commit_seconds)
    go(study, tmp_path / "s")
    assert policies(tmp_path / "s") == policies(folder)


class Look(Observer):
    """Looks at the folder of policies when a study goes on, before its first chunk is over."""

    def __init__(self, folder):
        self.folder, self.seen = folder, None

    def on_trial_end(self, trial):
        self.see()

    def on_chunk(self, progress):
        self.see()
        raise KeyboardInterrupt

    def see(self):
        self.seen = self.seen or set(policies(self.folder))


def test_uncommitted_snapshots_are_deleted_on_resume(tmp_path):
    """Snapshots of seven chunks of which none was committed, and one of a stranger."""
    folder = tmp_path / "s"
    with pytest.raises(KeyboardInterrupt):
        go(STUDIES["asha"], folder, [samples.Stop(7)], commit_seconds=1e9)
    assert any(name.endswith("_steps/0/7000") for name in policies(folder))
    (folder / "policies" / "mine_steps").mkdir()
    look = Look(folder)
    with pytest.raises(KeyboardInterrupt):
        go(STUDIES["asha"], folder, [look], commit_seconds=1e9)
    assert look.seen == set() and (folder / "policies" / "mine_steps").is_dir()


def test_best_evaluation_policy_records_its_trial(tmp_path):
    wanted = Checkpoint(1, best_evaluation=True)
    folder = go(samples.study(checkpoint=wanted), tmp_path / "s").folder
    told, values = policies(folder)["best_evaluation"]["about"], evaluated(folder)
    assert values[told["trial"], told["replicate"], told["env_steps"]] == told["value"]
    assert told["value"] == max(values.values())
