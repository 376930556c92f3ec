"""Early stopping: the interface of rules that judge trials at a rung, and their registry.

A rule is a pure function of the results at one rung. The table of rules is in
`studies/stopping_rules.py`; a rule's module is imported when a study uses it.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, Protocol, overload

from ...studies.field import Field
from ...studies.field import option as option
from ...studies.search_spec import EarlyTerminate
from ...studies.sections import checked_options
from ...studies.spec import Study
from ...studies.stopping_rules import StoppingRule, add_rule, rule_row
from ..seeds import uniform
from .pbt_perturb import Explorer


@dataclass(frozen=True, slots=True)
class TrialAtRung:
    """A trial's result at a rung."""

    trial: int
    # lower is better; with several objectives or constraints, the rank among all trials judged
    # there (0 is the best), of which only the order matters
    loss: float
    curve: tuple[float, ...] = ()  # losses of the first objective at all rungs up to this one


Order = tuple[float, int]
"""The loss of a trial at a rung, and its number; of equal losses, the smaller number is better."""


class Rung:
    """The trials judged at a rung, kept sorted when trials are added."""

    def __init__(self, standings: Iterable[TrialAtRung] = ()):
        self.standings = {standing.trial: standing for standing in standings}
        self.order = sorted(map(_ranking_key, self.standings.values()))  # best first
        self._parts: dict[Callable[[int], int], defaultdict[int, Rung]] = {}

    def __len__(self) -> int:
        return len(self.standings)

    def add(self, standing: TrialAtRung) -> None:
        self.standings[standing.trial] = standing
        bisect.insort(self.order, _ranking_key(standing))
        for part_of, parts in self._parts.items():
            parts[part_of(standing.trial)].add(standing)

    def part(self, part_of: Callable[[int], int], part: int) -> Rung:
        """Return the trials in one part; `part_of` maps trial numbers to parts."""
        if part_of not in self._parts:
            self._parts[part_of] = defaultdict(Rung)
            for standing in self.standings.values():
                self._parts[part_of][part_of(standing.trial)].add(standing)
        return self._parts[part_of][part]

    def rank(self, loss: float) -> int:
        """Return the rank of a loss; 1 is the best, ties share a rank.

        >>> Rung([TrialAtRung(0, 2.0), TrialAtRung(1, 1.0), TrialAtRung(2, 2.0)]).rank(2.0)
        2
        """
        return 1 + bisect.bisect_left(self.order, (loss,))

    def order_of(self, trial: int) -> Order:
        return _ranking_key(self.standings[trial])

    def place(self, trial: int) -> int:
        """Return a trial's position, 0 for the best."""
        return bisect.bisect_left(self.order, self.order_of(trial))


class Judged(Sequence[TrialAtRung]):
    """The trials judged at a rung, in the form used by the rules of this package.

    A rule that uses `ordered` and `part_of` does not read any trial twice. Registered rules
    receive a list instead.
    """

    def __init__(self, rung: Rung):
        self.rung = rung

    def __len__(self) -> int:
        return len(self.rung)

    def __iter__(self) -> Iterator[TrialAtRung]:
        return iter(self.rung.standings.values())

    @overload
    def __getitem__(self, index: int) -> TrialAtRung: ...
    @overload
    def __getitem__(self, index: slice) -> list[TrialAtRung]: ...
    def __getitem__(self, index: int | slice) -> TrialAtRung | list[TrialAtRung]:
        return list(self)[index]


class Merged(Sequence[Order]):
    """Two sorted lists merged into one, without copying the first."""

    def __init__(self, first: Sequence[Order], second: Iterable[Order]):
        self._first, self._second = first, sorted(second)
        # the positions of the second list's entries in the merged list
        self._places = [
            bisect.bisect_left(first, entry) + index for index, entry in enumerate(self._second)
        ]

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    @overload
    def __getitem__(self, index: int) -> Order: ...
    @overload
    def __getitem__(self, index: slice) -> list[Order]: ...
    def __getitem__(self, index: int | slice) -> Order | list[Order]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        before = bisect.bisect_left(self._places, at)
        if before < len(self._places) and self._places[before] == at:
            return self._second[before]
        return self._first[at - before]


def ordered(
    earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung] = ()
) -> Sequence[Order]:
    """Return (loss, trial number) pairs, best first.

    >>> ordered([TrialAtRung(0, 2.0)], [TrialAtRung(1, 1.0), TrialAtRung(2, 2.0)])[:2]
    [(1.0, 1), (2.0, 0)]
    """
    if not isinstance(earlier, Judged):
        return sorted(map(_ranking_key, (*earlier, *arriving)))
    return Merged(earlier.rung.order, map(_ranking_key, arriving))


def part_of(
    standings: Sequence[TrialAtRung], key: Callable[[int], int], part: int
) -> Sequence[TrialAtRung]:
    """Return the trials in one part; `key` maps trial numbers to parts."""
    if isinstance(standings, Judged):
        return Judged(standings.rung.part(key, part))
    return [standing for standing in standings if key(standing.trial) == part]


def _ranking_key(standing: TrialAtRung) -> Order:
    return standing.loss, standing.trial


@dataclass(frozen=True)
class Verdict:
    stop: bool  # whether the trial ends here
    rule: str  # the rule as text, for example `asha eta=4`
    cutoff: float | None  # the loss that had to be reached; None if no trial stops
    # with `stop`: the trial finishes with its value here, as if its run were over
    finish: bool = False
    pause: bool = False  # with `stop`: the trial waits here instead of ending


class Pruner(Protocol):
    """Judges the trials at one rung, after each chunk.

    Values are losses: the loop negates a maximised metric, so lower is better.
    """

    def judge(
        self, rung: int, earlier: Sequence[TrialAtRung], arriving: Sequence[TrialAtRung]
    ) -> list[Verdict]:
        """Return one verdict per arriving trial.

        Args:
            rung: index of the rung.
            earlier: trials already judged at this rung, in any order.
            arriving: trials to judge now, which are also compared with each other.

        Returns:
            The verdicts in the order of `arriving`; each must not depend on that order.
        """
        ...


def register_rule(
    name: str,
    build: Callable[[EarlyTerminate, Study], Pruner | Explorer],
    options: Sequence[Field] = (),
    *,
    evolves: bool = False,
    learns: bool = False,
    even: bool = False,
    finishes: bool = False,
) -> None:
    """Register a rule as `early_terminate: {type: name}`; called by a file in `imports`.

    Args:
        name: name of the rule.
        build: creates the rule, which `testing/search.py` can test; `early.options` has a value
            for every option.
        options: keys of `early_terminate` that only this rule has, each created by `option(name,
            default, meaning, low=..., high=...)`.
        evolves: whether `build` creates an `Explorer`, which gives copies their hyperparameters;
            the rule then also has the keys of a population.
        learns: whether such an explorer uses earlier gains.
        even: whether its rungs are all multiples of `min`, instead of min x eta^i.
        finishes: whether its verdicts may end a trial with its current value.

    Raises:
        ConfigError: the name is taken, or an option is invalid.
    """
    shown = ""
    if evolves:
        shown = "every {every:,} {unit}"
    add_rule(
        StoppingRule(
            name,
            build,
            tuple(options),
            evolves=evolves,
            uses_gains=learns,
            even=even,
            finishes=finishes,
            shown=shown,
        )
    )


def make_pruner(study: Study) -> Pruner | None:
    """Create the rule named by a study; None without a rule or with an evolving population."""
    early = study.early_terminate
    if early is None or early.evolves:
        return None
    return _build_rule(early, study)


def make_explorer(study: Study) -> Explorer | None:
    """Create the explorer that gives copies their hyperparameters; None without a population."""
    early = study.early_terminate
    if early is None or not early.evolves:
        return None
    return _build_rule(early, study)


def _build_rule(early: EarlyTerminate, study: Study) -> Any:
    row = rule_row(early.type)
    own = ()
    if row.registered:
        own = row.options
    options = checked_options(f"early_terminate type {row.name!r}", own, early.options)
    build = row.build
    if isinstance(build, str):
        build = resolve_name(f"{__package__}.{build}")
    return build(replace(early, options=options), study)


def rank_of(loss: float, losses: Sequence[float]) -> int:
    """Return the rank of a loss among sorted losses; 1 is the best, and ties share a rank.

    >>> rank_of(2.0, [1.0, 2.0, 2.0, 5.0])
    2
    """
    return 1 + bisect.bisect_left(losses, loss)


def is_audited(seed: int, trial: int, share: float) -> bool:
    """Return whether a stopped trial continues as a control; a function of seed and trial.

    >>> sum(is_audited(0, trial, 0.25) for trial in range(1000)) in range(200, 300)
    True
    """
    return uniform(seed, "audit", trial) < share
