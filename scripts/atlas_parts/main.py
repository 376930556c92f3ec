"""`scripts/atlas`: runs the studies of the atlas, reduces them, and writes the page about them.

    scripts/atlas                     all environments, one after the other; resumes
    scripts/atlas Acrobot-v1          a single one
    scripts/atlas --held-out          tables of different environments
    scripts/atlas --docs              the page and its pictures from existing tables
    scripts/atlas Acrobot-v1 --small  test that it runs: minutes, a separate folder, no page

Results of incomplete runs (`--small`, `--configs`, `--seeds`, `--env-steps`) are written below
OUT/atlas-small, never to results/atlas or docs/.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STUDIES, HELD_OUT = ROOT / "studies" / "atlas", ROOT / "studies" / "held_out"
TABLES = ROOT / "results" / "atlas"
PAGE = ROOT / "docs" / "reference" / "atlas.md"
SMALL = {"configs": 16, "seeds": 3, "env_steps": 20_480}
NEIGHBOUR = "      - Search methods: reference/search-methods.md\n"
MOST_BYTES = 25 * 2**20
"""The maximum size of all tables together."""


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit code: 2 for a mistake, 130 if a study was interrupted."""
    args = _parser().parse_args(words)
    try:
        from hpo.errors import HpoError
    except ImportError:
        _make_importable()
        from hpo.errors import HpoError
    try:
        return _main(args)
    except (HpoError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    known = sorted(path.stem for path in STUDIES.glob("*.yaml"))
    parser = argparse.ArgumentParser(prog="scripts/atlas", description="Make the atlas.")
    which = f"any of {', '.join(known)} (default: all)"
    parser.add_argument("environments", nargs="*", metavar="ENV", help=which)
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the studies")
    parser.add_argument("--small", action="store_true", help="16 configurations, 3 seeds, short")
    parser.add_argument("--configs", type=int, help="configurations beside the default")
    parser.add_argument("--seeds", type=int, help="seeds of each")
    parser.add_argument("--env-steps", type=int, help="of each run")
    parser.add_argument(
        "--held-out",
        action="store_true",
        help="all of studies/held_out, into results/held_out, without a page",
    )
    parser.add_argument("--docs", action="store_true", help="write the page alone")
    parser.set_defaults(known=known)
    return parser


def _main(args: argparse.Namespace) -> int:
    from hpo.errors import suggestion

    if args.held_out:
        names = sorted(path.stem for path in HELD_OUT.glob("*.yaml"))
        tables = ROOT / "results" / HELD_OUT.name
        return max(make(name, args.out, tables, {}, HELD_OUT) for name in names)
    for name in args.environments:
        if name not in args.known:
            raise ValueError(
                f"there is no study studies/atlas/{name}.yaml;{suggestion(name, args.known)} "
                f"Known: {', '.join(args.known)}"
            )
    parts = {name: getattr(args, name) or (SMALL[name] if args.small else None) for name in SMALL}
    parts = {name: value for name, value in parts.items() if value is not None}
    tables = args.out / "atlas-small" if parts else TABLES
    if not args.docs:
        for name in args.environments or args.known:
            code = make(
                name, args.out / "atlas-small" / "studies" if parts else args.out, tables, parts
            )
            if code:
                return code
    text = write_page(
        tables, args.out / "atlas-small" / "reference" / "atlas.md" if parts else PAGE
    )
    print(text)
    return 0


def make(
    name: str, out: Path, tables: Path, parts: Mapping[str, int], studies: Path = STUDIES
) -> int:
    """Run a study of the atlas to its end and reduce it; return the exit code of `hpo run`."""
    from hpo.cli import main as hpo
    from hpo.search.bench.write_table import reduce_study

    study = f"{studies.name.replace('_', '-')}-{name}"
    words = ["run", str(studies / f"{name}.yaml"), "--out", str(out), "--quiet"]
    for change in _changes(parts):
        words += ["--set", change]
    made = out / f"{study}.made.json"
    _begin(made)
    begun = time.process_time()
    code = hpo(words)
    about = _made(made, time.process_time() - begun, finished=code == 0)
    if code:
        return code
    reduce_study(out / study, tables / name, about)
    size = sum(path.stat().st_size for path in tables.rglob("*.parquet"))
    if size > MOST_BYTES:
        raise ValueError(f"{tables} holds {size / 2**20:.1f} MiB; at most 25 are committed")
    print(f"{name}: {tables / name}, {size / 2**20:.1f} MiB with all others")
    return 0


def _changes(parts: Mapping[str, int]) -> list[str]:
    found = list[str]()
    if "configs" in parts:
        found.append(f"budget.trials={parts['configs'] + 1}")
    if "seeds" in parts:
        found += [f"seeds.per_config={parts['seeds']}", f"seeds.tolerate={parts['seeds'] - 1}"]
    if "env_steps" in parts:
        found.append(f"env_steps={parts['env_steps']}")
    return found


def _begin(path: Path) -> None:
    """Record that a process of a study starts; after a kill, the cost is unknown."""
    from hpo.files import atomic_files

    known = json.loads(path.read_text()) if path.is_file() else {"cpu_seconds": 0.0}
    if known.get("running"):
        known["cpu_seconds"] = None
    if not known.get("finished"):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.write_text(path, json.dumps({**known, "running": True}))


def _made(path: Path, seconds: float, finished: bool) -> dict[str, Any]:
    """Return commit, versions and CPU-seconds of a study over all its processes.

    The CPU-seconds are None if a process was killed. Once it has finished, nothing is added.
    """
    from hpo.files import atomic_files

    known = json.loads(path.read_text())
    if not known.get("finished"):
        before = known["cpu_seconds"]
        spent = None if before is None else before + seconds
        known = {"cpu_seconds": spent, "finished": finished, **_about()}
        atomic_files.write_text(path, json.dumps(known))
    return {name: value for name, value in known.items() if name not in ("finished", "running")}


def _about() -> dict[str, Any]:
    from tuned_parts.candidate import commit_of_checkout

    from hpo.machine.software import versions

    return {
        "commit": commit_of_checkout(),
        "versions": dict(versions()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def write_page(tables: Path, path: Path) -> str:
    """Write the page, its pictures and its numbers; return their paths.

    Raises:
        ValueError: no environment has tables.
    """
    from .analysis import analyse
    from .data import read_atlas
    from .page import TEMPLATE, page, searched_overall
    from .pictures import draw

    folders = sorted(folder.parent for folder in tables.glob("*/trials.parquet"))
    if not folders:
        raise ValueError(f"{tables} has no tables; make some with: scripts/atlas ENV")
    read = [read_atlas(folder) for folder in folders]
    if len(read) == 1:
        found = [analyse(read[0])]
    else:  # minutes each
        with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
            found = list(processes.map(analyse, read))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(TEMPLATE.read_text(encoding="utf-8"), found), encoding="utf-8")
    if path == PAGE:
        site = ROOT / "mkdocs.yml"
        site.write_text(in_navigation(site.read_text(encoding="utf-8")), encoding="utf-8")
    drawn = draw(found, path.parents[1] / "figures")
    numbers: dict[str, Any] = {one.atlas.name: one.as_json() for one in found}
    names = ", ".join(numbers)
    numbers["rules over environments"] = [one.as_json() for one in searched_overall(found)]
    where = drawn[0].with_name("atlas.json")
    where.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    return f"{path}: {names}; {len(drawn)} pictures, {where}"


def in_navigation(text: str) -> str:
    """Return the text of mkdocs.yml with the page added.

    Raises:
        ValueError: the preceding entry is missing.
    """
    if "reference/atlas.md" in text:
        return text
    before, found, after = text.partition(NEIGHBOUR)
    if not found:
        raise ValueError(f"mkdocs.yml has no line {NEIGHBOUR.strip()!r} to add the atlas after")
    return f"{before}{found}      - The atlas: reference/atlas.md\n{after}"


def _make_importable() -> None:
    """Make the checkout importable as `hpo`, for this process and its children."""
    link = tempfile.mkdtemp(prefix="hpo-link-")
    (Path(link) / "hpo").symlink_to(ROOT, target_is_directory=True)
    sys.path.insert(0, link)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (link, os.environ.get("PYTHONPATH"))))
