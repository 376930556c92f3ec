"""The sentences of a study's verdict, for the terminal, the report, JSON and Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from ..errors import counted
from .against import Against, Verdict
from .comparison import WORDS
from .constraint_tests import ConstraintTest, Limit
from .front_text import front_sentences
from .statistics import Interval
from .verdict import Conclusion

_COLUMNS = 79
THE_DEFAULT = "the default"


def as_json(conclusion: Conclusion) -> dict[str, Any]:
    data = asdict(conclusion)
    del data["said"]
    text = {"sentences": sentences(conclusion), "details": details(conclusion)}
    advice = conclusion.against.advice
    if conclusion.front is not None:
        advice = ""
    return {"verdict": conclusion.verdict, "advice": advice, **text, **data}


def details(conclusion: Conclusion) -> list[str]:
    winner = conclusion.winner
    if winner is None or conclusion.front is not None or conclusion.lone:
        return []
    found: list[str] = []
    for against in filter(None, (conclusion.copying, conclusion.against)):
        if against.means is not None:
            own, other = map(_number_text, against.means)
            found.append(f"Means: {winner} {own}, {against.rival} {other}.")
        if against.verdict in ("better", "worse") or against.unless is not None:
            found += _probability_sentence(winner, against)
    if conclusion.chosen is not None and conclusion.ceiling is None:
        of = f"Of the {conclusion.chosen.trials} finalists,"
        found.append(f"{of} {winner} {conclusion.chosen.words}.")
    return found


def _lone_trial_sentences(conclusion: Conclusion) -> list[str]:
    """Return the sentences that compare the only trial with baselines, better ones first."""
    rule = conclusion.better_rule
    others = [one for one in conclusion.baselines if one.verdict != "nothing"]
    others.sort(key=lambda one: one is not rule)
    each = [_of_one(conclusion, one) for one in others]
    if not each:
        return [f"There is nothing to compare {conclusion.winner} with."]
    return [*each[0], *(more[0] for more in each[1:])]


def sentences(conclusion: Conclusion) -> list[str]:
    if conclusion.front is not None:
        return [*front_sentences(conclusion.front), *conclusion.why]
    if conclusion.winner is None:
        none = "No trial has a value on test seeds, so there is no verdict."
        return [*conclusion.why] or [none]
    least: list[str] = []
    if conclusion.violates:
        least = [violation_sentence(conclusion.winner)]
    rule = conclusion.better_rule
    said = list[str]()
    if rule is not None:
        said += _of_one(conclusion, rule)[:1]
    if conclusion.copying is not None:
        said += _of_one(conclusion, conclusion.copying)
        said.append(
            "Without copying and with otherwise identical settings, the best trial is "
            f"{conclusion.alone}."
        )
    if conclusion.lone:
        return [
            *_lone_trial_sentences(conclusion),
            *least,
            "Only one trial ran, so there is no selection bias.",
        ]
    said += _of_one(conclusion, conclusion.against)
    if conclusion.against.verdict != "ceiling":
        said += _same_value_sentence(conclusion)
    for against in conclusion.baselines:
        if against is rule:
            continue  # it was the first
        ahead = against.verdict in ("undecided", "no_difference")  # the second names the leader
        said += _of_one(conclusion, against)[: 1 + ahead]
    said += least
    if conclusion.failed:
        names = " and ".join(conclusion.failed)
        said.append(f"Failed runs of {names} on test seeds count as diverged.")
    if conclusion.tells:
        said.append(conclusion.tells)
    return said


def violation_sentence(winner: str) -> str:
    least = f"{winner} has the smallest violation"
    return f"No trial satisfies the constraints on the selection seeds; {least}."


def _of_one(conclusion: Conclusion, against: Against) -> list[str]:
    """Return sentences about one opponent, including the constraints on test seeds."""
    winner = conclusion.winner or ""
    if against.limits is None:
        return _by_value(conclusion, against)
    ruled = against.verdict != against.by_value
    alone = replace(against, verdict=against.by_value or against.verdict)
    said = _by_value(conclusion, alone)
    if ruled:
        said = [
            _constraint_verdict(winner, against),
            f"By value: {_lower_first(said[0])}",
            *said[1:],
        ]
    elif open_sentence := _open_constraints(winner, against):
        said = [*said, open_sentence]
    return [*said, *_of_limits(winner, against)]


def _lower_first(text: str) -> str:
    """Convert the first letter of a sentence to lower case."""
    return text[:1].lower() + text[1:]


def _constraint_verdict(winner: str, against: Against) -> str:
    """Return a sentence with the verdict on constraints, and the side with the better value."""
    rival, keeps = against.rival, against.limits is not None and against.limits.rival.state
    is_worse = against.by_value == "worse"
    if against.verdict == "feasible" and is_worse:
        first = f"{upper_first(winner)} satisfies the constraints"
        return f"{first}; {rival} violates them but is better."
    if against.verdict == "feasible":
        return f"{upper_first(winner)} satisfies the constraints, which {rival} violates."
    if against.verdict == "infeasible" and keeps == "kept":
        return f"{upper_first(winner)} violates the constraints, which {rival} satisfies."
    if against.verdict == "infeasible" and keeps == "violated":
        return f"{upper_first(winner)} and {rival} both violate the constraints."
    if against.verdict == "infeasible":
        return f"{upper_first(winner)} violates the constraints."
    return f"Undecided: {rival} is better but violates the constraints."


def _open_constraints(winner: str, against: Against) -> str:
    """Return a sentence on the side whose constraints the test seeds leave undecided, or ""."""
    limits = against.limits
    if limits is None:
        return ""
    sides = ((winner, limits.winner.state), (against.rival, limits.rival.state))
    unknown = [name for name, state in sides if state == "unmeasured"]
    if unknown:
        return f"The constraints of {' and '.join(unknown)} were not measured on test seeds."
    not_sure = [name for name, state in sides if state == "open"]
    if len(not_sure) == 2:
        return f"It is undecided whether {winner} and {against.rival} satisfy the constraints."
    if not_sure and limits.rival.state == "violated":
        violates = f"{upper_first(against.rival)} violates the constraints"
        return f"{violates}; it is unclear whether {winner} satisfies them."
    if not_sure:
        return f"It is undecided whether {not_sure[0]} satisfies the constraints."
    if limits.rival.state == "violated":
        return f"{upper_first(against.rival)} violates the constraints."
    return ""


def _of_limits(winner: str, against: Against) -> list[str]:
    """Return the constrained values of both sides, one sentence per constraint."""
    if against.limits is None:
        return []
    both = (against.limits.winner, against.limits.rival)
    pairs = zip(both[0].tests, both[1].tests, strict=True)
    said: list[str] = []
    for own, other in pairs:
        shown = [
            f"{name} {_limited_value(test)}"
            for name, test in ((winner, own), (against.rival, other))
            if test.value is not None
        ]
        if shown:
            allowed = _allowed_range(own.limit)
            said.append(f"{own.limit.metric} must be {allowed}: {', '.join(shown)}.")
    return said


def _limited_value(test: ConstraintTest) -> str:
    return f"{_number_text(test.value)}{_ends_text(test.interval)}"


def _allowed_range(limit: Limit) -> str:
    if limit.low is None:
        return f"at most {_number_text(limit.high)}"
    if limit.high is None:
        return f"at least {_number_text(limit.low)}"
    return f"{_number_text(limit.low)} to {_number_text(limit.high)}"


def _by_value(conclusion: Conclusion, against: Against) -> list[str]:
    """Return the sentences about one opponent as if there were no constraints."""
    winner, rival = conclusion.winner or "", against.rival
    said = _WORDS_BY_VALUE[against.verdict](conclusion, against)
    if against.verdict in _COMPLETE or against.is_lost:
        return said
    said += _own_diverged(winner, against)
    if against.diverged:
        said.append(_exclusion_sentence(rival, against.diverged))
    return said


def _seed_count(conclusion: Conclusion, against: Against) -> str:
    return counted(against.seeds, "seed" if conclusion.lone else "test seed")


def _default_won(conclusion: Conclusion, against: Against) -> list[str]:
    where = "on new seeds"
    others = "the other trial was not better"
    if conclusion.of_search:
        where = "in the search"
    if conclusion.beaten > 1:
        others = f"none of {conclusion.beaten} other trials was better"
    said = f"Keep {against.rival}: {others} {where}."
    return [said, *_own_diverged(conclusion.winner or "", against)]


def _nothing_to_compare(conclusion: Conclusion, against: Against) -> list[str]:
    said = f"There is nothing to compare {conclusion.winner or ''} with."
    if not against.why:
        return [said]
    return [said, against.why]


def _diverged_sentences(conclusion: Conclusion, against: Against) -> list[str]:
    seeds, winner = _seed_count(conclusion, against), conclusion.winner or ""
    return [
        f"{upper_first(winner)} diverged on {against.own_diverged} of {seeds}.",
        f"{upper_first(against.rival)} diverged on {against.diverged or 'none'} of them.",
        *_of_values("On seeds where both have a value,", _difference_text(against)),
    ]


def _ceiling_sentences(conclusion: Conclusion, against: Against) -> list[str]:
    seeds = _seed_count(conclusion, against)
    said = f"{upper_first(conclusion.winner or '')} and {against.rival} both reach the ceiling"
    numbers = f": {_number_text(conclusion.ceiling)} on {seeds}"
    return [*_fit_on_line(said, numbers, seeds), *_same_value_sentence(conclusion)]


def _better_sentences(conclusion: Conclusion, against: Against) -> list[str]:
    seeds = _seed_count(conclusion, against)
    first = f"{upper_first(conclusion.winner or '')} is better than {against.rival}"
    if against.is_lost:
        return _fit_on_line(f"{first}, which diverged", f" on {seeds}", seeds)
    return _fit_on_line(first, f": by {_difference_text(against)}", seeds)


def _worse_sentences(conclusion: Conclusion, against: Against) -> list[str]:
    first = f"{upper_first(against.rival)} is better than {conclusion.winner or ''}"
    return _fit_on_line(
        first, f": by {_difference_text(against)}", _seed_count(conclusion, against)
    )


def _not_significant(conclusion: Conclusion, against: Against) -> list[str]:
    return _no_difference(conclusion, against, _seed_count(conclusion, against))


def _open_question(conclusion: Conclusion, against: Against) -> list[str]:
    seeds = _seed_count(conclusion, against)
    said = _unless_sentences(conclusion.winner or "", against, seeds)
    said = said or _undecided_sentences(conclusion, against, seeds)
    if against.more_seeds:
        more = counted(against.more_seeds, "more test seed")
        then = "allow a verdict" if against.interval.low is None else "decide"
        said.append(f"{more} would {then}.")
    return said


_WORDS_BY_VALUE: dict[Verdict, Callable[[Conclusion, Against], list[str]]] = {
    "better": _better_sentences,
    "worse": _worse_sentences,
    "no_difference": _not_significant,
    "undecided": _open_question,
    "ceiling": _ceiling_sentences,
    "default": _default_won,
    "diverged": _diverged_sentences,
    "nothing": _nothing_to_compare,
    "feasible": _nothing_to_compare,  # these two are not verdicts by value
    "infeasible": _nothing_to_compare,
}
_COMPLETE = ("default", "nothing", "feasible", "infeasible", "diverged", "ceiling")
"""Verdicts whose wording already counts diverged seeds, or never needs to."""


def _lead_sentences(winner: str, against: Against, seeds: str) -> list[str]:
    rival = against.rival
    if against.difference is None:
        return []
    if against.difference == 0.0:
        return [f"{winner} and {rival} have the same mean on {seeds}."]
    if against.difference > 0:
        ahead, behind, sign, wins = winner, rival, 1.0, against.wins
    else:
        ahead, behind, sign = rival, winner, -1.0
        wins = against.pairs - against.wins - against.ties
    if 2 * against.ties >= against.pairs and wins + against.ties == against.pairs:
        mean = _number_text(abs(against.difference))  # few seeds differ: give their number
        return [
            f"{ahead} is ahead on {wins} of {seeds} and tied on {against.ties}; mean lead {mean}."
        ]
    lead = f"{_number_text(abs(against.difference))}{_interval_text(against, sign)}"
    return [f"{ahead} leads {behind} by {lead} on {seeds}."]


def _interval_text(against: Against, sign: float) -> str:
    return _ends_text(against.interval.times(sign))


def _ends_text(around: Interval) -> str:
    if around.low is None or around.high is None:
        return ""
    return f" [{_number_text(around.low)}, {_number_text(around.high)}]"


def _keeps_default(conclusion: Conclusion, against: Against) -> bool:
    """Return whether to keep the default, because the test is undecided without a clear lead."""
    is_default = against is conclusion.against and against.rival == THE_DEFAULT
    return is_default and not conclusion.lone and against.advice == "keep"


def _no_difference(conclusion: Conclusion, against: Against, seeds: str) -> list[str]:
    """Return sentences that report no significant difference, and name a clear leader if any."""
    winner, rival, word = conclusion.winner or "", against.rival, WORDS[against.verdict]
    ahead = [upper_first(text) for text in _lead_sentences(winner, against, seeds)]
    if _keeps_default(conclusion, against):
        return [f"Keep {rival}: {word} from {winner}.", *ahead]
    if against is conclusion.against and against.advice == "take" and ahead:
        said = f"Not significant: {_lower_first(ahead[0])}"
        if len(said) < _COLUMNS:
            return [said]
        return [f"{upper_first(winner)} leads {rival}, but not significantly.", *ahead]
    said = f"{upper_first(word)} between {winner} and {rival}."
    if len(said) >= _COLUMNS:
        said = f"{upper_first(word)} from {rival}."
    return [said, *ahead]


def _undecided_sentences(conclusion: Conclusion, against: Against, seeds: str) -> list[str]:
    """Return sentences for an undecided test; without a clear lead, they advise the default."""
    winner, rival = conclusion.winner or "", against.rival
    ahead = _lead_sentences(winner, against, seeds)
    if _keeps_default(conclusion, against):
        it = [text.replace(f" {rival}", " it").replace(f"{rival} ", "it ", 1) for text in ahead]
        said = " ".join([f"Keep {rival}:", *it])
        first = f"Keep {rival}: {winner} has no clear lead."
    else:
        said = " ".join([f"{upper_first(WORDS[against.verdict])}:", *ahead])
        first = f"{upper_first(WORDS[against.verdict])} between {winner} and {rival}."
    if ahead and len(said) < _COLUMNS:
        return [said]
    return [first, *map(upper_first, ahead)]


def _unless_sentences(winner: str, against: Against, seeds: str) -> list[str]:
    """Return sentences that say which side is better if unseen outcomes are rare; or []."""
    found, difference = against.unless, against.difference
    if found is None or difference is None:
        return []
    ahead, behind, sign = winner, against.rival, 1.0
    if difference < 0.0:
        ahead, behind, sign = behind, ahead, -1.0
    on_these = replace(against, interval=found.interval)
    by = f"{_number_text(abs(difference))}{_interval_text(on_these, sign)}"
    first = f"{upper_first(ahead)} is better than {behind}"
    said = [f"{first} unless 1 in {found.one_in} seeds gives a new result."]
    if len(said[0]) >= _COLUMNS:
        condition = f"fewer than 1 in {found.one_in} seeds give a new result"
        said = [f"{first} under one condition.", f"The condition: {condition}."]
    return [*said, f"The difference is {by} on {seeds}."]


def _own_diverged(winner: str, against: Against) -> list[str]:
    count = against.own_diverged
    if not count:
        return []
    return [_exclusion_sentence(winner, count)]


def _exclusion_sentence(who: str, count: int) -> str:
    return f"The means exclude {counted(count, 'seed')}, on which {who} diverged."


def _of_values(where: str, numbers: str) -> list[str]:
    if not numbers:
        return []
    return [f"{where} the difference is {numbers}."]


def _fit_on_line(first: str, numbers: str, seeds: str) -> list[str]:
    """Return a sentence with its numbers, or two sentences if it does not fit on one line."""
    where = ""
    if numbers and seeds not in numbers + first:
        where = f" on {seeds}"
    if len(first + numbers + where) < _COLUMNS:
        return [f"{first}{numbers}{where}."]
    return [f"{first}.", f"{upper_first(numbers.lstrip(': '))}{where}."]


def _difference_text(against: Against) -> str:
    if against.difference is None:
        return ""
    sign, plus = 1.0, ""
    if against.verdict == "worse":
        sign = -1.0
    if against.verdict in ("no_difference", "diverged"):
        plus = "+"
    return f"{_number_text(sign * against.difference, plus)}{_interval_text(against, sign)}"


def _probability_sentence(winner: str, against: Against) -> list[str]:
    found = against.leader_probability
    if found is None:
        return []
    likely, spread = found
    ahead = winner
    if against.trails:
        ahead = against.rival
    chance = f"{likely:.2f} [{spread.low:.2f}, {spread.high:.2f}]"
    return [f"On a new seed {ahead} is better with probability {chance}."]


def _same_value_sentence(conclusion: Conclusion) -> list[str]:
    top, how = conclusion.ceiling, "fewer env_steps may"
    if top is None:  # it may be a floor, or all started at the ceiling
        top, how = conclusion.alike, "a different run length, or a different task, may"
    if top is None or not conclusion.sharing:
        return []
    who = f"{conclusion.sharing} other trials also have the value"
    if conclusion.sharing == 1:
        who = "1 other trial also has the value"
    return [f"{who} {_number_text(top)}: {how} separate them."]


def _number_text(value: float | None, sign: str = "") -> str:
    if value is None:
        return "none"
    if abs(value) >= 1000:
        return f"{value:{sign}.0f}"
    return f"{value:{sign}z.4g}"


def upper_first(text: str) -> str:
    """Capitalise a sentence, except if it starts with a name such as `ksp_ff`."""
    if "_" in text.split(" ", 1)[0]:
        return text
    return text[:1].upper() + text[1:]
