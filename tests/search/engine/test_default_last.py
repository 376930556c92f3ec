"""Whatever ends first, budget or time, takes the default's runs before the winner's."""

import dataclasses

import pytest

from helpers.loading import run_file
from hpo.search.engine.engine import Engine
from hpo.search.state.buckets import order
from hpo.search.state.loop_state import Phase
from hpo.search.state.trials import Replicate
from hpo.store.rows import REFERENCE_TRIAL, Stream
from hpo.studies.execution_spec import Budget

confirming = run_file("tests/search/engine/test_confirm_default.py")
samples, study, go, rows_of = (
    confirming.samples,
    confirming.study,
    confirming.go,
    confirming.rows_of,
)
ALONE = dataclasses.replace(confirming.CONFIRM, default=False)
LENGTH, Died, dies = confirming.LENGTH, confirming.Died, confirming.dies


def test_pbt_winner_is_tested_before_default():
    runs = [Replicate(n, Stream.REPORT, 0) for n in (REFERENCE_TRIAL, 0, 7)]
    assert [run.trial for run in sorted(runs, key=order)] == [7, 0, REFERENCE_TRIAL]


@pytest.mark.parametrize("phase", [Phase.SEARCH, Phase.CHOOSE, Phase.REPORT])
def test_budget_without_reserve_for_default_tests_winner_first(tmp_path, dies, monkeypatch, phase):
    budget = Budget(trials=None, env_steps=600_000)
    whole = go(tmp_path / "alone", study(ALONE, budget=budget))
    dies(phase, 24 if phase is Phase.SEARCH else 5)
    with pytest.raises(Died):
        go(tmp_path / "broken", study(ALONE, budget=budget))
    monkeypatch.undo()
    confirming.as_before(tmp_path / "broken")
    results = go(tmp_path / "broken", study(budget=budget))
    rows = rows_of(tmp_path / "broken")
    assert results.best.value_from == "report" and results.usage.env_steps <= 600_000
    assert len(rows[results.best.trial].report_values) == 6
    if phase is not Phase.SEARCH:
        assert results.best == whole.best
        assert rows[0].report_values == () and rows[0].error


@pytest.mark.parametrize("seed", [0, 4])  # the winner in another program, and in the same
def test_time_limit_cuts_default_in_separate_program(tmp_path, monkeypatch, seed):
    chunks = []

    def is_out_of_time(self):
        state = self.search_state.state
        chunks.extend([state.running] if state.phase is Phase.REPORT else [])
        return len(chunks) > LENGTH // 1_000

    monkeypatch.setattr(Engine, "is_out_of_time", is_out_of_time)
    sizes = dataclasses.replace(samples.WITH_BUCKETS.parameters[1], default=[64, 64])
    space = samples.Space((confirming.POOR, sizes, samples.REAL.parameters[1]))
    results = go(tmp_path, study(space=space, seed=seed))
    rows = rows_of(tmp_path)
    assert (rows[results.best.trial].bucket == rows[0].bucket) == (seed == 4)
    assert results.best.value_from == "report"
    assert bool(rows[0].report_values) == (seed == 4)
