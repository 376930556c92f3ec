"""`hpo importance`: which knobs mattered most."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...store.study_folder import find_study
from ..documents import print_json
from ..formatting import counted, steps
from ..terminal.console import in_columns, knows_blocks
from ..visible import echo, note

if TYPE_CHECKING:
    from ...search.after.decided import Answer
    from ...search.after.looking_back import Importance

__all__ = ["do_importance"]

_BAR = 30


def do_importance(args: Namespace) -> int:
    """Print the importance of knobs, at one point of the runs or over all of them.

    Raises:
        ConfigError: too few trials, or no such point.
    """
    from ...search.after.decided import answer_at
    from ...search.after.looking_back import importance_at, importance_over_progress, read_points

    if args.over_progress and args.at is not None:
        raise ConfigError("--over-progress covers every point of the runs; leave --at out")
    points = read_points(find_study(args.study, Path(args.out), note).path)
    method = args.method or "ped-anova"
    if args.over_progress:
        found = importance_over_progress(points, args.all, method)
    else:
        found = [importance_at(points, args.at, args.all, method)]
    told = [(item, answer_at(points, item)) for item in found]
    if args.json:
        print_json([{**_data(item), "answer": answer.as_json()} for item, answer in told])
    else:
        for item, answer in told:
            text = f"{_answer(answer)}\n{_text(item, knows_blocks(sys.stdout))}"
            echo(in_columns(text, sys.stdout, 2))
        left_out = sorted(set(points.values) - {item.at for item in found})
        if args.over_progress and left_out:
            some = ", ".join(map(steps, left_out))
            words = (
                f"left out, where fewer than ten of these trials have a value: {some} env steps"
            )
            echo(in_columns(words, sys.stdout, 2))
    return 0


def _answer(answer: Answer) -> str:
    """Return which knobs decided, and a line for every knob."""
    width = max((len(knob.name) for knob in answer.decided.knobs), default=4)
    lines = [*answer.sentences, f"  {'knob'.ljust(width)}  explains  95 % interval   floor"]
    for knob in answer.decided.knobs:
        if knob.floor >= 1.0:
            lines.append(f"  {knob.name.ljust(width)}  too few trials have it")
            continue
        spread = f"[{knob.low:.1%}, {knob.high:.1%}]"
        mark = "  decided" if knob.decided else ""
        lines.append(
            f"  {knob.name.ljust(width)}  {knob.share:8.1%}  {spread:14}  {knob.floor:5.1%}{mark}"
        )
    return "\n".join(lines)


def _data(item: Importance) -> dict[str, object]:
    return {
        "at": item.at,
        "trials": item.trials,
        "random_only": item.random_only,
        "random_trials": item.random_trials,
        "method": item.method,
        "shares": dict(item.shares),
    }


def _text(item: Importance, blocks: bool) -> str:
    which = ", none proposed by a model"
    if item.modelled:
        which = ", a model's proposals included (biased towards where it searched)"
    lines = [
        f"{item.method} at {steps(item.at)} env steps, {counted(item.trials, 'trial')}{which}"
    ]
    if item.caution:
        lines.append(f"  {item.caution}")
    width = max(map(len, item.shares), default=0)
    most = max(item.shares.values(), default=0.0)
    for name, share in item.shares.items():
        bar = ("█" if blocks else "#") * round(_BAR * share / most) if most > 0 else ""
        lines.append(f"  {name.ljust(width)}  {share:6.1%}  {bar}".rstrip())
    return "\n".join(lines)
