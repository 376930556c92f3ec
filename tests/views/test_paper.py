"""A study as parts of a paper: the query's numbers, text that compiles, figures to print."""

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
import yaml

from helpers import search_samples as search
from helpers import view_samples as samples
from helpers.recorded_study import write_study
from hpo.cli import main
from hpo.environments.registry import find
from hpo.errors import ConfigError
from hpo.knobs.table import KNOBS
from hpo.store.against import Against
from hpo.store.aggregate_environments import (
    overall,
    overall_interval,
    performance_profile,
    probability_of_improvement,
)
from hpo.store.baselines import BaselineEntry
from hpo.store.front_verdict import FrontConclusion
from hpo.store.interim_analyses import Look
from hpo.store.mean_difference import Unless
from hpo.store.query import query
from hpo.store.rows import TrialState
from hpo.store.statistics import Interval
from hpo.store.study_folder import StudyFolder
from hpo.store.verdict import Conclusion
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Confirm, Constraint, EarlyTerminate, Metric, SearchSpec, Seeds
from hpo.views.charts import several_studies
from hpo.views.charts.environment_names import environment_names
from hpo.views.charts.several_studies import compared, sides_of
from hpo.views.charts.snapshot import read_snapshot
from hpo.views.paper import methods
from hpo.views.paper.document import paper_of
from hpo.views.paper.markup import MarkupTable, latex, written
from hpo.views.paper.methods import methods_text
from hpo.views.paper.references import bibtex, own_entry
from hpo.views.paper.results import CONDITIONAL, result_rows, results_table
from hpo.views.quotes import front_quotes, metric_name, other_quotes, versus
from hpo.views.report.report import report_html

HOSTILE = r"a_b% & $x$ #1 {c} ~^ \input{/etc/passwd} é 中 |"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two studies of equal configurations, with test seeds and training returns."""
    root = tmp_path_factory.mktemp("results")
    samples.make_audited(root, "one")
    samples.make_audited(root, "two", seed=5)
    return root


@pytest.fixture(scope="module")
def snapshot(results):
    return read_snapshot(StudyFolder(results / "one"))


def told(capsys, *words):
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------------- the numbers


def test_paper_numbers_match_query_and_verdict(results, tmp_path, capsys):
    found = told(
        capsys, "paper", "one", "--out", str(results), "--to", str(tmp_path / "p"), "--no-figures"
    )
    sql = "SELECT trial, report_value, ci_low, ci_high, len(report_values) FROM trials "
    sql += "WHERE report_value IS NOT NULL ORDER BY rank"
    _, asked = query(results / "one", sql)
    assert len(asked) == 2
    for row, (_, value, low, high, seeds) in zip(found["rows"], asked, strict=True):
        assert row["value"] == pytest.approx(value, rel=1e-12) and row["seeds"] == seeds
        assert (row["low"], row["high"]) == (pytest.approx(low), pytest.approx(high))
    top = told(capsys, "top", "--study", "one", "--out", str(results))
    against = top["conclusion"]["against"]
    unless = against["unless"]  # the sentence and the table have its interval
    default = found["rows"][1]
    assert default["lead"] == against["difference"]
    assert (default["lead_low"], default["lead_high"]) == (
        unless["interval"]["low"],
        unless["interval"]["high"],
    )
    assert default["one_in"] == unless["one_in"] and default["mark"] == CONDITIONAL
    assert default["probability"] == against["probability"]
    assert (default["mark"] == "*") == (against["verdict"] == "better")


def test_paper_table_shows_values_in_latex_and_markdown(snapshot):
    table = results_table([snapshot])
    winner, default = result_rows(snapshot)
    for form in ("latex", "markdown"):
        text = table.written(form)
        for value in (winner.value, winner.low, default.high, default.lead):
            assert f"{value:.4g}" in text
    marked = replace(default, verdict="better")
    assert marked.mark == "*" and replace(default, one_in=None).mark == ""
    assert r"\toprule" in table.written("latex") and "\\bottomrule" in table.written("latex")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [("better", "significantly better"), ("worse", "significantly worse")],
)
def test_significance_marks_are_explained_in_the_caption(snapshot, verdict, words, monkeypatch):
    against = replace(snapshot.conclusion.against, verdict=verdict)
    changed = replace(snapshot, conclusion=replace(snapshot.conclusion, against=against))
    table = results_table([changed])
    assert words in table.caption
    mark = result_rows(changed)[1].mark
    assert mark and any(mark in cell for row in table.rows for cell in row)


def test_values_of_search_seeds_are_called_optimistic(tmp_path):
    found = samples.make_results(tmp_path, "plain", confirm=None)
    seen = read_snapshot(StudyFolder(found.folder))
    table = results_table([seen])
    assert "optimistic" in table.caption and any("search" in cell for cell in table.rows[0])
    assert "test seeds" in " ".join(paper_of([seen], figures=False).methods)


# ---------------------------------------------------------------------- the words


def test_methods_text_names_all_reporting_details(snapshot):
    (text,) = paper_of([snapshot], figures=False).methods
    for part in ("CartPole-v1", "16,000 env steps", "search seeds", "selection seeds",
                 "test seeds", "log-uniform", "`gamma`", "ASHA", "60 configurations",
                 "sign-flip", "0.04 level", "95 %", "numpy", "SHA-256"):  # fmt: skip
        assert part in text, part
    assert "five selection seeds" in text and "six test seeds" in text


def with_study(snapshot, **changes):
    study = replace(snapshot.study, **changes)
    return replace(snapshot, points=replace(snapshot.points, study=study))


def test_methods_text_names_only_settings_that_differ_from_defaults(snapshot):
    fixed = {"normalise_rewards": KNOBS["normalise_rewards"].default, "num_envs": 3}
    text = methods_text(with_study(snapshot, fixed=fixed))
    assert "except `num_envs` = 3." in text and "normalise_rewards" not in text


def test_methods_text_gives_the_trained_length_of_whole_updates(snapshot):
    trials = {
        number: replace(row, env_steps=16_384 * len(row.seed_values))
        for number, row in snapshot.rows.items()
    }
    text = methods_text(replace(snapshot, points=replace(snapshot.points, trials=trials)))
    assert "Each was trained for 16,384 env steps" in text


def test_few_proposals_of_tpe_are_all_random(snapshot):
    search = replace(snapshot.study.search, method="tpe", options={"n_startup_trials": 1000})
    assert "(all at random)" in methods_text(with_study(snapshot, search=search))


def test_results_text_has_seeds_interval_and_test(snapshot):
    (said,) = paper_of([snapshot], figures=False).results
    first = said.partition(". ")[0]
    assert "6 test seeds" in first and "95 % CI [" in first
    assert "exact sign-flip test" in first and "the default configuration" in first


def test_bibtex_entry_comes_from_the_citation_file(tmp_path):
    entry = own_entry()
    assert "{The hpo engineers}" in entry["author"] and "0.1.0" in entry["note"]
    given = {
        "title": "A & B",
        "version": "2",
        "date-released": "2031-02-03",
        "doi": "10.1/x",
        "authors": [{"family-names": "Doe", "given-names": "Jo"}, {"name": "The lab"}],
    }
    path = tmp_path / "CITATION.cff"
    path.write_text(yaml.safe_dump(given))
    entry = own_entry(path)
    assert entry["author"] == "Doe, Jo and {The lab}" and entry["year"] == "2031"
    assert entry["title"] == r"{A \& B}" and entry["doi"] == "10.1/x"


def test_cited_keys_have_bibtex_entries(snapshot):
    paper = paper_of([snapshot], figures=False)
    entries = re.findall(r"^@\w+\{([\w-]+),", bibtex(paper.cited), re.M)
    assert entries == paper.cited and "hpo" in entries and "li2020asha" in entries


# ---------------------------------------------------------------------- LaTeX


def bare(text):
    """Return LaTeX without commands that are escapes, to see characters that are left."""
    return re.sub(r"\\(?:[%&$#_{}~^'`]|[A-Za-z]+)", "", text)


def test_special_characters_are_escaped_in_names():
    text = latex(HOSTILE)
    left = bare(text)
    assert not set("%&#~^|\\") & set(left) and "_" not in left
    assert left.count("$") % 2 == 0 and left.count("{") == left.count("}")
    assert r"\textbackslash{}input" in text and "[U+4E2D]" in text and r"\'{e}" in text
    cell = written(f"`{HOSTILE.replace('`', '')}`", "latex")
    assert cell.startswith(r"\texttt{") and r"\input{" not in cell


def test_every_ascii_character_is_printable_in_latex():
    letters = "".join(map(chr, range(32, 127)))
    left = bare(latex(letters))
    assert not set("%&#~^|_\\") & set(left) and "\n" not in latex("a\nb")


def test_negative_numbers_have_a_minus():
    table = MarkupTable(
        ["a-b"],
        [
            [
                "-5 [-1.5, 2]",
            ],
            ["x-1"],
        ],
        [True],
        "c",
    )
    text = table.written("latex")
    assert "$-$5 [$-$1.5, 2]" in text and "x-1" in text and "a-b &" not in text


def test_paper_with_hostile_names_compiles(tmp_path, capsys):
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex")
    samples.make_results(tmp_path, "small")
    seen = read_snapshot(StudyFolder(tmp_path / "small"))
    hostile = replace(seen, meta=replace(seen.meta, name=HOSTILE, versions={HOSTILE: "1"}))
    paper = paper_of([hostile, seen], figures=False)
    from hpo.views.paper.document import write_paper

    write_paper(paper, tmp_path / "p")
    for words in (["pdflatex", "-halt-on-error", "paper"], ["bibtex", "paper"],
                  ["pdflatex", "-halt-on-error", "paper"],
                  ["pdflatex", "-halt-on-error", "paper"]):  # fmt: skip
        done = subprocess.run(words, cwd=tmp_path / "p", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]
    assert "Citation" not in done.stdout and (tmp_path / "p" / "paper.pdf").stat().st_size > 9_000


# ---------------------------------------------------------------------- files and figures


def test_paper_figures_embed_truetype_fonts(results, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    words = ["paper", "one", "two", "--out", str(results), "--to", str(tmp_path / "p")]
    found = told(capsys, *words)
    names = {path.rpartition("/")[2] for path in found["files"]}
    assert {"curves_one.pdf", "curves_two.svg", "studies.pdf", "paper.tex", "paper.md"} <= names
    for name in ("curves_one.pdf", "studies.pdf"):
        content = (tmp_path / "p" / name).read_bytes()
        assert b"/FontFile2" in content and b"/Type3" not in content
    for name in ("studies.svg", "curves_one.svg"):
        text = (tmp_path / "p" / name).read_text()
        assert "<text" not in text and "Environment steps" in text + "Environment steps"
    assert main(words) == 2  # nothing is overwritten
    assert "choose another folder with --to" in capsys.readouterr().err


def test_paper_files_are_reproducible(results, tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("a", "b"):
        words = ["paper", "one", "--out", str(results), "--to", str(tmp_path / name)]
        assert main(words) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_one_study_twice_is_refused(results, tmp_path, capsys):
    words = ["paper", "one", "one", "--out", str(results), "--to", str(tmp_path / "p")]
    assert main([*words, "--no-figures"]) == 2
    assert "named twice" in capsys.readouterr().err and not (tmp_path / "p").exists()


def test_studies_of_equal_names_are_numbered(results, tmp_path, capsys):
    """Each has its own figure and rows; `a_b` and `a-b` are equal as file names."""
    samples.make_results(tmp_path / "there", "one", seed=9)
    for name in ("a_b", "a-b"):
        samples.make_results(tmp_path / "there", name)
    paths = [results / "one", *(tmp_path / "there" / name for name in ("one", "a_b", "a-b"))]
    words = ["paper", *map(str, paths), "--to", str(tmp_path / "p p")]
    found = told(capsys, *words)
    assert len(found["files"]) == len(set(found["files"]))
    assert list(dict.fromkeys(row["study"] for row in found["rows"])) == [
        "one", "one (2)", "a_b", "a-b"
    ]  # fmt: skip
    stems = {path.stem for path in (tmp_path / "p p").glob("curves_*.svg")}
    assert stems == {"curves_one", "curves_one-2", "curves_a-b", "curves_a-b-2"}
    text = (tmp_path / "p p" / "paper.md").read_text()
    assert text.count("Study `one (2)`. ") == 2  # methods and caption
    folder = tmp_path / "q q"
    assert main(["paper", str(paths[0]), "--to", str(folder), "--no-figures"]) == 0
    assert f"compile: cd '{folder}' && pdflatex" in capsys.readouterr().out


# ---------------------------------------------------------------------- several studies

OURS = [
    [1.038, 0.542, 0.904, 0.801, 0.811, 1.03, 0.691, 0.91, 0.37, 0.459],
    [0.607, 0.7, 0.82, 0.648, 0.725, 0.731, 0.41, 0.617, 0.807, 0.992],
    [0.707, 0.7, 0.575, 0.651, 0.755, 0.623, 0.619, 0.551, 0.287, 1.053],
    [0.782, 0.349, 0.666, 0.409, 0.395, 1.106, 0.242, 0.914, 0.568, 0.634],
]
THEIRS = [
    [0.76, 0.123, 0.617, 0.575, 0.191, 0.458, 0.454, 0.475, 0.577, 0.633],
    [0.505, 0.099, 0.419, 0.613, 0.675, 0.073, 0.328, 0.255, 0.91, 0.734],
    [0.692, 0.646, 1.028, 0.517, 0.526, 0.525, 0.252, 0.924, 0.926, 0.502],
    [0.362, 1.112, 0.609, 0.473, 0.848, 0.975, 0.287, 0.479, 0.497, 0.105],
]
RLIABLE = {  # version 1.2.0, with 20,000 resamples
    "iqm": (0.68035, 0.53875),
    "iqm_interval": ((0.61404875, 0.74365), (0.45955, 0.61510125)),
    "improvement": 0.6675,
    "improvement_interval": (0.545, 0.785),
    "profile": [1.0, 0.975, 0.8, 0.35, 0.1],
}


def test_paper_aggregates_match_rliable():
    """Its percentile intervals are narrower: ours are expanded for few seeds (Hesterberg)."""
    for at, table in enumerate((OURS, THEIRS)):
        assert overall(table) == pytest.approx(RLIABLE["iqm"][at], rel=1e-9)
        found, (low, high) = overall_interval(table), RLIABLE["iqm_interval"][at]
        assert found.low < low + 0.005 and found.high > high - 0.005
        assert (found.low, found.high) == (
            pytest.approx(low, abs=0.02),
            pytest.approx(high, abs=0.02),
        )
    value, found = probability_of_improvement(OURS, THEIRS)
    assert value == pytest.approx(RLIABLE["improvement"], rel=1e-9)
    assert (found.low, found.high) == (
        pytest.approx(RLIABLE["improvement_interval"][0], abs=0.02),
        pytest.approx(RLIABLE["improvement_interval"][1], abs=0.02),
    )
    assert performance_profile(OURS, [0.0, 0.25, 0.5, 0.75, 1.0]) == RLIABLE["profile"]


def test_paper_improvement_over_default_matches_the_verdict(results):
    seen = [read_snapshot(StudyFolder(results / name)) for name in ("one", "two")]
    found = sides_of(seen)
    assert [side.name for side in found.sides] == ["one", "two", "default"]
    first, _, default = compared(found)
    assert default.improvement is None
    assert first.improvement.value == seen[0].conclusion.against.probability
    assert first.improvement.interval == seen[0].conclusion.against.probability_interval


def test_studies_on_different_environments_are_compared_by_normalised_scores(tmp_path):
    seen = []
    for name in ("CartPole-v1", "Acrobot-v1"):
        samples.make_audited(tmp_path, name, env=EnvSpec(name))
        seen.append(read_snapshot(StudyFolder(tmp_path / name)))
    found = sides_of(seen)
    assert [side.name for side in found.sides] == ["winner", "default"]
    assert found.environments == ("CartPole-v1", "Acrobot-v1")
    first = seen[0].rows[seen[0].winner.trial].by_report_seed
    scores = [scores[0] for scores in found.sides[0].scores.values()]
    by_hand = [(first[seed] - 22.1572) / (500 - 22.1572) for seed in sorted(first)]
    assert scores == pytest.approx(by_hand)


def test_figure_of_a_single_side_has_no_probability_of_improvement(tmp_path, monkeypatch):
    seen = []
    for name in ("CartPole-v1", "Acrobot-v1"):
        samples.make_audited(tmp_path, name, env=EnvSpec(name))
        seen.append(read_snapshot(StudyFolder(tmp_path / name)))
    both = several_studies.several_studies(seen)
    assert [panel.title for panel in both.panels][1] == "Improvement"
    assert "(IQM), probability of improvement over default, and performance" in both.caption
    found = sides_of(seen)
    alone = replace(found, sides=found.sides[:1])
    monkeypatch.setattr(several_studies, "sides_of", lambda snapshots: alone)
    picture = several_studies.several_studies(seen)
    titles = [panel.title for panel in picture.panels]
    assert titles == ["Interquartile mean", "Performance profile"]
    assert all(panel.y.low < panel.y.high for panel in picture.panels)
    assert "(IQM) and performance profile" in picture.caption


def test_studies_on_one_id_with_different_keys_are_on_different_environments(tmp_path):
    """Loads of an optical network differ in difficulty, so their values are not one sample."""
    seen = []
    for load in (200, 250):
        name = f"load-{load}"
        samples.make_audited(tmp_path, name, env=EnvSpec("rmsa", {"load": load}))
        seen.append(read_snapshot(StudyFolder(tmp_path / name)))
    names = ["rmsa (load=200)", "rmsa (load=250)"]
    assert environment_names(seen) == names
    assert environment_names(seen[:1]) == ["rmsa"]
    with pytest.raises(ConfigError, match=r"rmsa \(load=200\) has no reference score"):
        sides_of(seen)
    paper = paper_of(seen)
    assert [one.name for one in paper.figures if one.name == "studies"] == []
    for text, name in zip(paper.results, names, strict=True):
        assert text.startswith(f"On `{name}` (study")
    cells = [cell for line in results_table(seen).rows for cell in line]
    assert {f"`{name}`" for name in names} <= set(cells)


def test_default_values_of_environment_keys_count_as_given(tmp_path):
    seen = []
    for name, keys in (("plain", {}), ("given", {"load": find("rmsa").params["load"]})):
        samples.make_audited(tmp_path, name, env=EnvSpec("rmsa", keys))
        seen.append(read_snapshot(StudyFolder(tmp_path / name)))
    assert environment_names(seen) == ["rmsa", "rmsa"]
    assert sides_of(seen).environments == ("rmsa",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confirm": None}, "has no test seeds"),
        ({"metric": Metric(goal="minimize", name="eval/length_mean")}, "no reference scores"),
    ],
)
def test_paper_names_studies_that_cannot_be_compared(tmp_path, results, changes, words):
    found = samples.make_results(tmp_path, "other", **changes)
    seen = [read_snapshot(StudyFolder(path)) for path in (results / "one", found.folder)]
    paper = paper_of(seen)
    assert any("'other'" in note and words in note for note in paper.notes), paper.notes
    assert [one.name for one in paper.figures if one.name == "studies"] == []


def test_multi_objective_paper_has_a_front_table(tmp_path):
    objectives = (Metric(), Metric(name="eval/thrift"))
    custom = {"env": EnvSpec("own"), "imports": ("my_envs.py",), "confirm": None}
    found = samples.make_results(
        tmp_path, "front", objectives=objectives, early_terminate=None, **custom
    )
    paper = paper_of([read_snapshot(StudyFolder(found.folder))], figures=False)
    assert [table.label for table in paper.tables] == ["tab:front"]
    assert "Thrift" in paper.tables[0].header


def test_objectives_and_constraints_of_own_training_are_in_the_methods(snapshot):
    own = replace(snapshot.study.algorithm, name="own.py:Own", takes_env=False, acts=False)
    objectives = (Metric("eval/score"), Metric("eval/cost", goal="minimize"))
    limit = (Constraint("eval/cost", min=None, max=1.2),)
    text = methods_text(with_study(snapshot, algorithm=own, objectives=objectives))
    assert "objectives were `eval/score` (maximized) and `eval/cost` (minimized)" in text
    assert "is the winner" not in text and "test seeds not used" not in text
    assert "configurations that ranked first were trained again on five selection seeds" in text
    text = methods_text(with_study(snapshot, algorithm=own, constraints=limit))
    assert "Configurations had to satisfy: cost at most 1.2." in text


def test_methods_text_names_the_share_of_training_returns(snapshot):
    text = methods_text(with_study(snapshot, metric=Metric(training_weight=0.5)))
    assert "50% of it is the mean return of the last 100 training episodes" in text


def test_failed_and_diverged_trials_are_in_the_methods(snapshot):
    ended = dict.fromkeys(snapshot.rows, TrialState.FINISHED)

    def text_of(states, **changes):
        rows = {n: replace(row, state=(ended | states)[n]) for n, row in snapshot.rows.items()}
        points = replace(snapshot.points, trials=rows)
        return methods_text(replace(snapshot, points=points, **changes))

    assert "diverged" not in text_of({}) and "failed" not in text_of({})
    lost = {7: TrialState.FAILED}
    told = "Of 60 configurations, one failed with an error. It has no value and ranks last."
    assert told in text_of(lost)
    lost[8] = lost[9] = TrialState.DIVERGED
    text = text_of(lost, conclusion=replace(snapshot.conclusion, failed=("trial 3",)))
    assert "one failed with an error and two diverged (a value was not finite). They " in text
    assert "Failed runs of trial 3 on test seeds count as diverged." in text


def test_winner_of_the_search_and_one_test_seed_are_named(tmp_path):
    confirm = Confirm(top_k=1, choose=0, report=1)
    samples.make_results(tmp_path, "one", confirm=confirm, early_terminate=None)
    text = methods_text(read_snapshot(StudyFolder(tmp_path / "one")))
    assert "The configuration with the best search value is the winner." in text
    assert "on one test seed not used" in text


@pytest.mark.parametrize(
    ("of_search", "beaten", "words"),
    [
        (True, 5, ["On search seeds, none of 5 other configurations was better than"]),
        (False, 1, ["On selection seeds, the other configuration was not better than"]),
        (False, 0, []),
    ],
)
def test_winning_default_is_compared_on_the_seeds_that_selected_it(of_search, beaten, words):
    against = Against("the default", "default")
    found = Conclusion("trial 0", against, beaten=beaten, of_search=of_search)
    said = [f"{one} the default configuration." for one in words]
    assert other_quotes(found, "score") == said


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("mean", "mean normalised score"),
        ("iqm", "interquartile mean of normalised scores"),
        ("worst", "lowest normalised score"),
    ],
)
def test_metric_of_several_environments_names_their_aggregate(snapshot, over, words):
    several = {"more_envs": (EnvSpec("Acrobot-v1"),), "over_environments": over}
    assert metric_name(with_study(snapshot, **several).study) == words


def test_conditional_difference_is_marked_with_the_interval_of_the_sentence(snapshot):
    unless = Unless(Interval(1.5, 2.5, "t"), 14)
    against = replace(snapshot.conclusion.against, verdict="undecided", unless=unless)
    changed = replace(snapshot, conclusion=replace(snapshot.conclusion, against=against))
    table, row = results_table([changed]), result_rows(changed)[1]
    assert (row.lead_low, row.lead_high, row.one_in, row.mark) == (1.5, 2.5, 14, CONDITIONAL)
    assert any(f"[1.5, 2.5]{CONDITIONAL}" in cell for cell in table.rows[1])
    assert "fewer than 1 in 14 seeds" in table.caption and "No mark" not in table.caption


def test_conditional_difference_names_the_excluded_seeds():
    unless = Unless(Interval(1.5, 2.5, "t"), 14)
    counts = {"seeds": 8, "pairs": 7, "diverged": 1}
    found = Against("the default", "undecided", means=(3.0, 1.0), difference=2.0, **counts)
    *_, last = versus("trial 3", replace(found, unless=unless), "score")
    assert last == "The means exclude 1 seed, on which the default configuration diverged."


@pytest.mark.parametrize(("diverged", "level"), [((), "0.008"), ((0,), "0.016")])
def test_level_in_the_methods_counts_pairs_like_the_test(snapshot, monkeypatch, diverged, level):
    """If one of six seeds diverged, the earlier look had 5 pairs."""
    pair = (snapshot.winner.trial, snapshot.default)
    looks = [Look(trial, 6, trial == pair[0]) for trial in pair]
    monkeypatch.setattr(methods, "looks_of", lambda attributes: looks)
    values = {trial: tuple(map(float, range(8))) for trial in pair}
    rows = {one: replace(snapshot.rows[one], report_values=values[one]) for one in pair}
    own = values[pair[1]][len(diverged) :]
    rows[pair[1]] = replace(rows[pair[1]], report_values=own, report_diverged=diverged)
    against = replace(snapshot.conclusion.against, seeds=8, pairs=8 - len(diverged))
    changed = replace(
        snapshot,
        points=replace(snapshot.points, trials={**snapshot.rows, **rows}),
        conclusion=replace(snapshot.conclusion, against=against),
    )
    assert f"at the {level} level" in methods_text(changed)


def test_baseline_row_has_the_mean_of_its_interval(snapshot):
    """If the winner diverged on a seed, it was the mean over the other seeds."""
    means = {"means": (3.0, 2.0), "difference": 1.0}
    against = Against("ksp_ff", "better", seeds=8, pairs=7, own_diverged=1, **means)
    entry = BaselineEntry("ksp_ff", 2.5, Interval(2.4, 2.6, "t"), (2.5,) * 8, "report", None, None)
    conclusion = replace(snapshot.conclusion, baselines=(against,))
    row = result_rows(replace(snapshot, conclusion=conclusion, baselines=[entry]))[-1]
    assert (row.configuration, row.value, row.low, row.high) == ("ksp_ff", 2.5, 2.4, 2.6)


@pytest.mark.parametrize(
    ("of_seen", "words"),
    [
        ("behind", "Trial 4 is significantly better than the default configuration in every"),
        ("on_front", "Every trial is significantly worse than the default configuration in some"),
    ],
)
def test_conditional_front_verdict_is_quoted_with_its_condition(of_seen, words):
    found = FrontConclusion("open", 4, 8, 5, (), 8, unless=5, of_seen=of_seen)
    (said,) = front_quotes(found)
    assert said.startswith(f"{words} objective, provided that fewer than 1 in 5 seeds give")
    (said,) = front_quotes(replace(found, unless=None, of_seen=None))
    assert said.startswith("No significant difference was found between the Pareto front")


@pytest.mark.parametrize(
    "early", [{"type": "asha", "pause": 8}, {"type": "plateau", "min": 1024, "tolerance": 0.9}]
)
def test_trials_that_a_rule_ended_early_count_as_stopped(tmp_path, early):
    """Paused trials and those of `plateau` were not counted."""
    rule = EarlyTerminate(**{"min": 8192, "patience": 1, **early})
    samples.make_results(tmp_path, "one", early_terminate=rule)
    found = read_snapshot(StudyFolder(tmp_path / "one"))
    assert not any(row.action == "stop" for row in found.decisions)
    ended = {row.trial for row in found.decisions if row.action in ("pause", "finish")}
    ended -= {row.trial for row in found.decisions if row.action == "promote"}
    assert ended and found.stopped == ended
    assert f"stopped {len(ended)} of 24 configurations" in methods_text(found)
    assert f"{len(ended)} of 24 trials stopped" in report_html(found)


# ---------------------------------------------------------------------- hpo top


def test_top_latex_and_markdown_have_leaderboard_values(results, capsys):
    out = ["--study", "one", "--out", str(results)]
    entries = told(capsys, "top", *out)["leaderboard"]
    for flag, cells in (("--latex", r"\toprule"), ("--markdown", "| ---")):
        assert main(["top", flag, "-n", "3", *out]) == 0
        text = capsys.readouterr().out
        assert cells in text and f"{entries[0]['report_value']:.4g}" in text
        assert "learning" in text and "test seeds" in text
    assert main(["top", "--latex", "--markdown", *out]) == 2
    assert "choose one" in capsys.readouterr().err


def test_methods_text_names_imported_code_files(tmp_path):
    write_study(tmp_path)
    seen = read_snapshot(StudyFolder(tmp_path / "results" / "recorded"))
    (text,) = paper_of([seen], figures=False).methods
    assert "`my_code.py`" in text


KINDS = {
    "one configuration": {
        "space": samples.search.Space(()),
        "confirm": None,
        "budget": samples.search.Budget(1),
    },
    "populations": {
        "early_terminate": EarlyTerminate("pbt", every=2_000),
        "budget": samples.search.Budget(6),
        "seeds": Seeds(1),
    },
    "a constraint": {"constraints": (Constraint("eval/length_mean", min=None, max=1e9),)},
    "no stopping": {"early_terminate": None, "budget": samples.search.Budget(6)},
    "choices": {
        "space": samples.search.WITH_BUCKETS,
        "fixed": {"num_envs": 8},
        "budget": samples.search.Budget(6),
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_study_has_methods_and_a_table(kind, tmp_path):
    found = samples.make_results(tmp_path, "kind", **KINDS[kind])
    seen = read_snapshot(StudyFolder(found.folder))
    paper = paper_of([seen], figures=False)
    (text,) = paper.methods
    assert "CartPole-v1" in text and "  " not in text and " ." not in text and ".." not in text
    assert "None" not in text and "nan" not in text
    if kind == "a constraint":
        assert "mean episode length at most 1000000000" in text
    if kind == "populations":
        assert (
            "population-based training" in text and "changed hyperparameters every 2,000" in text
        )
    if kind == "choices":
        assert "`hidden_sizes` in {[16], [32], [64, 64]}" in text and "`num_envs`" not in text
    for table in paper.tables:
        text = table.written("latex").replace(" & ", "").replace("%\n", "\n")
        left = bare(text.replace("\\\\\n", "\n").replace("~\\cite", "\\cite"))
        assert not set("#~^|_\\") & set(left.replace("% needs", "")), left
    values = [row.value for row in result_rows(seen)]
    assert all(value is not None and math.isfinite(value) for value in values)


@pytest.mark.parametrize(
    ("portfolio", "trials", "words"),
    [
        (0, 3, "tried the default configuration and two configurations that we specified. Each"),
        (
            2,
            7,
            "tried the default configuration, two configurations that we specified and two "
            "configurations that hpo learnt from recorded runs on other environments. "
            "The tree-structured Parzen estimator (TPE)",
        ),
    ],
)
def test_paper_names_enqueued_configurations(tmp_path, portfolio, trials, words):
    """The method did not propose them, and all sources add up to the number of trials."""
    samples.make_results(
        tmp_path,
        "given",
        search=SearchSpec("tpe", portfolio=portfolio),
        enqueue=({"gamma": 0.95}, {"gamma": 0.96}),
        budget=Budget(trials=trials),
        early_terminate=None,
    )
    text = re.sub(
        r" ?\[@[^]]*\]", "", methods_text(read_snapshot(StudyFolder(tmp_path / "given")))
    )
    assert words in text
    proposed = "then proposed two configurations" in text
    assert proposed == (trials == 7) and ("TPE" in text) == (trials == 7)


def test_short_study_paper_names_portfolio_and_permutation_test(tmp_path):
    """Four runs, then four test seeds a side: no method proposed, no signs were flipped."""
    poor = search.parameter("learning_rate", 1e-5, min=1e-5, max=1.0, distribution="log_uniform")
    samples.make_results(
        tmp_path,
        "short",
        space=search.Space((poor, search.REAL.parameters[1])),
        search=SearchSpec("tpe", portfolio=3),
        budget=Budget(trials=4),
        early_terminate=None,
        seeds=Seeds(1),
        confirm=Confirm(top_k=1, choose=0, report=4),
    )
    folder = StudyFolder(tmp_path / "short")
    short = read_snapshot(folder)
    winner, default = result_rows(short)
    assert (winner.seeds, default.seeds, default.seeds_from) == (4, 4, "report")
    _, asked = query(folder.path, "SELECT report_values FROM trials WHERE trial = 0")
    assert default.value == pytest.approx(sum(asked[0][0]) / 4)
    text = " ".join(part.read_text() for part in _written(short, tmp_path / "paper"))
    assert "The search tried the default configuration and three configurations" in text
    assert "two-sample permutation test" in text
    assert "sign-flip" not in text and "proposed" not in text


def _written(snapshot, folder):
    words = ["paper", snapshot.meta.name, "--out", str(snapshot.folder.path.parent)]
    assert main([*words, "--to", str(folder), "--no-figures"]) == 0
    return sorted(folder.glob("*.md"))
