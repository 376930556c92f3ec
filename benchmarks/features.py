"""The cost of PPO's features: none if a study uses none, and little if one is compiled in.

First it compares this checkout with an earlier commit, without any feature: on CartPole-v1 (MLP
2x64, 8 environments, 128 steps, 4 epochs, 4 minibatches), and on rmsa on NSFNET, whose actions
have masks. Then, in this checkout, it compares each feature compiled in, off in all lanes and on
in all lanes, with the plain program. Both sides of a comparison run at the same time and take
turns.

    python benchmarks/features.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

from checkout import ROOT, make_importable

BEFORE = "c09d3cb"
LANES = 16
KNOBS = {"num_envs": 8, "rollout_length": 128, "update_epochs": 4, "num_minibatches": 4,
         "ent_coef": 0.01, "normalise_rewards": False}  # fmt: skip
NSFNET = {"id": "rmsa", "topology": "nsfnet_deeprmsa", "k": 5, "slots": 100}
CASES: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"env": {"id": "CartPole-v1"}, "updates": 10},
    "rmsa NSFNET": {"env": NSFNET, "updates": 2},
}
ON: dict[str, dict[str, Any]] = {
    "normalise_observations": {"normalise_observations": True},
    "normalise_rewards": {"normalise_rewards": True},
    "reward_centering": {"reward_centering": True},
    "priority": {"priority_alpha": 0.6},
    "v_trace": {"rho_clip": 1.0, "c_clip": 1.0},
    "schedule_on_gradient_steps": {"schedule_on_gradient_steps": True},
    "off_policy_masking": {"off_policy_masking": True},
    "valid_mass_loss": {"valid_mass_coef": 0.01},
}
MASKED = ("off_policy_masking", "valid_mass_loss")


def work(task: dict[str, Any]) -> None:
    """Run one side: a program for the task, in whichever checkout is importable."""
    from hpo.core import program
    from hpo.core.envs import registry

    try:
        from hpo.machine.devices import prepare_devices
        from hpo.search.lanes.lane_count import tile_of
    except ImportError:  # an earlier commit
        from hpo.core.program import prepare_devices  # pyright: ignore
        from hpo.search.lanes import tile_of  # pyright: ignore
    try:
        from hpo.core.hypers import make_hypers
        from hpo.core.memory import parameter_count
        from hpo.core.plan import EnvPlan, make_plan
    except ImportError:  # an earlier commit, whose state.py had all of them
        from hpo.core.program import parameter_count  # pyright: ignore
        from hpo.core.state import EnvPlan, make_hypers, make_plan  # pyright: ignore

    devices = prepare_devices("cpu")
    import jax
    import numpy as np
    from worker import serve

    knobs = {**KNOBS, **task["knobs"]}
    keys = {name: value for name, value in task["env"].items() if name != "id"}
    where = EnvPlan(task["env"]["id"], tuple(sorted(keys.items())))
    plan = make_plan(knobs, where, features=tuple(task["features"]))
    params = registry.make(where).default_params
    example = make_hypers(knobs, params, params)
    tile = tile_of("cpu", parameter_count(plan, example))
    made = program.Program(
        plan, LANES, task["updates"], tile, program.EvaluationPlan(), devices, example
    )
    rows = made.no_refills()
    rows.mask[:] = True
    rows.replicate[:] = np.arange(LANES)
    rows.total_updates[:] = 1_000_000
    started = time.perf_counter()
    state, metrics = made.advance(0, made.empty(), rows)
    jax.block_until_ready(metrics)
    seconds = time.perf_counter() - started
    none = made.no_refills()

    def run(count: int) -> None:
        nonlocal state
        for _ in range(count // task["updates"]):
            state, shown = made.advance(0, state, none)
        jax.block_until_ready(shown)

    serve("hpo", LANES * plan.steps_per_update, seconds, run)


class Side:
    """A process that works on a task, with the package of one checkout."""

    def __init__(
        self,
        case: str,
        path: Path | None,
        features: tuple[str, ...] = (),
        knobs: dict[str, Any] | None = None,
    ):
        task = {**CASES[case], "features": features, "knobs": knobs or {}}
        environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
        if path is not None:
            environment["PYTHONPATH"] = str(path)
        self.updates = task["updates"]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work", json.dumps(task)],
            text=True,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.compile_seconds = self._read()["compile_seconds"]

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit("a side ended early; its message is above")

    def ask(self) -> dict[str, Any]:
        """Request some updates and return the reply."""
        assert self.process.stdin is not None
        print(self.updates, file=self.process.stdin, flush=True)
        return self._read()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(one: Side, other: Side, rounds: int) -> dict[str, Any]:
    """Return the speeds of both, and the median ratio of first to second, per CPU-second."""
    answers = [(one.ask(), other.ask()) for _ in range(rounds + 1)][1:]
    for side in (one, other):
        side.close()

    def speeds(which: int, kind: str) -> list[float]:
        return [pair[which]["env_steps"] / pair[which][f"{kind}_seconds"] for pair in answers]

    row: dict[str, Any] = {
        "env_steps_per_second": statistics.median(speeds(0, "wall")),
        "reference_env_steps_per_second": statistics.median(speeds(1, "wall")),
        "compile_seconds": one.compile_seconds,
        "reference_compile_seconds": other.compile_seconds,
    }
    for kind in ("wall", "cpu"):
        ratios = [a / b for a, b in zip(speeds(0, kind), speeds(1, kind), strict=True)]
        row[f"{kind}_ratio"] = statistics.median(ratios)
    return row


def unpack(commit: str, folder: Path) -> Path:
    """Write a commit's files for `import hpo` and return the folder to import from."""
    done = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder / "hpo", filter="data")
    return folder


def show(what: str, row: dict[str, Any]) -> None:
    print(
        f"| {what} | {row['env_steps_per_second']:,.0f} "
        f"| {row['reference_env_steps_per_second']:,.0f} | {row['wall_ratio']:.3f} "
        f"| {row['cpu_ratio']:.3f} | {row['compile_seconds']:.1f} s "
        f"| {row['reference_compile_seconds']:.1f} s |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--before", default=BEFORE, help="the commit to compare with")
    parser.add_argument(
        "--each-before", action="store_true", help="also compare each feature with that commit"
    )
    parser.add_argument("--only-before", action="store_true", help="leave the features out")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    make_importable()
    if args.work:
        work(json.loads(args.work))
        return
    rows = []
    print("| what | steps/s | reference | wall | CPU | compile | reference |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        before = unpack(args.before, Path(folder))
        for case in CASES:
            row = compare(Side(case, None), Side(case, before), args.rounds)
            rows.append({"case": case, "what": f"plain over {args.before}", **row})
            show(f"{case}: plain over {args.before}", row)
        for feature, knobs in ON.items() if args.each_before else ():
            case = "rmsa NSFNET" if feature in MASKED else "CartPole-v1"
            sides = [Side(case, place, (feature,), knobs) for place in (None, before)]
            row = compare(*sides, args.rounds)
            rows.append({"case": case, "what": f"{feature} over {args.before}", **row})
            show(f"{feature}: over {args.before}", row)
    for feature, knobs in ON.items():
        if args.only_before:
            break
        case = "rmsa NSFNET" if feature in MASKED else "CartPole-v1"
        for word, given in (("off", {}), ("on", knobs)):
            sides = Side(case, None, (feature,), given), Side(case, None)
            row = compare(*sides, args.rounds)
            rows.append({"case": case, "what": f"{feature} {word} over plain", **row})
            show(f"{case}: {feature} {word} over plain", row)
    document = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "jax": metadata.version("jax"),
        "rounds": args.rounds,
        "before": args.before,
        "rows": rows,
    }
    args.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
