"""Overhead of a study of a command: the idle share of its processes, against Optuna's threads.

The same script, which sleeps for a time that differs between trials and reports eight values, runs
in four processes at a time under `hpo` and under `optuna.Study.optimize(n_jobs=4)`. A slot is busy
from the start of its process to the end. Sleeping needs no core, so the numbers show only the
overhead around the processes.

    python benchmarks/processes.py
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
from pathlib import Path

from checkout import make_importable

AT_ONCE = 4
SCRIPT = """
import json, sys, time
started = time.time()
seconds, x = float(sys.argv[1]), float(sys.argv[2])
for part in range(1, 9):
    time.sleep(seconds / 8 * (0.5 + x))
    print(json.dumps({"step": 100 * part, "score": part * x}), flush=True)
"""


def idle_share(spans):
    """Return the wall time of (start, end) pairs, and the share of it with idle slots."""
    wall = max(end for _, end in spans) - min(start for start, _ in spans)
    return wall, 1 - sum(end - start for start, end in spans) / (AT_ONCE * wall)


def with_hpo(folder, trials, seconds):
    import hpo

    text = f"""
    command: {sys.executable} script.py {seconds} {{x}} {{seed}}
    length: 800
    space: {{x: {{min: 0.0, max: 1.0}}}}
    search: {{method: random}}
    budget: {{trials: {trials}}}
    metric: {{name: score}}
    processes: {{at_once: {AT_ONCE}}}
    """
    (folder / "study.yaml").write_text("\n".join(line.strip() for line in text.splitlines()))
    hpo.run(folder / "study.yaml", out=folder / "results")
    records = (folder / "results/study/processes").glob("*/*/run.json")
    told = [json.loads(path.read_text()) for path in records]
    return [(one["started_at"], one["ended_at"]) for one in told]


def with_optuna(folder, trials, seconds):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spans = []

    def objective(trial):
        x = trial.suggest_float("x", 0.0, 1.0)
        started = time.time()
        argv = [sys.executable, "script.py", str(seconds), str(x)]
        ran = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
        spans.append((started, time.time()))
        return json.loads(ran.stdout.splitlines()[-1])["score"]

    storage = f"sqlite:///{folder}/optuna.db"
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(storage=storage, sampler=sampler, direction="maximize")
    study.optimize(objective, n_trials=trials, n_jobs=AT_ONCE)
    return spans


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=[0.0, 2.0], nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    make_importable()
    sides, rows = [("hpo", with_hpo), ("optuna", with_optuna)], []
    print("run of about | side    | wall    | idle share | wall per trial and place")
    for seconds in args.seconds:
        random.shuffle(sides)
        for name, side in sides:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "script.py").write_text(SCRIPT)
                wall, idle = idle_share(side(Path(folder), args.trials, seconds))
            each = wall * AT_ONCE / args.trials
            rows.append({"seconds": seconds, "side": name, "wall": wall, "idle": idle})
            print(f"{seconds:10.1f} s | {name:7} | {wall:6.2f} s | {idle:10.1%} | {each:.3f} s")
    if args.out is not None:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        found = {"trials": args.trials, "at_once": AT_ONCE, "machine": machine, "rows": rows}
        args.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
