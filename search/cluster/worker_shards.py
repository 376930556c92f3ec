"""One population in several equal shares, each with a host elsewhere, which may die.

To the loop it is one population, whose lanes are dealt to the shares unit by unit (`Division`).
What a host did since its share was last saved is remembered, so that another host brings the share
back to the same bits: it restores what was saved and does the same again.
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
    make_folder,
    new_folder,
    read_text,
    write_bytes,
    write_text,
)
from ...store.rows import Stream
from ..lanes.contract import (
    Change,
    ChunkResult,
    ChunkRow,
    Division,
    EvaluationResult,
    NotWritten,
    Population,
    Refill,
    Resolved,
)

Files = dict[str, bytes]
"""A folder that travels: path in it -> bytes."""

RECORD = "shares.json"
"""What lies beside the shares of a checkpoint."""

_KEPT = 4096  # configurations of a host


@dataclass(frozen=True)
class Facts:
    """What a share of a population is; as in `Population`, and how all lanes are divided."""

    division: Division
    block: int
    steps_per_chunk: int
    warmup_chunks: int


@dataclass(frozen=True)
class Fault:
    """In place of an answer: an exception, by the kind of `HpoError` it is and its words."""

    kind: str
    text: str


@dataclass(frozen=True)
class Machine:
    """What a host runs on.

    Attributes:
        backend, device_count: as in `PopulationFactory`.
        versions: package -> version, of what decides bits.
    """

    backend: str
    device_count: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """What a call gives: an answer or a `Fault`, and lines for the user."""

    answer: Any
    warnings: tuple[str, ...] = ()


class ShareSource(Protocol):
    """Makes shares of populations; like a `PopulationFactory`, of which `make` gives a share."""

    @property
    def machine(self) -> Machine:
        """What populations run on."""
        ...

    def resolve(self, config: Mapping[str, Any]) -> Resolved:
        """See `PopulationFactory`."""
        ...

    def check(self, resolved: Resolved) -> None:
        """Refuse a configuration that no program can run.

        Raises:
            ConfigError: says why.
        """
        ...

    def divide(self, resolved: Resolved, lanes: int | None) -> Division:
        """Divide the lanes of a population; None leaves their number to the study or the rule."""
        ...

    def make(self, resolved: Resolved, division: Division) -> Population:
        """Make one share of a population."""
        ...

    def baseline(
        self, name: str, resolved: Resolved, seeds: Sequence[tuple[Stream, int]]
    ) -> list[EvaluationResult]:
        """See `PopulationFactory`."""
        ...


class ShareHost:
    """Holds shares of populations by (share, bucket); all it needs comes with the calls.

    Args:
        source: makes the source, given how many hosts share this machine and whom to warn.
    """

    def __init__(self, source: Callable[[int, Callable[[str], None]], ShareSource]):
        self._make_source = source
        self._warnings: list[str] = []
        self._source: ShareSource | None = None
        self._populations: dict[tuple[int, str], Population] = {}
        self._resolved: dict[str, Resolved] = {}

    def machine_name(self) -> str:
        """Return which machine this is; answers before anything heavy is imported."""
        return socket.gethostname()

    def process(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    def do(self, share: int, method: str, args: tuple[Any, ...]) -> Reply:
        """Do one of the methods below for a share; an exception becomes a `Fault`."""
        answer = self._answer(share, method, args)
        said, self._warnings = tuple(self._warnings), []
        return Reply(answer, said)

    def _answer(self, share: int, method: str, args: tuple[Any, ...]) -> Any:
        calls: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "resolve": self._program,
            "check": lambda resolved: self._known.check(self._own(resolved)),
            "baseline": lambda name, resolved, seeds: self._known.baseline(
                name, self._own(resolved), seeds
            ),
        }
        try:
            if method in calls:
                return calls[method](*args)
            key, *rest = args
            return getattr(self, f"_do_{method}")((share, key), *rest)
        except Exception as error:
            return _fault(error)

    @property
    def _known(self) -> ShareSource:
        if self._source is None:
            raise RuntimeError("a host was asked before `begin`")
        return self._source

    def _begin(self, neighbours: int) -> Machine:
        if self._source is None:
            self._source = self._make_source(neighbours, lambda text: self._warnings.append(text))
        return self._source.machine

    # ------------------------------------------------------------------ configurations

    def _resolve(self, config: Mapping[str, Any], name: str) -> Resolved:
        """Return a complete configuration as this host's populations take it; keep the latest."""
        found = self._resolved.pop(name, None) or self._known.resolve(config)
        self._resolved[name] = found  # the latest come last
        if len(self._resolved) > _KEPT:
            del self._resolved[next(iter(self._resolved))]
        return found

    def _own(self, resolved: Resolved) -> Resolved:
        """Return what stands here for what has travelled, whose payload is a name."""
        return self._resolve(resolved.config, resolved.payload)

    def _program(self, config: Mapping[str, Any], name: str) -> tuple[str, int]:
        """Return the bucket and the quantum of a complete configuration."""
        found = self._resolve(config, name)
        return found.bucket, found.steps_per_chunk

    # ------------------------------------------------------------------ on one share of a bucket

    def _do_make(self, at: tuple[int, str], resolved: Resolved, lanes: int | None) -> Facts:
        self._populations.pop(at, None)  # frees the memory of what an error has left
        own = self._own(resolved)
        division = self._known.divide(own, lanes)
        made = self._populations[at] = self._known.make(own, division)
        return Facts(division, made.block, made.steps_per_chunk, made.warmup_chunks)

    def _do_compile(self, at: tuple[int, str]) -> None:
        self._populations[at].compile()

    def _do_compile_evaluation(self, at: tuple[int, str]) -> None:
        self._populations[at].compile_evaluation()

    def _do_advance(
        self, at: tuple[int, str], refills: Sequence[Refill], busy: Sequence[int]
    ) -> ChunkResult:
        own = [replace(refill, resolved=self._own(refill.resolved)) for refill in refills]
        return self._populations[at].advance(own, busy)

    def _do_change(
        self,
        at: tuple[int, str],
        changes: Sequence[Change],
        incoming: Mapping[int, tuple[Any, Resolved]],
    ) -> None:
        own = [replace(change, resolved=self._own(change.resolved)) for change in changes]
        states = {lane: (state, self._own(new)) for lane, (state, new) in incoming.items()}
        if own:
            self._populations[at].change(own)
        if states:
            self._populations[at].put(states)

    def _do_take(self, at: tuple[int, str], lanes: Sequence[int]) -> list[Any]:
        return self._populations[at].take(lanes)

    def _do_evaluate(self, at: tuple[int, str], lanes: Sequence[int]) -> list[EvaluationResult]:
        return self._populations[at].evaluate(lanes)

    def _do_export_policy(
        self, at: tuple[int, str], lane: int, resolved: Resolved, about: Mapping[str, Any]
    ) -> Files:
        with tempfile.TemporaryDirectory(prefix="hpo-") as work:
            self._populations[at].export_policy(
                lane, self._own(resolved), Path(work) / "policy", about
            )
            return pack(Path(work) / "policy")

    def _do_save(self, at: tuple[int, str], folder: str, token: str) -> Files | None:
        """Write a share's lanes into a folder if this machine sees it, else hand them over.

        It does if the record of the checkpoint beside the folder holds the token.
        """
        there = Path(folder)
        if _sees(there.parent / RECORD, token):
            delete_folder(there)  # what a host left that died over it
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
    """Return all files of a folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files that `pack` gave into a new folder."""
    new_folder(folder)
    for name, content in files.items():
        path = folder / name
        make_folder(path.parent)
        write_bytes(path, content)


def _sees(record: Path, token: str) -> bool:
    try:
        return token in record.read_text()
    except OSError:
        return False


def _fault(error: Exception) -> Fault:
    """Return an exception in words: its class may not be able to travel."""
    text = str(error)
    if isinstance(error, HpoError):
        kinds = ((ConfigError, "config"), (StoreError, "store"))
        return Fault(next((kind for cls, kind in kinds if isinstance(error, cls)), "hpo"), text)
    return Fault("other", f"{type(error).__name__}: {text}".split("\n")[0][:500])


Call = tuple[str, tuple[Any, ...]]
"""A method of `ShareHost` and its arguments, the share left out."""

_ATTEMPTS = 3


class WorkerError(RuntimeError):
    """What went wrong on a host while it worked on some lanes."""


class Lost:
    """In place of an answer: the host of a share died before it gave one."""

    def __init__(self, reason: str = ""):
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Team(Protocol):
    """Whoever reaches the hosts of all shares.

    Attributes:
        shares: how many there are.
    """

    shares: int

    def generation(self, share: int) -> int:
        """Count the hosts that a share had before this one; a new host knows nothing."""
        ...

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        """Call hosts side by side, by share; give answers, or `Lost` where a host died."""
        ...

    def replace(self, share: int) -> None:
        """Assign a new host to a share.

        Raises:
            SearchError: there is none to be had.
        """
        ...

    def first_of_machines(self) -> list[int]:
        """Return one share of every machine."""
        ...


def asked(team: Team, share: int, call: Call) -> Any:
    """Ask one share's host what any host can answer, another host if it dies.

    Raises:
        HpoError: as the host did.
        WorkerError: hosts died one after the other, or something else went wrong there.
    """
    for _ in range(_ATTEMPTS):
        answer = team.call({share: call})[share]
        if not isinstance(answer, Lost):
            return sound(answer)
        team.replace(share)
    raise WorkerError(f"{_ATTEMPTS} workers died one after the other over `{call[0]}`")


class SharedPopulation(NotWritten):
    """The lanes of one bucket, in equal shares; see `Population`.

    Args:
        team: reaches the hosts.
        resolved: whose bucket; hosts know it under the bucket's name.
        lanes: of all shares together; None leaves them to the rule.
        compiling: entered around each compile, with words for it.
        words: what tells the bucket from the others.
    """

    def __init__(
        self,
        team: Team,
        resolved: Resolved,
        lanes: int | None,
        compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
        words: str = "",
    ):
        """Let every host make its share."""
        self._team, self._compiling, self._words = team, compiling, words
        self._resolved, self._asked = resolved, lanes
        shares = range(team.shares)
        self._known = dict.fromkeys(shares, -1)
        self._saved: dict[int, Path] = {}
        self._done: dict[int, list[Call]] = {share: [] for share in shares}
        self._facts: dict[int, Facts] = {}
        self._died: Counter[int] = Counter()
        self._bring_back_all(shares)
        facts = self._facts[0]
        self.lanes = self._asked = facts.division.total
        self.block = facts.block  # as one process has it, because refills go by it
        self.steps_per_chunk, self.warmup_chunks = facts.steps_per_chunk, facts.warmup_chunks
        self._own, self._size = facts.division.own, facts.division.unit
        self._places: dict[int, list[int]] = {share: [] for share in shares}
        for lane in range(self.lanes):
            self._places[self._where(lane)[0]].append(lane)
        self._compiled = self._evaluation_compiled = False

    @property
    def compiles(self) -> int:
        """Training programs compiled so far: 0 before the first chunk, then 1."""
        return int(self._compiled)

    # ------------------------------------------------------------------ which lane is where

    def _where(self, lane: int) -> tuple[int, int]:
        """Return the share of a lane, and its number there."""
        block, rest = divmod(lane, self._size)
        own, share = divmod(block, self._team.shares)
        return share, own * self._size + rest

    def _dealt(self, lanes: Iterable[int]) -> dict[int, list[int]]:
        """Return share -> numbers there of some lanes."""
        found: dict[int, list[int]] = {}
        for lane in lanes:
            share, own = self._where(lane)
            found.setdefault(share, []).append(own)
        return found

    # ------------------------------------------------------------------ what a population does

    def compile(self) -> None:
        """See `Population`; of several hosts on one machine the first fills the cache."""
        if not self._compiled:
            self._compile("compile", "training")
            self._compiled = True

    def compile_ahead(self) -> None:
        """See `Population`; hosts are asked one thing after the other."""

    def compile_evaluation(self) -> None:
        """See `Population`."""
        if not self._evaluation_compiled:
            self._compile("compile_evaluation", "evaluation")
            self._evaluation_compiled = True

    def _compile(self, method: str, what: str) -> None:
        first = self._team.first_of_machines()
        others = [share for share in range(self._team.shares) if share not in first]
        where = f"{self.lanes} lanes over {self._team.shares} workers"
        with self._compiling(f"{what}: {'; '.join(filter(None, (self._words, where)))}"):
            for shares in (first, others):
                self._ask(method, dict.fromkeys(shares, ()))

    def advance(self, refills: Sequence[Refill], busy: Sequence[int]) -> ChunkResult:
        """See `Population`; shares without a busy lane rest."""
        self.compile()
        started = time.perf_counter()
        given: dict[int, list[Refill]] = {}
        for refill in refills:
            share, own = self._where(refill.lane)
            given.setdefault(share, []).append(replace(refill, lane=own))
        work = {share: (given.get(share, []), own) for share, own in self._dealt(busy).items()}
        answers: dict[int, ChunkResult] = self._ask("advance", work, remember=True)
        diverged = np.zeros(self.lanes, bool)
        failed: dict[int, str] = {}
        for share, answer in answers.items():
            places = self._places[share]  # the first of its lanes; those behind them stay idle
            count = len(places)
            diverged[places] = answer.diverged[:count]
            failed |= {places[own]: why for own, why in answer.failed.items()}
        metrics = self._brought_together({s: answer.metrics for s, answer in answers.items()})
        parts = [answer.rows for answer in answers.values()]
        rows = tuple(
            ChunkRow(
                same[0].env_steps,
                self._brought_together(
                    {share: part.metrics for share, part in zip(answers, same, strict=True)}
                ),
            )
            for same in zip(*parts, strict=True)
        )
        return ChunkResult(metrics, diverged, time.perf_counter() - started, failed, rows)

    def _brought_together(
        self, metrics: Mapping[int, Mapping[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return name -> [lanes] of what shares give by share; lanes at rest have zeros."""
        found: dict[str, np.ndarray] = {}
        for share, own in metrics.items():
            places = self._places[share]
            for name, values in own.items():
                found.setdefault(name, np.zeros(self.lanes))[places] = values[: len(places)]
        return found

    def change(self, changes: Sequence[Change]) -> None:
        """See `Population`; states of lanes elsewhere are taken before anything is changed."""
        own: dict[int, list[Change]] = {}
        wanted: dict[int, dict[int, tuple[int, Resolved]]] = {}
        for change in changes:
            share, lane = self._where(change.lane)
            own.setdefault(share, [])
            if change.source is None or self._where(change.source)[0] == share:
                source = None if change.source is None else self._where(change.source)[1]
                own[share].append(replace(change, lane=lane, source=source))
            else:
                wanted.setdefault(share, {})[lane] = (change.source, change.resolved)
        sources = sorted({lane for lanes in wanted.values() for lane, _ in lanes.values()})
        states = dict(zip(sources, self.take(sources), strict=True))
        work = {}
        for share, there in own.items():
            moved = wanted.get(share, {}).items()
            incoming = {lane: (states[source], new) for lane, (source, new) in moved}
            work[share] = (there, incoming)
        self._ask("change", work, remember=True)

    def take(self, lanes: Sequence[int]) -> list[Any]:
        """See `Population`."""
        return self._gathered("take", lanes)

    def put(self, states: Mapping[int, tuple[Any, Resolved]]) -> None:
        """See `Population`."""
        work: dict[int, tuple[list[Change], dict[int, Any]]] = {}
        for lane, state in states.items():
            share, own = self._where(lane)
            work.setdefault(share, ([], {}))[1][own] = state
        self._ask("change", work, remember=True)

    def evaluate(self, lanes: Sequence[int]) -> list[EvaluationResult]:
        """See `Population`."""
        self.compile_evaluation()
        return self._gathered("evaluate", lanes)

    def _gathered(self, method: str, lanes: Sequence[int]) -> list[Any]:
        """Ask for one thing a lane, and give the answers in the order of the lanes."""
        dealt = self._dealt(lanes)
        answers = self._ask(method, {share: (own,) for share, own in dealt.items()})
        queues = {share: iter(found) for share, found in answers.items()}
        return [next(queues[self._where(lane)[0]]) for lane in lanes]

    def export_policy(
        self,
        lane: int,
        resolved: Resolved,
        directory: Path,
        about: Mapping[str, Any] = {},
    ) -> None:
        """See `Population`; the files come over, whatever file system the host has."""
        share, own = self._where(lane)
        files = self._ask("export_policy", {share: (own, resolved, dict(about))})[share]
        unpack(files, directory)

    def save(self, directory: Path) -> None:
        """See `Population`; a host that does not see the folder hands its files over."""
        token = secrets.token_hex(8)
        new_folder(directory)
        lanes = {"lanes": self._own, "of": self.lanes}
        record = {"shares": self._team.shares, **lanes, "token": token}
        write_text(directory / RECORD, json.dumps(record))
        folders = {share: directory / f"share-{share}" for share in range(self._team.shares)}
        given = {share: (str(folder), token) for share, folder in folders.items()}
        for share, files in self._ask("save", given).items():
            if files is not None:
                delete_folder(folders[share])
                unpack(files, folders[share])
            self._saved[share], self._done[share] = folders[share], []

    def restore(self, directory: Path) -> None:
        """See `Population`.

        Raises:
            StoreError: another number of workers saved it, or files are missing or damaged.
        """
        try:
            record = json.loads(read_text(directory / RECORD))
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{directory} is no checkpoint of lanes on workers: {error}"
            ) from error
        found = (record.get("shares"), record.get("lanes"), record.get("of", self.lanes))
        if found != (self._team.shares, self._own, self.lanes):
            raise StoreError(
                f"{directory} holds {record.get('shares')} x {record.get('lanes')} lanes, but "
                f"here are {self._team.shares} x {self._own}; go on with as many workers"
            )
        shares = range(self._team.shares)
        self._saved = {share: directory / f"share-{share}" for share in shares}
        self._done = {share: [] for share in shares}
        self._ask("restore", {share: (pack(self._saved[share]),) for share in shares})

    # ------------------------------------------------------------------ asking, and asking again

    def _ask(
        self, method: str, work: Mapping[int, tuple[Any, ...]], remember: bool = False
    ) -> dict[int, Any]:
        """Ask hosts side by side; where one dies another one takes over and is asked again.

        Args:
            method: of `ShareHost`.
            work: share -> arguments.
            remember: it changes lanes, so a new host has to do it again.

        Raises:
            HpoError: as a host did.
            WorkerError: hosts died again and again, or something else went wrong there.
        """
        pending, answers = dict(work), {}
        self._died.clear()
        while pending:
            self._bring_back_all(pending)
            calls = {share: self._call(method, args) for share, args in pending.items()}
            for share, answer in self._team.call(calls).items():
                if isinstance(answer, Lost):
                    self._mourn(share, answer)
                    continue
                answers[share] = answer
                del pending[share]
                if remember and not isinstance(answer, Fault):
                    self._done[share].append(calls[share])
        return {share: sound(answers[share]) for share in work}

    def _call(self, method: str, args: tuple[Any, ...]) -> Call:
        return method, (self._resolved.bucket, *args)

    def _mourn(self, share: int, lost: Lost) -> None:
        """Replace a host that died, unless the work itself seems to kill hosts."""
        self._died[share] += 1
        if self._died[share] >= _ATTEMPTS:
            raise WorkerError(
                f"{_ATTEMPTS} workers died one after the other over the same lanes, perhaps for "
                f"lack of memory: {lost.reason}"
            )
        self._team.replace(share)

    def _bring_back_all(self, shares: Iterable[int]) -> None:
        """Bring the shares whose hosts are new to where they were."""
        while lost := [s for s in shares if self._known[s] != self._team.generation(s)]:
            steps = {share: self._way_back(share) for share in lost}
            aimed = {share: self._team.generation(share) for share in lost}
            while calls := {share: left.pop(0) for share, left in steps.items() if left}:
                for share, answer in self._team.call(calls).items():
                    if isinstance(answer, Lost):
                        self._mourn(share, answer)
                        del steps[share]
                    elif calls[share][0] == "make":
                        self._facts[share] = sound(answer)
                    else:
                        sound(answer)
            self._known |= {share: aimed[share] for share in steps}

    def _way_back(self, share: int) -> list[Call]:
        """Return what brings a share from nothing to where it is.

        A folder that is gone belonged to a commit in which no replicate of these lanes had begun,
        so whatever counts came later.
        """
        way: list[Call] = [self._call("make", (self._resolved, self._asked))]
        saved = self._saved.get(share)
        if saved is not None and saved.exists():
            way.append(self._call("restore", (pack(saved),)))
        return way + self._done[share]


def sound(answer: Any) -> Any:
    """Return an answer, or raise what went wrong on the host."""
    if not isinstance(answer, Fault):
        return answer
    kinds: dict[str, type[HpoError]] = {"config": ConfigError, "store": StoreError}
    if answer.kind in kinds:
        raise kinds[answer.kind](answer.text)
    raise SearchError(answer.text) if answer.kind == "hpo" else WorkerError(answer.text)
