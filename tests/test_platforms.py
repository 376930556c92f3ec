"""On a system without Unix's modules every start is one sentence, and nothing is written."""

import subprocess
import sys

import pytest

import hpo
from hpo.cli import main
from hpo.errors import ConfigError

SENTENCE = r"^hpo runs on Linux and macOS; Python on \w+ has no module fcntl, .* use WSL 2"


@pytest.fixture
def no_unix(monkeypatch, tmp_path):
    for module in ("fcntl", "termios"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)


def test_python_api_on_windows_raises_a_clear_error(no_unix):
    with pytest.raises(ConfigError, match=SENTENCE):
        _ = hpo.run
    assert issubclass(ConfigError, hpo.HpoError) and hpo.__version__


def test_commands_on_windows_exit_with_one_line(no_unix, capsys, tmp_path):
    assert main(["list"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and "WSL 2" in printed.err
    assert main(["--help"]) == 0 and "usage: hpo COMMAND" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_platform_check_precedes_unix_only_imports():
    code = (
        "import sys; sys.modules['fcntl'] = sys.modules['termios'] = None; "
        "import hpo.cli; sys.exit(hpo.cli.main(['run', 'study.yaml']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "hpo runs on Linux and macOS" in done.stderr
