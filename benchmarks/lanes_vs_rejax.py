"""Our lanes against rejax's PPO vmapped over its hyperparameters, side by side.

CartPole-v1, MLP 2x64 tanh, 8 environments, 128 steps, 4 epochs, 4 minibatches, evaluation off on
both sides, L = 1, 16, 64 configurations. rejax runs in a separate venv, because it needs an older
gymnax (or a wrapped one, see `cartpole`):

    python -m venv /tmp/rejax && /tmp/rejax/bin/pip install rejax==0.1.3 gymnax==0.0.9
    python benchmarks/lanes_vs_rejax.py --rejax-python /tmp/rejax/bin/python

A third side runs nothing but the matrix products of our update: the networks' forward products to
act, forward and backward products to learn, with the same batches, tiles and devices. Its speed is
the limit of the hardware and XLA's products for this task.

With `--before`, an earlier commit of this repository takes rejax's place, and no file is written:

    python benchmarks/lanes_vs_rejax.py --before 7a913bf
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkout import make_importable
from features import unpack

ENVS, STEPS, EPOCHS, MINIBATCHES = 8, 128, 4, 4
NETWORKS = ((4, 64, 64, 2), (4, 64, 64, 1))  # widths of the layers of actor and critic


def tiling(devices: int, lanes: int, tile: int) -> tuple[int, int]:
    """Return the number of devices and the largest tile up to `tile` that divides the lanes."""
    if lanes < devices:
        return lanes, 1
    return devices, max(t for t in range(1, tile + 1) if lanes % (t * devices) == 0)


def compile_and_serve(name: str, lanes: int, updates: int, step: Callable[[], Any]) -> None:
    """Time the first call of `step`, which compiles, then serve; each call makes `updates`."""
    import jax
    from worker import serve

    started = time.perf_counter()
    jax.block_until_ready(step())
    seconds = time.perf_counter() - started

    def run(count: int) -> None:
        for _ in range(count // updates):
            jax.block_until_ready(step())

    serve(name, lanes * ENVS * STEPS, seconds, run)


def ours(lanes: int, tile: int | None, updates: int) -> None:
    from hpo.core import memory, program
    from hpo.core.envs import registry
    from hpo.core.hypers import make_hypers
    from hpo.core.plan import EnvPlan, make_plan
    from hpo.machine.devices import prepare_devices
    from hpo.search.lanes.lane_count import tile_of

    prepare_devices("cpu")
    import jax
    import numpy as np

    knobs = {"num_envs": ENVS, "rollout_length": STEPS, "update_epochs": EPOCHS}
    knobs |= {"num_minibatches": MINIBATCHES, "ent_coef": 0.01, "normalise_rewards": False}
    where = EnvPlan("CartPole-v1")
    plan = make_plan(knobs, where, features=())
    env = registry.make(where)
    example = make_hypers(knobs, env.default_params, env.default_params)
    devices = jax.devices()
    tile = tile or tile_of("cpu", memory.parameter_count(plan, example))
    count, tile = tiling(len(devices), lanes, tile)
    devices = devices[:count]
    made = program.Program(
        plan, lanes, updates, tile, program.EvaluationPlan(), tuple(devices), example
    )
    rows = made.no_refills()
    rows.mask[:] = True
    rows.replicate[:] = np.arange(lanes)
    rows.total_updates[:] = 1_000_000
    rows.hypers.learning_rate[:] = np.geomspace(1e-4, 1e-3, lanes)
    state, refills = made.empty(), rows

    def step():
        nonlocal state, refills
        state, metrics = made.advance(0, state, refills)
        refills = none
        return metrics

    none = made.no_refills()
    compile_and_serve("hpo", lanes, updates, step)


def products(lanes: int, tile: int | None, updates: int) -> None:
    """Run the matrix products of our updates, and nothing else."""
    from hpo.machine.devices import prepare_devices
    from hpo.search.lanes.lane_count import tile_of

    prepare_devices("cpu")
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, PartitionSpec

    weights = sum(a * b for widths in NETWORKS for a, b in itertools.pairwise(widths))
    count, tile = tiling(len(jax.devices()), lanes, tile or tile_of("cpu", weights))
    mesh = Mesh(jax.devices()[:count], ("device",))

    def forward(params, rows):
        """Return the inputs of each layer of each network, the output last."""
        layers = []
        for network in params:
            inputs = [rows]
            for weight in network:
                inputs.append(inputs[-1] @ weight)
            layers.append(inputs)
        return layers

    def act(carry, _):
        params, rows = carry
        outputs = [inputs[-1].sum() for inputs in forward(params, rows)]
        return (params, rows + 1e-30 * sum(outputs)), None

    def learn(carry, _):
        params, rows = carry
        learnt = []
        for network, inputs in zip(params, forward(params, rows), strict=True):
            gradient, changed = inputs[-1], []
            for k in reversed(range(len(network))):
                changed.append(network[k] - 1e-30 * (inputs[k].T @ gradient))
                if k > 0:  # no gradient of observations
                    gradient = gradient @ network[k].T
            learnt.append(changed[::-1])
        return (learnt, rows), None

    def update(params, observed):
        (params, seen), _ = jax.lax.scan(act, (params, observed[:ENVS]), length=STEPS)
        batch = observed + seen.sum() * 1e-30
        return jax.lax.scan(learn, (params, batch), length=EPOCHS * MINIBATCHES)[0]

    def device(params, observed):
        body = lambda _, state: jax.lax.map(lambda one: jax.vmap(update)(*one), state)  # noqa: E731
        return jax.lax.fori_loop(0, updates, body, (params, observed))

    shape = (lanes // tile, tile)
    key = jax.random.key(0)
    params = [
        [0.1 * jax.random.normal(key, (*shape, a, b)) for a, b in itertools.pairwise(widths)]
        for widths in NETWORKS
    ]
    observed = jnp.ones((*shape, ENVS * STEPS // MINIBATCHES, NETWORKS[0][0]))
    spec = PartitionSpec("device")
    run_all = jax.jit(jax.shard_map(device, mesh=mesh, in_specs=spec, out_specs=spec))
    compile_and_serve("products", lanes, updates, lambda: run_all(params, observed))


def rejax(lanes: int, updates: int) -> None:
    import jax
    import jax.numpy as jnp
    from rejax import PPO

    algorithm = PPO.create(
        **cartpole(),
        num_envs=ENVS,
        num_steps=STEPS,
        num_epochs=EPOCHS,
        num_minibatches=MINIBATCHES,
        max_grad_norm=0.5,
        ent_coef=0.01,
        skip_initial_evaluation=True,
        agent_kwargs={"activation": "tanh"},
    )
    ones = jnp.ones(lanes)
    algorithms = jax.vmap(
        lambda lr, one: algorithm.replace(
            learning_rate=lr,
            gamma=0.99 * one,
            gae_lambda=0.95 * one,
            clip_eps=0.2 * one,
            vf_coef=0.5 * one,
            ent_coef=0.01 * one,
            max_grad_norm=0.5 * one,
        )
    )(jnp.geomspace(1e-4, 1e-3, lanes), ones)
    keys = jax.random.split(jax.random.PRNGKey(0), lanes)

    def train(one, key):
        # rejax's optimiser closes over the hyperparameters: start and steps share one trace.
        body = lambda _, ts: one.train_iteration(ts)  # noqa: E731
        return jax.lax.fori_loop(0, updates, body, one.init_state(key))

    step = jax.jit(jax.vmap(train))
    compile_and_serve("rejax", lanes, updates, lambda: step(algorithms, keys))


def cartpole() -> dict:
    """Return CartPole for rejax, also with gymnax 1.0, whose steps return six values, not five."""
    from importlib.metadata import version

    import gymnax
    import jax.numpy as jnp

    env, params = gymnax.make("CartPole-v1")
    if version("gymnax").startswith("0."):
        return {"env": env, "env_params": params}

    class Steps:
        def __getattr__(self, name: str):
            return getattr(env, name)

        def __deepcopy__(self, memo: dict) -> Steps:
            return self

        def step(self, key, state, action, params=None):
            observation, state, reward, *done, info = env.step(key, state, action, params)
            return observation, state, reward, jnp.any(jnp.stack(done), 0), info

    return {"env": Steps(), "env_params": params}


class Side:
    """A worker process."""

    def __init__(self, python: str, *args: str, path: Path | None = None):
        environment = os.environ if path is None else {**os.environ, "PYTHONPATH": str(path)}
        self.process = subprocess.Popen(
            [python, __file__, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.hello = self._read()

    def _read(self) -> dict:
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit("a worker ended early")

    def ask(self, updates: int) -> dict:
        self.process.stdin.write(f"{updates}\n")
        self.process.stdin.flush()
        return self._read()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compare(
    rejax_python: str, lanes: int, rounds: int, tile: int | None, before: Path | None = None
) -> dict:
    updates = {1: 200, 16: 20, 64: 10}.get(lanes, 20)
    common = ["--lanes", str(lanes), "--updates", str(updates)]
    own = ["--tile", str(tile)] if tile else []
    sides = {"hpo": Side(sys.executable, "--side", "hpo", *common, *own)}
    if before is None:
        sides["rejax"] = Side(rejax_python, "--side", "rejax", *common)
        sides["products"] = Side(sys.executable, "--side", "products", *common, *own)
    else:
        sides["before"] = Side(sys.executable, "--side", "hpo", *common, *own, path=before)
    seen: dict[str, list[dict]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            seen[name].append(side.ask(updates))
    for side in sides.values():
        side.close()
    row: dict = {"lanes": lanes, "rounds": rounds}
    for name, answers in seen.items():
        row[name] = {
            "compile_seconds": sides[name].hello["compile_seconds"],
            "env_steps_per_wall_second": statistics.median(
                a["env_steps"] / a["wall_seconds"] for a in answers
            ),
            "env_steps_per_cpu_second": statistics.median(
                a["env_steps"] / a["cpu_seconds"] for a in answers
            ),
        }
    other = "rejax" if before is None else "before"
    for kind in ("wall", "cpu"):
        row[f"{kind}_ratio"] = ratio(seen["hpo"], seen[other], f"{kind}_seconds")
    if before is None:
        row["share_of_limit"] = ratio(seen["hpo"], seen["products"], "wall_seconds")
    return row


def ratio(ours: list[dict], theirs: list[dict], seconds: str) -> float:
    """Return the median over rounds of our speed divided by theirs."""
    return statistics.median(
        (a["env_steps"] / a[seconds]) / (b["env_steps"] / b[seconds])
        for a, b in zip(ours, theirs, strict=True)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rejax-python", help="python of the venv that holds rejax")
    parser.add_argument("--before", help="a commit of this repository to compare with")
    parser.add_argument("--lanes", type=int, help="only this L")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--tile", type=int)
    parser.add_argument("--side", choices=("hpo", "rejax", "products"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side == "hpo":
        return ours(args.lanes, args.tile, args.updates)
    if args.side == "rejax":
        return rejax(args.lanes, args.updates)
    if args.side == "products":
        return products(args.lanes, args.tile, args.updates)
    if not args.rejax_python and not args.before:
        parser.error("--rejax-python or --before is needed")
    make_importable()
    with tempfile.TemporaryDirectory() as folder:
        before = unpack(args.before, Path(folder)) if args.before else None
        rows = _rows(args, before)
    if not args.lanes and before is None:
        document = {"machine": platform.machine(), "python": platform.python_version()}
        out = Path(__file__).with_suffix(".json")
        out.write_text(json.dumps({**document, "rows": rows}, indent=2) + "\n")


def _rows(args: argparse.Namespace, before: Path | None) -> list[dict]:
    rows = []
    name = "rejax" if before is None else args.before
    print(f"| lanes | hpo steps/s | {name} steps/s | wall | CPU | compile hpo | {name} | limit |")
    print("|---|---|---|---|---|---|---|---|")
    for lanes in [args.lanes] if args.lanes else [1, 16, 64]:
        row = compare(args.rejax_python, lanes, args.rounds, args.tile, before)
        rows.append(row)
        hpo, other = row["hpo"], row["rejax" if before is None else "before"]
        limit = "-"
        if "share_of_limit" in row:
            limit = f"{row['share_of_limit']:.0%}"
        print(
            f"| {lanes} | {hpo['env_steps_per_wall_second']:,.0f} "
            f"| {other['env_steps_per_wall_second']:,.0f} | {row['wall_ratio']:.2f}x "
            f"| {row['cpu_ratio']:.2f}x | {hpo['compile_seconds']:.1f} s "
            f"| {other['compile_seconds']:.1f} s | {limit} |",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
