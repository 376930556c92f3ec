"""PPO in host environments, in Python and in C++, next to Stable-Baselines3's: speed and returns.

Speed: all sides train with equal settings and 8 environments, and do one update in turn, so that
other load affects all of them. Ours is also measured with several lanes, which share a call of the
policy and one update. A program on a CPU has at least two lanes; with one lane, the other rests.
After its timed updates each side does one under cProfile, which shows its limits.

Returns (`--returns`): both sides train the same hyperparameters with many seeds, and their returns
in evaluations are compared by a permutation test.

    python -m venv /tmp/sb3
    /tmp/sb3/bin/pip install stable-baselines3 'gymnasium[box2d,mujoco]' optuna torch
    /tmp/sb3/bin/pip install ale-py opencv-python-headless
    pip install 'hpo-lanes[atari,envpool,gym-all]'
    python benchmarks/host_vs_sb3.py --sb3-python /tmp/sb3/bin/python
    python benchmarks/host_vs_sb3.py --sb3-python /tmp/sb3/bin/python --returns

`--only` chooses environments; rows of the others stay in the file. Returns that are in the file
already are not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
from checkout import make_importable
from rates import profiled
from two_sample import compare

make_importable()

from hpo.core.envs import registry  # noqa: E402
from hpo.core.host.host_program import HostProgram  # noqa: E402
from hpo.core.hypers import make_hypers  # noqa: E402
from hpo.core.plan import EnvPlan, make_plan  # noqa: E402
from hpo.core.program import EvaluationPlan  # noqa: E402
from hpo.machine.devices import prepare_devices  # noqa: E402
from hpo.machine.software import enable_compilation_cache  # noqa: E402

HERE = Path(__file__).resolve().parent
SB3 = "Stable-Baselines3"
COMMON = {"num_envs": 8, "rollout_length": 128, "num_minibatches": 4, "update_epochs": 4}
MLP = {**COMMON, "hidden_sizes": [64, 64], "normalise_rewards": False}
CNN = {**COMMON, "network": "cnn", "shared_encoder": True, "normalise_rewards": False}
GAME = {"episodic_life": True, "repeat_action_probability": 0.0}
SEARCHED = {
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_eps": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 1.0,
    "max_grad_norm": 0.5,
    "update_epochs": 4,
}
"""The hyperparameters of `--returns`, by our names; `sb3_worker.py` turns them into theirs."""
EPISODES, POINTS = 20, 4


@dataclass(frozen=True)
class Task:
    name: str
    ours: dict[str, dict[str, Any]]  # id -> keys of `env`
    theirs: str
    knobs: dict[str, Any]
    lanes: tuple[int, ...] = (1, 4)
    rounds: int = 41
    threads: int = 1  # of PyTorch; two slow down small layers on two cores
    env_steps: int = 0  # of `--returns`, `POINTS` times whole updates; 0: not compared


TASKS = (
    Task(
        "CartPole",
        {"gym:CartPole-v1": {}, "envpool:CartPole-v1": {}},
        "CartPole-v1",
        MLP,
        env_steps=32_768,
    ),
    Task(
        "LunarLander",
        {"gym:LunarLander-v3": {}, "envpool:LunarLander-v3": {}},
        "LunarLander-v3",
        MLP,
        env_steps=65_536,
    ),
    Task(
        "HalfCheetah",
        {"gym:HalfCheetah-v5": {}, "envpool:HalfCheetah-v5": {}},
        "HalfCheetah-v5",
        MLP,
    ),
    Task(
        "Pong",
        {"gym:ALE/Pong-v5": GAME, "envpool:Pong-v5": {"episodic_life": True, "reward_clip": True}},
        "PongNoFrameskip-v4",
        CNN,
        lanes=(1, 2),
        rounds=5,
        threads=2,
    ),
)


# ---------------------------------------------------------------------- speed


class Ours:
    """A program with all lanes busy; the seconds inside `env.step` are measured separately."""

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

    def profile(self) -> list[list[Any]]:
        return profiled(self.update)

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
            env=_outside(),
        )
        asked = {**task.knobs, "env": task.theirs, "threads": task.threads}
        answer = self._ask(json.dumps({**asked, "atari": task.name == "Pong"}))
        if not answer:
            raise SystemExit(f"{SB3} has no {task.theirs}: `{python} sb3_updates.py` ended early")
        self.versions: dict[str, str] = json.loads(answer)
        self.update()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def update(self) -> dict[str, float]:
        return json.loads(self._ask("update"))

    def profile(self) -> list[list[Any]]:
        return json.loads(self._ask("profile"))

    def close(self) -> None:
        self._process.communicate()


def _outside() -> dict[str, str]:
    """Return the variables of a process of the other side."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def measure(task: Task, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    sides: dict[str, Ours | Theirs] = {}
    for id_, keys in task.ours.items():
        for lanes in task.lanes:
            name = f"{id_}, {lanes} lanes" if lanes > 1 else id_
            sides[name] = Ours(id_, keys, task.knobs, lanes)
    if arguments.sb3_python:
        sides[SB3] = Theirs(arguments.sb3_python, task)
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(arguments.rounds or task.rounds):
        for name, side in sides.items():
            seen[name].append(side.update())
    rows = [summary(task, name, side, seen) for name, side in sides.items()]
    for side in sides.values():
        side.close()
    return rows


def summary(
    task: Task, name: str, side: Ours | Theirs, seen: dict[str, list[dict[str, float]]]
) -> dict[str, Any]:
    """Return the medians of one side; its ratio to SB3 is the median of those of all rounds."""
    rates = [side.steps / one["whole"] for one in seen[name]]
    cpu = [1e6 * one["cpu"] / side.steps for one in seen[name]]
    row = {"task": task.name, "side": name, "env_steps_per_second": statistics.median(rates)}
    row["cpu_microseconds_an_env_step"] = statistics.median(cpu)
    for part in ("stepping", "learning"):
        if part in seen[name][0]:
            row[part] = statistics.median(one[part] / one["whole"] for one in seen[name])
    theirs = seen.get(SB3)
    if theirs is not None:
        samples = COMMON["num_envs"] * COMMON["rollout_length"]
        pairs = zip(rates, theirs, strict=True)
        row["times_sb3"] = statistics.median(rate * one["whole"] / samples for rate, one in pairs)
        used = [1e6 * one["cpu"] / samples for one in theirs]
        row["cpu_times_sb3"] = statistics.median(b / a for a, b in zip(cpu, used, strict=True))
    if isinstance(side, Theirs):
        row |= {"threads": task.threads, "versions": side.versions}
    row |= {"rounds": len(rates), "load": os.getloadavg()[0], "profile": side.profile()}
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


def show_speed(rows: Sequence[dict[str, Any]]) -> None:
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
    for row in rows:
        shares = ", ".join(f"{share:.0%} {name}" for name, share in row["profile"])
        print(f"{row['task']}, {row['side']}: {shares}")


# ---------------------------------------------------------------------- returns


@dataclass
class Returns:
    """Evaluations of runs: a row per task, side and seed, written whenever one is added."""

    out: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def missing(self, task: Task, side: str, seeds: int) -> list[int]:
        there = {
            row["seed"]
            for row in self.rows
            if (row["task"], row["side"]) == (task.name, side)
            and row["env_steps"][-1] == task.env_steps
        }
        return [seed for seed in range(seeds) if seed not in there]

    def add(self, task: Task, side: str, seed: int, steps: list[int], values: list[float]) -> None:
        row = {"task": task.name, "side": side, "seed": seed, "env_steps": steps}
        with self.lock:
            self.rows.append({**row, "returns": values})
            write(self.out, {"returns": self.rows})

    def at(self, task: Task, side: str, point: int) -> list[float]:
        return [
            row["returns"][point]
            for row in self.rows
            if (row["task"], row["side"]) == (task.name, side)
            and row["env_steps"][-1] == task.env_steps
        ]


def train_ours(task: Task, id_: str, seeds: list[int], kept: Returns) -> None:
    """Train one configuration, each seed in a lane of one program."""
    import hpo
    from hpo.store.journal import Journal

    study = {
        "name": "returns",
        "env": {"id": id_, **task.ours[id_]},
        "env_steps": task.env_steps,
        "fixed": {**task.knobs, **SEARCHED},
        "seeds": {"per_config": len(seeds)},
        "evaluation": {"every": task.env_steps // POINTS, "episodes": EPISODES},
        "population": {"lanes": len(seeds)},
        "budget": {"trials": 1},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "returns.yaml"
        file.write_text(json.dumps(study))
        hpo.run(file, out=Path(folder) / "results")
        with Journal(Path(folder) / "results" / "returns") as journal:
            found = list(journal.evaluations())
    for at, seed in enumerate(seeds):
        mine = sorted((row for row in found if row.replicate == at), key=lambda r: r.env_steps)
        means = [float(np.mean(row.returns)) for row in mine]
        kept.add(task, id_, seed, [row.env_steps for row in mine], means)


def train_theirs(python: str, task: Task, seeds: list[int], kept: Returns) -> None:
    """Train with Stable-Baselines3, one process per core with one thread each."""
    cores = len(os.sched_getaffinity(0))
    parts = [part for part in (seeds[core::cores] for core in range(cores)) if part]
    threads = [Thread(target=_train_part, args=(python, task, part, kept)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if missing := kept.missing(task, SB3, max(seeds) + 1):
        raise SystemExit(f"{SB3} ended early; seeds {missing} of {task.name} are missing")


def _train_part(python: str, task: Task, seeds: list[int], kept: Returns) -> None:
    asked = {"env": task.theirs, "fixed": task.knobs, "configs": [SEARCHED], "seeds": seeds}
    asked |= {"env_steps": task.env_steps, "episodes": EPISODES, "points": POINTS}
    process = subprocess.Popen(
        [python, "-W", "ignore", str(HERE / "sb3_worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**_outside(), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    assert process.stdin is not None and process.stdout is not None
    with process, process.stdin, process.stdout:
        print(json.dumps(asked) + "\n", file=process.stdin, flush=True)
        for line in process.stdout:
            row = json.loads(line)
            if "seed" in row:
                kept.add(task, SB3, row["seed"], row["points"], row["returns"])


def agreements(task: Task, kept: Returns) -> Iterator[dict[str, Any]]:
    """Compare each of our sides with the other one, at the end and at the points before."""
    for id_ in task.ours:
        for point in range(POINTS):
            ours, theirs = kept.at(task, id_, point), kept.at(task, SB3, point)
            yield {
                "task": task.name,
                "side": id_,
                "env_steps": task.env_steps * (point + 1) // POINTS,
                "seeds": [len(ours), len(theirs)],
                "means": [statistics.mean(ours), statistics.mean(theirs)],
                **compare([(ours, theirs)]),
            }


def compare_returns(tasks: Sequence[Task], arguments: argparse.Namespace) -> None:
    kept = Returns(arguments.out, known(arguments.out).get("returns", []))
    found: list[dict[str, Any]] = []
    for task in tasks:
        for id_ in task.ours:
            if missing := kept.missing(task, id_, arguments.seeds):
                train_ours(task, id_, missing, kept)
        if missing := kept.missing(task, SB3, arguments.seeds):
            train_theirs(arguments.sb3_python, task, missing, kept)
        found += agreements(task, kept)
    print("| task | side | env steps | mean return | SB3's | p of means | p of distributions |")
    print("|---|---|---|---|---|---|---|")
    for row in found:
        ours, theirs = row["means"]
        print(
            f"| {row['task']} | {row['side']} | {row['env_steps']:,} | {ours:.1f} | {theirs:.1f} "
            f"| {row['mean_p']:.3f} | {row['distance_p']:.3f} |"
        )
    write(arguments.out, {"agreement": _replaced(arguments.out, "agreement", tasks, found)})


# ---------------------------------------------------------------------- both


def known(out: Path) -> dict[str, Any]:
    return json.loads(out.read_text()) if out.is_file() else {}


def _replaced(
    out: Path, key: str, tasks: Sequence[Task], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of a file with new ones for some tasks, in the order of `TASKS`."""
    names = {task.name for task in tasks}
    others = [row for row in known(out).get(key, []) if row["task"] not in names]
    order = [task.name for task in TASKS]
    return sorted(others + rows, key=lambda row: order.index(row["task"]))


def write(out: Path, changed: dict[str, Any]) -> None:
    names = ("gymnasium", "ale-py", "envpool", "numpy", "jax")
    about = {
        "machine": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in names},
        "knobs": COMMON,
        "hyperparameters_of_returns": SEARCHED,
    }
    document = {**known(out), **about, **changed}
    out.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [task.name for task in TASKS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, help="updates of each side; default: by task")
    parser.add_argument("--returns", action="store_true", help="compare returns, not speed")
    parser.add_argument("--seeds", type=int, default=12, help="of --returns")
    parser.add_argument("--sb3-python", help="an interpreter that has Stable-Baselines3")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    chosen = [task for task in TASKS if task.name in arguments.only]
    if arguments.returns:
        if not arguments.sb3_python:
            parser.error("--returns needs --sb3-python")
        compare_returns([task for task in chosen if task.env_steps], arguments)
        return
    enable_compilation_cache()
    rows: list[dict[str, Any]] = []
    for task in chosen:
        measured = measure(task, arguments)
        write(arguments.out, {"runs": _replaced(arguments.out, "runs", [task], measured)})
        rows += measured
    show_speed(rows)


if __name__ == "__main__":
    main()
