"""Check a bundle level by level: intact, consistent, playable, retrained.

The first two read the bundle alone, without jax. Nothing outside the folder that it is unpacked
into is opened, and its code runs only for the other two, once it is allowed.
"""

from __future__ import annotations

import glob
import importlib.machinery
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...environments.registry import files_of
from ...environments.table import ENVIRONMENTS
from ...errors import HpoError, StoreError, counted, named
from ...files.atomic_files import new_folder, read_text
from ...files.plain_data import parse_json
from ...machine.software import versions_of_study
from ...search.checks import files_of_environment
from ...store.comparison import compare
from ...store.journal import Journal
from ...store.query import query
from ...store.rows import Stream
from ...store.study_folder import StudyFolder, first_of
from ...studies.load import recorded
from ...studies.spec import Study
from ...studies.user_code import import_user_code, is_inside
from ..formatting import number
from .claims import claims_of, differences
from .container import unpack
from .policy_forms import FILE, difference
from .write import CLAIMS, COPIED, FORMAT, LOCK, MANIFEST, NUMPY, SOURCE, as_text, write_rows

_MISFITS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError,
            ValueError)  # fmt: skip


@dataclass(frozen=True)
class Level:
    name: str
    holds: bool | None  # None: not asked for, or there is no answer
    words: str
    wrong: Sequence[str] = ()


class Bundle:
    """A bundle that is intact, unpacked into a folder; `StoreError` names what is not."""

    def __init__(self, path: Path, folder: Path):
        self.path, self.folder = path, new_folder(folder.resolve())
        sums = unpack(path, self.folder)
        if MANIFEST not in sums:
            raise StoreError(f"{path} is not a bundle: it has no {MANIFEST}")
        del sums[MANIFEST]
        with self._fitting():
            text = read_text(self.folder / MANIFEST)
            about = parse_json(text)
            if about["format"] != FORMAT:
                raise StoreError(f"it has format {about['format']!r:.50}, this hpo reads {FORMAT}")
            self.trial, self.members = int(about["trial"]), dict(about["members"])
            listed, needed = self.members, {*self.members, *COPIED, CLAIMS, LOCK}
            wrong = [f"{name} is missing" for name in sorted(needed) if name not in sums]
            wrong += [f"{name} is not listed" for name in sums if name not in listed]
            wrong += [f"{n} changed" for n, was in listed.items() if sums.get(n, was) != was]
            again = {"format": FORMAT, "trial": self.trial, "members": listed}
            if wrong or text != as_text(again):
                raise StoreError(first_of(wrong or [f"{MANIFEST} changed"]))
            lock = parse_json(read_text(self.folder / LOCK))
            self.outside, self.no_numpy = list(map(str, lock["not_in_it"])), str(lock["no_numpy"])
            self.policy = self.folder / "policies" / f"trial_{self.trial}"

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Turn errors about contents that were made up into one sentence."""
        try:
            yield
        except (HpoError, *_MISFITS) as error:
            own = isinstance(error, HpoError)
            text = str(error) if own else f"its contents do not fit each other: {named(error)}"
            text = " ".join(text.split()).replace(f"{self.folder}/", "")
            raise StoreError(f"{self.path}: {text:.500}") from error

    @property
    def code(self) -> list[str]:
        """Its files that Python could run, without the copy of our own `forward.py`."""
        kinds = tuple(importlib.machinery.all_suffixes())
        ours = f"{NUMPY}/forward.py"
        return [name for name in self.members if name.endswith(kinds) and name != ours]

    def consistent(self) -> tuple[Level, dict[str, Any]]:
        """Compute every claim again; return those that the rows give, too."""
        with self._fitting():
            found = claims_of(self.folder, self.trial)
            text = read_text(self.folder / CLAIMS)
            wrong = [*differences(claimed := parse_json(text), found)]
            if text != as_text(claimed):  # one key twice: readers would see different claims
                wrong.append(f"{CLAIMS}: its JSON is not written as hpo writes it")
            files = found["ran_with"]["files"].items()
            ran = {f"{SOURCE}/{path}": summed for path, summed in files if is_inside(path)}
            code = [name for name in self.code if name.startswith(f"{SOURCE}/")]
            rows, others = self._rows()
            numpy = self.no_numpy or difference(self.folder / NUMPY / FILE)
        odd = [name for name in {*ran, *code} if self.members.get(name) != ran.get(name)]
        wrong += [f"{name}: is not a file that the study ran with" for name in sorted(odd)]
        wrong += [*others, *([] if self.no_numpy or not numpy else [f"{NUMPY}/{FILE}: {numpy}"])]
        words = f"{counted(len(found['claims']), 'claim')} from {counted(rows, 'row')}; "
        words += f"not for NumPy: {numpy}" if numpy else "NumPy gives the policy's actions"
        return Level("consistent", not wrong, words, wrong), found

    def _rows(self) -> tuple[int, list[str]]:
        """Return the number of rows, and how the tables differ from the journal's."""
        again, wrong, total = new_folder(self.folder / "from_journal"), list[str](), 0
        write_rows(self.folder, again)
        for file in sorted(again.glob("*.parquet")):
            paths = (glob.escape(str(one)) for one in (self.folder / file.name, file))
            quoted = (path.replace("'", "''") for path in paths)
            ours, theirs = (f"FROM read_parquet('{path}')" for path in quoted)
            here, there = (query(self.folder, f"{one} LIMIT 0")[0] for one in (ours, theirs))
            if here != there:
                wrong.append(f"{file.name}: its columns are not the journal's")
                continue
            apart = (f"FROM ({a} EXCEPT ALL {b})" for a, b in ((ours, theirs), (theirs, ours)))
            sql = f"SELECT {', '.join(f'(SELECT count(*) {one})' for one in (ours, *apart))}"
            [(rows, *others)] = query(self.folder, sql)[1]
            total += rows
            for more, words in zip(others, ("not", "only"), strict=True):
                if more:
                    wrong.append(f"{file.name}: {counted(more, 'row')} {words} in the journal")
        return total, wrong

    def play(self, episodes: int) -> Level:
        """Evaluate the policy on new episodes, and compare them with the recorded ones."""
        if not (self.policy / FILE).is_file():
            return Level("playable", None, f"there is no single policy: {self.no_numpy}")
        from ...core.policy_document import read_document

        document = read_document(self.policy / FILE)
        known = ENVIRONMENTS.get(document.eval_env.id)
        if known is not None and known.source == "optical":
            return Level("playable", None, "a network serves requests: unzip it for `hpo eval`")
        for env in (document.env, document.eval_env):
            self._check_inside(files_of(env.id, dict(env.keys)).values())
        self._check_inside(document.imports)
        import_user_code(document.imports, self.policy / "imports")
        from ...core.saved_policy import load_policy
        from ...machine.devices import prepare_devices

        prepare_devices()
        greedy = self._study().evaluation.greedy
        played = load_policy(self.policy).evaluate(episodes, greedy=greedy).returns[0]
        with self._fitting():
            stream, about = Stream(document.about["stream"]), document.about
            sql = f"SELECT episode_return FROM evaluations WHERE stream = '{stream}'"
            for name in ("trial", "replicate", "env_steps"):
                sql += f" AND {name} = {int(about[name])}"
            before = [float(value) for (value,) in query(self.folder, sql)[1]]
        return Level("playable", *_agree(before, played.tolist()))

    def retrain(self) -> Level:
        """Train the trial again by `hpo replay`: bit-equal, within the interval, or not."""
        from ...search.analysis.replay import replay

        if self.outside:
            return Level("retrained", None, f"files are not in it: {first_of(self.outside)}")
        study = self._study()
        start = [] if study.init is None else [study.init.folder]
        self._check_inside([*study.imports, *start, *files_of_environment(study)])
        found = replay(StudyFolder(self.folder), self.trial, self.folder / SOURCE)
        if found.same:
            words = counted(len(found.points), "evaluation")
            return Level("retrained", True, f"bit-equal: {words}, {found.curve_rows} curve rows")
        last = [one for one in found.points if one.env_steps == found.points[-1].env_steps]
        before = [value for one in last for value in one.recorded]
        holds, words = _agree(before, [value for one in last for value in one.replayed])
        with Journal(self.folder) as journal:
            was, here = journal.meta.versions, versions_of_study(study)
        apart = [one for one in was if was[one] != here.get(one)]
        moved = [f"{one} {was[one]}, here {here.get(one)}" for one in apart]
        also = f" ({first_of(moved)})" if moved else ""
        return Level("retrained", holds, f"not bit-equal{also}: {words}")

    def _study(self) -> Study:
        with self._fitting(), Journal(self.folder) as journal:
            return recorded(journal.meta.study_text)

    def _check_inside(self, names: Iterable[object]) -> None:
        for name in map(str, names):
            if not is_inside(name):
                raise StoreError(f"{self.path} names {name!r:.200}, which is outside of it")


def _agree(before: Sequence[float], now: Sequence[float]) -> tuple[bool | None, str]:
    """Return whether two samples have the same mean, as far as an interval tells."""
    if not before or not now:
        return None, "no such evaluation was recorded"
    found = compare(now, before)
    ours, theirs = map(number, found.means)
    words = f"{ours} on {counted(len(now), 'episode')}, recorded {theirs} on {len(before)}"
    around = found.difference_interval
    if around.low is None or around.high is None:
        return None, f"{words}; an interval needs 5 of each"
    holds = around.low <= 0.0 <= around.high
    ends = f"[{number(around.low)}, {number(around.high)}]"
    return holds, f"{words}, {'within' if holds else 'outside'} the interval {ends} of differences"
