"""Graph network and transformer on RMSA: env steps per second, next to their products' limit.

The setting is directed NSFNET, k = 5, 100 slots, load 250, continuous; 16 environments x 100
steps, one epoch, one minibatch; default network sizes (those of XLRON's flags), and aggregation 20
for the transformer. The limit is the machine's speed at products of a typical shape, divided by
the products of one env step: forward to act, forward and backward to learn. With `--rejax-python`
(see lanes_vs_rejax.py), rejax's CartPole speed from the same run is added, so that XLRON's
published speeds, measured where rejax ran at 355,000, can be scaled to this machine.

    python benchmarks/networks.py [--only gnn transformer] [--rejax-python PYTHON] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import checkout
from rates import rates

checkout.make_importable()

from hpo.core import program  # noqa: E402
from hpo.machine.devices import prepare_devices  # noqa: E402

ROUNDS = 3
ENVS, STEPS = 16, 100
REJAX_THERE = 355_000
CASES: dict[str, dict[str, Any]] = {
    "gnn": {"keys": {}, "xlron": 247, "xlron_compile_seconds": 38},
    "transformer": {"keys": {"aggregate_slots": 20}, "xlron": 519, "xlron_compile_seconds": 33},
}


def plan_and_hypers(network: str, knobs: dict[str, Any]) -> tuple[Any, Any]:
    from hpo.core.envs import registry
    from hpo.core.hypers import make_hypers
    from hpo.core.plan import EnvPlan, make_plan

    keys = {**CASES[network]["keys"], "warmup_requests": 0}
    knobs = {
        "network": network,
        "num_envs": ENVS,
        "rollout_length": STEPS,
        "num_minibatches": 1,
        "update_epochs": 1,
        "normalise_rewards": False,
        **knobs,
    }
    plan = make_plan(knobs, EnvPlan("rmsa", tuple(sorted(keys.items()))), features=())
    params = registry.make(plan.env).default_params
    return plan, make_hypers(knobs, params, params)


def training(network: str, knobs: dict[str, Any], lanes: int) -> dict[str, float]:
    """Return the rates of the whole training program, with one lane per device at a time."""
    import jax
    import numpy as np

    plan, example = plan_and_hypers(network, knobs)
    devices = prepare_devices("cpu")[: max(1, lanes)]
    made = program.Program(plan, lanes, 1, 1, program.EvaluationPlan(), tuple(devices), example)
    refills = made.no_refills()
    refills.mask[:] = True
    refills.replicate[:] = np.arange(lanes)
    refills.total_updates[:] = 1_000_000
    started = time.perf_counter()
    made.compile()
    compile_seconds = time.perf_counter() - started
    state, seen = made.advance(0, made.empty(), refills)
    jax.block_until_ready(seen)
    assert float(np.max(np.asarray(seen.ratio_start_error))) < 1e-4
    none = made.no_refills()

    def run() -> None:
        nonlocal state
        state, seen = made.advance(0, state, none)
        jax.block_until_ready(seen)

    done = rates(run, lanes * ENVS * STEPS, ROUNDS)
    return {**done, "compile_seconds": compile_seconds}


def products_of(jaxpr: Any) -> int:
    """Count the floating-point operations of all matrix products in a program."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        for value in equation.params.values():
            inner_jaxpr = getattr(value, "jaxpr", value)
            if hasattr(inner_jaxpr, "eqns"):
                total += products_of(inner_jaxpr)
    return total


def operations(network: str, knobs: dict[str, Any]) -> float:
    """Return the floating-point operations of one env step's products: acting and one epoch."""
    import jax
    import jax.numpy as jnp

    from hpo.core import policy
    from hpo.core.envs import registry

    plan, example = plan_and_hypers(network, knobs)
    env = registry.make(plan.env)
    rows = 8
    key = jax.random.key(0)
    hypers = jax.tree.map(jnp.asarray, example)
    params = jax.eval_shape(lambda: policy.init_params(plan, hypers, key))
    batch = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct((rows, *s.shape), s.dtype), env.observation_struct
    )

    def loss(params: Any, batch: Any) -> Any:
        outputs = policy.apply(plan, params, batch)
        return outputs.policy.sum() + outputs.value.sum()

    acting = jax.make_jaxpr(loss)(params, batch)
    learning = jax.make_jaxpr(jax.grad(loss))(params, batch)
    return (products_of(acting.jaxpr) + products_of(learning.jaxpr)) / rows


def product_rate() -> float:
    """Return floating-point operations per second of [4400, 128] x [128, 128] on all devices."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    devices = prepare_devices("cpu")
    count, rows, width, repeats = len(devices), 4400, 128, 200
    spread = NamedSharding(Mesh(devices, ("d",)), PartitionSpec("d"))
    x = jax.device_put(jnp.ones((count, rows, width)), spread)
    w = jax.device_put(jnp.full((count, width, width), 1.0 / width), spread)

    def run(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, repeats, lambda _, x: x @ w, x)

    spec = PartitionSpec("d")
    compiled = jax.jit(
        jax.shard_map(
            run, mesh=spread.mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False
        )
    )
    jax.block_until_ready(compiled(x, w))
    best = math.inf
    for _ in range(5):
        started = time.perf_counter()
        jax.block_until_ready(compiled(x, w))
        best = min(best, time.perf_counter() - started)
    return count * repeats * 2 * rows * width * width / best


def show(row: dict[str, Any]) -> None:
    cells = [f"{row['what']:<40}"]
    for name, value in row.items():
        if name != "what":
            cells.append(f"{name} {value:,.2f}" if abs(value) < 100 else f"{name} {value:,.0f}")
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--lanes", nargs="+", type=int, default=None)
    parser.add_argument("--set", nargs="*", default=[], metavar="KNOB=VALUE")
    parser.add_argument("--rejax-python", help="python of a venv with rejax")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    devices = prepare_devices("cpu")
    knobs = {name: json.loads(value) for name, value in (item.split("=", 1) for item in args.set)}
    import jax

    found: dict[str, Any] = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": sys.version,
        "jax": jax.__version__,
        "knobs": knobs,
        "rows": [],
    }
    rate = product_rate()
    factor = 1.0
    if args.rejax_python:
        from lanes_vs_rejax import compare

        rejax = compare(args.rejax_python, 16, 9, None)["rejax"]
        found["rejax"] = rejax
        factor = rejax["env_steps_per_wall_second"] / REJAX_THERE
        show(
            {
                "what": "rejax CartPole, 16 configurations",
                **{name: value for name, value in rejax.items() if isinstance(value, int | float)},
            }
        )
    show({"what": "matrix products, all devices", "gflop_per_second": rate / 1e9})
    for network in args.only:
        case = CASES[network]
        work = operations(network, knobs)
        ceiling = rate / work
        for lanes in args.lanes or (len(devices),):
            row = {"what": f"{network}, {lanes} lanes", **training(network, knobs, lanes)}
            row["ceiling"] = ceiling
            row["share_of_ceiling"] = row["env_steps_per_second"] / ceiling
            row["mflop_per_env_step"] = work / 1e6
            row["times_xlron"] = row["env_steps_per_second"] / (case["xlron"] * factor)
            show(row)
            found["rows"].append(row)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
