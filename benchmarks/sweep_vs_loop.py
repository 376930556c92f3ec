"""A sweep as lanes of one program, against a loop over Stable-Baselines3 under Optuna.

The sweep has the same 64 random configurations on CartPole-v1 (the hyperparameters of
studies/cartpole.yaml that both sides have; 8 environments, 128 steps, 4 minibatches, MLP 2x64
tanh), 500k env steps each, one seed, without early stopping, evaluated once at the end. Our side
is timed as a whole, from the start of the process, with an empty compilation cache. The other side
runs one process per core with one thread each, and trains every configuration for a measured part
of its steps, which is extrapolated to 500k, without the time for imports and warm-up. Then our
side runs again with ASHA. Finally a few configurations are trained for equal env steps on both
sides, with several seeds each, and their final returns are compared.

    python -m venv /tmp/sb3
    /tmp/sb3/bin/pip install stable-baselines3 gymnasium optuna torch
    python benchmarks/sweep_vs_loop.py --sb3-python /tmp/sb3/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from checkout import ROOT, make_importable
from two_sample import compare

KNOBS = (
    *("learning_rate", "gamma", "gae_lambda", "clip_eps"),
    *("ent_coef", "vf_coef", "max_grad_norm", "update_epochs"),
)
FIXED = {
    "num_envs": 8, "rollout_length": 128, "num_minibatches": 4, "hidden_sizes": [64, 64],
    "normalise_rewards": False,
}  # fmt: skip
EPISODES = 20
_UNSAID = ("sb3_python", "out", "our_side")  # paths on this machine, and internal arguments
MEASURED = "the loop is measured on {steps:,} env steps of each configuration and scaled up"

Config = dict[str, Any]


# ---------------------------------------------------------------------- our side


def space() -> Any:
    """Return cartpole.yaml's space without hyperparameters that the other side lacks."""
    from hpo.spaces import Space
    from hpo.studies.load import load

    whole = load(ROOT / "studies" / "cartpole.yaml").space
    return Space(tuple(p for p in whole.parameters if p.name in KNOBS))


def draw_configs(count: int, seed: int) -> list[Config]:
    """Return the default configuration (always trial 0) and random ones."""
    from hpo.search.samplers.registry import SamplerSpec
    from hpo.search.samplers.without_model import RandomSearch

    random = RandomSearch(SamplerSpec(space(), seed, {}))
    first = {p.name: p.default for p in space().parameters}
    return [first, *(dict(random.draw(trial, 0).params) for trial in range(1, count))]


def our_side(task: dict[str, Any]) -> None:
    """Run a study with the given configurations and print its results."""
    from hpo.search.lanes.local import LocalFactory
    from hpo.search.run import run
    from hpo.studies.env_spec import EnvSpec
    from hpo.studies.execution_spec import Budget
    from hpo.studies.search_spec import EarlyTerminate, Evaluation, SearchSpec, Seeds
    from hpo.studies.spec import Study

    asha = EarlyTerminate("asha", task["env_steps"] // 16, 4.0) if task["asha"] else None
    study = Study(
        name="sweep",
        env=EnvSpec("CartPole-v1"),
        env_steps=task["env_steps"],
        space=space(),
        fixed={**FIXED, "hidden_sizes": tuple(FIXED["hidden_sizes"])},
        enqueue=tuple(task["configs"][1:]),
        evaluation=Evaluation(episodes=EPISODES),
        search=SearchSpec("random"),
        early_terminate=asha,
        seeds=Seeds(per_config=task["seeds"]),
        budget=Budget(trials=len(task["configs"])),
    )
    with tempfile.TemporaryDirectory() as folder:
        results = run(study, Path(folder) / "sweep", LocalFactory(study))
    answer = {
        "env_steps": results.usage.env_steps,
        "chunk_seconds": results.usage.chunk_seconds,
        "run_seconds": results.usage.run_seconds,
        "occupancy": results.usage.occupancy,
        "trials": [
            {"config": dict(entry.params), "state": str(entry.state), "returns": entry.values}
            for entry in results.leaderboard
        ],
    }
    print(json.dumps(answer))


def run_ours(configs: Sequence[Config], env_steps: int, asha: bool, seeds: int) -> dict[str, Any]:
    """Run our side in a separate process without a compilation cache; time all of it."""
    task = {"configs": list(configs), "env_steps": env_steps, "asha": asha, "seeds": seeds}
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--our-side", json.dumps(task)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment,
    )
    seconds = time.perf_counter() - started
    return {"seconds": seconds, **json.loads(done.stdout.splitlines()[-1])}


# ---------------------------------------------------------------------- the other side


def run_loop(
    python: str, configs: Sequence[Config], env_steps: int, seeds: int, episodes: int
) -> list[dict[str, Any]]:
    """Run the other side, with one process per core; each row names the process that made it."""
    cores = min(os.cpu_count() or 1, len(configs))
    processes = []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    worker = str(Path(__file__).with_name("sb3_worker.py"))
    for core in range(cores):
        process = subprocess.Popen(
            [python, worker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        task = {"configs": list(configs[core::cores]), "seeds": list(range(seeds))}
        task |= {"fixed": FIXED, "env_steps": env_steps, "episodes": episodes}
        task |= {"env": "CartPole-v1", "points": 1}
        print(json.dumps(task), file=process.stdin, flush=True)
        processes.append(process)
    for process in processes:
        if "ready" not in process.stdout.readline():
            raise SystemExit("a process of the other side ended early; its message is above")
    for process in processes:
        print(file=process.stdin, flush=True)
    rows = []
    for core, process in enumerate(processes):
        output, _ = process.communicate()
        rows += [{"core": core, **json.loads(line)} for line in output.splitlines()]
    if len(rows) != len(configs) * seeds:
        raise SystemExit(f"the other side made {len(rows)} of {len(configs) * seeds} runs")
    return rows


def loop_seconds(rows: Sequence[dict[str, Any]], env_steps: int) -> float:
    """Extrapolate measured parts to whole runs; the slowest process determines the total time."""
    busy: dict[int, float] = defaultdict(float)
    for row in rows:
        busy[row["core"]] += row["seconds"] * env_steps / row["env_steps"]
    return max(busy.values())


# ---------------------------------------------------------------------- both


def check_agreement(args: argparse.Namespace, configs: Sequence[Config]) -> dict[str, Any]:
    """Train some configurations on both sides and compare their final greedy returns."""
    chosen = list(configs[: args.agreement_configs])
    steps, seeds = args.agreement_steps, args.agreement_seeds
    ours = run_ours(chosen, steps, False, seeds)
    theirs = run_loop(args.sb3_python, chosen, steps, seeds, EPISODES)

    def key(config: Config) -> str:
        return json.dumps({name: config[name] for name in sorted(KNOBS)})

    first = {key(trial["config"]): list(trial["returns"]) for trial in ours["trials"]}
    second: dict[str, list[float]] = defaultdict(list)
    for row in theirs:
        second[key(row["config"])].append(row["return"])
    pairs = [(first[key(config)], second[key(config)]) for config in chosen]
    return {"env_steps": steps, "pairs": pairs, **compare(pairs)}


def show_agreement(found: dict[str, Any]) -> None:
    print("| configuration | ours: final returns | loop: final returns |")
    print("|---|---|---|")
    for index, (ours, theirs) in enumerate(found["pairs"]):
        cells = [" ".join(f"{value:.0f}" for value in sorted(side)) for side in (ours, theirs)]
        print(f"| {index} | {cells[0]} | {cells[1]} |")
    print(
        f"\nmean difference {found['mean_difference']:.1f} (p = {found['mean_p']:.3f}), largest "
        f"distance of distributions {found['distance']:.2f} (p = {found['distance_p']:.3f}), by "
        "permutation within configurations: the returns "
        + ("agree" if min(found["mean_p"], found["distance_p"]) >= 0.01 else "do NOT agree")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sb3-python", help="python of the venv that holds stable-baselines3")
    parser.add_argument("--configs", type=int, default=64)
    parser.add_argument("--env-steps", type=int, default=500_000, help="of one configuration")
    parser.add_argument("--measured-steps", type=int, default=8_192, help="of these, in the loop")
    parser.add_argument("--agreement-configs", type=int, default=6, help="0: no comparison")
    parser.add_argument("--agreement-seeds", type=int, default=4)
    parser.add_argument("--agreement-steps", type=int, default=102_400)
    parser.add_argument("--seed", type=int, default=0, help="of the random configurations")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--our-side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    make_importable()
    if args.our_side:
        return our_side(json.loads(args.our_side))
    if not args.sb3_python:
        parser.error("--sb3-python is needed")
    configs = draw_configs(args.configs, args.seed)
    plain = run_ours(configs, args.env_steps, False, 1)
    asha = run_ours(configs, args.env_steps, True, 1)
    rows = run_loop(args.sb3_python, configs, args.measured_steps, 1, 0)
    loop = loop_seconds(rows, args.env_steps)
    print("| | wall seconds | env steps | of the loop's time |")
    print("|---|---|---|---|")
    total = args.configs * args.env_steps
    print(f"| Optuna + Stable-Baselines3 (scaled up) | {loop:,.0f} | {total:,} | |")
    for name, run in (("hpo", plain), ("hpo with ASHA", asha)):
        ratio = loop / run["seconds"]
        print(f"| {name} | {run['seconds']:,.1f} | {run['env_steps']:,} | {ratio:.1f} x less |")
    print("\n" + MEASURED.format(steps=rows[0]["env_steps"]))
    found = check_agreement(args, configs) if args.agreement_configs else None
    if found:
        show_agreement(found)
    document = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in ("jax", "optuna")},
        "arguments": {name: value for name, value in vars(args).items() if name not in _UNSAID},
        "loop_seconds": loop,
        "loop_measured": rows,
        "ratio": loop / plain["seconds"],
        "ratio_asha": loop / asha["seconds"],
        "hpo": plain,
        "hpo_asha": asha,
        "agreement": found,
    }
    args.out.write_text(json.dumps(document, indent=2) + "\n")
    return None


if __name__ == "__main__":
    main()
