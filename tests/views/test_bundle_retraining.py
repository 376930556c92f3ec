"""`hpo verify --retrain` and `--play` run a bundle's code on the seeds that its claims rest on."""

import dataclasses
import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.bundles import verified
from helpers.recorded_study import change_journal
from hpo.cli import main
from hpo.errors import StoreError
from hpo.machine import devices
from hpo.search.analysis.replay import ReplayedSeeds, replay
from hpo.store.journal import Journal
from hpo.store.query import query
from hpo.store.rows import Stream
from hpo.store.study_folder import StudyFolder
from hpo.views.bundle import play_and_train

SEEDS = 8
# One update in a hundred on some seeds is not finite, so that some test seeds diverge.
CODE = """
import hpo, jax, jax.numpy as jnp

class Noisy(hpo.Training):
    unit, epoch = "examples", 100
    lr = hpo.traced(0.1, "step", low=0)

    def setup(self):
        self.steps_per_update = 100

    def init(self, key, h):
        fatal = jax.random.uniform(jax.random.fold_in(key, 7)) < 0.2
        return {"x": jnp.float32(3.0), "key": key, "left": jnp.where(fatal, 12, 1000)}

    def update(self, state, h):
        key, own = jax.random.split(state["key"])
        x = state["x"] - h.lr * (state["x"] - 1.0) + 0.01 * jax.random.normal(own)
        left = state["left"] - 1
        loss = jnp.where(left <= 0, jnp.nan, (x - 1.0) ** 2)
        return {"x": x, "key": key, "left": left}, {"loss": loss}

    def evaluate(self, state, h, key):
        return {"score": 0.01 * jax.random.normal(key) - (state["x"] - 1.0) ** 2}
"""
STUDY = """
name: noisy
seed: 5
algorithm: noisy.py:Noisy
length: 2000 examples
metric: {name: eval/score, goal: maximize}
space:
  lr: {min: 1e-3, max: 0.5, distribution: log_uniform}
search: {method: random}
seeds: {per_config: 1}
confirm: {top_k: 2, choose: 2, report: 8}
budget: {trials: 6}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noisy")
    (folder / "noisy.py").write_text(CODE)
    (folder / "noisy.yaml").write_text(STUDY)
    words = ["run", str(folder / "noisy.yaml"), "--out", str(folder / "results"), "--quiet"]
    assert main(words) == 0
    return folder


@pytest.fixture
def own(source, tmp_path):
    """A copy of the study's folder, to be changed."""
    shutil.copytree(source / "results" / "noisy", tmp_path / "noisy")
    return tmp_path / "noisy"


def bundled(folder, source, path):
    assert main(["bundle", str(folder), "--source", str(source), "-o", str(path)]) == 0
    return path


def rows_of(folder):
    with Journal(folder) as journal:
        return {row.trial: row for row in journal.trials()}


def winner(folder):
    return next(row for row in rows_of(folder).values() if row.report_values and row.trial > 0)


def forge(folder, row, value, seeds):
    """Give some test seeds of a trial another value, and make everything else from that."""
    width = query(folder, "SELECT count(*) FROM evaluations GROUP BY trial, stream, replicate")
    episodes = width[1][0][0]
    changes = [
        (
            "UPDATE evaluations SET metrics = ? WHERE trial = ? AND stream = 'report' "
            "AND replicate = ?",
            np.full(episodes, value).tobytes(),
            row.trial,
            seed,
        )
        for seed in seeds
    ]
    known = [value if seed in seeds else was for seed, was in row.by_report_seed.items()]
    values = [one for one in known if one == one]
    changes.append(changed_row(folder, row.trial, report_values=values))
    change_journal(folder, *changes)
    for path in folder.glob(f"policies/trial_{row.trial}/training.json"):
        data = json.loads(path.read_text())
        if data["about"]["replicate"] in seeds:
            data["about"]["value"] = value
        path.write_text(json.dumps(data))


def changed_row(folder, trial, **values):
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal:
        row = journal.execute("SELECT row FROM trials WHERE trial = ?", (trial,))
        text = json.dumps({**json.loads(row.fetchone()[0]), **values})
    return ("UPDATE trials SET row = ? WHERE trial = ?", text, trial)


def levels_of(path, capsys, *words):
    capsys.readouterr()
    code = main(["verify", str(path), "--allow-code", "--json", *words])
    found = json.loads(capsys.readouterr().out)
    return code, {one["name"]: one for one in found["levels"]}, found


def test_verify_retrain_retrains_every_claimed_seed(source, tmp_path, capsys):
    path = bundled(source / "results" / "noisy", source, tmp_path / "b.zip")
    code, levels, found = levels_of(path, capsys, "--play", "--retrain")
    assert code == 0, found
    words = levels["retrained"]["words"]
    assert words.startswith("bit-equal on all 8 test seeds of trial ") and "the default" in words
    vouched = {one["about"]: one["retrained"] for one in found["claims"]}
    assert vouched["value"] == vouched["verdict"] and "Retrained on all 8 test" in vouched["value"]
    assert vouched["cost"] is None
    assert levels["playable"]["words"].startswith("bit-equal on the 20 recorded episodes of test")
    lost = [row.report_diverged for row in rows_of(source / "results" / "noisy").values()]
    assert any(lost)  # they diverge again, too


def test_retraining_a_seed_sample_vouches_only_for_those(source, tmp_path, capsys):
    path = bundled(source / "results" / "noisy", source, tmp_path / "b.zip")
    code, said = verified(path, capsys, "--retrain", "--seeds", "2", "--allow-code")
    assert code == 0 and "retrained   yes  bit-equal on 2 of 8 test seeds (" in said.out, said
    head = next(line for line in said.out.splitlines() if line.startswith("Claimed, but only 2"))
    assert head.endswith("were retrained (bit-equal):")
    assert "Retrained on" not in said.out
    assert "trains 4 runs of 2,000 examples" in said.err


def test_retrained_seed_sample_is_random_and_shared_by_both_trials(source, tmp_path):
    from hpo.views.bundle.verify import Bundle

    path = bundled(source / "results" / "noisy", source, tmp_path / "b.zip")
    bundle = Bundle(path, tmp_path / "all")
    claims = bundle.consistent()[1]["claims"]
    drawn = set()
    for _ in range(40):
        ours, theirs = play_and_train.sides_of(bundle, claims, 2)
        assert ours.drawn == theirs.drawn and len(ours.drawn) == 2
        assert ours.replicates == theirs.replicates == tuple(range(SEEDS))
        drawn.add(ours.drawn)
    assert len(drawn) > 5  # of 28 pairs; chance below 1e-20


@pytest.mark.parametrize("those", [slice(None), slice(1, 2), slice(-1, None)])
def test_retraining_refutes_each_forged_test_seed(source, own, tmp_path, capsys, those):
    row = winner(own)
    seeds = [seed for seed in range(SEEDS) if seed not in row.report_diverged][those]
    assert seeds
    forge(own, row, 0.9, seeds)
    code, levels, _ = levels_of(bundled(own, source, tmp_path / "b.zip"), capsys, "--retrain")
    assert levels["consistent"]["holds"] and levels["retrained"]["holds"] is False and code == 1
    told = levels["retrained"]["wrong"]
    assert len(told) == len(seeds)
    for seed, line in zip(seeds, told, strict=True):
        assert line.startswith(f"trial {row.trial}, test seed {seed}: retrained value ")
        assert line.endswith("recorded value 0.9")
    _, said = verified(tmp_path / "b.zip", capsys, "--retrain", "--allow-code")
    assert "retrained   NO" in said.out and "Trial" not in said.out  # no headline


def test_forged_seeds_of_the_default_are_refuted(source, own, tmp_path, capsys):
    row = rows_of(own)[0]
    seed = next(seed for seed in range(SEEDS) if seed not in row.report_diverged)
    forge(own, row, -0.9, [seed])
    code, levels, _ = levels_of(bundled(own, source, tmp_path / "b.zip"), capsys, "--retrain")
    assert code == 1 and f"the default, test seed {seed}: retrained" in str(levels["retrained"])


def test_retraining_refutes_a_forged_divergence(source, own, tmp_path, capsys):
    row = rows_of(own)[0]
    lost = next(seed for seed in range(SEEDS) if seed not in row.report_diverged)
    kept = [v for seed, v in row.by_report_seed.items() if seed != lost and v == v]
    changed = changed_row(
        own, 0, report_values=kept, report_diverged=sorted([*row.report_diverged, lost])
    )
    gone = "DELETE FROM evaluations WHERE trial = 0 AND stream = 'report' AND replicate = ?"
    change_journal(own, changed, (gone, lost))
    code, levels, _ = levels_of(bundled(own, source, tmp_path / "b.zip"), capsys, "--retrain")
    assert levels["consistent"]["holds"] and code == 1
    told = f"the default, test seed {lost}: diverged only in the study"
    assert told in levels["retrained"]["wrong"]


def test_replay_detects_a_changed_curve(source, own):
    """An evaluation may be true and the curve beside it made up, or rows of it left out."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    row, path = winner(own), own / "curves.parquet"
    table = pq.read_table(path)
    ours = pc.and_(pc.equal(table["trial"], row.trial), pc.equal(table["stream"], "report"))
    seed = next(seed for seed in range(SEEDS) if seed not in row.report_diverged)
    ours = pc.and_(ours, pc.equal(table["replicate"], seed))
    first = pc.and_(ours, pc.equal(table["env_steps"], 100))
    pq.write_table(table.filter(pc.invert(first)), path)
    seeds = ReplayedSeeds(Stream.REPORT, tuple(range(SEEDS)))
    found = replay(StudyFolder(own), row.trial, source, seeds=seeds)
    assert found.apart == (seed,)
    place = table.column_names.index("loss")
    wrong = pc.if_else(first, 0.5, table["loss"])
    pq.write_table(table.set_column(place, "loss", wrong), path)
    assert replay(StudyFolder(own), row.trial, source, seeds=seeds).apart == (seed,)


def test_replay_on_different_hardware_compares_seed_means():
    """Every run differs there in its last digits, and may end anywhere in their spread."""
    side = play_and_train.ClaimSeeds(3, "trial 3", Stream.REPORT, tuple(range(6)), tuple(range(6)))
    found = replayed([10.0, 12.0, 11.0, 13.0, 9.0, 11.0], [11.0, 9.5, 12.0, 10.0, 12.5, 10.5])
    holds, words = play_and_train._means_agree(side, found)
    assert holds is True and "within the interval" in words
    holds, words = play_and_train._means_agree(side, replayed([10.0] * 6, [500.0] * 6))
    assert holds is not True
    spread = [1.0, -1.0, 2.0, -2.0, 0.5, -0.5]
    far = replayed([10 + x for x in spread], [50 - x for x in spread])
    assert play_and_train._means_agree(side, far)[0] is False
    few = replayed([1.0, 2.0], [2.0, 1.0])
    assert play_and_train._means_agree(side, few)[0] is None


def test_different_number_of_devices_is_named(source, tmp_path, monkeypatch):
    from hpo.views.bundle.verify import Bundle

    path = bundled(source / "results" / "noisy", source, tmp_path / "b.zip")
    bundle = Bundle(path, tmp_path / "all")
    bundle.consistent()
    with Journal(bundle.folder) as journal:
        count = journal.meta.devices
    assert play_and_train._changed_since(bundle).startswith("with the same versions: ")
    five = (SimpleNamespace(platform="cpu"),) * 5
    monkeypatch.setattr(devices, "prepare_devices", lambda kind: five)
    assert play_and_train._changed_since(bundle) == f"{count} CPU devices, here 5 CPU devices"


def replayed(now, recorded):
    from hpo.search.analysis.replay import Replay, ReplayedPoint

    pairs = enumerate(zip(recorded, now, strict=True))
    points = [ReplayedPoint(100, seed, 3, (was,), (here,)) for seed, (was, here) in pairs]
    return dataclasses.replace(Replay("s", 3, (), tuple(points), 0, 0), apart=(0, 1))


def test_verify_play_detects_a_changed_saved_state(source, own, tmp_path, capsys):
    row = winner(own)
    path = next(own.glob(f"policies/trial_{row.trial}/lane"))
    other = path.read_bytes()[32:]
    changed = bytes(len(other) - 4) + other[-4:]
    path.write_bytes(hashlib.sha256(changed).digest() + changed)
    code, levels, _ = levels_of(bundled(own, source, tmp_path / "b.zip"), capsys, "--play")
    assert levels["consistent"]["holds"]
    assert "not bit-equal on the 20 recorded episodes" in levels["playable"]["words"]
    path.write_bytes(b"0" * len(path.read_bytes()))
    code, levels, _ = levels_of(bundled(own, source, tmp_path / "c.zip"), capsys)
    assert code == 1 and "lane: is damaged" in str(levels["consistent"]["wrong"])


def test_replay_never_runs_changed_code(own, tmp_path):
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "noisy.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{CODE}")
    with pytest.raises(StoreError, match="was trained with different versions"):
        replay(StudyFolder(own), 0, evil)
    assert not (tmp_path / "ran").exists()


def test_claimed_cost_includes_diverged_runs(source, tmp_path, capsys):
    folder = source / "results" / "noisy"
    path = bundled(folder, source, tmp_path / "b.zip")
    said = capsys.readouterr().out
    _, _, found = levels_of(path, capsys)
    cost = next(one for one in found["claims"] if one["about"] == "cost")["sentences"][0]
    with Journal(folder) as journal:
        used = json.loads(journal.head().loop_state)["usage"]
    trained = used["search_env_steps"] + used["confirm_env_steps"]
    assert cost == f"Training took {trained:,} examples." and cost in said
    [(curves,)] = query(
        folder,
        "SELECT sum(s) FROM (SELECT max(env_steps) AS s FROM curves "
        "GROUP BY trial, stream, replicate)",
    )[1]
    assert curves < trained
