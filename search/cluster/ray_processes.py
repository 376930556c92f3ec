"""Runs a study's processes on a Ray cluster, each in an actor with CPUs and part of a GPU.

The head requests only CPUs and GPUs; Ray selects the node and sets `CUDA_VISIBLE_DEVICES`. A guard
ends the process when its actor ends, and the actor ends with the head.
"""

from __future__ import annotations

import signal
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import ConfigError, SearchError, counted
from ...machine.processes import (
    Launch,
    StartedProcess,
    Wish,
    end_leftovers,
    follow,
    share_of_memory,
    thread_settings,
)
from ...studies.execution_spec import Processes
from .via_ray import answer_of
from .worker_shards import Lost

_THREADS = 2  # threads of an actor: one follows the process, one replies
_RUN = Wish()
_PATIENCE = 10.0  # seconds beyond `grace` after which the actor itself is killed


class NodeProcesses:
    """A Ray actor that runs processes on a node, one at a time."""

    def __init__(self):
        self._wishes: dict[str, Wish] = {}

    def is_there(self) -> bool:
        return True

    def run(self, token: str, launch: Launch) -> int | str:
        """Return the exit code, or the reason why the process could not be started here."""
        if not launch.folder.is_dir():
            return (
                f"{launch.folder} does not exist on {socket.gethostname()}; put the study and its "
                "results in a folder that all nodes share"
            )
        try:
            return follow(launch, lambda: self._wishes.get(token, _RUN))
        except SearchError as error:
            return str(error)

    def ask(self, token: str, wish: Wish) -> None:
        self._wishes = {token: wish}


class RayProcess:
    """A process on the cluster; see `StartedProcess`."""

    def __init__(
        self, ray: ModuleType, actor: Any, launch: Launch, give_back: Callable[[Any], None]
    ):
        self._ray, self._actor, self._give_back = ray, actor, give_back
        self._token = uuid.uuid4().hex
        self._there = actor.is_there.remote()
        self._ended = actor.run.remote(self._token, launch)
        self.is_waiting, self.is_paused, self.lost = True, False, ""
        self.exit_code: int | None = None
        self._deadline: float | None = None  # for the actor, once its process must end

    def look(self) -> int | None:
        if self.exit_code is not None:
            return self.exit_code
        if self.is_waiting:
            self.is_waiting = not self._is_ready(self._there)
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._kill_actor()
        if self._is_ready(self._ended):
            self.exit_code = self._read_exit_code()
        return self.exit_code

    def _is_ready(self, reference: Any) -> bool:
        ready, _ = self._ray.wait([reference], timeout=0)
        return bool(ready)

    def _read_exit_code(self) -> int:
        result = answer_of(self._ray, self._ended)
        if isinstance(result, Lost):
            if self._deadline is None:
                self.lost = f"the Ray worker died: {result}"
            self._kill_actor()
            return -signal.SIGKILL
        if isinstance(result, str):
            raise SearchError(result)
        self._give_back(self._actor)
        return result

    def _kill_actor(self) -> None:
        with suppress(self._ray.exceptions.RayError):  # the cluster may be gone
            self._ray.kill(self._actor)

    def pause(self) -> None:
        if not self.is_paused and self._deadline is None and self.exit_code is None:
            self.is_paused = True
            self._actor.ask.remote(self._token, Wish(halted=True))

    def go_on(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._actor.ask.remote(self._token, Wish())

    def ask_to_end(self, grace: float) -> None:
        if self._deadline is not None or self.exit_code is not None:
            return
        self.is_paused = False
        if self.is_waiting:  # nothing runs yet, and it may never be placed
            self._deadline, self.is_waiting = time.monotonic(), False
            self._kill_actor()
            return
        self._deadline = time.monotonic() + grace + _PATIENCE
        self._actor.ask.remote(self._token, Wish(grace=grace))

    def end(self, grace: float = 0.0) -> None:
        self.ask_to_end(grace)
        while self.look() is None:
            time.sleep(0.005)

    def memory(self) -> int:
        return 0


class RayProcesses:
    """Starts a study's processes on a cluster; see `ProcessExecutor`."""

    def __init__(self, ray: ModuleType, settings: Processes):
        self._ray, self._settings = ray, settings
        self._idle: list[Any] = []  # actors whose process has ended
        self._started: list[RayProcess] = []

    @property
    def _cpus_per_process(self) -> int:
        return self._settings.threads or 1

    @property
    def at_once(self) -> int:
        """The configured number of processes, or as many as fit on the cluster now."""
        if self._settings.at_once is not None:
            return self._settings.at_once
        there = self._ray.cluster_resources()
        room = there.get("CPU", 1) / self._cpus_per_process
        if self._settings.gpus:
            room = min(room, there.get("GPU", 0) / self._settings.gpus)
        return max(1, int(room + 1e-9))

    def check(self, program: str, cwd: Path) -> None:
        """Reject processes that need more CPUs or GPUs than any node has."""
        each = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cpus = max(one.get("CPU", 0) for one in each)
        if self._cpus_per_process > cpus:
            raise ConfigError(
                f"processes.threads is {self._cpus_per_process}, but no node of the cluster has "
                f"more than {counted(int(cpus), 'CPU')}; lower it"
            )
        gpus, most = self._settings.gpus or 0, max(one.get("GPU", 0) for one in each)
        if gpus > most:
            raise ConfigError(
                f"processes.gpus is {gpus:g}, but no node of the cluster has more than "
                f"{counted(int(most), 'GPU')}; lower it, or set gpus: 0"
            )

    def begin(self, folder: Path) -> None:
        end_leftovers(folder)  # processes on other nodes ended with their actors

    def find(self, folder: Path) -> StartedProcess | None:
        return None

    def start(self, launch: Launch, lane: int) -> StartedProcess:
        gpus = self._settings.gpus
        share = thread_settings(self._cpus_per_process) | share_of_memory(gpus or 0)
        if gpus == 0:
            share["CUDA_VISIBLE_DEVICES"] = ""
        actor = self._idle.pop() if self._idle else self._new_actor()
        launch = replace(launch, settings={**share, **launch.settings})
        process = RayProcess(self._ray, actor, launch, self._take_back)
        self._started = [one for one in self._started if one.exit_code is None] + [process]
        return process

    def _take_back(self, actor: Any) -> None:
        """Keep an actor for the next process, unless another actor is waiting for its CPUs."""
        if any(process.is_waiting for process in self._started):
            self._ray.kill(actor)
        else:
            self._idle.append(actor)

    def _new_actor(self) -> Any:
        actor = self._ray.remote(NodeProcesses).options(
            num_cpus=self._cpus_per_process,
            num_gpus=self._settings.gpus or 0,
            max_restarts=0,
            max_concurrency=_THREADS,
            scheduling_strategy="SPREAD",
        )
        return actor.remote()

    def close(self) -> None:
        """End the idle actors; the cluster keeps running."""
        for actor in self._idle:
            with suppress(self._ray.exceptions.RayError):  # the cluster may be gone
                self._ray.kill(actor)
        self._idle = []
