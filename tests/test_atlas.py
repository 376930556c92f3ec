"""The atlas: its statistics against slow references and known truths, its studies, its page."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm, rankdata, spearmanr

from helpers import search_samples as samples
from helpers.analytic_lanes import AnalyticFactory
from hpo.errors import ConfigError, StoreError
from hpo.knobs import KNOBS
from hpo.search.engine.engine import Engine
from hpo.search.lanes import local
from hpo.search.run import run
from hpo.search.what_if import read_record, replay
from hpo.store.importance import ImportanceColumn, explained
from hpo.store.query import query
from hpo.studies.execution_spec import Budget
from hpo.studies.load import load as load_study
from hpo.studies.search_spec import Evaluation, Racing, Seeds

ROOT = Path(__file__).resolve().parent.parent
STUDIES = sorted((ROOT / "studies" / "atlas").glob("*.yaml"))


@pytest.fixture(scope="module")
def load():
    """Import a module of scripts/atlas_parts."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield lambda name: import_module(f"atlas_parts.{name}")
    sys.path.remove(str(ROOT / "scripts"))


class Formulas(AnalyticFactory):
    """Lanes that follow formulas, where lanes that train would be."""

    def check(self, config):
        """Every configuration can run."""


def noisy(rng, configurations, seeds, noise):
    """Values whose true means are normal with deviation 1."""
    truth = rng.normal(size=(configurations, 1))
    return truth + noise * rng.normal(size=(configurations, seeds))


def knobs(rng, configurations, count):
    return [ImportanceColumn(f"x{i}", rng.random(configurations).tolist()) for i in range(count)]


# ---------------------------------------------------------------------- seeds


def test_seed_ranking_agreement_matches_loops(load):
    seeds, draws = load("seeds"), load("resampling")
    finals = noisy(np.random.default_rng(0), 12, 5, 1.0)
    finals[3] = finals[4]  # a tie
    pair, top, splits = np.zeros(3), np.zeros(3), list(draws.halves(draws.generator(3), 5, 40))
    for choosing, judging in splits:
        assert not set(choosing) & set(judging) and len(judging) == 2
        judged = finals[:, judging].mean(axis=1)
        for n in (1, 2, 3):
            chosen = finals[:, choosing[:n]].mean(axis=1)
            agreed = [
                0.5
                if chosen[i] == chosen[j] or judged[i] == judged[j]
                else float((chosen[i] > chosen[j]) == (judged[i] > judged[j]))
                for i, j in itertools.combinations(range(12), 2)
            ]
            pair[n - 1] += np.mean(agreed) / len(splits)
    found = seeds.ranking(finals, resamples=20)
    assert [one.seeds for one in found] == [1, 2, 3]
    assert [one.pair.value for one in found] == pytest.approx(pair, abs=1e-5)
    apart = noisy(np.random.default_rng(1), 12, 5, 1.0)
    for choosing, judging in draws.halves(draws.generator(2), 5, 7):
        best = int(apart[:, judging].mean(axis=1).argmax())
        for n in (1, 2, 3):
            top[n - 1] += (int(apart[:, choosing[:n]].mean(axis=1).argmax()) == best) / 7
    assert seeds.top_shares(apart, 7, draws.generator(2)) != pytest.approx(-top)
    assert np.allclose(
        seeds.top_shares(apart, 2_000, draws.generator(2)),
        _top_alone(apart, draws, 2_000),
        atol=0.04,
    )


def _top_alone(finals, draws, count):
    found = np.zeros(3)
    for choosing, judging in draws.halves(draws.generator(9), 5, count):
        best = int(finals[:, judging].mean(axis=1).argmax())
        for n in (1, 2, 3):
            found[n - 1] += (int(finals[:, choosing[:n]].mean(axis=1).argmax()) == best) / count
    return found


def test_pair_agreement_matches_sheppards_formula(load):
    """Sheppard: two normal differences of correlation r agree in sign with 1/2 + asin(r)/pi."""
    finals = noisy(np.random.default_rng(2), 300, 10, 1.0)
    for one in load("seeds").ranking(finals, resamples=20):
        r = 1.0 / np.sqrt((1 + 1 / one.seeds) * (1 + 1 / 5))
        assert one.pair.value == pytest.approx(0.5 + np.arcsin(r) / np.pi, abs=0.03)
        assert one.judges == 5 and one.pair.low < one.pair.value < one.pair.high


def test_pair_agreement_interval_has_nominal_coverage(load):
    truth = 0.5 + np.arcsin(1.0 / np.sqrt(1.5 * 1.5)) / np.pi  # 2 seeds choose, 2 judge
    rng, hits = np.random.default_rng(3), 0
    for _ in range(100):
        one = load("seeds")._pairs(noisy(rng, 40, 4, 1.0), 2, 200)[1]
        hits += one.low <= truth <= one.high
    assert hits >= 88  # 95 expected; 88 or fewer of 100 once in 250


# ---------------------------------------------------------------------- early


def test_early_ranking_statistics_match_loops(load):
    early, draws = load("early"), load("resampling")
    rng = np.random.default_rng(4)
    values = rng.normal(size=(30, 4, 3)) + rng.normal(size=(30, 1, 1))
    found = early.statistics(values, 5, 50, draws.generator(0))
    assert found[-1] == 0.0 and len(found) == 9
    copy, expected = draws.generator(0), np.zeros(6)
    for choosing, judging in draws.halves(copy, 4, 5):
        there, final = values[:, choosing].mean(axis=1), values[:, judging, -1].mean(axis=1)
        best = set(np.argsort(-final)[:3])
        for at in range(3):
            expected[at] += spearmanr(there[:, at], final).statistic / 5
            kept = set(np.argsort(-there[:, at])[:10])
            expected[3 + at] += len(best & kept) / 3 / 5
        for _ in range(4):
            copy.random(30)
        copy.integers(0, 30, (10, 30))
    assert found[:6] == pytest.approx(expected)


def test_early_ranking_recovers_known_correlations(load):
    """At the start nothing is known; halfway a part; at the end seeds alone are left."""
    rng = np.random.default_rng(5)
    truth, other = rng.normal(size=(2, 600, 1))
    means = np.stack([other, 0.6 * truth + 0.8 * other, truth], axis=2)
    values = means + rng.normal(size=(600, 8, 3))
    start, half, end = load("early").judged_early(values, np.array([0.1, 0.5, 1.0]), 40)
    for one, r in ((start, 0.0), (half, 0.6 / 1.25), (end, 1 / 1.25)):  # 4 seeds: noise 1/4
        spearman = 6 / np.pi * np.arcsin(r / 2)
        assert one.correlation.value == pytest.approx(spearman, abs=0.08)
        assert one.correlation.low < spearman < one.correlation.high
    assert start.lost.value == pytest.approx(1.0, abs=0.15) and end.lost.value == 0.0
    assert half.lost.value == pytest.approx(1 - 0.6, abs=0.12)
    assert start.lost.low < 1.0 < start.lost.high
    assert start.kept.value == pytest.approx(1 / 3, abs=0.12) and end.kept.value > 0.85


# ---------------------------------------------------------------------- knobs


def test_early_and_late_knobs_are_distinguished(load):
    rng = np.random.default_rng(6)
    columns = knobs(rng, 200, 3)
    first, last, _ = (np.array(column.places) for column in columns)
    noise = 0.1 * rng.normal(size=(3, 200))
    values = np.stack([first, first, last], axis=1) + noise.T
    module = load("knobs_over_time")
    at = module.decided_over_time(columns, values)
    assert [one.names for one in at] == [("x0",), ("x0",), ("x1",)]
    moved = module.shifts(columns, values, np.array([0.25, 0.5, 1.0]), 200)
    assert [one.verdict for one in moved] == ["early", "late", ""]
    ranks = rankdata(values[:, 0])
    fitted = np.polyval(np.polyfit(first, ranks, 2), first)
    share = 1 - ((ranks - fitted) ** 2).sum() / ((ranks - ranks.mean()) ** 2).sum()
    assert moved[0].early == pytest.approx((share - 2 / 199) / (1 - 2 / 199))


def test_irrelevant_knobs_are_rarely_early_or_late(load):
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(25):
        columns, values = knobs(rng, 60, 4), rng.normal(size=(60, 2))
        moved = load("knobs_over_time").shifts(columns, values, np.array([0.25, 1.0]), 300)
        wrong += any(one.verdict for one in moved)
    assert wrong <= 4  # 1.25 expected


# ---------------------------------------------------------------------- interactions


def test_interaction_is_detected_next_to_main_effects(load):
    rng = np.random.default_rng(8)
    columns = [
        *knobs(rng, 200, 3),
        ImportanceColumn("c", rng.integers(0, 2, 200).tolist(), choices=True),
    ]
    one, other, third, choice = (np.array(column.places) for column in columns)
    values = one + third**2 + 1.5 * choice * (other - 0.5) + 0.3 * rng.normal(size=200)
    found = load("interactions").interactions(columns, values)
    real = [set(pair.names) for pair in found.pairs if pair.real]
    assert real == [{"x1", "c"}] and len(found.pairs) == 6
    best = found.pairs[0]
    assert best.floor < best.share.low < best.share.value < best.share.high < 1.0 - found.alone
    # the same by least squares: what the products take off the squared error of main effects
    ranks = norm.ppf(rankdata(values) / 201)
    powers = [
        np.polynomial.legendre.legvander(2 * np.array(c.places) - 1, 4)[:, 1:] for c in columns[:3]
    ]
    alone = np.column_stack([np.ones(200), *powers, choice])
    both = np.column_stack([alone, choice * other, choice * other**2])
    error = [_squared_error(matrix, ranks) for matrix in (np.ones((200, 1)), alone, both)]
    share, chance = 1 - error[2] / error[1], 2 / (200 - 14)
    expected = (share - chance) / (1 - chance) * error[1] / error[0]
    assert best.share.value == pytest.approx(expected, rel=0.02)


def _squared_error(matrix, ranks):
    return float(np.linalg.lstsq(matrix, ranks, rcond=None)[1][0])


def test_interaction_false_positive_rate_is_bounded(load, monkeypatch):
    monkeypatch.setattr(load("interactions"), "_DEALS", 299)
    monkeypatch.setattr(load("interactions"), "_RESAMPLES", 5)
    rng, wrong = np.random.default_rng(12), 0
    for _ in range(25):
        columns = knobs(rng, 80, 4)
        places = np.array([column.places for column in columns])
        values = places.sum(axis=0) + 0.5 * rng.normal(size=80)
        wrong += any(
            pair.real for pair in load("interactions").interactions(columns, values).pairs
        )
    assert wrong <= 4  # 1.25 expected
    with pytest.raises(ConfigError, match="too few for interactions of 4 knobs"):
        load("interactions").interactions(knobs(rng, 12, 4), rng.normal(size=12))


def test_heteroscedastic_noise_is_not_an_interaction(load, monkeypatch):
    """Seeds spread most at both ends of one knob; dealing residuals out anew named 6 of 20."""
    monkeypatch.setattr(load("interactions"), "_DEALS", 199)
    monkeypatch.setattr(load("interactions"), "_RESAMPLES", 5)
    rng, wrong = np.random.default_rng(20), 0
    for _ in range(20):
        columns = knobs(rng, 300, 6)
        place = np.array(columns[0].places)
        values = place + (0.1 + 6 * (place - 0.5) ** 2) * rng.normal(size=300)
        wrong += any(
            pair.real for pair in load("interactions").interactions(columns, values).pairs
        )
    assert wrong <= 3  # 1 expected


# ---------------------------------------------------------------------- rules


def searchable(load, truth, early, noise=0.0, seeds=10, default=-9.0):
    """An atlas whose curves go in a straight line from what is seen early to the truth."""
    rng, late = np.random.default_rng(13), np.linspace(0, 1, 20)
    means = np.outer(early, 1 - late) + np.outer(truth, late)
    values = means[:, None] + noise * rng.normal(size=(len(truth), seeds, 20))
    return load("data").Atlas(
        "x",
        "eval/return_mean",
        "maximize",
        np.arange(1, 21) * 10_240.0,
        values,
        (),
        {"study": STUDIES[0].read_text()},
        np.full((seeds, 20), default),
    )


def found_by(load, atlas, names, samples, budgets=(24, 60)):
    module = load("rules")
    settings = [one for one in module.SETTINGS if (one.rule, one.seeds) in [*names, module.USUAL]]
    assert len(settings) == len({*names, module.USUAL})
    found = module.rules(atlas, settings, budgets, samples)
    return {(one.rule, one.seeds, one.budget): one for one in found}


def test_search_without_stopping_finds_best_affordable_trial(load):
    """24 full runs are 24 trials of one seed or 8 of three, the poor default first."""
    truth = np.random.default_rng(14).normal(size=400)
    found = found_by(
        load, searchable(load, truth, truth), [("none", 1), ("none", 3)], (10, 12), (24,)
    )
    for seeds, drawn in ((1, 23), (3, 7)):
        one = found["none", seeds, 24].value
        draws = np.random.default_rng(15).normal(size=(50_000, drawn))
        assert one.low < draws.max(axis=1).mean() < one.high and one.high - one.low < 1.5
        beats = found["none", seeds, 24].beats
        # the best of so many beats drawn / (drawn + 1) of all, and never itself whole
        assert beats.estimate().low < drawn / (drawn + 1) < beats.estimate().high < 1.0
    usual = found["asha eta=4", 3, 24]
    assert usual.less is None and usual.verdict == ""


def test_stopping_rule_value_depends_on_early_information(load):
    truth, other = np.random.default_rng(16).normal(size=(2, 400))
    told, blind, lied = (
        found_by(load, searchable(load, truth, early), [("none", 3)], (8, 8), (60,))
        for early in (truth, other, -truth)
    )
    assert told["none", 3, 60].verdict == "worse" and lied["none", 3, 60].verdict == "better"
    usual = [one["asha eta=4", 3, 60].value.value for one in (told, blind, lied)]
    assert usual == sorted(usual, reverse=True)


def test_diverged_seed_ends_its_trial_in_simulated_search(load):
    """The best half loses a seed in the middle of its run, and no rule may choose it."""
    truth = np.random.default_rng(17).normal(size=400)
    atlas = searchable(load, truth, truth)
    atlas.values[truth > 0, :, 10:] = np.nan
    found = found_by(load, atlas, [("none", 1), ("median", 3)], (6, 2), (60,))
    assert max(one.value.value for one in found.values()) <= 0.0
    assert not load("rules").can_be_searched(searchable(load, truth, truth, seeds=4))


def test_stopping_rules_tie_when_all_configurations_are_equal(load):
    """All configurations are equal: whatever is chosen is worth the noise of five seeds."""
    zero = np.zeros(200)
    atlas = searchable(load, zero, zero, noise=1.0, default=0.0)
    names = [("none", 1), ("asha eta=2", 1), ("hyperband eta=3", 3)]
    found = found_by(load, atlas, names, (10, 4), (24,))
    assert [one.verdict for one in found.values()] == [""] * len(found)


def test_half_sampling_interval_has_nominal_coverage(load):
    """A search finds the best of five; its mean over new configurations is known."""
    rng, hits = np.random.default_rng(18), 0
    truth = 1.1629644736  # the mean of the largest of five normal values
    for _ in range(200):
        values = np.empty((30, 8))
        configurations = rng.normal(size=60)
        for half in range(30):
            mine = rng.permutation(configurations)[:30]
            values[half] = [rng.choice(mine, 5, replace=False).max() for _ in range(8)]
        one = load("rules").Halves.of(values).estimate()
        hits += one.low <= truth <= one.high
    assert hits >= 180  # 190 or more expected; fewer than 180 once in 800


def found_in_one(load, more, moved):
    """What the usual rule and another one find, which beats that much more."""
    module, noise = load("rules"), np.random.default_rng(19).normal(size=40)
    noise = moved * 0.0195 * (noise - noise.mean()) / noise.std()
    usual, other = (module.Halves(0.8 + noise * share) for share in (2, 3))
    gain = module.Halves(more + noise)
    return [
        module.Found(*module.USUAL, 24, usual.estimate(), None, usual, None),
        module.Found("none", 1, 24, other.estimate(), gain.estimate(), other, gain),
    ]


def test_overall_rule_estimate_weights_environments_equally(load):
    """Two environments of the same configurations: what moves both alike does not cancel."""
    for moved, verdict in ((1, "better"), (-1, "better"), (3, "")):
        environments = [found_in_one(load, 0.05, 1), found_in_one(load, 0.04, moved)]
        usual, other = load("rules").overall(environments)
        assert usual.more is None and usual.verdict == "" and other.verdict == verdict
        assert other.more.value == pytest.approx(0.045)
        reach = 2.0227 * 0.0195 * (1 + moved) / 2 * (41 / 39) ** 0.5
        assert other.more.high - 0.045 == pytest.approx(reach, rel=1e-4, abs=1e-12)
        assert other.beats.value == pytest.approx(0.8)
    with pytest.raises(ValueError, match="other settings"):
        load("rules").overall([environments[0], environments[1][::-1]])


@pytest.mark.parametrize("diverges_above", [9.0, 3e-2])
def test_simulated_race_matches_the_engine(load, tmp_path, monkeypatch, diverges_above):
    """Five lanes, which trials of two or three seeds never fill; budgets end within a round."""
    monkeypatch.setattr(Engine, "trials_to_start", lambda _: math.inf)
    whole = samples.study(
        early_terminate=None,
        seeds=Seeds(5),
        budget=Budget(trials=14),
        seed=3,
        evaluation=Evaluation(every=1_000),
    )
    factory = AnalyticFactory(seed=3, lanes=5, diverges_above=diverges_above, best_rate=1e-2)
    run(whole, tmp_path / "whole", factory, settings=samples.quick())
    record = read_record(tmp_path / "whole", lambda *_: 1_000)
    diverged = np.array([[row.state == "diverged"] * 5 for row in record.trials])
    last = np.array([[max(record.results[n, seed]) for seed in range(5)] for n in range(14)])
    lost = diverged & (last == 1_000)  # others of its seeds stood there or behind
    assert lost.any() == (diverges_above < 1)
    losses = np.array(
        [
            [
                np.nan if lost[n, seed] else -record.at(n, seed, 16_000)[0].returns.mean()
                for seed in range(5)
            ]
            for n in range(14)
        ]
    )
    ends = np.where(lost, 2_000, 16_000)
    runs, winners, dropped = load("racing").Runs(losses, ends, ~lost), set(), 0
    for start, budget in itertools.product((2, 3), range(48_000, 1_100_000, 104_000)):
        seeds = Seeds(5, racing=Racing(start, 0.6))
        asked = replace(whole, seeds=seeds, budget=Budget(trials=14, env_steps=budget))
        found = replay(record, asked)
        won = load("racing").winner_of_race(runs, seeds, 5, budget)
        assert won == found.winner, (start, budget)
        winners.add(won)
        dropped += any(
            "clearly" in (one.stop_rule or "") for one in found.search_state.trials.values()
        )
    assert len(winners) >= 3 and dropped >= 5


# ---------------------------------------------------------------------- studies, tables, page


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_atlas_studies_match_their_documentation(path):
    study = load_study(path)
    assert study.name == f"atlas-{path.stem}" and study.env_steps == 204_800
    assert study.budget.trials == 1_001 and study.seeds.per_config == 10
    assert study.early_terminate is None and study.confirm is None
    assert study.search.method == "random"  # independent draws: what the intervals assume
    assert study.evaluation.every * 20 == study.env_steps
    assert all(KNOBS[name].traced for name in study.space.names)
    other = load_study(STUDIES[0])
    assert (study.space, study.fixed, study.seed) == (other.space, other.fixed, other.seed)


@pytest.fixture(scope="module")
def made(load, tmp_path_factory):
    """A small atlas of formulas, by the script's own words."""
    out = tmp_path_factory.mktemp("atlas")
    words = ["Acrobot-v1", "--configs", "40", "--seeds", "2", "--env-steps", "20480"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "LocalFactory", lambda *a, **b: Formulas())
        assert load("main").main([*words, "--out", str(out)]) == 0
        small, before = out / "atlas-small", load("data").digest_of(out / "atlas-small/Acrobot-v1")
        parts = {"configs": 40, "seeds": 2, "env_steps": 20480}
        assert load("main").make("Acrobot-v1", small / "studies", small, parts) == 0
    assert load("data").digest_of(small / "Acrobot-v1") == before  # finished: nothing changes
    return small


def test_atlas_tables_match_the_study(load, made):
    atlas = load("data").read_atlas(made / "Acrobot-v1")
    assert atlas.values.shape == (40, 2, 2)
    study = made / "studies" / "atlas-Acrobot-v1"
    _, rows = query(
        study,
        "SELECT trial, replicate, env_steps, avg(episode_return) FROM evaluations GROUP BY ALL",
    )
    seen = {(trial, seed, at): value for trial, seed, at, value in rows}
    for trial, seed, point in itertools.product((1, 40), range(2), range(2)):
        value = seen[trial, seed, int(atlas.points[point])]
        assert atlas.values[trial - 1, seed, point] == pytest.approx(value, rel=1e-6)
    default = np.mean([seen[0, seed, int(atlas.points[-1])] for seed in range(2)])
    assert atlas.default == pytest.approx(default, rel=1e-6)
    names = {column.name for column in atlas.columns}
    assert names == set(load_study(STUDIES[0]).space.names)


def test_documented_atlas_query_works(made, capsys):
    text = (made / "reference" / "atlas.md").read_text()
    asked = text.partition('results/atlas/Acrobot-v1 "')[2].partition('"')[0]
    columns, rows = query(made / "Acrobot-v1", asked)
    assert columns == ["trial", "learning_rate", "mean", "std"] and len(rows) == 5
    means = [row[2] for row in rows]
    assert means == sorted(means, reverse=True)


def test_partial_atlas_page_gives_no_verdicts(load, made):
    text = (made / "reference" / "atlas.md").read_text()
    assert "**Not the whole atlas:** `Acrobot-v1` has fewer" in text
    numbers = json.loads((made / "figures" / "atlas.json").read_text())["Acrobot-v1"]
    assert numbers["sentences"] == [] and len(numbers["knobs"]) == 2
    assert "Too few configurations for interactions: Acrobot-v1." in text
    digest = load("data").digest_of(made / "Acrobot-v1")
    prose = load("page").template_digest()
    assert load("page").digests(text) == {"Acrobot-v1": digest, "text": prose}
    assert numbers["digest"] == digest
    for name in load("pictures").NAMES:
        assert (made / "figures" / f"{name}.png").stat().st_size > 10_000
    with pytest.raises(ValueError, match="no <!-- atlas: knobs -->"):
        load("page").page(text.replace("<!-- atlas: knobs -->", ""), ())


def test_complete_atlas_gives_verdicts(load, monkeypatch):
    """Configurations of one knob that matters late, and seeds that hardly differ."""
    monkeypatch.setattr(load("analysis"), "CONFIGURATIONS", 150)
    rng = np.random.default_rng(10)
    columns = tuple(knobs(rng, 150, 3))
    means = rng.normal(size=(150, 2)) * [1.0, 0.2] + np.outer(columns[1].places, [0.0, 1.0])
    values = means[:, None, :] + 0.01 * rng.normal(size=(150, 10, 2))
    atlas = load("data").Atlas(
        "x", "eval/blocking", "minimize", np.array([25.0, 100.0]), values, columns
    )
    found = load("analysis").analyse(atlas)
    assert found.whole and found.sentences == [
        "`x1` decided. `x1` explained more at the end than at a quarter of the run.",
        "From 1 seed on, the better of two configurations is the better one on 5 other seeds, "
        "too, in at least 90% of pairs.",
        "From no point on before the end is it sure that at most 10% is lost.",
        "0 of 3 pairs are shown to interact.",
    ]  # no default ran, so that nothing was searched
    text = load("page").page(load("page").TEMPLATE.read_text(), [found])
    assert "Fewer than two whole environments were searched." in text
    assert "Not the whole" not in text and "- **x**: `x1` decided." in text
    assert "ORDER BY mean ASC" in text and "**late**" in text
    assert "| unknown | unknown |" in text and "Together" not in text
    paid = replace(found, atlas=replace(atlas, about={"cpu_seconds": 5_400.0}))
    text = load("page").page(load("page").TEMPLATE.read_text(), [paid, paid])
    # 150 configurations and the default, 10 seeds of 100 env steps
    searched = [
        replace(paid, searched=tuple(found_in_one(load, more, 1))) for more in (0.04, 0.05)
    ]
    said = load("page").rules_overall(searched)
    assert said.startswith(
        "Over `x` and `x`: For the env steps of 24 full runs of one seed, `none` "
    )
    assert "| `none` | 1 | 80.0% [" in said and "| 4.5 [0.5, 8.5], **better** |" in said
    assert "| 1.5 | 28 |" in text and "Together 3.0 CPU-hours, 1.5 hours of two cores." in text


def test_early_panel_shows_negative_losses(load):
    """Acrobot's is: what is lost is below nothing, at nearly every point."""
    early, estimate = load("early"), load("resampling").Estimate
    whole, lost = estimate(0.6, 0.5, 0.7), estimate(-0.16, -0.3, 0.0)
    found = SimpleNamespace(
        atlas=SimpleNamespace(name="x"), early=[early.Judged(0.5, whole, whole, lost)]
    )
    assert load("pictures").early_panel(found).y.low < -0.16


def test_atlas_page_has_no_negative_zero(load):
    """What is lost by judging at the end is nothing, computed as 1 - x / x."""
    page, nothing = load("page"), load("resampling").Estimate(-1e-9, -0.0004, 0.0004)
    assert page._share(nothing) == "0.0% [0.0%, 0.0%]"
    assert page._points(nothing) == "0.0 [0.0, 0.0]"
    signed = re.compile(r"(?<![\d.])-0(\.0+)?(?![\d.])")
    table = [
        line
        for line in (ROOT / "docs" / "reference" / "atlas.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    assert len(table) > 100 and not any(signed.search(line) for line in table)


def test_atlas_page_is_added_to_navigation_once(load):
    text = (ROOT / "mkdocs.yml").read_text()
    added = load("main").in_navigation(text)
    assert added.count("reference/atlas.md") == 1 and load("main").in_navigation(added) == added
    assert len(added.splitlines()) - len(text.splitlines()) in (0, 1)


def test_seeds_that_diverged_count_as_the_worst(load):
    values = np.array([[[1.0, 2.0]], [[0.5, np.nan]], [[3.0, 4.0]]])
    atlas = load("data").Atlas(
        "x", "eval/return_mean", "maximize", np.array([1.0, 2.0]), values, ()
    )
    assert atlas.filled[:, 0].tolist() == [[1.0, 2.0], [0.5, 2.0], [3.0, 4.0]]
    assert atlas.diverged == pytest.approx(1 / 3)


def test_atlas_environments_are_analysed_in_parallel(load, made, tmp_path):
    """Each in a process of its own: the same numbers as alone."""
    for name in ("one", "other"):
        shutil.copytree(made / "Acrobot-v1", tmp_path / "atlas-small" / name)
    assert load("main").main(["--docs", "--small", "--out", str(tmp_path)]) == 0
    numbers = json.loads((tmp_path / "atlas-small" / "figures" / "atlas.json").read_text())
    alone = json.loads((made / "figures" / "atlas.json").read_text())
    assert numbers["one"] == numbers["other"] == alone["Acrobot-v1"]
    assert numbers["rules over environments"] == []


def test_atlas_script_mistakes_get_one_line_errors(load, tmp_path, capsys):
    assert load("main").main(["Acrobot", "--docs"]) == 2
    assert "did you mean 'Acrobot-v1'?" in capsys.readouterr().err
    assert load("main").main(["--docs", "--small", "--out", str(tmp_path)]) == 2
    assert "has no tables; make some with: scripts/atlas ENV" in capsys.readouterr().err
    with pytest.raises(StoreError, match=r"no trials\.parquet"):
        load("data").read_atlas(tmp_path)


def test_atlas_page_is_up_to_date(load):
    folders = {path.parent for path in (ROOT / "results" / "atlas").glob("*/trials.parquet")}
    page = ROOT / "docs" / "reference" / "atlas.md"
    made = load("page").digests(page.read_text()) if page.is_file() else {}
    now = {folder.name: load("data").digest_of(folder) for folder in folders}
    if now:
        now["text"] = load("page").template_digest()
    assert made == now, "run scripts/atlas --docs"


def test_cpu_time_of_a_killed_atlas_run_is_unknown(load, tmp_path):
    main, made = load("main"), tmp_path / "out" / "atlas-x.made.json"
    main._begin(made)
    assert main._made(made, 10.0, finished=False)["cpu_seconds"] == 10.0  # interrupted
    main._begin(made)
    told = main._made(made, 5.0, finished=True)
    assert told["cpu_seconds"] == 15.0 and not {"running", "finished"} & told.keys()
    main._begin(made)  # once more, to make its tables anew
    assert main._made(made, 7.0, finished=True)["cpu_seconds"] == 15.0
    other = tmp_path / "other.made.json"
    main._begin(other)  # and is killed
    main._begin(other)
    assert main._made(other, 5.0, finished=True)["cpu_seconds"] is None


def places(column):
    return np.array([np.nan if place is None else place for place in column.places])


def test_interaction_shape_is_the_product_basis(load):
    shapes = load("shapes")
    rng = np.random.default_rng(20)
    one, other = knobs(rng, 50, 2)
    choice = ImportanceColumn("c", [None, *rng.integers(0, 3, 49).tolist()], choices=True)
    values, known = rng.normal(size=50), rng.normal(size=(50, 2))
    for first, second in ((one, other), (one, choice)):
        rows = np.array([at for at, place in enumerate(second.places) if place is not None])
        a = np.polynomial.legendre.legvander(2 * places(first)[rows] - 1, 2)[:, 1:]
        b = places(second)[rows]
        b = (
            np.stack([b == 1, b == 2], 1)
            if second.choices
            else (np.polynomial.legendre.legvander(2 * b - 1, 2)[:, 1:])
        )
        products = np.column_stack([x * y for x in a.T for y in b.T])
        form = shapes.product_shape(first, second, known)
        before = np.column_stack([np.ones(len(rows)), known[rows]])
        left = values[rows] - before @ np.linalg.lstsq(before, values[rows], rcond=None)[0]
        error = np.linalg.lstsq(np.column_stack([before, products]), values[rows], rcond=None)[1]
        whole = np.zeros(50)
        whole[rows] = left
        assert form.rows.tolist() == rows.tolist() and form.basis.shape[1] == 4
        assert explained(form, whole[None]) == pytest.approx(1 - error / (left @ left))
        weights = rng.multinomial(50, np.full(50, 1 / 50), 2).astype(float)
        again = shapes.resampled_shape(form, whole, weights)
        for found, weight in zip(again, weights, strict=True):
            drawn = np.repeat(np.arange(50), weight.astype(int))
            drawn = drawn[np.isin(drawn, rows)]
            matrix = np.zeros((50, 5))
            matrix[rows] = np.column_stack([np.ones(len(rows)), form.basis])
            error = np.linalg.lstsq(matrix[drawn], whole[drawn], rcond=None)[1]
            spread = ((whole[drawn] - whole[drawn].mean()) ** 2).sum()
            assert found == pytest.approx(1 - error[0] / spread)
