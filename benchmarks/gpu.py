"""The benefit of lanes on one machine: throughput, compile times and memory, 64 to 8,192 lanes.

It measures PPO on CartPole-v1 and Pendulum-v1 (MLP 2x64 tanh, 8 environments, 128 steps, 4 epochs,
4 minibatches) for each number of lanes; one program with L lanes against L sequential runs;
different tiles; CUDA graphs whose kernels run concurrently; the cost of `deterministic`; float32,
tf32 and bfloat16. It needs jax, flax, optax, gymnax, jaxtyping and six (which gymnax 1.0 imports
without declaring it), runs from a checkout without installation, and ends within 8 minutes:
measurements that do not fit are left out and listed. `GPU.md` explains what a model predicts, and
how to submit the JSON file.

    pip install jax flax optax gymnax jaxtyping six     # on a GPU: "jax[cuda13]"
    python benchmarks/gpu.py               # everything, on the GPU if jax finds one
    python benchmarks/gpu.py --small       # half a minute on two CPU cores: that it runs

`--small` compiles in half the time, to slower code: its speeds are meaningless.

The time of sequential runs is extrapolated: a few runs of one lane are timed, and L of them are
assumed to take L / a few times as long. Their program is compiled only once, which favours that
side.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from checkout import make_importable

KNOBS = {"num_envs": 8, "rollout_length": 128, "update_epochs": 4, "num_minibatches": 4,
         "normalise_rewards": False}  # fmt: skip
SINGLE_RUNS = 3
LIMIT_SECONDS = 450.0
PACKAGES = ("jax", "jaxlib", "flax", "optax", "gymnax", "jaxtyping", "numpy")


@dataclass(frozen=True)
class Scale:
    """The amount of measurement.

    Attributes:
        lanes: those in the table, ascending.
        tile_lanes: number of lanes at which tiles are compared.
        tiles: those compared.
        compared_lanes: number of lanes at which precisions are compared and, on a GPU,
            `deterministic` and concurrent command buffers; 0: not at all.
        precisions: those compared.
        seconds: time per program.
        updates: updates per chunk.
    """

    lanes: tuple[int, ...]
    tile_lanes: int
    tiles: tuple[int, ...]
    compared_lanes: int
    precisions: tuple[str, ...]
    seconds: float
    updates: int


SCALES = {
    "gpu": Scale(
        (64, 256, 1024, 4096, 8192), 4096, (64, 256, 1024), 4096, ("tf32", "bfloat16"), 3.0, 4
    ),
    "cpu": Scale((64, 256, 1024), 64, (1, 2, 4, 8, 32), 64, ("bfloat16",), 3.0, 4),
    "small": Scale((32,), 32, (16,), 32, ("bfloat16",), 0.5, 1),
}
# Hyperparameters of each precision; all other measurements use float32.
PRECISIONS = {
    "float32": {},
    "tf32": {"matmul_precision": "tf32"},
    "bfloat16": {"dtype": "bfloat16"},
}
# Kernels of a CUDA graph that do not depend on each other may run concurrently.
CONCURRENT = "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT"


PLAIN = {"deterministic": False, "concurrent": False, "precision": "float32"}


def default_tile(backend: str, lanes: int) -> int:
    """Return the tile in a study with networks this small: on a GPU all lanes, up to 4,096."""
    return min(4 if backend == "cpu" else 4096, lanes)


# ---------------------------------------------------------------------- the measuring process


def make_program(
    env_id: str, lanes: int, tile: int, updates: int, devices: tuple, precision: str = "float32"
) -> Any:
    from hpo.core import program
    from hpo.core.envs import registry
    from hpo.core.hypers import make_hypers
    from hpo.core.plan import EnvPlan, make_plan

    where = EnvPlan(env_id)
    params = registry.make(where).default_params
    knobs = {**KNOBS, **PRECISIONS[precision]}
    plan = make_plan(knobs, where, features=())
    devices = devices[: max(1, min(len(devices), lanes // tile))]
    return program.Program(
        plan,
        lanes,
        updates,
        tile,
        program.EvaluationPlan(),
        devices,
        make_hypers(knobs, params, params),
    )


def fill(program: Any, replicate: int = 0) -> Any:
    """Return refills that start every lane, each with a different learning rate."""
    import numpy as np

    rows = program.no_refills()
    rows.mask[:] = True
    rows.replicate[:] = replicate + np.arange(program.lanes)
    rows.total_updates[:] = 1_000_000
    rows.hypers.learning_rate[:] = np.geomspace(1e-4, 1e-3, program.lanes)
    return rows


def measure(program: Any, seconds: float) -> dict[str, float]:
    """Compile, fill all lanes, then time chunks for some seconds; return the median chunk."""
    import jax

    started = time.perf_counter()
    program.compile()
    compiled = time.perf_counter()
    state, metrics = program.advance(0, program.empty(), fill(program))
    jax.block_until_ready(metrics)
    filled = time.perf_counter()
    none, chunks = program.no_refills(), []
    while not chunks or time.perf_counter() - filled < seconds:
        begun = time.perf_counter()
        state, metrics = program.advance(0, state, none)
        jax.block_until_ready(metrics)
        chunks.append(time.perf_counter() - begun)
    chunk = statistics.median(chunks)
    env_steps = program.lanes * program.updates * program.plan.steps_per_update
    return {
        "compile_seconds": compiled - started,
        "fill_seconds": max(0.0, filled - compiled - chunk),
        "env_steps_per_second": env_steps / chunk,
        "memory_mb": memory_mb(program),
        "estimate_mb": program.memory_bytes() / 2**20,
    }


def steps_per_update() -> int:
    return KNOBS["num_envs"] * KNOBS["rollout_length"]


def memory_mb(program: Any) -> float:
    """Return the peak memory so far: of the devices, or of the process on a CPU."""
    found = [device.memory_stats() for device in program.devices]
    if all(found):
        return sum(stats["peak_bytes_in_use"] for stats in found) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure_single(env_id: str, updates: int, seconds: float, devices: tuple) -> dict[str, float]:
    """Time a few runs of a program with one lane, one after the other."""
    import jax

    program = make_program(env_id, 1, 1, updates, devices[:1])
    started = time.perf_counter()
    program.compile()
    compile_seconds = time.perf_counter() - started
    speeds = []
    for run in range(SINGLE_RUNS):
        state, metrics = program.advance(0, program.empty(), fill(program, run))
        jax.block_until_ready(metrics)
        none, done, begun = program.no_refills(), 0, time.perf_counter()
        while not done or time.perf_counter() - begun < seconds / SINGLE_RUNS:
            state, metrics = program.advance(0, state, none)
            jax.block_until_ready(metrics)
            done += updates * steps_per_update()
        speeds.append(done / (time.perf_counter() - begun))
    return {
        "compile_seconds": compile_seconds,
        "env_steps_per_second": statistics.fmean(speeds),
        "runs_timed": SINGLE_RUNS,
    }


def child(task: Mapping[str, Any]) -> None:
    """Run one task and print one JSON line per measurement; the first describes the machine."""
    make_importable()
    from hpo.machine.devices import prepare_devices

    devices = prepare_devices(task["platform"], task["deterministic"])
    backend = devices[0].platform
    if task["kind"] == "about":
        return say({"backend": backend, "device": devices[0].device_kind, "count": len(devices)})
    if task["kind"] == "single":
        how = (task["env"], task["updates"], task["seconds"], devices)
        return say({**shown(task), "lanes": 1, **measure_single(*how)})
    for lanes, tile in task["shapes"]:
        how = (task["env"], lanes, tile, task["updates"], devices, task["precision"])
        made = make_program(*how)
        say({**shown(task), "lanes": lanes, "tile": tile, **measure(made, task["seconds"])})
    return None


def shown(task: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: task[name] for name in ("kind", "env", "deterministic", "concurrent", "precision")
    }


def say(row: Mapping[str, Any]) -> None:
    print(json.dumps(row), flush=True)


# ---------------------------------------------------------------------- the main process


def answers(task: Mapping[str, Any], until: float) -> Iterator[dict[str, Any]]:
    """Run a task in a separate process and yield its rows; stop it when the time is up."""
    command = [sys.executable, __file__, "--child", json.dumps(task)]
    # Compile times are for a cold cache.
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    if task["concurrent"]:
        environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} {CONCURRENT}".strip()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    try:
        while (line := lines.get(timeout=max(0.01, until - time.monotonic()))) is not None:
            if line.startswith("{"):
                yield json.loads(line)
        if process.wait():
            raise SystemExit(f"a measurement failed ({task['kind']}); its message is above")
    except queue.Empty:
        print(f"out of time: {task['kind']} of {task.get('env')} is not complete", flush=True)
    finally:
        process.kill()
        process.wait()


def tasks(scale: Scale, backend: str, common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks in order of importance, in case time runs out."""
    made: list[dict[str, Any]] = []

    def shape(lanes: int) -> tuple[int, int]:
        return lanes, min(common["tile"] or default_tile(backend, lanes), lanes)

    for env in common["envs"]:
        made.append({"kind": "single", "env": env})
        shapes = [shape(lanes) for lanes in scale.lanes]
        made.append({"kind": "lanes", "env": env, "shapes": shapes})
    first = common["envs"][0]
    compared = {"env": first, "shapes": [shape(scale.compared_lanes)]}
    shapes = [(scale.tile_lanes, width) for width in scale.tiles]
    made.append({"kind": "tiles", "env": first, "shapes": shapes})
    if backend != "cpu":
        made.append({"kind": "concurrent", **compared, "concurrent": True})
    for precision in scale.precisions:
        made.append({"kind": "precision", **compared, "precision": precision})
    if backend != "cpu":
        made.append({"kind": "deterministic", **compared, "deterministic": True})
    shared = {
        "platform": common["platform"],
        **PLAIN,
        "seconds": scale.seconds,
        "updates": scale.updates,
    }
    return [{**shared, **task} for task in made]


def label(row: Mapping[str, Any]) -> str:
    """Return a row's label: its kind, or its precision."""
    return row["precision"] if row["kind"] == "precision" else row["kind"]


def table(rows: list[dict[str, Any]]) -> str:
    """Return all measurements as Markdown."""
    single = {row["env"]: row["env_steps_per_second"] for row in rows if row["kind"] == "single"}
    lines = [
        "| | env | lanes | tile | env steps/s | L runs one by one | compile s | fill s "
        "| memory MB | estimate MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["kind"] == "single":
            times = "1"
        else:
            alone = single.get(row["env"])
            times = f"{row['env_steps_per_second'] / alone:.1f} times as long" if alone else "?"
        cells = [
            label(row),
            row["env"],
            row["lanes"],
            row.get("tile", 1),
            f"{row['env_steps_per_second']:,.0f}",
            times,
            f"{row['compile_seconds']:.1f}",
            *(
                f"{row[name]:,.1f}" if name in row else ""
                for name in ("fill_seconds", "memory_mb", "estimate_mb")
            ),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return a summary of the table: gains from lanes per environment, and from other settings.

    Gains from precisions, concurrent command buffers and `deterministic` are relative to the plain
    program with the same number of lanes and the same tile.
    """
    found: dict[str, float] = {}
    same = ("env", "lanes", "tile")
    plain = [row for row in rows if row["kind"] in ("lanes", "tiles")]
    for row in rows:
        speed = row["env_steps_per_second"]
        if row["kind"] == "single":
            lanes = [r for r in plain if r["kind"] == "lanes" and r["env"] == row["env"]]
            if lanes:
                best = max(r["env_steps_per_second"] for r in lanes)
                found[f"lanes_gain_{row['env']}"] = best / speed
        elif row not in plain:
            alike = [r for r in plain if all(r[name] == row[name] for name in same)]
            if alike:
                found[f"{label(row)}_gain"] = speed / alike[0]["env_steps_per_second"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="that it runs, in half a minute")
    parser.add_argument("--platform", choices=("auto", "cpu", "gpu"), default="auto")
    parser.add_argument("--tile", type=int, help="lanes a tile; left out: as a study takes it")
    parser.add_argument("--out", type=Path, help="JSON file; left out: gpu.json beside this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(json.loads(arguments.child))
    if arguments.small:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # for all child processes
    started = time.monotonic()
    until = started + LIMIT_SECONDS
    ask = {"kind": "about", "platform": arguments.platform, **PLAIN}
    about = next(answers(ask, until), None)
    if about is None:
        raise SystemExit("jax did not start in time")
    scale = SCALES["small" if arguments.small else about["backend"]]
    envs = ["CartPole-v1"] if arguments.small else ["CartPole-v1", "Pendulum-v1"]
    common = {"platform": arguments.platform, "tile": arguments.tile, "envs": envs}
    rows: list[dict[str, Any]] = []
    for task in tasks(scale, about["backend"], common):
        for row in answers(task, until):
            rows.append(row)
            text = f"{label(row)} {row['env']} L={row['lanes']} tile={row.get('tile', 1)}"
            print(f"{text}: {row['env_steps_per_second']:,.0f} env steps/s", file=sys.stderr)
    print(table(rows))
    for name, value in summary(rows).items():
        print(f"{name}: {value:.2f}")
    print(f"{time.monotonic() - started:.0f} s on {about['count']} x {about['device']}")
    out = arguments.out or (None if arguments.small else Path(__file__).with_suffix(".json"))
    if out is not None:
        document = {
            **about,
            "small": arguments.small,
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "versions": {name: metadata.version(name) for name in PACKAGES},
            "seconds": time.monotonic() - started,
            "summary": summary(rows),
            "rows": rows,
        }
        out.write_text(json.dumps(document, indent=2) + "\n")
    return None


if __name__ == "__main__":
    main()
