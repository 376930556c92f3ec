"""The pages of the documents, and the Python blocks in them, for the tests that run them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OTHERS = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "results/README.md")
PAGES = [*sorted(DOCS.rglob("*.md")), *(ROOT / name for name in OTHERS)]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


class Block(NamedTuple):
    """A Python block: its page, the line of its first statement there, its code."""

    page: str
    line: int
    code: str

    def run(self, names=None):
        """Run it and return the names it knows then; errors have the page's file and line."""
        names = {"__name__": "shown"} if names is None else names
        exec(compile("\n" * (self.line - 1) + self.code, ROOT / self.page, "exec"), names)
        return names


def named(path):
    return path.relative_to(ROOT).as_posix()


def blocks_of(page):
    """Return the Python blocks of a page, in order."""
    text = (ROOT / page).read_text()
    return [
        Block(page, text[: found.start()].count("\n") + 2, found[1])
        for found in BLOCK.finditer(text)
    ]


def block(page, words):
    """Return the one block of a page that has these words."""
    (found,) = [block for block in blocks_of(page) if words in block.code]
    return found
