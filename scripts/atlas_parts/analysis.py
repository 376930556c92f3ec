"""All results of the atlas for one environment, and the sentences that rules derive from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpo.errors import ConfigError, counted
from hpo.store.importance import Decided

from .data import Atlas
from .early import Judged, judged_early
from .interactions import Interactions, interactions
from .knobs_over_time import Shift, decided_over_time, shifts
from .rules import USUAL, Found, Overall, can_be_searched, rules
from .seeds import Ranked, ranking

CONFIGURATIONS, SEEDS = 1_000, 10
OFTEN, MOST_LOST = 0.9, 0.1


@dataclass(frozen=True)
class Analysis:
    """The results for one environment.

    Attributes:
        atlas: its data.
        decided: the hyperparameters that matter at each point of the run.
        shifts: how a hyperparameter's share differs between a quarter of the run and its end.
        ranked: results of rankings by 1, 2, ... seeds.
        early: how well each point predicts the end.
        pairs: interactions; None if there are too few configurations.
        searched: results of early stopping rules; empty if the atlas cannot be searched.
    """

    atlas: Atlas
    decided: tuple[Decided, ...]
    shifts: tuple[Shift, ...]
    ranked: tuple[Ranked, ...]
    early: tuple[Judged, ...]
    pairs: Interactions | None
    searched: tuple[Found, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether these are all configurations and seeds, which conclusions require."""
        count, seeds, _ = self.atlas.values.shape
        return count >= CONFIGURATIONS and seeds >= SEEDS

    @property
    def sentences(self) -> list[str]:
        """Conclusions by rule; none from incomplete data."""
        if not self.whole:
            return []
        rest = [self.on_rules] if self.searched else []
        return [self.on_knobs, self.on_seeds, self.on_time, self.on_pairs, *rest]

    @property
    def on_knobs(self) -> str:
        """Which hyperparameters matter at the end, and which ones early or late."""
        last, moved = self.decided[-1], {one.name: one.verdict for one in self.shifts}
        names = [f"`{name}`" for name in last.names]
        none = "No knob is shown to explain more than chance at the end"
        said = f"{listed(names)} decided" if names else none
        when = [
            f"{listed([f'`{name}`' for name, kind in moved.items() if kind == verdict])} {words}"
            for verdict, words in (
                ("early", "explained more at a quarter of the run than at its end"),
                ("late", "explained more at the end than at a quarter of the run"),
            )
            if verdict in moved.values()
        ]
        return ". ".join([said, *when]) + "."

    @property
    def on_seeds(self) -> str:
        """The number of seeds from which the better of two is found nine times in ten."""
        enough = [one.seeds for one in self.ranked if one.pair.low >= OFTEN]
        judges, episodes = self.ranked[0].judges, self.atlas.episodes
        of = f" (of {counted(episodes, 'episode')} each)" if episodes else ""
        if not enough:
            most = self.ranked[-1]
            who, others = f"{counted(most.seeds, 'seed')}{of}", f"{judges} others"
            share = f"{most.pair.value:.1%}"
            if most.pair.high < OFTEN:
                return (
                    f"{who} agree with {others} on the better of two configurations in {share} of "
                    f"pairs, less than {OFTEN:.0%}."
                )
            return (
                f"It is not sure that {who} agree {OFTEN:.0%} of the time with {others} on the "
                f"better of two configurations ({share})."
            )
        return (
            f"From {counted(enough[0], 'seed')}{of} on, the better of two configurations is the "
            f"better one on {judges} other seeds, too, in at least {OFTEN:.0%} of pairs."
        )

    @property
    def on_time(self) -> str:
        """When choosing starts to lose at most a tenth of the gain of choosing at the end."""
        if math.isnan(self.early[-1].lost.value):
            return "Choosing at the end gains nothing over a configuration drawn at random."
        good = [one.lost.high <= MOST_LOST for one in self.early]
        first = next(at for at in range(len(good)) if all(good[at:]))
        if first == len(good) - 1:
            return (
                f"From no point on before the end is it sure that at most {MOST_LOST:.0%} is lost."
            )
        return (
            f"From {self.early[first].fraction:.0%} of the run on, choosing there loses at most "
            f"{MOST_LOST:.0%} of what choosing at the end gains."
        )

    @property
    def on_pairs(self) -> str:
        """The number of interactions that are real."""
        if self.pairs is None:
            return "Too few configurations for interactions."
        real = [one for one in self.pairs.pairs if one.real]
        named = listed([f"`{one}` with `{other}`" for one, other in (p.names for p in real[:3])])
        which = "" if not real else f": {named}" if len(real) <= 3 else f", the largest {named}"
        pairs = counted(len(self.pairs.pairs), "pair")
        return (
            f"{len(real)} of {pairs} {'is' if len(real) == 1 else 'are'} shown to interact{which}."
        )

    @property
    def on_rules(self) -> str:
        """Which rules are shown to find better or worse configurations than the usual one.

        For the largest budget, and every other budget with a significant result.
        """
        budgets = sorted({one.budget for one in self.searched})
        parts = [[one for one in self.searched if one.budget == budget] for budget in budgets]
        return " ".join(
            said_of_rules(part)
            for part in parts
            if part is parts[-1] or any(one.verdict for one in part)
        )

    def as_json(self) -> Mapping[str, Any]:
        """Return every number as plain data."""
        return {
            "digest": self.atlas.digest,
            "shape": list(self.atlas.values.shape),
            "points": self.atlas.points.tolist(),
            "knobs": [decided.as_json() for decided in self.decided],
            "shifts": {one.name: [*one.later.as_json(), one.verdict] for one in self.shifts},
            "seeds": {
                one.seeds: {"pair": one.pair.as_json(), "top": one.top.as_json()}
                for one in self.ranked
            },
            "early": [
                {
                    "fraction": one.fraction,
                    "correlation": one.correlation.as_json(),
                    "kept": one.kept.as_json(),
                    "lost": one.lost.as_json(),
                }
                for one in self.early
            ],
            "interactions": None
            if self.pairs is None
            else [
                {
                    "knobs": one.names,
                    "share": one.share.as_json(),
                    "floor": one.floor,
                    "real": one.real,
                }
                for one in self.pairs.pairs
            ],
            "rules": [
                {
                    "rule": one.rule,
                    "seeds": one.seeds,
                    "full_runs": one.budget,
                    "value": one.value.as_json(),
                    "less_usual": None if one.less is None else one.less.as_json(),
                    "verdict": one.verdict,
                    "beats": one.beats.estimate().as_json(),
                    "more_than_usual": None if one.more is None else one.more.estimate().as_json(),
                }
                for one in self.searched
            ],
            "sentences": self.sentences,
        }


def analyse(atlas: Atlas) -> Analysis:
    """Return all results of the atlas for one environment.

    Raises:
        ConfigError: fewer than 10 configurations or 2 seeds.
    """
    seeds = atlas.values.shape[1]
    if seeds < 2:
        raise ConfigError(f"{atlas.name} has {seeds} seed; 2 are needed: one chooses, one judges")
    means = atlas.filled.mean(axis=1)
    try:
        pairs = interactions(atlas.columns, means[:, -1].tolist())
    except ConfigError:  # too few configurations, which the page states
        pairs = None
    return Analysis(
        atlas,
        tuple(decided_over_time(atlas.columns, means)),
        tuple(shifts(atlas.columns, means, atlas.fractions)),
        tuple(ranking(atlas.filled[:, :, -1])),
        tuple(judged_early(atlas.filled, atlas.fractions)),
        pairs,
        tuple(rules(atlas)) if can_be_searched(atlas) else (),
    )


def said_of_rules(found: Sequence[Found | Overall]) -> str:
    """Name the rules, all of one budget, shown to find better or worse configurations."""
    shown = dict[str, list[str]](better=[], worse=[])
    for one in found:
        if one.verdict:
            most = "up to " if one.rule.startswith("racing") else ""
            shown[one.verdict].append(f"`{one.rule}` on {most}{counted(one.seeds, 'seed')}")
    said = [
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} shown to find {verdict} "
        "configurations"
        for verdict, names in shown.items()
        if names
    ] or ["no rule and number of seeds is shown to find better or worse configurations"]
    usual = f"`{USUAL[0]}` on {counted(USUAL[1], 'seed')}"
    return (
        f"For the env steps of {found[0].budget} full runs of one seed, {', and '.join(said)} "
        f"than {usual} (random search, nothing confirmed)."
    )


def listed(words: Sequence[str]) -> str:
    """Join words into a list: a, b and c."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)
