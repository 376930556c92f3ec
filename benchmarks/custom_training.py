"""Sixteen lanes of rejax's SAC against sixteen sequential runs of it, compared side by side.

Both sides use the same class (`algorithm: rejax:SAC`, Pendulum-v1, 10,000 transitions, after the
buffer has been filled). Sequential runs use `jit` of the updates with the learning rate traced, so
one compile serves all runs. The cost of compiling each run separately, with the learning rate
closed over, is also measured.

    pip install rejax==0.1.3
    python benchmarks/custom_training.py
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from operator import truediv
from pathlib import Path

from checkout import make_importable

SETTINGS = {"buffer_size": 10_000, "batch_size": 64, "fill_buffer": 500}
LANES, UPDATES, RUN = 16, 2, 16_384  # lanes; updates per round; env steps of a whole run
RATES = [10 ** (-4 + 1.5 * at / (LANES - 1)) for at in range(LANES)]


def the_lane():
    from hpo.core.envs.registry import plan_of_env
    from hpo.core.from_rejax import ALGORITHMS
    from hpo.core.training import Lane, StudyEnvironment

    cls = ALGORITHMS["SAC"]
    knobs = cls.declared()
    values = {name: knob.default for name, knob in knobs.items()} | SETTINGS
    traced = {name: float(values[name]) for name, knob in knobs.items() if knob.traced}
    static = {name: values[name] for name, knob in knobs.items() if not knob.traced}
    env = StudyEnvironment(*plan_of_env("Pendulum-v1", {}, ""))
    return Lane(cls.of(static, RUN, env), tuple(traced)), traced


def lanes():
    from hpo.core.training_program import TrainingProgram
    from hpo.machine.devices import prepare_devices

    devices = prepare_devices("cpu")
    from worker import serve

    lane, values = the_lane()
    program = TrainingProgram(lane, LANES, UPDATES, 1, 10, devices)
    started = time.perf_counter()
    program.compile()
    seconds = time.perf_counter() - started
    every = range(LANES)
    fresh = {at: (0, at, {**values, "learning_rate": RATES[at]}) for at in every}
    starts, on = program.starts(every, fresh), program.starts(every, {})
    states = [program.advance(0, program.empty(), starts)[0]]

    def run(count):
        for _ in range(count // UPDATES):
            states[0] = program.advance(0, states[0], on)[0]  # waits for the metrics

    run(UPDATES)
    serve("lanes", LANES * lane.training.steps_per_update, seconds, run)


def in_turn():
    import jax
    from worker import serve

    lane, values = the_lane()

    def train(leaves, values):
        return jax.lax.scan(lambda x, _: lane.update(x, values), leaves, None, UPDATES)

    hypers = [{**values, "learning_rate": rate} for rate in RATES]
    took = []
    for one in hypers[:2]:  # closed over: the start-up cost of each run
        started = time.perf_counter()
        whole = jax.jit(lambda key, one=one: train(lane.init(key, one), one))
        whole.lower(jax.random.key(0)).compile()
        took.append(time.perf_counter() - started)
    step, init = jax.jit(train, donate_argnums=0), jax.jit(lane.init)
    states = [init(jax.random.key(at), one) for at, one in enumerate(hypers)]

    def run(count):
        for at, one in enumerate(hypers):
            for _ in range(count // UPDATES):
                states[at], metrics = step(states[at], one)
            jax.block_until_ready(metrics)

    run(2 * UPDATES)
    serve("in turn", LANES * lane.training.steps_per_update, statistics.mean(took), run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--side", choices=("lanes", "in_turn"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        return {"lanes": lanes, "in_turn": in_turn}[args.side]()
    make_importable()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    sides = {
        name: subprocess.Popen([sys.executable, __file__, "--side", name], **pipes)
        for name in ("lanes", "in_turn")
    }
    hello = {name: json.loads(side.stdout.readline()) for name, side in sides.items()}
    compiles = {name: report["compile_seconds"] for name, report in hello.items()}
    seen = {name: [] for name in sides}
    for name in [*sides] * args.rounds:
        print(UPDATES, file=sides[name].stdin, flush=True)
        seen[name].append(json.loads(sides[name].stdout.readline()))
    for side in sides.values():
        side.communicate()
    found = {
        "rounds": args.rounds,
        "compile_seconds": compiles,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "machine": platform.machine(),
    }
    for kind in ("wall", "cpu"):
        rates = {
            name: [row["env_steps"] / row[f"{kind}_seconds"] for row in rows]
            for name, rows in seen.items()
        }
        found[f"{kind}_ratio"] = statistics.median(map(truediv, *rates.values()))
        found[f"env_steps_per_{kind}_second"] = {n: statistics.median(r) for n, r in rates.items()}
    took = {n: LANES * RUN / rate for n, rate in found["env_steps_per_wall_second"].items()}
    for words, times in (("one_compile", 1), ("a_compile_a_run", LANES)):
        theirs = took["in_turn"] + times * compiles["in_turn"]
        found[f"wall_ratio_with_{words}"] = theirs / (took["lanes"] + compiles["lanes"])
    args.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
