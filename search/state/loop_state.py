"""The part of the loop's state that is not in the store's rows, as dataclasses and JSON text.

Ended trials are rows in the store; only live trials are part of this state. Converting text to
state and back gives the same text, so a study resumes from exactly the same state.
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
from ...store.rows import Stream
from ..rules.pbt_perturb import Gain
from .trials import Replicate, Trial
from .usage import Usage

T = TypeVar("T")


def decode(kind: type[T], value: Any) -> T:
    """Convert parsed JSON to a declared type; TypeError if it does not fit.

    This inverts `json.dumps(value, default=vars)`, which writes dataclasses by their fields.
    """
    declared: Any = kind
    found: Any = None
    origin, inner = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType):
        if value is not None:
            found = decode(next(one for one in inner if one is not types.NoneType), value)
    elif origin in (dict, Mapping):
        found = {inner[0](key): decode(inner[1], item) for key, item in value.items()}
    elif origin in (list, tuple):
        found = origin(decode(inner[0], item) for item in value)
    elif is_dataclass(declared):
        found = _decode_fields(kind, value)
    else:
        found = _decode_plain(declared, value)
    return found


def _decode_fields(kind: type[T], value: Mapping[str, Any]) -> T:
    hints = _field_types(kind)
    if not set(value) <= set(hints):
        raise TypeError(f"{kind.__name__} has fields {sorted(hints)}, got {sorted(value)}")
    return kind(**{name: decode(hints[name], item) for name, item in value.items()})


def _decode_plain(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind is Any or type(value) is kind:
        return value
    raise TypeError(f"expected {kind}, got {value!r}")


@cache
def _field_types(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


VERSION = 3


class Phase(StrEnum):
    SEARCH = "search"
    CHOOSE = "choose"
    REPORT = "report"
    ALSO = "also"  # trials listed in `confirm.also`
    DONE = "done"


@dataclass
class BucketState:
    """A bucket that has lanes."""

    key: str  # short hash of its Plan
    example: int  # a trial whose configuration creates its population
    lanes: int
    settled: bool = True  # whether the number of lanes is final
    offered: int = 0  # initial number of lanes; 0 in older studies


@dataclass
class PendingAsk:
    """A batch of proposals drawn while a chunk runs."""

    batch: int
    trials: list[int]  # numbers reserved for its proposals
    told: list[int]  # trials that ended or were paused since the last batch


@dataclass
class KeptPolicy:
    """A policy in the folder `policies`: its trial, and the trial's first objective as a loss."""

    trial: int
    loss: float


@dataclass
class EndedTrial:
    """The only trial of a finished study, whose lanes are in the last commit."""

    trial: Trial
    env_steps: int  # length of a run, as set by the study


@dataclass
class LostSeed:
    """A replicate on new seeds without a value; if it diverged, it does not run again."""

    trial: int
    stream: Stream
    replicate: int
    failed: bool  # by an error: it runs again if the study does
    retried: bool = False  # whether the study was asked to retry failed seeds since it failed

    @property
    def key(self) -> tuple[int, Stream, int]:
        return self.trial, self.stream, self.replicate


@dataclass
class Outlook:
    """The expected remaining work of a running study."""

    env_steps_total: int  # training env steps of the whole study
    seconds_left: float | None = None  # None before this process has run a chunk
    env_steps_per_second: float = 0.0  # recent speed without compiles; 0 before a chunk
    least_share: float = 0.0  # completed share by the previous estimate: `share` never decreases

    def share(self, env_steps: int) -> float:
        """Return the completed share, which is below 1 while any work remains.

        >>> Outlook(1000, 3.0).share(400), Outlook(1000, 3.0).share(1000)
        (0.4, 0.99)
        >>> Outlook(2000, 3.0, least_share=0.4).share(500)
        0.4
        """
        return min(0.99, max(self.least_share, env_steps / max(1, self.env_steps_total)))


@dataclass
class LoopState:
    """The loop state that is not stored in rows."""

    phase: Phase = Phase.SEARCH
    boundary: int = 0  # number of chunk boundaries passed
    batches: int = 0  # number of batches requested
    proposed: int = 0  # number of trials, including pending ones
    exhausted: bool = False  # whether the sampler has nothing new
    pending: PendingAsk | None = None
    # trials that ended or were paused since the last batch started, in order
    told: list[int] = field(default_factory=list)
    # waiting, running, paused or confirmed trials, by number
    live: dict[int, Trial] = field(default_factory=dict)
    # those with lanes, in the order in which they got them
    buckets: list[BucketState] = field(default_factory=list)
    running: str = ""  # bucket of the current chunk; "" before the first
    # gains between rungs, oldest first, for explorers that learn (pb2)
    gains: list[Gain] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)  # in the confirm stage, best first
    winner: int | None = None  # the trial whose test seeds run
    kept: list[KeptPolicy] = field(default_factory=list)  # kept policies, best first
    best_evaluation: KeptPolicy | None = None  # best over all trials, if its policy is kept
    usage: Usage = field(default_factory=Usage)
    bounds: str = ""  # budget and confirm at the last start, as JSON
    bits: int = 0  # number of times the study resumed with different hardware or versions
    ended: EndedTrial | None = None  # can be extended if `env_steps` grows
    # trial (live or extensible) -> loss of its best evaluation, if kept
    bests: dict[int, float] = field(default_factory=dict)
    outlook: Outlook | None = None  # None before the first chunk and at the end
    default: int | None = None  # the trial that is the default on test seeds
    asked: list[int] = field(default_factory=list)  # trials listed in `confirm.also`
    lost: list[LostSeed] = field(default_factory=list)  # also of trials that are not live

    def admit(self, trial: Trial) -> None:
        self.live.setdefault(trial.number, trial)

    def dismiss(self, trial: Trial) -> None:
        del self.live[trial.number]
        self.told.append(trial.number)

    def tell(self, trial: Trial) -> None:
        """Report a paused trial to the next batch, as stopped."""
        self.told.append(trial.number)

    def lose(self, run: Replicate, failed: bool) -> None:
        """Record that a replicate on new seeds has no value; search seeds are ignored."""
        self.find(run)
        if run.stream is not Stream.SEARCH:
            self.lost.append(LostSeed(run.trial, run.stream, run.replicate, failed))

    def find(self, run: Replicate) -> None:
        """Delete the record that a replicate was lost."""
        key = (run.trial, run.stream, run.replicate)
        self.lost = [one for one in self.lost if one.key != key]

    def begin_batch(self, count: int) -> PendingAsk:
        trials = list(range(self.proposed, self.proposed + count))
        self.pending = PendingAsk(self.batches, trials, self.told)
        self.told = []
        self.batches += 1
        self.proposed += count
        return self.pending

    def take_batch(self, found: int) -> None:
        """End the pending batch; with fewer proposals than requested, the sampler is exhausted."""
        if self.pending is not None and found < len(self.pending.trials):
            self.exhausted = True
            self.proposed = self.pending.trials[0] + found
        self.pending = None

    def take_foreign(self, trial: int) -> int:
        """Count a trial proposed by an external scheduler; return the number of its batch."""
        batch, self.told = self.batches, []
        self.batches += 1
        self.proposed = max(self.proposed, trial + 1)
        return batch

    def proposes(self, more: bool) -> None:
        self.exhausted = not more

    def choose(self, candidates: Sequence[int]) -> None:
        """End the search, so that candidates run on the selection seeds."""
        self.phase, self.candidates = Phase.CHOOSE, list(candidates)

    def win(self, trial: int, reports: bool) -> None:
        self.winner, self.phase = trial, Phase.DONE
        if reports:
            self.phase = Phase.REPORT

    def measure_default(self, trial: int) -> None:
        self.default = trial

    def ask_for(self, trials: Sequence[int]) -> None:
        self.phase, self.asked = Phase.ALSO, list(trials)

    def close(self) -> None:
        self.phase = Phase.DONE

    def restart(self, number: int) -> None:
        """Delete the record that a trial failed, because it runs again."""
        self.told = [one for one in self.told if one != number]
        self.bests.pop(number, None)
        self.usage.forgive_failure()

    def reopens(self, bounds: str, again: bool = False) -> Phase | None:
        """Return the phase from which a study must run again, or None.

        `again` is whether search trials run again.
        """
        if self.phase is Phase.SEARCH:
            return None
        if again:
            return Phase.SEARCH
        (was, also), (now, also_now) = _split_bounds(self.bounds), _split_bounds(bounds)
        if was != now:
            return Phase.SEARCH
        if also != also_now and self.phase in (Phase.ALSO, Phase.DONE):
            return Phase.ALSO
        return None

    def go_on(self, bounds: str, again: bool = False) -> bool:
        """Reopen the study at the phase from `reopens`; return whether anything is left to do."""
        begins = self.reopens(bounds, again)
        if begins is Phase.SEARCH:
            self.candidates, self.winner, self.default = [], None, None
        if again:
            self.lost = [replace(one, retried=one.failed) for one in self.lost]
        if begins is not None:
            self.phase, self.asked, self.ended, self.outlook = begins, [], None, None
            for trial in self.live.values():
                trial.leave()
            self.live = {}
            # The number of lanes in each bucket was for trials expected at that time.
            self.buckets = [BucketState(b.key, b.example, 0, False) for b in self.buckets]
        self.bounds = bounds
        return self.phase is not Phase.DONE

    def take_bits(self, bits: int) -> None:
        self.bits = bits

    def keep_ended(self, trial: Trial, env_steps: int) -> None:
        self.ended = EndedTrial(trial, env_steps)

    def reopen(self, trial: Trial) -> None:
        self.live[trial.number] = trial
        self.told = [number for number in self.told if number != trial.number]
        self.phase, self.kept, self.ended = Phase.SEARCH, [], None

    def run_bucket(self, key: str) -> None:
        self.running = key

    def note_buckets(self, buckets: Iterable[BucketState]) -> None:
        self.buckets = list(buckets)

    def learn(self, gains: Iterable[Gain], most: int) -> None:
        self.gains = [*self.gains, *gains][-most:]

    def forget_gains(self) -> None:
        """Drop all gains; the values they were computed from have been replaced."""
        self.gains = []

    @property
    def kept_trials(self) -> set[int]:
        """The trials with kept policies."""
        return {policy.trial for policy in self.kept}

    def keep(self, policies: Sequence[KeptPolicy]) -> None:
        self.kept = list(policies)

    def beats_all(self, trial: int, loss: float) -> bool:
        if self.best_evaluation is not None and loss >= self.best_evaluation.loss:
            return False
        self.best_evaluation = KeptPolicy(trial, loss)
        return True

    def beats_own(self, trial: int, loss: float) -> bool:
        if trial in self.bests and loss >= self.bests[trial]:
            return False
        self.bests[trial] = loss
        return True

    def forget_bests(self, live: Collection[int]) -> None:
        """Drop the best evaluations of ended trials that cannot be extended."""
        kept = set(live)
        if self.ended is not None:
            kept.add(self.ended.trial.number)
        self.bests = {number: loss for number, loss in self.bests.items() if number in kept}

    def pass_boundary(self) -> None:
        self.boundary += 1

    def expect(self, outlook: Outlook) -> None:
        least = 0.0
        if self.outlook is not None:
            least = self.outlook.share(self.usage.env_steps)
        self.outlook = replace(outlook, least_share=least)  # the displayed share never decreases

    def finish(self) -> None:
        self.phase, self.live, self.outlook = Phase.DONE, {}, None

    def to_text(self) -> str:
        data = {"version": VERSION, **vars(self)}
        return json.dumps(data, default=_fields_of, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> LoopState:
        """Invert `to_text`; StoreError if a different version wrote the text."""
        value = json.loads(text)
        version = value.pop("version", None)
        if version != VERSION:
            raise StoreError(
                f"this study's loop state has version {version}, but this version of hpo reads "
                f"{VERSION}; resume the study with the version of hpo that wrote it, or start "
                "another study",
                new=True,
            )
        trials = [*value.get("live", {}).values()]
        if value.get("ended"):
            trials.append(value["ended"]["trial"])
        for trial in trials:
            if "number" in trial:  # written by an older version
                trial["trial"] = trial.pop("number")
                trial["rung_value"] = next(reversed(trial.get("reports", ())), None)
        for bucket in value.get("buckets", ()):  # lanes were final once created
            bucket.setdefault("settled", bucket["lanes"] > 0)
        return decode(cls, value)


def bounds_of(budget: object, confirm: object) -> str:
    """Return a study's limits in the form stored in its state."""
    return json.dumps([budget, confirm], default=vars)


def _split_bounds(bounds: str) -> tuple[list[Any], Any]:
    """Return a study's limits in the current format, and the trials of `confirm.also` separately.

    Studies that finished before the default was confirmed remain finished, because the user did
    not change that setting. A confirm stage with `top_k: 0` counts as no stage.
    """
    budget, confirm = json.loads(bounds)
    if confirm is None:
        return [budget, None], []
    also = confirm.pop("also", None) or []
    confirm.setdefault("default", True)
    if not confirm["top_k"]:
        confirm = None
    return [budget, confirm], also


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
