"""The study that equals a population that copies in all but copying, where its folder has one.

A population that copies is no set of independent trials: whom a trial copied decided what it was.
What copying gave is known where the same study ran without it: the same environment, space,
search, budget and seed. Both winners were chosen on the same fresh seeds, and ran on further ones
that chose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import StoreError
from ...store.conclusions import WithoutCopying
from ...store.journal import Journal
from ...store.leaderboard import leaderboard_of
from ...store.rows import Stream, StudyMeta
from ...store.study_folder import StudyFolder, look_inside
from ...studies.reader import plain, read_text
from .evaluated_in import apart, evaluated_in

__all__ = ["copies", "how_to_know", "without_copying"]

_FREE = frozenset(
    {
        "name", "early_terminate", "population", "executor", "checkpoint", "loggers", "log_every",
        "baselines",
    }
)  # fmt: skip
"""Sections that change no curve of a trial that copies nobody."""


def copies(study: Mapping[str, Any]) -> bool:
    """Return whether trials of a resolved study take over each other's states."""
    early = study["early_terminate"]
    return early is not None and bool(early.get("every"))


def how_to_know(name: str) -> str:
    """Return which study shows what copying gave, as a sentence."""
    return (
        "Whether copying helped is not known; to find out, run the same file with "
        f"early_terminate: null and name: {name}-alone."
    )


def without_copying(
    folder: Path, meta: StudyMeta, params: Mapping[str, Any]
) -> WithoutCopying | None:
    """Return the winner of the same study without copying; None where no finished one is there.

    Args:
        folder: of a population that copies; the other lies beside it.
        meta: of the population.
        params: of its winner, whose environment the other's must be.
    """
    asked = _data(meta.study_text)
    if not copies(asked) or meta.objectives:
        return None
    blocks = _blocks(meta.study_text)
    for name in look_inside(folder.parent).changed:
        path = folder.with_name(name)
        text = _text_of(path)
        if name == folder.name or text is None or _blocks(text) != blocks:
            continue
        found = _best_alone(path, meta, asked, evaluated_in(asked, params))
        if found is not None:
            return found
    return None


def _best_alone(
    path: Path, meta: StudyMeta, asked: Mapping[str, Any], world: Mapping[str, Any]
) -> WithoutCopying | None:
    """Return the winner of a study if it is the same one without copying, and finished."""
    try:
        with Journal(path) as journal, journal.at_one_commit():
            other, phase = journal.meta, journal.head().phase
            rows = journal.trials() if phase == "finished" else []
    except StoreError:  # one that is damaged is not known; `hpo list` says that it is
        return None
    study = _data(other.study_text)
    entries = leaderboard_of(other, rows)
    if study["early_terminate"] is not None or other.files != meta.files or not entries:
        return None
    if _compared(study) != _compared(asked) or entries[0].value_from != Stream.REPORT:
        return None
    first = next(row for row in rows if row.trial == entries[0].trial)
    if apart(world, evaluated_in(study, first.params)):
        return None
    feasible = entries[0].feasible
    return WithoutCopying(other.name, first.trial, first.by_report_seed, feasible)


def _compared(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same in both; when trials are evaluated changes no curve."""
    kept = {key: value for key, value in study.items() if key not in _FREE}
    kept["evaluation"] = {k: v for k, v in study["evaluation"].items() if k != "every"}
    return kept


def _blocks(text: str) -> dict[str, str]:
    """Return the text of each section that must be the same, without parsing hundreds of files."""
    found: dict[str, str] = {}
    key = ""
    for line in (line for line in text.splitlines() if not line.startswith("#")):
        if line[:1] not in (" ", ""):
            key = line.partition(":")[0]
        found[key] = f"{found.get(key, '')}{line}\n"
    return {k: v for k, v in found.items() if k not in _FREE and k != "evaluation"}


def _text_of(path: Path) -> str | None:
    try:
        return StudyFolder(path).resolved_file.read_text(encoding="utf-8")
    except (OSError, ValueError):  # begun in this moment, or damaged
        return None


def _data(text: str) -> Mapping[str, Any]:
    return plain(read_text(text, "study.resolved.yaml"))
