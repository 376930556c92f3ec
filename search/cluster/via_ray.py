"""Connects to a Ray cluster, and hosts the shares of a study's populations on its workers.

All cluster errors are converted to one-line messages here.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...errors import ConfigError, HpoError, MissingExtraError, SearchError, ignore
from ...studies.execution_spec import Executor
from .worker_shards import Call, Lost, Machine, ShareHost, ShareSource, sound

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_V2_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_DEDUP_LOGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
_OBJECT_STORE_BYTES = 256 * 2**20  # larger lanes go through the disk
_PATIENCE_SECONDS = 120.0
_ANSWER_SECONDS = 20.0
_KNOCK_SECONDS = 10.0
_ATTEMPTS = 3


def import_ray(purpose: str) -> ModuleType:
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingExtraError("ray", "ray", purpose) from error
    return ray


@contextmanager
def connected(executor: Executor, purpose: str, processes: int = 0) -> Iterator[ModuleType]:
    """Connect to the cluster named by a study, or to a new one on this machine.

    A cluster that this process has already joined is reused and kept running. `processes` is the
    number of other processes on this machine.
    """
    ray = import_ray(purpose)
    if ray.is_initialized():
        yield ray
        return
    how: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if executor.address is None:
        cores = max(2, os.cpu_count() or 1, executor.workers * (executor.cpus or 1), processes)
        how |= {"address": "local", "num_cpus": cores, "include_dashboard": False}
        how["object_store_memory"] = _OBJECT_STORE_BYTES
    else:
        how["address"] = executor.address
    try:
        _probe_address(executor.address)
        ray.init(**how)
    except Exception as error:  # Ray raises various errors if a busy machine takes too long
        raise ConfigError(_no_cluster(executor, error)) from error
    try:
        with _redirected_output(ray):
            yield ray
    finally:
        ray.shutdown()


def _probe_address(address: str | None) -> None:
    """Connect once to an address such as `host:port`, because Ray would retry for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_SECONDS).close()


def _no_cluster(executor: Executor, error: Exception) -> str:
    if executor.address is None:
        return f"executor: cannot start a Ray cluster on this machine: {line_of(error)}; try again"
    text = f"executor: no Ray cluster at {executor.address!r}: {line_of(error)}; start one with "
    text += "`ray start --head`, or remove executor.address to use this machine alone"
    if os.environ.get("RAY_AUTH_MODE") == "token":
        return f"{text}; on a running cluster, ~/.ray/auth_token must match the head's token"
    return f"{text}; a running cluster may require a token: run `export RAY_AUTH_MODE=token`"


@contextmanager
def _redirected_output(ray: ModuleType) -> Iterator[None]:
    """Redirect the output of Ray's daemons to the log `hpo.ray`."""
    worker = ray._private.worker
    printing = getattr(worker, "print_to_stdstream", None)
    if printing is None:  # other versions of Ray print elsewhere
        yield
        return
    worker.print_to_stdstream = _log_worker_lines
    try:
        yield
    finally:
        worker.print_to_stdstream = printing


def _log_worker_lines(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    for line in data["lines"]:
        logging.getLogger("hpo.ray").info("%s: %s", data["pid"], line)


@dataclass(frozen=True)
class WorkerResources:
    """A worker's resources on its node."""

    cpus: int
    gpus: int

    def __str__(self) -> str:
        if not self.gpus:
            return f"{self.cpus} CPU"
        return f"{self.cpus} CPU and {self.gpus} GPU"


def place_of(ray: ModuleType, executor: Executor, device: str) -> WorkerResources:
    """Return the resources per worker: one GPU if there are any, and an equal share of CPUs."""
    there = ray.cluster_resources()
    gpus = int(there.get("GPU", 0))
    each = 1
    if device == "cpu" or (device == "auto" and gpus == 0):
        each = 0
    if each * executor.workers > gpus:
        raise ConfigError(
            f"executor.workers is {executor.workers}, but the cluster has {gpus} GPU(s), and "
            "each worker needs one; lower it, or set population: {device: cpu}"
        )
    cores = int(there.get("CPU", 1))
    if executor.address is None:
        cores = min(cores, os.cpu_count() or 1)
    return WorkerResources(executor.cpus or max(1, cores // executor.workers), each)


class RayTeam:
    """The workers that host a study's shares; see `Team`."""

    def __init__(
        self,
        ray: ModuleType,
        shares: int,
        place: WorkerResources,
        source: Callable[[int, Callable[[str], None]], ShareSource],
        warn: Callable[[str], None] = ignore,
    ):
        self.shares = shares
        self._ray, self._place, self._source, self._warn = ray, place, source, warn
        self._hosts: dict[int, Any] = {}
        self._generations = dict.fromkeys(range(shares), 0)
        self._machines: dict[int, str] = {}

    def begin(self) -> Machine:
        """Start one worker per share; return the hardware that they run on."""
        self._hosts = {share: self._new_host() for share in range(self.shares)}
        names = {share: host.machine_name.remote() for share, host in self._hosts.items()}
        placed, waiting = self._ray.wait(
            list(names.values()), num_returns=self.shares, timeout=_PATIENCE_SECONDS
        )
        if waiting:
            raise SearchError(
                f"after {_PATIENCE_SECONDS:.0f} s the cluster has room for {len(placed)} of "
                f"{self.shares} workers with {self._place} each; lower executor.workers or "
                "executor.cpus, or add nodes"
            )
        for share, name in names.items():
            self._machines[share] = answer_of(self._ray, name)
            if isinstance(self._machines[share], Lost):
                raise SearchError(f"worker {share} died immediately: {self._machines[share]}")
        neighbours = Counter(self._machines.values())
        found = self.call(
            {
                share: ("begin", (neighbours[self._machines[share]],))
                for share in range(self.shares)
            }
        )
        for share, answer in found.items():
            if isinstance(answer, Lost):
                raise SearchError(f"worker {share} died while starting: {answer}")
            self._check_alike(share, sound(answer), sound(found[0]))
        return found[0]

    def _check_alike(self, share: int, machine: Machine, first: Machine) -> None:
        if machine == first:
            return
        differs = _machine_differences(machine, first)
        words = f"worker {share} on {self._machines[share]} has {differs}, but "
        words += f"worker 0 on {self._machines[0]} {_machine_differences(first, machine)}"
        raise ConfigError(f"{words}; give all nodes of the cluster the same installation")

    def _new_host(self) -> Any:
        actor = self._ray.remote(ShareHost).options(
            num_cpus=self._place.cpus,
            num_gpus=self._place.gpus,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        return actor.remote(self._source)

    def process_of(self, share: int) -> int:
        return answer_of(self._ray, self._hosts[share].process.remote())

    def end(self) -> None:
        """Stop all workers; the cluster keeps running."""
        for host in {id(host): host for host in self._hosts.values()}.values():
            with suppress(self._ray.exceptions.RayError):  # the cluster may be gone
                self._ray.kill(host)

    def generation(self, share: int) -> int:
        return self._generations[share]

    def first_of_machines(self) -> list[int]:
        first: dict[str, int] = {}
        for share in range(self.shares):
            first.setdefault(self._machines[share], share)
        return list(first.values())

    def call(self, calls: Mapping[int, Call]) -> dict[int, Any]:
        given = {
            share: self._hosts[share].do.remote(share, method, args)
            for share, (method, args) in calls.items()
        }
        answers: dict[int, Any] = {}
        for share, reference in given.items():
            reply = answer_of(self._ray, reference)
            if isinstance(reply, Lost):
                answers[share] = reply
                continue
            answers[share] = reply.answer
            for text in reply.warnings:
                self._warn(text)
        return answers

    def replace(self, share: int) -> None:
        """See `Team`; if a new worker does not fit, a live one takes over the share."""
        self._generations[share] += 1
        dead = self._hosts[share]
        if sum(host is dead for host in self._hosts.values()) == 1:
            self._ray.kill(dead)
        for _ in range(_ATTEMPTS):
            host, words = self._new_host(), "a new worker"
            name = self._machine_name(host, _PATIENCE_SECONDS)
            if name is None:
                self._ray.kill(host)
                host, name = self._least_loaded_host(share)
                words = "another worker"
            self._hosts[share], self._machines[share] = host, name
            neighbours = Counter(self._machines.values())[name]
            answer = self.call({share: ("begin", (neighbours,))})[share]
            if not isinstance(answer, Lost):
                sound(answer)
                self._warn(f"worker {share} died; {words} on {name} takes over its lanes")
                return
        raise SearchError(
            f"worker {share} died, and {_ATTEMPTS} replacements died while starting; all "
            "commits are safe; run the same command to resume"
        )

    def _machine_name(self, host: Any, seconds: float) -> str | None:
        """Return a worker's machine name; None if the worker died or did not start in time."""
        ready, _ = self._ray.wait([reference := host.machine_name.remote()], timeout=seconds)
        if not ready:
            return None
        name = answer_of(self._ray, reference)
        return None if isinstance(name, Lost) else name

    def _least_loaded_host(self, lost: int) -> tuple[Any, str]:
        """Return the live worker with the fewest shares, and its machine."""
        load = Counter(id(host) for share, host in self._hosts.items() if share != lost)
        others = [(load[id(host)], share) for share, host in self._hosts.items() if share != lost]
        for _, share in sorted(others):
            name = self._machine_name(self._hosts[share], _ANSWER_SECONDS)
            if name is not None:
                return self._hosts[share], name
        raise SearchError(
            "no worker is alive, and the cluster has no room for another; all "
            "commits are safe; run the same command to resume once there is room"
        )


def _machine_differences(machine: Machine, other: Machine) -> str:
    parts = []
    if machine.backend != other.backend or machine.device_count != other.device_count:
        parts.append(f"{machine.device_count} {machine.backend} device(s)")
    for name in {**machine.versions, **other.versions}:
        version = machine.versions.get(name, "absent")
        if version != other.versions.get(name, "absent"):
            parts.append(f"{name} {version}")
    return ", ".join(parts)


def answer_of(ray: ModuleType, reference: Any) -> Any:
    """Return a worker's reply, or `Lost`; SearchError if the cluster is gone."""
    errors = ray.exceptions
    try:
        return ray.get(reference)
    except (errors.RayActorError, errors.OutOfMemoryError, errors.ObjectLostError) as error:
        return Lost(line_of(error))
    except (errors.LocalRayletDiedError, errors.RaySystemError) as error:
        raise SearchError(
            f"lost the Ray cluster: {line_of(error)}; all commits are safe; run the same "
            "command to resume"
        ) from error


def line_of(error: Exception) -> str:
    if isinstance(error, HpoError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if getattr(error, "actor_init_failed", False):  # a traceback; the original error is last
        lines.reverse()
    return next(iter(lines), type(error).__name__)[:200]
