"""The predicted time of a compiled program's launches on its GPU: a model, not a measurement.

A kernel takes the time that XLA estimates for it. A matrix product takes the time for its bytes at
80 % of the memory bandwidth, or for its operations at half of the float32 peak (35 % of the tensor
cores' peak for tf32 and bfloat16), whichever is longer. Launches, conditionals and waits of the
host have the constant costs below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_cases import UPDATES
from gpu_hlo import Instruction, Program, Thunk, computations


@dataclass(frozen=True)
class Constants:
    """Overheads in microseconds; shares of the peaks that products reach."""

    node: float = 1.5  # a node in a CUDA graph
    stream: float = 2.5  # a launch outside graphs
    conditional: float = 5.0  # a conditional or loop inside a graph
    wait: float = 15.0  # the host waits for a number that determines what runs next
    library: float = 300.0  # a cuSOLVER call on one small matrix
    bandwidth: float = 0.8
    rate: float = 0.5
    # products reach the speed expected from tuning; otherwise that of XLA's default tiling
    tuned: bool = True


LIKELY = Constants()
FAST = Constants(node=1.1, stream=2.0, conditional=3.0, wait=10.0, bandwidth=0.9, rate=0.7)
SLOW = Constants(node=2.2, stream=3.5, conditional=8.0, wait=25.0, tuned=False)
# Peak FLOP/s of tensor cores without sparsity (NVIDIA's data sheets), for tf32 and bfloat16.
TENSOR = {"h100": (495e12, 990e12), "a100": (156e12, 312e12), "rtx4090": (82.6e12, 165e12)}
TENSOR_SHARE = 0.35
# Kinds that are not launches: containers, or operations that do nothing on the device.
_HOLDERS = {"kCommandBuffer", "kSequential", "kWhile", "kConditional", "kDynamicSliceFusion"}
ROLES = ("refill", "env step", "values", "advantages", "epoch", "gradient step", "update", "chunk")


@dataclass(frozen=True)
class Target:
    """The speeds of a GPU, from its target configuration."""

    bandwidth: float
    float32: float
    tensor: tuple[float, float]

    @classmethod
    def read(cls, path: Path) -> Target:
        text = path.read_text()

        def number(name: str) -> float:
            return float(re.findall(rf"{name}: ([\d.e+]+)", text)[0])

        cores = number("core_count") * number("fpus_per_core")
        peak = cores * 2 * number("clock_rate_ghz") * 1e9
        return cls(number("memory_bandwidth"), peak, TENSOR[path.stem])

    def rate(self, precision: str, constants: Constants) -> float:
        """Return the FLOP/s that products reach in a precision."""
        if precision == "float32":
            return self.float32 * constants.rate
        return self.tensor[precision == "bfloat16"] * TENSOR_SHARE


@dataclass(frozen=True)
class Cost:
    """One event: its role, how often it occurs per chunk, and its time."""

    role: str
    kind: str
    times: float
    microseconds: float
    traffic: int = 0
    products: int = 0


@dataclass
class Model:
    """Computes the times of a program's thunks."""

    program: Program
    target: Target
    precision: str
    epochs: int
    refills: int
    constants: Constants = LIKELY
    loops: dict[str, tuple[Instruction, float]] = field(default_factory=dict)

    def costs(self) -> list[Cost]:
        """Return all events in a chunk; loops are recorded in `loops`."""
        return list(self._walk(self.program.thunks, "chunk", 1.0, False))

    def _walk(self, thunks: list[Thunk], role: str, times: float, graph: bool) -> Iterator[Cost]:
        for one in thunks:
            known = self.program.named.get(one.name)
            if one.kind == "kCommandBuffer":
                yield from self._walk(one.inside, role, times, True)
            elif one.kind == "kWhile" and known is not None:
                yield from self._loop(one, known, role, times, graph)
            elif one.kind == "kConditional":
                yield self._decision(role, times, graph, "conditional")
                # With many environments, an episode ends in nearly every step: use the more
                # expensive branch.
                branches = [
                    list(self._walk(part, role, times, graph)) for part in one.parts.values()
                ]
                yield from max(branches, key=_total, default=[])
            elif one.kind == "kDynamicSliceFusion":
                for _ in one.inside:
                    yield self._launch("copy", known, role, times, graph)
            elif one.kind not in _HOLDERS:
                yield self._launch(one.kind, known, role, times, graph)

    def _loop(
        self, one: Thunk, known: Instruction, role: str, times: float, graph: bool
    ) -> Iterator[Cost]:
        inner = _role(known, role)
        trips = known.trips
        if trips is None:
            trips = self.refills if inner == "refill" else self.epochs
        if inner not in self.loops:
            self.loops[inner] = (known, times * trips)
        if known.trips is None or graph:
            unknown = "wait" if known.trips is None else "loop"
            yield self._decision(inner, times * (trips + 1), graph, unknown)
            condition = one.parts.get("condition", [])
            yield from self._walk(condition, inner, times * (trips + 1), graph)
        yield from self._walk(one.parts.get("body", []), inner, times * trips, graph)

    def _decision(self, role: str, times: float, graph: bool, kind: str) -> Cost:
        takes = self.constants.conditional if graph else self.constants.wait
        return Cost(role, kind if graph or kind == "conditional" else "wait", times, takes)

    def _launch(
        self, kind: str, known: Instruction | None, role: str, times: float, graph: bool
    ) -> Cost:
        if kind == "kCustomCall":
            return Cost(role, "library", times, self.constants.library)
        traffic = self.program.traffic(known) if known is not None else 0
        products = self.program.products(known) if known is not None else 0
        runs = self._kernel(known, traffic, products)
        takes = self.constants.node + runs if graph else max(self.constants.stream, 1.0 + runs)
        return Cost(role, "launch", times, takes, traffic, products)

    def _kernel(self, known: Instruction | None, traffic: int, products: int) -> float:
        """Return the microseconds of a kernel itself."""
        moved = traffic / (self.target.bandwidth * self.constants.bandwidth) * 1e6
        if known is None:
            return 0.0
        estimates = known.estimates
        if products:
            rate = self.target.rate(self.precision, self.constants)
            if known is not None and (parts := self.program.parts(known)):
                rate = self.target.rate("bfloat16", self.constants) / parts
            ideal = max(moved, products / rate * 1e6)
            usual = estimates.get("experimental-gemm-cost-model", ideal)
            return ideal if self.constants.tuned else max(ideal, usual)
        return estimates.get("indexing-cost-model", estimates.get("", moved))


def _role(loop: Instruction, outer: str) -> str:
    """Return a loop's role, from the enclosing loop and its place in the source."""
    if outer == "chunk":
        if loop.trips == UPDATES:
            return "update"
        return "refill" if loop.trips is None else "chunk"  # tiles, one after the other
    if outer == "update":
        if loop.trips is None:
            return "epoch"
        if "/values/" in loop.path:
            return "values"
        return "advantages" if "vmap" in loop.path.rsplit("/", 2)[1] else "env step"
    return "gradient step" if outer == "epoch" else outer


def roles_of(text: str) -> dict[str, str]:
    """Return the role of every instruction in an optimised program with UPDATES updates per chunk.

    The last computation in the text is the entry; computations of fusions are single instructions.
    """
    found: dict[str, str] = {}
    all_rows = computations(text)

    def walk(name: str, role: str) -> None:
        for one in all_rows.get(name, {}).values():
            found[one.name] = role
            inner = _role(one, role) if one.op == "while" else role
            if one.op in ("while", "call", "conditional"):
                for called in one.called:
                    walk(called, inner)

    walk(list(all_rows)[-1], "chunk")
    return found


def _total(costs: list[Cost]) -> float:
    return sum(cost.times * cost.microseconds for cost in costs)


def measured(folder: Path, target: Path) -> dict[str, Any]:
    """Return counts and predicted times of a compiled case, ready for JSON."""
    about = json.loads((folder / "about.json").read_text())
    program = Program(folder)
    speeds = Target.read(target)
    common = (program, speeds, about["precision"], about["epochs"])
    model = Model(*common, refills=0)
    costs = model.costs()
    update = _total(costs) / UPDATES
    low, high = (
        about["env_steps"] / (_total(Model(*common, 0, constants).costs()) / UPDATES)
        for constants in (SLOW, FAST)
    )
    counts = Model(*common, refills=1).costs()  # so that a refill is included
    loops = {
        role: _counted(program, model.loops, [c for c in counts if c.role == role], role, about)
        for role in ROLES
    }
    return {
        **about,
        "ms_per_update": round(update / 1e3, 2),
        "million_env_steps_per_second": round(about["env_steps"] / update, 2),
        "range": [round(low, 2), round(high, 2)],
        "loops": loops,
    }


def _counted(
    program: Program,
    loops: dict[str, tuple[Instruction, float]],
    costs: list[Cost],
    role: str,
    about: dict[str, Any],
) -> dict[str, Any]:
    """Return the counts for one iteration of the loop with this role."""
    loop, times = loops.get(role, (None, 1.0))
    times = 1.0 if role in ("chunk", "refill") else max(times, 1.0)

    def summed(kind: str) -> float:
        return round(sum(c.times for c in costs if c.kind == kind) / times, 1)

    chain = program.longest_chain(loop.body) if loop is not None and role != "update" else None
    if role in ("epoch", "refill"):  # they contain loops of unknown length, or calls
        chain = None
    return {
        "iterations_per_update": round(times / UPDATES, 1),
        "launches": summed("launch"),
        "conditionals": summed("conditional"),
        "waits": summed("wait"),
        "library_calls": summed("library"),
        "longest_chain": chain,
        "mega_bytes": round(sum(c.times * c.traffic for c in costs) / times / 1e6, 3),
        "mega_flop": round(sum(c.times * c.products for c in costs) / times / 1e6, 3),
        "microseconds": round(_total(costs) / times, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return rows of the JSON file as Markdown."""
    names = (
        "case", "GPU", "", "commit", "lanes", "tile", "launches an env step (chain)",
        "a gradient step (chain)", "all advantages", "waits an update", "a refill (calls)",
        "ms an update", "M env steps/s (range)", "memory MB", "estimate MB",
    )  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        loops = row["loops"]
        env, step, refill = (loops[name] for name in ("env step", "gradient step", "refill"))
        step = step if step["launches"] else loops["epoch"]
        gae = loops["advantages"]
        running = (one for name, one in loops.items() if name != "refill")
        waits = round(sum(one["waits"] * one["iterations_per_update"] for one in running))
        low, high = row["range"]
        memory = row["arguments_mb"] + row["temporaries_mb"]
        cells = [
            row["case"],
            row["target"],
            row["label"],
            row["commit"],
            f"{row['lanes']:,}",
            f"{row['tile']:,}",
            f"{env['launches']:g} ({env['longest_chain']})",
            f"{step['launches']:g} ({step['longest_chain']})",
            f"{gae['launches'] * gae['iterations_per_update']:g}",
            f"{waits:g}",
            f"{refill['launches']:g} ({refill['library_calls']:g})",
            f"{row['ms_per_update']:,.1f}",
            f"{row['million_env_steps_per_second']:.2f} ({low:.2f}-{high:.2f})",
            f"{memory:,.0f}",
            f"{row['estimate_mb']:,.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
