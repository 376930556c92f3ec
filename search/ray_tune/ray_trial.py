"""Ray Tune's trials: handles in separate processes, and their exchange with the lanes.

A handle does not train. It requests the next evaluation of its trial from the exchange and waits;
the process with the lanes fetches requests there and leaves its replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
from ray import tune  # pyright: ignore[reportMissingImports]

EXCHANGE, POINT = "exchange", "point"
"""Keys of a trial's configuration: the name of the exchange, and the point to train."""

Asked = tuple[str, str, str, Mapping[str, Any], str | None]
"""A request: its key, kind, trial of Tune's, point, and kept state."""

_STATE = "state.txt"


class Exchange:
    """Requests from handles and their replies; an actor."""

    def __init__(self) -> None:
        self._requests: list[Asked] = []
        self._replies: dict[str, asyncio.Future[Any]] = {}
        self._some = asyncio.Event()
        self._count = 0
        self._closed = False

    async def ask(self, kind: str, trial: str, point: Mapping[str, Any], state: str | None) -> Any:
        """Ask for something, and wait for the reply; None: there is nothing any more."""
        if self._closed:
            return None
        self._count += 1
        key = str(self._count)
        reply = self._replies[key] = asyncio.get_running_loop().create_future()
        self._requests.append((key, kind, trial, point, state))
        self._some.set()
        return await reply

    async def wait(self, seconds: float) -> list[Asked]:
        """Return the requests since the last call, waiting some time for the first one."""
        try:
            await asyncio.wait_for(self._some.wait(), seconds)
        except TimeoutError:
            return []
        self._some.clear()
        requests, self._requests = self._requests, []
        return requests

    async def answer(self, replies: Mapping[str, Any]) -> None:
        """Leave replies, by the keys of requests; handles that are gone get none."""
        for key, reply in replies.items():
            waiting = self._replies.pop(key, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)

    async def close(self) -> None:
        """Answer every handle, now and later, that there is nothing any more."""
        self._closed = True
        await self.answer(dict.fromkeys(self._replies))


class Handle(tune.Trainable):
    """One Ray Tune trial, whose lanes are elsewhere."""

    def setup(self, config: dict[str, Any]) -> None:
        self._exchange = ray.get_actor(config[EXCHANGE])
        self._state: str | None = None

    def _ask(self, kind: str) -> Any:
        point = self.config[POINT]
        return ray.get(self._exchange.ask.remote(kind, self.trial_id, point, self._state))

    def step(self) -> dict[str, Any]:
        reply = self._ask("train")
        self._state = None
        if reply is None:
            return {"done": True}
        return dict(reply)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Keep the state of the lanes in place; the checkpoint is its name."""
        name = self._ask("keep") or ""
        (Path(checkpoint_dir) / _STATE).write_text(name)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self._state = (Path(checkpoint) / _STATE).read_text()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Become another trial, because starting a process costs seconds."""
        self.config, self._state = new_config, None
        return True
