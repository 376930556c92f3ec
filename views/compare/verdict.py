"""The verdict on the compared values, or a sentence that explains why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...search.analysis.verdict import apart
from ...store.comparison import WORDS, Comparison, compare
from ...store.mean_difference import FEWEST_PAIRS
from ...store.rows import Stream
from ...store.statistics import NO_INTERVAL
from ...store.study_verdict import copies_sentence
from ...store.verdict_text import upper_first
from ..formatting import SEED_KINDS, around, steps
from .sides import Side
from .values import ComparedValues


def compare_values(chosen: ComparedValues) -> Comparison:
    """Compare values; there is only a difference if these seeds allow no verdict.

    See `allows_verdict`.
    """
    values_a, values_b = chosen.values
    found = compare(
        values_a,
        values_b,
        chosen.goal,
        chosen.paired,
        chosen.earlier,
        bounds=chosen.bounds,
        interim=chosen.interim,
    )
    if allows_verdict(found, chosen):
        return found
    return replace(
        found,
        verdict="undecided",
        difference_interval=NO_INTERVAL,
        probability_interval=NO_INTERVAL,
        more_seeds=None,
    )


def allows_verdict(result: Comparison, chosen: ComparedValues) -> bool:
    """Return whether a test may decide; `refusal_reason` has the reasons against it.

    No test may decide on seeds that ranked trials or trained identically, on few pairs that were
    compared before, or for a leader that diverged more often.
    """
    if chosen.ranked or chosen.copied or was_compared_before(chosen):
        return False
    return not leader_lost_more(result, chosen)


def was_compared_before(chosen: ComparedValues) -> bool:
    """Return whether divergence left too few pairs for a paired test after an earlier look."""
    return bool(chosen.earlier) and not chosen.paired


def leader_lost_more(result: Comparison, chosen: ComparedValues) -> bool:
    """Return whether the side with the better mean diverged on more of the test seeds.

    Its mean excludes these seeds, so it is biased.
    """
    first, second = chosen.lost
    if result.difference >= 0.0:
        return first > second
    return second > first


@dataclass(frozen=True)
class Refusal:
    """A comparison without a verdict."""

    why: str
    # whether the values are of one kind, so that their difference is meaningful
    comparable: bool = True


def refusal_reason(
    result: Comparison, sides: Sequence[Side], chosen: ComparedValues
) -> Refusal | None:
    """Return the reason why there is no verdict, if any."""
    if differs := apart(sides[0].world, sides[1].world):
        why = f"they were evaluated in different environments ({differs})"
        return Refusal(why, comparable=False)
    weights = [
        0.0 if stream is Stream.REPORT else side.weight
        for side, stream in zip(sides, chosen.streams, strict=True)
    ]
    if weights[0] != weights[1]:
        first, second = (
            f"weight {weight:g} in the values of {side.name}"
            for weight, side in zip(weights, sides, strict=True)
        )
        return Refusal(f"training returns have {first} and {second}", comparable=False)
    if chosen.copied:
        alike = copies_sentence(" and ".join(chosen.copied), str(chosen.streams[0]))
        return Refusal(alike.removeprefix("No verdict: ").rstrip("."))
    if leader_lost_more(result, chosen):
        return Refusal(f"{lost_words(sides, chosen)}; {_lead_text(result, sides, chosen)}")
    if was_compared_before(chosen):
        why = (
            f"fewer than {FEWEST_PAIRS} seeds have values of both, and these were compared before"
        )
        return Refusal(f"{why}; {_lead_text(result, sides, chosen)}")
    if not chosen.ranked:
        return None
    return Refusal(_why_ranked(result, sides, chosen))


def lost_words(sides: Sequence[Side], chosen: ComparedValues) -> str:
    """Return on how many test seeds each side diverged; "" if on none."""
    if not any(chosen.lost):
        return ""
    a, b = (side.name for side in sides)
    first, second = (
        f"{lost or 'none'} of {ran}" for lost, ran in zip(chosen.lost, chosen.tested, strict=True)
    )
    return f"{a} diverged on {first} test seeds and {b} on {second}"


def _why_ranked(result: Comparison, sides: Sequence[Side], chosen: ComparedValues) -> str:
    what, which = "pick the trials", "these seeds"
    if sides[0].study == sides[1].study:
        what = "rank the trials"
    if Stream.REPORT in chosen.streams:
        which = "some of these seeds"
    return f"{_lead_text(result, sides, chosen)}, but {which} were also used to {what}"


def verdict_sentence(result: Comparison, sides: Sequence[Side], chosen: ComparedValues) -> str:
    """Return the verdict with its leader, lead and seeds."""
    a, b = (side.name for side in sides)
    seeds = _seeds_words(result, chosen)
    word = WORDS[result.verdict][:1].upper() + WORDS[result.verdict][1:]
    if result.equal:
        return f"{word}: {a} and {b} have the same value on each of {seeds}."
    if result.verdict in ("better", "worse"):
        ahead, behind, by = _leader_and_lead(result, sides)
        first = "T" + ahead[1:] if ahead.startswith("trial ") else ahead
        return f"{first} is better than {behind}: by {by} on {seeds}."
    if result.unless is not None:
        return _conditional_sentence(result, sides, chosen)
    return f"{word}: {_lead_text(result, sides, chosen)}."


def _conditional_sentence(
    result: Comparison, sides: Sequence[Side], chosen: ComparedValues
) -> str:
    """Return the verdict that only unseen outcomes prevent, with its condition."""
    if result.unless is None:
        return ""
    seen = replace(result, difference_interval=result.unless.interval)
    ahead, behind, by = _leader_and_lead(seen, sides)
    condition = f"unless 1 in {result.unless.one_in} seeds gives a new result"
    seeds = _seeds_words(result, chosen)
    return f"{upper_first(ahead)} is better than {behind} {condition}: by {by} on {seeds}."


def _lead_text(result: Comparison, sides: Sequence[Side], chosen: ComparedValues) -> str:
    a, b = (side.name for side in sides)
    seeds = _seeds_words(result, chosen)
    if result.difference == 0.0:
        return f"{a} and {b} have the same mean on {seeds}"
    ahead, behind, by = _leader_and_lead(result, sides)
    return f"{ahead} leads {behind} by {by} on {seeds}"


def _leader_and_lead(result: Comparison, sides: Sequence[Side]) -> tuple[str, str, str]:
    """Return the leader, the other side, and the lead."""
    a, b = (side.name for side in sides)
    ahead, behind, lead = a, b, result.difference_interval
    if result.difference < 0.0:
        ahead, behind, lead = b, a, lead.times(-1.0)
    return ahead, behind, around(abs(result.difference), lead)


def _seeds_words(result: Comparison, chosen: ComparedValues) -> str:
    kinds = {SEED_KINDS[stream] for stream in chosen.streams}
    kind, at = "", ""
    if len(kinds) == 1:
        kind = f"{kinds.pop()} "
    if chosen.at is not None:
        at = f" at {steps(chosen.at)} {chosen.unit}, the last point both reached"
    if result.paired:
        return f"{result.seeds[0]} shared {kind}seed{'s' * (result.seeds[0] != 1)}{at}"
    return f"{result.seeds[0]} and {result.seeds[1]} {kind}seeds, not paired{at}"
