"""The only module that uses the package `cmaes`, an implementation of CMA-ES.

A trial stores its generation and the point that was drawn for it. The first trial of a generation
also stores the losses of the previous one. After a crash the strategy is rebuilt from these
records, so its state is never stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...spaces.space import Parameter, Space
from ..seeds import generator, integer
from .history_window import estimates, penalised
from .registry import Draw, PriorTrial, ProposalBatch, SamplerSpec, options_of

_GENERATION, _POINT, _TOLD = "cmaes:generation", "cmaes:point", "cmaes:told"
_ENOUGH_TO_START_FROM = 10  # trials of an earlier study that suffice as a start


@dataclass(frozen=True)
class _Generation:
    """A complete generation: its trials, and the loss used for each."""

    trials: tuple[int, ...]
    losses: tuple[float, ...]


def modelled(space: Space) -> list[tuple[str, Parameter]]:
    """Return (key, parameter) for each range that is always active; CMA-ES adapts only these."""
    return [
        (key, parameter)
        for key, parameter in space.keyed
        if not parameter.when
        and (axis := parameter.distribution.axis).kind != "choice"
        and axis.low < axis.high
    ]


class CmaEs:
    """CMA-ES (Hansen 2016) on axis positions; each restart doubles the population.

    A generation ends when the number of its ended trials equals the population size; trials that
    end later are not used. The strategy receives points as drawn, before rounding to integers.

    By default, the population size is 4 + 3 ln d (as in the library) or half the number of trials
    drawn before the first generation was complete, whichever is larger. With many lanes, a small
    population would leave most running trials unused.
    """

    def __init__(self, spec: SamplerSpec):
        self._space, self._seed = spec.space, spec.seed
        self._options = options_of("cmaes", spec.options)
        self._modelled = modelled(spec.space)
        if not self._modelled:
            raise ConfigError(
                "search method 'cmaes' needs ranges that are always active, but this space has "
                "none; use method: tpe"
            )
        if self._options["popsize"] == 1:
            raise ConfigError(
                "search method 'cmaes': popsize is 1; allowed: 0 (automatic), or 2 or more"
            )
        self._index = {key: index for index, (key, _) in enumerate(self._modelled)}
        self._known: _Strategy | None = None

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> ProposalBatch:
        chain = self._recorded_generations(history)
        strategy = self._strategy_after(chain, history)
        new = self._complete_generation(history, strategy)
        if new is not None:
            strategy = self._strategy_after([*chain, new], history)
        return _CmaEsBatch(self, strategy, new)

    # ------------------------------------------------------------------ draws

    def draw(self, strategy: _Strategy, trial: int, attempt: int) -> tuple[dict[str, Any], Any]:
        strategy.cma.reseed_rng(integer(self._seed, "cmaes", trial, attempt))
        point = strategy.cma.ask()
        rest = generator(self._seed, "cmaes-rest", trial, attempt)

        def choose(key: str, parameter: Parameter) -> Any:
            index = self._index.get(key)
            share = float(rest.random() if index is None else point[index])
            return parameter.distribution.outward(parameter.distribution.axis.at(share))

        return self._space.resolve(choose), point

    # ------------------------------------------------------------------ generations

    def _recorded_generations(self, history: Sequence[PriorTrial]) -> list[_Generation]:
        found: dict[int, _Generation] = {}
        for past in history:
            if _TOLD in past.attributes:
                recorded = past.attributes[_TOLD]
                record = _Generation(tuple(recorded["trials"]), tuple(recorded["losses"]))
                found.setdefault(past.attributes[_GENERATION], record)
        return [found[generation] for generation in sorted(found)]

    def _complete_generation(
        self, history: Sequence[PriorTrial], strategy: _Strategy
    ) -> _Generation | None:
        """Return the newest generation, ordered by trial number; None if it is incomplete."""
        generation = len(strategy.chain)
        members = [past for past in history if past.attributes.get(_GENERATION) == generation]
        if not members:
            return None
        size = strategy.cma.population_size
        if not generation:
            least = 4 + math.floor(3 * math.log(len(self._modelled)))
            size = self._options["popsize"] or max(least, len(members) // 2)
        losses = penalised(estimates(history), history)
        ended = [past.trial for past in members if past.trial in losses][:size]
        if len(ended) < size:
            return None
        return _Generation(tuple(ended), tuple(losses[trial][0] for trial in ended))

    def _strategy_after(
        self, chain: Sequence[_Generation], history: Sequence[PriorTrial]
    ) -> _Strategy:
        """Return the strategy after these generations, from the cached one if possible."""
        known = self._known
        if known is None or list(chain[: len(known.chain)]) != known.chain:
            size = None
            if chain:
                size = len(chain[0].trials)
            known = self._new_strategy(history, size)
        points = {
            past.trial: past.attributes[_POINT] for past in history if _POINT in past.attributes
        }
        for generation in chain[len(known.chain) :]:
            if not known.chain and known.cma.population_size != len(generation.trials):
                known = self._new_strategy(history, len(generation.trials))
            pairs = zip(generation.trials, generation.losses, strict=True)
            known.cma.tell([(np.array(points[trial]), loss) for trial, loss in pairs])
            known.chain.append(generation)
            if known.cma.should_stop():
                known.restarts += 1
                size = 2 * known.cma.population_size
                rng = generator(self._seed, "cmaes-restart", known.restarts)
                known.cma = self._make_cma(
                    rng.random(len(self._modelled)), self._options["sigma"], None, size
                )
        self._known = known
        return known

    def _new_strategy(self, history: Sequence[PriorTrial], size: int | None) -> _Strategy:
        import cmaes

        earlier = [past for past in history if past.trial < 0 and past.loss is not None]
        if len(earlier) < _ENOUGH_TO_START_FROM:
            middle = np.full(len(self._modelled), 0.5)
            return _Strategy(self._make_cma(middle, self._options["sigma"], None, size))
        losses = penalised({past.trial: (past.loss or 0.0,) for past in earlier}, earlier)
        solutions = [(self._point_of(past.params), losses[past.trial][0]) for past in earlier]
        mean, sigma, covariance = cmaes.get_warm_start_mgd(solutions)
        return _Strategy(self._make_cma(np.clip(mean, 0.0, 1.0), sigma, covariance, size))

    def _make_cma(self, mean: Any, sigma: float, covariance: Any, size: int | None) -> Any:
        import cmaes

        dimensions = len(self._modelled)
        return cmaes.CMA(
            mean=mean,
            sigma=max(sigma, 1e-6),
            bounds=np.array([[0.0, 1.0]] * dimensions),
            n_max_resampling=10 * dimensions,
            population_size=size,
            cov=covariance,
            lr_adapt=self._options["lr_adapt"],  # Nomura et al. 2023, for noisy objectives
            seed=0,  # every draw sets its own seed
        )

    def _point_of(self, params: Mapping[str, Any]) -> np.ndarray:
        pairs = [(p.distribution, params[p.name]) for _, p in self._modelled]
        return np.array([one.axis.share(one.inward(value)) for one, value in pairs])


@dataclass
class _Strategy:
    cma: Any  # optimiser object of the library
    # generations from which it has learnt
    chain: list[_Generation] = field(default_factory=list[_Generation])
    restarts: int = 0


class _CmaEsBatch:
    """Draws from one generation; its first kept trial stores the previous generation's losses."""

    def __init__(self, method: CmaEs, strategy: _Strategy, new: _Generation | None):
        self._method, self._strategy, self._new = method, strategy, new
        self._generation = len(strategy.chain)
        self._last: Draw | None = None

    def draw(self, trial: int, attempt: int) -> Draw | None:
        params, point = self._method.draw(self._strategy, trial, attempt)
        note: dict[str, Any] = {_GENERATION: self._generation, _POINT: [float(x) for x in point]}
        if self._new is not None:
            note[_TOLD] = {"trials": list(self._new.trials), "losses": list(self._new.losses)}
        self._last = Draw(params, note)
        return self._last

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        if self._last is not None and self._last.params == params:
            self._new = None
        self._last = None
