"""Which knobs of a study decided, beyond what chance explains, and what other estimators say.

Every trial with a value at the point counts whose proposal is known to leave the answer right:
those that no result had led to, and those of TPE, for which it was simulated
(`scripts/acceptance conclusions 1`). Of other models only the random share counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from ...errors import ConfigError, MissingExtraError
from ...spaces.space import Space
from ...store.explained import FEWEST_TRIALS
from ...store.importance import Column, Decided, decide
from ...store.main_effects import EffectPoint, main_effect
from .looking_back import Importance, Method, Points, importance_at
from .ped_anova import best_count

__all__ = ["Answer", "answer_at", "columns_of"]

_PROPOSERS = ("random", "sobol", "grid", "tpe", "default", "enqueue")
_FOREST = 2_000
_METHODS: tuple[Method, ...] = ("ped-anova", "fanova")


@dataclass(frozen=True)
class Answer:
    """Which knobs decided at one point of the runs.

    Attributes:
        at: env steps of the point.
        decided: the knobs, with intervals and floors.
        measured: its trials were proposed in ways for which its errors are known.
        effects: knob that decided -> mean values along its axis, with their band.
        others: estimator -> knob -> share of the whole; those that could be computed.
        counts: why the estimator that was asked rests on other trials, as a sentence; "" if on
            the same.
    """

    at: int
    decided: Decided
    measured: bool
    effects: Mapping[str, tuple[EffectPoint, ...]]
    others: Mapping[Method, Importance]
    counts: str = ""

    @property
    def sentences(self) -> list[str]:
        """What to say, the answer first."""
        decided = self.decided
        said = [decided.sentence, "" if decided.names else decided.unseen, self.disagreement,
                self.counts]  # fmt: skip
        if not self.measured:
            said.append(
                "A model proposed these trials, for which errors of this were not measured."
            )
        return [text for text in said if text]

    def as_json(self) -> dict[str, object]:
        """Return plain data."""
        return {
            **self.decided.as_json(),
            "sentences": self.sentences,
            "measured": self.measured,
            "effects": {
                name: [asdict(point) for point in points] for name, points in self.effects.items()
            },
            "estimators": {name: dict(found.shares) for name, found in self.others.items()},
        }

    @property
    def disagreement(self) -> str:
        """In words which estimators put another knob first than this test, and what that means.

        Empty where all put the same first, or where nothing decided and no estimator gives a knob
        more than twice an equal share.
        """
        told = [text for name, found in self.others.items() if (text := self._apart(name, found))]
        return " ".join([*told, _TWO_QUESTIONS]) if told else ""

    def _apart(self, method: Method, found: Importance) -> str:
        """Return how one estimator differs; "" if it does not."""
        first = max(found.shares, key=lambda knob: found.shares[knob], default=None)
        names = self.decided.names
        if first is None or not found.shares[first] or first in names[:1]:
            return ""
        if not names and found.shares[first] <= 2.0 / len(found.shares):
            return ""
        own = next((knob for knob in self.decided.knobs if knob.name.split("#")[0] == first), None)
        said = f"{method} puts {first} first ({found.shares[first]:.0%})"
        if own is not None and own.floor < 1.0:
            chance = "" if own.decided else f", and chance alone up to {own.floor:.1%}"
            said += f"; by this test it explains {own.share:.1%}{chance}"
        asks = {
            "ped-anova": f"in what the best {best_count(found.trials)} of {found.trials} trials "
            "differ from the rest",
            "fanova": f"how much a forest's predictions from {found.trials} trials vary with a "
            "knob",
        }
        return f"{said}. {method} asks {asks[method]}, and does not ask how much chance gives."


_TWO_QUESTIONS = (
    "The test asks which knob explains the order of all trials better than chance would. So such "
    "a knob matters only among the best, or matters nothing and chance put it first: more trials "
    "tell which."
)


def answer_at(points: Points, found: Importance) -> Answer:
    """Return which knobs decided at the point of an importance.

    Args:
        points: of the study.
        found: importance by one estimator, which says the point and whether models count.

    Raises:
        ConfigError: too few trials there.
    """
    here = {n: value for n, value in points.values[found.at].items() if math.isfinite(value)}
    blind = set(points.random_share())
    trials = [n for n in here if n in blind or points.trials[n].proposed_by in _PROPOSERS]
    measured = len(trials) >= FEWEST_TRIALS
    if not measured:
        trials = list(here)
    params = [points.params(n, found.at) for n in trials]
    columns = columns_of(points.study.space, params)
    values = [here[n] for n in trials]
    decided = decide(columns, values)
    effects = {
        column.name: main_effect(column, values)
        for column in columns
        if column.name in decided.names
    }
    counts = _counts(points, trials, found)
    return Answer(found.at, decided, measured, effects, _others(points, found), counts)


def _counts(points: Points, trials: Sequence[int], found: Importance) -> str:
    """Return why an estimator rests on other trials than the test does; "" if on the same."""
    if len(trials) == found.trials:
        return ""
    if not found.random_only:
        return (
            f"{found.method} takes all {found.trials} trials; the test above the {len(trials)} "
            "whose proposals are known to leave it right."
        )
    blind = set(points.random_share())
    proposers = [points.trials[n].proposed_by for n in trials if n not in blind]
    kinds = {
        "the default": proposers.count("default"),
        "enqueued": proposers.count("enqueue"),
        "proposed from results": sum(by not in ("default", "enqueue") for by in proposers),
    }
    out = ", ".join(
        kind if kind == "the default" else f"{count} {kind}"
        for kind, count in kinds.items() if count
    )  # fmt: skip
    return (
        f"{found.method} takes {found.trials} of these {len(trials)} trials, those drawn before "
        f"any result was known; left out: {out}."
    )


def _others(points: Points, found: Importance) -> dict[Method, Importance]:
    """Return what every estimator says at that point, of the same trials."""
    told: dict[Method, Importance] = {}
    for method in _METHODS:
        if method == found.method:
            told[method] = found
            continue
        if method == "fanova" and found.trials > _FOREST:
            continue  # its forest takes over a CPU-second, and a report follows every run
        try:
            told[method] = importance_at(points, found.at, not found.random_only, method)
        except (ConfigError, MissingExtraError):  # one estimator less to compare with
            continue
    return told


def columns_of(space: Space, params: Sequence[Mapping[str, object]]) -> list[Column]:
    """Return where every trial lies on the axis of every knob.

    A knob with several distributions has a column for each.
    """
    places: dict[str, list[float | None]] = {key: [] for key, _ in space.keyed}
    for row in params:
        active: dict[str, float] = {}
        known = {**space.constants, **row}
        for key, parameter in space.keyed:
            if parameter.name in row and parameter.active(known):
                distribution, value = parameter.distribution, row[parameter.name]
                ordered = distribution.axis.kind != "choice"
                active[key] = distribution.share(value) if ordered else distribution.inward(value)
        for key, column in places.items():
            column.append(active.get(key))
    return [
        Column(key, places[key], parameter.distribution.axis.kind == "choice")
        for key, parameter in space.keyed
    ]
