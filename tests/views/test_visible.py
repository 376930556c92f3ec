"""Text of anybody's files reaches a terminal without its control characters."""

import ast
import io
from pathlib import Path

import pytest

import hpo
from hpo.cli import main
from hpo.views.formatting import Listing
from hpo.views.output import echo, shown
from hpo.views.terminal.console import console, print_listing

HOSTILE = "a\x1b]0;mine\x07\x1b[2J\rb\x9b31m\u202ec"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def clean(text):
    return all(char == "\n" or char.isprintable() for char in text)


def test_control_characters_are_escaped():
    assert shown(HOSTILE) == r"a\x1b]0;mine\x07\x1b[2J\rb\x9b31m\u202ec"
    assert shown("a\tb\nä 日本 ▁█") == "a\tb\nä 日本 ▁█"


def test_echo_escapes_for_terminals_but_not_for_files():
    terminal, file = Terminal(), io.StringIO()
    echo(HOSTILE, file=terminal)
    echo(HOSTILE, file=file)
    assert clean(terminal.getvalue()) and file.getvalue() == f"{HOSTILE}\n"


def test_console_tables_escape_control_characters(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    out = console(terminal)
    out.print(HOSTILE, soft_wrap=True)
    print_listing(out, Listing(["name", HOSTILE], [[HOSTILE * 5, "1"]], [False, True]))
    assert clean(terminal.getvalue()) and "mine" in terminal.getvalue()


@pytest.mark.parametrize("words", [["top", "--study", HOSTILE], ["check", f"{HOSTILE}.yaml"]])
def test_error_messages_escape_control_characters(capsys, words):
    assert main(words) == 2
    assert clean(capsys.readouterr().err)


def test_views_print_only_through_echo():
    root = Path(hpo.__file__).parent
    for path in [root / "cli.py", *sorted((root / "views").rglob("*.py"))]:
        if path.name == "output.py":
            continue
        calls = (
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        )
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert "print" not in names, f"{path.name} prints by itself; call echo"
