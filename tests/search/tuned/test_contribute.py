"""A study's winner proved on fresh seeds and verified again, over lanes that follow a formula."""

import dataclasses
import hashlib
import itertools
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import yaml

from helpers import search_samples as samples
from helpers import tuned_samples as records
from helpers.analytic_lanes import AnalyticFactory, AnalyticPopulation
from helpers.loading import script_module
from hpo.errors import ConfigError, SearchError, StoreError
from hpo.knobs import complete
from hpo.search.run import run
from hpo.search.seeds import study_seed
from hpo.search.tuned_runs import judged, proof_study, run_proof, verify
from hpo.store.baselines import baselines_of
from hpo.store.journal import JOURNAL_NAME, Journal
from hpo.store.query import query
from hpo.store.study_folder import StudyFolder
from hpo.studies.execution_spec import Budget
from hpo.studies.load import loads
from hpo.studies.resolved import resolved_yaml
from hpo.studies.search_spec import Confirm, EarlyTerminate, Metric, Seeds
from hpo.studies.tuned.record import read_record
from hpo.studies.tuned.study_text import train_text
from hpo.studies.tuned.summary import comparisons
from hpo.views.bundle.write import write_bundle

adding = script_module("tuned_parts.candidate")
candidate_of, contribute = adding.candidate_of, adding.contribute
commit_of_checkout = adding.commit_of_checkout
SEEDS, published, record_text = adding.SEEDS, adding.published, records.record_text


class Population(AnalyticPopulation):
    """Lanes with the return of training that real ones report."""

    def advance(self, refills, busy):
        found = super().advance(refills, busy)

        def told(metrics):
            return {**metrics, "episode_return_100": 90.0 * metrics["skill"]}

        rows = tuple(dataclasses.replace(row, metrics=told(row.metrics)) for row in found.rows)
        return dataclasses.replace(found, metrics=told(found.metrics), rows=rows)


@dataclasses.dataclass(frozen=True)
class Factory(AnalyticFactory):
    """Chunks are as long as the way between two evaluations of a proof."""

    def resolve(self, config):
        return dataclasses.replace(super().resolve(config), steps_per_chunk=2_000)

    def make(self, resolved, lanes):
        return Population(self, resolved.steps_per_chunk, lanes or self.lanes)


def analytic(study, out, **factory):
    """Run a study over formulas, its seed theirs; the default's learning rate is not the best."""
    settings = samples.quick(study_text=resolved_yaml(study))
    return run(
        study, out / study.name, Factory(seed=study.seed, best_rate=1e-2, **factory), (), settings
    )


def searched(tmp_path, **changes):
    """Return the folder of a finished study whose default is far from the best."""
    study = samples.study(
        confirm=Confirm(3, 8, 16),
        env_steps=40_000,
        enqueue=({"learning_rate": 1e-2},),  # the best there is
        **{"budget": Budget(16), **changes},
    )
    analytic(study, tmp_path)
    return StudyFolder(tmp_path / study.name)


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    """A study, and its winner proved: candidate, record, and where the runs lie."""
    folder = tmp_path_factory.mktemp("proof")
    candidate = candidate_of(searched(folder))
    record = contribute(candidate, folder, SEEDS, analytic)
    return SimpleNamespace(candidate=candidate, record=record, folder=folder)


def test_proof_runs_winner_default_and_published_configurations(proof):
    candidate, record = proof.candidate, proof.record
    assert [one.who for one in record.contenders] == [
        "tuned",
        "default",
        *(one.by for one in published("CartPole-v1")),
    ]
    assert all(len(one.greedy) == 32 for one in record.contenders)
    assert record.tuned.config == candidate.config
    assert record.contenders[1].config == complete({})
    assert record.contenders[2].config == complete(published("CartPole-v1")[0].knobs)
    against = comparisons(record)[0]
    assert (against.who, against.verdict) == ("default", "better")
    assert record.origin.trials == 16 and record.origin.seeds["report"] == 16
    assert record.origin.env_steps > 16 * 2 * 2_000 and "default" in record.origin.said
    with Journal(proof.folder / "CartPole-v1.proof.tuned") as journal:
        assert f"seed: {record.seed}\n" in journal.meta.study_text and record.seed != 0


def test_record_numbers_equal_the_tables(proof):
    record, folder = proof.record, proof.folder / "CartPole-v1.proof.default"
    _, rows = query(
        folder,
        "SELECT replicate, env_steps, avg(episode_return) FROM evaluations "
        "GROUP BY ALL ORDER BY replicate, env_steps",
    )
    default = record.contenders[1]
    assert len(rows) == 32 * 20 and len(default.curve.env_steps) == 20
    last = [value for _, at, value in rows if at == 40_000]
    assert last == pytest.approx(list(default.greedy))
    first = [(at, value) for seed, at, value in rows if seed == 0]
    assert [at for at, _ in first] == list(default.curve.env_steps)
    steps = first[1][0] - first[0][0]
    area = sum((a[1] + b[1]) / 2 * steps for a, b in itertools.pairwise(first))
    assert default.area[0] == pytest.approx(area / (first[-1][0] - first[0][0]))
    reached = next((at for at, value in first if value >= record.threshold), None)
    assert default.to_threshold[0] == reached
    _, rows = query(
        folder,
        "SELECT episode_return_100 FROM curves WHERE env_steps = 40000 ORDER BY replicate",
    )
    assert [value for (value,) in rows] == list(default.training)
    assert default.cost.env_steps == 32 * 40_000 and default.cost.cpu_seconds > 0.0


def test_killed_proof_resumes_to_same_record(tmp_path, proof):

    class Killed(BaseException):
        pass

    left = {"chunks": 13}

    class Dying(Population):
        def advance(self, refills, busy):
            left["chunks"] -= 1
            if left["chunks"] == 0:
                raise Killed
            return super().advance(refills, busy)

    @dataclasses.dataclass(frozen=True)
    class DyingFactory(Factory):
        def make(self, resolved, lanes):
            return Dying(self, resolved.steps_per_chunk, lanes or self.lanes)

    def dies(study, out):
        settings = samples.quick(commit_seconds=0.0)
        return run(
            study, out / study.name, DyingFactory(seed=study.seed, best_rate=1e-2), (), settings
        )

    out = tmp_path / "killed"
    with pytest.raises(Killed):
        contribute(proof.candidate, out, SEEDS, dies)
    again = contribute(proof.candidate, out, SEEDS, analytic)
    assert _results(again) == _results(proof.record)


def _results(record):
    return [(one.greedy, one.area, one.training, one.curve) for one in record.contenders]


def test_proof_ignores_budget_and_aggregate_of_search(tmp_path):
    study = samples.study(
        env_steps=40_000,
        metric=Metric(aggregate="iqm"),
        seeds=Seeds(8),
        budget=Budget(16, env_steps=10_000_000, wall_seconds=1e-9),
    )
    own = proof_study(study, "whole", complete({}), 9, 5)
    runs = run_proof(own, tmp_path, runner=analytic)  # iqm needs eight seeds that do not diverge
    assert len(runs.values) == 9 and runs.env_steps[-1] == 40_000


def test_default_is_run_before_the_winner(tmp_path, proof):
    begun = []

    class Cannot(SearchError):
        pass

    def runner(study, out):
        begun.append(study.name)
        raise Cannot("network mlp reads one array")

    with pytest.raises(Cannot):
        contribute(proof.candidate, tmp_path, SEEDS, runner)
    assert begun == ["CartPole-v1.proof.default"]


@pytest.mark.parametrize("what", ["net.json", "mine.yaml", "spaces/ppo.yaml"])
def test_study_that_reads_files_cannot_become_record(tmp_path, proof, what):
    """A record trains alone: elsewhere its files are not there, or are others of that name."""
    folder = StudyFolder(shutil.copytree(proof.folder / "small", tmp_path / "small"))
    if what == "net.json":
        with Journal(folder.path, writable=True) as journal:
            journal.replace_meta(dataclasses.replace(journal.meta, files={what: "0" * 64}))
    else:
        given = yaml.safe_load(folder.study_file.read_text())
        folder.study_file.write_text(yaml.safe_dump({**given, "space": {"file": what}}))
    told = f"reads {re.escape(what)}, which a record cannot hold"
    if what == "spaces/ppo.yaml":  # ships: it is read, and is another space than what ran
        told = "is not a study"
    with pytest.raises(ConfigError, match=told):
        candidate_of(folder)


def test_study_without_its_file_cannot_become_record(tmp_path, proof):
    folder = StudyFolder(shutil.copytree(proof.folder / "small", tmp_path / "small"))
    folder.study_file.unlink()
    with pytest.raises(ConfigError, match=r"study.yaml is gone, and a record holds it"):
        candidate_of(folder)


@pytest.mark.parametrize("name", ["Catch-bsuite", "Pong-misc", "x", "y", "z"])
def test_proof_seeds_are_legal_for_every_name(tmp_path, proof, name):
    asked = []

    def runner(study, out):
        asked.append(loads(resolved_yaml(study), "proof.yaml"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contribute(proof.candidate, tmp_path, SEEDS, runner, name=name)
    fresh = [study_seed(asked[0].seed, "tuned verify", again) for again in range(50)]
    assert all(0 <= seed < 2**31 for seed in fresh) and len(set(fresh)) == 50


def test_record_of_env_with_keys_is_named_after_study(tmp_path, proof):
    asked = []

    def runner(study, out):
        asked.append(study.name)
        raise KeyboardInterrupt

    study = proof.candidate.study
    keyed = dataclasses.replace(study.env, values={"max_steps_in_episode": 200})
    named = dataclasses.replace(study, name="tuned-CartPole-short", env=keyed)
    with pytest.raises(KeyboardInterrupt):
        contribute(dataclasses.replace(proof.candidate, study=named), tmp_path, SEEDS, runner)
    assert asked == ["CartPole-short.proof.default"]


def test_heuristics_are_measured_once_on_the_seeds_of_the_proof(tmp_path, proof):
    study = dataclasses.replace(proof.candidate.study, baselines=("ksp_ff",))
    candidate = dataclasses.replace(proof.candidate, study=study)
    record = contribute(candidate, tmp_path, SEEDS, analytic)
    assert list(record.heuristics) == ["ksp_ff"] and len(record.heuristics["ksp_ff"]) == SEEDS
    with Journal(tmp_path / "CartPole-v1.proof.tuned") as journal:
        (row,) = baselines_of(journal)
    assert row.values["search"] == record.heuristics["ksp_ff"]
    assert max(row.values["search"]) < min(record.tuned.greedy)  # no skill
    for who in ("default", "rejax"):
        with Journal(tmp_path / f"CartPole-v1.proof.{who}") as journal:
            assert baselines_of(journal) == []
    assert _results(record) == _results(proof.record)  # they change nothing else


def test_record_keeps_evaluation_settings_of_its_proof(tmp_path, proof):
    how = dataclasses.replace(proof.candidate.study.evaluation, episodes=3, steps=50)
    study = dataclasses.replace(proof.candidate.study, evaluation=how)
    candidate = dataclasses.replace(proof.candidate, study=study)
    record = contribute(candidate, tmp_path, 8, analytic)
    again = loads(train_text(record), "tuned.yaml").evaluation
    assert (again.episodes, again.steps, again.greedy) == (3, 50, how.greedy)


def test_runs_of_another_commit_are_not_mixed(proof, monkeypatch):
    monkeypatch.setattr(adding, "commit_of_checkout", lambda: "b" * 40)
    with pytest.raises(ConfigError, match="was started by commit"):
        contribute(proof.candidate, proof.folder, SEEDS, analytic)


def test_proof_tolerates_all_but_one_diverged_seed(tmp_path):
    study = samples.study(env_steps=40_000)
    own = proof_study(study, "all", complete({"learning_rate": 0.9}), 8, 5)
    assert own.seeds.per_config == 8 and own.seeds.tolerate == 7 and own.seed == 5
    with pytest.raises(SearchError, match="no seed of all finished"):
        run_proof(own, tmp_path, runner=analytic)


def test_proof_without_a_finished_seed_is_refused(tmp_path):

    class HalfWay(Population):
        def train_chunk(self, lane):
            super().train_chunk(lane)
            return lane.chunks >= 13

    class Diverging(Factory):
        def make(self, resolved, lanes):
            return HalfWay(self, resolved.steps_per_chunk, lanes or self.lanes)

    def runner(study, out):
        settings = samples.quick(study_text=resolved_yaml(study))
        return run(study, out / study.name, Diverging(seed=study.seed), (), settings)

    own = proof_study(samples.study(env_steps=40_000), "all", complete({}), 8, 5)
    with pytest.raises(SearchError, match="no seed of all finished: seed 0 at"):
        run_proof(own, tmp_path, runner=runner)
    with Journal(tmp_path / "all") as journal:
        assert len(list(journal.evaluations())) > 8  # they showed something before


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule_env_steps": 80_000}, "has schedule_env_steps, which a record cannot hold"),
        ({"metric": Metric("eval/return_median")}, "is judged by eval/return_median; runs of a"),
    ],
)
def test_unsupported_settings_are_refused_before_proof_runs(tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        candidate_of(searched(tmp_path, **changes), anyway=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confirm": None}, "has not shown"),
        ({"early_terminate": EarlyTerminate("pbt", every=10_000)}, "has not shown|changed its"),
    ],
)
def test_winner_without_clear_verdict_is_refused(tmp_path, changes, words):
    study = samples.study(
        **{"confirm": Confirm(2, 4, 8), "budget": Budget(8), "env_steps": 40_000, **changes}
    )
    analytic(study, tmp_path)
    with pytest.raises(ConfigError, match=words):
        candidate_of(StudyFolder(tmp_path / "small"))


def test_anyway_flag_accepts_winner_without_verdict(tmp_path):
    study = samples.study(budget=Budget(8), env_steps=40_000)
    analytic(study, tmp_path)
    candidate = candidate_of(StudyFolder(tmp_path / "small"), anyway=True)
    assert candidate.origin.verdict == "nothing" and candidate.origin.seeds["report"] == 0


def test_study_that_differs_from_its_file_is_refused(proof):
    folder = StudyFolder(proof.folder / "small")
    text = folder.study_file.read_text()
    folder.study_file.write_text(text.replace("trials: 16", "trials: 17"))
    with pytest.raises(ConfigError, match=r"other settings than its file says: budget\.trials"):
        candidate_of(folder)
    folder.study_file.write_text(text)
    assert candidate_of(folder).config == proof.record.tuned.config


# ---------------------------------------------------------------------- verifying


def test_verification_with_same_code_is_bit_equal(tmp_path, proof):
    found = verify(proof.record, tmp_path / "again", 8, 32, 0, runner=analytic)
    assert (found.verdict, found.recorded, found.equal) == ("bit-equal", 8, 8)
    assert found.agreement.within and found.seeds == 32


def test_verification_on_different_machine_is_within_interval(tmp_path, proof):
    """Other bits: each evaluation has one episode more, of the same distribution."""

    def other(study, out):
        return analytic(study, out, episodes=3)

    found = verify(proof.record, tmp_path / "again", 8, 32, 0, runner=other)
    assert (found.verdict, found.equal) == ("within the interval", 0)


def test_verification_detects_worse_code(tmp_path, proof):

    def worse(study, out):  # a bug: another configuration is trained
        fixed = {**study.fixed, "learning_rate": 0.05}
        return analytic(dataclasses.replace(study, fixed=fixed), out)

    assert verify(proof.record, tmp_path / "again", 8, 32, 0, runner=worse).verdict == "not"


def test_bit_equal_seeds_do_not_pass_if_new_seeds_are_worse():
    """The recorded seeds come out again, and fresh ones do worse: chosen seeds look like that."""
    record = records.record()
    fresh = records.contender("tuned", 80.0, record.tuned.config, seed=1)
    found = judged(record, record.tuned, fresh)
    assert (found.verdict, found.equal, found.recorded) == ("not", 32, 32)
    alike = records.contender("tuned", 100.0, record.tuned.config, seed=1)
    assert judged(record, record.tuned, alike).verdict == "bit-equal"
    assert judged(record, alike, alike).verdict == "within the interval"


def test_newly_diverged_seed_lowers_verified_mean():
    record = records.record()
    alike = records.contender("tuned", 100.0, record.tuned.config, seed=1)
    assert judged(record, record.tuned, alike).verdict == "bit-equal"
    lost = dataclasses.replace(alike, greedy=(*alike.greedy[:-1], None))
    found = judged(record, lost, lost)
    assert found.means[1] < judged(record, alike, alike).means[1]


def test_written_record_can_be_verified_from_file(tmp_path, proof):
    path = tmp_path / "CartPole-v1.yaml"
    path.write_text(record_text(proof.record))
    found = verify(read_record(path), tmp_path / "again", 8, 8, 0, runner=analytic)
    assert found.verdict == "bit-equal"


def test_generated_files_do_not_make_checkout_dirty(tmp_path, monkeypatch):
    """Else a record made behind `scripts/atlas` would come from no clean checkout."""
    files = ("mkdocs.yml", "docs/reference/tuned.md", "results/tuned/a.yaml", "results/atlas/a",
             "core/a.py")  # fmt: skip
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before\n")

    def git(*words):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    file = str(tmp_path / "scripts/tuned_parts/candidate.py")
    monkeypatch.setitem(commit_of_checkout.__globals__, "__file__", file)
    clean = commit_of_checkout()
    assert len(clean) == 40
    for name in files[:-1]:
        (tmp_path / name).write_text("after\n")
        assert commit_of_checkout() == clean, name
    (tmp_path / files[-1]).write_text("after\n")
    assert commit_of_checkout() == f"{clean}+"


def test_bundle_and_study_give_the_same_candidate(tmp_path, proof):
    unpacked = script_module("tuned_parts.main")._unpacked
    path, out = tmp_path / "small.zip", tmp_path / "results"
    write_bundle(StudyFolder(proof.folder / "small"), None, tmp_path, path)
    for _ in range(2):  # again: what an interrupted call left
        folder = unpacked(path, out)
        assert folder.path == out / "small" and candidate_of(folder) == proof.candidate
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        unpacked(path, tmp_path / "other")


def test_a_bundle_does_not_replace_a_different_study(tmp_path, proof):
    path = tmp_path / "small.zip"
    write_bundle(StudyFolder(proof.folder / "small"), None, tmp_path, path)
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / JOURNAL_NAME).write_bytes(b"")
    with pytest.raises(StoreError, match="is a different study; name another folder"):
        script_module("tuned_parts.main")._unpacked(path, tmp_path)


def test_record_of_bundle_contains_its_hash(tmp_path, proof, monkeypatch):
    main = script_module("tuned_parts.main")
    path, place = tmp_path / "small.zip", tmp_path / "checkout" / "results" / "tuned"
    write_bundle(StudyFolder(proof.folder / "small"), None, tmp_path, path)
    monkeypatch.setattr(main, "runner_of", lambda watched, out: analytic)
    words = ["--tuned", str(place), "add", str(path), "--out", str(tmp_path / "results")]
    assert main.main(words) == 0
    record = read_record(place / "CartPole-v1.yaml")
    assert record.origin.bundle == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "bundle" not in record_text(proof.record)
