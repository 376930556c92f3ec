"""A sink in the background: slow or broken, nobody waits for it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from hpo.store.sinks import Background, Sinks

HERE = Path("study")


class Recording:
    """A sink that notes what it is told, after `wait` seconds each."""

    name = "recording"

    def __init__(self, wait: float = 0.0, gate: threading.Event | None = None) -> None:
        self.told: list[str] = []
        self.taken = threading.Event()
        self._wait, self._gate = wait, gate

    def published(self, directory: Path) -> None:
        self.taken.set()
        if self._gate is not None:
            self._gate.wait(60.0)
        time.sleep(self._wait)
        self.told.append("published")

    def close(self) -> None:
        self.told.append("closed")


class Broken(Recording):
    name = "broken"

    def published(self, directory: Path) -> None:
        raise OSError("disk full")


def test_background_sink_flushes_last_publication_on_close() -> None:
    sink = Recording()
    background = Background(sink, pytest.fail)
    background.published(HERE)
    background.close()
    assert sink.told == ["published", "closed"]
    background.close()
    assert sink.told == ["published", "closed"]


def test_unused_background_sink_is_never_started() -> None:
    sink = Recording()
    Background(sink, pytest.fail).close()
    assert sink.told == []


def test_slow_sink_does_not_block_and_coalesces_notices() -> None:
    gate = threading.Event()
    sink = Recording(gate=gate)
    background = Background(sink, pytest.fail)
    background.published(HERE)
    assert sink.taken.wait(60.0)  # the thread has the first notice and waits at the gate
    for _ in range(1000):
        background.published(HERE)
    assert sink.told == []  # it waits there still
    gate.set()
    background.close()
    assert sink.told == ["published", "published", "closed"]


def test_hanging_sink_is_abandoned_with_a_warning() -> None:
    gate, said = threading.Event(), list[str]()
    background = Background(Recording(gate=gate), said.append, patience_seconds=0.05)
    background.published(HERE)
    background.close()
    gate.set()
    assert len(said) == 1 and "still busy after 0.05 s" in said[0]
    assert "export the study to recording" in said[0]


def test_failing_sink_warns_once_and_others_continue() -> None:
    said: list[str] = []
    other = Recording()
    sinks = Sinks([Background(Broken(), said.append), Background(other, said.append)], said.append)
    for count in range(1, 4):
        sinks.published(HERE)
        end = time.monotonic() + 60.0
        while len(other.told) < count and time.monotonic() < end:
            time.sleep(0.002)
    sinks.close()
    assert len(said) == 1
    assert "the broken logger failed" in said[0] and "disk full" in said[0]
    assert other.told == ["published"] * 3 + ["closed"]


def test_error_in_the_final_publication_is_reported() -> None:
    said: list[str] = []
    sinks = Sinks([Background(Broken(), said.append)], said.append)
    sinks.published(HERE)
    sinks.close()
    assert len(said) == 1 and "disk full" in said[0]
