"""Sentences about a study for papers; each can be quoted on its own.

The sentences use the verdict's numbers, and each states the seeds, the interval and the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import clause, counted
from ..store.against import Against
from ..store.chance_of_best import ChosenTrial
from ..store.front_verdict import FrontConclusion
from ..store.interim_analyses import is_few
from ..store.verdict import Conclusion
from ..store.verdict_text import upper_first, violation_sentence
from ..studies.spec import Study
from .formatting import between, number, seeds_text

_SIGNS = "paired by seed, exact sign-flip test"
_SPLITS = "exact two-sample permutation test"
_DEFAULT = "the default configuration"
_SCORES = {
    "mean": "mean normalised score",
    "iqm": "interquartile mean of normalised scores",
    "worst": "lowest normalised score",
}


def metric_name(study: Study) -> str:
    """Return the standard name for a study's metric.

    >>> from hpo.studies.env_spec import EnvSpec
    >>> from hpo.studies.spec import Study
    >>> metric_name(Study(name="s", env=EnvSpec("CartPole-v1"), env_steps=1))
    'mean episode return'
    """
    if study.more_envs:
        return _SCORES[study.over_environments]
    return plain_metric(study.metric.name)


def plain_metric(name: str) -> str:
    """Return a plain description of a metric.

    >>> plain_metric("eval/return_mean"), plain_metric("eval/service_blocking_probability")
    ('mean episode return', 'service blocking probability')
    """
    known = {
        "eval/return_mean": "mean episode return",
        "eval/return_median": "median episode return",
        "eval/length_mean": "mean episode length",
    }
    return known.get(name, name.removeprefix("eval/").replace("_", " "))


def test_words(pairs: int) -> str:
    """Return the name of the test for a difference, given the number of common seeds.

    >>> test_words(8), test_words(4)
    ('paired by seed, exact sign-flip test', 'exact two-sample permutation test')
    """
    if is_few(pairs):
        return _SPLITS
    return _SIGNS


def interval_words(low: float | None, high: float | None) -> str:
    """Return an interval with its confidence level; "" if there is none.

    >>> interval_words(11.3, 308.6)
    '95 % CI [11.3, 308.6]'
    """
    return clause("95 % CI {}", between(low, high))


def value_quote(who: str, metric: str, shown: str, where: str, seeds: str) -> str:
    """Return the sentence about a value; `shown` is the value with its interval."""
    on = clause(" on {}", where)
    return f"{upper_first(who)} has a {metric} of {shown}{on}, over {seeds}."


def value_words(value: float | None, low: float | None, high: float | None) -> str:
    """Return a value with its interval.

    >>> value_words(500.0, 343.828, 500.0), value_words(0.25, None, None)
    ('500 (95 % CI [343.8, 500])', '0.25')
    """
    return number(value) + clause(" ({})", interval_words(low, high))


def versus(winner: str, against: Against, metric: str, *, lone: bool = False) -> list[str]:
    """Return the sentences about a winner and one opponent; [] if nothing was compared."""
    rival = _rival_name(against.rival)
    kind = "test seed"
    if lone:
        kind = "seed"
    seeds = counted(against.seeds, kind)
    if against.limits is not None and against.by_value != against.verdict:
        return [
            _of_constraints(winner, rival, against),
            *_difference_sentences(winner, against, seeds),
            *_diverged_sentences(winner, rival, against),
        ]
    match against.verdict:
        case "nothing" | "default":
            return []
        case "diverged":
            lost = f"{upper_first(winner)} diverged on {against.own_diverged} of {seeds}"
            return [f"{lost}, {rival} on {against.diverged or 'none'}."]
        case "ceiling":
            return [f"{upper_first(winner)} and {rival} both reach the maximum on {seeds}."]
        case "better" | "worse" if against.difference is None:
            ahead, behind = _better_first(winner, rival, against)
            return [f"On {seeds}, {ahead} is better than {behind}, which diverged."]
        case "better" | "worse":
            ahead, behind = _better_first(winner, rival, against)
            first = f"{upper_first(ahead)} has a significantly better {metric} than {behind}"
            found = [f"{first} on {seeds} ({_numbers_and_test(winner, rival, against)})."]
        case _ if against.unless is not None:
            found = [_conditional_sentence(winner, rival, against, metric, seeds)]
            return [*found, *_diverged_sentences(winner, rival, against)]
        case _:
            first = f"No significant difference in {metric} was found between {winner} and {rival}"
            found = [f"{first} on {seeds} ({_numbers_and_test(winner, rival, against)})."]
    return [
        *found,
        *_diverged_sentences(winner, rival, against),
        *_probability_sentences(winner, rival, against),
    ]


def _conditional_sentence(
    winner: str, rival: str, against: Against, metric: str, seeds: str
) -> str:
    """Return a sentence about a difference that only unobserved outcomes could reverse."""
    unless = against.unless
    if unless is None or against.difference is None:
        return ""
    ahead, behind = rival, winner
    if against.difference > 0.0:
        ahead, behind = winner, rival
    numbers = _numbers_text(winner, rival, replace(against, interval=unless.interval))
    first = f"{upper_first(ahead)} has a significantly better {metric} than {behind} on {seeds}"
    condition = _provided_that(unless.one_in)
    return f"{first}{condition} ({numbers}; {test_words(against.pairs)})."


def _provided_that(one_in: int) -> str:
    """Return the condition of a verdict that only unobserved outcomes could reverse."""
    return f", provided that fewer than 1 in {one_in} seeds give a result not observed on these"


def _numbers_and_test(winner: str, rival: str, against: Against) -> str:
    return f"{_numbers_text(winner, rival, against)}; {test_words(against.pairs)}"


def _rival_name(name: str) -> str:
    if name == "the default":
        return _DEFAULT
    return name


def _better_first(winner: str, rival: str, against: Against) -> tuple[str, str]:
    if against.verdict == "better":
        return winner, rival
    return rival, winner


def _numbers_text(winner: str, rival: str, against: Against) -> str:
    """Return both means and their difference, which is positive for the better side."""
    if against.means is None or against.difference is None:
        return "no seed has a value for both"
    own, other = against.means
    sign = 1.0
    if against.difference < 0.0:
        sign = -1.0
    around = against.interval.times(sign)
    means = f"{winner} {number(own)}, {rival} {number(other)}"
    text = f"{means}; difference {number(abs(against.difference))}"
    return text + clause(", {}", interval_words(around.low, around.high))


def _difference_sentences(winner: str, against: Against, seeds: str) -> list[str]:
    if against.means is None or against.difference is None:
        return []
    rival = _rival_name(against.rival)
    numbers = _numbers_text(winner, rival, against)
    test = test_words(against.pairs)
    return [f"{upper_first(winner)} and {rival} were compared on {seeds} ({numbers}; {test})."]


def _diverged_sentences(winner: str, rival: str, against: Against) -> list[str]:
    counts = ((winner, against.own_diverged), (rival, against.diverged))
    return [
        f"The means exclude {counted(count, 'seed')}, on which {who} diverged."
        for who, count in counts
        if count
    ]


def _probability_sentences(winner: str, rival: str, against: Against) -> list[str]:
    found = against.leader_probability
    if found is None:
        return []
    likely, spread = found
    ahead, behind = winner, rival
    if against.trails:
        ahead, behind = rival, winner
    around = f"95 % CI {between(spread.low, spread.high, '.2f')}"
    return [
        f"The probability of improvement of {ahead} over {behind} on a new seed is "
        f"{likely:.2f} ({around})."
    ]


def _of_constraints(winner: str, rival: str, against: Against) -> str:
    keeps = against.limits is not None and against.limits.rival.state
    if against.verdict == "feasible":
        return f"On test seeds, {winner} satisfies all constraints and {rival} does not."
    if against.verdict == "infeasible" and keeps == "kept":
        return f"On test seeds, {winner} violates the constraints and {rival} satisfies them."
    if against.verdict == "infeasible":
        return f"On test seeds, {winner} violates the constraints."
    return f"It is undecided whether {winner} or {rival} is better under the constraints."


def limit_quotes(winner: str, against: Against) -> list[str]:
    """Return a sentence for each constraint that was measured on test seeds."""
    if against.limits is None:
        return []
    said: list[str] = []
    both = ((winner, against.limits.winner), (_rival_name(against.rival), against.limits.rival))
    for who, found in both:
        for test in found.tests:
            if test.value is None:
                continue
            shown = value_words(test.value, test.interval.low, test.interval.high)
            limit = between(test.limit.low, test.limit.high)
            if test.limit.low is None:
                limit = f"at most {number(test.limit.high)}"
            elif test.limit.high is None:
                limit = f"at least {number(test.limit.low)}"
            name = plain_metric(test.limit.metric)
            said.append(f"{upper_first(who)} has a {name} of {shown}; the constraint is {limit}.")
    return said


def other_quotes(conclusion: Conclusion, metric: str) -> list[str]:
    """Return the sentences that involve trials other than the winner and the default."""
    if conclusion.front is not None:
        return front_quotes(conclusion.front)
    winner = conclusion.winner
    if winner is None:
        return []
    said: list[str] = []
    if conclusion.verdict == "default":
        said += _default_quotes(conclusion)
    for baseline in conclusion.baselines:
        said += versus(winner, baseline, metric, lone=conclusion.lone)
    if conclusion.copying is not None:
        alone = f"{conclusion.alone}, the best trial of the same study without copying"
        said += [
            one.replace("the best trial without copying", alone, 1)
            for one in versus(winner, conclusion.copying, metric)
        ]
    if conclusion.violates:
        said.append(violation_sentence(winner))
    if conclusion.chosen is not None and conclusion.ceiling is None:
        said.append(chosen_quote(winner, conclusion.chosen))
    return said


def _default_quotes(conclusion: Conclusion) -> list[str]:
    """Return the sentence on the trials that the default was compared with, if there were any."""
    if not conclusion.beaten:
        return []
    where = "On selection seeds"
    if conclusion.of_search:
        where = "On search seeds"
    others = "the other configuration was not better"
    if conclusion.beaten > 1:
        others = f"none of {conclusion.beaten} other configurations was better"
    return [f"{where}, {others} than {_DEFAULT}."]


def chosen_quote(winner: str, chosen: ChosenTrial) -> str:
    """Return the sentence on the probability that the winner is the best of the finalists.

    >>> chosen_quote("trial 38", ChosenTrial(3, 0.55))
    'Trial 38 has an estimated probability of 0.55 of being the best of the 3 finalists.'
    """
    likely = f"an estimated probability of {chosen.chance:.2f}"
    return (
        f"{upper_first(winner)} has {likely} of being the best of the {chosen.trials} finalists."
    )


def front_quotes(front: FrontConclusion) -> list[str]:
    seeds = seeds_text(front.seeds, "choose")
    trials = counted(front.compared, "trial")
    how = f"{seeds}, paired, with all {trials} tested together at the 5 % level"
    verdict, condition = front.verdict, ""
    if front.unless is not None and front.of_seen is not None:
        verdict = front.of_seen
        condition = _provided_that(front.unless)
    match verdict:
        case "behind":
            first = f"Trial {front.trial} is significantly better than {_DEFAULT} in every "
            first += f"objective{condition} ({how})."
        case "on_front":
            first = f"Every trial is significantly worse than {_DEFAULT} in some objective"
            first += f"{condition} ({how})."
        case "open":
            first = "No significant difference was found between the Pareto front and "
            first += f"{_DEFAULT} ({how})."
        case _:
            first = f"{seeds_text(front.seeds, 'choose')} are too few to compare the Pareto front "
            first += f"with {_DEFAULT}."
    said = [first]
    for one in front.objectives:
        around = clause(", {}", interval_words(one.low, one.high))
        by = f"difference {number(one.difference)}{around}"
        trial_mean, default_mean = map(number, one.means)
        name = plain_metric(one.objective)
        said.append(
            f"For the objective {name}, the mean of trial {one.trial} is {trial_mean} and the "
            f"mean of {_DEFAULT} is {default_mean} ({by}; a positive difference favours the "
            "trial)."
        )
    return said


def no_verdict(conclusion: Conclusion) -> Sequence[str]:
    """Return the reasons why a study has no verdict; empty if it has one."""
    if conclusion.winner is None and conclusion.front is None:
        return conclusion.why
    return ()
