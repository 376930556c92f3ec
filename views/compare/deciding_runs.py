"""The runs needed to decide an undecided comparison, or to pair its two sides by seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import counted
from ...search.analysis.verdict import conclusion_of
from ...store.comparison import Comparison
from ...store.journal import Journal
from ...store.leaderboard import leaderboard_of
from ...store.mean_difference import FEWEST_PAIRS
from ...store.rows import Stream
from ...store.statistics import constant
from ...store.study_folder import trials_seen
from ..formatting import number
from ..leaderboard_text import deciding_command, seeds_to_propose, target
from ..time_spent import confirm_command, confirm_cost
from .sides import Side, seed_counts_of_both, winner_first
from .values import ComparedValues
from .verdict import leader_lost_more


def deciding_lines(result: Comparison, sides: Sequence[Side], chosen: ComparedValues) -> list[str]:
    """Return lines with the command that leads to a verdict; none if there already is one."""
    is_open = chosen.ranked or result.verdict == "undecided"
    if not chosen.ranked and result.unless is not None and not result.more_seeds:
        return []  # no affordable number of seeds excludes unseen outcomes
    if chosen.copied or not is_open or leader_lost_more(result, chosen):
        return []
    which = ""
    if sides[0].study == sides[1].study:
        which = target(Path(sides[0].study))
    return _what_to_run(result, sides, chosen, which)


def _what_to_run(
    result: Comparison, sides: Sequence[Side], chosen: ComparedValues, which: str
) -> list[str]:
    limit = _limit_note(chosen)
    if sides[0].study != sides[1].study:
        return [*limit, *_what_to_run_for_studies(result, sides, chosen, bool(limit))]
    command, cost, ended = _deciding_command(result, sides, chosen, which)
    first = "Once the study has finished, train both"
    if ended:
        first = "To decide, train both"
    return [*limit, "", f"{first} on test seeds ({cost}):", f"  {command}"]


def _limit_note(chosen: ComparedValues) -> list[str]:
    """Return lines about the environment's limit if every value equals that limit."""
    top, bounds = chosen.values[0][0], chosen.bounds
    alike = constant([*chosen.values[0], *chosen.values[1]])
    if not alike or top not in (bounds.low, bounds.high):
        return []
    return ["", f"Both reach {number(top)}, the environment's limit; other seeds may differ."]


def _deciding_command(
    result: Comparison, sides: Sequence[Side], chosen: ComparedValues, which: str
) -> tuple[str, str, bool]:
    """Return the command that leads to a verdict, its cost, and whether the study has finished.

    For the winner and the default, it is the command printed by `hpo run` and `hpo top`.
    """
    folder = Path(sides[0].study)
    with Journal(folder) as journal, journal.at_one_commit():
        ended = journal.head().phase == "finished"
        entries = leaderboard_of(journal.meta, trials_seen(journal))
        conclusion = conclusion_of(journal, entries=entries)
    winner, default = winner_first(*sides)
    if winner.wins and default.default:
        found = deciding_command(conclusion, entries, folder)
        if found is not None:
            return *found, ended
    tested = 0
    if chosen.streams[0] is Stream.REPORT and result.paired:
        tested = result.seeds[0]
    wanted = seeds_to_propose(tested, result.more_seeds or 0)
    trials = [side.trial for side in sides]
    command = confirm_command(trials, wanted, which)
    return command, confirm_cost(folder, trials, wanted), ended


def _what_to_run_for_studies(
    result: Comparison, sides: Sequence[Side], chosen: ComparedValues, is_limit: bool
) -> list[str]:
    more = result.more_seeds or 0
    if not chosen.ranked:
        if is_limit or not more or set(chosen.streams) != {Stream.REPORT}:
            return []
        return ["", f"About {counted(more, 'more test seed')} per side would decide."]
    if sides[0].seed == sides[1].seed:  # `why_unpaired` has named the commands
        return []
    return ["", "To decide, run both on test seeds:", *_test_commands(sides)]


def _test_commands(sides: Sequence[Side]) -> list[str]:
    """Return the commands that run each side on as many test seeds as a verdict needs."""
    tested = [len(side.values.get(Stream.REPORT, ())) for side in sides]
    wanted = max(*tested, FEWEST_PAIRS)
    if not any(tested):
        wanted = max(wanted, seeds_to_propose(0, 0))
    lack = [side for side, known in zip(sides, tested, strict=True) if known < wanted]
    return [f"  {confirm_command([one.trial], wanted, target(Path(one.study)))}" for one in lack]


def why_unpaired(a: Side, b: Side) -> str:
    """Return why the values are not paired, and how to pair them."""
    if a.seed != b.seed:
        text = f"{a.name} ran with `seed: {a.seed}`, {b.name} with `seed: {b.seed}`. To pair them,"
        return f"{text} run {b.name}'s file with --set seed={a.seed} --name {b.name}-seed{a.seed}."
    counts = seed_counts_of_both(a, b)
    commands = _test_commands((a, b))
    if a.study == b.study or not commands:
        return f"{counts}; not all of these are shared."
    return "\n".join([f"{counts}. To pair them on test seeds:", *commands])
