"""The first run of a study with four architectures: its duration, and how much of it is waiting.

The study is CartPole-v1 with four values of hidden_sizes, each a program to compile, and an empty
cache of compiled programs. With `--before`, an earlier commit runs the same study in turn, and
differences between the tables of both are printed; there should be none.

    python benchmarks/four_programs.py --before COMMIT --out benchmarks/four_programs.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from checkout import make_importable
from features import unpack

STUDY = """
name: four-programs
env: CartPole-v1
env_steps: {env_steps}
fixed: {{num_envs: 8, rollout_length: 128, update_epochs: 4, num_minibatches: 4}}
space:
  learning_rate: {{min: 1e-4, max: 1e-3, distribution: log_uniform}}
  hidden_sizes: {{values: [[32, 32], [64, 64], [96, 96], [128, 128]]}}
search: {{method: random}}
budget: {{trials: 24}}
"""
KINDS = ("train", "evaluate")  # parts of the time in which cores work on the study


def run_study(folder: Path, path: Path | None, env_steps: int) -> dict[str, Any]:
    """Run the study in a new process; return its times."""
    folder.mkdir(parents=True)
    file = folder / "study.yaml"
    file.write_text(STUDY.format(env_steps=env_steps))
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    words = [sys.executable, "-m", "hpo", "run", str(file), "--out", str(folder), "--json"]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    parts = json.loads(done.stdout)["usage"]["seconds_by_part"]
    whole = sum(parts.values())
    return {
        "wall_seconds": wall,
        "cpu_seconds": sum(
            getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime")
        ),
        "compile_seconds": parts["compile"],
        "idle_share": 1.0 - sum(parts[name] for name in KINDS) / whole,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", help="a commit of this repository to compare with")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--env-steps", type=int, default=500_000, help="of a full run")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    make_importable()
    from hpo.store import tables_equal

    sides: dict[str, Path | None] = {"now": None}
    seen: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if args.before:
            sides["before"] = unpack(args.before, Path(folder) / "commit")
        for number in range(args.rounds):
            for name, path in sides.items():
                place = Path(folder) / f"{name}-{number}"
                seen.setdefault(name, []).append(run_study(place, path, args.env_steps))
                print(name, json.dumps(seen[name][-1]), flush=True)
        studies = [Path(folder) / f"{name}-0" / "four-programs" for name in sides]
        for difference in tables_equal(studies[0], studies[-1]):
            print(f"differs: {difference}")
    found = {
        name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for name, rows in seen.items()
    }
    print("| | wall | CPU | waits for compiles | no core trains |\n|---|---|---|---|---|")
    for name, row in found.items():
        print(
            f"| {name} | {row['wall_seconds']:.0f} s | {row['cpu_seconds']:.0f} s "
            f"| {row['compile_seconds']:.0f} s | {row['idle_share']:.0%} |"
        )
    about = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "jax": metadata.version("jax"),
        "env_steps": args.env_steps,
        "rounds": args.rounds,
        "commit_before": args.before,
    }
    if args.out:
        args.out.write_text(json.dumps({**about, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
