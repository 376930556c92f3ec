r"""The files of `hpo paper`: LaTeX, Markdown, BibTeX and figures of one or more studies.

Every part is a separate file for `\input`; `paper.tex` combines them and compiles unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StoreError, clause
from ...files.atomic_files import make_folder, write_text
from ...store.verdict import Conclusion
from ..charts.environment_names import environment_names
from ..charts.matplotlib_files import draw_picture
from ..charts.model import XY, Picture, Scale
from ..charts.search_charts import curves
from ..charts.several_studies import several_studies
from ..charts.snapshot import Snapshot
from ..quotes import limit_quotes, metric_name, no_verdict, other_quotes, versus
from .markup import Form, MarkupTable, code, written
from .methods import methods_text
from .references import HPO, bibtex
from .results import front_table, results_table, rows_as_json, rows_of_studies

_CITED = re.compile(r"@([\w-]+)")
_CURVES_WIDTH, _SEVERAL_WIDTH = 5.5, 7.5  # inches
_FORMATS = ("pdf", "svg")
_AXES = {"env steps of one seed": "environment steps", "episode return": "episode return"}
_SEVERAL_METHODS = (
    "The studies are compared on test seeds by the interquartile mean, the probability of "
    "improvement and performance profiles [@agarwal2021precipice]. Intervals for the "
    "interquartile mean are computed with a stratified bootstrap over seeds (2,000 resamples, "
    "expanded percentiles [@hesterberg2015bootstrap])."
)


@dataclass(frozen=True)
class Figure:
    name: str  # stem of its files
    picture: Picture
    width: float  # inches


@dataclass(frozen=True)
class Paper:
    """The parts as marked-up text; `notes` lists omissions with their reasons."""

    title: str
    methods: Sequence[str]
    results: Sequence[str]
    tables: Sequence[MarkupTable]
    figures: Sequence[Figure]
    notes: Sequence[str]

    @property
    def cited(self) -> list[str]:
        captions = [one.caption for one in self.tables] + [
            one.picture.caption for one in self.figures
        ]
        texts = [*self.methods, *self.results, *captions]
        return sorted({HPO, *(key for text in texts for key in _CITED.findall(text))})


def paper_of(snapshots: Sequence[Snapshot], figures: bool = True) -> Paper:
    """Return the parts of a paper about these studies, as of their last commits."""
    notes: list[str] = []
    methods, results = _methods_paragraphs(snapshots), _results_paragraphs(snapshots)
    tables = [results_table([one for one in snapshots if not one.meta.objectives])]
    tables += [front_table(one) for one in snapshots if one.meta.objectives]
    drawn: list[Figure] = []
    if figures:
        drawn += _curves_figures(snapshots, notes)
    if figures and len(snapshots) > 1:
        try:
            picture = several_studies(snapshots)
        except ConfigError as error:
            notes.append(f"no figure that compares the studies: {error}")
        else:
            drawn.append(Figure("studies", picture, _SEVERAL_WIDTH))
            methods.append(_SEVERAL_METHODS)
    names = [snapshot.meta.name for snapshot in snapshots]
    title = f"Results of {', '.join(names)}"
    return Paper(title, methods, results, [one for one in tables if one], drawn, notes)


def distinctly_named(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Number studies with equal names, such as those of two folders, in the given order."""
    names = _numbered([snapshot.meta.name for snapshot in snapshots], "{} ({})")
    return [
        replace(snapshot, meta=replace(snapshot.meta, name=name))
        for snapshot, name in zip(snapshots, names, strict=True)
    ]


def _numbered(names: Sequence[str], form: str) -> list[str]:
    """Return distinct names: a number is added to each that an earlier one already has.

    >>> _numbered(["a", "a", "a-2", "b"], "{}-{}")
    ['a', 'a-3', 'a-2', 'b']
    """
    found, given = list[str](), set(names)
    for name in names:
        own, number = name, 1
        while own in found or (number > 1 and own in given):
            number += 1
            own = form.format(name, number)
        found.append(own)
    return found


def _methods_paragraphs(snapshots: Sequence[Snapshot]) -> list[str]:
    texts = [methods_text(snapshot) for snapshot in snapshots]
    if len(snapshots) == 1:
        return texts
    named = zip(snapshots, texts, strict=True)
    return [f"Study {code(snapshot.meta.name)}. {text}" for snapshot, text in named]


def _results_paragraphs(snapshots: Sequence[Snapshot]) -> list[str]:
    found: list[str] = []
    for snapshot, environment in zip(snapshots, environment_names(snapshots), strict=True):
        metric, conclusion = metric_name(snapshot.study), snapshot.conclusion
        said = quotes_of(conclusion, metric)
        if not said:
            continue
        where = f"On {code(environment)}"
        if len(snapshots) > 1:
            where += f" (study {code(snapshot.meta.name)})"
        found.append(f"{where}: {' '.join(said)}")
    return found


def quotes_of(conclusion: Conclusion, metric: str) -> list[str]:
    """Return all sentences about a conclusion that can be quoted."""
    said = list(no_verdict(conclusion))
    if conclusion.winner is not None and conclusion.front is None and not conclusion.lone:
        said += versus(conclusion.winner, conclusion.against, metric)
        said += limit_quotes(conclusion.winner, conclusion.against)
    return said + other_quotes(conclusion, metric)


def _curves_figures(snapshots: Sequence[Snapshot], notes: list[str]) -> list[Figure]:
    found: list[Figure] = []
    stems = ["curves"]
    if len(snapshots) > 1:
        names = [_file_name(snapshot.meta.name) for snapshot in snapshots]
        stems = [f"curves_{name}" for name in _numbered(names, "{}-{}")]
    for snapshot, stem in zip(snapshots, stems, strict=True):
        picture = curves(snapshot)
        if not picture.panels:
            notes.append(f"no figure for study {snapshot.meta.name!r}: {picture.caption}")
            continue
        picture = _for_paper(picture, snapshot)
        if len(snapshots) > 1:
            caption = f"Study {code(snapshot.meta.name)}. {picture.caption}"
            picture = replace(picture, caption=caption)
        found.append(Figure(stem, picture, _CURVES_WIDTH))
    return found


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-") or "study"


def _for_paper(picture: Picture, snapshot: Snapshot) -> Picture:
    """Adapt a picture to a paper: only recorded training curves, labels instead of a legend."""
    in_training = [one for one in picture.panels if one.title.startswith("In training")]
    panels = [_plain_panel(one) for one in in_training or picture.panels if isinstance(one, XY)]
    keys = [key for one in in_training or picture.panels for key in one.keys]
    coloured = dict.fromkeys(key.label for key in keys if key.style != "faint")
    grey = dict.fromkeys(key.label for key in keys if key.style == "faint")
    (environment,) = environment_names([snapshot])
    where = code(environment)
    kind = "Evaluations during the search"
    if in_training:
        kind = "Training curves"
    caption = f"{kind} on {where}: means over seeds with 95 % intervals, or ranges if there are "
    caption += f"fewer than five seeds. In colour: {', '.join(coloured)}."
    caption += clause(" In grey: {}.", ", ".join(grey))
    return replace(picture, panels=panels, caption=caption)


def _plain_panel(panel: XY) -> XY:
    title = ""
    if panel.title.startswith("In training"):
        title = panel.title.removeprefix("In training").removeprefix(" on ")
    return replace(
        panel, title=title, keys=(), x=_capitalise_label(panel.x), y=_capitalise_label(panel.y)
    )


def _capitalise_label(scale: Scale) -> Scale:
    label = _AXES.get(scale.label, scale.label.removeprefix("eval/").replace("_", " "))
    return replace(scale, label=label[:1].upper() + label[1:])


def write_paper(paper: Paper, folder: Path) -> list[Path]:
    """Write all files; raise if the folder already has one of them."""
    texts = {
        "methods.tex": _written_paragraphs(paper.methods, "latex"),
        "results.tex": _written_paragraphs(paper.results, "latex"),
        "tables.tex": "\n".join(table.written("latex") for table in paper.tables),
        "figures.tex": "\n".join(map(_latex_figure, paper.figures)),
        "paper.tex": _latex_document(paper),
        "paper.md": _markdown_document(paper),
        "references.bib": bibtex(paper.cited),
    }
    drawn = [f"{one.name}.{kind}" for one in paper.figures for kind in _FORMATS]
    there = [name for name in (*texts, *drawn) if (folder / name).exists()]
    if there:
        message = f"{folder}/ already contains {there[0]}"
        raise StoreError(f"{message}; choose another folder with --to, or delete it")
    make_folder(folder)
    for name, text in texts.items():
        write_text(folder / name, text)
    for one in paper.figures:
        for kind in _FORMATS:
            draw_picture(folder / f"{one.name}.{kind}", one.picture, None, one.width)
    return [folder / name for name in (*texts, *drawn)]


def _written_paragraphs(texts: Sequence[str], form: Form) -> str:
    return "\n\n".join(written(text, form) for text in texts) + "\n"


def _latex_figure(figure: Figure) -> str:
    return "\n".join(
        [
            r"\begin{figure}[tbp]",
            r"\centering",
            rf"\includegraphics[width=\linewidth]{{{figure.name}.pdf}}",
            rf"\caption{{{written(figure.picture.caption, 'latex')}}}",
            rf"\label{{fig:{figure.name}}}",
            r"\end{figure}",
            "",
        ]
    )


def _latex_document(paper: Paper) -> str:
    return "\n".join(
        [
            "% compile: pdflatex paper && bibtex paper && pdflatex paper && pdflatex paper",
            r"\documentclass{article}",
            r"\usepackage[utf8]{inputenc}",
            r"\usepackage{booktabs}",
            r"\usepackage{graphicx}",
            r"\emergencystretch=3em",
            rf"\title{{{written(paper.title, 'latex')}}}",
            r"\author{}",
            r"\date{}",
            r"\begin{document}",
            r"\maketitle",
            r"\section{Methods}",
            r"\input{methods}",
            r"\section{Results}",
            r"\input{results}",
            r"\input{tables}",
            r"\input{figures}",
            r"\bibliographystyle{plain}",
            r"\bibliography{references}",
            r"\end{document}",
            "",
        ]
    )


def _markdown_document(paper: Paper) -> str:
    parts = [f"# {written(paper.title, 'markdown')}", "## Methods"]
    parts.append(_written_paragraphs(paper.methods, "markdown").rstrip())
    parts.append("## Results")
    parts.append(_written_paragraphs(paper.results, "markdown").rstrip())
    parts += [table.written("markdown").rstrip() for table in paper.tables]
    for one in paper.figures:
        caption = written(one.picture.caption, "markdown")
        parts.append(f"![{caption}]({one.name}.svg)")
    return "\n\n".join(filter(None, parts)) + "\n"


def paper_as_json(paper: Paper, snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return a paper as JSON data: texts in Markdown, and the rows of the results tables."""
    return {
        "methods": [written(text, "markdown") for text in paper.methods],
        "results": [written(text, "markdown") for text in paper.results],
        "rows": rows_as_json([row for _, rows in rows_of_studies(snapshots) for row in rows]),
        "cited": paper.cited,
        "notes": list(paper.notes),
    }
