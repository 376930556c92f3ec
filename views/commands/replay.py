"""`hpo replay`: retrains a single trial, and compares every number with the recorded one."""

from __future__ import annotations

from argparse import Namespace
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ...errors import ConfigError, clause, counted
from ...search.analysis.replay import Replay, replay
from ...store.codec import finite_json
from ...store.statistics import mean
from ..arguments import path_or_none, study_of
from ..formatting import aligned, number, steps, unit_in
from ..output import note, print_answer
from ..trial_text import lineage_text
from .read_study import print_exported


def do_replay(args: Namespace) -> int:
    target = path_or_none(args.export)
    if target is not None and target.exists():
        raise ConfigError(f"{target} already exists; choose another folder with --export")
    folder = study_of(args)
    found = replay(folder, args.trial, Path(args.source), target, _say_compiling)
    print_answer(args.json, _replay_data(found, target), _replay_text(found, unit_in(folder.path)))
    if target is not None:
        print_exported(target, (folder.path / "study.resolved.yaml").read_text("utf-8"))
    return 0 if found.same else 1


def _say_compiling(words: str) -> AbstractContextManager[object]:
    note(f"compiling {words}")
    return nullcontext()


def _replay_data(found: Replay, target: Path | None) -> dict[str, Any]:
    exported_to = None
    if target is not None:
        exported_to = str(target)
    points = [
        {
            "env_steps": one.env_steps,
            "replicate": one.replicate,
            "trial": one.trial,
            "recorded": [*one.recorded],
            "replayed": [*one.replayed],
            "same": one.same,
        }
        for one in found.points
    ]
    return finite_json(
        {
            "study": found.study,
            "trial": found.trial,
            "same": found.same,
            "lineage": [part.as_json() for part in found.lineage],
            "evaluations": points,
            "curve_rows": found.curve_rows,
            "curve_same": found.curve_same,
            "left_out": [*found.left_out],
            "exported_to": exported_to,
        }
    )


def _replay_text(found: Replay, unit: str) -> str:
    rows = [
        [
            steps(point.env_steps),
            str(point.replicate),
            str(point.trial),
            number(mean(point.recorded)),
            number(mean(point.replayed)),
            "yes" if point.same else "no",
        ]
        for point in found.points
    ]
    header = (unit, "seed", "in trial", "recorded", "replayed", "equal")
    table = aligned(header, rows, (True, True, True, True, True, False))
    lineage = lineage_text([part.as_json() for part in found.lineage])
    head = f"trial {found.trial} of study {found.study}"
    return "\n\n".join([head, lineage, table, _replay_verdict(found)])


def _replay_verdict(found: Replay) -> str:
    curve = f"{found.curve_same} of {found.curve_rows} rows of the training curve"
    if found.same:
        without = "\nNot retrained (seeds that diverged or ended earlier): {}."
        lost = clause(without, ", ".join(map(str, found.left_out)))
        return (
            f"Bit for bit as recorded: {counted(len(found.points), 'evaluation')}, {curve}.{lost}"
        )
    other = sum(not point.same for point in found.points)
    apart = f"{other} of {counted(len(found.points), 'evaluation')} and "
    apart += f"{found.curve_rows - found.curve_same} of {found.curve_rows} curve rows differ"
    return f"{apart}. Results can differ if versions, devices or code changed since the study."
