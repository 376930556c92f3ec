r"""Text for papers, written as LaTeX or as Markdown from the same source.

The source is plain text with two kinds of markup: `code` in backticks, and citations such as
[@hpo; @agarwal2021precipice].
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...files.plain_data import spaced

Form = Literal["latex", "markdown"]
_MARKED = re.compile(r"`([^`]*)`|\[(@[\w-]+(?:; @[\w-]+)*)\]")
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%",
    "#": r"\#", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\char34{}",
    "'": "'", "-": "-", "\u2013": "--", "\u2014": "---", "\u2019": "'", "\u2026": r"\dots{}",
    "\u2212": "$-$", "\u00d7": r"$\times$", "\u00b1": r"$\pm$", "\u2264": r"$\le$",
    "\u2265": r"$\ge$", "\u2020": r"$\dagger$", "\u2021": r"$\ddagger$",
    "\u00a0": "~", "\u00b0": r"$^\circ$",
    "\u00b5": r"$\mu$",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u0304": "=",
    "\u0307": ".", "\u030a": "r", "\u030c": "v", "\u0327": "c", "\u0306": "u",
    "\u030b": "H",
}  # fmt: skip
_LETTERS = {
    "\u00df": r"\ss{}", "\u00e6": r"\ae{}", "\u00c6": r"\AE{}", "\u00f8": r"\o{}",
    "\u00d8": r"\O{}", "\u0142": r"\l{}", "\u0141": r"\L{}", "\u0131": r"\i{}",
    "\u03b1": r"$\alpha$", "\u03b2": r"$\beta$", "\u03b3": r"$\gamma$", "\u03b5": r"$\epsilon$",
    "\u03bb": r"$\lambda$", "\u03bc": r"$\mu$", "\u03c3": r"$\sigma$", "\u03c4": r"$\tau$",
}  # fmt: skip


def latex(text: str) -> str:
    r"""Escape plain text for LaTeX; characters unknown to pdflatex become their code points.

    >>> print(latex("50% of my_env & caf\u00e9 \u4e2d"))
    50\% of my\_env \& caf\'{e} [U+4E2D]
    """
    return "".join(map(_latex_letter, unicodedata.normalize("NFC", text)))


def _latex_letter(letter: str) -> str:
    known = _SPECIAL.get(letter) or _LETTERS.get(letter)
    if known is not None:
        return known
    if letter.isascii() and letter.isprintable():
        return letter
    if letter.isascii():
        return " "
    base, *marks = unicodedata.normalize("NFD", letter)
    if len(marks) == 1 and marks[0] in _ACCENTS and base.isascii() and base.isalpha():
        return rf"\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"[U+{ord(letter):04X}]"


def markdown(text: str) -> str:
    r"""Escape plain text for Markdown, including table cells.

    >>> print(markdown("my_env | *"))
    my\_env \| \*
    """
    return spaced(re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", text))


def code(text: str) -> str:
    """Mark a name as code in a source text."""
    return f"`{text.replace('`', chr(39))}`"


def written(source: str, form: Form) -> str:
    r"""Write marked-up text as LaTeX or Markdown.

    >>> print(written("`a_b` costs 5 % [@hpo].", "latex"))
    \texttt{a\_b} costs 5 \%~\cite{hpo}.
    >>> print(written("`a_b` costs 5 % [@hpo].", "markdown"))
    `a_b` costs 5 % [@hpo].
    """
    escape = markdown
    if form == "latex":
        escape = latex
    parts: list[str] = []
    at = 0
    for found in _MARKED.finditer(source):
        parts.append(escape(source[at : found.start()]))
        parts.append(_replace_mark(found, form))
        at = found.end()
    text = "".join([*parts, escape(source[at:])])
    return text.replace(" ~\\cite", "~\\cite")


def _replace_mark(found: re.Match[str], form: Form) -> str:
    name, cited = found.groups()
    if form == "markdown" and name is not None:
        return f"`{spaced(name)}`"
    if form == "markdown":
        return found.group()
    if name is not None:
        return rf"\texttt{{{_break_long_word(latex(name))}}}"
    keys = ",".join(key.strip().removeprefix("@") for key in cited.split(";"))
    return rf"~\cite{{{keys}}}"


def _break_long_word(text: str) -> str:
    """Allow line breaks within a long word in code, such as a hash."""
    if len(text) < 40 or " " in text or "\\" in text:
        return text
    return r"\allowbreak ".join(text[at : at + 8] for at in range(0, len(text), 8))


@dataclass(frozen=True)
class MarkupTable:
    """A table of marked-up cells; `groups` are the rows after which a rule is drawn."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]
    caption: str
    label: str = "tab:results"
    groups: Sequence[int] = ()

    def written(self, form: Form) -> str:
        if form == "latex":
            return self._latex_table()
        return self._markdown_table()

    def _latex_table(self) -> str:
        columns = "".join("r" if is_right else "l" for is_right in self.right)
        lines = [
            "% needs \\usepackage{booktabs} and \\usepackage{graphicx}",
            r"\begin{table}[tbp]",
            r"\centering",
            rf"\caption{{{written(self.caption, 'latex')}}}",
            rf"\label{{{self.label}}}",
            r"\small",
            # at most as wide as the text
            r"\setbox0=\hbox{%",
            rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
            r"\toprule",
            self._latex_row(self.header),
            r"\midrule",
        ]
        for place, row in enumerate(self.rows):
            if place in self.groups:
                lines.append(r"\midrule")
            lines.append(self._latex_row(row))
        lines += [r"\bottomrule", r"\end{tabular}}%"]
        lines.append(r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\box0}\else\box0\fi")
        return "\n".join([*lines, r"\end{table}", ""])

    def _latex_row(self, cells: Sequence[str]) -> str:
        return " & ".join(_minus_signs(written(cell, "latex")) for cell in cells) + r" \\"

    def _markdown_row(self, row: Sequence[str]) -> str:
        return f"| {' | '.join(written(cell, 'markdown') for cell in row)} |"

    def _markdown_table(self) -> str:
        sides = ["---:" if is_right else "---" for is_right in self.right]
        lines = [self._markdown_row(row) for row in (self.header, *self.rows)]
        lines.insert(1, f"| {' | '.join(sides)} |")
        return "\n".join([*lines, "", written(self.caption, "markdown"), ""])


def _minus_signs(cell: str) -> str:
    """Typeset the sign of a negative number as a minus instead of a hyphen."""
    return re.sub(r"(?<![\w.}])-(?=[\d.])", "$-$", cell)
