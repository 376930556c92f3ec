"""Simulated searches with a known truth: are the knobs that matter named, and no others?

Configurations of nine hyperparameters (reals, an integer, choices, one that is active only for
some choice) are drawn at random or proposed by Optuna's TPE with 8 in flight; a value is the mean
of three noisy replicates. Under ASHA, three quarters of the trials are stopped at a first rung.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .common import Outcome

_HISTORIES = ("random", "tpe", "asha, first rung", "asha, the end")
_TRIALS = (32, 64, 128, 200)
_SHARES = (0.4, 0.3, 0.2, 0.1)  # shares of studies by number of trials: long histories cost most
_REPLICATES = 3
_IN_FLIGHT, _RANDOM, _ETA = 8, 0.2, 4
_STUDIES = 2_000
_EFFECT = 0.6  # share of the variance of values, for random draws
_REALS = ("a", "b", "c", "d", "e")

Params = Mapping[str, float]


def _of_a(shape: Callable[[float], float], spread: float) -> Callable[[Params], float]:
    """Return an effect of one hyperparameter with standard deviation 1 over random draws."""
    return lambda params: shape(params["a"]) / spread


EFFECTS: dict[str, tuple[str, Callable[[Params], float]]] = {
    "rising": ("a", _of_a(lambda a: a, 12**-0.5)),
    "peaked": ("a", _of_a(lambda a: -((a - 0.4) ** 2), 0.0943)),
    "cliff": ("a", _of_a(lambda a: -float(a > 0.7), 0.4583)),
    "choice": ("four", lambda params: -float(params["four"] == 2) / 0.433),
}


@dataclass(frozen=True)
class Searched:
    """One search: the configurations, and the values of trials that reached one point."""

    params: list[dict[str, float]]
    values: list[float]


def search(
    history: str, trials: int, effect: Callable[[Params], float] | None, seed: int
) -> Searched:
    """Run one search on a formula."""
    rng = np.random.default_rng(seed)
    noise = float(np.sqrt((1 - _EFFECT) / _EFFECT * _REPLICATES))
    propose = _Random(rng) if history == "random" else _Tpe(rng, seed)
    found = Searched([], [])
    first: list[float] = []
    for _ in range(trials):
        params = propose.ask()
        true = effect(params) if effect else 0.0
        one, other = (noise * rng.normal(size=_REPLICATES).mean() for _ in range(2))
        early, end = true + one, true + 0.6 * one + 0.8 * other
        first.append(early)
        stopped = history.startswith("asha") and early < np.quantile(first, 1 - 1 / _ETA)
        if history != "asha, the end" or not stopped:
            found.params.append(params)
            found.values.append(early if history == "asha, first rung" else end)
        propose.tell(early if stopped else end, stopped)
    return found


class _Random:
    """Configurations drawn at random."""

    def __init__(self, rng: np.random.Generator):
        self._rng = rng

    def ask(self) -> dict[str, float]:
        params = {name: float(self._rng.random()) for name in _REALS}
        params |= {
            "whole": float(self._rng.integers(5)),
            "two": float(self._rng.integers(2)),
            "four": float(self._rng.integers(4)),
        }
        if params["two"] == 1:
            params["under"] = float(self._rng.random())
        return params

    def tell(self, value: float, stopped: bool) -> None:
        del value, stopped


class _Tpe:
    """Optuna's TPE with several trials in flight and a share of random ones."""

    def __init__(self, rng: np.random.Generator, seed: int):
        import optuna

        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(logging.ERROR)
        sampler = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, constant_liar=True
        )
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._rng, self._random = rng, _Random(rng)
        self._running: list[tuple[optuna.Trial, float, bool]] = []

    def ask(self) -> dict[str, float]:
        if self._rng.random() < _RANDOM:
            self._study.enqueue_trial(self._random.ask())
        trial = self._asked = self._study.ask()
        params: dict[str, float] = {name: trial.suggest_float(name, 0, 1) for name in _REALS}
        params["whole"] = trial.suggest_int("whole", 0, 4)
        params["two"] = trial.suggest_categorical("two", (0, 1))
        params["four"] = trial.suggest_categorical("four", (0, 1, 2, 3))
        if params["two"] == 1:
            params["under"] = trial.suggest_float("under", 0, 1)
        return params

    def tell(self, value: float, stopped: bool) -> None:
        import optuna

        self._running.append((self._asked, value, stopped))
        if len(self._running) < _IN_FLIGHT:
            return
        trial, value, stopped = self._running.pop(int(self._rng.integers(_IN_FLIGHT)))
        trial.report(value, 1 if stopped else 4)
        if stopped:
            self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(trial, value)


def decided(found: Searched) -> tuple[str, ...]:
    """Return the hyperparameters that are named."""
    from hpo.store.importance import ImportanceColumn, decide

    columns = [
        ImportanceColumn(
            name, [params.get(name) for params in found.params], name in ("two", "four")
        )
        for name in (*_REALS, "two", "four", "under")
    ]
    whole = [params["whole"] / 4 for params in found.params]
    return decide([*columns, ImportanceColumn("whole", whole)], found.values).names


@dataclass
class _Counts:
    """How often something was observed, in how many studies."""

    hits: int = 0
    studies: int = 0

    def add(self, hit: bool) -> None:
        self.hits += hit
        self.studies += 1

    @property
    def rate(self) -> float:
        return self.hits / self.studies if self.studies else 0.0


def importance(small: bool, work: Path) -> Outcome:
    """Simulate searches; without effects none may be named, otherwise the one that matters."""
    count = 60 if small else _STUDIES
    silent = {history: _Counts() for history in _HISTORIES}
    named = {trials: _Counts() for trials in _TRIALS}
    by_effect = {effect: _Counts() for effect in EFFECTS}
    others = _Counts()
    for number in range(count):
        history = _HISTORIES[number % len(_HISTORIES)]
        trials = _trials(number // len(_HISTORIES), count // len(_HISTORIES))
        if history == "asha, the end":
            trials = max(trials, 128)  # so that a quarter of them reach it
        found = search(history, trials, None, number)
        if len(found.values) >= 10:
            silent[history].add(not decided(found))
        if history == "asha, the end":
            continue
        effect = list(EFFECTS)[number // len(_HISTORIES) % len(EFFECTS)]
        knob, formula = EFFECTS[effect]
        names = decided(search(history, trials, formula, count + number))
        named[trials].add(knob in names)
        others.add(bool(set(names) - {knob}))
        if trials >= 64:
            by_effect[effect].add(knob in names)
    enough = _Counts(
        sum(named[n].hits for n in _TRIALS if n >= 64),
        sum(named[n].studies for n in _TRIALS if n >= 64),
    )
    quiet = _Counts(sum(c.hits for c in silent.values()), sum(c.studies for c in silent.values()))
    slack = 0.08 if small else 0.0
    holds = quiet.rate >= 0.95 - slack and enough.rate >= 0.95 - slack
    numbers = (
        f"nothing matters, {quiet.studies} studies: 'nothing decided' in {quiet.rate:.1%} "
        f"({_listed(silent)}); one knob explains {_EFFECT:.0%}: named in {enough.rate:.1%} of "
        f"{enough.studies} studies of 64 to 200 trials ({_listed(by_effect)}; by trials "
        f"{_listed(named)}), another knob beside it in {others.rate:.1%}"
    )
    return Outcome(holds, numbers)


def _trials(number: int, of: int) -> int:
    """Return the number of trials in a study; short studies are the most frequent."""
    place, ends = (number * 7 % of) / of, np.cumsum(_SHARES)
    return _TRIALS[int(np.searchsorted(ends[:-1], place, side="right"))]


def _listed(
    rates: Mapping[object, _Counts] | Mapping[str, _Counts] | Mapping[int, _Counts],
) -> str:
    return ", ".join(f"{name} {counts.rate:.1%}" for name, counts in rates.items())
