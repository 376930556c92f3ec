"""What a shell is told at a Tab, and the code that makes it ask."""

import os
import shutil
import subprocess
import sys

import pytest

from hpo.cli import main

pytest.importorskip("argcomplete")
HPO = [sys.executable, "-c", "import sys; from hpo.cli import main; sys.exit(main())"]


def completed(line, folder):
    """Return what stands for the last word of a line, as argcomplete writes it for a shell."""
    out = folder / "out"
    asked = {
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
    }
    subprocess.run(HPO, env={**os.environ, **asked}, cwd=folder, check=True, timeout=120)
    return [word.strip() for word in out.read_text().splitlines()]


@pytest.mark.parametrize(
    "line, words",
    [
        ("hpo rep", ["replay", "report"]),
        ("hpo init CartPole", ["CartPole-v1"]),
        ("hpo knobs vf_lr_s", ["vf_lr_schedule"]),
        ("hpo top --stu", ["--study"]),
        ("hpo watch t", ["tiny"]),
        ("hpo serve --ho", ["--host"]),
        ("hpo top --study t", ["tiny"]),
        ("hpo plot hi", ["history"]),
    ],
)
def test_tab_completes_commands_and_studies(line, words, tmp_path):
    (tmp_path / "results" / "tiny").mkdir(parents=True)
    (tmp_path / "results" / "tiny" / "journal.sqlite").touch()
    (tmp_path / "results" / "notes").mkdir()
    assert completed(line, tmp_path) == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid_for_each_shell(shell, tmp_path, capsys):
    assert main(["completion", shell]) == 0
    code = capsys.readouterr().out
    assert "_ARGCOMPLETE" in code and "hpo" in code
    if shutil.which(shell):
        (tmp_path / "code").write_text(code)
        subprocess.run([shell, "-n", str(tmp_path / "code")], check=True)


def test_completion_without_argcomplete_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setitem(sys.modules, "argcomplete.shell_integration", None)
    assert main(["completion", "bash"]) == 2
    assert "[completion]'" in capsys.readouterr().err
