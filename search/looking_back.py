"""What a study's evaluations say when it is over: values of trials at equal points of their runs.

Trials that were stopped early have values at early points only, and a model's proposals gather
where it believes the best is: so importance is computed at one point, on the random share.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError, MissingExtraError
from ..spaces.space import Space
from ..store.codec import PackedEvaluation
from ..store.journal import Journal
from ..store.rows import TrialRow
from ..studies.load import loads
from ..studies.spec import Study
from .objective import Objective
from .population import EvaluationResult

__all__ = ["Importance", "Method", "Points", "importance_at", "read_points"]

Method = Literal["ped-anova", "fanova"]
_REACHED = 0.9
_FEWEST = 10
_RANDOM = ("random", "sobol", "grid")


@dataclass(frozen=True)
class Points:
    """Values of the trials of one study at every point where they were evaluated.

    Attributes:
        study: what was asked.
        trials: rows by number.
        values: env steps -> trial -> its value over its replicates there.
    """

    study: Study
    trials: Mapping[int, TrialRow]
    values: Mapping[int, Mapping[int, float]]

    def random_share(self) -> list[int]:
        """Give the trials that no model of earlier results proposed."""
        return [n for n, row in self.trials.items() if row.proposed_by in _RANDOM]

    def latest_shared(self, among: Sequence[int]) -> int | None:
        """Give the latest point that nine in ten of these trials reached."""
        reached = [
            at
            for at, found in self.values.items()
            if sum(number in found for number in among) >= _REACHED * len(among)
        ]
        return max(reached, default=None)


@dataclass(frozen=True)
class Importance:
    """How much each knob decided at one point.

    Attributes:
        shares: knob -> share of the whole, largest first; they add up to 1 (or are all 0).
        at: env steps of the point.
        trials: how many trials it rests on.
        random_only: only the random share was used.
        method: the estimator.
    """

    shares: Mapping[str, float]
    at: int
    trials: int
    random_only: bool
    method: Method


def read_points(folder: Path) -> Points:
    """Read a study's evaluations of the search.

    Raises:
        StoreError: there is no study, or its journal is damaged.
    """
    with Journal(folder) as journal:
        study = loads(journal.meta.study_text, "study.resolved.yaml", folder)
        rows = {row.trial: row for row in journal.trials()}
        seen: dict[tuple[int, int], list[float]] = defaultdict(list)
        objective = Objective(study.metric)
        for packed in journal.packed_evaluations():
            if packed.stream == "search":
                seen[packed.env_steps, packed.trial].append(objective.measure(_result(packed)))
    values: dict[int, dict[int, float]] = defaultdict(dict)
    for (at, trial), replicates in sorted(seen.items()):
        values[at][trial] = objective.aggregate(replicates)
    return Points(study, rows, dict(values))


def _result(packed: PackedEvaluation) -> EvaluationResult:
    metrics = np.frombuffer(packed.metrics, "<f8").reshape(len(packed.names), packed.episodes)
    return EvaluationResult(
        returns=np.frombuffer(packed.returns, "<f8"),
        lengths=np.frombuffer(packed.lengths, "<i8"),
        metrics=dict(zip(packed.names, metrics, strict=True)),
    )


def importance_at(
    points: Points,
    at: int | None = None,
    everybody: bool = False,
    method: Method = "ped-anova",
) -> Importance:
    """Give the importance of every searched knob for the value at one point.

    PED-ANOVA (Watanabe et al. 2023) asks how far the best tenth of trials is from all of them in
    each knob; fANOVA (Hutter et al. 2014) how much of a forest's variance the knob explains.

    Args:
        points: of the study.
        at: env steps; None takes the latest that nine in ten of the trials reached.
        everybody: use proposals of models too, which lie where the model looked: biased.
        method: the estimator; `fanova` needs scikit-learn.

    Raises:
        ConfigError: no such point, or too few trials there.
        MissingExtraError: fANOVA without scikit-learn.
    """
    among = list(points.trials) if everybody else points.random_share()
    if at is None:
        at = points.latest_shared(among)
    if at is None or at not in points.values:
        known = ", ".join(str(point) for point in sorted(points.values)) or "none"
        raise ConfigError(f"no evaluation at {at} env steps; known: {known}")
    found = points.values[at]
    rows = [(points.trials[n].params, found[n]) for n in among if n in found]
    rows = [(params, value) for params, value in rows if math.isfinite(value)]
    if len(rows) < _FEWEST:
        hint = "" if everybody else "; --all uses the model's proposals too, which is biased"
        raise ConfigError(
            f"{len(rows)} {'' if everybody else 'random '}trials were evaluated at {at} env "
            f"steps; importance needs at least {_FEWEST}{hint}"
        )
    shares = _shares(points.study.space, rows, points.study.metric.goal, method)
    return Importance(shares, at, len(rows), not everybody, method)


def _shares(
    space: Space, rows: Sequence[tuple[Mapping[str, Any], float]], goal: str, method: Method
) -> dict[str, float]:
    import optuna

    from ..spaces.to_optuna import internal_params

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize" if goal == "maximize" else "minimize")
    for params, value in rows:
        positions, spread = internal_params(space, params)
        study.add_trial(
            optuna.trial.create_trial(params=positions, distributions=spread, value=value)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks its evaluators as experimental
        raw = _evaluator(method).evaluate(study)
    totals: dict[str, float] = dict.fromkeys(space.names, 0.0)
    for key, share in raw.items():
        totals[key.partition("#")[0]] += max(0.0, float(share))
    whole = sum(totals.values())
    scaled = {name: value / whole if whole > 0 else 0.0 for name, value in totals.items()}
    return dict(sorted(scaled.items(), key=lambda item: -item[1]))


def _evaluator(method: Method) -> Any:
    from optuna.importance import FanovaImportanceEvaluator, PedAnovaImportanceEvaluator

    if method == "ped-anova":
        return PedAnovaImportanceEvaluator()
    try:
        return FanovaImportanceEvaluator(seed=0)
    except ImportError:
        raise MissingExtraError("scikit-learn", "fanova", "importance by fANOVA") from None
