"""Random studies over analytic lanes, one kind of search each, for tests of crashes.

A case is given by its kind and number: the same number always draws the same study.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from helpers.analytic_lanes import AnalyticFactory
from hpo.spaces import Parameter, Space, make_distribution
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import (
    Confirm,
    Constraint,
    EarlyTerminate,
    Evaluation,
    Metric,
    Racing,
    SearchSpec,
    Seeds,
)
from hpo.studies.spec import Study

__all__ = ["KINDS", "REAL", "Case", "draw_case", "study_of"]

_QUANTA = {"16": 500, "32": 1000, "64x64": 2000}
_ASHA = EarlyTerminate("asha", 2_000, 3.0)
_AUDITED = EarlyTerminate("asha", 2_000, 3.0, audit=0.2)
_HYPERBAND = EarlyTerminate("hyperband", 2_000, 2.0)
_MEDIAN = EarlyTerminate("median", 2_000)
_PLATEAU = EarlyTerminate("plateau", 2_000, patience=2, tolerance=0.1)
_SKILLED = (Constraint("eval/skill", min=0.3),)


def _parameter(name: str, default: Any = None, **fields: Any) -> Parameter:
    distribution = make_distribution(fields)
    return Parameter(name, distribution, distribution.middle() if default is None else default)


_RATE = _parameter("learning_rate", 3e-4, min=1e-5, max=1.0, distribution="log_uniform")
_GAMMA = _parameter("gamma", 0.99, min=0.8, max=0.9999, distribution="one_minus_log")
_SIZES = _parameter("hidden_sizes", values=[[16], [32], [64, 64]])
_EPOCHS = _parameter("update_epochs", min=1, max=4, distribution="int_uniform")
_ENTROPY = _parameter("ent_coef", min=0.0, max=0.1)
_LAMBDA = _parameter("gae_lambda", min=0.8, max=1.0)
REAL = Space((_RATE, _GAMMA))
_BUCKETS = Space((_RATE, _SIZES, _GAMMA))
_FINITE = Space((_EPOCHS, _SIZES))


@dataclass(frozen=True)
class Case:
    """A study, its lanes, and the random numbers that determine when it is hit."""

    study: Study
    factory: AnalyticFactory
    moments: random.Random


@dataclass
class _Draft:
    """The settings that a kind may change before the study is created."""

    seeds: int
    tolerate: int
    trials: int | None
    method: str
    lanes: int
    space: Space = REAL
    quanta: dict[str, int] | None = None
    early: EarlyTerminate | None = None
    racing: Racing | None = None
    objectives: tuple[Metric, ...] = ()
    constraints: tuple[Constraint, ...] = ()


def _plain(rng: random.Random, draft: _Draft) -> None:
    draft.method = rng.choice(["random", "sobol", "tpe", "cmaes", "nsga2", "grid"])
    if draft.method == "grid":
        draft.space = _FINITE
    draft.early = rng.choice([None, _AUDITED, _HYPERBAND, _MEDIAN, _PLATEAU])


def _copying(kind: str) -> Callable[[random.Random, _Draft], None]:
    def change(rng: random.Random, draft: _Draft) -> None:
        every = rng.choice([1000, 2000, 3000, 5000])
        quantile, resample = rng.choice([0.1, 0.25, 0.5]), rng.choice([0.0, 0.25, 1.0])
        draft.early = EarlyTerminate(kind, every=every, quantile=quantile, resample=resample)
        needed = (draft.trials or 0) * draft.seeds
        draft.lanes = max(needed, rng.choice([40, needed]))
        if rng.choice([0, 0, 1]):
            draft.space = Space((*REAL.parameters, _ENTROPY, _LAMBDA))

    return change


def _buckets(rng: random.Random, draft: _Draft) -> None:
    draft.space, draft.quanta = _BUCKETS, _QUANTA
    draft.early = rng.choice([None, replace(_AUDITED, audit=0.2), _HYPERBAND])


def _racing(rng: random.Random, draft: _Draft) -> None:
    draft.seeds, draft.tolerate = rng.choice([4, 6, 8]), rng.choice([0, 1])
    draft.racing = Racing(rng.choice([2, 3]), rng.choice([0.7, 0.9]))
    draft.early = rng.choice([None, _ASHA])


def _several(rng: random.Random, draft: _Draft) -> None:
    draft.objectives = (Metric(), Metric("eval/thrift", "maximize"))
    if rng.random() < 0.5:
        draft.constraints = _SKILLED
    draft.method = rng.choice(["random", "tpe", "nsga2"])
    draft.early = rng.choice([None, _ASHA, _MEDIAN])


def _constrained(rng: random.Random, draft: _Draft) -> None:
    draft.constraints, draft.early = _SKILLED, replace(_AUDITED, audit=0.1)
    draft.method = rng.choice(["random", "tpe", "cmaes", "nsga2"])


def _budget(rng: random.Random, draft: _Draft) -> None:
    draft.space, draft.quanta = rng.choice([(_BUCKETS, _QUANTA), (REAL, {})])
    draft.early = rng.choice([None, _ASHA, _PLATEAU])
    draft.trials = None


def _paused(rng: random.Random, draft: _Draft) -> None:
    draft.space, draft.quanta = rng.choice([(_BUCKETS, _QUANTA), (REAL, {})])
    draft.early = EarlyTerminate("asha", 2_000, rng.choice([2.0, 3.0]), pause=rng.choice([3, 50]))
    if rng.random() < 0.3:
        draft.seeds, draft.racing = 4, Racing(2, 0.9)
    elif rng.random() < 0.3:
        draft.objectives = (Metric(), Metric("eval/thrift", "maximize"))
        draft.constraints = rng.choice([(), _SKILLED])
        draft.method = rng.choice(["random", "tpe", "nsga2"])
    else:
        draft.method = rng.choice(["random", "sobol", "tpe", "cmaes"])


KINDS: dict[str, Callable[[random.Random, _Draft], None]] = {
    "plain": _plain,
    "pb2": _copying("pb2"),
    "pbt": _copying("pbt"),
    "racing": _racing,
    "several objectives": _several,
    "buckets": _buckets,
    "constrained": _constrained,
    "budget": _budget,
    "paused": _paused,
}


def study_of(search: SearchSpec, early: EarlyTerminate | None, budget: Budget) -> Case:
    """Return a study with this search, over fixed hyperparameters of every kind."""
    study = Study(
        name="case",
        env=EnvSpec("CartPole-v1"),
        env_steps=16_000,
        space=_FINITE if search.method == "grid" else _BUCKETS,
        early_terminate=early,
        seeds=Seeds(2),
        budget=replace(budget, trials=None) if search.method == "grid" else budget,
        search=search,
    )
    return Case(study, AnalyticFactory(lanes=8, quanta=_QUANTA), random.Random(0))


def draw_case(kind: str, number: int) -> Case:
    """Draw a case's study; the order of draws fixes the meaning of its number."""
    rng = random.Random(number)
    rng.choice(range(8))
    seeds = rng.choice([1, 2, 3])
    tolerate = rng.choice([0, 0, 1]) if seeds > 1 else 0
    warmup, diverges = rng.choice([0, 0, 1, 2, 3]), rng.choice([0.3, 0.05, 9.0, 0.02])
    confirm = rng.choice([None, Confirm(2, 2, 2), Confirm(3, 3, 4), Confirm(1, 1, 0)])
    trials, method = rng.choice([8, 16, 24]), rng.choice(["random", "sobol", "tpe"])
    draft = _Draft(seeds, tolerate, trials, method, rng.choice([4, 8, 12, 17]))
    KINDS[kind](rng, draft)
    few, many = [None, None, 400_000], [200_000, 500_000]
    env_steps = rng.choice(many if kind == "budget" else few)
    if env_steps is not None and confirm is not None and not draft.objectives:
        env_steps += confirm.report * 16_000  # for the default, so that the search is unchanged
    study = Study(
        name="case",
        env=EnvSpec("CartPole-v1"),
        env_steps=16_000,
        space=draft.space,
        early_terminate=draft.early,
        seeds=Seeds(draft.seeds, tolerate=draft.tolerate, racing=draft.racing),
        objectives=draft.objectives,
        constraints=draft.constraints,
        confirm=confirm,
        seed=rng.randrange(10**6),
        budget=Budget(
            trials=None if draft.method == "grid" else draft.trials, env_steps=env_steps
        ),
        evaluation=Evaluation(every=rng.choice(["rungs", 3000])),
        search=SearchSpec(draft.method, ahead=rng.choice(["auto", "always", "never"])),
    )
    factory = AnalyticFactory(
        seed=study.seed,
        lanes=draft.lanes,
        block=rng.choice([1, 2, 4]) if draft.lanes % 4 == 0 else 1,
        quanta=draft.quanta or {},
        warmup_chunks=warmup,
        diverges_above=diverges,
    )
    return Case(study, factory, rng)
