"""The portfolio: its learner and its judge against slow loops, and the file as it is committed."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
import yaml

from hpo.errors import StoreError
from hpo.store.statistics import t_quantile

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def parts():
    """Modules of scripts/portfolio_parts, by name."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield lambda name: import_module(f"portfolio_parts.{name}")
    sys.path.remove(str(ROOT / "scripts"))


def made_source(parts, name, values, chooses=None):
    values = np.asarray(values, float)
    shown = values if chooses is None else np.asarray(chooses, float)
    params = [{"row": row} for row in range(len(values))]
    return parts("sources").Source(name, "", params, values, shown)


def random_sources(parts, count, configurations=7, seeds=4):
    draw = np.random.default_rng(3)
    shape = (configurations, seeds)
    return [
        made_source(parts, f"table-{k}", draw.integers(0, 5, shape), draw.normal(size=shape))
        for k in range(count)
    ]


def slow_share(means, row):
    others = [mean for at, mean in enumerate(means) if at != row]
    points = [1.0 if mean < means[row] else 0.5 if mean == means[row] else 0.0 for mean in others]
    return sum(points) / len(points)


def slow_learn(sources, places, splits, seed):
    """Greedy in plain loops, over the same splits of seeds."""
    draw = np.random.Generator(np.random.PCG64(seed))
    trials = []
    for _, source in product(range(splits), sources):
        order = draw.permutation(source.values.shape[1])
        shown = [row[order[0]] for row in source.chooses]
        means = [np.mean(row[order[1:]]) for row in source.values]
        trials.append((shown, [slow_share(means, row) for row in range(len(means))]))
    rows = [0]
    while len(rows) < places:
        gains = {}
        for row in range(len(sources[0].params)):
            if row in rows:
                continue
            total = 0.0
            for shown, shares in trials:
                chosen = rows[0]
                for other in [*rows[1:], row]:
                    if shown[other] > shown[chosen]:
                        chosen = other
                total += shares[chosen]
            gains[row] = total
        rows.append(max(gains, key=gains.get))
    return rows


def test_learner_equals_plain_loops(parts):
    learning = parts("learn")
    sources = random_sources(parts, 3)
    expected = slow_learn(sources, 4, 20, learning.SEED)
    assert learning.learn(sources, 4, splits=20) == expected


def test_first_portfolio_entry_covers_a_bad_default(parts):
    bad_default = made_source(parts, "a", [[0] * 4, [9] * 4, [1] * 4, [2] * 4])
    good_default = made_source(parts, "b", [[9] * 4, [0] * 4, [8] * 4, [7] * 4])
    assert parts("learn").learn([bad_default, good_default], 2, splits=5) == [0, 1]


def test_default_is_kept_unless_the_winner_leads_by_a_standard_error(parts):
    plans = parts("plans")
    values = np.zeros((3, 7))
    values[1] = [1, 1, 0, 2, 0, 0, 0]  # leads by 1 on the three selection seeds, error 0.58
    values[2] = [1, 3, -2, 0.5, 0, 0, 0]  # leads by 0.5, error 1.44
    source = made_source(parts, "t", values)
    replay = plans.Replay(source, np.arange(7), np.arange(3), [0, 1, 2])
    assert replay.protected(1) == 1
    assert replay.protected(2) == 0
    assert replay.protected(0) == 0


def test_score_is_0_for_the_median_and_1_for_the_best_configuration(parts):
    plans = parts("plans")
    source = made_source(parts, "t", [[2.0] * 8, [0.0] * 8, [1.0] * 8, [5.0] * 8, [3.0] * 8])
    chosen = {
        "median": lambda replay: (0, 1),
        "best": lambda replay: (3, 1),
        "worst": lambda replay: (1, 1),
    }
    found = plans.judge(source, [0], chosen, 5, 1)
    assert found["median"].score == 0.0
    assert found["best"].score == 1.0
    assert found["worst"].score == pytest.approx(-2 / 3)
    assert found["best"].over_default == pytest.approx(1.0)
    assert (found["best"].share, found["worst"].share) == (1.0, 0.0)


def test_judging_seeds_do_not_affect_selection(parts):
    """What the judges show must not change what any plan chooses."""
    plans = parts("plans")
    source = random_sources(parts, 1, configurations=60, seeds=8)[0]
    order = np.random.default_rng(0).permutation(8)
    changed = source.chooses.copy()
    changed[:, order[-plans.JUDGES :]] = 1e6
    other = made_source(parts, "t", source.values, changed)
    for plan in plans.PLANS.values():
        rows = [
            plan(plans.Replay(one, order, np.arange(60), list(range(9))))[0]
            for one in (source, other)
        ]
        assert rows[0] == rows[1]


def test_table_with_a_fifth_tied_at_the_top_is_a_ceiling(parts):
    is_ceiling = parts("plans").is_ceiling
    assert is_ceiling(made_source(parts, "t", [[5, 5], [5, 5], [1, 2], [0, 0], [3, 1]]))
    assert not is_ceiling(made_source(parts, "t", [[5, 5], [4, 5], *[[k, 0] for k in range(4)]]))


def test_committed_portfolio_is_learnt_from_the_committed_tables(parts):
    main, portfolio_file = parts("main"), parts("portfolio_file")
    sources = parts("sources").read_sources(main.SOURCES)
    content = portfolio_file.read(main.PORTFOLIO)
    assert content["sources"] == {source.name: source.digest for source in sources}
    assert content["places"] == [dict(sources[0].params[row]) for row in content["rows"]]
    assert content["rows"] == parts("learn").learn(sources, main.PLACES)[1:]


def test_an_edited_portfolio_is_refused(parts, tmp_path):
    main, portfolio_file = parts("main"), parts("portfolio_file")
    edited = tmp_path / "portfolio.yaml"
    edited.write_text(main.PORTFOLIO.read_text().replace("update_epochs: 5", "update_epochs: 6"))
    with pytest.raises(StoreError, match="another digest"):
        portfolio_file.read(edited)


def test_portfolio_sources_are_split_by_family(parts):
    sources = parts("sources").read_sources(parts("main").SOURCES)
    families = {source.name: source.family for source in sources}
    assert families["deeprmsa-nsfnet"] == families["deeprmsa-cost239"]
    assert families["Reacher-misc"] == "Reacher-misc"
    assert len(set(families.values())) == 9


@pytest.mark.parametrize("path", sorted((ROOT / "studies" / "portfolio").glob("*.yaml")))
def test_studies_of_new_tables_have_the_space_of_the_sources(path):
    ours = yaml.safe_load(path.read_text())
    source = yaml.safe_load((ROOT / "studies" / "held_out" / "Swimmer-misc.yaml").read_text())
    for key in ("space", "seeds", "budget", "search"):
        assert ours[key] == source[key]
    assert "seed" not in ours


def slow_share_better(parts, source, rows, places, seeds, replays):
    """The same replays in plain loops."""
    draw = np.random.Generator(np.random.PCG64(5))
    means = [float(np.mean(row)) for row in source.values]
    margin = 0.05 * (max(means) - float(np.median(means)))
    better = worse = 0
    for _ in range(replays):
        order = draw.permutation(source.values.shape[1])
        row = max(rows[: 1 + places], key=lambda at: source.chooses[at, order[0]])
        tests = order[1 : 1 + seeds]
        leads = [source.values[row, seed] - source.values[0, seed] for seed in tests]
        error = np.std(leads, ddof=1) / len(leads) ** 0.5
        if row == 0 or np.mean(leads) <= error:
            continue
        judges = order[-3:]
        lead = np.mean(source.values[row, judges]) - np.mean(source.values[0, judges])
        better += lead > margin
        worse += lead < -margin
    return better / replays, worse / replays


def test_portfolio_forecast_matches_slow_loops(parts):
    draw = np.random.default_rng(9)
    values = draw.normal(size=(9, 8)) + draw.normal(size=(9, 1))
    source = made_source(parts, "table", values, values + draw.normal(size=(9, 8)))
    rows = [0, 4, 2, 7]
    found = parts("forecast").share_better(source, rows, 3, 4, 60)
    assert found == slow_share_better(parts, source, rows, 3, 4, 60)
    assert sum(found) > 0.0


def test_committed_forecast_is_consistent(parts):
    module, main = parts("forecast"), parts("main")
    kept = yaml.safe_load(main.FORECAST.read_text())["plans"]
    assert [(one["portfolio"], one["report"]) for one in kept] == [
        (places, seeds) for places in module.PLACES for seeds in module.SEEDS
    ]
    for one in kept:
        assert 0.0 <= one["low"] <= one["better"] <= one["high"] <= 1.0
        assert one["worse"] <= 0.05  # a study that protects its default hardly ever loses


def mean_score(file, plan):
    found = json.loads((ROOT / "benchmarks" / "bench" / file).read_text())
    tables = [name for name in found["tables"] if name not in found["ceilings"]]
    return sum(found["tables"][name][plan]["score"] for name in tables) / len(tables)


def test_documented_scores_of_twelve_runs_match_the_data():
    readme = " ".join((ROOT / "README.md").read_text().split())
    page = (ROOT / "docs" / "reference" / "search-methods.md").read_text()
    short, random = "short study of 12", "random 6, protected"
    old = [mean_score("portfolio.json", plan) for plan in (short, random)]
    new = [mean_score("portfolio_new.json", plan) for plan in (short, random)]
    assert (
        f"hpo scores {old[0]:.2f} [" in readme and f"random search scores {old[1]:.2f} (" in readme
    )
    later = f"recorded later, hpo scores {new[0]:.2f} and random search {new[1]:.2f} ("
    assert later in readme
    assert f"| the study that `hpo init` writes | 12 | {new[0]:.2f} |" in page


def difference(plan, other, without=()):
    """Return the mean difference of scores on the later tables with its 95 % interval (t)."""
    found = json.loads((ROOT / "benchmarks" / "bench" / "portfolio_new.json").read_text())
    names = [name for name in found["tables"] if name not in [*found["ceilings"], *without]]
    rows = [found["tables"][name] for name in names]
    differences = [row[plan]["score"] - row[other]["score"] for row in rows]
    reach = t_quantile(0.975, len(rows) - 1) * stdev(differences) / len(rows) ** 0.5
    return mean(differences), mean(differences) - reach, mean(differences) + reach


def test_documented_differences_on_later_tables_match_the_data():
    page = " ".join((ROOT / "docs" / "reference" / "search-methods.md").read_text().split())
    short, later = "short study of 12", "random 24, selection"
    more = difference(short, "random 6, protected")
    assert "scores {:.2f} [{:.2f}, {:.2f}] more than random search".format(*more) in page
    more = difference(short, "random 11, selection")
    assert "{:.2f} [{:.2f}, {:.2f}] more than random search with 20 runs".format(*more) in page
    less = difference(later, short)
    assert "{:.2f} [{:.2f}, {:.2f}] less than with 33".format(*less) in page
    less = difference(later, short, without=["DeepSea-bsuite"])
    assert "{:.2f} [{:.2f}, {:.2f}] less than 33 random runs".format(*less) in page


def test_documented_scores_of_real_studies_match_the_data():
    found = json.loads((ROOT / "benchmarks" / "bench" / "short_real.json").read_text())
    page = " ".join((ROOT / "docs" / "reference" / "search-methods.md").read_text().split())
    searches = {(row["environment"], row["plan"]): 0 for row in found["searches"]}
    for row in found["searches"]:
        searches[row["environment"], row["plan"]] += 1
    assert len(found["plans"]["short, 12 runs"]["environments"]) == 6
    assert set(searches.values()) == {10} and "Each plan ran ten times" in page
    for plan, entry in found["plans"].items():
        assert "{:.2f} [{:.2f}, {:.2f}] |".format(*entry["score"]) in page, plan
    more, few, many = (
        found["leads"][plan] for plan in ("the default", "random, 12 runs", "random, 33 runs")
    )
    assert "{:.2f} [{:.2f}, {:.2f}] more than the default".format(*more) in page
    assert "{:.2f} [{:.2f}, {:.2f}] more than random search with twelve".format(*few) in page
    less = [-many[0], -many[2], -many[1]]
    assert "{:.2f} [{:.2f}, {:.2f}] less than with 33; neither".format(*less) in page
    assert more[1] > 0.0 > few[1] and many[1] < 0.0 < many[2]


def test_selection_improves_longer_studies_as_documented():
    page = (ROOT / "docs" / "reference" / "search-methods.md").read_text()
    alone, selected = ("48 trials, one seed", "48 trials, selection")
    scores = [mean_score("portfolio.json", plan) for plan in (alone, selected)]
    assert scores[0] < scores[1]
    for plan, score in zip((alone, selected), scores, strict=True):
        assert f"{score:.2f} [" in page, plan


def test_documented_error_rate_on_permuted_tables_matches():
    found = json.loads((ROOT / "benchmarks" / "bench" / "permuted.json").read_text())
    page = " ".join((ROOT / "docs" / "reference" / "search-methods.md").read_text().split())
    worst = max(rates["both looks"] for rates in found["tables"].values())
    said = f"in {found['means']['both looks']:.1%} of replays over {len(found['tables'])} tables"
    assert (
        said.replace("%", " %") in page and f"(worst table {worst:.1%})".replace("%", " %") in page
    )
    assert worst <= 0.05
