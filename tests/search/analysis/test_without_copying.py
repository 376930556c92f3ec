"""What copying gave: the winner of a population beside that of the same study without copying."""

import dataclasses
import json
import shutil
from html import unescape
from statistics import fmean

import pytest

import hpo
from helpers import search_samples as samples
from hpo.cli import main
from hpo.search.analysis.verdict import conclusion_of, how_to_know, without_copying
from hpo.search.run import run
from hpo.store.against import ConstraintSamples
from hpo.store.constraint_tests import Limit
from hpo.store.journal import Journal
from hpo.store.mean_difference import paired_interval
from hpo.store.probability_of_improvement import chance_of_better
from hpo.store.study_folder import StudyFolder
from hpo.store.study_store import StudyStore
from hpo.store.verdict import Evidence, WithoutCopying, conclude
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget, Checkpoint, PopulationSpec
from hpo.studies.resolved import resolved_yaml
from hpo.studies.search_spec import EarlyTerminate, Evaluation
from hpo.views.report.report import write_report

POOR = samples.parameter("learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform")
PBT = samples.study(
    samples.Space((POOR, samples.REAL.parameters[1])),
    name="pbt",
    early_terminate=EarlyTerminate("pbt", every=2_000),
    confirm=samples.Confirm(2, 3, 6),
    budget=Budget(trials=8),
)
ALONE = dataclasses.replace(
    PBT,
    name="pbt-alone",
    early_terminate=None,
    evaluation=Evaluation(every=4_000),
    population=PopulationSpec(lanes=8),
    checkpoint=Checkpoint(keep_best=1),
)
"""The same but for copying, and for what changes no curve."""
FACTORY = samples.AnalyticFactory(diverges_above=2.0)


def go(root, study):
    return run(study, root / study.name, FACTORY, (), samples.quick())


def concluded(folder):
    with Journal(folder) as journal:
        return conclusion_of(journal)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A population, and the same one without copying, which ran after it."""
    root = tmp_path_factory.mktemp("results")
    before = go(root, PBT).conclusion
    go(root, ALONE)
    return root, before


def test_undecided_pbt_study_suggests_run_without_copying(both):
    _, before = both
    assert before.copying is None and before.verdict == before.against.verdict == "undecided"
    assert before.against.wins == 6 and before.against.unless is not None
    assert before.said[-1] == how_to_know("pbt")
    assert "early_terminate: null and name: pbt-alone" in before.said[-1]


def test_both_winners_are_compared_seed_by_seed(both):
    root, _ = both
    found = concluded(root / "pbt")
    ours, theirs = (list(go(root, study).best.values) for study in (PBT, ALONE))
    assert len(ours) == len(theirs) == 6
    beside = found.copying
    assert (beside.seeds, beside.means) == (6, (fmean(ours), fmean(theirs)))
    assert beside.difference == fmean(ours) - fmean(theirs)
    assert beside.interval == paired_interval(ours, theirs)
    assert (beside.probability, beside.probability_interval) == chance_of_better(ours, theirs)
    assert found.verdict == beside.verdict
    assert beside.unless is not None and beside.difference > 0  # by the same on every seed
    assert found.against.rival == "the default" and found.against.unless is not None


def test_only_small_gain_gets_a_condition_without_known_range(tmp_path):
    """It is 3.9 of 53, by which the default is 31 behind."""
    for one in (PBT, ALONE):
        go(tmp_path, dataclasses.replace(one, env=EnvSpec("own")))
    found = concluded(tmp_path / "pbt")
    assert found.against.verdict == "better" and found.against.unless is None
    assert found.verdict == found.copying.verdict == "undecided"
    assert found.copying.unless.one_in > 15 and found.copying.wins == 6


def test_all_views_show_comparison_without_copying(both, capsys):
    root, _ = both
    found = concluded(root / "pbt")
    said = found.said
    assert "the best trial without copying" in said[0] and how_to_know("pbt") not in said
    [whose] = [text for text in said if text.startswith("Without copying ")]
    settings = "Without copying and with otherwise identical settings"
    assert whose == f"{settings}, the best trial is {found.alone}."
    assert said.index(whose) < next(n for n, text in enumerate(said) if "the default" in text)
    assert main(["top", "--study", str(root / "pbt")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == said[0]
    assert main(["best", "--study", str(root / "pbt"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["conclusion"]
    assert data["sentences"] == list(said) and data["verdict"] == data["copying"]["verdict"]
    write_report(StudyFolder(root / "pbt"), root / "page.html")
    assert said[0] in unescape((root / "page.html").read_text())
    assert hpo.open(root / "pbt").conclusion == go(root, PBT).conclusion == found


def test_study_without_copying_has_no_copying_comparison(both):
    root, _ = both
    found = concluded(root / "pbt-alone")
    assert found.copying is None and found.alone == found.tells == ""


OTHERS = {
    "seed": {"seed": 1},
    "trials": {"budget": Budget(trials=9)},
    "length": {"env_steps": 15_000},
    "space": {"space": samples.REAL},
    "environment": {"env": EnvSpec("CartPole-v1", {"gravity": 9.0})},
    "episodes": {"evaluation": Evaluation(episodes=21)},
    "stops": {"early_terminate": EarlyTerminate("asha", 2_000, 4.0)},
    "copies": {"early_terminate": EarlyTerminate("pb2", every=2_000)},
    "seeds that chose": {"confirm": samples.Confirm(2, 4, 6)},
}


@pytest.fixture
def beside(both, tmp_path):
    """Return what puts another study beside the population, with what ALONE has found."""
    shutil.copytree(both[0] / "pbt", tmp_path / "pbt")
    with Journal(both[0] / "pbt-alone") as journal:
        rows, head, meta = journal.trials(), journal.head(), journal.meta

    def put(study, phase="finished"):
        text = resolved_yaml(study)
        folder = StudyFolder(tmp_path / "pbt-alone")
        shutil.rmtree(folder.path, ignore_errors=True)
        with StudyStore(folder, dataclasses.replace(meta, study_text=text)) as store:
            store.commit(loop_state=head.loop_state, checkpoint=None, trials=rows, phase=phase)
        folder.write_study("", text)
        return concluded(tmp_path / "pbt").copying

    return put


@pytest.mark.parametrize("name", OTHERS)
def test_different_study_is_not_used_as_study_without_copying(beside, name):
    assert beside(dataclasses.replace(ALONE, **OTHERS[name])) is None


def test_unfinished_or_damaged_study_without_copying_is_ignored(beside, tmp_path):
    assert beside(ALONE, "running") is None
    assert beside(ALONE) is not None
    with Journal(tmp_path / "pbt") as journal:
        meta = journal.meta
    other = dataclasses.replace(meta, files={"mine.py": "another"})
    assert without_copying(tmp_path / "pbt", meta, {}) is not None
    assert without_copying(tmp_path / "pbt", other, {}) is None
    (tmp_path / "pbt-alone" / "journal.sqlite").write_bytes(b"SQLite format 3\0 no more")
    assert concluded(tmp_path / "pbt").copying is None


def test_constraints_come_before_values():
    winner = {seed: 1.0 + seed for seed in range(6)}
    better = WithoutCopying("alone", 3, {seed: 9.0 + 2 * seed for seed in range(6)})
    little, much = ([{seed: at + 0.1 * seed for seed in range(6)}] for at in (0.0, 5.0))
    most = (Limit("eval/cost", high=2.0),)
    told = ConstraintSamples(most, little, little, alone=much)
    found = conclude(Evidence(winner, winner, constraints=told, alone=better))
    assert found.copying.verdict == found.verdict == "feasible"
    assert found.alone == "trial 3 of alone"
    plain = conclude(Evidence(winner, winner, alone=better))
    assert plain.copying.verdict == plain.verdict == "worse"
    told = ConstraintSamples(most, much, little, alone=little)
    assert (
        conclude(Evidence(winner, winner, constraints=told, alone=better)).verdict == "infeasible"
    )
    elsewhere = WithoutCopying("alone", 3, {seed + 10: 1.0 for seed in range(6)})
    assert conclude(Evidence(winner, winner, alone=elsewhere)).copying is None
