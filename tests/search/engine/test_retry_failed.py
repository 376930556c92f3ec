"""Trials that failed beside finished ones run again once their cause is gone."""

import dataclasses

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from helpers import search_samples as samples
from hpo.errors import StoreError
from hpo.search.engine.callbacks import StopStudy
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.store import TrialState, tables_equal
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import EarlyTerminate, Seeds

Factory = samples.AnalyticFactory
CONFIRM = samples.Confirm(3, 2, 4)
PLAIN = samples.study(early_terminate=None, budget=Budget(trials=12))
STUDIES = {
    "plain": PLAIN,
    "confirmed": dataclasses.replace(PLAIN, confirm=CONFIRM),
    "asha": samples.study(budget=Budget(trials=12), confirm=CONFIRM),
    "tpe with buckets": samples.study(
        samples.WITH_BUCKETS, "tpe", budget=Budget(trials=12), early_terminate=None
    ),
    "one seed": dataclasses.replace(PLAIN, seeds=Seeds(1)),
}


@dataclasses.dataclass(frozen=True)
class Failing(Factory):
    """Some chunks of the study fail, with all trials in their lanes."""

    calls: tuple[int, ...] = (21, 27)
    count: list[int] = dataclasses.field(default_factory=list)

    def make(self, resolved, lanes):
        made = super().make(resolved, lanes)
        good = made.advance

        def advance(*args):
            self.count.append(1)
            if len(self.count) in self.calls:
                raise MemoryError("licence server does not answer")
            return good(*args)

        made.advance = advance
        return made


def rows_of(folder):
    with Journal(folder) as journal:
        return {row.trial: row for row in journal.trials()}


def failed(folder):
    return [n for n, row in rows_of(folder).items() if row.state is TrialState.FAILED]


def begun(folder, study, cut=None):
    """Run a study in which chunks fail; some trials finish, some do not."""
    observers = [] if cut is None else [Cut(cut)]
    run(study, folder, Failing(lanes=6), observers, samples.quick())
    lost = failed(folder)
    assert lost and any(row.state is TrialState.FINISHED for row in rows_of(folder).values())
    return lost


def again(folder, study, *observers, **settings):
    quick = samples.quick(retry_failed=True, **settings)
    return run(study, folder, Factory(lanes=6), observers, quick)


class Cut(Observer):
    def __init__(self, chunks):
        self.left = chunks

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            raise StopStudy


def curves(folder):
    table = pq.read_table(folder / "curves.parquet")
    names = [name for name in table.column_names if not name.endswith(("_seconds", "_per_second"))]
    keys = [(name, "ascending") for name in ("trial", "stream", "replicate", "env_steps")]
    return table.select(names).sort_by(keys)


@pytest.mark.parametrize("name", STUDIES)
def test_retried_trials_end_as_if_never_failed(tmp_path, name):
    study = STUDIES[name]
    lost = begun(tmp_path / "study", study)
    before = rows_of(tmp_path / "study")
    told = []
    results = again(tmp_path / "study", study, warn=told.append)
    assert results.state == "finished" and results.usage.failures == 0
    one = f"rerunning trial {min(lost)}, which failed: "
    several = f"rerunning {len(lost)} failed trials: {min(lost)}"
    assert (one if len(lost) == 1 else several) in told[0] and "licence server" in told[0]
    after = rows_of(tmp_path / "study")
    assert not failed(tmp_path / "study")
    for number, row in after.items():
        assert dict(row.params) == dict(before[number].params)
        if number not in lost and number >= 0:
            assert (row.value, row.seed_values) == (
                before[number].value,
                before[number].seed_values,
            )
    if study.search.method == "random" and study.early_terminate is None:
        run(study, tmp_path / "whole", Factory(lanes=6), (), samples.quick())
        whole = rows_of(tmp_path / "whole")
        facts = ("state", "value", "seed_values", "env_steps", "rung", "constraints")
        for number, row in whole.items():
            for fact in facts:
                assert getattr(row, fact) == getattr(after[number], fact), (number, fact)
        search = pc.field("stream") == "search"  # who was confirmed first stays a candidate
        ours, theirs = (curves(tmp_path / one).filter(search) for one in ("study", "whole"))
        assert ours.equals(theirs)


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("cut", [1, 3, 8, 20])
def test_interrupted_retry_resumes(tmp_path, name, cut):
    study = STUDIES[name]
    for folder in ("whole", "broken"):
        begun(tmp_path / folder, study)
    again(tmp_path / "whole", study)
    again(tmp_path / "broken", study, Cut(cut))
    run(study, tmp_path / "broken", Factory(lanes=6), (), samples.quick())
    assert tables_equal(tmp_path / "whole", tmp_path / "broken") == []


@pytest.mark.parametrize("name", STUDIES)
def test_failed_trials_can_be_retried_during_search(tmp_path, name):
    lost = begun(tmp_path / "study", STUDIES[name], cut=40)
    results = again(tmp_path / "study", STUDIES[name])
    assert results.state == "finished" and not failed(tmp_path / "study")
    assert lost


def test_retry_discards_values_of_first_attempt(tmp_path):
    """Other code gives other values: none of the old ones may be left among them."""
    study = dataclasses.replace(PLAIN, early_terminate=EarlyTerminate("asha", 2_000, 4.0))
    lost = begun(tmp_path / "study", study)
    with Journal(tmp_path / "study") as journal:
        old = {
            (row.trial, row.replicate, row.env_steps)
            for row in journal.evaluations()
            if row.trial in lost
        }
    assert old
    settings = samples.quick(retry_failed=True)
    run(study, tmp_path / "study", Factory(lanes=6, best_rate=0.7, episodes=5), (), settings)
    with Journal(tmp_path / "study") as journal:
        shown = [len(row.returns) for row in journal.evaluations() if row.trial in lost]
        decided = [(row.trial, row.rung) for row in journal.decisions()]
    assert set(shown) == {5}
    assert len(decided) == len(set(decided))
    table = pq.read_table(tmp_path / "study/curves.parquet")
    keys = list(
        zip(
            *(table[name].to_pylist() for name in ("trial", "stream", "replicate", "env_steps")),
            strict=True,
        )
    )
    assert len(keys) == len(set(keys))


def test_without_a_failed_trial_nothing_runs(tmp_path):
    run(PLAIN, tmp_path / "study", Factory(lanes=6), (), samples.quick())
    before, told = rows_of(tmp_path / "study"), []
    assert again(tmp_path / "study", PLAIN, warn=told.append).state == "finished"
    assert told == ["no search trial has failed"]
    assert rows_of(tmp_path / "study") == before


def test_retry_of_pbt_trials_is_refused(tmp_path):
    study = dataclasses.replace(PLAIN, early_terminate=EarlyTerminate("pbt", every=2_000))
    run(study, tmp_path / "study", Failing(lanes=24, calls=(7,)), (), samples.quick())
    assert failed(tmp_path / "study")
    with pytest.raises(StoreError, match=r"copy each other \(pbt\)"):
        again(tmp_path / "study", study)
