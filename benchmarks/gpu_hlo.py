"""XLA's output for a GPU program: its optimised HLO, and the thunks that launch it.

Only information for the cost model is read: shapes, operands, products, XLA's estimates of
kernels.
"""

from __future__ import annotations

import gzip
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4,
         "f32": 4, "s64": 8, "u64": 8, "f64": 8}  # fmt: skip
KERNELS = {"fusion", "copy", "sort", "custom-call", "dynamic-update-slice", "dynamic-slice"}
COLLECTIVES = {
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
}
_COMPUTATION = re.compile(r"(?:ENTRY )?%([\w.\-]+) \(.*\) -> .* \{$")
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)")
_CALLED = re.compile(
    r"(?:calls|body|to_apply|true_computation|false_computation)=%([\w.\-]+)"
    r"|branch_computations=\{([^}]*)\}"
)
_COST = re.compile(
    r'"exec_time_us":([\d.e\-+]+),"compute_time_us":[\d.e\-+]+,'
    r'"memory_access_time_us":[\d.e\-+]+,"name":"([^"]*)"'
)
_AFTER_OPERANDS = re.compile(
    r"\), (?:kind|metadata|calls|condition|backend|dimensions|slice|custom|branch|true|to_apply)"
)
_THUNK = re.compile(r"(\d+): (k\w+)\s+\[[^\]]*\]")


@dataclass(frozen=True)
class Instruction:
    """One instruction of the optimised program; `operands` are in the same computation."""

    name: str
    shape: str
    op: str
    operands: tuple[str, ...]
    called: tuple[str, ...]
    line: str

    @property
    def trips(self) -> int | None:
        """The number of a loop's iterations; None if the compiler does not know it."""
        found = re.search(r'known_trip_count":\{"n":"(\d+)"', self.line)
        return int(found[1]) if found else None

    @property
    def path(self) -> str:
        """The place in the source that it came from."""
        found = re.search(r'op_name="([^"]*)"', self.line)
        return found[1] if found else ""

    @property
    def body(self) -> str:
        """The computation of a loop's body."""
        found = re.search(r"body=%([\w.\-]+)", self.line)
        assert found is not None, self.line
        return found[1]

    @property
    def estimates(self) -> dict[str, float]:
        """XLA's estimates of its microseconds, by the estimating model."""
        return {name: float(value) for value, name in _COST.findall(self.line)}


@dataclass
class Thunk:
    """One entry in the host's sequence; `parts` are bodies of loops and branches."""

    kind: str
    name: str
    inside: list[Thunk] = field(default_factory=list)
    parts: dict[str, list[Thunk]] = field(default_factory=dict)


class Program:
    """The optimised program, as instructions and thunks."""

    def __init__(self, folder: Path):
        def text(name: str) -> str:
            return gzip.decompress((folder / name).read_bytes()).decode()

        self.computations = computations(text("program.hlo.gz"))
        self.named = {
            one.name: one for rows in self.computations.values() for one in rows.values()
        }
        names = _names(text("thunk_metadata.gz"))
        self.thunks = _thunks(text("thunk_sequence_after_thunk_passes.gz"), names)

    def traffic(self, one: Instruction) -> int:
        """Return the bytes that an instruction reads and writes."""
        read = sum(_bytes(self.named[name].shape) for name in one.operands if name in self.named)
        return read + _bytes(one.shape)

    def products(self, one: Instruction) -> int:
        """Return the floating-point operations of the matrix products in an instruction."""
        total = 0
        for called in one.called:
            rows = self.computations.get(called, {})
            total += sum(
                _product(row, rows) if row.op == "dot" else self.products(row)
                for row in rows.values()
            )
        return total

    def parts(self, one: Instruction) -> int:
        """Return how many bfloat16 products replace an instruction's product, or 0 if none do."""
        found = 0
        for called in one.called:
            for row in self.computations.get(called, {}).values():
                if row.op == "dot":
                    split = re.search(r"algorithm=dot_bf16_bf16_f32(?:_x(\d))?\b", row.line)
                    found = max(found, int(split[1] or 1) if split else 0)
                else:
                    found = max(found, self.parts(row))
        return found

    def longest_chain(self, computation: str) -> int:
        """Return the kernels of a computation that must run one after the other."""
        ends: dict[str, int] = {}
        for one in self.computations[computation].values():
            weight = int(one.op in KERNELS)
            if one.op == "conditional":
                weight = 1 + max(self.longest_chain(branch) for branch in one.called)
            elif one.op == "while":
                weight = (one.trips or 1) * self.longest_chain(one.body)
            ends[one.name] = weight + max((ends.get(name, 0) for name in one.operands), default=0)
        return max(ends.values(), default=0)


@dataclass(frozen=True)
class Collective:
    """A single exchange between a program's devices; `bytes` is what each device then has."""

    op: str
    bytes: int


def collectives(text: str) -> list[Collective]:
    """Return the collectives in an optimised program; those that overlap other work count once."""
    found: list[Collective] = []
    for rows in computations(text).values():
        for one in rows.values():
            op = one.op.removesuffix("-done")
            if op in COLLECTIVES:
                found.append(Collective(op, _bytes(one.shape)))
    return found


def computations(text: str) -> dict[str, dict[str, Instruction]]:
    """Return the instructions of every computation, both by name, in text order."""
    found: dict[str, dict[str, Instruction]] = {}
    rows: dict[str, Instruction] = {}
    for line in text.splitlines():
        if opened := _COMPUTATION.match(line):
            rows = found.setdefault(opened[1], {})
        elif made := _INSTRUCTION.match(line):
            name, shape, op, rest = made.groups()
            operands = re.findall(r"%([\w.\-]+)", _AFTER_OPERANDS.split(rest)[0])
            called = [
                word
                for one, several in _CALLED.findall(rest)
                for word in ([one] if one else re.findall(r"[\w.\-]+", several))
            ]
            rows[name] = Instruction(name, shape, op, tuple(operands), tuple(called), line)
    return found


def _sizes(shape: str) -> list[int]:
    dimensions = re.search(r"\[([\d,]*)\]", shape)
    return [int(word) for word in dimensions[1].split(",") if word] if dimensions else []


def _bytes(shape: str) -> int:
    return sum(
        BYTES.get(kind, 0) * math.prod(int(word) for word in sizes.split(",") if word)
        for kind, sizes in re.findall(r"(\w+)\[([\d,]*)\]", shape)
    )


def _product(dot: Instruction, rows: dict[str, Instruction]) -> int:
    found = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", dot.line)
    left = _sizes(rows[dot.operands[0]].shape)
    summed = math.prod(left[int(word)] for word in found[1].split(",")) if found else 1
    return 2 * math.prod(_sizes(dot.shape)) * summed


def _names(text: str) -> dict[int, str]:
    """Return the instruction of each numbered thunk."""
    found: dict[int, str] = {}
    for block in text.split("thunk_metadata {")[1:]:
        name = re.search(r'profile_annotation: "([^"]*)"', block)
        number = re.search(r"thunk_id: (\d+)", block)
        if name and number:
            found[int(number[1])] = name[1]
    return found


def _thunks(text: str, names: dict[int, str]) -> list[Thunk]:
    """Read the sequence of thunks; indentation gives the depth, 4 spaces per level.

    The parts of a loop or conditional have separate headers, indented by two more spaces, except
    `condition:`, which is at the level of its loop.
    """
    top: list[Thunk] = []
    into = {-1: top}  # depth -> the list for thunks one level deeper
    last: dict[int, Thunk] = {}
    loop: tuple[Thunk, int] | None = None
    for line in text.splitlines():
        word = line.strip()
        spaces = len(line) - len(line.lstrip())
        if word == "condition:":
            assert loop is not None, "a condition without its loop"
            into[loop[1]] = loop[0].parts.setdefault("condition", [])
        elif word.endswith(":") and not word[0].isdigit():
            owner = (spaces - 2) // 4
            into[owner] = last[owner].parts.setdefault(word[:-1], [])
        elif found := _THUNK.match(word):
            depth = spaces // 4
            made = Thunk(found[2], names.get(int(found[1]), ""))
            into[depth - 1].append(made)
            into[depth] = made.inside
            last[depth] = made
            if made.kind == "kWhile":
                loop = made, depth
    return top
