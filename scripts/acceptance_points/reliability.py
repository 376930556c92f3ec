"""Damaged journals and failing disks: committed work is read back unchanged, or is rejected.

Studies run over analytic lanes, which take milliseconds instead of minutes of training; their
files are written and read by the same code.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .common import ROOT, Outcome, load_file

DAMAGED = 300
_PAGE = 4096


class Cut(BaseException):
    """Ends a study like a kill: nothing is committed, published or printed."""


def damaged_journals(small: bool, work: Path) -> Outcome:
    """Damage the journal of a half-finished study, read it and resume it."""
    make = _studies()
    make(work / "whole")
    make(work / "half", chunks=60)
    before = seen(work / "half")
    counts: Counter[str] = Counter()
    faults: list[str] = []
    for number in range(12 if small else DAMAGED):
        folder, rng = work / "damaged", random.Random(number)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(work / "half", folder)
        kind = damage(folder / "journal.sqlite", rng)
        read = _outcome(lambda folder=folder: seen(folder) == before)
        ended = _outcome(lambda folder=folder: _ends_equal(make, work / "whole", folder))
        counts[ended] += 1
        for verb, told in (("read", read), ("gone on with", ended)):
            if told not in ("equal", "refused"):
                faults.append(f"journal {number} ({kind}) {verb}: {told}")
    numbers = f"{sum(counts.values())} damaged journals: " + ", ".join(
        f"{count} {word}" for word, count in counts.most_common()
    )
    return Outcome(not faults, numbers + ("; faults: " + "; ".join(faults[:3]) if faults else ""))


def seen(folder: Path) -> str:
    """Read everything that a journal contains."""
    from hpo.store import Journal, list_studies, read_leaderboard
    from hpo.store.codec import evaluation_cells
    from hpo.store.study_folder import StudyFolder

    with Journal(folder) as journal:
        parts: list[Any] = [journal.meta, journal.head(), journal.trials(), journal.decisions()]
        parts += [journal.asks(), journal.attributes(), journal.parts()]
        parts += [
            [evaluation_cells(row) for row in journal.evaluations()],
            journal.evaluation_metrics(),
        ]
    parts += [read_leaderboard(StudyFolder(folder)), list_studies(folder.parent) is not None]
    return repr(parts)


def damage(path: Path, rng: random.Random) -> str:
    """Damage a file at a random place, and return how."""
    content = bytearray(path.read_bytes())
    kind = rng.choice(
        ("bit", "bits", "page", "sector", "noise", "copied page", "cut", "pages cut")
    )
    at = rng.randrange(len(content))
    page = at // _PAGE * _PAGE
    if kind in ("bit", "bits"):
        for _ in range(1 if kind == "bit" else 8):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == "page":
        content[page : page + _PAGE] = bytes(_PAGE)
    elif kind == "sector":
        content[at // 512 * 512 : at // 512 * 512 + 512] = bytes(512)
    elif kind == "noise":
        content[at : at + 16] = rng.randbytes(len(content[at : at + 16]))
    elif kind == "copied page":
        other = rng.randrange(len(content) // _PAGE) * _PAGE
        content[page : page + _PAGE] = content[other : other + _PAGE]
    else:
        del content[at if kind == "cut" else page :]
    path.write_bytes(content)
    return kind


def _outcome(act: Callable[[], object]) -> str:
    from hpo.errors import HpoError

    try:
        return "equal" if act() else "DIFFERENT"
    except HpoError as error:
        return "refused" if str(error).count("\n") == 0 and len(str(error)) < 600 else "LONG"
    except Exception as error:  # the errors under test
        return f"{type(error).__name__}: {error}"[:200]


def _ends_equal(make: Callable[..., None], whole: Path, folder: Path) -> bool:
    make(folder)
    return not differences(whole, folder)


def differences(one: Path, other: Path) -> list[str]:
    """Compare two studies: their tables, decisions, proposals and attributes."""
    from hpo.store import Journal, tables_equal

    found = tables_equal(one, other)
    with Journal(one) as a, Journal(other) as b:
        for name in ("decisions", "asks", "attributes"):
            if repr(getattr(a, name)()) != repr(getattr(b, name)()):
                found.append(name)
    return found


def _studies() -> Callable[..., None]:
    """Return functions that run the study in a folder: to its end, or cut after some chunks."""
    from hpo.search.run import run
    from hpo.search.state.progress import Observer
    from hpo.studies.search_spec import Confirm, EarlyTerminate

    samples = load_file(ROOT / "tests" / "helpers" / "search_samples.py")
    study = samples.study(
        samples.WITH_BUCKETS,
        "tpe",
        confirm=Confirm(2, 2, 2),
        early_terminate=EarlyTerminate("asha", 2_000, 3.0, audit=0.2),
        budget=samples.Budget(trials=60),
    )
    quanta = {"16": 500, "32": 1000, "64x64": 2000}
    factory = samples.AnalyticFactory(lanes=8, block=4, quanta=quanta)

    class Cutting(Observer):
        def __init__(self, chunks: int):
            self.left = chunks

        def on_chunk(self, *_: object) -> None:
            self.left -= 1
            if self.left == 0:
                raise Cut

    def make(folder: Path, chunks: int = 0) -> None:
        watching = [Cutting(chunks)] if chunks else []
        try:
            run(
                study,
                folder,
                factory,
                watching,
                samples.quick(commit_seconds=0.0 if chunks else 1e9),
            )
        except Cut:
            return

    return make
