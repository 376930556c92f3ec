"""Real signals, while the main thread is inside C code that no Python handler can interrupt."""

import ctypes
import os
import signal
import sys
import threading
import time

import pytest

from hpo.views.commands import watched_run
from hpo.views.commands.watched_run import InterruptListener

LIBC = ctypes.CDLL(None)
PATIENCE = 60.0  # seconds until a test gives up; none waits when all is well


@pytest.fixture
def handled():
    """A handler like that of the search: it is called when Python gets to it."""
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(time.monotonic()))
    yield calls
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def unshared():
    """Nobody takes the interpreter from the main thread before it enters C code by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(PATIENCE)
    yield
    sys.setswitchinterval(before)


def busy(meanwhile):
    """Stay inside C code, which no signal ends, until another thread has done `meanwhile`."""
    mutex = ctypes.create_string_buffer(128)
    LIBC.pthread_mutex_init(mutex, None)
    LIBC.pthread_mutex_lock(mutex)

    def other():
        time.sleep(0.02)  # then the main thread waits for the mutex
        try:
            meanwhile()
        finally:
            LIBC.pthread_mutex_unlock(mutex)

    thread = threading.Thread(target=other)
    thread.start()
    LIBC.pthread_mutex_lock(mutex)
    thread.join()


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_first_ctrl_c_is_answered_before_the_python_handler(handled, unshared):
    heard, answered = [], threading.Event()

    def first():
        heard.append(time.monotonic())
        answered.set()

    def meanwhile():
        press()
        answered.wait(PATIENCE)

    with InterruptListener(first, lambda: heard.append("second")) as ear:
        ear.arm()
        busy(meanwhile)
    assert len(heard) == 1
    assert heard[0] < handled[0]


def test_second_ctrl_c_quits(handled, unshared):
    left, told, answered, gone = [], [], threading.Event(), threading.Event()

    def first():
        told.append(1)
        answered.set()

    def leave(code):
        left.append(code)
        gone.set()

    def meanwhile():
        for seen in (answered, gone):
            press()
            seen.wait(PATIENCE)

    with InterruptListener(first, lambda: told.append(2), leave=leave) as ear:
        ear.arm()
        busy(meanwhile)
    assert told == [1, 2]
    assert left == [130]


def test_second_ctrl_c_quits_even_if_the_message_fails(handled):
    left, answered, gone = [], threading.Event(), threading.Event()

    def cannot():
        raise OSError("no terminal")

    def leave(code):
        left.append(code)
        gone.set()

    threading.excepthook, before = lambda args: None, threading.excepthook
    try:
        with InterruptListener(answered.set, cannot, leave=leave) as ear:
            ear.arm()
            for seen in (answered, gone):
                press()
                assert seen.wait(PATIENCE)
    finally:
        threading.excepthook = before
    assert left == [130]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_repeated_batch_signals_count_once(number):
    """`timeout` and shells send it twice: to the process, and to its group."""
    told, left, rounds = [], [], threading.Event()
    before = {each: signal.signal(each, lambda *given: None) for each in (number, signal.SIGINT)}
    try:
        with InterruptListener(
            lambda: told.append(1), lambda: told.append(2), leave=left.append
        ) as ear:
            ear.arm()
            for _ in range(3):
                os.kill(os.getpid(), number)
                time.sleep(0.05)
            assert (told, left) == ([1], [])
            ear._leave = lambda code: (left.append(code), rounds.set())
            press()
            assert rounds.wait(PATIENCE)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert (told, left) == ([1, 2], [130])


def test_later_sigterm_quits():
    now, told, left, gone = [0.0], [], [], threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *given: None)

    def leave(code):
        left.append(code)
        gone.set()

    try:
        first = threading.Event()
        with InterruptListener(
            first.set, lambda: told.append(2), leave=leave, clock=lambda: now[0]
        ) as ear:
            ear.arm()
            os.kill(os.getpid(), signal.SIGTERM)
            assert first.wait(PATIENCE)
            now[0] = 60.0
            os.kill(os.getpid(), signal.SIGTERM)
            assert gone.wait(PATIENCE)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (told, left) == ([2], [130])


def test_stuck_compile_is_quit_after_one_ctrl_c(handled, monkeypatch):
    left, told, gone = [], [], threading.Event()
    monkeypatch.setattr(watched_run, "PATIENCE", 0.2)

    def leave(code):
        left.append(code)
        gone.set()

    with InterruptListener(
        lambda: told.append(1), lambda: told.append(2), leave=leave, is_stuck=lambda: True
    ) as ear:
        ear.arm()
        press()
        assert gone.wait(PATIENCE)
    assert (told, left) == ([1, 2], [130])


def test_compile_that_ends_in_time_allows_a_clean_stop(handled):
    left, looks, ended = [], iter((True, True, False)), threading.Event()

    def is_stuck():
        look = next(looks)
        if not look:
            ended.set()
        return look

    with InterruptListener(
        lambda: None, lambda: None, leave=left.append, is_stuck=is_stuck
    ) as ear:
        ear.arm()
        press()
        assert ended.wait(PATIENCE)
    assert left == []


def test_listener_ignores_signals_unless_armed(handled):
    heard = []
    ear = InterruptListener(lambda: heard.append(1), lambda: heard.append(2))
    with ear:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    assert heard == []
    assert len(handled) == 2


def test_listener_does_nothing_outside_the_main_thread():
    def enter():
        with InterruptListener(lambda: None, lambda: None) as ear:
            ear.arm()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert signal.set_wakeup_fd(-1) == -1
