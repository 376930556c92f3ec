"""The speed of complete PPO updates and their memory, next to the predictions in GPU.md.

Programs are compiled side by side, in two waves, and then timed one after the other in order of
memory, so that the device's peak memory is that of the program timed last.
"""

from __future__ import annotations

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from .common import BENCHMARKS, Report, cores

SECONDS = 3.0  # time per program
FULL_UPDATES = 4  # per chunk
FIRST_WAVE = 3  # programs timed before the others are compiled, in case time runs out


class Timed(NamedTuple):
    """One program: its name in the table, its case, and its name in the model, if it has one."""

    name: str
    case: Any
    model: str = ""


def run(report: Report, devices: tuple[Any, ...], small: bool, concurrent: bool) -> None:
    """Time the programs; the table has one row per program."""
    devices = devices[: 2 if devices[0].platform == "cpu" else 1]
    report.document["rows"] = []
    wanted = _timed(small, concurrent)
    for wave in (wanted[:FIRST_WAVE], wanted[FIRST_WAVE:]):
        _wave(report, wave, devices, small)
    report.finish(_summary(report.document["rows"]))


def _wave(report: Report, wave: list[Timed], devices: tuple[Any, ...], small: bool) -> None:
    """Compile some programs, then time them while nothing else uses the GPU."""
    programs = [_program(timed.case, devices, small) for timed in wave]
    with ThreadPoolExecutor(cores()) as pool:
        compiled = [pool.submit(_compile_seconds, program) for program in programs]
    made = list(zip(wave, programs, compiled, strict=True))
    made.sort(key=lambda one: one[1].memory_bytes())
    del programs, compiled
    while made:
        timed, program, seconds = made.pop(0)
        if (problem := seconds.exception()) is not None:
            report.fail(f"{timed.name}: {type(problem).__name__}: {str(problem)[:300]}")
            continue
        row = _row(timed, program, seconds.result(), devices[0].device_kind, small)
        report.document["rows"].append(row)
        report.write()


def _timed(small: bool, concurrent: bool) -> list[Timed]:
    """Return the programs: several numbers of lanes, precisions, packed and flat observations."""
    from gpu_cases import CASES, TF32

    cartpole, rmsa = CASES["cartpole"], CASES["rmsa_packed"]

    def wide(case: Any, lanes: int, **knobs: Any) -> Any:
        return dataclasses.replace(case, lanes=lanes, knobs={**case.knobs, **knobs})

    if small:
        tiny = {"num_envs": 2, "rollout_length": 16, "hidden_sizes": (16,)}
        made = [Timed("cartpole 8", wide(cartpole, 8, **tiny))]
        if not concurrent:
            made.append(Timed("cartpole 8 tf32", wide(cartpole, 8, **tiny, **TF32)))
            made.append(Timed("rmsa packed 4", wide(rmsa, 4, **tiny)))
            made.append(Timed("rmsa flat 4", wide(CASES["rmsa_flat"], 4, **tiny)))
        return made
    made = [
        Timed("cartpole 512", CASES["cartpole_512"], "cartpole_512"),
        Timed("cartpole 4096", cartpole, "cartpole"),
        Timed("rmsa packed 512", rmsa, "rmsa_packed"),
    ]
    if not concurrent:
        made += [
            Timed("rmsa packed 512 tf32", CASES["rmsa_packed_tf32"], "rmsa_packed_tf32"),
            Timed("rmsa flat 512", CASES["rmsa_flat"], "rmsa_flat"),
            Timed("cartpole 4096 tf32", wide(cartpole, 4096, **TF32)),
            Timed("pendulum 4096", CASES["pendulum"], "pendulum"),
            Timed("minatar cnn 512", CASES["minatar_cnn"], "minatar_cnn"),
            Timed("cartpole 64", wide(cartpole, 64)),
            Timed("cartpole 8192", wide(cartpole, 8192)),
        ]
    return made


def _program(case: Any, devices: tuple[Any, ...], small: bool) -> Any:
    from gpu_cases import plan_of, tile_of

    from hpo.core.program import EvaluationPlan, Program

    plan, example = plan_of(case, devices[0].platform)
    updates = 1 if small else FULL_UPDATES
    limit = 0 if small else devices[0].memory_stats()["bytes_limit"]
    tile = case.lanes // len(devices) if small else tile_of(case, plan, example, limit)
    return Program(plan, case.lanes, updates, tile, EvaluationPlan(), devices, example)


def _compile_seconds(program: Any) -> float:
    started = time.perf_counter()
    program.compile()
    return time.perf_counter() - started


def _row(timed: Timed, program: Any, compiled: float, kind: str, small: bool) -> dict[str, Any]:
    import gpu

    before = gpu.memory_mb(program)  # tuning kernels of other programs may have used more
    seen = gpu.measure(program, 0.3 if small else SECONDS)
    needed = program._advance.memory_analysis()
    taken = (needed.argument_size_in_bytes + needed.temp_size_in_bytes) / 2**20
    row = {
        "name": timed.name,
        "lanes": program.lanes,
        "tile": program.tile,
        "updates_a_chunk": program.updates,
        **seen,
        "compile_seconds": compiled,
        "raised_the_peak": seen["memory_mb"] > before,
        "compiler_mb": taken * len(program.devices),
    }
    modelled = _modelled(timed.model, kind)
    if modelled is not None:
        row["modelled_env_steps_per_second"] = modelled
        row["measured_over_modelled"] = row["env_steps_per_second"] / modelled
    return row


def _modelled(name: str, kind: str) -> float | None:
    """Return the model's prediction for an H100 (an H200 has equal arithmetic and more memory)."""
    if not name or not any(word in kind for word in ("H100", "H200")):
        return None
    rows = json.loads((BENCHMARKS / "gpu_compiled.json").read_text())
    return 1e6 * rows[f"{name}/h100/after"]["million_env_steps_per_second"]


def _summary(rows: list[dict[str, Any]]) -> str:
    speeds = ", ".join(
        f"{row['name']} {_short(row['env_steps_per_second'])}"
        + (f" (x{row['measured_over_modelled']:.2f})" if "measured_over_modelled" in row else "")
        for row in rows
    )
    own = [row for row in rows if row["raised_the_peak"]]
    peaks = ", ".join(f"{row['memory_mb'] / row['estimate_mb']:.2f}" for row in own) or "not seen"
    return f"env steps/s (x the model): {speeds}; peak memory over its estimate: {peaks}"


def _short(number: float) -> str:
    return f"{number / 1e6:.3g}M" if number >= 1e5 else f"{number:,.0f}"
