"""A run made longer equals the run that was long from the start, or growing is refused."""

import json
import shutil
from dataclasses import replace

import jax
import numpy as np
import pytest

from helpers import search_samples as samples
from hpo.core.saved_policy import load_policy
from hpo.errors import StoreError
from hpo.search.engine.extend_run import as_begun, resume_note, single_as_begun
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import run
from hpo.search.state.loop_state import LoopState
from hpo.search.study_estimate import preview
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.studies.chunk_sizes import chunk_sizes_of, updates_per_chunk
from hpo.studies.load import loads
from hpo.studies.resolved import diff, resolved, resolved_yaml, study_hash
from hpo.studies.search_spec import Confirm, Evaluation, Metric, Seeds
from hpo.studies.train_study import moving_schedules, single

pytestmark = pytest.mark.slow


def one(env_steps=8_000, **changes):
    """One configuration on three seeds, evaluated every 4,000 env steps."""
    base = samples.study(
        samples.Space(),
        early_terminate=None,
        seeds=Seeds(3),
        budget=samples.Budget(trials=1),
        evaluation=Evaluation(every=4_000),
        env_steps=env_steps,
        schedule_env_steps=8_000,
    )
    return replace(base, **changes)


def go(study, folder, observers=(), factory=None, **settings):
    return run(
        study, folder, factory or samples.AnalyticFactory(), observers, samples.quick(**settings)
    )


def policies(folder):
    """Return the bytes of every policy of a study with its place."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "policies").rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("goal", ["maximize", "minimize"])  # the best one is late, or early
@pytest.mark.parametrize("ways", [(16_000,), (12_000, 16_000, 32_000)])
def test_extended_run_equals_run_of_full_length(tmp_path, ways, goal):
    kept = replace(one().checkpoint, each_seed=True, best_evaluation=True, best_of_each=True)
    go(one(checkpoint=kept, metric=Metric(goal=goal)), tmp_path / "grown")
    for env_steps in ways:
        grown = go(one(env_steps, checkpoint=kept, metric=Metric(goal=goal)), tmp_path / "grown")
    long = go(one(ways[-1], checkpoint=kept, metric=Metric(goal=goal)), tmp_path / "long")
    assert grown.state == long.state == "finished"
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []
    assert policies(tmp_path / "grown") == policies(tmp_path / "long") != {}
    assert grown.usage.search_env_steps == long.usage.search_env_steps == 3 * ways[-1]
    assert grown.leaderboard[0].value == long.leaderboard[0].value


def test_seed_diverging_in_extended_run_leaves_no_policy(tmp_path):
    factory = samples.LosingFactory(replicate=0, chunk=12)
    changes = {"seeds": Seeds(3, tolerate=1)}
    changes["checkpoint"] = replace(one().checkpoint, each_seed=True)
    for name, ways in (("grown", (8_000, 16_000)), ("long", (16_000,))):
        for env_steps in ways:
            found = go(one(env_steps, **changes), tmp_path / name, factory=factory)
        assert found.leaderboard[0].seeds == 2
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []
    assert policies(tmp_path / "grown") == policies(tmp_path / "long") != {}
    kept = json.loads((tmp_path / "grown" / "policies" / "trial_0" / "policy.json").read_text())
    assert kept["replicate"] == 1


@pytest.mark.parametrize("each_seed", [False, True])
def test_trial_losing_its_value_in_extended_run_leaves_no_policy(tmp_path, each_seed):
    factory = samples.LosingFactory(replicate=0, chunk=12)
    kept = replace(one().checkpoint, each_seed=each_seed)
    for env_steps in (8_000, 16_000):
        study = one(env_steps, seeds=Seeds(1), checkpoint=kept)
        found = go(study, tmp_path, factory=factory)
        assert bool(policies(tmp_path)) == (env_steps == 8_000)
    assert str(found.leaderboard[0].state) == "diverged"


def test_extension_within_last_chunk_finishes(tmp_path):
    """Both lengths round up to the same chunk, behind which no run would ever end."""
    go(one(7_990), tmp_path / "grown")
    grown = go(one(7_999), tmp_path / "grown", [samples.Stop(chunks=1)])
    long = go(one(7_999), tmp_path / "long")
    assert grown.state == long.state == "finished"
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []
    go(one(16_000), tmp_path / "grown")
    go(one(16_000), tmp_path / "long16")
    assert tables_equal(tmp_path / "grown", tmp_path / "long16") == []


@pytest.mark.parametrize("chunks", [1, 4, 7])
@pytest.mark.parametrize("commit_seconds", [0.0, 1e9])
def test_crash_in_extended_run_loses_nothing(tmp_path, chunks, commit_seconds):
    """Also one that comes before the first commit of the longer run."""
    go(one(), tmp_path / "grown")
    with pytest.raises(KeyboardInterrupt):
        go(one(16_000), tmp_path / "grown", [samples.Stop(chunks)], commit_seconds=commit_seconds)
    go(one(16_000), tmp_path / "grown")
    go(one(16_000), tmp_path / "long")
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []


@pytest.mark.parametrize("chunks", [3, 8])
@pytest.mark.parametrize("commit_seconds", [0.0, 1e9])
def test_interrupted_run_can_be_extended(tmp_path, chunks, commit_seconds):
    """At its last boundary as well, where nothing but the last commit is missing."""
    with pytest.raises(KeyboardInterrupt):
        go(one(), tmp_path / "grown", [samples.Stop(chunks)], commit_seconds=commit_seconds)
    go(one(16_000), tmp_path / "grown")
    go(one(16_000), tmp_path / "long")
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []


def test_extending_diverged_run_is_refused(tmp_path):
    factory = samples.AnalyticFactory(diverges_above=1e-5)
    go(one(), tmp_path / "s", factory=factory)
    with pytest.raises(StoreError, match=r"trial 0 has not finished \(diverged\)"):
        go(one(16_000), tmp_path / "s", factory=factory)


def test_warm_up_counts_once(tmp_path):
    factory = samples.AnalyticFactory(warmup_chunks=3)
    for env_steps, folder in ((8_000, "grown"), (16_000, "grown"), (16_000, "long")):
        go(one(env_steps), tmp_path / folder, factory=factory)
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []


def test_the_same_command_again_does_nothing(tmp_path):
    go(one(), tmp_path / "s")
    with Journal(tmp_path / "s") as journal:
        before = journal.head()
    assert before.checkpoint is not None
    assert go(one(), tmp_path / "s").state == "finished"
    with Journal(tmp_path / "s") as journal:
        assert journal.head().number == before.number


# ---------------------------------------------------------------------- what is refused


def test_extending_seeds_that_shared_lanes_is_refused(tmp_path):
    factory = samples.AnalyticFactory(lanes=2)
    study = one(population=replace(one().population, lanes=2))
    go(study, tmp_path / "s", factory=factory)
    with pytest.raises(StoreError, match="3 seeds shared 2 lanes"):
        go(replace(study, env_steps=16_000), tmp_path / "s", factory=factory)
    with pytest.raises(KeyboardInterrupt):
        go(study, tmp_path / "cut", [samples.Stop(10)], factory=factory, commit_seconds=0.0)
    with pytest.raises(
        StoreError, match="seeds 0, 1 ended at 8000 env steps, and their lanes were reused"
    ):
        go(replace(study, env_steps=16_000), tmp_path / "cut", factory=factory)
    assert go(study, tmp_path / "cut", factory=factory).state == "finished"


def test_extension_with_mismatched_evaluation_points_is_refused(tmp_path):
    study = one(evaluation=Evaluation(every=3_000))
    go(study, tmp_path / "s")
    with pytest.raises(StoreError, match=r"evaluated at its end, 8000 env steps.*is 3000"):
        go(replace(study, env_steps=16_000), tmp_path / "s")


def test_extension_with_mismatched_curve_rows_is_refused(tmp_path):
    go(one(log_every=3_000), tmp_path / "s")
    with pytest.raises(StoreError, match=r"last row of the curve ends at 8000.*log_every is 3000"):
        go(one(16_000, log_every=3_000), tmp_path / "s")
    go(one(log_every=4_000), tmp_path / "grown")
    go(one(16_000, log_every=4_000), tmp_path / "grown")
    go(one(16_000, log_every=4_000), tmp_path / "long")
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []


def test_extension_without_checkpoints_is_refused(tmp_path):
    go(one(), tmp_path / "s")
    shutil.rmtree(tmp_path / "s" / "checkpoints")
    assert go(one(), tmp_path / "s").state == "finished"
    with pytest.raises(
        StoreError, match=r"env_steps cannot be raised: .*checkpoints.* is missing"
    ):
        go(one(16_000), tmp_path / "s")


def test_confirm_stage_prevents_later_extension(tmp_path):
    """The confirm stage takes them, so that the run cannot grow any more."""
    go(one(), tmp_path / "s")
    go(one(confirm=Confirm(1, 2, 2)), tmp_path / "s")
    with pytest.raises(StoreError, match="the state of the run at"):
        go(one(16_000), tmp_path / "s")


def test_loop_state_without_ended_field_is_read(tmp_path):
    text = json.loads(LoopState().to_text())
    del text["ended"]
    assert LoopState.from_text(json.dumps(text)) == LoopState()


def reasons(old, new):
    return {c.key: c.why for c in diff(resolved(old), resolved(new)) if not c.allowed}


def test_extending_env_steps_of_search_is_refused_with_suggestion():
    old = samples.study()
    found = reasons(old, replace(old, env_steps=32_000))
    assert "only a study of one configuration" in found["env_steps"]
    assert "init: {from:" in found["env_steps"] and "start another study" in found["env_steps"]
    assert "can only be lengthened" in reasons(one(16_000), one(8_000))["env_steps"]


def test_schedules_keep_their_horizon_in_extended_run():
    plain = one(schedule_env_steps=None)
    linear = replace(plain, fixed={"lr_schedule": "linear"})
    found = reasons(linear, replace(linear, env_steps=16_000))
    assert "schedules over 8000 env steps (lr_schedule: linear)" in found["env_steps"]
    assert "set schedule_env_steps: 8000" in found["env_steps"]
    stated = replace(linear, env_steps=16_000, schedule_env_steps=8_000)
    assert reasons(linear, stated) == {}
    assert reasons(stated, replace(stated, env_steps=24_000)) == {}
    other = replace(stated, schedule_env_steps=9_000)
    assert set(reasons(stated, other)) == {"schedule_env_steps"}


@pytest.mark.parametrize(
    ("fixed", "found"),
    [
        ({"lr_schedule": "constant"}, []),
        ({"ent_schedule": "cosine"}, ["ent_schedule: cosine"]),
        ({"gae_lambda_initial": 0.9, "gae_lambda_final": 0.9}, []),
        ({"gae_lambda_initial": 0.9, "gae_lambda_final": 0.95}, ["gae_lambda_final: 0.95"]),
        ({"priority_alpha": 0.4}, ["anneal_priority_beta: true"]),
        ({"priority_alpha": 0.4, "anneal_priority_beta": False}, []),
    ],
)
def test_schedules_that_change_over_run_are_listed(fixed, found):
    assert moving_schedules(fixed) == found


# ---------------------------------------------------------------------- horizon and chunks

TEXT = """\
name: trained
env: CartPole-v1
env_steps: 4096
fixed: {num_envs: 2, rollout_length: 16, num_minibatches: 2, hidden_sizes: [8]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
early_terminate: {type: asha, min: 1k}
evaluation: {episodes: 2}
seeds: {per_config: 2}
confirm: {top_k: 1, choose: 2, report: 2}
population: {lanes: 4}
budget: {trials: 9}
"""


def test_schedule_horizon_is_absent_from_resolved_study_by_default():
    plain = loads(TEXT)
    assert "schedule_env_steps" not in resolved(plain) and plain.horizon == 4096
    stated = loads(TEXT + "schedule_env_steps: 8k\n")
    assert resolved(stated)["schedule_env_steps"] == stated.horizon == 8_000
    assert resolved(loads(resolved_yaml(stated))) == resolved(stated)
    assert study_hash(stated) != study_hash(plain)
    assert loads(TEXT + "schedule_env_steps: off\n") == plain


def test_chunks_are_laid_out_over_schedule_horizon():
    short = single(loads(TEXT))
    long = single(loads(TEXT + "schedule_env_steps: 4096\n", overrides=["env_steps=12k"]))
    assert long.evaluation == short.evaluation
    assert updates_per_chunk(short, 32) == updates_per_chunk(long, 32)
    one_, other = chunk_sizes_of(short, 32), chunk_sizes_of(long, 32)
    assert one_.schedule_chunks == other.schedule_chunks == one_.chunks < other.chunks
    grown = replace(short, env_steps=12_000)
    assert updates_per_chunk(grown, 32) != updates_per_chunk(short, 32)


def test_schedule_horizon_is_read_from_existing_folder(tmp_path):
    begun = single_as_begun(loads(TEXT), tmp_path / "s")
    assert begun == single(loads(TEXT))
    go(begun, tmp_path / "s")
    longer = loads(TEXT, overrides=["env_steps=8192"])
    again = single_as_begun(longer, tmp_path / "s")
    assert (again.env_steps, again.schedule_env_steps) == (8192, 4096)
    assert again.evaluation == begun.evaluation
    words = resume_note(again, tmp_path / "s")
    assert "from 4,096 to 8,192" in words and "based on 4,096 (schedule_env_steps)" in words
    assert resume_note(begun, tmp_path / "s") == ""
    searched = replace(longer, name="s")
    assert as_begun(searched, tmp_path / "s") == searched
    moving = replace(single(longer), fixed={**longer.fixed, "lr_schedule": "cosine"})
    assert as_begun(moving, tmp_path / "s") == moving


class OneProgram(LocalFactory):
    """Compiles the program of a study with one bucket once, for all its populations."""

    def program_of(self, resolved, lanes=None):
        if not hasattr(self, "only"):
            self.only = super().program_of(resolved, lanes)
        return self.only


@pytest.mark.usefixtures("quickly_compiled")
def test_extended_real_run_is_bitwise_equal(tmp_path):
    """With recurrent memory, running statistics and episodes that run over the old end."""
    text = TEXT.replace(
        "fixed: {",
        "fixed: {network: gru, recurrent_size: 4, "
        "normalise_rewards: true, normalise_observations: true, ",
    )
    text = text.replace("env_steps: 4096", "env_steps: 512").replace("min: 1k", "min: 256")
    short = single(loads(text))
    long = single(loads(text, overrides=["env_steps=768", "schedule_env_steps=512"]))
    steps = {LocalFactory(each).resolve(each.default()).steps_per_chunk for each in (short, long)}
    assert len(steps) == 1
    factory = OneProgram(long)
    for study, folder in ((short, "grown"), (long, "grown"), (long, "long")):
        go(study, tmp_path / folder, factory=factory)
    assert tables_equal(tmp_path / "grown", tmp_path / "long") == []
    grown, straight = (
        load_policy(tmp_path / name / "policies" / "trial_0") for name in ("grown", "long")
    )
    trees = [(p.params, p.statistics, p.rewards) for p in (grown, straight)]
    for a, b in zip(*map(jax.tree.leaves, trees), strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(grown.rewards.returns.count) == 768
    _check_init(text, tmp_path / "long" / "policies" / "trial_0")


def _check_init(text, folder):
    """A study that starts from such a policy takes reward statistics; old folders lack them."""
    study = loads(f"{text}init: {{from: '{folder}'}}\n")
    warned = []
    factory = LocalFactory(study, warn=warned.append)
    started = factory.program_of(factory.resolve(study.default())).initial
    assert float(started.rewards.returns.count) == 768 and warned == []
    path = folder / "policy.json"
    document = json.loads(path.read_text())
    assert document.pop("reward_state")["returns"]["count"] == 768
    path.write_text(json.dumps(document))
    factory = LocalFactory(study, warn=warned.append)
    started = factory.program_of(factory.resolve(study.default())).initial
    assert started.rewards.returns is None
    assert len(warned) == 1 and "no reward statistics (normalise_rewards)" in warned[0]
    report, _ = preview(study)
    assert warned[0] in report.warnings
    text = text.replace("normalise_rewards: true, ", "")
    other = loads(f"{text}init: {{from: '{folder}', keep: policy}}\n")
    LocalFactory(other, warn=warned.append)
    assert len(warned) == 1
