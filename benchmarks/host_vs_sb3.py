"""Env steps per second of PPO in host environments: in Python, in C++, and by Stable-Baselines3.

All sides train with equal settings and 8 environments, and run one update in turn, so that other
load affects all of them. Ours is also shown with `--lanes` lanes, which share a call of the policy
and one update. A program on a CPU has at least two lanes; with a single run, one of them is idle.

    python -m venv /tmp/sb3
    /tmp/sb3/bin/pip install stable-baselines3 ale-py opencv-python-headless torch
    pip install 'hpo-lanes[atari,envpool]'
    python benchmarks/host_vs_sb3.py --sb3-python /tmp/sb3/bin/python
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from checkout import make_importable

make_importable()

from hpo.core.envs import registry  # noqa: E402
from hpo.core.host.host_program import HostProgram  # noqa: E402
from hpo.core.hypers import make_hypers  # noqa: E402
from hpo.core.plan import EnvPlan, make_plan  # noqa: E402
from hpo.core.program import EvaluationPlan  # noqa: E402
from hpo.machine.devices import prepare_devices  # noqa: E402

HERE = Path(__file__).resolve().parent
COMMON = {"num_envs": 8, "rollout_length": 128, "num_minibatches": 4, "update_epochs": 4}
MLP = {**COMMON, "hidden_sizes": [64, 64], "normalise_rewards": False}
CNN = {**COMMON, "network": "cnn", "shared_encoder": True, "normalise_rewards": False}
GAME = {"episodic_life": True, "repeat_action_probability": 0.0}


@dataclass(frozen=True)
class Task:
    name: str
    ours: dict[str, dict[str, Any]]  # id -> keys of `env`
    theirs: str
    knobs: dict[str, Any]


TASKS = (
    Task("CartPole", {"gym:CartPole-v1": {}, "envpool:CartPole-v1": {}}, "CartPole-v1", MLP),
    Task(
        "Pong",
        {"gym:ALE/Pong-v5": GAME, "envpool:Pong-v5": {"episodic_life": True, "reward_clip": True}},
        "PongNoFrameskip-v4",
        CNN,
    ),
)


class Ours:
    """A program with all lanes busy; time in `env.step` is measured separately."""

    def __init__(self, id_: str, keys: dict[str, Any], knobs: dict[str, Any], lanes: int):
        where = EnvPlan(id_, tuple(sorted(keys.items())))
        params = registry.make(where).default_params
        hypers, devices = make_hypers(knobs, params, params), prepare_devices("cpu")
        plan = make_plan(knobs, where, features=())
        room = max(2, lanes)
        self.program = HostProgram(plan, room, 1, 1, EvaluationPlan(), devices, hypers)
        self._busy = np.arange(room) < lanes
        rows = self._rows()
        rows.mask[:], rows.total_updates[:] = self._busy, 1000
        rows.replicate[:] = range(room)
        self.lanes, _ = self.program.advance(0, self.program.empty(), rows)
        self.steps = lanes * plan.steps_per_update
        self._inside = 0.0
        self._step = self.program.stage.batch.step
        self.program.stage.batch.step = self._timed_step  # type: ignore[method-assign]

    def _rows(self) -> Any:
        rows = self.program.no_refills()
        rows.busy[:] = self._busy
        return rows

    def _timed_step(self, restart: bool) -> Any:
        started = time.perf_counter()
        outcome = self._step(restart)
        self._inside += time.perf_counter() - started
        return outcome

    def update(self) -> dict[str, float]:
        self._inside, started, used = 0.0, time.perf_counter(), time.process_time()
        self.lanes, _ = self.program.advance(0, self.lanes, self._rows())
        whole, cpu = time.perf_counter() - started, time.process_time() - used
        phases = self.program.phase_seconds()
        learning = float(phases["update_seconds"].sum())
        return {"whole": whole, "cpu": cpu, "stepping": self._inside, "learning": learning}

    def close(self) -> None:
        self.program.stage.batch.close()


class Theirs:
    def __init__(self, python: str, task: Task):
        self.steps = COMMON["num_envs"] * COMMON["rollout_length"]
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(HERE / "sb3_updates.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        threads = len(os.sched_getaffinity(0))
        asked = {**task.knobs, "env": task.theirs, "atari": task.name == "Pong"}
        assert self._ask(json.dumps({**asked, "threads": threads})) == "ready"
        self.update()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def update(self) -> dict[str, float]:
        return json.loads(self._ask("update"))

    def close(self) -> None:
        self._process.communicate()


def measure(task: Task, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    sides: dict[str, Ours | Theirs] = {}
    for id_, keys in task.ours.items():
        for lanes in sorted({1, arguments.lanes}):
            sides[f"{id_}, {lanes} lanes" if lanes > 1 else id_] = Ours(
                id_, keys, task.knobs, lanes
            )
    if arguments.sb3_python:
        sides["Stable-Baselines3"] = Theirs(arguments.sb3_python, task)
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(arguments.rounds):
        for name, side in sides.items():
            seen[name].append(side.update())
    rows = [summary(task, name, side, seen) for name, side in sides.items()]
    for side in sides.values():
        side.close()
    return rows


def summary(
    task: Task, name: str, side: Ours | Theirs, seen: dict[str, list[dict[str, float]]]
) -> dict[str, Any]:
    """Return the medians of one side; its ratio to SB3 is the median over rounds."""
    rates = [side.steps / one["whole"] for one in seen[name]]
    cpu = [1e6 * one["cpu"] / side.steps for one in seen[name]]
    row = {"task": task.name, "side": name, "env_steps_per_second": statistics.median(rates)}
    row["cpu_microseconds_an_env_step"] = statistics.median(cpu)
    for part in ("stepping", "learning"):
        if part in seen[name][0]:
            row[part] = statistics.median(one[part] / one["whole"] for one in seen[name])
    theirs = seen.get("Stable-Baselines3")
    if theirs is not None:
        samples = COMMON["num_envs"] * COMMON["rollout_length"]
        pairs = zip(rates, theirs, strict=True)
        row["times_sb3"] = statistics.median(rate * one["whole"] / samples for rate, one in pairs)
        used = [1e6 * one["cpu"] / samples for one in theirs]
        row["cpu_times_sb3"] = statistics.median(b / a for a, b in zip(cpu, used, strict=True))
    return row


def cells(row: dict[str, Any]) -> list[str]:
    formats = {
        "task": "{}",
        "side": "{}",
        "env_steps_per_second": "{:,.0f}",
        "times_sb3": "{:.2f}",
        "cpu_microseconds_an_env_step": "{:,.0f}",
        "cpu_times_sb3": "{:.2f}",
        "stepping": "{:.0%}",
        "learning": "{:.0%}",
    }
    return [form.format(row[key]) if key in row else "" for key, form in formats.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", nargs="+", default=[task.name for task in TASKS])
    parser.add_argument("--lanes", type=int, default=4, help="beside one lane")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sb3-python", help="an interpreter that has Stable-Baselines3")
    parser.add_argument("--out", type=Path, help="write a JSON file")
    arguments = parser.parse_args()
    chosen = [task for task in TASKS if task.name in arguments.tasks]
    rows = [row for task in chosen for row in measure(task, arguments)]
    heads = (
        "task",
        "side",
        "env steps/s",
        "x SB3",
        "CPU us a step",
        "x SB3",
        "stepping",
        "learning",
    )
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for row in rows:
        print(f"| {' | '.join(cells(row))} |")
    if arguments.out is not None:
        names = ("gymnasium", "ale-py", "envpool", "numpy", "jax")
        about = {
            "machine": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "versions": {name: metadata.version(name) for name in names},
            "load": os.getloadavg()[0],
            "knobs": COMMON,
        }
        arguments.out.write_text(json.dumps({**about, "runs": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
