"""The work for a trial does not grow with the trials before it, counted in calls of functions."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from helpers import search_samples as samples
from helpers.counted_calls import calls_of
from hpo.search.engine.engine import engine_in_memory
from hpo.search.engine.interrupts import Interrupts
from hpo.search.engine.loop import Loop
from hpo.search.engine.notify import Notifier
from hpo.search.engine.refill import RefillQueue
from hpo.search.rules.registry import make_pruner
from hpo.search.run import run
from hpo.search.samplers.proposal_queue import AskAhead, Proposer
from hpo.search.samplers.registry import make_sampler
from hpo.search.state.progress import Observer
from hpo.studies.execution_spec import Checkpoint
from hpo.studies.search_spec import EarlyTerminate, Racing, Seeds

STUDIES = {
    "asha": {"early_terminate": EarlyTerminate("asha", 1_000, 4.0)},
    "paused": {"early_terminate": EarlyTerminate("asha", 1_000, 4.0, pause=8)},
    "hyperband": {"early_terminate": EarlyTerminate("hyperband", 1_000, 4.0)},
    "median": {"early_terminate": EarlyTerminate("median", 1_000, 4.0)},
    "racing": {"early_terminate": None, "seeds": Seeds(3, racing=Racing(2))},
}


def calls_while(folder: Path, trials: int, **changes) -> Counter[str]:
    """Return the calls of the search's functions while a study runs, by function."""
    short = {"seeds": Seeds(1), "env_steps": 4_000, "budget": samples.Budget(trials=trials)}
    asked, settings = samples.study(**{**short, **changes}), samples.quick(commit_seconds=1e9)
    return calls_of(
        lambda: run(asked, folder, samples.AnalyticFactory(), [Observer()], settings), "search/"
    )


@pytest.mark.parametrize("kind", STUDIES)
def test_four_times_the_trials_take_four_times_the_calls(tmp_path, kind, monkeypatch):
    # the estimate of what is left takes a set share of the time, so the clock says how often
    monkeypatch.setattr(Notifier, "_look_ahead", lambda notifier: None)
    few = calls_while(tmp_path / "few", 64, **STUDIES[kind])
    many = calls_while(tmp_path / "many", 256, **STUDIES[kind])
    grown = {name: (few[name], n) for name, n in many.items() if n > 4.5 * few[name] + 64}
    assert not grown
    assert many.total() < 4.3 * few.total()


def test_a_trial_that_has_ended_keeps_no_replicates():
    study = samples.study(
        seeds=Seeds(2), budget=samples.Budget(trials=12), checkpoint=Checkpoint(keep_best=0)
    )
    engine = engine_in_memory(study, samples.AnalyticFactory())
    with closing(AskAhead(Proposer(study, make_sampler(study)))) as ahead:
        Loop(engine, RefillQueue(engine, ahead), make_pruner(study)).run(Interrupts())
    ended = engine.search_state.trials.values()
    assert len(ended) == 12 and not any(trial.is_live or trial.runs for trial in ended)
