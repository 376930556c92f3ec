"""Several nodes of a Ray cluster on this machine, as `ray start` makes them, of which one dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from .ray_drivers import processes_below

__all__ = ["Node", "cluster"]

_START_SECONDS = 300.0
_POLL_SECONDS = 0.5
_STORE_BYTES = 128 * 2**20
_AWAIT = """\
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]):
    time.sleep(0.2)
"""


class Node:
    """One node: a daemon of Ray's with its workers.

    Args:
        words: for `ray start`.
        work: a folder for what it says.
    """

    def __init__(self, words: Sequence[str], log: Path):
        started = [str(Path(sys.executable).with_name("ray")), "start", "--block", *words]
        with log.open("a") as file:
            self._process = subprocess.Popen(
                started, stdout=file, stderr=file, start_new_session=True, env=_quiet()
            )

    def hosts(self) -> list[int]:
        """Give its processes that host shares of lanes."""
        return processes_below(self._process.pid, _HOST)

    def is_alive(self) -> bool:
        """Say whether it has not ended."""
        return self._process.poll() is None

    def die(self) -> None:
        """End all of it at once, as a power cut does."""
        for process in [self._process.pid, *processes_below(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()


@contextmanager
def cluster(work: Path, nodes: int, cpus: int) -> Iterator[tuple[str, list[Node]]]:
    """Give the address of a cluster, and its nodes but for the first, which has no CPU to give.

    Args:
        work: a folder for what nodes say.
        nodes: with CPUs.
        cpus: of each.

    Raises:
        RuntimeError: it does not begin.
    """
    port = _free_port()
    common = [f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats",
              "--include-log-monitor=false"]  # fmt: skip
    head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false"]
    address = f"{_own_address()}:{port}"
    with ExitStack() as running:
        log = work / "nodes.log"
        first = Node([*head, *common], log)
        running.callback(first.die)
        _await_port(first, port, log)
        others: list[Node] = []
        for number in range(nodes):
            own = [f"--address={address}", f"--node-ip-address=127.0.0.{number + 2}"]
            others.append(Node([*own, f"--num-cpus={cpus}", *common], log))
            running.callback(others[-1].die)
        _await_nodes(address, 1 + nodes, log)
        yield address, others


def _await_port(first: Node, port: int, log: Path) -> None:
    """Wait until the first node answers."""
    deadline = time.monotonic() + _START_SECONDS
    while first.is_alive() and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"no cluster begins on this machine: {_tail(log)}")


def _await_nodes(address: str, count: int, log: Path) -> None:
    """Wait until all nodes have joined."""
    try:
        subprocess.run(
            [sys.executable, "-c", _AWAIT, address, str(count)],
            check=True, capture_output=True, timeout=_START_SECONDS, env=_quiet(),
        )  # fmt: skip
    except subprocess.SubprocessError as error:
        told = f"no cluster of {count} nodes on this machine ({error}): {_tail(log)}"
        raise RuntimeError(told) from error


def _tail(log: Path) -> str:
    return " / ".join(log.read_text().strip().splitlines()[-3:])[-600:]


def _quiet() -> dict[str, str]:
    return {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


def _own_address() -> str:
    """Give the address that Ray takes for this machine's."""
    from ray.util import get_node_ip_address  # pyright: ignore[reportMissingImports]

    return get_node_ip_address()
