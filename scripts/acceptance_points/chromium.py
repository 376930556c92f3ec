"""A page in headless Chromium: its console messages, network requests and appearance.

It uses the DevTools protocol over the browser's pipe (file descriptors 3 and 4), so only the
browser is needed.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Chromium", "find_chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 60.0


def find_chromium() -> str:
    """Return the browser's path.

    Raises:
        RuntimeError: it is not installed.
    """
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise RuntimeError("no Chromium here; type: apt-get install chromium")
    return found


class Chromium:
    """One page; `events` contains everything that the browser reported about it.

    Args:
        work: a folder for the browser's profile.
    """

    def __init__(self, work: Path):
        self.events: list[dict[str, Any]] = []
        to_child, ours = os.pipe()
        theirs, from_child = os.pipe()
        words = [
            find_chromium(),
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            f"--user-data-dir={work / 'profile'}",
            "about:blank",
        ]
        shell = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", *words],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._out, self._in, self._rest, self._id = ours, theirs, b"", 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)  # the browser ends with its pipe
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    # ------------------------------------------------------------------ the protocol

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return the reply; events that arrive first are kept.

        Raises:
            RuntimeError: the browser reports an error or does not reply.
        """
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            told = self._next()
            if told.get("id") == self._id:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']['message']}")
                return told["result"]
            self.events.append(told)
        raise RuntimeError(f"{method}: no answer in {_SECONDS:.0f} s")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            some = os.read(self._in, 1 << 20)
            if not some:
                raise RuntimeError("the browser has ended")
            self._rest += some
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    # ------------------------------------------------------------------ the page

    def look(self, width: int, height: int, dark: bool = False, touch: bool = False) -> None:
        """Set the size of the window, light or dark mode, and whether it is a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if touch else 1,
            mobile=touch,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path) -> None:
        """Load a file and wait until it has loaded."""
        self.visit(path.resolve().as_uri())

    def visit(self, url: str) -> None:
        """Load an address and wait until it has loaded."""
        self.call("Page.navigate", url=url)
        until = time.monotonic() + _SECONDS
        while self.value("document.readyState") != "complete" and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.3)  # for late requests of the page

    def value(self, script: str) -> Any:
        """Return the value of an expression in the page.

        Raises:
            RuntimeError: the expression raised.
        """
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{script}: {told['exceptionDetails']['text']}")
        return told["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Write a PNG of the whole page, or of the visible part."""
        told = self.call(
            "Page.captureScreenshot",
            format="png",
            captureBeyondViewport=whole,
            **self._whole() if whole else {},
        )
        path.write_bytes(base64.b64decode(told["data"]))

    def _whole(self) -> dict[str, Any]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "scale": 1, **{k: size[k] for k in ("width", "height")}}}

    # ------------------------------------------------------------------ what was reported

    def errors(self) -> list[str]:
        """Return messages of the console, the log and uncaught exceptions, including warnings."""
        found: list[str] = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"])
            elif method == "Log.entryAdded":
                found.append(str(params["entry"]["text"]))
            elif method == "Runtime.consoleAPICalled":
                found.append(str([item.get("value") for item in params["args"]]))
        return found

    def requests(self) -> list[str]:
        """Return requests other than for the page itself and data in it."""
        asked = [
            _url(event["params"])
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith(("file:", "data:", "about:"))]


def _url(params: Mapping[str, Any]) -> str:
    return str(params["request"]["url"])
