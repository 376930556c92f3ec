"""Check a bundle level by level: intact, consistent, playable, retrained.

The first two read the bundle alone, without jax. Nothing outside the folder that it is unpacked
into is opened, and its code runs only for the other two, once it is allowed.
"""

from __future__ import annotations

import glob
import importlib.machinery
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...core.policy_document import NAME, read_document
from ...environments.registry import files_of
from ...environments.table import ENVIRONMENTS
from ...errors import HpoError, StoreError, counted, named
from ...files.atomic_files import new_folder, read_text
from ...files.plain_data import is_dict, parse_json
from ...machine.software import versions
from ...search.checks import files_of_environment
from ...store.comparison import compare
from ...store.journal import Journal
from ...store.query import query
from ...store.study_folder import StudyFolder, first_of
from ...studies.load import recorded
from ...studies.user_code import import_user_code, is_inside
from ..formatting import duration, number, steps
from .claims import claims_of, differences
from .container import unpack
from .numpy_policy import difference
from .write import CLAIMS, FORMAT, LOCK, MANIFEST, NUMPY, SOURCE, lock_of, write_rows

_FIELDS: Mapping[str, Any] = {
    "format": int, "hpo": str, "study": str, "trial": int, "not_in_it": list,
    "policy": str | None, "numpy": str, "members": dict,
}  # fmt: skip
_PROBLEMS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
             ValueError)  # fmt: skip


@dataclass(frozen=True)
class Level:
    """A level with its answer; None: it was not asked for, or cannot be answered."""

    name: str
    holds: bool | None
    words: str
    found: Sequence[str] = ()  # what does not hold


class Bundle:
    """A bundle that is intact, unpacked into a folder; `StoreError` names what is not."""

    def __init__(self, path: Path, folder: Path):
        self.path, self.folder = path, new_folder(folder.resolve())
        sums = unpack(path, self.folder)
        with _fitting(path):
            manifest = parse_json(read_text(self.folder / MANIFEST)) if MANIFEST in sums else None
        if not is_dict(manifest):
            raise StoreError(f"{path} is not a bundle of hpo: it has no {MANIFEST}")
        for name, kind in _FIELDS.items():
            if not isinstance(manifest.get(name), kind):
                raise StoreError(f"{path}: {MANIFEST} has no {name} as hpo writes it")
        if manifest["format"] != FORMAT:
            raise StoreError(f"{path} has format {manifest['format']}, this hpo reads {FORMAT}")
        self.manifest, listed = manifest, manifest["members"]
        policy = manifest["policy"]
        if policy is not None and not is_inside(policy):
            raise StoreError(f"{path}: the policy {policy!r:.200} is not inside the bundle")
        wrong = [f"{name} is missing" for name in listed if name not in sums]
        wrong += [f"{name} is not listed" for name in sums if name not in (*listed, MANIFEST)]
        wrong += [
            f"{name} changed" for name in listed if sums.get(name, listed[name]) != listed[name]
        ]
        if wrong:
            raise StoreError(f"{path} is not as {MANIFEST} lists it: {first_of(wrong)}")

    @property
    def trial(self) -> int:
        return self.manifest["trial"]

    @property
    def code(self) -> list[str]:
        """Its files that Python could run, without the copy of our own `forward.py`."""
        suffixes = tuple(importlib.machinery.all_suffixes())
        return [
            name
            for name in self.manifest["members"]
            if name.endswith(suffixes) and PurePosixPath(name).parts[0] != NUMPY
        ]

    def intact(self) -> Level:
        count = counted(len(self.manifest["members"]) + 1, "member")
        return Level("intact", True, f"{count}, each with its sha256")

    def consistent(self) -> tuple[Level, Mapping[str, Any]]:
        """Compute every claim again; return them, too."""
        with _fitting(self.path):
            return self._consistent()

    def _consistent(self) -> tuple[Level, Mapping[str, Any]]:
        claimed = parse_json(self._text(CLAIMS))
        found = claims_of(self.folder, self.trial)
        wrong = list(differences(claimed, found))
        with Journal(self.folder) as journal:
            meta = journal.meta
        lock = parse_json(self._text(LOCK))
        wrong += differences(lock.get("study"), lock_of(meta), f"{LOCK}: study")
        if self._text("study.resolved.yaml") != meta.study_text:
            wrong.append("study.resolved.yaml: it is not the study that the journal says ran")
        rows, others = self._rows()
        wrong += others
        numpy = self.manifest["numpy"]
        if not numpy and (words := difference(self.folder / NUMPY)):
            wrong.append(f"{NUMPY}/{NAME}: {words}")
        said = f"{counted(len(found['claims']), 'claim')} from {counted(rows, 'row')}"
        said += (
            f"; no policy for NumPy: {numpy}" if numpy else "; NumPy gives the policy's actions"
        )
        return Level("consistent", not wrong, said, wrong), found

    def _text(self, name: str) -> str:
        if name not in self.manifest["members"]:
            raise StoreError(f"{self.path} has no {name}")
        return read_text(self.folder / name)

    def _rows(self) -> tuple[int, list[str]]:
        """Return the rows of the tables, and how those differ from the journal's."""
        again, wrong, total = new_folder(self.folder / "from_journal"), list[str](), 0
        write_rows(self.folder, again)
        for file in sorted(again.glob("*.parquet")):
            ours, theirs = (
                f"FROM read_parquet('{glob.escape(str(one)).replace(chr(39), chr(39) * 2)}')"
                for one in (self.folder / file.name, file)
            )
            columns, [(count,)] = query(self.folder, f"SELECT count(*) {ours}")
            columns = ", ".join(f'"{name}"' for name in query(self.folder, f"{ours} LIMIT 0")[0])
            total += count
            for one, other, words in (
                (ours, theirs, "that are not in the journal"),
                (theirs, ours, "fewer than the journal"),
            ):
                sql = f"SELECT {columns} {one} EXCEPT ALL SELECT {columns} {other}"
                if more := query(self.folder, f"SELECT count(*) FROM ({sql})")[1][0][0]:
                    wrong.append(f"{file.name}: {counted(more, 'row')} {words}")
        return total, wrong

    # ------------------------------------------------------------------ with code and jax

    def allow(self, allowed: Callable[[list[str]], bool]) -> None:
        if self.code and not allowed(self.code):
            raise StoreError(
                f"{self.path} brings code, which was not allowed to run: {first_of(self.code)}; "
                "unzip and read it, then type --allow-code"
            )

    def play_cost(self, episodes: int) -> str:
        return f"starts jax and plays {counted(episodes, 'episode')}: about a minute"

    def play(self, episodes: int) -> Level:
        """Evaluate the policy again on new episodes; compare them with the recorded ones."""
        if self.manifest["policy"] is None:
            return Level("playable", None, self.manifest["numpy"])
        folder = self.folder / self.manifest["policy"]
        document = read_document(folder / NAME) if (folder / NAME).is_file() else None
        if document is None or _source(document.eval_env.id) == "optical":
            return Level(
                "playable", None, "unzip it and use hpo eval: no single environment of episodes"
            )
        for env in (document.env, document.eval_env):
            _check_inside(self.path, files_of(env.id, env.keys).values())
        _check_inside(self.path, document.imports)
        import_user_code(document.imports, folder / "imports")
        from ...core.saved_policy import load_policy
        from ...machine.devices import prepare_devices

        prepare_devices()
        study, about = recorded(self._text("study.resolved.yaml")), document.about
        found = load_policy(folder).evaluate(episodes, greedy=study.evaluation.greedy)
        keys = [about.get(name) for name in ("trial", "replicate", "env_steps")]
        where = "trial = {:d} AND replicate = {:d} AND env_steps = {:d}".format(*keys)
        stream = str(about.get("stream")).replace("'", "")
        sql = f"SELECT episode_return FROM evaluations WHERE {where} AND stream = '{stream}'"
        before = [value for (value,) in query(self.folder, sql)[1]]
        return Level("playable", *_agree(before, found.returns[0].tolist(), "episode"))

    def retrain_cost(self) -> str:
        with Journal(self.folder) as journal:
            row, meta = journal.trial(self.trial), journal.meta
        if row is None:
            raise StoreError(f"{self.path} has no trial {self.trial}")
        took = (
            f"; it took {duration(row.train_seconds)} of a {meta.backend}"
            if row.train_seconds
            else ""
        )
        return f"trains {steps(row.env_steps)} env steps again{took}"

    def retrain(self) -> Level:
        """Train the trial again by `hpo replay`."""
        from ...search.analysis.replay import replay

        if outside := self.manifest["not_in_it"]:
            return Level(
                "retrained", None, f"files of the study are not in it: {first_of(outside)}"
            )
        study = recorded(self._text("study.resolved.yaml"))
        start = [] if study.init is None else [study.init.folder]
        _check_inside(self.path, [*study.imports, *start, *files_of_environment(study)])
        found = replay(StudyFolder(self.folder), self.trial, self.folder / SOURCE)
        if found.same:
            words = counted(len(found.points), "evaluation")
            return Level("retrained", True, f"bit-equal: {words}, {found.curve_rows} curve rows")
        last = [one for one in found.points if one.env_steps == found.points[-1].env_steps]
        before, now = (
            [v for one in last for v in getattr(one, side)] for side in ("recorded", "replayed")
        )
        holds, words = _agree(before, now, "episode")
        was = parse_json(self._text(LOCK))["study"]["versions"]
        here = versions()
        moved = [
            f"{one} {was[one]}, here {here[one]}"
            for one in here
            if one in was and was[one] != here[one]
        ]
        also = f" ({first_of(moved)})" if moved else ""
        return Level("retrained", holds, f"not bit-equal{also}; {words}")


def _agree(before: Sequence[float], now: Sequence[float], noun: str) -> tuple[bool | None, str]:
    """Return whether two samples have the same mean, as far as an interval tells."""
    if not before or not now:
        return None, "the rows have no such evaluation to compare with"
    found = compare(now, before)
    seen = (
        f"{number(found.means[0])} on {counted(len(now), noun)}, recorded {number(found.means[1])}"
    )
    around = found.difference_interval
    if around.low is None or around.high is None:
        return None, f"{seen}; an interval needs 5 of each"
    inside = around.low <= 0.0 <= around.high
    ends = f"the difference has the interval [{number(around.low)}, {number(around.high)}]"
    return inside, f"{seen} on {len(before)}; {'within' if inside else 'outside'}: {ends}"


def _source(id_: str) -> str:
    return ENVIRONMENTS[id_].source if id_ in ENVIRONMENTS else ""


def _check_inside(path: Path, names: Any) -> None:
    for name in map(str, names):
        if not is_inside(name):
            raise StoreError(
                f"{path}: it would read {name!r:.200}, which is not inside the bundle"
            )


@contextmanager
def _fitting(path: Path) -> Iterator[None]:
    """Turn errors about contents that were made up into one sentence."""
    try:
        yield
    except HpoError as error:
        raise StoreError(" ".join(str(error).split())[:600]) from error
    except _PROBLEMS as error:
        raise StoreError(f"{path}: its contents do not fit each other: {named(error)}") from error
