"""Hooks of the docs site, so that links to files outside docs/ work as in the repository.

A file outside docs/ that a page links to (the changelog, a study) is added to the site under
`outside/`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = "outside"
LINK = re.compile(r"(\]\(|src=\")([^)\s#\"]+)((?:#[^)\s\"]*)?[)\"])")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.S | re.M)


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside docs/ that pages link to, and those that these files link to."""
    waiting = [file.src_uri for file in files if file.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        if not page.endswith(".md"):
            continue
        for target in outside_of(page):
            uri = f"{OUTSIDE}/{target}"
            if files.get_file_from_path(uri) is None:
                files.append(_added(config, uri, ROOT / target))
                waiting.append(uri)
    return files


def _added(config: Any, uri: str, path: Path) -> File:
    inclusion = InclusionLevel.NOT_IN_NAV
    return File.generated(config, uri, abs_src_path=str(path), inclusion=inclusion)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change the links of a page to the locations of their targets in the site."""
    uri = page.file.src_uri
    if not uri.endswith(".md"):
        return markdown

    def moved(target: str) -> str:
        there = _in_site(_in_repository(uri, target))
        return posixpath.relpath(there, posixpath.dirname(uri) or ".")

    return _linked(markdown, moved)


def outside_of(uri: str) -> list[str]:
    """Return the files outside docs/ that a page links to, as paths in the repository."""
    found: list[str] = []

    def seen(target: str) -> str:
        path = _in_repository(uri, target)
        if not path.startswith("docs/") and (ROOT / path).is_file():
            found.append(path)
        return target

    _linked((ROOT / _of_repository(uri)).read_text(encoding="utf-8"), seen)
    return found


def _linked(text: str, change: Callable[[str], str]) -> str:
    """Change the relative targets of links, except links in code."""
    pieces, end = [], 0
    for code in CODE.finditer(text):
        pieces += [LINK.sub(_one(change), text[end : code.start()]), code[0]]
        end = code.end()
    return "".join((*pieces, LINK.sub(_one(change), text[end:])))


def _one(change: Callable[[str], str]) -> Callable[[re.Match[str]], str]:
    def changed(match: re.Match[str]) -> str:
        start, target, rest = match.groups()
        return (
            match[0]
            if "://" in target or target.startswith("mailto:")
            else (start + change(target) + rest)
        )

    return changed


def _of_repository(uri: str) -> str:
    return uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(OUTSIDE) else f"docs/{uri}"


def _in_repository(uri: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(_of_repository(uri)), target))


def _in_site(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{OUTSIDE}/{path}"
