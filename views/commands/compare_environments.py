"""`hpo compare` over several environments: each of them, all together, and one left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...search.after.leave_one_out import leave_one_out
from ...store.codec import finite_json
from ...store.journal import Journal
from ...store.score_tables import BySeed, beside, on_each, profiles
from ...store.study_folder import StudyFolder
from ..documents import print_answer
from ..environment_text import AGGREGATES_NOTE, beside_lines, left_out_text

__all__ = ["environment_part", "print_left_out"]


def environment_part(
    names: Sequence[str], ours: BySeed, theirs: BySeed, paired: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return what two sides show on several environments, as plain data and as lines.

    Args:
        names: of the environments; none where there is one alone.
        ours: scores of A by seed.
        theirs: of B.
        paired: replicate i of both is the same seed; common ones are compared then.
    """
    if not names or not ours or not theirs:
        return {}, []
    sides = (ours, theirs)
    if paired:
        common = ours.keys() & theirs.keys()
        sides = ({n: ours[n] for n in sorted(common)}, {n: theirs[n] for n in sorted(common)})
    found = beside(*sides, paired=paired)
    told = [on_each(side) for side in sides]
    data = {
        "names": list(names),
        **found.as_json(),
        "together": [{over: asdict(one) for over, one in side.together.items()} for side in told],
        "scores": [[asdict(one) for one in side.each] for side in told],
        "profiles": [asdict(one) for one in profiles(sides)],
    }
    lines = ["", *beside_lines(names, sides, found), AGGREGATES_NOTE, ""]
    return {"environments": finite_json(data)}, lines


def print_left_out(folder: StudyFolder, as_json: bool) -> None:
    """Print what choices without one environment get there.

    Raises:
        ConfigError: the study is over one environment, or has several objectives.
        StoreError: no trial has finished its run.
    """
    with Journal(folder.path) as journal, journal.at_one_commit():
        found = leave_one_out(journal)
    print_answer(as_json, finite_json(found.as_json()), left_out_text(found))
