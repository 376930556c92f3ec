"""Baselines as lines, scales for the leaders, main effects, schedules, and what a brush needs."""

import json
import math
import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from helpers import view_samples as samples
from hpo.search.run import run
from hpo.spaces import Parameter, Space, make_distribution
from hpo.store.importance import EffectPoint
from hpo.store.rows import BaselineRow, Stream
from hpo.store.statistics import Interval
from hpo.store.study_folder import StudyFolder
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import EarlyTerminate, Seeds
from hpo.views.charts.knob_charts import effects, parallel
from hpo.views.charts.matplotlib_files import draw_picture
from hpo.views.charts.model import Band, Dot, Line, leaders_scale
from hpo.views.charts.search_charts import baseline_lines, curves, history, schedule
from hpo.views.charts.snapshot import read_snapshot
from hpo.views.charts.svg import panel_svg

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    results = samples.make_audited(tmp_path_factory.mktemp("results"))
    return read_snapshot(StudyFolder(results.folder))


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    asked = samples.search.study(
        name="pbt", early_terminate=EarlyTerminate("pbt", every=2_000), budget=Budget(trials=16)
    )
    folder = tmp_path_factory.mktemp("results") / "pbt"
    factory = samples.search.AnalyticFactory(lanes=40, diverges_above=0.3)
    run(asked, folder, factory, (), samples.search.quick())
    return read_snapshot(StudyFolder(folder))


def with_baselines(snapshot, **values):
    rows = [BaselineRow(name, {"search": given}) for name, given in values.items()]
    return replace(snapshot, baseline_rows=rows)


# ---------------------------------------------------------------------- scales


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_leaders_scale_gives_half_the_height_to_the_better_half(sign):
    values = [sign * v for v in (-1e6, -300.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]
    scale = leaders_scale(values, "v", sign)
    assert scale.cut and not scale.holds(sign * -1e6) and scale.holds(sign * 6.0)
    shares = sorted(scale.share(sign * v) for v in (3.0, 6.0))
    assert shares[1] - shares[0] >= 0.4  # the margins beside it
    assert not leaders_scale([sign * v for v in (1.0, 2.0, 3.0)], "v", sign).cut


def test_leaders_scale_includes_kept_values_and_handles_ties():
    values = [0.0] * 3 + [500.0] * 12
    assert leaders_scale(values, "v", 1.0).holds(0.0)  # nothing else differs
    far = leaders_scale([1.0, 2.0, 3.0, -1e6], "v", 1.0, kept=[-50.0])
    assert far.holds(-50.0) and far.cut
    assert leaders_scale([], "v", 1.0, kept=[math.nan]).low < 1.0
    assert leaders_scale([7.0], "v", 1.0).holds(7.0)


def test_values_outside_are_marked_on_the_edge_and_counted(snapshot):
    worst = next(n for n, row in snapshot.rows.items() if row.value is not None and n)
    rows = {**snapshot.rows, worst: replace(snapshot.rows[worst], value=-1e6)}
    seen = replace(snapshot, points=replace(snapshot.points, trials=rows))
    [panel] = history(seen).panels
    [mark] = [m for m in panel.marks if isinstance(m, Dot) and m.shape == "out"]
    assert mark.trial == worst and mark.y == panel.y.low and "-1000000" in mark.tip
    assert "outside the scale (1)" in [key.label for key in panel.keys]
    drawn = panel_svg(panel, 920, "x")
    assert 'class="out c0"' in drawn and '<svg class="window"' in drawn
    assert 'class="window"' not in panel_svg(history(snapshot).panels[0], 920, "x")


# ---------------------------------------------------------------------- baselines


def test_baselines_are_horizontal_lines_of_search_seed_means(snapshot):
    seen = with_baselines(snapshot, first=(1.0, 3.0), second=(5.0,), none=())
    lines, keys = baseline_lines(seen, Stream.SEARCH, seen.numbers_scale())
    assert [[y for _, y in line.points] for line in lines] == [[5.0, 5.0], [2.0, 2.0]]
    assert [line.thin for line in lines] == [False, True] and all(line.dashed for line in lines)
    assert [key.label for key in keys] == ["baselines, the best second"]
    assert "(2 seeds)" in lines[1].tip
    assert baseline_lines(seen, Stream.REPORT, seen.numbers_scale()) == ([], [])


def test_baseline_lines_are_in_history_and_evaluation_charts(snapshot):
    seen = with_baselines(snapshot, rule=(250.0,))
    panels = [*history(seen).panels, *curves(seen).panels]
    drawn = [any(getattr(mark, "dashed", False) for mark in panel.marks) for panel in panels]
    assert drawn == [True, False, True]
    assert all(panel.y.holds(250.0) for panel in (panels[0], panels[2]))


# ---------------------------------------------------------------------- main effects


def test_effects_chart_matches_the_computed_main_effects(snapshot):
    answer = snapshot.answer
    picture = effects(snapshot)
    assert answer.decided.names and len(picture.panels) == len(answer.decided.names)
    for name, panel in zip(answer.decided.names, picture.panels, strict=True):
        points = answer.effects[name]
        dots = [mark for mark in panel.marks if isinstance(mark, Dot)]
        assert sorted(dot.y for dot in dots) == sorted(point.mean for point in points)
        assert all(0.0 <= dot.x <= 1.0 for dot in dots)
        bands = [mark for mark in panel.marks if isinstance(mark, Band)]
        assert bands and all(low <= high for band in bands for _, low, high in band.points)


def test_categorical_effects_align_with_their_labels(snapshot):
    choices = Parameter("kind", make_distribution({"values": ["a", "b", "c"]}), "a")
    points = [
        EffectPoint(float(i), 4, float(i), Interval(i - 1.0, i + 1.0, "t")) for i in range(3)
    ]
    answer = SimpleNamespace(
        decided=SimpleNamespace(names=["kind"]), effects={"kind": points}, at=1000
    )
    study = SimpleNamespace(space=Space((choices,)))
    shown = SimpleNamespace(
        answer=answer, study=study, meta=snapshot.meta, metric="eval/a", unit="env steps"
    )
    (panel,) = effects(shown).panels
    dots = {mark.y: mark.x for mark in panel.marks if isinstance(mark, Dot)}
    ticks = {text: place for place, text in panel.x.ticks}
    assert [dots[i] for i in range(3)] == pytest.approx([ticks[name] for name in "abc"])


def test_effects_chart_is_empty_without_significant_knobs(tmp_path):
    few = read_snapshot(StudyFolder(samples.make_results(tmp_path, budget=Budget(6)).folder))
    assert few.answer is None and not effects(few).panels


# ---------------------------------------------------------------------- schedules


def test_schedule_chart_has_a_step_line_per_member_and_copy_lines(population):
    picture = schedule(population)
    copies = [row for row in population.decisions if row.source is not None]
    assert copies and {panel.title for panel in picture.panels} == {"learning_rate", "gamma"}
    for panel in picture.panels:
        steps = {m.trial: m for m in panel.marks if isinstance(m, Line) and m.step}
        joined = [m for m in panel.marks if isinstance(m, Line) and m.style == "muted"]
        assert set(steps) == set(population.rows) and len(joined) == len(copies)
        for trial, line in steps.items():
            changes = population.points.changes.get(trial, ())
            assert [x for x, _ in line.points][:-1] == [0.0, *(float(at) for at, _ in changes)]
        for mark, row in zip(joined, copies, strict=True):
            (x, _), (same, end) = mark.points
            assert x == same == row.env_steps and f"copied trial {row.source}" in mark.tip
            after = dict(steps[row.trial].points)
            assert after[float(row.env_steps)] == pytest.approx(end)


def test_reference_default_is_shown_only_in_learning_curves(tmp_path):
    poor = samples.search.parameter(
        "learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform"
    )  # a default that copies another one
    asked = samples.study(
        "pbt",
        early_terminate=EarlyTerminate("pbt", every=2_000),
        budget=Budget(trials=6),
        seeds=Seeds(1),
        confirm=samples.search.Confirm(2, 3, 5),
        space=samples.search.Space((poor, samples.search.REAL.parameters[1])),
    )
    factory = samples.ReturningFactory(lanes=12, block=4, diverges_above=0.3)
    run(asked, tmp_path / "pbt", factory, (), samples.search.quick())
    apart = read_snapshot(StudyFolder(tmp_path / "pbt"))
    assert apart.rows[-1].state == "reference" and sorted(apart.searched) == [*range(6)]
    panels = [panel for build in (schedule, history) for panel in build(apart).panels]
    shown = {mark.trial for panel in panels for mark in panel.marks if hasattr(mark, "trial")}
    assert panels and -1 not in shown
    drawn = curves(apart)
    assert "5 other trials." in drawn.caption
    (key,) = [key for panel in drawn.panels for key in panel.keys if "default" in key.label]
    assert key.label == "the default (5 test seeds)"


def test_schedule_chart_is_empty_without_copies(snapshot):
    assert not schedule(snapshot).panels


@pytest.mark.parametrize("builder", [schedule, effects, history, parallel])
def test_matplotlib_draws_schedule_and_baseline_charts(builder, population, snapshot, tmp_path):
    pytest.importorskip("matplotlib")
    seen = with_baselines(population if builder is schedule else snapshot, rule=(200.0,))
    draw_picture(tmp_path / "x.png", builder(seen), "study")
    assert (tmp_path / "x.png").stat().st_size > 5_000


# ---------------------------------------------------------------------- brushing


@pytest.mark.parametrize("width", [920, 358])
def test_parallel_chart_has_brush_data_for_every_axis(width, snapshot):
    [panel] = parallel(snapshot).panels
    root = ElementTree.fromstring(
        panel_svg(panel, width, "x").replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1)
    )
    brushes = [g for g in root.iter(f"{SVG}g") if g.get("class") == "brush"]
    assert [int(g.get("data-rail")) for g in brushes] == list(range(len(panel.rails)))
    strands = [p for p in root.iter(f"{SVG}path") if "strand" in p.get("class")]
    assert len(strands) == len(panel.strands)
    for strand, path in zip(panel.strands, strands, strict=True):
        shares = list(map(float, path.get("data-c").split()))
        assert shares == pytest.approx(strand.shares, abs=2e-3)
        places = re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d"))
        for brush, share, place in zip(brushes, shares, places, strict=True):
            x1, y1, x2, y2 = map(float, brush.get("data-line").split())
            expected = (x1 + share * (x2 - x1), y1 + share * (y2 - y1))
            assert share < 0 or tuple(map(float, place)) == pytest.approx(expected, abs=0.6)
    for brush, rail in zip(brushes, panel.rails, strict=True):
        ticks = [(share, text) for share, text in json.loads(brush.get("data-ticks"))]
        assert ticks == [(share, text) for share, text in rail.ticks]
