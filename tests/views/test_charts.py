"""What charts show is what the study holds; both ways of drawing take every chart."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from helpers import view_samples as samples
from hpo.cli import main
from hpo.spaces import make_distribution
from hpo.store.query import query
from hpo.store.study_folder import StudyFolder
from hpo.store.unobserved import Bounds
from hpo.studies.env_spec import EnvSpec
from hpo.studies.search_spec import Metric
from hpo.views.charts import search_charts
from hpo.views.charts.knob_charts import effects, importance, parallel, slices
from hpo.views.charts.matplotlib_files import draw_picture, figure_size, fill_figure
from hpo.views.charts.model import (
    XY,
    Band,
    Bar,
    Bars,
    Dot,
    Key,
    Label,
    Line,
    Parallel,
    Picture,
    Scale,
    knob_share,
    knob_ticks,
    round_ticks,
    steps_scale,
    value_scale,
)
from hpo.views.charts.search_charts import _interval_ends, curves, history, pareto
from hpo.views.charts.snapshot import read_snapshot
from hpo.views.charts.svg import panel_svg

OBJECTIVES = (Metric(), Metric(name="eval/thrift"))
BUILDERS = (history, curves, parallel, slices, importance)
SVG = "{http://www.w3.org/2000/svg}"


def seen_of(root, name, **changes):
    return read_snapshot(StudyFolder(samples.make_results(root, name, **changes).folder))


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    results = samples.make_audited(tmp_path_factory.mktemp("results"))
    return read_snapshot(StudyFolder(results.folder))


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    """A study of an environment that only imported code knows, which is not there any more."""
    asked = {"env": EnvSpec("own"), "imports": ("my_envs.py",), "metric": OBJECTIVES[0]}
    root = tmp_path_factory.mktemp("results")
    return seen_of(
        root, "front", objectives=OBJECTIVES, confirm=None, early_terminate=None, **asked
    )


def dots(panel, style=None):
    return [m for m in panel.marks if isinstance(m, Dot) and style in (None, m.style)]


def lines(panel, style=None):
    return [m for m in panel.marks if isinstance(m, Line) and style in (None, m.style)]


# ---------------------------------------------------------------------- scales


def test_chart_scales_cover_values_and_contain_ticks():
    scale = value_scale([30.0, 480.0, math.nan, math.inf], "v")
    assert scale.low < 30.0 < 480.0 < scale.high and not scale.log
    assert scale.ticks and all(scale.low <= value <= scale.high for value, _ in scale.ticks)
    decades = value_scale([1e-4, 0.5], "blocking")
    assert decades.log and decades.share(1e-4) < decades.share(1e-2) < decades.share(0.5)
    assert value_scale([5.0, 5.0], "v").share(5.0) == pytest.approx(0.5)
    assert value_scale([], "v").low < value_scale([], "v").high
    assert [text for _, text in steps_scale(160_000).ticks][:2] == ["0", "50k"]
    assert Scale(0.0, 1.0).share(7.0) == 1.0


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (3.0, 480.0), (-1.6e3, -150.0), (0, 1e-7)])
def test_round_ticks_are_few_evenly_spaced_and_in_range(low, high):
    ticks = round_ticks(low, high)
    assert 2 <= len(ticks) <= 6 and low <= ticks[0] < ticks[-1] <= high
    gaps = [b - a for a, b in pairwise(ticks)]
    assert max(gaps) == pytest.approx(min(gaps))


@pytest.mark.parametrize(
    "fields",
    [
        {"min": 1e-4, "max": 1e-2, "distribution": "log_uniform"},
        {"min": 1e-4, "max": 0.05, "distribution": "log_uniform", "zero": 0.2},
        {"min": 0.9, "max": 0.9999, "distribution": "one_minus_log"},
        {"min": 0.1, "max": 0.9, "distribution": "logit"},
        {"min": -3.0, "max": 5.0, "distribution": "uniform"},
        {"mu": 0.0, "sigma": 2.0, "distribution": "normal"},
        {"min": 1, "max": 200, "distribution": "int_uniform"},
        {"min": 2, "max": 8, "distribution": "log_int_uniform"},
        {"min": 8, "max": 256, "distribution": "pow2"},
        {"values": [[64, 64], [32]]},
        {"values": [f"kind{index}" for index in range(30)]},
    ],
)
def test_knob_ticks_increase_with_the_value(fields):
    distribution = make_distribution(fields)
    ticks = knob_ticks(distribution)
    shares = [share for share, _ in ticks]
    assert 2 <= len(ticks) <= 6 and shares == sorted(shares)
    assert all(0.0 <= share <= 1.0 for share in shares)
    if "values" not in fields:
        assert [float(text) for _, text in ticks] == sorted(float(text) for _, text in ticks)
        low, high = min(distribution.ends()), max(distribution.ends())
        assert knob_share(distribution, low) < 0.5 < knob_share(distribution, high)


# ---------------------------------------------------------------------- what is shown


def test_history_has_every_trial_once_and_the_best_so_far(snapshot):
    (panel,) = history(snapshot).panels
    ended = {n: row.value for n, row in snapshot.rows.items() if row.value is not None}
    assert {dot.trial: dot.y for dot in dots(panel, "c0")} == ended
    stopped = {n for n, row in snapshot.rows.items() if str(row.state) == "stopped"}
    assert stopped and {dot.trial for dot in dots(panel, "muted")} == stopped
    lost = {n for n, row in snapshot.rows.items() if str(row.state) == "diverged"}
    assert lost and {dot.trial for dot in dots(panel, "bad")} == lost
    (best,) = lines(panel, "c1")
    climb = [value for _, value in best.points]
    assert climb == sorted(climb) and climb[-1] == max(ended.values())
    assert snapshot.winner is not None and snapshot.winner.trial not in stopped


def test_curves_are_means_over_seeds_of_the_best_trials(snapshot):
    training, evaluations = curves(snapshot).panels
    best = snapshot.winner.trial
    (line,) = [line for line in lines(training) if line.trial == best]
    _, rows = query(
        snapshot.folder.path,
        "SELECT env_steps, avg(episode_return), count(*) FROM curves WHERE trial = "
        f"{best} AND stream IN ('choose', 'report') AND isfinite(episode_return) "
        "GROUP BY env_steps ORDER BY env_steps",
    )
    assert {count for _, _, count in rows} == {11}  # five that chose, six that report
    assert line.points == tuple((at, pytest.approx(value)) for at, value, _ in rows)
    (line,) = [line for line in lines(evaluations) if line.trial == best]
    assert [at for at, _ in line.points] == sorted(snapshot.points.values)
    assert line.points[-1][1] == pytest.approx(snapshot.rows[best].value)
    assert [mark for mark in evaluations.marks if isinstance(mark, Band)]
    assert (evaluations.title, evaluations.y.label) == (
        "In evaluations of the search",
        "eval/return_mean",
    )


def test_curves_chart_highlights_only_winner_and_default(snapshot):
    """Everything else is grey, and both are named at the ends of their lines."""
    panels = curves(snapshot).panels
    assert panels
    for panel in panels:
        coloured = {line.trial: line.style for line in lines(panel) if line.style != "faint"}
        assert coloured == {snapshot.winner.trial: "c0", snapshot.default: "c1"}
        assert {(one.text, one.style) for one in panel.labels} == {
            ("winner", "c0"),
            ("default", "c1"),
        }
        grey = [key.label for key in panel.keys if key.style == "faint" and key.shape == "line"]
        assert len(grey) == 1 and grey[0].endswith(" other trials, search seeds")


@pytest.mark.parametrize("width", [920, 358])
def test_line_labels_stay_inside_and_do_not_overlap(width):
    scale = Scale(0.0, 1.0, ((0.0, "0"), (1.0, "1")), "value")
    labels = tuple(Label(0.5 + at / 1000, f"a name {at}", "c0") for at in range(4))
    text = panel_svg(XY("t", scale, scale, (), wide=True, labels=labels), width, "a")
    found = re.findall(r'class="direct c0" x="([\d.]+)" y="([\d.]+)">([^<]+)<', text)
    assert [name for _, _, name in found] == [label.text for label in labels]
    assert all(float(x) + 7.0 * len(name) <= width for x, _, name in found)
    heights = sorted(float(y) for _, y, _ in found)
    assert all(above - below >= 13.9 for below, above in pairwise(heights))
    assert heights[0] >= 0 and heights[-1] <= 300


def test_charts_label_values_mixed_with_training_returns(tmp_path):
    results = samples.make_audited(tmp_path, metric=Metric(training_weight=0.5))
    mixed = read_snapshot(StudyFolder(results.folder))
    *_, panel = curves(mixed).panels
    name = "eval/return_mean with training returns"
    assert (panel.title, panel.y.label) == ("At evaluations of the search", name)
    assert slices(mixed).caption.startswith(name)
    assert history(mixed).panels[0].y.label == name


@pytest.mark.parametrize("most", [1, 3, 5, 80])
def test_curves_chart_reads_only_the_drawn_points(snapshot, most):
    wanted = {n: ("choose", "report") if n % 2 else ("search",) for n in snapshot.rows}
    found = search_charts._training_curves(snapshot, wanted, dict.fromkeys(wanted, most))
    _, rows = query(
        snapshot.folder.path,
        "SELECT trial, stream, env_steps, episode_return FROM curves "
        "WHERE isfinite(episode_return) ORDER BY env_steps",
    )
    slow = {}
    for trial, stream, at, value in rows:
        if stream in wanted[trial]:
            slow.setdefault(trial, {}).setdefault(at, []).append(value)
    assert slow.keys() == found.keys() and max(map(len, slow.values())) > 5
    for trial, curve in slow.items():
        even = {at: sorted(values) for at, values in search_charts._thin_evenly(curve, most)}
        assert {at: sorted(values) for at, values in found[trial].items()} == even


def test_slice_and_parallel_charts_use_a_common_env_step(snapshot):
    at = min(snapshot.points.values)  # no later one has nine in ten of them
    values = snapshot.points.values[at]
    assert "at 2k env steps" in slices(snapshot).caption
    panels = slices(snapshot).panels
    assert [panel.title for panel in panels] == ["learning_rate", "gamma"]
    shown = {dot.trial: dot for dot in dots(panels[0]) if dot.shape == "dot"}
    assert {trial: dot.y for trial, dot in shown.items()} == values
    rates = sorted(shown, key=lambda trial: snapshot.rows[trial].params["learning_rate"])
    assert rates == sorted(shown, key=lambda trial: shown[trial].x)
    (panel,) = parallel(snapshot).panels
    assert [rail.label for rail in panel.rails] == ["learning_rate", "gamma", "return_mean"]
    assert [strand.trial for strand in panel.strands] == sorted(values, key=values.__getitem__)
    assert panel.strands[-1].style == "s4" and panel.strands[0].style == "s0"
    assert panel.strands[-1].shares[-1] > panel.strands[0].shares[-1]


def test_importance_chart_shows_shares_with_intervals(snapshot):
    picture = importance(snapshot)
    (panel,) = picture.panels
    decided = snapshot.answer.decided
    assert picture.caption.startswith(decided.sentence)
    assert [bar.label for bar in panel.bars] == [knob.name for knob in decided.knobs]
    most = max(knob.high for knob in decided.knobs)
    for bar, knob in zip(panel.bars, decided.knobs, strict=True):
        assert bar.around == pytest.approx((knob.low / most, knob.high / most))
        assert bar.share == pytest.approx(knob.share / most)
        assert 0.0 <= bar.around[0] <= bar.around[1] <= 1.0
    assert panel_svg(panel, 600, "").count('class="whisker"') == len(panel.bars)


def test_importance_says_that_too_few_trials_were_evaluated(tmp_path):
    proposed = seen_of(tmp_path, "few", budget=samples.search.Budget(trials=12))
    cut = replace(proposed.points, values={9: {0: 1.0, 1: 2.0}})
    picture = importance(replace(proposed, points=cut))
    assert picture.panels == () and "needs at least 10" in picture.caption


def test_pareto_chart_has_no_point_beyond_the_front(front):
    (panel,) = pareto(front).panels
    on_front = {entry.trial for entry in front.entries if entry.front == 1}
    assert {dot.trial for dot in dots(panel, "c1")} == on_front
    (line,) = lines(panel)
    assert all(not (dot.x > x and dot.y > y) for dot in dots(panel) for x, y in line.points)
    worst = dots(panel, "muted")
    best = dots(panel, "c1")
    assert worst and all(any(d.x >= w.x and d.y >= w.y for d in best) for w in worst)
    assert re.match(
        rf"Pareto front: {len(on_front)} of \d+ finished trials \(", pareto(front).caption
    )


def test_parallel_chart_axis_lists_categorical_values(tmp_path):
    space = samples.search.WITH_BUCKETS
    asked = seen_of(tmp_path, "buckets", space=space)
    (panel,) = parallel(asked).panels
    assert [text for _, text in panel.rails[1].ticks] == ["[16]", "[32]", "[64, 64]"]


def test_large_studies_are_thinned_to_best_and_evenly_ranked_trials(snapshot):
    kept = snapshot.thinned(snapshot.rows, 10)
    ranks = {entry.trial: entry.rank for entry in snapshot.entries}
    assert [ranks[trial] for trial in kept] == [1, 2, 3, 4, 5, 6, 17, 28, 39, 50]
    assert "10 of 60" in snapshot.kept_words(10) and snapshot.kept_words(60) == ""


# ---------------------------------------------------------------------- how it is drawn


@pytest.mark.parametrize("width", [920, 448, 358])
@pytest.mark.parametrize("builder", [*BUILDERS, pareto])
def test_chart_panels_are_valid_svg_within_bounds(builder, width, snapshot, front):
    for panel in builder(front if builder is pareto else snapshot).panels:
        root = ElementTree.fromstring(
            panel_svg(panel, width, "what it shows").replace(
                "<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1
            )
        )
        assert root.get("aria-label") == "what it shows"
        assert root.get("role") == ("group" if isinstance(panel, Parallel) else "img")
        _, _, wide, high = map(float, root.get("viewBox").split())
        assert wide == width
        for circle in root.iter(f"{SVG}circle"):
            assert 0 <= float(circle.get("cx")) <= wide and 0 <= float(circle.get("cy")) <= high
        for path in root.iter(f"{SVG}path"):
            for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path.get("d")):
                assert 0 <= float(x) <= wide and 0 <= float(y) <= high
        texts = [text.text for text in root.iter(f"{SVG}text")]
        assert texts and "nan" not in " ".join(filter(None, texts))


def test_chart_marks_have_trial_number_and_escaped_tooltip():
    scale = Scale(0.0, 1.0, ((0.0, "0"), (1.0, "1")), "value")
    marks = (
        Dot(0.5, 0.5, "c0", 7, "<b>seven</b>"),
        Line(((0, 0), (1, 1)), "c1", step=True),
        Dot(0.1, 0.1, "bad", 8, shape="cross"),
    )
    text = panel_svg(XY("t", scale, scale, marks), 300, "a & b")
    assert 'data-t="7"' in text and "<title>&lt;b&gt;seven&lt;/b&gt;</title>" in text
    assert 'aria-label="a &amp; b"' in text and "<b>" not in text
    long = panel_svg(Bars("t", (Bar("x" * 90, 1.0, "100%"), Bar("y", 0.0, "0%"))), 358, "")
    assert "x" * 30 not in long and "…" in long


def test_charts_of_an_empty_study_have_captions(tmp_path):
    one = {"budget": samples.search.Budget(1), "confirm": None}
    lost = seen_of(tmp_path, "lost", space=samples.search.Space(()), **one)
    for builder in (*BUILDERS, pareto):
        picture = builder(lost)
        assert isinstance(picture, Picture) and picture.caption
    assert parallel(lost).panels == () and importance(lost).panels == ()


@pytest.mark.parametrize("kind", ["history", "curves", "parallel", "slices", "importance"])
def test_the_command_writes_a_png(kind, snapshot, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    out = ["--out", str(snapshot.folder.path.parent)]
    assert main(["plot", kind, *out]) == 0
    assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.strip() == " ".join(
        BUILDERS_BY_NAME[kind](snapshot).caption.split()
    )


BUILDERS_BY_NAME = {builder.__name__: builder for builder in BUILDERS}


def test_plot_formats_follow_suffix_and_errors_are_reported(snapshot, front, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    draw_picture(tmp_path / "front.svg", pareto(front), "front")
    assert "<svg" in (tmp_path / "front.svg").read_text()
    out = ["--out", str(snapshot.folder.path.parent)]
    assert main(["plot", "history", "--to", "x.gif", *out]) == 2
    assert "the name must end in .png or .svg or .pdf" in capsys.readouterr().err
    assert main(["plot", "histroy", *out]) == 2
    assert "unknown plot 'histroy'; did you mean 'history'?" in capsys.readouterr().err
    assert main(["plot", "pareto", "--to", str(tmp_path / "x.png"), *out]) == 2
    assert "one objective" in capsys.readouterr().err and not (tmp_path / "x.png").exists()


def test_a_legend_of_many_names_stays_inside_the_picture():
    figures = pytest.importorskip("matplotlib.figure")
    keys = tuple(Key(f"trial {i} (16 seeds)", "c0", "line") for i in range(12))
    panels = [
        XY("Curves", Scale(0, 1, ((0, "0"),), "x"), Scale(0, 1, ((0, "0"),), "y"), (), some, True)
        for some in (keys, keys[:2])
    ]
    figure = figures.Figure(layout="constrained", figsize=(9.0, 8.0))
    many, few = fill_figure(figure, Picture("curves", "Curves", "", tuple(panels)), "s")
    figure.draw_without_rendering()
    inside = figure.bbox
    box = many.get_legend().get_window_extent()
    assert inside.x0 <= box.x0 and box.x1 <= inside.x1
    assert many.get_window_extent().width == pytest.approx(few.get_window_extent().width, rel=0.05)


def test_legend_below_a_narrow_panel_does_not_overlap():
    figures = pytest.importorskip("matplotlib.figure")
    keys = tuple(Key(f"knob {i}", "c0", "line") for i in range(5))
    scale = Scale(0, 1, ((0, "0"),), "env steps")
    panels = tuple(XY(f"Panel {i}", scale, scale, (), keys) for i in range(3))
    picture = Picture("knobs", "Knobs", "", panels)
    figure = figures.Figure(layout="constrained", figsize=figure_size(picture))
    drawn = fill_figure(figure, picture, "s")
    figure.draw_without_rendering()
    for axes in drawn:
        box = axes.get_legend().get_window_extent()
        assert box.y1 <= axes.xaxis.label.get_window_extent().y0 and box.y0 >= figure.bbox.y0


def test_curve_bands_respect_return_bounds():
    """Student's interval of these is [409, 543] and [-3.6, 7.6]; CartPole gives 0 to 500."""
    bounds = Bounds(0.0, 500.0)
    low, high = _interval_ends((500.0, 500.0, 500.0, 500.0, 380.0), bounds)
    assert (low, high) == (pytest.approx(409.4, abs=0.1), 500.0)
    assert _interval_ends((0.0, 0.0, 0.0, 0.0, 10.0), bounds)[0] == 0.0
    assert _interval_ends((100.0, 600.0), bounds) == (100.0, 600.0)  # a range is what was seen


def test_effect_bands_respect_return_bounds(snapshot):
    """Of episodes of at most 8 steps the return is at most 8."""

    def highest(seen):
        marks = [mark for panel in effects(seen).panels for mark in panel.marks]
        return max(high for m in marks if isinstance(m, Band) for _, _, high in m.points)

    study = snapshot.points.study
    env = replace(study.env, values={"max_steps_in_episode": 8})
    points = replace(snapshot.points, study=replace(study, env=env))
    assert study.env.id == "CartPole-v1" and highest(snapshot) > 8.0
    assert highest(replace(snapshot, points=points)) == 8.0
