"""The sketch of a search over an atlas picks the winner that the engine picks."""

import dataclasses
import math

import pytest

from helpers import search_samples as samples
from helpers.loading import run_file
from hpo.search.engine.engine import Engine
from hpo.search.run import run
from hpo.search.what_if import read_record, replay
from hpo.studies.chunk_sizes import rung_steps
from hpo.studies.search_spec import EarlyTerminate, Evaluation, Racing, Seeds

study, Budget = samples.study, samples.Budget
sketched = run_file("scripts/atlas_parts/sketched.py")
Curve, winners_of = sketched.Curve, sketched.winners_of
ASHA = EarlyTerminate("asha", 1_000, 2.0)
MEDIAN = EarlyTerminate("median", 2_000, 4.0)
PLATEAU = EarlyTerminate("plateau", 1_000, patience=2, tolerance=0.3)


def quantum(_study, config):
    return {"32": 500}.get("x".join(map(str, config["hidden_sizes"])), 1_000)


def winner_of(asked, curves, rungs, length, lanes, budget=math.inf):
    return winners_of(asked, curves, rungs, length, lanes, [budget])[0]


def test_simulated_search_picks_the_engine_winner(tmp_path, monkeypatch):
    """With one program and lanes for whole trials the sketch is the engine."""
    monkeypatch.setattr(Engine, "trials_to_start", lambda _: math.inf)
    whole = study(
        early_terminate=None,
        seeds=Seeds(2),
        budget=Budget(trials=12),
        seed=7,
        evaluation=Evaluation(every=1_000),
    )
    factory = samples.AnalyticFactory(seed=7, lanes=6, quanta={"32": 500}, diverges_above=9.0)
    run(whole, tmp_path / "whole", factory, settings=samples.quick())
    record = read_record(tmp_path / "whole", quantum)

    def loss(trial, at, seeds=(0, 1)):
        means = [record.at(trial, seed, at)[0].returns.mean() for seed in seeds]
        return -sum(means) / len(means)

    rules = (
        ASHA,
        MEDIAN,
        dataclasses.replace(ASHA, eta=4.0),
        None,
        PLATEAU,
        EarlyTerminate("hyperband", 1_000, 2.0),
    )
    for rule in rules:
        asked = dataclasses.replace(whole, early_terminate=rule)
        rungs = list(rung_steps(asked))
        curves = [
            Curve(at := tuple(loss(n, at) for at in rungs), loss(n, 16_000), loss(n, 16_000), at)
            for n in range(12)
        ]

        def won_by(found):
            return loss(found.winner, found.end_of(found.winner) or 16_000)

        found = replay(record, asked)
        assert winner_of(asked, curves, rungs, 16_000, 6) == won_by(found)
        budgets = (96_000, 120_000, 192_000, 264_000)
        together = winners_of(asked, curves, rungs, 16_000, 6, budgets)
        for budget, won_beside_others in zip(budgets, together, strict=True):
            bounded = dataclasses.replace(asked, budget=Budget(trials=12, env_steps=budget))
            found = replay(record, bounded)
            won = winner_of(asked, curves, rungs, 16_000, 6, budget)
            assert found.env_steps <= budget and (won is None) == (found.winner is None)
            assert won is None or won == won_by(found), (budget, rule)
            assert won == won_beside_others, (budget, rule)


def test_simulated_search_matches_manual_example():
    """Two lanes, runs of 10 env steps: who is lost leaves his lane, the first of equals wins."""
    asked = study(early_terminate=None, seeds=Seeds(1))
    good, same = (Curve((), 1.0, final) for final in (3.0, 2.0))
    lost = Curve((), 9.0, 9.0, lost_at=0, lost_after=2)
    assert winner_of(asked, [good, same], [], 10, 2, 20) == 3.0
    # both lanes until the lost one leaves at 2, and until `same` ends at 10: 4 + 16
    assert winner_of(asked, [lost, same, good], [], 10, 2, 19) is None
    assert winner_of(asked, [lost, same, good], [], 10, 2, 20) == 2.0
    assert winner_of(asked, [same, lost, good], [], 10, 2, 21) == 2.0
    with pytest.raises(ValueError, match="seeds that race"):
        winner_of(study(seeds=Seeds(4, racing=Racing(2))), [good], [], 10, 2, 99)
