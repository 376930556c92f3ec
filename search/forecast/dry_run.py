"""A study without its training: the engine's own decisions, over lanes that only count.

Everything that decides how much there is to do is the real thing: budget, lanes, buckets, rungs,
seeds that race, the confirm stage. Only what an evaluation shows is made up: trials are equally
good in the mean, and come in a random order. The default is the worst, so that the seeds on which
it runs beside the winner are counted. Nothing is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...environments.references import Reference
from ...studies.chunk_sizes import quanta_of
from ...studies.expected_cost import expected_steps
from ...studies.several_environments import environments_of
from ...studies.spec import Checkpoint, Executor, SearchSpec, Study
from ..engine.engine import engine_in_memory
from ..engine.interrupts import Interrupts
from ..engine.loop import Loop
from ..engine.pbt_step import make_evolver
from ..engine.refill import Intake
from ..lanes.contract import Change, ChunkResult, EvaluationResult, Imagined, Refill, Resolved
from ..rules.registry import make_pruner
from ..samplers.proposal_queue import AskAhead, Proposer
from ..samplers.registry import make_sampler
from ..seeds import generator
from ..state.loop_state import Phase
from ..state.remaining_work import groups_of


@dataclass(frozen=True)
class Lanes:
    """What a rehearsal must know of a bucket's program.

    Attributes:
        lanes, block, warmup_chunks: as of `Population`.
        width: lanes that one call of the evaluation takes.
        parts: over several environments the program of each.
    """

    lanes: int
    block: int
    warmup_chunks: int
    width: int
    parts: tuple[Part, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Part:
    """The program of one of several environments.

    Attributes:
        asked: lanes, as it is asked for them.
        lanes: what it is like then.
    """

    asked: int | None
    lanes: Lanes


@dataclass(frozen=True)
class First:
    """A program that a study runs.

    Attributes:
        bucket: whose it is.
        resolved: a configuration of it; over several environments that of one of them.
        lanes: that the engine asked for.
        environment: its number.
    """

    bucket: str
    resolved: Resolved
    lanes: int | None
    environment: int = 0


@dataclass
class Counted:
    """What one program did in one phase.

    Attributes:
        chunks: dispatched.
        blocks: with a busy lane, of all chunks.
        calls: of the evaluation program.
        evaluations: of a replicate each.
    """

    chunks: float = 0.0
    blocks: float = 0.0
    calls: float = 0.0
    evaluations: float = 0.0

    def times(self, share: float) -> Counted:
        """Return so many times as much."""
        return Counted(*(share * value for value in vars(self).values()))


@dataclass(frozen=True)
class Rehearsed:
    """What a study did.

    Attributes:
        counts: (program, phase) -> what it did there; all confirming is `choose`. A bucket has
            one program, over several environments one for each.
        firsts: program -> what it is.
        env_steps: of training.
        confirm_env_steps: of these, of the confirm stage.
        whole: it came to its end.
    """

    counts: Mapping[tuple[str, Phase], Counted]
    firsts: Mapping[str, First]
    env_steps: int
    confirm_env_steps: int
    whole: bool

    def of(self, phase: Phase) -> dict[str, Counted]:
        """Return program -> what it did in a phase."""
        return {program: found for (program, at), found in self.counts.items() if at is phase}


_LANE_CHUNKS = 20_000  # that are rehearsed; a search that has more is rehearsed in part
_FEWEST_WAVES = 3
_SEED_NOISE = 0.3  # of an evaluation, beside the spread of trials
_WORST = -4.0  # in the same measure: the default
_PATIENCE = 20.0  # seconds


def rehearse(
    study: Study,
    resolve: Callable[[Mapping[str, Any]], Resolved],
    lanes_of: Callable[[Resolved, int | None], Lanes],
    seed: int = 0,
) -> Rehearsed:
    """Rehearse a study; a long search in part, its counts those of the whole.

    Args:
        study: its own code has been imported.
        resolve: as of `PopulationFactory`.
        lanes_of: configuration, lanes asked for -> what its program is like.
        seed: of what evaluations show.
    """
    asked = _simplified(study)
    default = resolve(asked.default())
    most = _most_trials(asked, lanes_of(default, asked.population.lanes).lanes)
    part = asked
    if asked.budget.trials is None or asked.budget.trials > most:
        part = replace(asked, budget=replace(asked.budget, trials=most))
    found = _run(part, resolve, lanes_of, seed)
    if part is asked or not found.whole:
        return found
    share = _share(asked, part, found, default)
    counts = {
        (program, phase): count.times(share if phase is Phase.SEARCH else 1.0)
        for (program, phase), count in found.counts.items()
    }
    return replace(found, counts=counts)


def _simplified(study: Study) -> Study:
    """Return the study without what changes nothing in how much it trains, or takes time itself.

    A method that learns is rehearsed as one that draws at random. On several environments what
    evaluations show is the score, the same on all of them.
    """
    if study.more_envs:
        study = _scored(study)
    search = SearchSpec("random")
    if study.search.method in ("grid", "sobol"):
        search = SearchSpec(study.search.method, options=study.search.options)
    return replace(
        study,
        search=search,
        budget=replace(study.budget, wall_seconds=None),
        checkpoint=Checkpoint(keep_best=0),
        executor=Executor(),
        loggers=(),
        baselines=(),
        log_every=None,
    )


def _scored(study: Study) -> Study:
    """Return a study over several environments whose scores are the returns themselves."""
    envs = [replace(one, scale=Reference(0.0, 1.0)) for one in environments_of(study)]
    metric = replace(study.metric, name="eval/return_mean")
    objectives = (metric, *study.objectives[1:]) if study.objectives else ()
    return replace(
        study, env=envs[0], more_envs=tuple(envs[1:]), metric=metric, objectives=objectives
    )


def _most_trials(study: Study, lanes: int) -> int:
    """Return how many trials are rehearsed at most; where a population evolves it is all."""
    early, seeds = study.early_terminate, study.seeds.first
    if early is not None and early.evolves:
        return study.budget.trials or 1
    config = study.default()
    chunks = quanta_of(study, config["num_envs"] * config["rollout_length"]).chunks
    return max(_FEWEST_WAVES * lanes // seeds, _LANE_CHUNKS // (chunks * seeds), 8)


def _share(asked: Study, part: Study, found: Rehearsed, default: Resolved) -> float:
    """Return how many times as long the whole search is."""
    shares = []
    if asked.budget.trials is not None and part.budget.trials:
        shares.append(asked.budget.trials / part.budget.trials)
    if asked.budget.env_steps is not None:
        config = asked.default()
        quanta = quanta_of(asked, config["num_envs"] * config["rollout_length"])
        confirm = expected_steps(asked, quanta).confirm
        searched = max(1, found.env_steps - found.confirm_env_steps)
        shares.append(max(0, asked.budget.env_steps - confirm) / searched)
    return max(1.0, min(shares, default=1.0))


def _run(
    study: Study,
    resolve: Callable[[Mapping[str, Any]], Resolved],
    lanes_of: Callable[[Resolved, int | None], Lanes],
    seed: int,
) -> Rehearsed:
    factory = _Factory(study, resolve, lanes_of, seed)
    engine = engine_in_memory(study, factory)
    with closing(AskAhead(Proposer(study, make_sampler(study)))) as ahead:
        loop = Loop(engine, Intake(engine, ahead), make_pruner(study), make_evolver(study))
        outcome = loop.run(_Deadline())
    usage, whole = engine.ledger.state.usage, outcome == "finished"
    counts, firsts = factory.counts, factory.firsts
    return Rehearsed(counts, firsts, usage.env_steps, usage.confirm_env_steps, whole)


class _Deadline(Interrupts):
    """Ends a rehearsal that nobody would wait for."""

    def __init__(self):
        super().__init__()
        self._end = time.monotonic() + _PATIENCE

    @property
    def requested(self) -> bool:
        """Whether it is time."""
        return time.monotonic() > self._end


# ---------------------------------------------------------------------- lanes that count


@dataclass
class _Factory:
    """Makes populations that count; see `PopulationFactory`."""

    study: Study
    resolve_config: Callable[[Mapping[str, Any]], Resolved]
    lanes_of: Callable[[Resolved, int | None], Lanes]
    seed: int
    counts: dict[tuple[str, Phase], Counted] = field(default_factory=dict)
    firsts: dict[str, First] = field(default_factory=dict)
    backend: str = "none"
    device_count: int = 1

    def __post_init__(self) -> None:
        self.rng = generator(self.study.seed, "rehearsal", self.seed)
        self.sign = 1.0 if self.study.metric.goal == "maximize" else -1.0
        self.default = self.study.default()

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`."""
        return self.resolve_config(config)

    def make(self, resolved: Resolved, lanes: int | None) -> _Population:
        """See `PopulationFactory`."""
        about, bucket = self.lanes_of(resolved, lanes), resolved.bucket
        if not about.parts:
            self.firsts[bucket] = First(bucket, resolved, lanes)  # the last one is what it keeps
        for at, part in enumerate(about.parts):
            first = First(bucket, resolved.payload[at], part.asked, at)
            self.firsts[_named(bucket, at)] = first
        return _Population(self, resolved, about)

    def baseline(self, name: str, resolved: Resolved, seeds: Sequence[Any]) -> Any:
        """See `PopulationFactory`; a rehearsal has none."""
        raise NotImplementedError


def _named(bucket: str, environment: int) -> str:
    """Return the name of a program of one of several environments."""
    return f"{bucket}, environment {environment}"


class _Values(dict[str, np.ndarray]):
    """Whatever metric a study asks for."""

    def __init__(self, value: float):
        super().__init__()
        self._value = np.array([value])

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> np.ndarray:
        return self._value


class _Population(Imagined):
    """Lanes that count what they are asked to do; see `Population`."""

    def __init__(self, factory: _Factory, resolved: Resolved, about: Lanes):
        self._factory = factory
        programs = {_named(resolved.bucket, n): p.lanes for n, p in enumerate(about.parts)}
        self._programs = programs or {resolved.bucket: about}
        self.lanes, self.block = about.lanes, about.block
        self.warmup_chunks, self.steps_per_chunk = about.warmup_chunks, resolved.steps_per_chunk
        self._skill = np.zeros(self.lanes)
        self._chunks = np.zeros(self.lanes)
        self._phases = [Phase.SEARCH] * self.lanes
        self._skills: dict[int, tuple[Resolved, float]] = {}

    def _counts(self, lanes: Sequence[int]) -> list[tuple[Lanes, Counted]]:
        """Return each program of the bucket, and what it did in the phase of some lanes."""
        confirms = self._phases[lanes[0]] is not Phase.SEARCH
        phase = Phase.CHOOSE if confirms else Phase.SEARCH
        return [
            (about, self._factory.counts.setdefault((name, phase), Counted()))
            for name, about in self._programs.items()
        ]

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """See `Population`."""
        for refill in refills:
            self._skill[refill.lane] = self._skill_of(refill.resolved)
            self._chunks[refill.lane] = 0.0
            phase = Phase.SEARCH if str(refill.stream) == "search" else Phase.CHOOSE
            self._phases[refill.lane] = phase
        self._chunks[list(busy)] += 1.0
        for about, count in self._counts(busy):
            count.chunks += 1
            count.blocks += groups_of(busy, about.block)
        return ChunkResult({}, np.zeros(self.lanes, bool), 0.0)

    def _skill_of(self, resolved: Resolved) -> float:
        """Return how good a configuration is: the same for all seeds of a trial."""
        drawn = float(self._factory.rng.standard_normal())
        skill = _WORST if resolved.config == self._factory.default else drawn
        found = self._skills.setdefault(id(resolved), (resolved, skill))
        return found[1]

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """See `Population`: a little better with every chunk, so that no trial stands still."""
        for about, count in self._counts(lanes):
            count.calls += math.ceil(len(lanes) / about.width)
            count.evaluations += len(lanes)
        noise = _SEED_NOISE * self._factory.rng.standard_normal(len(lanes))
        at = list(lanes)
        shown = self._factory.sign * (self._skill[at] + noise + self._chunks[at])
        each = self._factory.study.spread  # one episode on each environment
        return [
            EvaluationResult(
                np.full(each, value),
                np.full(each, max(1, round(1e6 + 1e4 * value))),
                _Values(value),
            )
            for value in shown
        ]

    def change(self, changes: Sequence[Change]) -> None:
        """See `Population`."""
        skill, chunks = self._skill.copy(), self._chunks.copy()
        for change in changes:
            source = change.lane if change.source is None else change.source
            self._skill[change.lane] = skill[source]
            self._chunks[change.lane] = chunks[source]

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """See `Population`."""
        return [(self._skill[lane], self._chunks[lane]) for lane in lanes]

    def put(self, states: Mapping[int, Any]) -> None:
        """See `Population`."""
        for lane, (state, _) in states.items():
            self._skill[lane], self._chunks[lane] = state
            self._phases[lane] = Phase.SEARCH
