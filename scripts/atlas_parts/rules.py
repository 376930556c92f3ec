"""Which early stopping rule, on how many seeds, finds the best configuration for its env steps?

A search requests the default configuration and then configurations of the atlas in a random order,
trains them with a rule until its env steps are used up, and chooses by the seeds that it trained.
Its rule is the real one, applied to the curves of the atlas (`winners_of` and `winner_of_race`,
which tests compare with the engine). The value of the choice is that on the other half of the
seeds at the end of its run. If no trial finished, the default is chosen.

*Less the usual*: the mean difference from the rule and the seeds that `hpo init --plain` wrote,
over searches with the same configurations in the same order on the same seeds.

Intervals are over configurations. Every mean over searches uses a random half of them. Halves of a
sample differ from each other like samples of its size (half-sampling, McCarthy 1969); they also
differ by the searches made on them, so intervals are, if anything, too wide. Intervals of
differences hold simultaneously (Bonferroni over settings and budgets).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t as student

from hpo.studies.chunk_sizes import rung_steps
from hpo.studies.load import recorded
from hpo.studies.spec import Study

from .data import Atlas
from .racing import Runs, winner_of_race
from .resampling import LEVEL, Estimate, generator, halves, judges_of
from .sketched import Curve, winners_of

LANES = 12
BUDGETS = (24, 48)
"""In full runs of one seed: whole rounds of all lanes, even if no trial is stopped. With 60,
`asha eta=4` on one seed used all of a half in one of eight searches on Pendulum."""
USUAL = ("asha eta=4", 3)
"""The rule and the number of seeds in the studies of `hpo init --plain` at the time."""
_HALVES, _SEARCHES = 20, 90


@dataclass(frozen=True)
class Setting:
    """A rule with a number of seeds.

    Attributes:
        rule: the rule as text.
        seeds: number per trial, at most if they race.
        type: value of `early_terminate.type`, "" without a rule.
        eta: the rule's eta.
        first: the first rung, as a share of the run.
        start: seeds with which a race starts; 0: no race.
    """

    rule: str
    seeds: int
    type: str = ""
    eta: float = 4.0
    first: float = 0.05
    start: int = 0

    def study(self, atlas: Atlas) -> Study:
        """Return the study of the atlas with this rule."""
        early = None
        if self.type:
            first = round(self.first * atlas.points[-1])
            early = {"type": self.type, "eta": self.eta, "min": first}
        seeds: dict[str, Any] = {"per_config": self.seeds}
        if self.start:
            seeds["racing"] = {"start": self.start}
        given = {"early_terminate": early, "seeds": seeds}
        overrides = [f"{key}={json.dumps(value)}" for key, value in given.items()]
        return recorded(atlas.about["study"], overrides=overrides)


def _settings() -> Iterator[Setting]:
    for seeds in (1, 3):
        yield Setting("none", seeds)
        for eta in (2, 3, 4):
            yield Setting(f"asha eta={eta}", seeds, "asha", eta)
        yield Setting("asha eta=4, later", seeds, "asha", first=0.2)
        yield Setting("hyperband eta=3", seeds, "hyperband", 3)
        yield Setting("median", seeds, "median", 2)
        yield Setting("plateau", seeds, "plateau")
    for start in (2, 3):
        yield Setting(f"racing start={start}", 5, start=start)


SETTINGS = tuple(_settings())


@dataclass(frozen=True)
class Found:
    """The result of one setting for one budget.

    Attributes:
        rule, seeds: those of the setting.
        budget: in full runs of one seed.
        value: value of the choice on seeds that did not select it, larger is better.
        less: the value minus that of the usual setting, by simultaneous intervals; None for the
        usual one.
        beats: the share of configurations, in the half that was searched, that are worse than the
            choice on these seeds; equal ones count half.
        more: the share minus that of the usual setting; None for the usual one.
    """

    rule: str
    seeds: int
    budget: int
    value: Estimate
    less: Estimate | None
    beats: Halves
    more: Halves | None

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the interval of the difference excludes 0, else ""."""
        return _verdict(self.less)


@dataclass(frozen=True)
class Overall:
    """The result of one setting for one budget, over environments.

    Attributes:
        rule, seeds: those of the setting.
        budget: in full runs of one seed.
        beats: the share of configurations that are worse than the choice, as a mean over
            environments.
        more: the share minus that of the usual setting, by simultaneous intervals; None for the
        usual one.
    """

    rule: str
    seeds: int
    budget: int
    beats: Estimate
    more: Estimate | None

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the interval of the difference excludes 0, else ""."""
        return _verdict(self.more)

    def as_json(self) -> dict[str, Any]:
        """Return every number as plain data."""
        more = None if self.more is None else self.more.as_json()
        return {
            "rule": self.rule,
            "seeds": self.seeds,
            "full_runs": self.budget,
            "beats": self.beats.as_json(),
            "more_than_usual": more,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Halves:
    """Means over searches, each on a random half of the configurations.

    Attributes:
        means: one per half.
    """

    means: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Halves:
        """Return the means of values [halves, searches]."""
        return cls(values.mean(axis=1))

    @property
    def mean(self) -> float:
        """The mean of all halves."""
        return float(self.means.mean())

    def estimate(self, tests: int = 1) -> Estimate:
        """Return the mean with its interval over configurations; `tests` hold simultaneously."""
        count = len(self.means)
        deviation = np.sqrt(self.means.var(ddof=1) * (1.0 + 1.0 / count))
        reach = student.ppf(1.0 - (1.0 - LEVEL) / 2 / tests, count - 1) * deviation
        return Estimate(self.mean, float(self.mean - reach), float(self.mean + reach))


def _verdict(difference: Estimate | None) -> str:
    if difference is None:
        return ""
    return "better" if difference.low > 0 else "worse" if difference.high < 0 else ""


def rules(
    atlas: Atlas,
    settings: Sequence[Setting] = SETTINGS,
    budgets: Sequence[int] = BUDGETS,
    samples: tuple[int, int] = (_HALVES, _SEARCHES),
) -> list[Found]:
    """Return the result of every setting for every budget.

    Args:
        atlas: one that can be searched (`can_be_searched`).
        settings: must include the usual one.
        budgets: in full runs of one seed.
        samples: number of halves of the configurations, and of searches on each.
    """
    drawn = [_searches(atlas, settings, budgets, samples[1], half) for half in range(samples[0])]
    worth, beats = np.moveaxis(np.stack(drawn), -1, 0)
    usual = [(one.rule, one.seeds) for one in settings].index(USUAL)
    others = (len(settings) - 1) * len(budgets)
    found = list[Found]()
    for at, one in enumerate(settings):
        for place, budget in enumerate(budgets):
            value, share = worth[:, :, at, place], beats[:, :, at, place]
            less = more = None
            if at != usual:
                less = Halves.of(value - worth[:, :, usual, place]).estimate(others)
                more = Halves.of(share - beats[:, :, usual, place])
            mine = Halves.of(value).estimate()
            found.append(Found(one.rule, one.seeds, budget, mine, less, Halves.of(share), more))
    return found


def overall(environments: Sequence[Sequence[Found]]) -> list[Overall]:
    """Return the results over environments, each with the same weight.

    Intervals are over the configurations of these environments, not over other environments.

    Args:
        environments: the results of `rules` on each, for the same settings and budgets, on the
            same halves: with equally many configurations and seeds.

    Raises:
        ValueError: the settings differ.
    """
    rows = list(zip(*environments, strict=True))
    others = sum(first.more is not None for first, *_ in rows)
    found = list[Overall]()
    for row in rows:
        setting = (row[0].rule, row[0].seeds, row[0].budget)
        if any((one.rule, one.seeds, one.budget) != setting for one in row):
            raise ValueError("environments were searched by other settings")
        gains = [one.more for one in row if one.more is not None]
        more = _mean(gains).estimate(others) if gains else None
        found.append(Overall(*setting, _mean([one.beats for one in row]).estimate(), more))
    return found


def _mean(environments: Sequence[Halves]) -> Halves:
    """Return the mean of environments, half by half: all studies drew the same configurations."""
    return Halves(np.mean([one.means for one in environments], axis=0))


def _searches(
    atlas: Atlas, settings: Sequence[Setting], budgets: Sequence[int], searches: int, half: int
) -> np.ndarray:
    """Return the values of the choices of some searches on one half.

    Returns:
        The value, and the share of the half that is worse: [searches, settings, budgets, 2].
    """
    count, seeds, _ = atlas.values.shape
    draws = generator(100 + half)
    rows = draws.permutation(count)[: count // 2]
    studies = [setting.study(atlas) for setting in settings]
    length = int(atlas.points[-1])
    found = np.empty((searches, len(settings), len(budgets), 2))
    for search, (choosing, judging) in enumerate(halves(draws, seeds, searches)):
        order = draws.permutation(rows)
        default = -float(atlas.filled_default[judging, -1].mean())
        everyone = np.sort(atlas.filled[rows][:, judging, -1].mean(axis=1))
        for at, study in enumerate(studies):
            # The seed of the study determines Hyperband's brackets, so it differs each time.
            drawn = replace(study, seed=searches * half + search)
            spent = [budget * length for budget in budgets]
            if study.seeds.racing is None:
                curves = _curves(atlas, study, order, choosing, judging)
                losses = winners_of(drawn, curves, rung_steps(study), length, LANES, spent)
            else:
                losses = _raced(atlas, study, order, choosing, judging, spent)
            values = np.asarray([-(default if loss is None else loss) for loss in losses])
            found[search, at, :, 0] = values
            found[search, at, :, 1] = _share_below(values, everyone)
    return found


def _share_below(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return the share of ascending numbers below each value; equal ones count half."""
    below, upto = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return (below + upto) / 2 / len(ordered)


def _raced(
    atlas: Atlas,
    study: Study,
    order: np.ndarray,
    choosing: np.ndarray,
    judging: np.ndarray,
    budgets: Sequence[float],
) -> list[float | None]:
    """Return, for each budget, the loss on the judging seeds of the trial that wins a race."""
    mine = choosing[: study.seeds.per_config]
    losses, trained = _in_order(atlas, order)
    points = trained[:, mine].sum(axis=2)  # before a seed diverged
    ends = np.append(atlas.points, atlas.points[-1])[points]
    runs = Runs(losses[:, mine, -1], ends, points == len(atlas.points))
    winners = [winner_of_race(runs, study.seeds, LANES, budget) for budget in budgets]
    judged = losses[:, judging, -1].mean(axis=1)
    return [None if winner is None else float(judged[winner]) for winner in winners]


def _curves(
    atlas: Atlas, study: Study, order: np.ndarray, choosing: np.ndarray, judging: np.ndarray
) -> list[Curve]:
    """Return the default and then configurations in an order, in the form used by a rule."""
    places = [int(np.flatnonzero(atlas.points == rung)[0]) for rung in rung_steps(study)]
    mine = choosing[: study.seeds.per_config]
    first = mine[: study.seeds.first]
    losses, trained = _in_order(atlas, order)
    points = trained[:, first].all(axis=1).sum(axis=1)  # before a seed diverged
    after = np.append(atlas.points, 0)[points]  # the point after that
    judged = losses[:, judging].mean(axis=1)
    columns = (
        losses[:, first][:, :, places].mean(axis=1),
        losses[:, mine, -1].mean(axis=1),
        judged[:, -1],
        judged[:, places],
        (points[:, None] > np.asarray(places, int)).sum(axis=1),
        after,
        points == len(atlas.points),
    )
    return [
        Curve(tuple(at_rungs), compared, final, tuple(at))
        if whole
        else Curve(tuple(at_rungs), compared, final, tuple(at), passed, lost)
        for at_rungs, compared, final, at, passed, lost, whole in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


def _in_order(atlas: Atlas, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the default and then configurations in an order, [1 + configurations, s, p].

    Returns:
        Losses, with the worst loss at a point for a diverged seed; and whether none had diverged.
    """
    values = np.concatenate([atlas.default_values[None], atlas.values[order]])
    filled = np.concatenate([atlas.filled_default[None], atlas.filled[order]])
    return -filled, np.isfinite(values)


def can_be_searched(atlas: Atlas, settings: Sequence[Setting] = SETTINGS) -> bool:
    """Return whether the default ran, and there are as many seeds to select as settings train."""
    seeds = atlas.values.shape[1]
    enough = seeds - judges_of(seeds) >= max(setting.seeds for setting in settings)
    return enough and bool(np.isfinite(atlas.default_values).any())
