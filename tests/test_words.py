"""A thermometer of the language: habits per 1,000 words, long sentences, number of words.

The bounds keep the numbers reached; lower them when the numbers fall. When a count exceeds its
bound, read the sentence aloud and say it plainly, or delete it. Do not reword around a pattern.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"tests", "benchmarks", "scripts", "docs", "typings", "results", "build"}
GENERATED = ("reference",)
"""Pages of tables: most of them are written by scripts."""

HABITS = {
    "a clause for a noun": r"\bwhat (?:is|are|was|were|has|had|ran|runs|came|comes|no|of)\b",
    "a person for a thing": r"\b(?:whoever|nobody|somebody|who (?:is|was|has|had|came|copied))\b",
    "numbers that tell": r"\b(?:tells?|told)\b",
    "to stand, to lie": r"\b(?:stands?|stood|lies|lie)\b",
    "to begin anew": r"\b(?:anew|begun|begins? again)\b",
    "to go on": r"\b(?:go|goes|going|gone|went) on\b",
    "own without a rival": r"\b(?:its|their|your|our|one's|of) own\b",
    "beside and behind": r"\b(?:besides?|behind|apart|likewise)\b",
    "a for per": r"\b(?:one|row|column|line|file|folder|trials?|seeds?|values?) an? "
                 r"(?:trial|seed|knob|metric|episode|lane|study|program|environment)\b",
    "unlike for different": r"\b(?:unlike|unequally)\b",
    "is no": r"\b(?:is|are|was) no (?!longer)\w+",
    "seeds that chose": r"\bseeds? (?:that|which) (?:chose|choose|select)|\bcho(?:se|ose) nothing",
}  # fmt: skip
PATTERNS = {name: re.compile(pattern, re.I) for name, pattern in HABITS.items()}

PER_THOUSAND = {"docs": 1.8, "strings": 1.0, "docstrings": 0.5}
LONG_SHARE, LONG = 0.035, 25
README_WORDS, GUIDE_WORDS = 600, 29_590
"""Without `GENERATED`, the generated parts of other pages, and the log of decisions."""
_PARTS = r"<!-- (?:generated|methods|portfolio|rules|topologies) -->.*?<!-- end -->"


# ---------------------------------------------------------------------- the texts


@cache
def pages():
    """Return name -> text of the pages, without code and generated parts."""
    found = {}
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(tuple(f"docs/{begin}" for begin in GENERATED)):
            text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.S | re.M)
            text = re.sub(_PARTS, "", text, flags=re.S)
            found[name] = re.sub(r"`[^`\n]*`", "`x`", re.sub(r"<.*?>", "", text, flags=re.S))
    return found


@cache
def code():
    """Return the strings of five words and more of the package, and its docstrings."""
    strings, docstrings = [], []
    for path in sorted(ROOT.rglob("*.py")):
        first = path.relative_to(ROOT).parts[0]
        if first not in OUTSIDE and not first.startswith("."):
            _read(ast.parse(path.read_text()), strings, docstrings)
    return "\n".join(strings), "\n".join(docstrings)


def _read(tree, strings, docstrings):
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = [one.value for one in node.body if isinstance(one, ast.Expr)]
            texts = [one for one in inside if isinstance(one, ast.Constant)]
            docstrings += [one.value for one in texts if isinstance(one.value, str)]
            skipped |= set(map(id, texts))
        if id(node) not in skipped and (text := _text(node)) is not None:
            skipped |= {id(part) for part in ast.walk(node)}
            if len(text.split()) >= 5 and not text.lstrip().startswith(("SELECT", "CREATE", "<")):
                strings.append(text)


def _text(node):
    match node:
        case ast.Constant(str(value)):
            return value
        case ast.JoinedStr(parts):
            return "".join(one.value if isinstance(one, ast.Constant) else "N" for one in parts)
    return None


# ---------------------------------------------------------------------- what is counted


def habits(text):
    """Return each habit with its places."""
    found = {name: pattern.findall(text) for name, pattern in PATTERNS.items()}
    return {name: places for name, places in found.items() if places}


def per_thousand(text):
    return 1000 * sum(map(len, habits(text).values())) / len(text.split())


def sentences(page):
    """Return the sentences of a page's prose and lists, without tables and headings."""
    text = re.sub(r"^(?:\||#|!|    ).*$", "\n", page, flags=re.M)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    parts = [part for block in re.split(r"\n\s*\n", text) for part in _ENDS.split(block)]
    return [words for part in parts if (words := part.split())]


_ENDS = re.compile(r"(?<=[.!?])[*)]*\s+(?=[A-Z`*\[(])")


# ---------------------------------------------------------------------- the bounds


@pytest.mark.parametrize("where", PER_THOUSAND)
def test_discouraged_phrases_stay_rare(where):
    strings, docstrings = code()
    text = {"docs": "\n".join(pages().values()), "strings": strings, "docstrings": docstrings}[
        where
    ]
    seen = per_thousand(text)
    counts = {name: len(places) for name, places in habits(text).items()}
    assert seen <= PER_THOUSAND[where], f"{seen:.1f} in 1,000 words: {counts}"


def test_sentences_are_short():
    found = [words for name, text in pages().items() for words in sentences(text)]
    long = [" ".join(words) for words in found if len(words) > LONG]
    share = len(long) / len(found)
    assert share <= LONG_SHARE, f"{share:.1%} of {len(found)} sentences: {long[:20]}"


def test_docs_word_count_stays_below_limits():
    words = {
        name: len(re.sub(_PARTS, "", (ROOT / name).read_text(), flags=re.S).split())
        for name in pages()
    }
    assert words["README.md"] <= README_WORDS
    guides = {name: count for name, count in words.items() if name != "docs/decisions.md"}
    assert sum(guides.values()) <= GUIDE_WORDS, guides


def test_discouraged_phrase_counter_detects_examples():
    text = "Whoever goes on stands beside it. What is left out has a value of its own."
    assert len(habits(text)) == 6 and per_thousand(text) > 300
    assert per_thousand("Omitted keys have defaults. The trial resumes.") == 0
    page = "# A heading\n\nOne. Two is `x`.\n- Three\n- Four\n\n| no | sentence |\n"
    assert list(map(len, sentences(page))) == [1, 3, 1, 1]
