"""Frozen dataclasses for the sections of a study file that say where and how long trials run.

They cover lanes, limits, executors, processes of a command, checkpoints and loggers. The objective
and the search are in `search_spec`.
"""

# `key` returns a field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .field import REQUIRED, key

PARTS = ("parameters", "optimiser", "losses", "gradients", "advantages", "trajectories")


@dataclass(frozen=True)
class PopulationSpec:
    """Lanes per program; for None (`auto`), `search.lanes` or `search.hosting` sets the number."""

    lanes: int | None = key(
        None,
        "lanes per program, or auto; rounded up to whole tiles",
        low=1,
        high=1_000_000,
        words=("auto",),
    )
    tiles: Literal["auto", "whole", "narrow"] = key(
        "auto",
        (
            "grouping of lanes on a CPU; whole: results do not depend on the number of "
            "lanes; narrow: tiles fit the number of lanes; auto: whole, or narrow if the lanes "
            "do not fill one tile per device"
        ),
    )
    device: Literal["auto", "cpu", "gpu"] = key("auto", "where lanes run")
    deterministic: bool = key(False, "bitwise reproducible results on a GPU; slower")
    workers: int | None = key(
        None,
        "number of processes that step gym: environments, or auto; 0: none",
        high=1024,
        words=("auto",),
    )
    step_timeout: float | None = key(
        None,
        (
            "time after which a call to a gym: environment counts as hung, or auto: 2m for "
            "a step, 5m to create the environment; 0: no limit"
        ),
        type="seconds",
        low=0,
        high=1e9,
        words=("auto",),
        late=True,
    )


@dataclass(frozen=True)
class Budget:
    """Limits on the whole study; None means unlimited."""

    trials: int | None = key(64, "number of configurations proposed", low=1, high=1e9)
    env_steps: int | None = key(None, "training env steps of the whole study", low=1)
    wall_seconds: float | None = key(
        None,
        "total running time, over all resumes",
        key="wall",
        type="seconds",
        low=0,
        low_open=True,
        high=1e9,
    )
    max_failures: int = key(20, "number of errors after which the study stops", high=1e9)


@dataclass(frozen=True)
class Executor:
    type: Literal["local", "ray", "slurm"] = key(
        "local", "this process, workers of a Ray cluster, or SLURM jobs (only with command)"
    )
    workers: int = key(1, "ray: number of processes over which lanes are spread", low=1, high=1024)
    address: str | None = key(
        None, "ray: address of the cluster, auto or host:port; null: this machine alone"
    )
    cpus: int | None = key(
        None, "ray: CPUs per worker; null: an equal share of the cluster's CPUs", low=1, high=4096
    )
    partition: str | None = key(
        None, "slurm: partition of the jobs; null: the cluster's default", type="text", late=True
    )
    time: float | None = key(
        None,
        "slurm: time limit of each job; null: the partition's limit",
        type="seconds",
        low=60,
        high=1e9,
        late=True,
    )
    options: Mapping[str, Any] = key(
        {}, "slurm: further sbatch options, such as {account: lab, mem: 8G}", late=True
    )
    setup: str | None = key(
        None,
        "slurm: shell lines that run before the command, such as module load cuda",
        type="text",
        late=True,
    )
    poll: float = key(
        15.0,
        "slurm: time between calls to squeue",
        type="seconds",
        low=0,
        high=3600,
        late=True,
    )


@dataclass(frozen=True)
class Processes:
    """The processes of a study with `command`."""

    at_once: int | None = key(
        None,
        "number of simultaneous processes, or auto: as many as the GPUs and CPU cores allow",
        low=1,
        high=4096,
        words=("auto",),
    )
    gpus: float | None = key(
        None,
        "GPUs per process; 0.5: two share one; 0: none visible; null: all visible",
        low=0,
        high=64,
    )
    threads: int | None = key(
        None,
        "threads per process, as OMP_NUM_THREADS; auto: an equal share of the cores",
        low=1,
        high=4096,
        words=("auto",),
    )
    timeout: float = key(
        3600.0,
        "time without a metric after which a process counts as hung; 0: no limit",
        type="seconds",
        low=0,
        high=1e9,
    )
    grace: float = key(
        10.0, "time between SIGTERM and SIGKILL", type="seconds", low=0, high=86_400
    )


@dataclass(frozen=True)
class MetricFiles:
    """The source of a process's metrics."""

    type: Literal["stdout", "jsonl", "csv", "tensorboard", "wandb"] = key(
        "stdout",
        (
            "source: printed JSON lines, a file of such lines, a CSV file, event files, or "
            "offline W&B runs"
        ),
    )
    file: str | None = key(
        None,
        "path or pattern of the files, with placeholders; null: the files in {folder}",
        type="text",
    )
    step: str = key("step", "key or column that contains the step")
    mean_of: int = key(
        1, "number of most recent metric values that are averaged", low=1, high=100_000
    )


@dataclass(frozen=True)
class Checkpoint:
    """The policies to save, and the time between commits."""

    keep_best: int = key(3, "number of best trials whose final policies are kept", high=1000)
    best_evaluation: bool = key(
        False, "also keep the policy with the best evaluation of any trial at any time"
    )
    each_seed: bool = key(False, "also keep the policies of all seeds of the best trials")
    policies_every: int | None = key(
        None,
        "env steps between saved policies of each seed of the best trials; null: none",
        low=1,
        high=1e13,
        late=True,
    )
    best_of_each: bool = key(
        False, "also keep each trial's policy at its best evaluation", late=True
    )
    parts: tuple[str, ...] = key((), "parts saved with each policy", type="words", words=PARTS)
    commit_seconds: float = key(
        10.0,
        "time between commits (shorter right after a start); 0: after every chunk",
        key="commit_every",
        type="seconds",
        low=0,
        high=1e9,
        late=True,
    )


@dataclass(frozen=True)
class Init:
    folder: str = key(REQUIRED, "folder of a saved policy, relative to this file", key="from")
    keep: Literal["all", "critic", "policy"] = key(
        "all", "parameters to keep; the rest starts fresh"
    )
    optimiser: Literal["fresh", "restored"] = key(
        "fresh",
        "initial optimiser state; `restored` needs keep: all and a policy saved with its state",
    )


@dataclass(frozen=True)
class Logger:
    """A logger in addition to the store: `console`, `csv`, `tensorboard`, `wandb` or `mlflow`."""

    type: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
