"""What each program of a study is expected to do: chunks, blocks and evaluations.

It is the time left of a study that has just drawn its first trials (`state.remaining_work`). These
are drawn at random; they say how many trials each program gets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, cast

from ...errors import ConfigError
from ...store.rows import TrialState
from ...studies.spec import SearchSpec, Study
from ..engine.engine import Engine, engine_in_memory, lanes_to_keep
from ..engine.refill import Intake
from ..lanes.contract import PopulationFactory, Resolved
from ..samplers.proposal_queue import AskAhead, Proposer
from ..samplers.registry import make_sampler
from ..state.buckets import Bucket
from ..state.remaining_work import Work, WorkAhead
from ..state.schedule import Schedule

_DRAWN = 256  # proposals, by which trials are shared out among programs


@dataclass(frozen=True)
class Lanes:
    lanes: int  # as of `Population`, like the next two
    block: int
    warmup_chunks: int
    width: int  # lanes that one call of the evaluation takes
    parts: tuple[Part, ...] = field(default=(), repr=False)  # one per environment of several


@dataclass(frozen=True)
class Part:
    """The program of one of several environments."""

    asked: int | None  # lanes that it is asked for
    lanes: Lanes


@dataclass(frozen=True)
class Count:
    chunks: float
    blocks: float  # with a busy lane, over all chunks
    calls: float  # of the evaluation program
    evaluations: float  # of one replicate each


@dataclass(frozen=True)
class ProgramWork:
    bucket: str
    resolved: Resolved  # over several environments that of its environment
    lanes: int | None  # that it is asked for
    environment: int  # its number
    search: Count
    confirm: Count


LanesOf = Callable[[Resolved, int | None], Lanes]
"""Configuration and lanes asked for -> the lanes of its program; nothing is compiled."""


def expected_work(
    study: Study, factory: PopulationFactory, lanes_of: LanesOf
) -> list[ProgramWork]:
    """Return the programs of a study, the default's first; its imports have run."""
    engine = _begun(study, factory)
    ledger, buckets = engine.ledger, list(engine.buckets.values())
    asked, about = study.population.lanes, dict[str, Lanes]()
    wanted = dict.fromkeys(engine.buckets, asked)
    for bucket in buckets:
        own = about[bucket.key] = lanes_of(bucket.resolved, asked)
        _equip(bucket, own)
        if asked is None and len(buckets) > 1:
            wanted[bucket.key] = lanes_to_keep(ledger, bucket)
            about[bucket.key] = lanes_of(bucket.resolved, wanted[bucket.key])
        bucket.settle(cast(Any, about[bucket.key]))
        bucket.place(bucket.lanes)
    found: dict[str, list[ProgramWork]] = {bucket.key: [] for bucket in buckets}
    estimate = WorkAhead(study)
    for bucket in buckets:  # as one block, which works as long as any lane does
        _equip(bucket, replace(about[bucket.key], block=bucket.lanes))
    chunks = estimate.parts(ledger, buckets)
    for at in range(study.spread):
        parts = [
            about[key].parts[at] if about[key].parts else Part(wanted[key], about[key])
            for key in engine.buckets
        ]
        for bucket, part in zip(buckets, parts, strict=True):
            _equip(bucket, replace(part.lanes, lanes=bucket.lanes))
        works = zip(buckets, parts, chunks, estimate.parts(ledger, buckets), strict=True)
        for bucket, part, wholes, blocks in works:
            resolved = bucket.resolved.payload[at] if about[bucket.key].parts else bucket.resolved
            pairs = zip(wholes, blocks, strict=True)
            counts = [_count(bucket.schedule, part.lanes.width, *pair) for pair in pairs]
            found[bucket.key].append(ProgramWork(bucket.key, resolved, part.asked, at, *counts))
    return [program for programs in found.values() for program in programs]


def _begun(study: Study, factory: PopulationFactory) -> Engine:
    """Return the study as it has drawn its first trials, at random; none has a lane yet."""
    drawn = study
    if study.search.method not in ("grid", "sobol"):
        drawn = replace(study, search=SearchSpec("random"))
    engine = engine_in_memory(study, factory)
    with closing(AskAhead(Proposer(drawn, make_sampler(drawn)))) as ahead:
        Intake(engine, ahead).ask(_DRAWN)
    default = engine.ledger.trials[0]
    if default.state is TrialState.FAILED:
        raise ConfigError(default.error)
    return engine


def _equip(bucket: Bucket, lanes: Lanes) -> None:
    bucket.equip(cast(Any, lanes))  # all of a population that an estimate looks at


def _count(schedule: Schedule, width: int, whole: Work, work: Work) -> Count:
    """Return work in chunks and calls of its programs.

    Evaluations fall on few boundaries; without rungs all lanes come to them together.
    """
    chunks, due = whole.block_steps / schedule.quantum, work.evaluations
    boundaries = max(1.0, chunks / math.gcd(*schedule.evaluations))
    each = due / boundaries
    calls = max(each / width, 1.0 - math.exp(-each)) if schedule.rungs else math.ceil(each / width)
    return Count(chunks, work.block_steps / schedule.quantum, boundaries * calls, due)
