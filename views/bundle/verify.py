"""Checks that a bundle is intact, and that its claims follow from its rows.

Both checks read only the bundle, without jax, and run none of its code. They never open a file
outside the unpacked bundle. The levels that run its code are in `play_and_train.py`.
"""

from __future__ import annotations

import glob
import importlib.machinery
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from ...core.policy_document import NAME, TRAINING, read_about, read_training
from ...errors import HpoError, StoreError, counted, named
from ...files.atomic_files import new_folder, read_text
from ...files.plain_data import is_dict, parse_json
from ...store.codec import plain_json
from ...store.journal import JOURNAL_NAME, Journal
from ...store.leaderboard import default_of
from ...store.query import query
from ...store.rows import Stream, StudyMeta
from ...store.study_folder import first_of
from ...studies.load import recorded
from ...studies.spec import Study
from ...studies.study_environments import SCORE
from ...studies.user_code import is_inside
from ...version import __version__
from . import forward
from .claims import claims_of, differences, values_apart
from .container import unpack
from .levels import Level
from .members import (
    CLAIMS,
    COPIED,
    LANE,
    LOCK,
    MANIFEST,
    NUMPY,
    NUMPY_FILES,
    PAGE,
    POLICIES,
    REPORT,
    SOURCE,
    Sums,
    is_known_place,
    is_whole_lane,
    policy_files,
    source_files,
)
from .page import verify_page
from .policy_forms import FILE, difference
from .write import FORMAT, FORMATS, as_text, code_sums, portable_report, write_rows

_DRAWS = ("duckdb", "numpy", "scipy")
"""Packages whose versions may change the last digits of a report."""

_MISFITS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class Bundle:
    """A bundle, unpacked to a folder; raises `StoreError` for the first damaged part."""

    def __init__(self, path: Path, folder: Path):
        self.path, self.folder = path, new_folder(folder.resolve())
        sums = unpack(path, self.folder)
        if MANIFEST not in sums:
            raise StoreError(f"{path} is not a bundle: it has no {MANIFEST}")
        del sums[MANIFEST]
        with self._as_bundle_errors():
            self._read_manifest(sums)
            lock = parse_json(read_text(self.folder / LOCK))
            self.outside, self._no_numpy = list(map(str, lock["not_in_it"])), str(lock["no_numpy"])
            self.made_by, code = str(lock["hpo"]), lock["code"]
            self.ours = self.made_by == __version__ and code == code_sums()
            self.policy = self.folder / POLICIES / f"trial_{self.trial}"

    def _read_manifest(self, sums: dict[str, str]) -> None:
        text = read_text(self.folder / MANIFEST)
        about = parse_json(text)
        if about["format"] not in FORMATS:
            given = (
                f"it has format {about['format']!r:.50}, but this version of hpo ({__version__})"
            )
            raise StoreError(
                f"{given} reads {FORMAT}; verify it with the version that {LOCK} names"
            )
        self.format = int(about["format"])
        self.trial, self.members = int(about["trial"]), dict(about["members"])
        listed, needed = self.members, {*self.members, *COPIED, CLAIMS, LOCK}
        if about["format"] == FORMAT:
            needed |= {REPORT, PAGE}
        wrong = [f"{name} is missing" for name in sorted(needed) if name not in sums]
        wrong += [f"{name} is not listed" for name in sums if name not in listed]
        wrong += [f"{n} changed" for n, was in listed.items() if sums.get(n, was) != was]
        foreign = [name for name in sums if not is_known_place(name, self.trial)]
        wrong += [f"{name} does not belong in a bundle" for name in foreign]
        again = {"format": about["format"], "trial": self.trial, "members": listed}
        if wrong or text != as_text(again):
            raise StoreError(first_of(wrong or [f"{MANIFEST} changed"]))

    @contextmanager
    def _as_bundle_errors(self) -> Generator[None]:
        """Replace any error caused by forged contents with one sentence."""
        try:
            yield
        except (HpoError, *_MISFITS) as error:
            text = str(error)
            if not isinstance(error, HpoError):
                text = f"its contents are inconsistent: {named(error)}"
            text = " ".join(text.split()).replace(f"{self.folder}/", "")
            raise StoreError(f"{self.path}: {text:.500}") from error

    @property
    def code(self) -> list[str]:
        """The files that Python could run, except the copy of `forward.py`."""
        kinds = tuple(importlib.machinery.all_suffixes())
        return [name for name in self.members if name.endswith(kinds) and name not in NUMPY_FILES]

    def intact(self) -> Level:
        words = f"{counted(len(self.members), 'member')} by sha256"
        return Level("intact", True, words, not_read="the contents of the members")

    def consistent(self) -> tuple[Level, dict[str, Any]]:
        """Check every claim against the rows; also return the claims recomputed from them."""
        with self._as_bundle_errors():
            found = claims_of(self.folder, self.trial)
            text = read_text(self.folder / CLAIMS)
            claimed = parse_json(text)
            known = found
            if self.format < FORMAT:  # it lacks keys that were added since
                known = {name: one for name, one in found.items() if name in claimed}
            compared = differences(claimed, known, self.ours)
            wrong = compared.wrong
            if text != as_text(claimed):  # a duplicate key: readers would see different claims
                wrong.append(f"{CLAIMS}: the JSON was not written by hpo")
            with Journal(self.folder) as journal:
                meta = journal.meta
            rows, others = self._check_rows()
            numpy, of_numpy = self._check_numpy()
            lock = parse_json(read_text(self.folder / LOCK))
            wrong += [
                *self._study_differences(meta),
                *self._foreign_members(meta),
                *others,
                *of_numpy,
            ]
            wrong += [*values_apart(self.folder), *self._policy_differences(meta)]
            shown, of_report = self._check_report(dict(lock["packages"]))
            wrong += [*of_report, *self._page_differences()]
        if wrong and not self.ours:
            made = f"the bundle was made by hpo {self.made_by}, whose code differs from "
            wrong.append(f"{made}hpo {__version__}; verify it with hpo {self.made_by}")
        words = f"{counted(len(found['claims']), 'claim')} from {counted(rows, 'row')}"
        words += f"{self._missing_seeds_text()}; {numpy}"
        if not self.policy.is_dir():
            words += "; it has no policy"
        if not self.ours:
            words += f"; {LOCK} names a version with different code (hpo {self.made_by})"
        words += shown
        if compared.reworded:
            words += (
                f"; that version words these texts differently: {'; '.join(compared.reworded)}"
            )
        unread = "whether the rows are genuine (--retrain), the policy's behaviour and whether "
        unread += f"{NUMPY}/ matches it (--play), study.yaml, {LOCK}, versions, backend, devices, "
        unread += "times, earlier tests"
        return Level("consistent", not wrong, words, wrong, unread), found

    def _study_differences(self, meta: StudyMeta) -> Iterator[str]:
        """Yield the differences between the journal and the text of its study."""
        name, study = "study.resolved.yaml", recorded(meta.study_text)
        if (self.folder / name).read_bytes() != meta.study_text.encode():
            yield f"{name}: differs from the study in the journal"
        metric = study.metric.name
        if study.more_envs:
            metric = SCORE
        for what, here, there in (
            ("name", meta.name, study.name),
            ("metric", meta.metric, metric),
            ("goal", meta.goal, study.metric.goal),
            ("aggregate", meta.aggregate, study.metric.aggregate),
            ("constraints", [*meta.constraints], [asdict(one) for one in study.constraints]),
        ):
            if here != there:
                yield f"{JOURNAL_NAME}: {what} is {here!r:.100}, but {there!r:.100} in the study"
        with Journal(self.folder) as journal:
            default = default_of(journal.trials())
        if default is not None and default.params != plain_json(study.space.default()):
            yield f"{JOURNAL_NAME}: trial {default.trial} is not the study's default"

    def _missing_seeds_text(self) -> str:
        """Describe how many of the requested test seeds the trial lacks."""
        with Journal(self.folder) as journal:
            row = journal.trial(self.trial)
        asked, ran = 0, 0
        if self.study.confirm is not None:
            asked = self.study.confirm.report
        if row is not None:
            ran = len(row.by_report_seed)
        if ran >= asked:
            return ""
        return f"; the trial has {ran} of the {asked} test seeds requested by its study"

    def _foreign_members(self, meta: StudyMeta) -> Iterator[str]:
        """Yield members that neither the journal nor the policy lists, or whose bytes differ."""
        known: Sums = {}
        places = {SOURCE: source_files(meta, self.folder / SOURCE)}
        if self.policy.is_dir():
            study = recorded(meta.study_text)
            below = f"{POLICIES}/trial_{self.trial}"
            places[below] = policy_files(self.policy, study, meta.files)
        for place, files in places.items():
            known |= {f"{place}/{name}": summed for name, summed in files.items()}
        for name, summed in self.members.items():
            if not name.startswith((f"{SOURCE}/", f"{POLICIES}/")):
                continue
            if name not in known:
                yield f"{name}: is not used by the study or its policy"
            elif known[name] not in (None, summed):
                yield f"{name}: differs from the file that the study ran with"
        yield from (f"{name}: is missing" for name in known if name not in self.members)

    def _check_numpy(self) -> tuple[str, list[str]]:
        """Check the NumPy policy; return a sentence about it, and the errors found."""
        there = [name for name in NUMPY_FILES if name in self.members]
        if not there and self._no_numpy:
            return f"no policy for NumPy: {self._no_numpy}", []
        if not there:
            return "no policy for NumPy", [f"{NUMPY}/{FILE}: is missing"]
        wrong = [f"{name}: is missing" for name in NUMPY_FILES if name not in there]
        wrong += self._numpy_changes()
        apart = ""
        if not wrong:
            apart = difference(self.folder / NUMPY / FILE)
        if self._no_numpy and not apart:
            wrong.append(f"{LOCK}: states that NumPy cannot run the policy ({self._no_numpy})")
        elif apart and not self._no_numpy:
            wrong.append(f"{NUMPY}/{FILE}: {apart}")
        if self._no_numpy:
            return f"no policy for NumPy: {self._no_numpy}", wrong
        return f"NumPy reproduces the actions recorded in {NUMPY}/{FILE}", wrong

    def _numpy_changes(self) -> list[str]:
        wrong: list[str] = []
        ours = sha256(Path(forward.__file__).read_bytes()).hexdigest()
        if self.members.get(NUMPY_FILES[0], ours) != ours:
            wrong.append(
                f"{NUMPY_FILES[0]}: differs from the file of this version of hpo ({__version__})"
            )
        if not self.policy.is_dir():
            wrong.append(f"{NUMPY}/{FILE}: the policy is missing")
        return wrong

    def _check_report(self, packages: dict[str, str]) -> tuple[str, list[str]]:
        """Check the report; return a sentence about it, and the errors found."""
        if REPORT not in self.members:
            return "; it has no report", []
        if portable_report(self.folder) == (self.folder / REPORT).read_text(encoding="utf-8"):
            return "", []
        here = {name: metadata.version(name) for name in _DRAWS if name in packages}
        same = all(packages[name] == version for name, version in here.items())
        if self.ours and same:
            return "", [f"{REPORT}: differs from the journal's report"]
        return f"; {REPORT} was not compared, because different versions wrote it", []

    def _page_differences(self) -> Iterator[str]:
        if PAGE not in self.members or not self.ours:
            return
        if (self.folder / PAGE).read_text(encoding="utf-8") != verify_page():
            yield f"{PAGE}: differs from the page of this version of hpo ({__version__})"

    def about_policy(self) -> dict[str, Any]:
        """Return the policy's origin; {} if the bundle has no single policy."""
        if (self.policy / TRAINING).is_file():
            about = read_training(self.policy).get("about")
        elif (self.policy / NAME).is_file():
            about = dict(read_about(self.policy / NAME))
        else:
            about = None
        if not is_dict(about):
            return {}
        return about

    def check_inside(self, names: Iterable[object]) -> None:
        for name in map(str, names):
            if not is_inside(name):
                raise StoreError(f"{self.path} names {name!r:.200}, which is outside of it")

    def _policy_differences(self, meta: StudyMeta) -> Iterator[str]:
        """Yield each difference between the policy's claimed origin and the journal's rows."""
        about = self.about_policy()
        if not about:
            return
        where, lane = f"{POLICIES}/trial_{self.trial}", self.policy / LANE
        if lane.is_file() and not is_whole_lane(lane):
            yield f"{where}/{LANE}: is damaged"
        if about.get("trial") != self.trial or about.get("study", meta.name) != meta.name:
            yield f"{where}: claims to be from {about.get('study')}, trial {about.get('trial')}"
            return
        stream, replicate, at = (about[key] for key in ("stream", "replicate", "env_steps"))
        with Journal(self.folder) as journal:
            rows = [one for one in journal.evaluations(self.trial) if one.stream == stream]
        rows = [one for one in rows if (one.replicate, one.env_steps) == (replicate, at)]
        if not rows:
            yield f"{where}: claims an evaluation that the journal does not have"
        elif about.get("value") is not None:
            measured = self._measure_value(Stream(stream), rows[0])
            if differences(float(about["value"]), measured).wrong:
                yield f"{where}: claims the value {about['value']}, but the rows give {measured}"

    def _measure_value(self, stream: Stream, row: Any) -> float:
        from ...search.state.objective import Objective

        objective = Objective.of(self.study)
        if stream is Stream.REPORT:
            objective = objective.of_test
        return objective.measure(row)

    def _compare_table(self, name: str, again: Path) -> tuple[int, list[str]]:
        """Return a table's number of rows, and how the rows differ from those in the journal."""
        paths = (glob.escape(str(one / name)) for one in (self.folder, again))
        quoted = (path.replace("'", "''") for path in paths)
        bundle_rows, journal_rows = (f"FROM read_parquet('{path}')" for path in quoted)
        here = query(self.folder, f"DESCRIBE SELECT * {bundle_rows}")[1]
        if here != query(self.folder, f"DESCRIBE SELECT * {journal_rows}")[1]:
            return 0, [f"{name}: its columns differ from the journal's"]
        apart = (
            f"FROM ({a} EXCEPT ALL {b})"
            for a, b in ((bundle_rows, journal_rows), (journal_rows, bundle_rows))
        )
        counts = ", ".join(f"(SELECT count(*) {one})" for one in (bundle_rows, *apart))
        [(rows, lacking, added)] = query(self.folder, f"SELECT {counts}")[1]
        wrong: list[str] = []
        if lacking:
            wrong.append(f"{name}: {counted(lacking, 'row')} not in the journal")
        if added:
            wrong.append(f"{name}: {counted(added, 'row')} only in the journal")
        return rows, wrong

    def _check_rows(self) -> tuple[int, list[str]]:
        """Return the number of rows, and the differences between the tables and the journal."""
        again, wrong, total = new_folder(self.folder / "from_journal"), list[str](), 0
        write_rows(self.folder, again)
        made = {file.name for file in again.glob("*.parquet")}
        tables = {name for name in self.members if name.endswith(".parquet") and "/" not in name}
        foreign = sorted(tables - made - {"curves.parquet"})
        wrong += [f"{name}: the journal has no such rows" for name in foreign]
        for name in sorted(made):
            rows, apart = self._compare_table(name, again)
            total += rows
            wrong += apart
        shutil.rmtree(again)
        return total, wrong

    @property
    def study(self) -> Study:
        with self._as_bundle_errors(), Journal(self.folder) as journal:
            return recorded(journal.meta.study_text)
