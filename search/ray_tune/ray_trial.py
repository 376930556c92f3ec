"""Ray Tune's trials: handles in separate processes, and their communication with the lanes.

A handle does not train. It requests its trial's next evaluation through the exchange and waits.
The process with the lanes fetches requests from the exchange and stores its replies there.
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
"""A request: its key, kind, Tune trial, point and kept state."""

_STATE = "state.txt"


class Exchange:
    """An actor that passes requests from handles to the lanes, and replies back."""

    def __init__(self) -> None:
        self._requests: list[Asked] = []
        self._replies: dict[str, asyncio.Future[Any]] = {}
        self._some = asyncio.Event()
        self._count = 0
        self._closed = False

    async def ask(self, kind: str, trial: str, point: Mapping[str, Any], state: str | None) -> Any:
        """Send a request and wait for the reply; None if the exchange is closed."""
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
        """Store replies by the keys of their requests; handles that are gone are skipped."""
        for key, reply in replies.items():
            waiting = self._replies.pop(key, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)

    async def close(self) -> None:
        """Reply to every handle, now and later, that the exchange is closed."""
        self._closed = True
        await self.answer(dict.fromkeys(self._replies))


class Handle(tune.Trainable):
    """One Ray Tune trial, whose lanes are in a different process."""

    def setup(self, config: dict[str, Any]) -> None:
        self._exchange = ray.get_actor(config[EXCHANGE])
        self._state: str | None = None

    def _ask_exchange(self, kind: str) -> Any:
        point = self.config[POINT]
        return ray.get(self._exchange.ask.remote(kind, self.trial_id, point, self._state))

    def step(self) -> dict[str, Any]:
        reply = self._ask_exchange("train")
        self._state = None
        if reply is None:
            return {"done": True}
        return dict(reply)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Keep the current state of the trial's lanes; the checkpoint contains only a name."""
        name = self._ask_exchange("keep") or ""
        (Path(checkpoint_dir) / _STATE).write_text(name)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self._state = (Path(checkpoint) / _STATE).read_text()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Reuse this process for a different trial, because starting another takes seconds."""
        self.config, self._state = new_config, None
        return True
