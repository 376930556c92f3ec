r"""Pong's training returns next to those of CleanRL's `ppo_atari.py`, which runs unchanged.

Both sides use CleanRL's settings; the learning rate falls to zero over the run. The return is the
mean of the last 100 games, which CleanRL prints one by one. Rows that are in the file do not run
again, so more seeds can be added later.

    git clone https://github.com/vwxyzjn/cleanrl /tmp/cleanrl
    python -m venv /tmp/crl
    /tmp/crl/bin/pip install 'gymnasium==0.29.1' 'ale-py==0.10.1' 'stable-baselines3==2.3.2'
    /tmp/crl/bin/pip install 'numpy<2' tyro tensorboard opencv-python-headless torch
    pip install 'hpo-lanes[atari]'
    python benchmarks/pong_vs_cleanrl.py --cleanrl /tmp/cleanrl \
        --cleanrl-python /tmp/crl/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import yaml
from checkout import ROOT, make_importable
from two_sample import compare

make_importable()

OUT = Path(__file__).with_suffix(".json")
OURS, THEIRS = "gym:ALE/Pong-v5", "CleanRL"
GAMES = 100
POINTS = 4
CLEANRL_DEFAULTS = {"learning_rate": 2.5e-4, "ent_coef": 0.01}
START = """
import runpy, sys
import ale_py
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""CleanRL's script expects that Atari games are registered, which importing ale_py does."""
LINE = re.compile(r"global_step=(\d+), episodic_return=\[?(-?[\d.]+)")


def points(env_steps: int) -> list[int]:
    return [env_steps * (point + 1) // POINTS for point in range(POINTS)]


def our_returns(env_steps: int, seeds: list[int], work: Path) -> Iterator[dict[str, Any]]:
    """Train each seed in a lane of one study, `studies/pong.yaml` with CleanRL's values.

    The study resumes if it was interrupted. Its rows end with chunks, so a return belongs to the
    first row at or after a point.
    """
    import hpo

    plain = yaml.safe_load((ROOT / "studies" / "pong.yaml").read_text())
    study = {
        "name": "pong",
        "env": plain["env"],
        "env_steps": env_steps,
        "fixed": plain["fixed"] | CLEANRL_DEFAULTS,
        "seeds": {"per_config": len(seeds)},
        "seed": seeds[0],
        "evaluation": {"every": env_steps // POINTS, "episodes": 5},
        "population": {"lanes": len(seeds)},
        "budget": {"trials": 1},
    }
    work.mkdir(parents=True, exist_ok=True)
    file = work / "pong.yaml"
    file.write_text(json.dumps(study))
    hpo.run(file, out=work)
    rows = parquet.read_table(work / "pong" / "curves.parquet").to_pylist()
    for at, seed in enumerate(seeds):
        own = sorted(
            (row["env_steps"], row["episode_return_100"]) for row in rows if row["replicate"] == at
        )
        found = [min(row for row in own if row[0] >= step) for step in points(env_steps)]
        steps, values = (list(column) for column in zip(*found, strict=True))
        yield {"side": OURS, "seed": seed, "env_steps": steps, "returns": values}


def their_returns(
    env_steps: int, seeds: list[int], arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Train the seeds in processes of their own at the same time, with one thread each."""
    started = [start(env_steps, seed, arguments) for seed in seeds]
    for seed, process in zip(seeds, started, strict=True):
        printed, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"ppo_atari.py ended with {process.returncode}:\n{printed[-2000:]}")
        games = [(int(step), float(value)) for step, value in LINE.findall(printed)]
        found = [last_games(games, step) for step in points(env_steps)]
        yield {"side": THEIRS, "seed": seed, "env_steps": points(env_steps), "returns": found}


def start(env_steps: int, seed: int, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    script = arguments.cleanrl / "cleanrl" / "ppo_atari.py"
    flags = ["--env-id", "PongNoFrameskip-v4", "--seed", str(seed), "--no-cuda"]
    flags += ["--total-timesteps", str(env_steps)]
    return subprocess.Popen(
        [arguments.cleanrl_python, "-W", "ignore", "-c", START, str(script), *flags],
        cwd=tempfile.mkdtemp(),
        env={**os.environ, "PYTHONPATH": str(arguments.cleanrl), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def last_games(games: list[tuple[int, float]], env_steps: int) -> float:
    """Return the mean of the last 100 games that ended by a number of env steps.

    >>> last_games([(10, -21.0), (20, -19.0), (30, -3.0)], 20)
    -20.0
    """
    ended = [value for step, value in games if step <= env_steps]
    return float(np.mean(ended[-GAMES:]))


def agreement(rows: list[dict[str, Any]], env_steps: int) -> list[dict[str, Any]]:
    """Compare the sides' means at each point."""
    sides = [[row for row in rows if row["side"] == side] for side in (OURS, THEIRS)]
    found = []
    for at, step in enumerate(points(env_steps)):
        ours, theirs = ([row["returns"][at] for row in side] for side in sides)
        row = {"env_steps": step, "ours": ours, "theirs": theirs, **compare([(ours, theirs)])}
        found.append(row)
    return found


def missing(rows: list[dict[str, Any]], side: str, seeds: int) -> list[int]:
    there = {row["seed"] for row in rows if row["side"] == side}
    return [seed for seed in range(1, seeds + 1) if seed not in there]


def write(out: Path, rows: list[dict[str, Any]], env_steps: int) -> None:
    about = {
        "machine": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: metadata.version(name) for name in ("ale-py", "numpy", "jax")},
        "env_steps": env_steps,
    }
    out.write_text(json.dumps({**about, "returns": rows}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cleanrl", type=Path, required=True, help="a clone of the repository")
    parser.add_argument("--cleanrl-python", required=True, help="a Python with its packages")
    parser.add_argument("--env-steps", type=int, default=262_144)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--work", type=Path, default=ROOT / "results", help="our study's folder")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    steps = arguments.env_steps
    known = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    rows = known["returns"] if known.get("env_steps") == steps else []
    if seeds := missing(rows, THEIRS, arguments.seeds):
        rows += their_returns(steps, seeds, arguments)
        write(arguments.out, rows, steps)
    if seeds := missing(rows, OURS, arguments.seeds):
        rows += our_returns(steps, seeds, arguments.work)
        write(arguments.out, rows, steps)
    print("| env steps | mean return of 100 games, ours | CleanRL's | p of equal means |")
    print("|---|---|---|---|")
    for row in agreement(rows, steps):
        ours, theirs = (", ".join(f"{v:.1f}" for v in row[side]) for side in ("ours", "theirs"))
        print(f"| {row['env_steps']:,} | {ours} | {theirs} | {row['mean_p']:.3f} |")


if __name__ == "__main__":
    main()
