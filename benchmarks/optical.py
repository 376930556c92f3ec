"""Optical environments: heuristics, single steps, memory, and PPO next to its matrix products.

All numbers are env steps per second with the settings in each row (directed NSFNET, k = 5, 100
slots, load 250, continuous). `per CPU second` is valid even on a shared machine: times the number
of cores, it is the speed on an idle one. With `--rejax-python` (see lanes_vs_rejax.py), rejax's
CartPole speed from the same run is added.

    python benchmarks/optical.py [--rejax-python PYTHON] [--json FILE] [--only heuristics ...]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rates import rates

from hpo.core import program
from hpo.machine.devices import prepare_devices

ROUNDS = 5
PARTS = ("heuristics", "steps", "memory", "ppo")
RMSA = {"hidden_sizes": (64, 64), "update_epochs": 1}
PPO = {
    "rmsa": ("rmsa", {}, RMSA, 16, 100),
    "rmsa packed": ("rmsa", {"observation": "packed"}, RMSA, 16, 100),
    "deeprmsa": ("deeprmsa", {}, {"hidden_sizes": (128,) * 5, "update_epochs": 10}, 16, 100),
}
"""Name -> environment id, its keys, hyperparameters, number of environments, rollout length."""


def timed(run: Callable[[], None], steps: int) -> dict[str, float]:
    """Return median rates over some rounds, timing the first, compiling call apart."""
    started = time.perf_counter()
    run()
    first = time.perf_counter() - started
    return {**rates(run, steps, ROUNDS), "first_call_seconds": first}


def make(**keys):
    from hpo.core.envs.optical.optical_environment import make_from_keys

    return make_from_keys(warmup_requests=0, **keys)


def heuristics() -> list[dict]:
    from hpo.core.envs.optical.heuristic_evaluation import evaluate_heuristic
    from hpo.core.envs.optical.heuristics import HEURISTICS

    rows, env = [], make()
    for name in sorted(HEURISTICS, key=lambda name: name != "ksp_ff"):
        for seeds, steps in ((16, 8_000), (256, 1_000)) if name == "ksp_ff" else ((16, 2_000),):
            done = timed(
                lambda n=name, s=seeds, t=steps: evaluate_heuristic(env, n, seeds=s, steps=t),
                seeds * steps,
            )
            rows.append({"what": f"{name}, {seeds} environments", **done})
    return rows


def steps() -> list[dict]:
    """Time one step with its mask and observation, stored as in a rollout, on one device."""
    import jax
    import jax.numpy as jnp

    rows, envs, length = [], 16, 200
    for keys in (
        {"observation": "flat"},
        {"observation": "packed"},
        {"observation": "packed", "aggregate_slots": 20},
        {"id": "deeprmsa"},
        {"id": "rwa_lightpath_reuse", "bitrates": (100,), "scale_factor": 0.2},
        {"observation": "graph"},
        {"observation": "link_departure"},
    ):
        env = make(**keys)
        params = env.default_params

        def roll(key, env=env, params=params):
            def one(carry, words):
                state, seen = carry
                mask = jax.vmap(env.action_mask, (0, None))(state, params)
                action = jnp.argmax(mask, 1).astype(jnp.int32)
                keys = jax.random.wrap_key_data(words)
                step = jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)
                return (step.state, step.observation), (seen, mask, step.reward, step.info)

            start = jax.vmap(env.reset, (0, None))(jax.random.split(key, envs), params)
            words = jax.random.bits(key, (length, envs, 2))
            return jax.lax.scan(one, start, words)[1]

        compiled = jax.jit(roll)
        done = timed(lambda f=compiled: jax.block_until_ready(f(jax.random.key(0))), envs * length)
        label = ", ".join(f"{key}={value}" for key, value in keys.items())
        rows.append({"what": f"step: {label}", **done})
    return rows


def memory() -> list[dict]:
    import jax

    rows = []
    for keys in (
        {"observation": "flat"},
        {"observation": "packed"},
        {"id": "deeprmsa"},
        {"id": "rwa_lightpath_reuse", "bitrates": (100,), "scale_factor": 0.2},
        {"topology": "jpn48", "slots": 320, "k": 5},
    ):
        env = make(**keys)
        state, seen = jax.eval_shape(env.reset, jax.random.key(0), env.default_params)
        size = [
            sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
            for tree in (state, seen)
        ]
        label = ", ".join(f"{key}={value}" for key, value in keys.items())
        rows.append({"what": label, "state_bytes": size[0], "observation_bytes": size[1]})
    return rows


def matrix_products(inputs: int, outputs: int, knobs: dict, envs: int, length: int):
    """Time only one update's products: forward to act, forward and backward to learn."""
    import jax
    import jax.numpy as jnp

    sizes = [inputs, *knobs["hidden_sizes"]]
    shapes = [[*itertools.pairwise(sizes), (sizes[-1], last)] for last in (outputs, 1)]
    weights = [[jnp.full(shape, 1e-3) for shape in net] for net in shapes]

    def forward(weights, x):
        ends = []
        for net in weights:
            y = x
            for weight in net:
                y = y @ weight
            ends.append(y.sum())
        return ends[0] + ends[1]

    def update(weights, batch):
        _, acted = jax.lax.scan(lambda c, x: (c, forward(weights, x)), 0, batch)
        rows = batch.reshape(-1, inputs)

        def epoch(_, carry):
            weights, total = carry
            slopes = jax.grad(forward)(weights, rows)
            weights = jax.tree.map(lambda w, g: w - 1e-9 * g, weights, slopes)
            return weights, total

        return jax.lax.fori_loop(0, knobs["update_epochs"], epoch, (weights, acted.sum()))

    options = program.compiler_options(jax.devices())
    compiled, batch = jax.jit(update, compiler_options=options), jnp.ones((length, envs, inputs))
    return timed(lambda: jax.block_until_ready(compiled(weights, batch)), envs * length)


def ppo() -> list[dict]:
    import jax
    import numpy as np

    from hpo.core.envs import registry
    from hpo.core.envs.contract import as_array
    from hpo.core.hypers import make_hypers
    from hpo.core.plan import EnvPlan, make_plan

    rows, devices = [], prepare_devices("cpu")
    for name, (kind, keys, knobs, envs, length) in PPO.items():
        knobs = {**knobs, "num_envs": envs, "rollout_length": length, "num_minibatches": 1}
        knobs["normalise_rewards"] = False
        where = EnvPlan(kind, tuple(sorted({**keys, "warmup_requests": 0}.items())))
        env = registry.make(where)
        plan = make_plan(knobs, where, features=())
        example = make_hypers(knobs, env.default_params, env.default_params)
        for lanes in (1, 2 * len(devices)):
            used = devices[: min(lanes, len(devices))]
            made = program.Program(
                plan, lanes, 4, 1, program.EvaluationPlan(), tuple(used), example
            )
            refills = made.no_refills()
            refills.mask[:] = True
            refills.replicate[:] = np.arange(lanes)
            refills.total_updates[:] = 1_000_000
            state, none = made.empty(), made.no_refills()
            started = time.perf_counter()
            state, seen = made.advance(0, state, refills)
            jax.block_until_ready(seen)
            compiled_in = time.perf_counter() - started

            def run(made=made, none=none):
                nonlocal state
                state, seen = made.advance(0, state, none)
                jax.block_until_ready(seen)

            done = timed(run, lanes * envs * length * 4)
            done["first_call_seconds"] = compiled_in
            size = made.memory_bytes() / 2**20
            what = f"PPO {name}, {lanes} lane{'s' * (lanes > 1)}"
            rows.append({"what": what, "lanes": lanes, **done, "estimated_mib": size})
        size = jax.eval_shape(as_array, env.observation_struct).size
        products = matrix_products(size, env.action_space.n, knobs, envs, length)
        rows.append({"what": f"PPO {name}: matrix products alone", **products})
        share = done["env_steps_per_cpu_second"] / products["env_steps_per_cpu_second"]
        rows.append({"what": f"PPO {name}: share of that ceiling", "share": share})
    return rows


def show(rows: list[dict]) -> None:
    for row in rows:
        cells = [f"{row['what']:<58}"]
        for key, value in row.items():
            if key != "what":
                cells.append(f"{key} {value:,.2f}" if value < 100 else f"{key} {value:,.0f}")
        print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rejax-python", help="python of a venv with rejax")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    prepare_devices("cpu")
    found: dict = {"machine": platform.machine(), "cores": os.cpu_count(), "python": sys.version}
    import jax

    found["jax"] = jax.__version__
    for part in args.only:
        found[part] = {"heuristics": heuristics, "steps": steps, "memory": memory, "ppo": ppo}[
            part
        ]()
        show(found[part])
    if args.rejax_python:
        from lanes_vs_rejax import compare

        found["rejax"] = compare(args.rejax_python, 16, 9, None)
        rates = found["rejax"]["rejax"]
        show(
            [
                {
                    "what": "rejax CartPole, 16 configurations (same run)",
                    "env_steps_per_second": rates["env_steps_per_wall_second"],
                    "env_steps_per_cpu_second": rates["env_steps_per_cpu_second"],
                }
            ]
        )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
