"""What the loop must remember besides the rows of the store, as dataclasses and as JSON text.

Trials that have ended are rows of the store; here is what is still in motion. Text to state to
text gives the same text, so a resumed study goes on from the very same state.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum

from ...errors import StoreError
from ..rules.explore import Gain
from .codec import decode, encode
from .trials import Trial

__all__ = ["BucketState", "EndedTrial", "KeptPolicy", "LoopState", "PendingAsk", "Phase", "Usage"]

VERSION = 3


class Phase(StrEnum):
    """What the study does now."""

    SEARCH = "search"
    CHOOSE = "choose"
    REPORT = "report"
    DONE = "done"


@dataclass
class Usage:
    """What the study has used up; the counters that budgets and reports read.

    Attributes:
        search_env_steps, confirm_env_steps: training env steps.
        eval_env_steps, warmup_env_steps: counted apart, search and confirm together.
        lane_chunks, busy_lane_chunks: of chunks that ran while work remained; their ratio is the
            occupancy.
        chunks: dispatched.
        failures: exceptions and lack of memory, not divergence.
        draws, refused: configurations drawn, and those of them that a `forbid` rule refused.
        run_seconds: wall time over all starts of the study.
        chunk_seconds: of that, inside compiled chunks.
    """

    search_env_steps: int = 0
    confirm_env_steps: int = 0
    eval_env_steps: int = 0
    warmup_env_steps: int = 0
    lane_chunks: int = 0
    busy_lane_chunks: int = 0
    chunks: int = 0
    failures: int = 0
    draws: int = 0
    refused: int = 0
    run_seconds: float = 0.0
    chunk_seconds: float = 0.0

    def count_lanes(self, lanes: int, busy: int, work_remains: bool) -> None:
        """Count a chunk that begins; its lanes count while an idle one could be busy."""
        self.chunks += 1
        if work_remains:
            self.lane_chunks += lanes
            self.busy_lane_chunks += busy

    @property
    def env_steps(self) -> int:
        """Training env steps of search and confirm together; what `budget.env_steps` bounds."""
        return self.search_env_steps + self.confirm_env_steps

    @property
    def occupancy(self) -> float:
        """Busy lane-chunks over all lane-chunks while work remained; 1 before the first."""
        return self.busy_lane_chunks / self.lane_chunks if self.lane_chunks else 1.0


@dataclass
class BucketState:
    """A bucket that has lanes.

    Attributes:
        key: short hash of its Plan.
        example: a trial whose configuration makes its population.
        lanes: how many.
    """

    key: str
    example: int
    lanes: int


@dataclass
class PendingAsk:
    """A batch of proposals that is being drawn beside the running chunk.

    Attributes:
        batch: its number.
        trials: the numbers its proposals will have.
        told: trials that ended since the batch before.
    """

    batch: int
    trials: list[int]
    told: list[int]


@dataclass
class KeptPolicy:
    """A policy in the folder `policies`: whose it is, and its loss in the first objective."""

    trial: int
    loss: float


@dataclass
class EndedTrial:
    """The only trial of a study as it stood at its end, in lanes that the last commit keeps.

    Attributes:
        trial: with its replicates, each with the lane that it ended in.
        env_steps: of a run, as the study asked for them.
    """

    trial: Trial
    env_steps: int


@dataclass
class LoopState:
    """Everything in motion.

    Attributes:
        phase: what the study does now.
        boundary: chunk boundaries passed.
        batches: ask batches begun.
        proposed: trials proposed (those being drawn included).
        exhausted: the sampler has nothing new to propose.
        pending: the batch being drawn.
        told: trials that ended since the last batch began, in that order.
        live: trials that wait, run, or are being confirmed, by number.
        buckets: those that have lanes, in the order they got them.
        running: the bucket that has the device, "" before the first.
        gains: what knobs did between rungs, where copies learn from that (pb2); oldest first.
        candidates: trials in the confirm stage, best first.
        winner: the trial whose report seeds run, None before.
        kept: policies exported so far, best first.
        best_evaluation: the trial with the best evaluation so far, if its policy is kept.
        usage: the counters.
        bits: how often the study went on with other hardware or versions.
        ended: what can go on if `env_steps` grows.
        bests: live trial -> the loss of its best evaluation, if that policy is kept.
        bounds: budget and confirm as they were when the study last went on; JSON text.
    """

    phase: Phase = Phase.SEARCH
    boundary: int = 0
    batches: int = 0
    proposed: int = 0
    exhausted: bool = False
    pending: PendingAsk | None = None
    told: list[int] = field(default_factory=list)
    live: dict[int, Trial] = field(default_factory=dict)
    buckets: list[BucketState] = field(default_factory=list)
    running: str = ""
    gains: list[Gain] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)
    winner: int | None = None
    kept: list[KeptPolicy] = field(default_factory=list)
    best_evaluation: KeptPolicy | None = None
    usage: Usage = field(default_factory=Usage)
    bounds: str = ""
    bits: int = 0
    ended: EndedTrial | None = None
    bests: dict[int, float] = field(default_factory=dict)

    def pass_boundary(self, seconds: float) -> None:
        """Count a boundary, and the running time since the one before."""
        self.boundary += 1
        self.usage.run_seconds += seconds

    def finish(self) -> None:
        """Forget what was in motion; nothing is left to do."""
        self.phase, self.live = Phase.DONE, {}

    def to_text(self) -> str:
        """Return the JSON text that the store keeps."""
        return json.dumps({"version": VERSION, **encode(self)}, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> LoopState:
        """Return the state that `to_text` wrote.

        Raises:
            StoreError: another version of the loop wrote the text.
        """
        value = json.loads(text)
        version = value.pop("version", None)
        if version != VERSION:
            raise StoreError(
                f"this study's loop state has version {version}, this hpo knows {VERSION}; "
                "go on with the hpo that began it, or begin again with --new"
            )
        value.setdefault("ended", None)  # from before runs could grow
        value.setdefault("bests", {})  # from before these were kept
        ended = [] if value["ended"] is None else [value["ended"]["trial"]]
        for trial in [*value.get("live", {}).values(), *ended]:
            for run in trial["runs"]:  # written before these were kept: they begin here
                run.setdefault("recent_length", None)
                run.setdefault("half_row", {})
                run.setdefault("half_row_chunks", 0)
                run.setdefault("seconds", 0.0)
                run.setdefault("row_seconds", 0.0)
        return decode(cls, value)
