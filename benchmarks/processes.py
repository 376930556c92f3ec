"""Overhead of a study of a command: idle places and time per trial, next to Optuna with threads.

The same script sleeps and multiplies matrices in equal parts and reports eight values. Its times
follow the same list on both sides. It runs in two processes at once under `hpo` and under
`optuna.Study.optimize(n_jobs=2)`. A place for a process is busy while the script runs, from the
start of its process, as the kernel has it, to its last line. The script also writes when its first
line runs: the start of Python, and under `hpo` that of the guard before it, which ends children
and orphans. Agents of W&B are not compared: they take their trials from a server, also with
`WANDB_MODE=offline`.

    python benchmarks/processes.py --out benchmarks/processes.json
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from checkout import make_importable

SCRIPT = """
import json, os, sys, time
first = time.time()
import numpy as np

fields = open("/proc/self/stat").read().rpartition(")")[2].split()
alive = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
started = time.time() - alive
seconds, x = float(sys.argv[1]), float(sys.argv[2])
with open("begun.txt", "a") as file:
    number = file.tell()  # of processes that began before this one
    file.write(".")
matrix = np.random.default_rng(0).normal(size=(200, 200))
for part in range(1, 9):
    each = seconds / 16 * (0.5 + number % 11 / 10)
    time.sleep(each)
    used = time.process_time()
    while time.process_time() - used < each:
        matrix = np.tanh(matrix @ matrix.T / 200)
    print(json.dumps({"step": 100 * part, "score": part * x}), flush=True)
with open("spans.txt", "a") as file:
    file.write(f"{started} {first} {time.time()}\\n")
"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def with_hpo(folder, args, seconds):
    import hpo

    text = f"""
    command: {sys.executable} script.py {seconds} {{x}} {{seed}}
    length: 800
    space: {{x: {{min: 0.0, max: 1.0}}}}
    search: {{method: random}}
    budget: {{trials: {args.trials}}}
    metric: {{name: score}}
    processes: {{at_once: {args.at_once}, threads: 1}}
    """
    (folder / "study.yaml").write_text("\n".join(line.strip() for line in text.splitlines()))
    hpo.run(folder / "study.yaml", out=folder / "results")


def with_optuna(folder, args, seconds):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        argv = [sys.executable, "script.py", str(seconds), str(x)]
        threads = {**os.environ, **ONE_THREAD}
        ran = subprocess.run(
            argv, cwd=folder, capture_output=True, text=True, check=True, env=threads
        )
        return json.loads(ran.stdout.splitlines()[-1])["score"]

    storage = f"sqlite:///{folder}/optuna.db"
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(storage=storage, sampler=sampler, direction="maximize")
    study.optimize(objective, n_trials=args.trials, n_jobs=args.at_once)


def measured(folder, args):
    """Return what the spans of a side's processes show."""
    lines = (folder / "spans.txt").read_text().splitlines()
    spans = [tuple(map(float, line.split())) for line in lines]
    if len(spans) != args.trials:
        raise SystemExit(f"{len(spans)} of {args.trials} processes came to their end")
    wall = max(end for _, _, end in spans) - min(start for start, _, _ in spans)
    busy, places = sum(end - start for start, _, end in spans), args.at_once * wall
    starting = sum(first - start for start, first, _ in spans)
    return {
        "wall": wall,
        "busy": busy / places,
        "seconds_per_process": busy / len(spans),
        "start_of_process": starting / len(spans),
        "idle_per_trial": (places - busy) / len(spans),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=[0.0, 1.0, 4.0], nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    make_importable()
    sides, rows = [("hpo", with_hpo), ("optuna", with_optuna)], []
    print("| process, about | side | first start to last end | busy | idle per trial | start |")
    print("|---|---|---|---|---|---|")
    for seconds in args.seconds:
        random.shuffle(sides)
        for name, side in sides:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "script.py").write_text(SCRIPT)
                started = time.perf_counter()
                side(Path(folder), args, seconds)
                whole = time.perf_counter() - started
                row = {"seconds": seconds, "side": name, **measured(Path(folder), args)}
            rows.append({**row, "whole": whole, "load": os.getloadavg()[0]})
            print(
                f"| {row['seconds_per_process']:.2f} s | {name} | {row['wall']:.2f} s "
                f"| {row['busy']:.1%} | {1000 * row['idle_per_trial']:.0f} ms "
                f"| {1000 * row['start_of_process']:.0f} ms |"
            )
    if args.out is not None:
        about = {
            "trials": args.trials,
            "at_once": args.at_once,
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "versions": {name: metadata.version(name) for name in ("optuna", "numpy")},
        }
        args.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
