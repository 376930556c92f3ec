"""A terminal that is closed while something still writes to it."""

import os
import pty
import subprocess
import sys

import pytest

CODE = """\
import sys
from hpo.views.terminal.console import let_go_of_terminal
print("ready", flush=True)
sys.stdin.readline()
if sys.argv[1] == "let go":
    let_go_of_terminal()
print("nobody reads this", flush=True)
print("nor this", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize(("argument", "is_fine"), [("let go", True), ("hold on", False)])
def test_output_to_a_closed_terminal_is_discarded(argument, is_fine):
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", CODE, argument], stdin=subprocess.PIPE, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    told = b""
    while not told.endswith(b"\n"):  # the terminal may hand the line over in two pieces
        told += os.read(ours, 100)
    assert told.startswith(b"ready")
    os.close(ours)
    child.communicate(b"\n", timeout=120)
    assert (child.returncode == 0) is is_fine
