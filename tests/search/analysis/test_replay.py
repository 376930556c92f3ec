"""A real population: its copies, its winner trained again bit by bit, the command line."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from helpers import search_samples as samples
from helpers.shared_programs import shared_programs
from hpo.cli import main
from hpo.core.policy_document import read_about
from hpo.errors import StoreError
from hpo.search.analysis import replay as module
from hpo.search.analysis.replay import ReplayedSeeds, play, replay
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import run
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.store.rows import Stream
from hpo.store.study_folder import StudyFolder
from hpo.studies.load import loads

pytestmark = pytest.mark.slow

STUDY = """\
name: evolving
env: CartPole-v1
env_steps: 2048
log_every: 64
fixed: {num_envs: 4, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8],
        normalise_observations: true}
space:
  learning_rate: {min: 1e-4, max: 3e-1, distribution: log_uniform}
  gamma: {min: 0.9, max: 0.999, distribution: one_minus_log}
  lr_schedule: {values: [constant, linear]}
search: {method: random}
early_terminate: {type: pbt, every: 512, quantile: 0.5}
evaluation: {episodes: 4}
seeds: {per_config: 2}
confirm: {top_k: 1, choose: 2, report: 1}
budget: {trials: 4}
population: {lanes: 8}
"""


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    with shared_programs():
        yield


@pytest.fixture(scope="module")
def study():
    return loads(STUDY)


@pytest.fixture(scope="module")
def folder(study, tmp_path_factory):
    """The results of one small real study."""
    path = tmp_path_factory.mktemp("results") / study.name
    assert run(study, path, LocalFactory(study), (), samples.quick()).state == "finished"
    return StudyFolder(path)


def trials(folder):
    with Journal(folder.path) as journal:
        return journal.trials()


def test_replay_of_lineage_is_bitwise_equal(folder):
    copied = max(trials(folder), key=lambda row: len(row.schedule))
    assert len(copied.schedule) > 1
    found = replay(folder, copied.trial)
    assert found.same and [part.trial for part in found.lineage][-1] == copied.trial
    assert [(p.env_steps, p.replicate) for p in found.points] == [
        (at, replicate) for at in (512, 1024, 1536, 2048) for replicate in (0, 1)
    ]
    assert len({point.trial for point in found.points}) > 1
    assert found.curve_rows == found.curve_same == 2 * 32  # two rows a chunk: one an update
    last = [sum(p.replayed) / len(p.replayed) for p in found.points if p.env_steps == 2048]
    assert sum(last) / 2 == pytest.approx(copied.value, rel=1e-12)


def test_replay_reports_lost_seeds(folder, monkeypatch, capsys):
    record = module._Record
    monkeypatch.setattr(record, "replicates", property(lambda self: (1,)))
    where = ["--study", str(folder.path)]
    row = max(trials(folder), key=lambda row: len(row.schedule))
    assert replay(folder, row.trial).left_out == (0,)
    main(["replay", str(row.trial), *where])
    assert "Not retrained (seeds that diverged or ended earlier): 0." in capsys.readouterr().out


def test_replay_detects_different_hyperparameters(folder, monkeypatch):
    """Trained with other knobs than recorded, the same trial is not the same."""
    plain = module.lineage_of

    def wrong(row):
        first, *rest = plain(row)
        params = {**first.params, "learning_rate": first.params["learning_rate"] * 1.001}
        return (replace(first, params=params), *rest)

    monkeypatch.setattr(module, "lineage_of", wrong)
    row = max(trials(folder), key=lambda row: len(row.schedule))
    found = replay(folder, row.trial)
    assert not found.same and found.curve_same < found.curve_rows


def test_replay_ignores_metrics_missing_from_record(folder):
    """As in a study of an earlier version, whose table lacks a column, or has it in part."""
    number = max(trials(folder), key=lambda row: len(row.schedule)).trial
    record = module._Record.read(folder, number)
    (first, *_), (second, *_) = (
        list(record.curve(folder, dict.fromkeys(names, 0.0)).values())
        for names in (("loss", "entropy"), ("loss", "of_a_later_version", "entropy"))
    )
    assert second == (first[0], None, first[1])
    loss, entropy = first
    assert module._same_values(second, (loss, 3.0, entropy))
    assert not module._same_values(second, (loss, 3.0, entropy + 1e-9))
    assert not module._same_values((loss,), (loss, entropy))
    assert module._same_values((float("nan"),), (float("nan"),))


def test_replay_uses_the_defaults_stored_with_the_study(tmp_path):
    """Its record says nothing of knobs whose defaults were others then."""
    text = STUDY.replace("early_terminate", "# ")
    text = text.replace("hidden_sizes: [8],", "hidden_sizes: [8], normalise_rewards: false,")
    text = text.replace("confirm: {top_k: 1, choose: 2, report: 1}\n", "")
    asked = loads(text.replace("budget: {trials: 4}", "budget: {trials: 1}"))
    run(asked, tmp_path / "old", LocalFactory(asked), (), samples.quick())
    with Journal(tmp_path / "old", writable=True) as journal:
        as_written = journal.meta.study_text
        assert "normalise_rewards: false" in as_written
        of_old = re.sub(r",?\s*normalise_rewards: false", "", as_written)
        assert "normalise_rewards" not in of_old
        journal.replace_meta(replace(journal.meta, study_text=of_old))
    assert replay(StudyFolder(tmp_path / "old"), 0).same


def test_interrupted_pbt_study_resumes_bitwise(study, folder, tmp_path):
    """Knobs of copies lie in the lanes' checkpoint: cut between two rungs, the end is the same."""
    path = tmp_path / study.name
    assert (
        run(study, path, LocalFactory(study), [samples.CutAt(6)], samples.quick()).state
        != "finished"
    )
    assert run(study, path, LocalFactory(study), (), samples.quick()).state == "finished"
    assert tables_equal(folder.path, path) == []


def test_replay_of_test_seeds_follows_the_lineage(folder):
    """A new seed runs a lineage's hyperparameters from its start, in the winner's own rows."""
    row = next(row for row in trials(folder) if row.trial >= 0 and row.report_values)
    found = replay(folder, row.trial, seeds=ReplayedSeeds(Stream.REPORT, (0,)))
    assert found.same and found.apart == () and found.replicates == (0,)
    [point] = found.points
    assert sum(point.replayed) / len(point.replayed) == row.report_values[0]
    assert found.curve_rows == 32
    chosen = replay(folder, row.trial, seeds=ReplayedSeeds(Stream.CHOOSE, (1,)))
    assert chosen.apart == () and [one.replicate for one in chosen.points] == [1]


def test_saved_policy_replays_recorded_episodes_bitwise(folder, tmp_path):
    kept = next(path for path in folder.policies.glob("trial_*/policy.json")).parent
    about = read_about(kept / "policy.json")
    point = play(folder, kept, about, Path())
    assert point.same and point.replicate == about["replicate"]
    other = tmp_path / "other"
    shutil.copytree(kept, other)
    text = (other / "policy.json").read_text()
    (other / "policy.json").write_text(re.sub(r'"gamma": [^,]*', '"gamma": 0.5', text))
    with pytest.raises(StoreError, match="has a different gamma than the trial"):
        play(folder, other, about, Path())
    with pytest.raises(StoreError, match="an evaluation that is not in the study"):
        play(folder, kept, {**about, "env_steps": 7}, Path())
    initial = '"average_reward_initial": '  # of a policy kept when 0 stood for `off`
    assert f"{initial}null" in text
    (other / "policy.json").write_text(text.replace(f"{initial}null", f"{initial}0.0"))
    assert play(folder, other, about, Path()).same


def test_replay_of_unknown_trial_is_refused(folder):
    with pytest.raises(StoreError, match="no trial 99"):
        replay(folder, 99)


def test_replay_command_reports_equality_and_exports_policy(folder, tmp_path, capsys):
    row = max(trials(folder), key=lambda row: len(row.schedule))
    where = ["--study", str(folder.path)]
    policy = tmp_path / "policy"
    assert main(["replay", str(row.trial), *where, "--json", "--export", str(policy)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (
        data["left_out"] == [] and data["same"] is True and data["lineage"] == list(row.schedule)
    )
    assert (policy / "policy.json").is_file()
    assert main(["replay", str(row.trial), *where, "--export", str(policy)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["show", str(row.trial), *where]) == 0
    shown = capsys.readouterr().out
    assert "copied trial" in shown and f"in trial {row.schedule[0]['trial']}" in shown


def test_the_confirmed_winner_was_trained_along_its_schedule(folder):
    """Fresh seeds follow the lineage of the winner; the leaderboard shows its last knobs."""
    (winner,) = [row for row in trials(folder) if row.choose_values and row.report_values]
    assert len(winner.choose_values) == 2 and len(winner.report_values) == 1
    if winner.schedule:
        assert winner.params == winner.schedule[-1]["params"]
