"""The kernels of an env step and of a gradient step, from a trace of one chunk.

It uses jax's own reader of traces (`jax.profiler.ProfileData`), without TensorFlow. CUDA graphs
are off in this part, because kernels inside them do not show their instruction.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .common import BENCHMARKS, Report, cores

TOP = 20
FLAGS = "--xla_gpu_enable_command_buffer="
STEPS = ("env step", "gradient step")
# on a CPU, these events contain those of the code that they run
_HOLDERS = ("while", "conditional", "call")


def run(report: Report, devices: tuple[Any, ...], small: bool) -> None:
    """Trace one chunk of each program; return a table of kernels for each kind of step."""
    devices = devices[: 2 if small else 1]
    programs = {name: _program(case, devices) for name, case in _cases(small).items()}
    report.document["programs"] = rows = {}
    words = []
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(lambda program: program.compile(), programs.values()))
    for name, program in programs.items():
        found = _traced(program)
        if not found:
            report.fail(f"{name}: the trace holds no kernel of the program")
            continue
        rows[name] = _tables(found, program, name)
        words.append(
            f"{name}: "
            + ", ".join(
                f"{step} {rows[name][step]['launches']:.0f} kernels "
                f"{rows[name][step]['microseconds']:.0f} us"
                for step in STEPS
                if step in rows[name]
            )
        )
        report.write()
    report.finish("; ".join(words))


def _cases(small: bool) -> dict[str, Any]:
    from gpu_cases import CASES, PPO, Case

    if small:
        tiny = {**PPO, "num_envs": 2, "rollout_length": 16, "hidden_sizes": (16,)}
        return {"tiny": Case("CartPole-v1", 8, tiny)}
    return {name: CASES[name] for name in ("cartpole_512", "rmsa_packed")}


def _program(case: Any, devices: tuple[Any, ...]) -> Any:
    from gpu_cases import UPDATES, plan_of

    from hpo.core.program import EvaluationPlan, Program

    plan, example = plan_of(case, devices[0].platform)
    tile = case.lanes // len(devices)
    return Program(plan, case.lanes, UPDATES, tile, EvaluationPlan(), devices, example)


def _traced(program: Any) -> dict[str, tuple[int, float]]:
    """Run a chunk under the profiler; return {instruction: (count, total microseconds)}."""
    import gpu
    import jax

    lanes, metrics = program.advance(0, program.empty(), gpu.fill(program))
    jax.block_until_ready(metrics)
    with tempfile.TemporaryDirectory(prefix="hpo-trace-") as folder:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        jax.profiler.start_trace(folder, profiler_options=options)
        lanes, metrics = program.advance(0, lanes, program.no_refills())
        jax.block_until_ready((lanes, metrics))
        jax.profiler.stop_trace()
        [path] = Path(folder).rglob("*.xplane.pb")
        return _summed(_events(jax.profiler.ProfileData.from_file(str(path))))


def _events(data: Any) -> Iterator[tuple[str, float]]:
    """Yield (instruction, microseconds) for all kernels of the training program.

    A GPU has one line per stream, and further lines that repeat the events by module or by name.
    """
    planes = list(data.planes)
    on_gpu = [plane for plane in planes if plane.name.startswith("/device:GPU")]
    for plane in on_gpu or planes:
        for line in plane.lines:
            if on_gpu and not line.name.startswith("Stream"):
                continue
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats and "local" in str(stats.get("hlo_module", "local")):
                    yield str(stats["hlo_op"]), event.duration_ns / 1e3


def _summed(events: Iterator[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for name, microseconds in events:
        times, total = found[name]
        found[name] = times + 1, total + microseconds
    return dict(found)


def _tables(
    found: Mapping[str, tuple[int, float]], program: Any, name: str
) -> dict[str, dict[str, Any]]:
    """Return, for each role of a loop, its time, launches and longest kernels, per iteration."""
    from gpu_cost import roles_of

    plan, updates = program.plan, program.updates
    roles = roles_of(program._advance.as_text())
    tiles = program.lanes // program.tile
    turns = {
        "env step": updates * tiles * plan.rollout_length,
        "gradient step": updates
        * tiles
        * plan.num_minibatches
        * int(program.example.update_epochs),
    }
    of_role: dict[str, list[tuple[str, int, float]]] = defaultdict(list)
    for one, (times, total) in found.items():
        if one.split(".")[0] in _HOLDERS:
            continue
        of_role[roles.get(one, "elsewhere")].append((one, times, total))
    made = {}
    for role, rows in of_role.items():
        turn = turns.get(role, updates)
        rows.sort(key=lambda row: -row[2])
        made[role] = {
            "turns": turn,
            "launches": sum(times for _, times, _ in rows) / turn,
            "microseconds": sum(total for *_, total in rows) / turn,
            "modelled": _modelled(name, role),
            "kernels": [
                {"name": one, "launches": times / turn, "microseconds": total / turn}
                for one, times, total in rows[:TOP]
            ],
        }
    return made


def _modelled(name: str, role: str) -> dict[str, Any] | None:
    """Return the model's prediction for an iteration on an H100, including launches."""
    rows = json.loads((BENCHMARKS / "gpu_compiled.json").read_text())
    row = rows.get(f"{name}/h100/after", {"loops": {}})["loops"].get(role)
    return row and {key: row[key] for key in ("launches", "microseconds", "mega_bytes")}
