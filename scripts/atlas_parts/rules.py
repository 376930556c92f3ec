"""Which rule of early stopping, on how many seeds, finds the best for so many env steps?

A search asks for the default configuration and then for configurations of the atlas in a random
order, trains them with a rule until its env steps are used up, and chooses by the seeds that it
trained. Its rule is the real one; what it sees are the curves of the atlas (`winner_of`, which
tests hold against the engine). The choice is worth what the other half of the seeds show at the
end of its run. Where no trial came to its end it is the default.

*Less the usual*: the mean difference to the rule and the seeds that `hpo init` writes, over
searches that see the same configurations in the same order on the same seeds.

Intervals are over configurations. Every mean of searches is of a random half of them. Halves of a
sample differ from each other as samples of its size do (half-sampling, McCarthy 1969); they differ
by the searches that were made on them as well, so that intervals are, if anything, too wide. Those
of differences hold all at once (Bonferroni over settings and budgets).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.stats import t as student

from hpo.search.what_if.resampled import Curve, winner_of
from hpo.studies.load import recorded
from hpo.studies.quanta import rung_steps
from hpo.studies.spec import Study

from .data import Atlas
from .resampling import LEVEL, Estimate, generator, halves, judges_of

LANES = 12
BUDGETS = (24, 60)
"""In full runs of one seed; whole rounds of all lanes, also where nobody is stopped."""
USUAL = ("asha eta=4", 3)
"""The rule and the seeds that `hpo init` writes."""
_HALVES, _SEARCHES = 20, 30


@dataclass(frozen=True)
class Setting:
    """A rule and seeds.

    Attributes:
        rule: its words.
        seeds: of a trial.
        type: of `early_terminate`, "" without.
        eta: its own.
        first: the first rung, as a share of the run.
    """

    rule: str
    seeds: int
    type: str = ""
    eta: float = 4.0
    first: float = 0.05

    def study(self, atlas: Atlas) -> Study:
        """Return the study of the atlas with this rule."""
        early = None
        if self.type:
            first = round(self.first * atlas.points[-1])
            early = {"type": self.type, "eta": self.eta, "min": first}
        given = {"early_terminate": early, "seeds": {"per_config": self.seeds}}
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


SETTINGS = tuple(_settings())


@dataclass(frozen=True)
class Found:
    """What one setting finds for one budget.

    Attributes:
        rule, seeds: of the setting.
        budget: in full runs of one seed.
        value: of the choice on seeds that chose nothing, larger is better.
        less: that less what the usual one finds, all intervals at once; None of itself.
    """

    rule: str
    seeds: int
    budget: int
    value: Estimate
    less: Estimate | None

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the interval of the difference leaves out 0, else ""."""
        if self.less is None:
            return ""
        return "better" if self.less.low > 0 else "worse" if self.less.high < 0 else ""


def rules(
    atlas: Atlas,
    settings: Sequence[Setting] = SETTINGS,
    budgets: Sequence[int] = BUDGETS,
    samples: tuple[int, int] = (_HALVES, _SEARCHES),
) -> list[Found]:
    """Return what every setting finds for every budget.

    Args:
        atlas: that can be searched (`can_be_searched`).
        settings: the usual one is among them.
        budgets: in full runs of one seed.
        samples: halves of the configurations, and searches on each.
    """
    asked = list(product(settings, budgets))
    worth = np.stack([_searches(atlas, asked, samples[1], half) for half in range(samples[0])])
    usual = {
        budget: at for at, (one, budget) in enumerate(asked) if (one.rule, one.seeds) == USUAL
    }
    others = len(asked) - len(usual)
    found = list[Found]()
    for at, (one, budget) in enumerate(asked):
        less = None
        if at != usual[budget]:
            less = over_halves(worth[:, :, at] - worth[:, :, usual[budget]], others)
        found.append(Found(one.rule, one.seeds, budget, over_halves(worth[:, :, at]), less))
    return found


def over_halves(values: np.ndarray, tests: int = 1) -> Estimate:
    """Return the mean of values [halves, searches] with its interval over configurations.

    Args:
        values: of searches on random halves of the configurations.
        tests: intervals that are to hold all at once.
    """
    means = values.mean(axis=1)
    count = len(means)
    deviation = np.sqrt(means.var(ddof=1) * (1.0 + 1.0 / count))
    reach = student.ppf(1.0 - (1.0 - LEVEL) / 2 / tests, count - 1) * deviation
    mean = float(means.mean())
    return Estimate(mean, float(mean - reach), float(mean + reach))


def _searches(
    atlas: Atlas, asked: Sequence[tuple[Setting, int]], searches: int, half: int
) -> np.ndarray:
    """Return what the choices of some searches on one half are worth, [searches, asked]."""
    count, seeds, _ = atlas.values.shape
    draws = generator(100 + half)
    rows = draws.permutation(count)[: count // 2]
    studies = {setting: setting.study(atlas) for setting, _ in asked}
    length = int(atlas.points[-1])
    found = np.empty((searches, len(asked)))
    for search, (choosing, judging) in enumerate(halves(draws, seeds, searches)):
        order = [0, *(1 + draws.permutation(rows))]  # the default first
        curves = {
            setting: _curves(atlas, study, choosing, judging) for setting, study in studies.items()
        }
        default = -float(atlas.filled_default[judging, -1].mean())
        for at, (setting, budget) in enumerate(asked):
            trials = [curves[setting][row] for row in order]
            # Brackets of hyperband are drawn by the seed of the study: other ones each time.
            study = replace(studies[setting], seed=searches * half + search)
            rungs = rung_steps(study)
            loss = winner_of(study, trials, rungs, length, LANES, budget * length)
            found[search, at] = -(default if loss is None else loss)
    return found


def _curves(atlas: Atlas, study: Study, choosing: np.ndarray, judging: np.ndarray) -> list[Curve]:
    """Return all configurations, the default first, as a rule sees them."""
    places = [int(np.flatnonzero(atlas.points == rung)[0]) for rung in rung_steps(study)]
    mine = choosing[: study.seeds.per_config]
    first = mine[: study.seeds.first]
    losses = -np.concatenate([atlas.filled_default[None], atlas.filled])
    seen = np.isfinite(np.concatenate([atlas.default_values[None], atlas.values]))[:, first]
    at_rungs = losses[:, first][:, :, places].mean(axis=1)
    finals, judged = losses[:, mine, -1], losses[:, judging].mean(axis=1)
    points = seen.all(axis=1).sum(axis=1)  # that a trial saw before a seed diverged
    whole = points == len(atlas.points)
    lost = np.append(atlas.points, 0)[points]  # by the next one
    return [
        Curve(
            losses=tuple(at_rungs[row]),
            seeds=tuple(finals[row]),
            compared=float(finals[row].mean()),
            final=float(judged[row, -1]),
            at=tuple(judged[row, places]),
            lost_at=None if whole[row] else sum(place < points[row] for place in places),
            lost_after=None if whole[row] else int(lost[row]),
        )
        for row in range(len(losses))
    ]


def can_be_searched(atlas: Atlas, settings: Sequence[Setting] = SETTINGS) -> bool:
    """Return whether the default ran, and as many seeds may choose as the settings train."""
    seeds = atlas.values.shape[1]
    enough = seeds - judges_of(seeds) >= max(setting.seeds for setting in settings)
    return enough and bool(np.isfinite(atlas.default_values).any())
