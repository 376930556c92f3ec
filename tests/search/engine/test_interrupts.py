"""Signals while a study runs: which ask for a clean end, and which leave at once."""

import os
import signal

import pytest

from hpo.errors import Leave
from hpo.search.engine.interrupts import Interrupts


@pytest.fixture(autouse=True)
def nothing_ignored():
    """However the tests were started: by nohup, or as a job of a script."""
    heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in heard}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_requests_clean_stop_once(number):
    told, before = [], signal.getsignal(number)
    with Interrupts(lambda: told.append(1)) as interrupts:
        assert not interrupts.requested
        send(number)
        assert interrupts.requested and told == [1]
    assert signal.getsignal(number) is before


def test_late_second_sigterm_exits_immediately():
    now, told = [100.0], []
    with Interrupts(lambda: told.append(1), clock=lambda: now[0]) as interrupts:
        for seconds in (100.0, 100.3, 101.9):
            now[0] = seconds
            send(signal.SIGTERM)
        now[0] = 500.0
        send(signal.SIGHUP)
        assert interrupts.requested and told == [1]
        with pytest.raises(Leave):
            send(signal.SIGTERM)


def test_quick_second_sigterm_does_not_exit_but_ctrl_c_does():
    """`timeout` sends SIGTERM to a process and to its group, a shell SIGHUP to its jobs."""
    told = []
    with Interrupts(lambda: told.append(1)) as interrupts:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            send(number)
        assert interrupts.requested and told == [1]
        with pytest.raises(Leave):
            send(signal.SIGINT)


def test_sighup_is_ignored_under_nohup():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        send(signal.SIGHUP)
        assert not interrupts.requested


def test_background_job_receives_ctrl_c():
    """A shell without job control starts it with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts() as interrupts:
        send(signal.SIGINT)
        assert interrupts.requested
