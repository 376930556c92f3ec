"""Population-based training at a rung: the worst trials copy the best ones.

All trials of the study run at the same time. At every rung, trials in the lower quantile and
diverged trials copy the training state of a trial in the upper quantile, and get new
hyperparameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ...spaces.space import DRAWS
from ...store.rows import Stream, TrialState
from ...studies.search_spec import EarlyTerminate
from ...studies.spec import Study
from ...studies.stopping_rules import rule_row
from ..lanes.contract import LaneChange
from ..rules.pbt_perturb import Explorer, Gain, Situation
from ..rules.registry import make_explorer, rank_of
from ..seeds import generator
from ..state.buckets import Bucket
from ..state.search_state import SearchState
from ..state.trials import RunState, Segment, Trial, lineage_of
from .rung_decisions import is_due, value_at

WINDOW = 256  # number of intervals given to a model of the gains


@dataclass(frozen=True)
class Evolver:
    """The population rule of one study."""

    study: Study
    early: EarlyTerminate
    explorer: Explorer  # gives copies their hyperparameters
    uses_gains: bool  # whether the explorer uses gains

    @property
    def rule(self) -> str:
        return f"{self.early.type} quantile={self.early.quantile:g}"

    def new_params(
        self,
        trial: int,
        source: Mapping[str, Any],
        situation: Situation,
        resolve: Callable[[Mapping[str, Any]], object],
    ) -> dict[str, Any]:
        """Return a copy's new hyperparameters; if none are valid, keep the copied trial's."""
        space = self.study.space
        for attempt in range(DRAWS):
            rng = generator(self.study.seed, "explore", trial, situation.rung, attempt)
            params = self.explorer.explore(source, situation, rng)
            if params == source or space.forbidden(params) is not None:
                continue
            with suppress(ConfigError):  # contradictory hyperparameters are drawn again
                resolve(params)
                return params
        return dict(source)


def make_evolver(study: Study) -> Evolver | None:
    """Return a study's population rule; None if its trials do not copy each other."""
    early, explorer = study.early_terminate, make_explorer(study)
    if early is None or explorer is None:
        return None
    return Evolver(study, early, explorer, uses_gains=rule_row(early.type).uses_gains)


def set_aside(trial: Trial, buckets: Mapping[str, Bucket]) -> bool:
    """Return whether a diverged trial waits for another trial's state, because a rung is ahead."""
    bucket = buckets.get(trial.bucket)
    return bucket is not None and trial.rung + 1 < len(bucket.schedule.rungs)


def end_hopeless(search_state: SearchState) -> None:
    live = search_state.live()
    if live and all(trial.lost for trial in live):
        for trial in live:
            search_state.end(trial, TrialState.DIVERGED, trial.error)


def evolve(
    search_state: SearchState, evolver: Evolver, buckets: Mapping[str, Bucket]
) -> Iterator[tuple[Bucket, list[LaneChange]]]:
    """Judge every trial that is at a rung; yield the lane changes, rung by rung."""
    for key, bucket in buckets.items():
        here = [trial for trial in search_state.live() if trial.bucket == key]
        for rung in range(len(bucket.schedule.rungs)):
            ready = [trial for trial in here if not trial.lost and is_due(trial, rung)]
            if ready:
                lost = [trial for trial in here if trial.lost and trial.rung == rung - 1]
                yield bucket, _Rung(search_state, evolver, bucket, rung, ready, lost).carry_out()


@dataclass
class _Rung:
    """A population at one rung."""

    search_state: SearchState
    evolver: Evolver
    bucket: Bucket
    rung: int
    ready: list[Trial]  # trials at this rung
    lost: list[Trial]  # trials that diverged since the last rung

    def __post_init__(self):
        value = {
            trial.number: value_at(self.search_state, trial, self.rung) for trial in self.ready
        }
        self.value = value
        self.loss = {number: self.search_state.objective.loss(value[number]) for number in value}

    @property
    def env_steps(self) -> int:
        """The env steps of a replicate at this rung."""
        return self.bucket.schedule.rungs[self.rung] * self.bucket.schedule.quantum

    def carry_out(self) -> list[LaneChange]:
        """Record a decision for every trial, and make the worst trials copy the best."""
        self._note_losses()
        pairs = self.pairs()
        kept = [self.loss[trial.number] for trial in self.ready if trial.number not in pairs]
        decided = [
            (trial.params, self.loss[trial.number])
            for trial in self.ready
            if trial.number not in pairs
        ]
        changes: list[LaneChange] = []
        before = {trial.number: (trial.params, lineage_of(trial)) for trial in self.ready}
        for trial in [*self.ready, *self.lost]:
            trial.report(self.value.get(trial.number, math.nan), self.env_steps)
            self.search_state.touch(trial)
            source, old = pairs.get(trial.number), trial.params
            if source is not None:
                params, way = before[source.number]
                situation = Situation(
                    self.rung,
                    self.loss[source.number],
                    self.search_state.state.gains,
                    tuple(decided),
                )
                new = self.evolver.new_params(
                    trial.number, params, situation, self.search_state.resolved
                )
                decided.append((new, self.loss[source.number]))
                changes += self._copy_source(trial, source, new, way)
            self._record_decision(trial, source, old, max(kept, default=None))
        return changes

    def pairs(self) -> dict[int, Trial]:
        """Return the source trial of each trial that copies, by the copying trial's number."""
        ranked = sorted(self.ready, key=lambda trial: (self.loss[trial.number], trial.number))
        count = len(self.ready) + len(self.lost)
        share = max(1, math.floor(self.evolver.early.quantile * count))
        upper = ranked[:share]
        worst = ranked[max(share, len(ranked) - max(0, share - len(self.lost))) :]
        chosen: dict[int, Trial] = {}
        for trial in sorted([*worst, *self.lost], key=lambda trial: trial.number):
            rng = generator(self.evolver.study.seed, "exploit", trial.number, self.rung)
            source = upper[int(rng.integers(len(upper)))]
            if trial.lost or self.loss[trial.number] > self.loss[source.number]:
                chosen[trial.number] = source
        return chosen

    def _note_losses(self) -> None:
        gains: list[Gain] = []
        if not self.evolver.uses_gains or self.rung == 0:
            return
        for trial in self.ready:
            before = self.search_state.objective.loss(
                value_at(self.search_state, trial, self.rung - 1)
            )
            after = self.loss[trial.number]
            gains.append(Gain(self.rung, dict(trial.params), before, after))
        self.search_state.state.learn(gains, WINDOW)

    def _copy_source(
        self, trial: Trial, source: Trial, params: dict[str, Any], way: tuple[Segment, ...]
    ) -> list[LaneChange]:
        """Make each replicate resume from the source's replicate with the same seed."""
        own = Segment(self.env_steps, trial.number, params)
        sources = source.runs_of(Stream.SEARCH)
        trial.adopt(params, [part.as_json() for part in (*way, own)], sources)
        resolved = self.search_state.resolved_of(trial.number)
        changes: list[LaneChange] = []
        for run, other in zip(trial.runs_of(Stream.SEARCH), sources, strict=True):
            if other.state is RunState.RUNNING and other.lane is not None:
                changes.append(LaneChange(self.bucket.claim(run), resolved, other.lane))
        return changes

    def _record_decision(
        self, trial: Trial, source: Trial | None, old: Mapping[str, Any], cutoff: float | None
    ) -> None:
        if cutoff is not None:
            cutoff = self.search_state.objective.loss(cutoff)
        judged = sorted(self.loss.values())
        loss = self.loss.get(trial.number, math.inf)
        action, copied = "continue", dict[str, Any]()
        if source is not None:
            action = "copy"
            copied = {
                "source": source.number,
                "old_params": dict(old),
                "params": dict(trial.params),
            }
        self.search_state.decide(
            trial,
            action=action,
            rule=self.evolver.rule,
            cutoff=cutoff,
            rank=rank_of(loss, judged),
            judged=len(self.ready) + len(self.lost),
            **copied,
        )
