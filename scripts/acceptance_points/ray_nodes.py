"""Several nodes of a Ray cluster on this machine, made by `ray start`, one of which dies."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .ray_drivers import processes_below

__all__ = ["HOST", "Cluster", "Node", "cluster"]

HOST = "ray::ShareHost"
"""The name of processes that host shares of lanes."""
_START_SECONDS = 300.0
_POLL_SECONDS = 0.5
_STORE_BYTES = 128 * 2**20
_STARTED = "Ray runtime started"


class Node:
    """One node: a Ray daemon with its workers.

    Args:
        words: arguments for `ray start`.
        log: file for its output.
        env: environment variables.
    """

    def __init__(self, words: Sequence[str], log: Path, env: Mapping[str, str]):
        self._log = log
        started = [str(Path(sys.executable).with_name("ray")), "start", "--block", *words]
        with log.open("w") as file:
            self._process = subprocess.Popen(
                started,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={**os.environ, **env},
            )

    def hosts(self) -> list[int]:
        """Return its processes that host shares of lanes."""
        return processes_below(self._process.pid, HOST)

    def await_start(self) -> None:
        """Wait until it has joined its cluster.

        Raises:
            RuntimeError: it does not join.
        """
        deadline = time.monotonic() + _START_SECONDS
        while _STARTED not in self._log.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = " / ".join(self._log.read_text().strip().splitlines()[-3:])
                raise RuntimeError(f"no node of Ray begins on this machine: {said[-600:]}")
            time.sleep(_POLL_SECONDS)

    def die(self) -> None:
        """End all its processes at once, like a power failure."""
        for process in [self._process.pid, *processes_below(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()


@dataclass(frozen=True)
class Cluster:
    """Nodes that form a cluster.

    Attributes:
        address: address of the first node.
        nodes: the other nodes.
        env: environment variables that let a driver connect.
    """

    address: str
    nodes: list[Node]
    env: Mapping[str, str]


@contextmanager
def cluster(work: Path, nodes: int, cpus: int) -> Iterator[Cluster]:
    """Yield a cluster whose first node offers no CPU and runs as long as the cluster.

    Args:
        work: a folder for the nodes' output.
        nodes: number of nodes with CPUs.
        cpus: CPUs of each.

    Raises:
        RuntimeError: it does not start.
    """
    port = _free_port()
    env = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    common = [
        f"--object-store-memory={_STORE_BYTES}",
        "--include-log-monitor=false",
        "--dashboard-agent-listen-port=0",
    ]
    head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
    address = f"{_own_address()}:{port}"
    with ExitStack() as running:
        found: list[Node] = []
        # one after the other, because names of their files may collide
        for number in range(1 + nodes):
            own = [f"--address={address}", f"--node-ip-address=127.0.0.{number + 1}"]
            words = [*own, f"--num-cpus={cpus}"] if number else head
            found.append(Node([*words, *common], work / f"node-{number}.log", env))
            running.callback(found[-1].die)
            found[-1].await_start()
        yield Cluster(address, found[1:], env)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def _own_address() -> str:
    """Return the address that Ray uses for this machine."""
    from ray.util import get_node_ip_address  # pyright: ignore[reportMissingImports]

    return get_node_ip_address()
