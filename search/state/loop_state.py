"""What the loop must remember besides the rows of the store, as dataclasses and as JSON text.

Trials that have ended are rows of the store; here is what is still in motion. Text to state to
text gives the same text, so a resumed study goes on from the very same state.
"""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum, StrEnum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ...errors import StoreError
from ..rules.pbt_perturb import Gain
from .trials import Trial
from .usage import Usage

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Return the JSON value of a dataclass, an enum, a list, a mapping or a plain value.

    Raises:
        TypeError: something in it has no JSON form.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: encode(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): encode(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [encode(item) for item in value]
    raise TypeError(f"no JSON form for {value!r} of type {type(value).__name__}")


def decode(kind: type[T], value: Any) -> T:
    """Return what `encode` made a JSON value of.

    Args:
        kind: the declared type; a dataclass, enum, `list[X]`, `dict[str | int, X]`,
            `tuple[X, ...]`, `X | None` or a plain type.
        value: what `json.loads` gave.

    Raises:
        TypeError: the value does not fit the type, for example one of another version.
    """
    return _decode(kind, value)


def _decode(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _decode_optional(kind, value)
    if origin in (list, tuple, dict):
        return _decode_container(origin, get_args(kind), value)
    if is_dataclass(kind):
        return _decode_dataclass(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and type(value) in (int, float):
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"expected {kind}, got {value!r}")
    return value


def _decode_optional(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    (inner,) = [entry for entry in get_args(kind) if entry is not types.NoneType]
    return _decode(inner, value)


def _decode_container(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    if origin is dict:
        key_kind, item_kind = inner
        return {key_kind(key): _decode(item_kind, item) for key, item in value.items()}
    return origin(_decode(inner[0], item) for item in value)


def _decode_dataclass(kind: Any, value: Any) -> Any:
    hints = _hints(kind)
    if set(value) != set(hints):
        raise TypeError(f"{kind.__name__} has fields {sorted(hints)}, got {sorted(value)}")
    return kind(**{name: _decode(hints[name], item) for name, item in value.items()})


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _key(key: Any) -> str:
    if not isinstance(key, (str, int)) or isinstance(key, bool):
        raise TypeError(f"a key must be text or an integer, got {key!r}")
    return str(key)


VERSION = 3


class Phase(StrEnum):
    """What the study does now."""

    SEARCH = "search"
    CHOOSE = "choose"
    REPORT = "report"
    ALSO = "also"  # trials that `confirm.also` names
    DONE = "done"


@dataclass
class BucketState:
    """A bucket that has lanes.

    Attributes:
        key: short hash of its Plan.
        example: a trial whose configuration makes its population.
        lanes: how many.
        settled: that is what they stay.
        offered: how many there were at first; 0 of a study from before this was kept.
    """

    key: str
    example: int
    lanes: int
    settled: bool = True
    offered: int = 0


@dataclass
class PendingAsk:
    """A batch of proposals that is being drawn beside the running chunk.

    Attributes:
        batch: its number.
        trials: the numbers its proposals will have.
        told: trials that ended, or were paused, since the batch before.
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
class Outlook:
    """What is expected of a study that runs, where it stands.

    Attributes:
        env_steps_total: training env steps of the whole study.
        seconds_left: None before this life of it has run a chunk.
        env_steps_per_second: of late, compiles apart; 0 before a chunk.
        least_share: that was done when this was expected, by what was expected before.
    """

    env_steps_total: int
    seconds_left: float | None = None
    env_steps_per_second: float = 0.0
    least_share: float = 0.0

    def share(self, env_steps: int) -> float:
        """Return the share that is done, below 1 while anything is left.

        >>> Outlook(1000, 3.0).share(400), Outlook(1000, 3.0).share(1000)
        (0.4, 0.99)
        >>> Outlook(2000, 3.0, least_share=0.4).share(500)
        0.4
        """
        return min(0.99, max(self.least_share, env_steps / max(1, self.env_steps_total)))

    def after(self, before: Outlook | None, env_steps: int) -> Outlook:
        """Return this in place of what was expected before: what is done never gets less.

        Args:
            before: None where nothing was.
            env_steps: training env steps so far.
        """
        least = 0.0 if before is None else before.share(env_steps)
        return replace(self, least_share=least)


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
        told: trials that ended or were paused since the last batch began, in that order.
        live: trials that wait, run, are paused, or are being confirmed, by number.
        buckets: those that have lanes, in the order they got them.
        running: the bucket that has the device, "" before the first.
        gains: what knobs did between rungs, where copies learn from that (pb2); oldest first.
        candidates: trials in the confirm stage, best first.
        winner: the trial whose report seeds run, None before.
        default: the trial that runs on them beside it, None where none does.
        asked: trials that ran on them, or run, because the study names them.
        kept: policies exported so far, best first.
        best_evaluation: the trial with the best evaluation so far, if its policy is kept.
        usage: the counters.
        bits: how often the study went on with other hardware or versions.
        ended: what can go on if `env_steps` grows.
        bests: trial that is live or may grow -> the loss of its best evaluation, if that policy
            is kept.
        bounds: budget and confirm as they were when the study last went on; JSON text.
        outlook: what is expected of the rest, None before the first chunk and at the end.
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
    outlook: Outlook | None = None
    default: int | None = None
    asked: list[int] = field(default_factory=list)

    def admit(self, trial: Trial) -> None:
        """Take in a trial that waits, or one that is confirmed."""
        self.live.setdefault(trial.number, trial)

    def dismiss(self, trial: Trial) -> None:
        """Let a trial go that has ended; the next batch is told."""
        del self.live[trial.number]
        self.told.append(trial.number)

    def tell(self, trial: Trial) -> None:
        """Let the next batch be told of a trial that is paused: it counts as stopped."""
        self.told.append(trial.number)

    # ------------------------------------------------------------------ proposals

    def begin_batch(self, count: int) -> PendingAsk:
        """Number a batch of so many trials, which is being drawn from here on."""
        trials = list(range(self.proposed, self.proposed + count))
        self.pending = PendingAsk(self.batches, trials, self.told)
        self.told = []
        self.batches += 1
        self.proposed += count
        return self.pending

    def take_batch(self, found: int) -> None:
        """Take in the batch being drawn; if it brought fewer trials, there is nothing new."""
        if self.pending is not None and found < len(self.pending.trials):
            self.exhausted = True
            self.proposed = self.pending.trials[0] + found
        self.pending = None

    def take_foreign(self, trial: int) -> int:
        """Count a trial that a foreign scheduler proposes; return its batch, which it is alone."""
        batch, self.told = self.batches, []
        self.batches += 1
        self.proposed = max(self.proposed, trial + 1)
        return batch

    def proposes(self, more: bool) -> None:
        """Note whether there is anything new to propose."""
        self.exhausted = not more

    # ------------------------------------------------------------------ phases

    def choose(self, candidates: Sequence[int]) -> None:
        """Leave the search: candidates run on the seeds that choose."""
        self.phase, self.candidates = Phase.CHOOSE, list(candidates)

    def win(self, trial: int, reports: bool) -> None:
        """Note who won; its report seeds run next, if there are any."""
        self.winner, self.phase = trial, Phase.REPORT if reports else Phase.DONE

    def measure_default(self, trial: int) -> None:
        """Note which trial runs on the report seeds as the default configuration."""
        self.default = trial

    def ask_for(self, trials: Sequence[int]) -> None:
        """Note which trials the study names; they run on the report seeds next."""
        self.phase, self.asked = Phase.ALSO, list(trials)

    def close(self) -> None:
        """Have nothing left to do."""
        self.phase = Phase.DONE

    def reopens(self, bounds: str) -> Phase | None:
        """Return from which phase on the study is to run again, None where it needs not.

        One whose bounds are others once its search is over begins anew with what they bound;
        where they differ only in the trials that it names, with these.

        Args:
            bounds: budget and confirm as they are now, as JSON text.
        """
        if self.phase is Phase.SEARCH:
            return None
        (was, also), (now, also_now) = _apart(self.bounds), _apart(bounds)
        if was != now:
            return Phase.SEARCH
        over = self.phase in (Phase.ALSO, Phase.DONE)
        return Phase.ALSO if also != also_now and over else None

    def go_on(self, bounds: str) -> bool:
        """Return whether anything is left to do, having reopened the study where it `reopens`.

        One that confirms just now forgets whom, and what had come to its end is known when that
        begins anew.

        Args:
            bounds: budget and confirm as they are now, as JSON text.
        """
        begins = self.reopens(bounds)
        if begins is Phase.SEARCH:
            self.candidates, self.winner, self.default = [], None, None
        if begins is not None:
            self.phase, self.asked, self.ended, self.outlook = begins, [], None, None
            for trial in self.live.values():
                trial.leave()
            self.live = {}
            if len(self.buckets) > 1:  # what each kept was for the trials that were to come then
                self.buckets = [BucketState(b.key, b.example, 0, False) for b in self.buckets]
        self.bounds = bounds
        return self.phase is not Phase.DONE

    def take_bits(self, bits: int) -> None:
        """Note how often results differ from what one machine would have given."""
        self.bits = bits

    def keep_ended(self, trial: Trial, env_steps: int) -> None:
        """Keep the only trial as it stands at its end, in case its run grows."""
        self.ended = EndedTrial(trial, env_steps)

    def reopen(self, trial: Trial) -> None:
        """Let the only trial run on, as it stood at its end."""
        self.live[trial.number] = trial
        self.told = [number for number in self.told if number != trial.number]
        self.phase, self.kept, self.ended = Phase.SEARCH, [], None

    # ------------------------------------------------------------------ lanes and policies

    def run_bucket(self, key: str) -> None:
        """Let a bucket have the device."""
        self.running = key

    def note_buckets(self, buckets: Iterable[BucketState]) -> None:
        """Note which buckets have lanes."""
        self.buckets = list(buckets)

    def learn(self, gains: Iterable[Gain], most: int) -> None:
        """Remember gains, the latest of all."""
        self.gains = [*self.gains, *gains][-most:]

    def keep(self, policies: Sequence[KeptPolicy]) -> None:
        """Note whose policies are kept."""
        self.kept = list(policies)

    def beats_all(self, trial: int, loss: float) -> bool:
        """Return whether no evaluation was better; then this one is the best."""
        if self.best_evaluation is not None and loss >= self.best_evaluation.loss:
            return False
        self.best_evaluation = KeptPolicy(trial, loss)
        return True

    def beats_own(self, trial: int, loss: float) -> bool:
        """Return whether no evaluation of its trial was better; then this one is its best."""
        if trial in self.bests and loss >= self.bests[trial]:
            return False
        self.bests[trial] = loss
        return True

    def forget_bests(self, live: Collection[int]) -> None:
        """Forget the best evaluations of trials that have ended and cannot grow."""
        grows = set[int]() if self.ended is None else {self.ended.trial.number}
        self.bests = {n: loss for n, loss in self.bests.items() if n in live or n in grows}

    # ------------------------------------------------------------------ time and text

    def pass_boundary(self) -> None:
        """Count a boundary."""
        self.boundary += 1

    def expect(self, outlook: Outlook) -> None:
        """Note what is expected of the rest."""
        self.outlook = outlook.after(self.outlook, self.usage.env_steps)

    def finish(self) -> None:
        """Forget what was in motion; nothing is left to do."""
        self.phase, self.live, self.outlook = Phase.DONE, {}, None

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
                "resume it with the earlier hpo, or start the study anew",
                new=True,
            )
        value.setdefault("ended", None)  # from before runs could grow
        value.setdefault("bests", {})  # from before these were kept
        value.setdefault("outlook", None)
        if value["outlook"] is not None:
            value["outlook"].setdefault("least_share", 0.0)
        for bucket in value.get("buckets", ()):  # lanes were settled as soon as they were made
            bucket.setdefault("settled", bucket["lanes"] > 0)
            bucket.setdefault("offered", 0)
        for part in ("compile", "evaluate", "search", "store"):  # counted as `between` before
            value["usage"].setdefault(f"{part}_seconds", 0.0)
        value.setdefault("default", None)  # from before the default was confirmed
        value.setdefault("asked", [])  # from before a study could name trials
        value["usage"].setdefault("asked_env_steps", 0)
        ended = [] if value["ended"] is None else [value["ended"]["trial"]]
        for trial in [*value.get("live", {}).values(), *ended]:
            for run in trial["runs"]:  # written before these were kept: they begin here
                run.setdefault("recent_length", None)
                run.setdefault("recents", {})
                run.setdefault("kept", False)
                run.setdefault("scores", [])
                run.setdefault("rung_scores", [])
                run.setdefault("half_row", {})
                run.setdefault("half_row_chunks", 0)
                run.setdefault("seconds", 0.0)
                run.setdefault("row_seconds", 0.0)
            trial.setdefault("report_diverged", [])
            trial.setdefault("paused_at", [])
            trial.setdefault("rung_env_steps", None)
            for name in ("scores", "choose_scores", "report_scores"):
                trial.setdefault(name, [])
        return decode(cls, value)


def _apart(bounds: str) -> tuple[list[Any], Any]:
    """Return the bounds of a study as they are written now, and apart the trials that it names.

    A study that finished before the default was confirmed stays finished: that it would be now is
    no change that anybody asked for. A confirm stage that chooses from nobody is none.
    """
    budget, confirm = json.loads(bounds)
    also = None if confirm is None else confirm.pop("also", None)
    if confirm is not None:
        confirm.setdefault("default", True)
    return [budget, confirm if confirm and confirm["top_k"] else None], also or []
