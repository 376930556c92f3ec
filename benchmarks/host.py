"""The cost of host environments: share of time in env.step, and when worker processes pay off.

Every program trains the same configurations, first with environments in its process, and then with
workers. They take turns, so that other load affects all of them, and medians are shown.

    pip install 'hpo-lanes[gym]'
    python benchmarks/host.py --out benchmarks/host.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from checkout import make_importable

make_importable()

from hpo.core.envs import registry  # noqa: E402
from hpo.core.host.host_program import HostProgram  # noqa: E402
from hpo.core.hypers import make_hypers  # noqa: E402
from hpo.core.plan import EnvPlan, make_plan  # noqa: E402
from hpo.core.program import EvaluationPlan  # noqa: E402
from hpo.machine.devices import prepare_devices  # noqa: E402
from hpo.machine.workers import Workers  # noqa: E402

ENVIRONMENTS = ("gym:CartPole-v1", "gym:LunarLander-v3", "gym:HalfCheetah-v5")
KNOBS = {"num_envs": 8, "rollout_length": 128, "num_minibatches": 4, "hidden_sizes": [64, 64],
         "normalise_rewards": False}  # fmt: skip


class Runner:
    """A program with all lanes busy."""

    def __init__(self, id_: str, lanes: int, workers: int):
        where = EnvPlan(id_)
        params = registry.make(where).default_params
        hypers, devices = make_hypers(KNOBS, params, params), prepare_devices("cpu")
        plan = make_plan(KNOBS, where, features=())
        self.workers = Workers(workers) if workers else None
        self.program = HostProgram(
            plan, lanes, 1, 1, EvaluationPlan(), devices, hypers, workers=self.workers
        )
        rows = self.program.no_refills()
        rows.mask[:], rows.total_updates[:] = True, 1000
        rows.replicate[:] = range(lanes)
        self.lanes, _ = self.program.advance(0, self.program.empty(), rows)
        self.steps = lanes * plan.steps_per_update
        self._inside = 0.0  # seconds in env.step
        self._step = self.program.stage.batch.step
        self.program.stage.batch.step = self._timed_step  # type: ignore[method-assign]

    def _timed_step(self, restart: bool) -> Any:
        started = time.perf_counter()
        outcome = self._step(restart)
        self._inside += time.perf_counter() - started
        return outcome

    def update(self) -> tuple[float, float]:
        """Run one update of all lanes; return its seconds, and those spent in env.step."""
        rows = self.program.no_refills()
        before, started = self._inside, time.perf_counter()
        self.lanes, _ = self.program.advance(0, self.lanes, rows)
        return time.perf_counter() - started, self._inside - before

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()


def measure(id_: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    runners = {count: Runner(id_, arguments.lanes, count) for count in arguments.workers}
    seen: dict[int, list[tuple[float, float]]] = {count: [] for count in runners}
    for _ in range(arguments.rounds):
        for count, runner in runners.items():
            seen[count].append(runner.update())
    rows = []
    for count, runner in runners.items():
        whole, inside = (statistics.median(column) for column in zip(*seen[count], strict=True))
        rows.append(
            {
                "env": id_,
                "workers": count,
                "env_steps_per_second": runner.steps / whole,
                "share_in_env_step": inside / whole,
                "seconds_an_update": whole,
                "microseconds_an_env_step": 1e6 * inside / runner.steps,
            }
        )
        runner.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--envs", nargs="+", default=ENVIRONMENTS)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write a JSON file")
    arguments = parser.parse_args()
    rows = [row for id_ in arguments.envs for row in measure(id_, arguments)]
    print("| environment | workers | env steps/s | in env.step | us an env step |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['env']} | {row['workers']} | {row['env_steps_per_second']:,.0f} "
            f"| {row['share_in_env_step']:.0%} | {row['microseconds_an_env_step']:.1f} |"
        )
    if arguments.out is not None:
        about = {
            "machine": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "versions": {name: metadata.version(name) for name in ("gymnasium", "numpy", "jax")},
            "lanes": arguments.lanes,
            "knobs": KNOBS,
        }
        arguments.out.write_text(json.dumps({**about, "runs": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
