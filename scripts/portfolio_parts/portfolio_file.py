"""The file `portfolio.yaml`: the learnt configurations, and all data needed to relearn them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hpo.errors import StoreError
from hpo.files import atomic_files

from .learn import SEED, SPLITS
from .sources import Source

HEAD = """\
# Configurations to begin a search with, the most useful first; trial 0 is the default.
# Learnt by `scripts/portfolio learn` from the tables below and by nothing else. Do not edit.
"""


def document(sources: Sequence[Source], rows: Sequence[int]) -> dict[str, Any]:
    """Return the contents; `digest` is the sha256 of only the configurations."""
    places = [dict(sources[0].params[row]) for row in rows[1:]]
    return {
        "digest": digest_of_places(places),
        "recipe": {"splits": SPLITS, "seed": SEED, "configurations": len(sources[0].params)},
        "sources": {source.name: source.digest for source in sources},
        "rows": list(rows[1:]),
        "places": places,
    }


def digest_of_places(places: Sequence[Mapping[str, Any]]) -> str:
    text = json.dumps(list(places), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write(path: Path, content: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(dict(content), sort_keys=False, width=99)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.write_text(path, HEAD + text)


def read(path: Path) -> dict[str, Any]:
    """Read the file.

    Raises:
        StoreError: its configurations do not match its digest.
    """
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if digest_of_places(content["places"]) != content["digest"]:
        raise StoreError(f"{path} was edited: its places have another digest; learn it again")
    return content
