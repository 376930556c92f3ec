"""The composition of a compiled program: its size by part, and the cost of compiling.

Each case is compiled in a separate process, without a cache. StableHLO operations are counted as
lowered, HLO instructions after XLA's passes. *Kernels* are distinct fusions, ignoring metadata:
XLA compiles equal ones once. A part is a `jax.named_scope` in the core: `refill` starts lanes;
`rollout`, `advantages`, `epochs` and `metrics` form an update; `lanes` is the rest, which moves
lanes in and out of their tiles. Random numbers of all parts are counted together.

    python benchmarks/program_anatomy.py                                    # about 8 CPU-minutes
    python benchmarks/program_anatomy.py --rejax-python /tmp/rejax/bin/python
    python benchmarks/program_anatomy.py --before COMMIT --only cartpole-16 --rounds 3

rejax (see lanes_vs_rejax.py) compiles the CartPole cases in turn with ours. With `--before`, an
earlier commit does; all its parts are then counted as one, and no file is written.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from checkout import make_importable
from features import unpack
from rates import cpu_seconds

PARTS = ("refill", "rollout", "advantages", "epochs", "metrics")
RANDOM = re.compile(r"threefry|random_|_uniform|_normal|_gumbel|shuffle")
KNOBS = {"num_envs": 8, "rollout_length": 128, "update_epochs": 4, "num_minibatches": 4,
         "ent_coef": 0.01, "normalise_rewards": False}  # fmt: skip
OPTICAL = {"id": "rmsa", "k": 3, "slots": 20}
SMALL = {"num_envs": 4, "rollout_length": 16, "num_minibatches": 1, "update_epochs": 2}
CASES: dict[str, dict[str, Any]] = {
    "cartpole-1": {"lanes": 1},
    "cartpole-16": {"lanes": 16},
    "cartpole-64": {"lanes": 64},
    "cnn": {"lanes": 8, "env": {"id": "Breakout-MinAtar"}, "knobs": {"network": "cnn"}},
    "lstm": {"lanes": 8, "knobs": {"network": "lstm"}},
    "gnn": {"lanes": 2, "env": OPTICAL, "knobs": {**SMALL, "network": "gnn"}},
    "transformer": {
        "lanes": 2,
        "env": {**OPTICAL, "aggregate_slots": 4},
        "knobs": {**SMALL, "network": "transformer"},
    },
}
SIZES = ("stablehlo", "hlo", "fusions", "kernels")


def ours(case: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of the training and the evaluation program of a case."""
    from hpo.core import memory, program
    from hpo.core.envs import registry
    from hpo.core.hypers import make_hypers
    from hpo.core.plan import EnvPlan, make_plan
    from hpo.machine.devices import prepare_devices
    from hpo.search.lanes.lane_count import tile_of

    devices = prepare_devices("cpu")
    knobs = {**KNOBS, **case.get("knobs", {})}
    keys = {"id": "CartPole-v1", **case.get("env", {})}
    where = EnvPlan(keys.pop("id"), tuple(sorted(keys.items())))
    plan = make_plan(knobs, where, features=())
    params = registry.make(plan.env).default_params
    example, lanes = make_hypers(knobs, params, params), case["lanes"]
    tile = tile_of("cpu", memory.parameter_count(plan, example))
    devices = devices[: min(lanes, len(devices))]
    tile = max(t for t in range(1, tile + 1) if lanes % (t * len(devices)) == 0)
    made = program.Program(plan, lanes, 20, tile, program.EvaluationPlan(), devices, example)
    options = program.compiler_options(devices)
    return {
        "training": compiled(lambda: made._lowered, options),
        "evaluation": compiled(lambda: made._evaluation_lowered, None),
    }


def rejax(case: dict[str, Any]) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    from lanes_vs_rejax import cartpole
    from rejax import PPO

    names = ("num_envs", "num_minibatches", "ent_coef")
    algorithm = PPO.create(
        **cartpole(),
        **{name: KNOBS[name] for name in names},
        num_steps=KNOBS["rollout_length"],
        num_epochs=KNOBS["update_epochs"],
        max_grad_norm=0.5,
        skip_initial_evaluation=True,
        agent_kwargs={"activation": "tanh"},
    )
    lanes = case["lanes"]
    traced = {"gamma": 0.99, "gae_lambda": 0.95, "clip_eps": 0.2, "vf_coef": 0.5,
              "ent_coef": 0.01, "max_grad_norm": 0.5, "learning_rate": 3e-4}  # fmt: skip
    rows = {name: jnp.full(lanes, value) for name, value in traced.items()}
    algorithms = jax.vmap(lambda row: algorithm.replace(**row))(rows)

    def train(one: Any, key: Any) -> Any:
        body = lambda _, state: one.train_iteration(state)  # noqa: E731
        return jax.lax.fori_loop(0, 20, body, one.init_state(key))

    keys = jax.random.split(jax.random.PRNGKey(0), lanes)
    step = jax.jit(jax.vmap(train))
    return {"training": compiled(lambda: step.lower(algorithms, keys), None)}


def compiled(lower: Callable[[], Any], options: dict[str, Any] | None) -> dict[str, Any]:
    """Lower and compile one program; return its sizes by part, and the seconds of both."""
    cpu = cpu_seconds()
    lowered = lower()
    seconds = {"lower_cpu_seconds": cpu_seconds() - cpu}
    cpu, wall = cpu_seconds(), time.perf_counter()
    made = lowered.compile(compiler_options=options)
    seconds["compile_cpu_seconds"] = cpu_seconds() - cpu
    seconds["compile_wall_seconds"] = time.perf_counter() - wall
    parts: dict[str, dict[str, int]] = {}
    for size, counted in zip(
        SIZES, (operations(lowered), *instructions(made.as_text())), strict=True
    ):
        for part, count in counted.items():
            parts.setdefault(part, dict.fromkeys(SIZES, 0))[size] = count
    whole = {size: sum(part[size] for part in parts.values()) for size in SIZES}
    return {**whole, **seconds, "parts": parts}


def part_of(path: str) -> str:
    """Return the part that contains a path of scopes.

    >>> part_of("jit(f)/while/body/epochs/mul"), part_of("refill/while/body/threefry2x32/add")
    ('epochs', 'random numbers')
    """
    if RANDOM.search(path):
        return "random numbers"
    names = re.split(r"[/()]", path)
    return next((part for part in PARTS if part in names), "lanes")


def operations(lowered: Any) -> collections.Counter[str]:
    """Count StableHLO operations by part; a function counts once, where it is first called."""
    text = lowered.as_text(debug_info=True)
    places = dict(re.findall(r"^(#loc\d*) = (.*)$", text, re.MULTILINE))
    functions: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if head := re.match(r"\s*func\.func .*?@(\S+?)\(", line):
            lines = functions.setdefault(head[1], [])
        elif " = " in line and not line.startswith("#"):
            lines.append(line)
    found: collections.Counter[str] = collections.Counter()
    waiting, seen = [("main", "")], {"main"}
    while waiting:
        function, above = waiting.pop()
        for line in functions[function]:
            path = f"{above}/{_scope(line, places)}"
            found[part_of(path)] += 1
            for called in re.findall(r"call @(\S+?)\(", line):
                if called in functions and called not in seen:
                    seen.add(called)
                    waiting.append((called, f"{path}/{called}"))
    return found


def _scope(line: str, places: dict[str, str]) -> str:
    """Return the scopes named by the location at the end of a line."""
    found = re.search(r"loc\((#loc\d*)\)\s*$", line)
    place = places.get(found[1], "") if found else ""
    for _ in range(8):  # locations refer to other locations
        if named := re.search(r'"([^"]*)"', place):
            return named[1]
        further = re.search(r"#loc\d*", place)
        place = places.get(further[0], "") if further else ""
    return ""


def instructions(text: str) -> Iterator[collections.Counter[str]]:
    """Count instructions, fusions and kernels of an HLO module, by part."""
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if head := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*\{$", line):
            lines = bodies.setdefault(head[1], [])
        elif " = " in line:
            lines.append(line)
    every, fusions, kernels = (collections.Counter[str]() for _ in range(3))
    parts: dict[str, str] = {}  # part of each computation, by where it is called
    known: set[str] = set()
    # callers follow the computations that they call; the entry is last
    for name in reversed(bodies):
        for line in bodies[name]:
            named = re.search(r'op_name="([^"]*)"', line)
            part = part_of(named[1]) if named else parts.get(name, "lanes")
            every[part] += 1
            for called in re.findall(r"(?:calls|body|condition|to_apply)=%?([\w.\-]+)", line):
                parts.setdefault(called, part)
            if fused := re.search(r" fusion\(.*calls=%?([\w.\-]+)", line):
                fusions[part] += 1
                kernel = _without_names(bodies[fused[1]])
                kernels[part] += kernel not in known
                known.add(kernel)
    yield from (every, fusions, kernels)


def _without_names(lines: list[str]) -> str:
    """Return a computation's text with numbered values and without metadata."""
    numbers: dict[str, str] = {}

    def number(name: re.Match[str]) -> str:
        return numbers.setdefault(name[0], f"%{len(numbers)}")

    plain = (re.split(r", (?:metadata|backend_config)=", line)[0] for line in lines)
    return "\n".join(re.sub(r"%[\w.\-]+", number, line) for line in plain)


def measure(python: str, side: str, case: str, path: Path | None = None) -> dict[str, Any]:
    """Compile one case in a new process; return its output."""
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    words = [python, __file__, "--side", side, "--only", case]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(case: str, sides: dict[str, tuple[str, str, Path | None]], rounds: int) -> dict:
    """Compile a case on each side in turn; return the last sizes and median seconds."""
    seen = collections.defaultdict[str, list[dict[str, Any]]](list)
    for _ in range(rounds):
        for name, (python, side, path) in sides.items():
            seen[name].append(measure(python, side, case, path))
    rows = {}
    for name, found in seen.items():
        rows[name] = found[-1]
        for program, values in rows[name].items():
            for key in values:
                if key.endswith("_seconds"):
                    values[key] = statistics.median(one[program][key] for one in found)
    return rows


def show(case: str, rows: dict[str, dict[str, Any]]) -> None:
    for name, programs in rows.items():
        for program, found in programs.items():
            cells = [f"{found[size]:,}" for size in SIZES]
            cells += [f"{found[f'{what}_cpu_seconds']:.1f}" for what in ("lower", "compile")]
            print(f"| {case} | {name} {program} | {' | '.join(cells)} |")
            for part in (*PARTS, "random numbers", "lanes"):
                if part in found["parts"] and len(found["parts"]) > 2:
                    cells = [f"{found['parts'][part][size]:,}" for size in SIZES]
                    print(f"| | - {part} | {' | '.join(cells)} | | |")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rejax-python", help="python of the venv that holds rejax")
    parser.add_argument("--before", help="a commit of this repository to compare with")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--side", choices=("hpo", "rejax"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        found = {"hpo": ours, "rejax": rejax}[args.side](CASES[args.only[0]])
        return print(json.dumps(found))
    make_importable()
    about = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jax": metadata.version("jax"),
        "rounds": args.rounds,
    }
    rows: dict[str, dict[str, Any]] = {}
    print("| case | program | StableHLO | HLO | fusions | kernels | lower, CPU s | compile |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        before = unpack(args.before, Path(folder)) if args.before else None
        for case in args.only:
            sides: dict[str, tuple[str, str, Path | None]] = {"hpo": (sys.executable, "hpo", None)}
            if before is not None:
                sides["before"] = (sys.executable, "hpo", before)
            if args.rejax_python and case.startswith("cartpole"):
                sides["rejax"] = (args.rejax_python, "rejax", None)
            rows[case] = compare(case, sides, args.rounds)
            show(case, rows[case])
            if before is None:  # after each case, because the last ones take minutes
                args.out.write_text(json.dumps({**about, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
