"""Real signals, while the main thread is inside C code that no Python handler can interrupt."""

import hashlib
import os
import signal
import threading
import time

import pytest

from hpo.views.doorbell import Doorbell


def busy(seconds_at_least=0.6):
    """Compute without returning to Python."""
    rounds = 200_000
    while True:
        started = time.monotonic()
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", rounds)
        if time.monotonic() - started >= seconds_at_least:
            return
        rounds *= 2


@pytest.fixture
def handled():
    """A handler like that of the search: it is called when Python gets to it."""
    calls = []
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(time.monotonic()))
    yield calls
    signal.signal(signal.SIGINT, before)


def press(after):
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_the_first_press_is_answered_before_python_gets_to_its_handler(handled):
    heard = []
    bell = Doorbell(lambda: heard.append(time.monotonic()), lambda: heard.append("second"))
    with bell:
        bell.arm()
        timer = press(0.1)
        busy()
        timer.join()
    assert len(heard) == 1
    assert heard[0] < handled[0]


def test_the_second_press_leaves(handled):
    left, told = [], []
    bell = Doorbell(lambda: told.append(1), lambda: told.append(2), leave=left.append)
    with bell:
        bell.arm()
        timers = [press(0.05), press(0.25)]
        busy()
        for timer in timers:
            timer.join()
        time.sleep(0.1)
    assert told == [1, 2]
    assert left == [130]


def test_a_second_press_leaves_even_if_nothing_can_be_said(handled):
    def cannot():
        raise OSError("no terminal")

    left = []
    bell = Doorbell(lambda: None, cannot, leave=left.append)
    threading.excepthook, before = lambda args: None, threading.excepthook
    try:
        with bell:
            bell.arm()
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
    finally:
        threading.excepthook = before
    assert left == [130]


def test_it_hears_nothing_before_it_is_armed_nor_afterwards(handled):
    heard = []
    bell = Doorbell(lambda: heard.append(1), lambda: heard.append(2))
    with bell:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    assert heard == []
    assert len(handled) == 2


def test_outside_of_the_main_thread_it_does_nothing():
    def enter():
        with Doorbell(lambda: None, lambda: None) as bell:
            bell.arm()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert signal.set_wakeup_fd(-1) == -1
