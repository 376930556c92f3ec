"""What a trial costs in addition to its training, as a study grows: a free training, 64 lanes.

CPU time and memory of processes, which a loaded machine changes little, for studies of random
search, asha and confirm. With `--before` an earlier commit runs the studies of up to 5,000 trials
in turn, and the tables of both are compared bit by bit. With `--study` both only read and resume
copies of a finished study of this script, and what they print is compared.

    python benchmarks/many_trials.py
    python benchmarks/many_trials.py --before 78a5e58e
    python benchmarks/many_trials.py --before 03625b59 --study results/free
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from checkout import make_importable
from features import unpack

TRAINING = '''"""A training of no cost: a score with noise, whose best is known."""

import jax
import jax.numpy as jnp

import hpo


class Free(hpo.Training):
    unit = "steps"
    steps_per_update = 1
    a = hpo.traced(0.5, "best at 0.3", low=0, high=1)
    b = hpo.traced(0.5, "best at 0.7", low=0, high=1)

    def init(self, key, h):
        return {"steps": jnp.float32(0.0), "key": key}

    def update(self, state, h):
        key, own = jax.random.split(state["key"])
        loss = jnp.square(h.a - 0.3) + 0.01 * jax.random.normal(own)
        return {"steps": state["steps"] + 1.0, "key": key}, {"loss": loss}

    def evaluate(self, state, h, key):
        miss = jnp.square(h.a - 0.3) + jnp.square(h.b - 0.7)
        return {"score": 0.05 * jax.random.normal(key) - miss}
'''
STUDY = """algorithm: free.py:Free
length: 16 steps
space:
  a: {{min: 0.0, max: 1.0}}
  b: {{min: 0.0, max: 1.0}}
metric: {{name: eval/score, goal: maximize}}
search: {{method: {method}}}
early_terminate: {{type: asha, min: 4, eta: 4}}
seeds: {{per_config: 1}}
budget: {{trials: 100}}
population: {{lanes: 64}}
confirm: {{top_k: 3, choose: 3, report: 8}}
"""
TRIALS = [1_000, 5_000, 20_000, 100_000]
MORE = 64  # trials that a finished study adds when it is resumed
MOST_BEFORE = 5_000  # trials of a study that an earlier commit runs, too
MOST_REPLAYED = 20_000  # trials of a study that is replayed under eight stopping rules
VIEWS = {
    "top": ("top", "--study", "{study}"),
    "show": ("show", "7", "--study", "{study}"),
    "importance": ("importance", "--study", "{study}"),
    "report": ("report", "--study", "{study}"),
    "what_if": ("what-if", "--study", "{study}"),
}
SHORT = {"help": ("--help",), "version": ("--version",)}  # repeated, because they are short
REPEATS = 5
HPO = "import sys; from hpo.cli import main; sys.exit(main())"


def measure(
    command: list[str], folder: Path, path: Path | None, said_to: Path | None = None
) -> dict[str, float]:
    """Run `hpo` with these arguments in a folder; return CPU seconds and the most memory.

    `said_to` is a file for what it prints.
    """
    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), environment["PYTHONPATH"]])
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-c", HPO, *command],
            cwd=folder,  # where earlier versions look for the training
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"hpo {' '.join(command)}: {said.read().decode()[-2000:]}")
        if said_to is not None:
            said.seek(0)
            said_to.write_bytes(said.read())
    return {
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "gigabytes": used.ru_maxrss / 2**20,
    }


def one_study(
    folder: Path, method: str, trials: int, views: list[str], path: Path | None
) -> dict[str, Any]:
    """Measure a study of some trials: its run, the views on it, and a resumed run of a few more.

    `views` are names of `VIEWS`.
    """
    folder.mkdir()
    (folder / "free.py").write_text(TRAINING)
    file = folder / "free.yaml"
    file.write_text(STUDY.format(method=method))
    study = folder / "free"

    def run(count: int) -> dict[str, float]:
        budget = f"budget.trials={count}"
        return measure(["run", str(file), "--out", str(folder), "--set", budget], folder, path)

    row: dict[str, Any] = {"trials": trials, "run": run(trials)}
    shown = [name for name in views if name != "what_if" or trials <= MOST_REPLAYED]
    for name in shown:
        command = [part.format(study=study) for part in VIEWS[name]]
        row[name] = measure(command, folder, path)
    return {**row, "resume": run(trials + MORE)}


def read_study(study: Path, place: Path, views: list[str], path: Path | None) -> dict[str, Any]:
    """Measure the views on a copy of a finished study, and two runs that resume it.

    The first run finds it finished, the second one trains a few more trials.
    """
    from hpo.store.journal import Journal

    place.mkdir()
    (place / "free.py").write_text(TRAINING)
    file = place / "free.yaml"
    file.write_text(STUDY.format(method="random"))
    copied = Path(shutil.copytree(study, place / "free"))
    with Journal(copied) as journal:
        trials = sum(journal.count_by_state().values())
    row: dict[str, Any] = {"trials": trials}
    for name, words in SHORT.items():
        found = [measure([*words], place, path) for _ in range(REPEATS)]
        row[name] = min(found, key=lambda one: one["cpu_seconds"])
    for name in views:
        command = [part.format(study="free") for part in VIEWS[name]]
        row[name] = measure(command, place, path, place / f"{name}.txt")
    if "report" in views:
        shutil.copy(copied / "report.html", place / "report.txt")
    for name, count in (("finished", trials), ("resume", trials + MORE)):
        command = ["run", "free.yaml", "--out", ".", "--set", f"budget.trials={count}", "--quiet"]
        row[name] = measure(command, place, path, place / f"{name}.txt")
    return row


def read_both(place: Path, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Read and resume copies of one study on both sides; say where their answers differ."""
    rows: dict[str, dict[str, Any]] = {}
    for side, path in sides_of(place, args).items():
        rows[side] = read_study(args.study, place / f"{side}-study", args.views, path)
    if args.before:
        folders = [place / f"{side}-study" for side in rows]
        names = [path.name for path in sorted(folders[0].glob("*.txt"))]
        apart = [name for name in names if len({_without_age(f / name) for f in folders}) > 1]
        apart += differences(*(folder / "free" for folder in folders))
        rows["now"]["differences"] = apart
    return rows


def _without_age(path: Path) -> str:
    """Return what a command printed, without the time since the study finished."""
    return re.sub(r"finished \S+ ago", "finished", path.read_text())


def show_read(rows: dict[str, dict[str, Any]]) -> None:
    names = [name for name, cell in rows["now"].items() if isinstance(cell, dict)]
    print(f"| side | trials | {' | '.join(names)} |\n|{'---|' * (2 + len(names))}")
    for side, row in rows.items():
        cells = [f"{row[name]['cpu_seconds']:.2f}" for name in names]
        print(f"| {side} | {row['trials']:,} | {' | '.join(cells)} |")
    print(f"differences: {rows['now'].get('differences')}")


def differences(first: Path, second: Path) -> list[str]:
    """Return how the records of two studies differ, times left out."""
    from hpo.store.journal import Journal
    from hpo.store.tables import tables_equal

    found = tables_equal(first, second)
    with Journal(first) as one, Journal(second) as two:
        for name in ("decisions", "asks", "attributes"):
            if getattr(one, name)() != getattr(two, name)():
                found.append(f"{name} of the journal differ")
    return found


def per_trial(rows: list[dict[str, Any]]) -> list[float]:
    """Return the CPU milliseconds of a trial for each row, from the smallest study on.

    Starting and compiling are taken out: they are the same in all, so the first is a study of few
    trials, and each cost is that of the trials it has more.
    """
    first = rows[0]
    found = [
        (row["run"]["cpu_seconds"] - first["run"]["cpu_seconds"])
        / (row["trials"] - first["trials"])
        for row in rows[1:]
    ]
    return [1e3 * seconds for seconds in found]


def show(side: str, rows: list[dict[str, Any]], views: list[str]) -> None:
    for row, cost in zip(rows[1:], per_trial(rows), strict=True):
        cells = [row[name]["cpu_seconds"] if name in row else None for name in ("resume", *views)]
        print(
            f"| {side} | {row['trials']:,} | {row['run']['cpu_seconds']:.1f} | {cost:.2f} "
            f"| {row['run']['gigabytes']:.2f} | "
            + " | ".join("-" if seconds is None else f"{seconds:.1f}" for seconds in cells)
            + " |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, nargs="+", default=TRIALS)
    parser.add_argument("--method", default="random", help="of the search")
    parser.add_argument("--before", help="a commit of this repository to compare with")
    parser.add_argument("--views", nargs="*", choices=[*VIEWS], default=[*VIEWS])
    parser.add_argument("--study", type=Path, help="a finished study to read and resume")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    make_importable()
    os.environ.setdefault("PYTHONPATH", "")
    with tempfile.TemporaryDirectory() as made:
        if args.study:
            read = read_both(Path(made), args)
            show_read(read)
            write(args, {"read": {**machine(), "before": args.before, "rows": read}})
            return
        rows = both_sides(Path(made), args)
    told = [text for row in rows["now"] for text in row.get("differences", ())]
    equal = "; ".join(told) or "the records of both sides are equal"
    print(f"CPU seconds of processes; {equal}" if args.before else "CPU seconds of processes")
    names = ["side", "trials", "run", "ms per trial", "GB", "resume", *args.views]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for side, found in rows.items():
        show(side, found, args.views)


def sides_of(place: Path, args: argparse.Namespace) -> dict[str, Path | None]:
    """Return the side -> the folder to import it from; None: where this script finds it."""
    sides: dict[str, Path | None] = {"now": None}
    if args.before:
        (place / "before").mkdir()
        sides["before"] = unpack(args.before, place / "before")
    return sides


def both_sides(place: Path, args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Run the studies of every size, the smallest first; write the rows after each."""
    sides = sides_of(place, args)
    rows: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for trials in (64, *args.trials):
        asked = list(sides) if trials <= MOST_BEFORE else ["now"]
        folders = [place / f"{side}-{trials}" for side in asked]
        for side, own in zip(asked, folders, strict=True):
            rows[side].append(one_study(own, args.method, trials, args.views, sides[side]))
            print(f"{side}, {trials:,} trials: {rows[side][-1]['run']}", file=sys.stderr)
        if len(folders) > 1:
            rows["now"][-1]["differences"] = differences(*(own / "free" for own in folders))
        about = {"method": args.method, "before": args.before, "rows": rows}
        write(args, {**machine(), **about})
    return rows


def machine() -> dict[str, Any]:
    load = os.getloadavg()[0]
    return {"machine": platform.machine(), "cores": os.cpu_count(), "load": load}


def write(args: argparse.Namespace, found: dict[str, Any]) -> None:
    """Write some keys of the results; the others stay."""
    known = json.loads(args.out.read_text()) if args.out.is_file() else {}
    args.out.write_text(json.dumps({**known, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
