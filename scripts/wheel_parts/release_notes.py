"""Release notes: one section of CHANGELOG.md, as Markdown for a release page."""

from __future__ import annotations

import re

UNRELEASED = "Unreleased"


def release_notes(changelog: str, version: str) -> str:
    """Return the section for a version, or `Unreleased` if the version has none yet.

    Args:
        changelog: text in the format of Keep a Changelog.
        version: such as `0.1.0`.

    Raises:
        ValueError: neither section exists, or the section is empty.
    """
    parts = re.split(r"^## \[([^\]]+)\].*$", changelog, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    body = sections.get(version, sections.get(UNRELEASED, "")).strip()
    if not body:
        raise ValueError(f"CHANGELOG.md has no section [{version}] and none [{UNRELEASED}]")
    return f"# hpo {version}\n\n{_without_folders(body)}\n"


def _without_folders(text: str) -> str:
    """Turn links to files in the repository into text: a release page has no such files."""
    return re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]+\)", r"\1", text)
