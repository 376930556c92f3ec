"""The terminal itself: what it echoes while something is drawn in place."""

import os
import pty
import sys
import termios

from hpo.views.terminal.console import hush_keys


def test_key_echo_is_disabled_while_drawing_and_restored(monkeypatch):
    keyboard, screen = pty.openpty()
    with os.fdopen(screen) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(screen)
        assert before[3] & termios.ECHOCTL
        undo = hush_keys()
        assert not termios.tcgetattr(screen)[3] & termios.ECHOCTL
        undo()
        assert termios.tcgetattr(screen) == before
    os.close(keyboard)


def test_hush_keys_does_nothing_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    hush_keys()()
