"""Splits a population into equal shares, each on a host that may die.

Lanes are distributed over the shares in units (`Division`). All calls since a share's last save
are kept, so that another host can restore the share and repeat them bit for bit.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import ConfigError, HpoError, SearchError, StoreError
from ...files.atomic_files import (
    delete_folder,
    files_below,
    make_folder,
    new_folder,
    read_text,
    write_bytes,
    write_text,
)
from ...store.rows import Stream
from ..lanes.contract import (
    ChunkResult,
    ChunkRow,
    EvaluationResult,
    LaneChange,
    Population,
    Refill,
    Resolved,
)
from ..lanes.lane_count import Division

Files = dict[str, bytes]  # a folder as data: path in it -> bytes

RECORD = "shares.json"
# next to the shares of a checkpoint

_KEPT = 4096  # configurations per host


@dataclass(frozen=True)
class Facts:
    """Properties of a share of a population, and the division of all lanes; see `Population`."""

    division: Division
    block: int
    steps_per_chunk: int
    warmup_chunks: int


@dataclass(frozen=True)
class RemoteError:
    """An exception returned instead of an answer; its original class may not be picklable."""

    kind: type[Exception]
    text: str


@dataclass(frozen=True)
class Machine:
    """The hardware of a host."""

    backend: str
    device_count: int
    versions: Mapping[str, str]  # package -> version, for packages that affect results bitwise


@dataclass(frozen=True)
class Reply:
    """An answer or a `RemoteError`, and warnings for the user."""

    answer: Any
    warnings: tuple[str, ...] = ()


class ShareSource(Protocol):
    """Creates shares of populations; like a `PopulationFactory`."""

    @property
    def machine(self) -> Machine: ...

    def resolve(self, config: Mapping[str, Any]) -> Resolved: ...

    def check(self, resolved: Resolved) -> None:
        """Raise ConfigError if no program can run the configuration."""

    def divide(self, resolved: Resolved, lanes: int | None) -> Division:
        """Divide a population's lanes; by default, the study or `lane_count` sets their number."""
        ...

    def make(self, resolved: Resolved, division: Division) -> Population: ...

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]: ...


class ShareHost:
    """Holds shares of populations by (share, bucket); each call is self-contained.

    `source` is called with the number of hosts on this machine and a function for warnings.
    """

    def __init__(self, source: Callable[[int, Callable[[str], None]], ShareSource]):
        self._make_source = source
        self._warnings: list[str] = []
        self._source: ShareSource | None = None
        self._populations: dict[tuple[int, str], Population] = {}
        self._resolved: dict[str, Resolved] = {}

    def machine_name(self) -> str:
        return socket.gethostname()

    def process(self) -> int:
        return os.getpid()

    def do(self, share: int, method: str, args: tuple[Any, ...]) -> Reply:
        """Call one of the methods below for a share; return an exception as a `RemoteError`."""
        answer = self._run_method(share, method, args)
        said, self._warnings = tuple(self._warnings), []
        return Reply(answer, said)

    def _run_method(self, share: int, method: str, args: tuple[Any, ...]) -> Any:
        try:
            if method in ("begin", "resolve"):
                return getattr(self, f"_{method}")(*args)
            first, *rest = map(self._resolve_arguments, args)
            if method in ("check", "baseline"):
                return getattr(self._begun_source, method)(first, *rest)
            at = (share, first)
            if special := getattr(self, f"_do_{method}", None):
                return special(at, *rest)
            return getattr(self._populations[at], method)(*rest)
        except Exception as error:
            return _as_fault(error)

    @property
    def _begun_source(self) -> ShareSource:
        if self._source is None:
            raise RuntimeError("`begin` must be called before a host is used")
        return self._source

    def _begin(self, neighbours: int) -> Machine:
        if self._source is None:
            self._source = self._make_source(neighbours, lambda text: self._warnings.append(text))
        return self._source.machine

    def _resolve(self, config: Mapping[str, Any], name: str) -> tuple[str, int]:
        found = self._resolve_on_host(Resolved(config, "", 0, name))
        return found.bucket, found.steps_per_chunk

    def _resolve_on_host(self, resolved: Resolved) -> Resolved:
        """Return this host's `Resolved` for a configuration that was sent by name."""
        name = resolved.payload
        found = self._resolved.pop(name, None) or self._begun_source.resolve(resolved.config)
        self._resolved[name] = found  # move to the end, as the latest
        if len(self._resolved) > _KEPT:
            del self._resolved[next(iter(self._resolved))]
        return found

    def _resolve_arguments(self, value: Any) -> Any:
        """Return an argument with its configurations replaced by this host's."""
        match value:
            case Resolved():
                return self._resolve_on_host(value)
            case Refill() | LaneChange():
                return replace(value, resolved=self._resolve_on_host(value.resolved))
            case list():
                return list(map(self._resolve_arguments, value))
        return value

    def _do_make(self, at: tuple[int, str], own: Resolved, lanes: int | None) -> Facts:
        self._populations.pop(at, None)  # frees memory left in use by an error
        division = self._begun_source.divide(own, lanes)
        made = self._populations[at] = self._begun_source.make(own, division)
        return Facts(division, made.block, made.steps_per_chunk, made.warmup_chunks)

    def _do_put(self, at: tuple[int, str], states: Mapping[int, tuple[Any, Resolved]]) -> None:
        own = {lane: (state, self._resolve_on_host(new)) for lane, (state, new) in states.items()}
        self._populations[at].put(own)

    def _do_export_policy(
        self, at: tuple[int, str], lane: int, own: Resolved, about: Mapping[str, Any]
    ) -> Files:
        with tempfile.TemporaryDirectory(prefix="hpo-") as work:
            self._populations[at].export_policy(lane, own, Path(work) / "policy", about)
            return pack(Path(work) / "policy")

    def _do_save(self, at: tuple[int, str], folder: str, token: str) -> Files | None:
        """Write a share's lanes to a folder visible to this machine, or return the files.

        The folder is visible if the checkpoint's record next to it contains the token.
        """
        there = Path(folder)
        if _has_token(there.parent / RECORD, token):
            delete_folder(there)  # left by a host that died while writing
            self._populations[at].save(there)
            return None
        with tempfile.TemporaryDirectory(prefix="hpo-") as work:
            self._populations[at].save(Path(work) / "lanes")
            return pack(Path(work) / "lanes")

    def _do_restore(self, at: tuple[int, str], files: Files) -> None:
        with tempfile.TemporaryDirectory(prefix="hpo-") as work:
            unpack(files, Path(work) / "lanes")
            self._populations[at].restore(Path(work) / "lanes")


def pack(folder: Path) -> Files:
    found = files_below(folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    new_folder(folder)
    for name, content in files.items():
        path = folder / name
        make_folder(path.parent)
        write_bytes(path, content)


def _has_token(record: Path, token: str) -> bool:
    try:
        return token in record.read_text()
    except OSError:
        return False


def _as_fault(error: Exception) -> RemoteError:
    if not isinstance(error, HpoError):
        text = f"{type(error).__name__}: {error}"
        return RemoteError(WorkerError, text.split("\n")[0][:500])
    known = (kind for kind in (ConfigError, StoreError) if isinstance(error, kind))
    return RemoteError(next(known, SearchError), str(error))


Call = tuple[str, tuple[Any, ...]]  # a method of `ShareHost` and its arguments except the share

_ATTEMPTS = 3


class WorkerError(RuntimeError):
    """An error on a host while it processed lanes."""


class Lost(str):
    """The reason why a share's host died before it replied."""


class Team(Protocol):
    """Communication with the hosts of all shares."""

    shares: int

    def generation(self, share: int) -> int:
        """Return how many hosts a share had before the current one; a new host has no state."""
        ...

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Call hosts in parallel, by share; return replies, or `Lost` for a host that has died."""
        ...

    def replace(self, share: int) -> None:
        """Assign a new host to a share; SearchError if there is none."""

    def first_of_machines(self) -> list[int]: ...


def asked(team: Team, share: int, call: Call) -> Any:
    """Call one share's host, or its replacement if it dies."""
    for _ in range(_ATTEMPTS):
        answer = team.call({share: call})[share]
        if not isinstance(answer, Lost):
            return sound(answer)
        team.replace(share)
    raise WorkerError(f"{_ATTEMPTS} workers in a row died during `{call[0]}`")


class SharedPopulation(Population):
    """The lanes of one bucket, divided equally among the hosts."""

    def __init__(
        self,
        team: Team,
        resolved: Resolved,
        lanes: int | None,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
        words: str = "",
    ):
        self._team, self._compiling, self._words = team, compiling, words
        self._resolved, self._asked = resolved, lanes
        shares = range(team.shares)
        self._known = dict.fromkeys(shares, -1)
        self._saved: dict[int, Path] = {}
        self._done: dict[int, list[Call]] = {share: [] for share in shares}
        self._facts: dict[int, Facts] = {}
        self._died: Counter[int] = Counter()
        self._restore_new(shares)
        facts = self._facts[0]
        self.lanes = self._asked = facts.division.total
        self.block = facts.block  # the same as in one process, because refills depend on it
        self.steps_per_chunk, self.warmup_chunks = facts.steps_per_chunk, facts.warmup_chunks
        self._own, self._size = facts.division.own, facts.division.unit
        self._places: dict[int, list[int]] = {share: [] for share in shares}
        for lane in range(self.lanes):
            self._places[self._host_lane(lane)[0]].append(lane)
        self._compiled: set[str] = set()  # methods called so far

    @property
    def compiles(self) -> int:
        return int("compile" in self._compiled)

    def _host_lane(self, lane: int) -> tuple[int, int]:
        block, rest = divmod(lane, self._size)
        own, share = divmod(block, self._team.shares)
        return share, own * self._size + rest

    def _by_share(self, lanes: Iterable[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for lane in lanes:
            share, own = self._host_lane(lane)
            found.setdefault(share, []).append(own)
        return found

    def compile(self) -> None:
        self._compile_once("compile", "training")

    def compile_evaluation(self) -> None:
        self._compile_once("compile_evaluation", "evaluation")

    def _compile_once(self, method: str, what: str) -> None:
        """Compile once; if a machine has several hosts, the first one fills the cache."""
        if method in self._compiled:
            return
        first = self._team.first_of_machines()
        others = [share for share in range(self._team.shares) if share not in first]
        where = f"{self.lanes} lanes over {self._team.shares} workers"
        with self._compiling(f"{what}: {'; '.join(filter(None, (self._words, where)))}"):
            for shares in (first, others):
                self._ask_hosts(method, dict.fromkeys(shares, ()))
        self._compiled.add(method)

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """See `Population`; shares without a busy lane are skipped."""
        self.compile()
        started = time.perf_counter()
        given: dict[int, list[Refill]] = {}
        for refill in refills:
            share, own = self._host_lane(refill.lane)
            given.setdefault(share, []).append(replace(refill, lane=own))
        work = {share: (given.get(share, []), own) for share, own in self._by_share(busy).items()}
        answers: dict[int, ChunkResult] = self._ask_hosts("advance", work, remember=True)
        diverged = np.zeros(self.lanes, bool)
        failed: dict[int, str] = {}
        for share, answer in answers.items():
            places = self._places[share]  # its first lanes; the others stay idle
            count = len(places)
            diverged[places] = answer.diverged[:count]
            failed |= {places[own]: why for own, why in answer.failed.items()}
        metrics = self._in_lanes({s: answer.metrics for s, answer in answers.items()})
        rows: list[ChunkRow] = []
        for parts in zip(*[answer.rows for answer in answers.values()], strict=True):
            own = {share: part.metrics for share, part in zip(answers, parts, strict=True)}
            rows.append(ChunkRow(parts[0].env_steps, self._in_lanes(own)))
        took = time.perf_counter() - started
        return ChunkResult(metrics, diverged, took, failed, tuple(rows))

    def _in_lanes(self, metrics: Mapping[int, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the metrics of all shares by name, [lanes]; idle lanes have zeros."""
        found: dict[str, np.ndarray] = {}
        for share, own in metrics.items():
            places = self._places[share]
            for name, values in own.items():
                found.setdefault(name, np.zeros(self.lanes))[places] = values[: len(places)]
        return found

    def change(self, changes: Sequence[LaneChange]) -> None:
        """See `Population`; states from other shares are read before any change."""
        own: dict[int, tuple[list[LaneChange]]] = {}
        moved: dict[int, tuple[int, Resolved]] = {}  # lane -> source on another share
        for change in changes:
            share, lane = self._host_lane(change.lane)
            there, source = self._host_lane(change.origin)
            if there != share:
                moved[change.lane] = change.origin, change.resolved
            else:
                own.setdefault(share, ([],))[0].append(replace(change, lane=lane, source=source))
        sources = sorted({source for source, _ in moved.values()})
        states = dict(zip(sources, self.take(sources), strict=True))
        self._ask_hosts("change", own, remember=True)
        self.put({lane: (states[source], new) for lane, (source, new) in moved.items()})

    def take(self, lanes: Sequence[int]) -> list[Any]:
        return self._ask_lanes("take", lanes)

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        work: dict[int, tuple[dict[int, Any]]] = {}
        for lane, state in states.items():
            share, own = self._host_lane(lane)
            work.setdefault(share, ({},))[0][own] = state
        self._ask_hosts("put", work, remember=True)

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        self.compile_evaluation()
        return self._ask_lanes("evaluate", lanes)

    def _ask_lanes(self, method: str, lanes: Sequence[int]) -> list[Any]:
        """Call a method that returns one reply per lane; return them in the order of `lanes`."""
        dealt = self._by_share(lanes)
        answers = self._ask_hosts(method, {share: (own,) for share, own in dealt.items()})
        queues = {share: iter(found) for share, found in answers.items()}
        return [next(queues[self._host_lane(lane)[0]]) for lane in lanes]

    def export_policy(
        self, lane: int, resolved: Resolved, directory: Path, about: Mapping[str, Any] = {}
    ) -> None:
        """See `Population`; the files are copied from the host."""
        share, own = self._host_lane(lane)
        files = self._ask_hosts("export_policy", {share: (own, resolved, dict(about))})[share]
        unpack(files, directory)

    def save(self, directory: Path) -> None:
        """See `Population`; a host that cannot see the folder sends its files."""
        token = secrets.token_hex(8)
        new_folder(directory)
        lanes = {"lanes": self._own, "of": self.lanes}
        record = {"shares": self._team.shares, **lanes, "token": token}
        write_text(directory / RECORD, json.dumps(record))
        folders = {share: directory / f"share-{share}" for share in range(self._team.shares)}
        given = {share: (str(folder), token) for share, folder in folders.items()}
        for share, files in self._ask_hosts("save", given).items():
            if files is not None:
                delete_folder(folders[share])
                unpack(files, folders[share])
            self._saved[share], self._done[share] = folders[share], []

    def restore(self, directory: Path) -> None:
        try:
            record = json.loads(read_text(directory / RECORD))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{directory} is not a checkpoint of lanes on workers: {error}"
            ) from error
        found = (record.get("shares"), record.get("lanes"), record.get("of", self.lanes))
        if found != (self._team.shares, self._own, self.lanes):
            raise StoreError(
                f"{directory} has {record.get('lanes')} lanes on each of {record.get('shares')} "
                f"workers, but this run has {self._own} on each of {self._team.shares}; "
                "resume with as many workers as before"
            )
        shares = range(self._team.shares)
        self._saved = {share: directory / f"share-{share}" for share in shares}
        self._done = {share: [] for share in shares}
        self._ask_hosts("restore", {share: (pack(self._saved[share]),) for share in shares})

    def _ask_hosts(
        self, method: str, work: Mapping[int, tuple[Any, ...]], remember: bool = False
    ) -> dict[int, Any]:
        """Call hosts in parallel, with arguments by share; if one dies, its replacement is called.

        With `remember`, calls that change lanes are kept, so that a new host can repeat them.
        """
        pending, answers = dict(work), {}
        self._died.clear()
        while pending:
            self._restore_new(pending)
            calls = {share: self._host_call(method, args) for share, args in pending.items()}
            for share, answer in self._team.call(calls).items():
                if isinstance(answer, Lost):
                    self._replace_host(share, answer)
                    continue
                answers[share] = answer
                del pending[share]
                if remember and not isinstance(answer, RemoteError):
                    self._done[share].append(calls[share])
        return {share: sound(answers[share]) for share in work}

    def _host_call(self, method: str, args: tuple[Any, ...]) -> Call:
        return method, (self._resolved.bucket, *args)

    def _replace_host(self, share: int, lost: Lost) -> None:
        """Replace a dead host, unless the work itself seems to kill hosts."""
        self._died[share] += 1
        if self._died[share] >= _ATTEMPTS:
            raise WorkerError(
                f"{_ATTEMPTS} workers in a row died on the same lanes, perhaps out of "
                f"memory: {lost}"
            )
        self._team.replace(share)

    def _restore_new(self, shares: Iterable[int]) -> None:
        while lost := [s for s in shares if self._known[s] != self._team.generation(s)]:
            steps = {share: self._calls_to_restore(share) for share in lost}
            aimed = {share: self._team.generation(share) for share in lost}
            while calls := {share: left.pop(0) for share, left in steps.items() if left}:
                for share, answer in self._team.call(calls).items():
                    if isinstance(answer, Lost):
                        self._replace_host(share, answer)
                        del steps[share]
                    elif calls[share][0] == "make":
                        self._facts[share] = sound(answer)
                    else:
                        sound(answer)
            self._known |= {share: aimed[share] for share in steps}

    def _calls_to_restore(self, share: int) -> list[Call]:
        """Return the calls that restore a share on a new host.

        If the share's folder is missing, its lanes had no started replicates at that commit, so
        all relevant calls came later.
        """
        way: list[Call] = [self._host_call("make", (self._resolved, self._asked))]
        saved = self._saved.get(share)
        if saved is not None and saved.exists():
            way.append(self._host_call("restore", (pack(saved),)))
        return way + self._done[share]


def sound(answer: Any) -> Any:
    if isinstance(answer, RemoteError):
        raise answer.kind(answer.text)
    return answer
