"""Eight updates of six programs, compared with recorded numbers from a CPU.

For each program, the reference file contains its losses after every update, and for its parameters
after the first and the last update the norm of every array and a few of its values.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from .common import BENCHMARKS, Report, cores, versions

FILE = BENCHMARKS / "gpu_reference.json"
UPDATES, LANES, SAMPLES = 8, 4, 4
LOSSES = ("loss", "policy_loss", "value_loss", "entropy", "grad_norm", "reward_mean")
FIRST, LAST = 1e-3, 1e-2
"""The largest distance after the first update, in all lanes, and up to the last, in all but one.

Two versions of jax, and code compiled with and without optimisations, were 2e-5 and 1e-4 apart.
One lane may deviate: if a sampled action is at the boundary between two, the last digit of a
float32 can change it, and all later values differ.
"""
MAY_LEAVE = 1
# for losses that are zero except for rounding, and for arrays that are still small
_LEAST_SCALE = 0.01
_PPO = {"num_envs": 4, "rollout_length": 32, "update_epochs": 2, "num_minibatches": 2,
        "learning_rate": 3e-4, "lr_schedule": "constant"}  # fmt: skip
_SMALL_TRANSFORMER = {"network": "transformer", "rollout_length": 8,
                      "transformer_embedding_size": 32, "transformer_intermediate_size": 32,
                      "transformer_actor_mlp_width": 32, "transformer_critic_mlp_width": 32,
                      "transformer_critic_mlp_depth": 1}  # fmt: skip


def cases() -> dict[str, Any]:
    """Return the six small programs by name, each with a different network or kind of action."""
    from gpu_cases import Case

    small = {**_PPO, "hidden_sizes": (32, 32)}
    return {
        "cartpole": Case("CartPole-v1", LANES, {**_PPO, "hidden_sizes": (64, 64)}),
        "pendulum": Case("Pendulum-v1", LANES, {**_PPO, "hidden_sizes": (64, 64)}),
        "minatar_cnn": Case("Breakout-MinAtar", LANES, {**small, "network": "cnn"}),
        "lstm": Case("CartPole-v1", LANES, {**small, "network": "lstm"}),
        "transformer": Case("rmsa", LANES, {**small, **_SMALL_TRANSFORMER}),
        "rmsa_packed": Case("rmsa", LANES, small, {"observation": "packed"}),
    }


class Compared(NamedTuple):
    """The distance of a number from the reference, relative to its scale."""

    what: str
    update: int
    lane: int
    distance: float


# ---------------------------------------------------------------------- numbers of a program


def make(case: Any, devices: tuple[Any, ...]) -> Any:
    """Return the program of a case, on one GPU or on two devices of a host."""
    from gpu_cases import plan_of

    from hpo.core.program import EvaluationPlan, Program

    platform = devices[0].platform
    devices = devices[: 2 if platform == "cpu" else 1]
    plan, example = plan_of(case, platform)
    tile = case.lanes // len(devices)
    return Program(plan, case.lanes, 1, tile, EvaluationPlan(), devices, example)


def numbers_of(program: Any) -> dict[str, Any]:
    """Run the updates; return the losses and parameters in the form of the reference file."""
    import gpu
    import jax
    import numpy as np

    lanes, refills = program.empty(), gpu.fill(program)
    losses: dict[str, list[list[float]]] = {name: [] for name in LOSSES}
    params = {}
    for update in range(1, UPDATES + 1):
        lanes, metrics = program.advance(0, lanes, refills)
        refills = program.no_refills()
        for name, rows in losses.items():
            rows.append(_rounded(np.asarray(getattr(metrics, name))[0]))
        if update in (1, UPDATES):
            params[str(update)] = _sampled(jax.device_get(lanes.state.params))
    return {"losses": losses, "params": params}


def _sampled(params: Any) -> dict[str, Any]:
    """Return norms and a few values of every array [L, ...], and the hash of all their bits."""
    import jax
    import numpy as np

    arrays, whole = {}, hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        rows = np.asarray(leaf).reshape(LANES, -1)
        whole.update(rows.tobytes())
        at = np.unique(np.linspace(0, rows.shape[1] - 1, SAMPLES).astype(int))
        norms = np.sqrt(np.sum(np.square(rows, dtype=np.float64), axis=1))
        arrays[jax.tree_util.keystr(path)] = {
            "size": rows.shape[1],
            "norm": _rounded(norms),
            "values": [_rounded(row) for row in rows[:, at]],
        }
    return {"sha256": whole.hexdigest(), "arrays": arrays}


def _rounded(row: Any) -> list[float]:
    return [float(f"{value:.7g}") for value in row]


# ---------------------------------------------------------------------- the comparison


def distances(seen: Mapping[str, Any], reference: Mapping[str, Any]) -> Iterator[Compared]:
    """Compare all numbers of one program.

    Losses are relative to themselves, values to the root mean square of their array; both scales
    are at least 0.01. A non-finite number has infinite distance.

    Raises:
        ValueError: the program's arrays are not those of the reference.
    """
    for name, rows in reference["losses"].items():
        for update, (ours, theirs) in enumerate(zip(seen["losses"][name], rows, strict=True)):
            for lane, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield Compared(name, update + 1, lane, _distance(one, other, abs(other)))
    for update, made in reference["params"].items():
        ours, theirs = seen["params"][update]["arrays"], made["arrays"]
        if {name: one["size"] for name, one in ours.items()} != {
            name: one["size"] for name, one in theirs.items()
        }:
            raise ValueError("the program has other parameters than the reference")
        for name, one in theirs.items():
            for lane, norm in enumerate(one["norm"]):
                scale = norm / math.sqrt(one["size"])
                pairs = zip(ours[name]["values"][lane], one["values"][lane], strict=True)
                far = [_distance(mine, value, scale) for mine, value in pairs]
                far.append(_distance(ours[name]["norm"][lane], norm, norm))
                yield Compared(name, int(update), lane, max(far))


def _distance(one: float, other: float, scale: float) -> float:
    far = abs(one - other) / max(scale, _LEAST_SCALE)
    return far if math.isfinite(far) else math.inf


def judged(seen: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return a program's distance from its reference, and a text on what is too far."""
    found = list(distances(seen, reference))
    first = [one for one in found if one.update == 1]
    lanes = {one.lane for one in found}
    worst = {lane: max((one for one in found if one.lane == lane), key=_far) for lane in lanes}
    left = {lane: one for lane, one in worst.items() if not one.distance <= LAST}
    wrong = [_words(one, FIRST) for one in first if not one.distance <= FIRST]
    if len(left) > MAY_LEAVE:
        wrong += [_words(one, LAST) for one in left.values()]
    equal = all(
        seen["params"][update]["sha256"] == made["sha256"]
        for update, made in reference["params"].items()
    )
    return {
        "first_update": max(map(_far, first)),
        "last_update": sorted(_far(one) for one in worst.values()),
        "lanes_that_left": sorted(left),
        "bits_equal": equal,
        "wrong": wrong[:8],
    }


def _far(one: Compared) -> float:
    return one.distance


def _words(one: Compared, most: float) -> str:
    return (
        f"{one.what} of lane {one.lane} after update {one.update} is {one.distance:.2g} "
        f"from the CPU's, at most {most:g}"
    )


# ---------------------------------------------------------------------- the part


def measure_all(devices: tuple[Any, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Compile all programs side by side; yield each one's numbers when it is ready."""
    made = {name: make(case, devices) for name, case in cases().items()}
    with ThreadPoolExecutor(cores()) as pool:
        compiled = {name: pool.submit(program.compile) for name, program in made.items()}
        for name, program in made.items():
            compiled[name].result()
            yield name, numbers_of(program)


def run(report: Report, devices: tuple[Any, ...]) -> None:
    """Compare every program with the reference file."""
    reference = json.loads(FILE.read_text())
    report.document["reference"] = reference["made_with"]
    report.document["tolerance"] = {"first_update": FIRST, "last_update": LAST}
    report.document["programs"] = rows = {}
    for name, seen in measure_all(devices):
        rows[name] = judged(seen, reference["programs"][name])
        for words in rows[name]["wrong"]:
            report.fail(f"{name}: {words}")
        report.write()
    furthest = max(row["first_update"] for row in rows.values())
    left = sum(len(row["lanes_that_left"]) for row in rows.values())
    report.finish(
        f"{len(rows)} programs, {UPDATES} updates: first update within {furthest:.1g} of a CPU's "
        f"(at most {FIRST:g}), {left} of {len(rows) * LANES} lanes left"
    )


def write_reference(path: Path, devices: tuple[Any, ...]) -> None:
    """Write the reference file on a CPU."""
    made = dict(measure_all(devices))
    document = {"made_with": versions(), "updates": UPDATES, "lanes": LANES, "programs": made}
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n")
