"""The first minute with hpo and with rejax: imports, first metrics, compile times, speed.

It is one run on one machine, with both sides in turn: CartPole-v1 with 64 configurations, as in
`lanes_vs_rejax.py`; and the wall time of the README's study, whose env steps per second are
compared with rejax's. *Cold* has an empty cache of compiled programs, *warm* has that of the cold
run.

    pip install rejax==0.1.3        # here, or: --rejax-path FOLDER, of pip install --target FOLDER
    python benchmarks/first_minute.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from checkout import ROOT, make_importable
from lanes_vs_rejax import Side

LANES, UPDATES = 64, 10
STUDY = f"""
name: first-metrics
env: CartPole-v1
env_steps: 80k
fixed: {{num_envs: 8, rollout_length: 128, update_epochs: 4, num_minibatches: 4}}
space: {{learning_rate: {{min: 1e-4, max: 1e-3, distribution: log_uniform}}}}
search: {{method: random}}
population: {{lanes: {LANES}}}
budget: {{trials: {LANES}}}
"""
SMALL = ["--set", "env_steps=4k", "--set", "budget.trials=3", "--set", "early_terminate=null",
         "--set", "confirm=null"]  # fmt: skip


def first_metrics() -> None:
    """Run a study until its first metrics."""
    import hpo

    class First(hpo.Callback):
        def on_chunk(self, event: hpo.ChunkEvent) -> None:
            print(json.dumps({"env_steps": sum(event.env_steps)}), flush=True)
            raise hpo.StopStudy

    with tempfile.TemporaryDirectory() as out:
        hpo.run(hpo.yaml(STUDY), out, callbacks=[First()])


def seconds(*words: str) -> float:
    """Return the time taken by a command, which must succeed."""
    started = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - started


def until_first(*words: str) -> float:
    """Return the time until a command prints its first line of JSON."""
    started = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if line.startswith("{"):
                found = time.perf_counter() - started
                break
        else:
            raise SystemExit("a worker ended early")
        process.communicate()
    return found


def imports(rounds: int) -> dict[str, float]:
    python = [sys.executable, "-c"]
    ways = {
        "hpo --help": [sys.executable, "-m", "hpo", "--help"],
        "import hpo": [*python, "import hpo"],
        "import rejax": [*python, "import rejax"],
        "import jax": [*python, "import jax"],
    }
    seen = [{name: seconds(*words) for name, words in ways.items()} for _ in range(rounds)]
    return {name: statistics.median(row[name] for row in seen) for name in ways}


def starts(cache: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return times to first metrics and to compile, and speeds, with this cache."""
    os.environ["XDG_CACHE_HOME"] = str(cache)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    first = {"hpo": until_first(sys.executable, __file__, "--side", "first")}
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache / "jax")
    common = ("--lanes", str(LANES), "--updates", str(UPDATES))
    sides = {}
    for name in ("hpo", "rejax"):
        started = time.perf_counter()
        sides[name] = Side(sys.executable, "--side", name, *common)
        first.setdefault(name, time.perf_counter() - started)
    asked = [{name: side.ask(UPDATES) for name, side in sides.items()} for _ in range(rounds)]
    for side in sides.values():
        side.close()
    del os.environ["JAX_COMPILATION_CACHE_DIR"]
    return {
        name: {
            "first_metrics_seconds": first[name],
            "compile_seconds": side.hello["compile_seconds"],
            "env_steps_per_second": statistics.median(
                row[name]["env_steps"] / row[name]["wall_seconds"] for row in asked
            ),
        }
        for name, side in sides.items()
    }


def readme_study(small: bool, out: Path) -> dict[str, float]:
    """Run the README's study with an empty cache; time it from process start to end."""
    from hpo.store import query

    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    words = ["run", str(ROOT / "studies" / "first.yaml"), "--out", str(out / "results"), "--quiet"]
    wall = seconds(sys.executable, "-m", "hpo", *words, *(SMALL if small else []))
    _, ((steps,),) = query(
        out / "results" / "first",
        "SELECT sum(steps) FROM (SELECT max(env_steps) AS steps FROM curves "
        "GROUP BY trial, stream, replicate)",
    )
    return {"wall_seconds": wall, "env_steps": steps, "env_steps_per_second": steps / wall}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rejax-path", help="folder that holds rejax")
    parser.add_argument("--small", action="store_true", help="that it runs: one round, few steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--side", choices=("first",), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return first_metrics()
    make_importable()
    paths = [os.environ.get("PYTHONPATH", ""), args.rejax_path or ""]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    rounds = 1 if args.small else 7
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "imports": imports(rounds),
            "cold": starts(Path(folder) / "cache", rounds),
            "warm": starts(Path(folder) / "cache", rounds),
            "readme": readme_study(args.small, Path(folder)),
        }
    show(found)
    print(f"took {time.perf_counter() - started:.0f} s")
    about = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "small": args.small,
    }
    args.out.write_text(json.dumps({**about, **found}, indent=2) + "\n")


def show(found: dict) -> None:
    took = found["imports"]
    rows = [(name, took[name], took["import rejax"], "s") for name in ("hpo --help", "import hpo")]
    for cache in ("cold", "warm"):
        for key, words in (
            ("first_metrics_seconds", "first metrics"),
            ("compile_seconds", f"compile, L = {LANES}"),
        ):
            ours, theirs = (found[cache][name][key] for name in ("hpo", "rejax"))
            rows.append((f"{words}, {cache}", ours, theirs, "s"))
    speed = {name: found["warm"][name]["env_steps_per_second"] for name in ("hpo", "rejax")}
    rows.append((f"speed, L = {LANES}", speed["hpo"], speed["rejax"], "env steps/s"))
    study = found["readme"]["env_steps_per_second"]
    rows.append(("speed of the README's whole study", study, speed["rejax"], "env steps/s"))
    print("| | hpo | rejax | hpo / rejax |\n|---|---|---|---|")
    for name, ours, theirs, unit in rows:
        print(f"| {name} | {ours:,.4g} {unit} | {theirs:,.4g} {unit} | {ours / theirs:.2f} |")
    print(f"README's study: {found['readme']['wall_seconds']:.0f} s, empty cache")


if __name__ == "__main__":
    main()
