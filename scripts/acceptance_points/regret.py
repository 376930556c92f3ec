"""Search point 2: proposals through our loop are as good as from the sampler's own library.

Both sides have the same number of trials in flight. Our lanes all take equally long; on the other
side equally many trials are asked for, and reported together when they are done. Proposals drawn
ahead would also be in flight, so none are. Each sampler is a separate case, see `cases`.
"""

from __future__ import annotations

import math
import random
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import Case, run_cases
from .common import Outcome

IN_FLIGHT = 8
_LIMIT = 1.1
Params = dict[str, Any]


def regret(small: bool, work: Path) -> Outcome:
    """Run the requested cases, by default all, one per sampler."""
    cases = {name: CASES[name] for name in ("tpe", "cmaes")} if small else CASES
    found = run_cases(cases, "regret.json", small, work)
    default = height(space().default())
    words = f"{IN_FLIGHT} in flight, regret of the default {default:.2f}; {found.numbers}"
    return Outcome(found.passed, words)


def _case(seeds: int, trials: int) -> Case:
    def check(method: str, small: bool, work: Path) -> Outcome:
        """Compare the regret after a number of trials, seed by seed."""
        numbers, most = (range(3), 40) if small else (range(seeds), trials)
        ours = [through_loop(method, seed, most) for seed in numbers]
        theirs = [LIBRARIES[method](seed, most) for seed in numbers]
        chance = [through_loop("random", seed, most) for seed in numbers]
        ratio, low, high = ratio_interval(ours, theirs)
        words = (
            f"{_mean(ours):.4f} / own library {_mean(theirs):.4f} = {ratio:.2f} "
            f"[{low:.2f}, {high:.2f}], random {_mean(chance):.4f}"
        )
        return Outcome(low <= _LIMIT, words)

    return check


def ratio_interval(
    ours: Sequence[float], theirs: Sequence[float], resamples: int = 10_000
) -> tuple[float, float, float]:
    """Return the ratio of mean regrets, with its lower and upper 95 % bounds.

    The bounds are one-sided, each with an error of 5 %, from a bootstrap over pairs of seeds.
    """
    rng, count = random.Random(0), len(ours)
    drawn = []
    for _ in range(resamples):
        picks = [rng.randrange(count) for _ in range(count)]
        drawn.append(sum(ours[i] for i in picks) / max(1e-12, sum(theirs[i] for i in picks)))
    drawn.sort()
    ratio = sum(ours) / max(1e-12, sum(theirs))
    return ratio, drawn[int(0.05 * resamples)], drawn[int(0.95 * resamples)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# ---------------------------------------------------------------------- the landscape


def space() -> Any:
    """Return five hyperparameters: real, logarithmic and integer ones."""
    from hpo.spaces import Parameter, Space, make_distribution

    def parameter(name: str, default: Any, **fields: Any) -> Any:
        return Parameter(name, make_distribution(fields), default)

    return Space(
        (
            parameter("learning_rate", 3e-4, min=1e-5, max=1e-1, distribution="log_uniform"),
            parameter("gamma", 0.99, min=0.8, max=0.9999, distribution="one_minus_log"),
            parameter("gae_lambda", 0.95, min=0.5, max=1.0, distribution="uniform"),
            parameter("ent_coef", 0.01, min=1e-4, max=0.1, distribution="log_uniform"),
            parameter("update_epochs", 4, min=1, max=10, distribution="int_uniform"),
        )
    )


_BEST = {"learning_rate": 0.62, "gamma": 0.55, "gae_lambda": 0.8, "ent_coef": 0.3}
_WIDTH = {"learning_rate": 3.0, "gamma": 1.5, "gae_lambda": 0.7, "ent_coef": 0.7}


def height(params: Params) -> float:
    """Return a configuration's distance from the best: 0 for the best, about 1 far away.

    The landscape is a typical one: a curved valley (learning rate against epochs) with ripples.
    """
    shares = {
        parameter.name: parameter.distribution.axis.share(
            parameter.distribution.inward(params[parameter.name])
        )
        for parameter in space().parameters
        if parameter.name in _BEST
    }
    epochs = (params["update_epochs"] - 1) / 9
    shifted = {**_BEST, "learning_rate": _BEST["learning_rate"] - 0.15 * (epochs - 0.5)}
    away = {name: shares[name] - shifted[name] for name in _BEST}
    bowl = sum(_WIDTH[name] * gap**2 for name, gap in away.items()) + 0.5 * (epochs - 0.5) ** 2
    bowl -= 0.5 * (1 / 18) ** 2  # the nearest integer number of epochs
    ripple = sum(1.0 - math.cos(6.0 * math.pi * gap) for gap in away.values())
    return max(0.0, bowl + 0.02 * ripple)


# ---------------------------------------------------------------------- our loop


def through_loop(method: str, seed: int, trials: int) -> float:
    """Return the smallest height that a study finds."""
    from hpo.search.run import RunOptions, run
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.execution_spec import Budget, PopulationSpec
    from hpo.studies.search_spec import Metric, SearchSpec
    from hpo.studies.spec import Study

    study = Study(
        name="regret",
        env=EnvSpec("CartPole-v1"),
        env_steps=4_000,
        space=space(),
        seed=seed,
        metric=Metric(goal="minimize"),
        search=SearchSpec(method, random_share=0.0, ahead="never"),
        population=PopulationSpec(lanes=IN_FLIGHT),
        budget=Budget(trials=trials),
    )
    with tempfile.TemporaryDirectory() as folder:
        settings = RunOptions(commit_seconds=1e9, publish_seconds=1e9)
        results = run(study, Path(folder) / "s", _Factory(), (), settings)
    values = [entry.value for entry in results.leaderboard if entry.value is not None]
    return min(values)


@dataclass(frozen=True)
class _Factory:
    """Lanes whose return is the height of their configuration."""

    backend: str = "analytic"
    device_count: int = 1

    def resolve(self, config: Params) -> Any:
        from hpo.search.lanes.contract import Resolved

        return Resolved(config, "one", 1_000)

    def make(self, resolved: Any, lanes: int | None) -> _Lanes:
        return _Lanes(lanes or IN_FLIGHT)


@dataclass
class _Lanes:
    lanes: int
    steps_per_chunk: int = 1_000
    warmup_chunks: int = 0
    block: int = 1
    compiles: int = 0
    _configs: dict[int, Params] = field(default_factory=dict)

    def advance(self, refills: Sequence[Any], busy: Sequence[int]) -> Any:
        import numpy as np

        from hpo.search.lanes.contract import ChunkResult

        self._configs |= {refill.lane: dict(refill.resolved.config) for refill in refills}
        return ChunkResult({}, np.zeros(self.lanes, dtype=bool), 0.0)

    def evaluate(self, lanes: Sequence[int]) -> list[Any]:
        import numpy as np

        from hpo.search.lanes.contract import EvaluationResult

        one = np.ones(1, dtype=np.int64)
        return [EvaluationResult(np.array([height(self._configs[i])]), one, {}) for i in lanes]

    def save(self, directory: Path) -> None:
        directory.mkdir()

    def restore(self, directory: Path) -> None:
        raise NotImplementedError("nothing is resumed here")

    def export_policy(
        self, lane: int, resolved: Any, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        directory.mkdir()


# ---------------------------------------------------------------------- the libraries


def _optuna(make: Callable[[int], Any]) -> Callable[[int, int], float]:
    def search(seed: int, trials: int) -> float:
        import optuna

        from hpo.spaces.via_optuna import internal_params, suggest

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optuna.logging.set_verbosity(optuna.logging.ERROR)
            study = optuna.create_study(sampler=make(seed))
            own = space()
            study.enqueue_trial(internal_params(own, own.default())[0])
            best, left = math.inf, trials
            while left:
                asked = [study.ask() for _ in range(min(IN_FLIGHT, left))]
                heights = [height(suggest(trial, own)) for trial in asked]
                for trial, found in zip(asked, heights, strict=True):
                    study.tell(trial, found)
                best, left = min(best, *heights), left - len(asked)
        return best

    return search


def _tpe(seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _gp(seed: int) -> Any:
    import optuna

    return optuna.samplers.GPSampler(seed=seed)


def _cmaes(seed: int) -> Any:
    import optuna

    return optuna.samplers.CmaEsSampler(seed=seed)


def _nsga2(seed: int) -> Any:
    import optuna

    return optuna.samplers.NSGAIISampler(seed=seed)


def _smac(seed: int, trials: int) -> float:
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory.dataclasses import TrialValue

    from hpo.spaces.via_configspace import from_configuration, to_configspace

    own, best, left = space(), height(space().default()), trials - 1
    of = HyperparameterOptimizationFacade
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scenario = Scenario(
            to_configspace(own, seed),
            output_directory=Path(folder),
            deterministic=True,
            n_trials=trials,
            seed=seed,
        )
        design = of.get_initial_design(scenario, n_configs=10)
        smac = of(scenario, initial_design=design, overwrite=True, logging_level=False)
        while left:
            asked = [smac.ask() for _ in range(min(IN_FLIGHT, left))]
            for info in asked:
                found = height(from_configuration(own, dict(info.config)))
                smac.tell(info, TrialValue(cost=found), save=False)
                best = min(best, found)
            left -= len(asked)
    return best


LIBRARIES: dict[str, Callable[[int, int], float]] = {
    "tpe": _optuna(_tpe),
    "gp": _optuna(_gp),
    "cmaes": _optuna(_cmaes),
    "nsga2": _optuna(_nsga2),
    "smac": _smac,
}

CASES: dict[str, Case] = {
    **dict.fromkeys(("tpe", "cmaes", "nsga2"), _case(seeds=20, trials=200)),
    **dict.fromkeys(("gp", "smac"), _case(seeds=8, trials=60)),
}
