"""Signals while a study runs: which ask for a clean end, and which leave at once."""

import os
import signal

import pytest

from hpo.faults import Leave
from hpo.search.interrupts import Interrupts


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_asks_for_a_clean_end_once(number):
    told, before = [], signal.getsignal(number)
    with Interrupts(lambda: told.append(1)) as interrupts:
        assert not interrupts.requested
        send(number)
        assert interrupts.requested and told == [1]
    assert signal.getsignal(number) is before


def test_only_ctrl_c_leaves_at_once():
    """`timeout` sends SIGTERM to a process and to its group, a shell SIGHUP to its jobs."""
    told = []
    with Interrupts(lambda: told.append(1)) as interrupts:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            send(number)
        assert interrupts.requested and told == [1]
        with pytest.raises(Leave):
            send(signal.SIGINT)


def test_what_was_ignored_from_the_start_stays_ignored():
    """As `nohup` does with SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            send(signal.SIGHUP)
            assert not interrupts.requested
    finally:
        signal.signal(signal.SIGHUP, before)
