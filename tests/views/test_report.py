"""The report is whole, asks nothing of a network, and runs nothing that a study brings along."""

import base64
import hashlib
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from statistics import fmean

import pytest

import hpo
from helpers import view_samples as samples
from hpo.cli import main
from hpo.store.study_folder import StudyFolder
from hpo.views.charts.snapshot import read_snapshot
from hpo.views.leaderboard_text import next_commands
from hpo.views.report.page import TableCell, page, table
from hpo.views.report.report import report_html, write_report

VOID = {"meta", "link", "br", "i", "circle", "path", "rect"}
SECTIONS = ["curves", "leaderboard", "history", "importance", "parallel", "slices", "stopping",
            "study"]  # fmt: skip
WITH_EFFECTS = [*SECTIONS[:4], "effects", *SECTIONS[4:]]


class Page(HTMLParser):
    """Collects what a page holds, and sees that every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.attributes, self.texts = [], [], [], {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in {"meta", "link", "br", "wbr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag

    def handle_data(self, data):
        for tag in self.open:
            self.texts[tag] = self.texts.get(tag, "") + data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return StudyFolder(samples.make_audited(tmp_path_factory.mktemp("results")).folder)


@pytest.fixture(scope="module")
def text(folder):
    return write_report(folder).read_text(encoding="utf-8")


def test_symlink_at_the_report_path_is_replaced(folder, tmp_path):
    other = tmp_path / "other.html"
    other.write_text("mine")
    folder.report.unlink(missing_ok=True)
    folder.report.symlink_to(other)
    write_report(folder)
    assert other.read_text() == "mine" and not folder.report.is_symlink()


def test_report_has_all_sections_and_links(text, folder):
    parsed = Page(text)
    assert parsed.ids == WITH_EFFECTS
    links = [value for tag, name, value in parsed.attributes if (tag, name) == ("a", "href")]
    assert links == [f"#{name}" for name in WITH_EFFECTS]
    assert parsed.texts["h1"] == "audited" and "<title>audited - hpo report</title>" in text
    snapshot = read_snapshot(folder)
    assert parsed.texts["strong"] == snapshot.conclusion.said[0]
    head = text.partition("<section")[0]
    assert re.findall("<dt>([^<]+)</dt>", head) == ["winner", "default", "trials", "wall time"]
    assert head.count("] on ") == 3  # of the difference, the winner and the default
    assert f"{snapshot.winner.value:.4g}" in head and "on 6 test seeds" in head
    rows = re.findall(r'<tr data-t="(\d+)"', text)
    assert list(map(int, rows)) == [entry.trial for entry in snapshot.entries]
    assert "seeds: {per_config: 2" in parsed.texts["code"]


def test_portable_report_omits_local_next_commands(text, folder):
    snapshot = read_snapshot(folder)
    commands = next_commands(folder.path, snapshot.entries, snapshot.conclusion)
    listed = text.partition('<ul class="next">')[2].partition("</ul>")[0]
    for command, _ in commands:
        assert f"<code>{escape(command)}</code>" in listed
    assert "hpo paper " in listed and "hpo bundle " in listed
    travelling = report_html(snapshot, portable=True)
    assert '<ul class="next">' not in travelling and str(folder.path) not in travelling


def test_report_navigation_wraps(text):
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.S)
    (rule,) = re.findall(r"\nnav \{(.*?)\}", style, re.S)
    assert "flex-wrap: wrap" in rule and "overflow" not in rule and "nowrap" not in rule


def test_scrollable_report_areas_are_keyboard_accessible(text):
    assert re.findall("<pre>", text) == []
    for box in re.findall(r'<div class="scroll[^>]*>', text):
        assert 'tabindex="0"' in box and 'role="region"' in box and "aria-label" in box


def test_stopping_and_study_sections_are_collapsed(text):
    """Costs, versions and decisions are no result."""
    for section in ("stopping", "study"):
        body = text.partition(f'<section id="{section}">')[2].partition("</section>")[0]
        assert "<details>" in body and "<details open>" not in body
        shown = re.sub("<details>.*?</details>", "", body, flags=re.DOTALL)
        assert "<table>" not in shown and "<pre" not in shown


def test_report_shows_the_audit(text, folder):
    audit = read_snapshot(folder).audit
    assert audit is not None and audit.whole.audited >= 10
    assert f"{audit.whole.wrong} of {audit.whole.audited} audited trials" in text
    assert "By rung: " in text and "false stops" in text


def test_report_loads_nothing_from_the_network(text):
    parsed = Page(text)
    for tag, name, value in parsed.attributes:
        if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            assert value.startswith(("#", "data:")), (tag, name, value)
        assert not (name.startswith("on") or name == "style"), (tag, name)
    assert not re.search(r"url\(|@import|fetch|XMLHttp|WebSocket|import\(", text)
    assert not re.findall(r"https?://", text.replace("http-equiv", ""))


def test_report_csp_allows_only_package_code(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text).group(1)
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for kind in ("script", "style"):
        (body,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_names_that_look_like_code_stay_text(folder, tmp_path):
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
    snapshot = read_snapshot(folder)
    winner = snapshot.entries[0]
    entry = replace(winner, params={**winner.params, "learning_rate": evil}, value_from="search")
    meta = replace(snapshot.meta, name=evil, metric=evil, study_text=evil, versions={evil: evil})
    snapshot = replace(snapshot, meta=meta, entries=[entry, *snapshot.entries[1:]], folder=folder)
    text = report_html(snapshot)
    parsed = Page(text)
    assert "<script>alert" not in text and "<img" not in text
    assert parsed.texts["h1"] == evil and evil in parsed.texts["code"]
    assert {name for _, name, _ in parsed.attributes}.isdisjoint({"onerror", "src"})
    part = table(evil, [evil], [[TableCell(evil)], [TableCell(evil)]])
    whole = page(evil, "", [("a", evil, part)], "")
    assert "<script>alert" not in whole and Page(whole).texts["td"] == 2 * evil


def test_report_charts_have_colours_and_alt_text(text):
    parsed = Page(text)
    pictures = [value for tag, name, value in parsed.attributes if (tag, name) == ("svg", "role")]
    told = [
        value for tag, name, value in parsed.attributes if (tag, name) == ("svg", "aria-label")
    ]
    assert set(pictures) == {"img", "group"} and len(told) == len(pictures) and all(told)
    assert "prefers-color-scheme:dark" in text
    used = {
        style
        for _, name, value in parsed.attributes
        if name == "class"
        for style in value.split()
        if re.fullmatch(r"[cs]\d", style)
    }
    assert used and all(f".{style}{{--own:var(--{style})}}" in text for style in used)


@pytest.mark.parametrize(("ground", "column"), [("#ffffff", 0), ("#15181c", 1)])
def test_chart_colours_have_sufficient_contrast(ground, column):
    from hpo.views.charts.model import STYLES

    for style, colours in STYLES.items():
        least = 1.3 if style in ("faint", "s0", "s1") else 3.0  # these are the background
        if style == "s2":
            least = 2.5
        assert contrast(colours[column], ground) >= least, style


def contrast(one, other):
    """WCAG 2, relative luminance."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_a_study_without_a_finished_trial_has_a_report(tmp_path, monkeypatch):
    """As when the wall time ends first; a file may not have so small a budget."""
    monkeypatch.setattr("hpo.search.run.check_runnable", lambda study: None)
    budget = samples.search.Budget(trials=4, wall_seconds=1e-9)
    results = samples.make_results(tmp_path, budget=budget, confirm=None)
    assert results.best is None
    text = write_report(StudyFolder(results.folder)).read_text()
    assert Page(text).ids == SECTIONS
    assert "no winner" in text and "nan" not in text.replace("nance", "")


def test_empty_study_has_a_report(folder, tmp_path):
    from hpo.store.journal import Journal

    with Journal(folder.path) as journal:
        meta = journal.meta
    begun = tmp_path / "begun"
    begun.mkdir()
    Journal.create(begun, meta).close()
    text = write_report(StudyFolder(begun)).read_text()
    assert Page(text).ids == SECTIONS and "No trial yet" in text
    assert "No trial has a value yet" in text and "No curve has been recorded yet" in text
    assert re.search(r"budget: (trials|env steps|time) \S+<", text)


def test_multi_objective_report_has_a_pareto_section(tmp_path):
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.search_spec import Metric

    metrics = (Metric(), Metric(name="eval/thrift"))
    asked = {"env": EnvSpec("own"), "imports": ("my_envs.py",), "metric": metrics[0]}
    results = samples.make_results(tmp_path, objectives=metrics, **asked)
    text = write_report(StudyFolder(results.folder)).read_text()
    assert Page(text).ids == ["pareto", *WITH_EFFECTS]
    assert "Pareto front: " in text and "; hypervolume: 0." in text


def test_report_command_writes_to_the_given_path(folder, tmp_path, capsys):
    target = tmp_path / "there.html"
    words = ["--study", str(folder.path), "--to", str(target)]
    assert main(["report", *words]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert target.read_text() == report_html(read_snapshot(folder))
    assert main(["report", "--study", str(folder.path), "--json"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert main(["report", "--to", str(tmp_path / "no" / "x.html"), *words[:2]]) == 2
    assert hpo.report(folder.path, to=tmp_path / "py.html").read_text() == target.read_text()


def test_top_and_show_print_the_audit(folder, capsys):
    assert main(["top", "--study", str(folder.path)]) == 0
    assert "audited trials" in capsys.readouterr().out
    snapshot = read_snapshot(folder)
    audited = next(n for n, row in snapshot.rows.items() if row.audited and row.value is not None)
    assert main(["show", str(audited), "--study", str(folder.path)]) == 0
    than = "better than" if snapshot.rows[audited].value > snapshot.audit.bar else "worse than"
    assert f"Audit: this trial finished {than}" in " ".join(capsys.readouterr().out.split())
    stopped = next(n for n, row in snapshot.rows.items() if str(row.state) == "stopped")
    assert main(["show", str(stopped), "--study", str(folder.path)]) == 0
    assert "finished better than the median" in " ".join(capsys.readouterr().out.split())


def test_report_shows_the_default_only_on_shared_test_seeds(tmp_path, folder):
    def told(snapshot):
        return report_html(snapshot).partition("<dt>default</dt>")[2][:200]

    snapshot = read_snapshot(folder)
    ours, theirs = snapshot.conclusion.against.means
    assert snapshot.rows[0].state != "confirmed" and snapshot.winner.value == ours
    assert theirs == pytest.approx(fmean(snapshot.rows[0].report_values))
    assert f">{theirs:.4g}<" in told(snapshot)
    assert "on 6 test seeds" in told(snapshot)
    won = read_snapshot(StudyFolder(samples.make_results(tmp_path, "confirmed").folder))
    assert won.winner.trial == 0 and told(won) == ""
    assert "Keep the default: none of " in report_html(won)
    made = samples.make_results(tmp_path, "searched", confirm=None)
    searched = read_snapshot(StudyFolder(made.folder))
    assert told(searched) == "" and "Undecided: all values are from seeds" in report_html(searched)


def test_mean_of_the_default_is_over_the_seeds_of_its_interval(folder):
    """It was the mean over the seeds on which the winner has a value too."""
    shown = read_snapshot(folder)
    values = shown.rows[shown.default].report_values
    against = replace(shown.conclusion.against, means=(1.0, 123.5))
    changed = replace(shown, conclusion=replace(shown.conclusion, against=against))
    cell = re.search(r">default</.{0,40}>([-0-9.]+)<", report_html(changed))
    assert cell and float(cell[1]) == pytest.approx(fmean(values), rel=1e-3)
