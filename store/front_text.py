"""Sentences that compare a front with the default."""

from __future__ import annotations

import math

from ..errors import clause, counted
from .front_verdict import Apart, FrontConclusion


def front_sentences(found: FrontConclusion) -> list[str]:
    """Return the verdict, one sentence per objective, and the basis of the verdict."""
    first, why = _verdict_and_reason(found)
    said = [f"{first}{clause(': {}', why)}."]
    if found.unless is not None:
        condition = f"unless 1 in {found.unless} seeds gives a new result"
        said = [f"{first} {condition}.", f"{why[:1].upper()}{why[1:]}."]
    return [*said, *map(_objective_sentence, found.objectives), _basis_sentence(found)]


def _verdict_and_reason(found: FrontConclusion) -> tuple[str, str]:
    """Return the verdict and its reason, without full stops; the reason may be ""."""
    seeds = counted(found.seeds, "new seed")
    match found.of_seen or found.verdict:
        case "behind":
            reason = f"trial {found.trial} is better in every objective"
            return "The front dominates the default", reason
        case "on_front":
            return "The default is on the front", "every other trial is worse in some objective"
        case "open":
            text = "No significant difference between the default and the front"
            return f"{text} on {seeds}", ""
        case "undecided":
            few = "is" if found.seeds == 1 else "are"
            return f"Undecided: {seeds} {few} too few to compare the default with the front", ""


def _basis_sentence(found: FrontConclusion) -> str:
    if found.verdict == "undecided":
        return f"confirm: {{choose: {found.fewest}}} would be enough."
    seeds, count = counted(found.seeds, "new seed"), counted(found.compared, "trial")
    first = f"The default is compared with {count} seed by seed on {seeds}"
    return f"{first}; the verdict is wrong in at most 5 % of studies."


def _objective_sentence(apart: Apart) -> str:
    if not math.isfinite(apart.difference):
        return f"On at least one seed, {apart.objective} is not finite."
    trial_mean, default_mean = map(_number_text, apart.means)
    around, by = _interval_text(apart), _number_text(apart.difference)
    if apart.difference > 0:
        values = f"trial {apart.trial} has {trial_mean} and the default {default_mean}"
        return f"In {apart.objective} {values}, a lead of {by}{around}."
    values = f"trial {apart.trial} has {trial_mean}, the default {default_mean}"
    said = f"In {apart.objective} no trial is ahead: {values}"
    if not around:
        return f"{said}."
    return f"{said}, a difference of {by}{around}."


def _interval_text(apart: Apart) -> str:
    if apart.low is None or apart.high is None or apart.low == apart.high:
        return ""
    return f" [{_number_text(apart.low)}, {_number_text(apart.high)}]"


def _number_text(value: float) -> str:
    """Format a number with four digits, or as an integer from 10,000 on (such as env steps).

    >>> _number_text(0.123456), _number_text(40960.0), _number_text(12345.6)
    ('0.1235', '40,960', '12,346')
    """
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:z.4g}"
