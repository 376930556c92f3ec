"""The host of some shares of a study's populations: what runs on the workers of a cluster.

It knows nothing of the loop: it is told what to do with its lanes, one call after the other, and
gives answers that can travel.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ...disk import delete_folder, make_folder, new_folder, write_bytes
from ...errors import ConfigError, HpoError, StoreError
from ...store.rows import Stream
from ..lanes.contract import Change, ChunkResult, EvaluationResult, Population, Refill, Resolved
from ..lanes.division import Division

__all__ = [
    "RECORD",
    "Facts",
    "Fault",
    "Machine",
    "Reply",
    "ShareHost",
    "ShareSource",
    "pack",
    "unpack",
]

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
