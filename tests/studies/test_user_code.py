import os
import sys
import threading

import pytest

from hpo.errors import ConfigError
from hpo.studies.user_code import import_user_code, user_module


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of user code; what it puts into this process is taken out again."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("uc_", "hpo_imports_"))]:
        del sys.modules[name]


def test_imported_files_run_once_and_may_import_each_other(folder):
    (folder / "uc_log.py").write_text("ran = []\n")
    (folder / "uc_one.py").write_text("import uc_log\nuc_log.ran.append(__name__)\n")
    (folder / "uc_two.py").write_text("import uc_one, uc_log\nuc_log.ran.append(__name__)\n")
    import_user_code(["uc_two.py", "uc_one.py"], folder)
    import_user_code(["uc_one.py", "uc_two.py"], str(folder))
    assert sys.modules["uc_log"].ran == ["uc_one", "uc_two"]


def test_file_named_like_a_package_does_not_shadow_package(folder):
    (folder / "json.py").write_text("mine = True\n")
    import_user_code(["json.py"], folder)
    import json

    assert not hasattr(json, "mine")
    assert sys.modules["hpo_imports_json"].mine
    assert sys.path[-1] == str(folder)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import math\n\ndef f():\n    return 1 / 0\n\nf()\n", ":4: ZeroDivisionError: division"),
        ("x = 1\ndef f(:\n", ":2: SyntaxError: invalid syntax"),
        ("import uc_no_such_module\n", ":1: ModuleNotFoundError: No module named"),
        ("\nraise SystemExit\n", ":2: SystemExit"),
        ("\nraise BaseException('odd')\n", ":2: BaseException: odd"),
        ("import json\njson.loads('{')\n", ":2: JSONDecodeError: "),
        (
            "from hpo.core.envs.registry import register\nregister('CartPole-v1', dict)\n",
            ":2: ConfigError: environment 'CartPole-v1' is already registered",
        ),
    ],
)
def test_import_errors_report_file_and_line(folder, text, told):
    if "hpo.core" in text:
        pytest.importorskip("jax")
    (folder / "uc_bad.py").write_text(text)
    with pytest.raises(ConfigError) as raised:
        import_user_code(["uc_bad.py"], folder)
    assert str(raised.value).startswith(f"{folder}/uc_bad.py{told}")
    assert "uc_bad" not in sys.modules
    with pytest.raises(ConfigError):  # tried again, not taken for done
        import_user_code(["uc_bad.py"], folder)


def test_imported_file_cannot_replace_stdout(folder):
    (folder / "uc_silent.py").write_text("import sys\nsys.stdout = sys.stderr = None\n")
    kept = sys.stdout, sys.stderr
    import_user_code(["uc_silent.py"], folder)
    assert (sys.stdout, sys.stderr) == kept


def test_edit_within_one_second_is_detected(folder, monkeypatch):
    """Python takes bytecode for current where seconds and size of the file are the same."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path, seen = folder / "uc_edited.py", []
    for value in (1, 2):
        path.write_text(f"VALUE = {value}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        import_user_code(["uc_edited.py"], folder)
        seen.append(sys.modules.pop("uc_edited").VALUE)
    assert seen == [1, 2]


def test_fixed_file_is_imported_again_with_its_imports(tmp_path):
    (tmp_path / "mended_part.py").write_text("VALUE = 1\n")
    (tmp_path / "mended_file.py").write_text("from mended_part import VALUE\n")
    import_user_code(["mended_file.py"], tmp_path)
    first = user_module("mended_file")
    import_user_code(["mended_file.py"], tmp_path)
    assert user_module("mended_file") is first and first.VALUE == 1
    (tmp_path / "mended_part.py").write_text("VALUE = 22\n")
    import_user_code(["mended_file.py"], tmp_path)
    assert user_module("mended_file").VALUE == 22
    (tmp_path / "mended_file.py").write_text("raise ValueError('taken')\n")
    with pytest.raises(
        ConfigError, match=r"ValueError: taken; the file changed .* restart Python"
    ):
        import_user_code(["mended_file.py"], tmp_path)


def test_redefined_environment_replaces_the_previous_one(tmp_path):
    from hpo.core.envs import registry
    from hpo.core.plan import EnvPlan

    text = """
from hpo.core.envs.navigators import Navigators
from hpo.core.envs.registry import register
class Mended(Navigators):
    size = {}
register("mended-env", Mended)
"""
    try:
        for size in (1, 22):  # of other length: compiled files are told apart by second and size
            (tmp_path / "mended_env.py").write_text(text.format(size))
            import_user_code(["mended_env.py"], tmp_path)
            assert registry.make(EnvPlan("mended-env")).size == size
        with pytest.raises(ConfigError, match="is already registered"):
            registry.register("mended-env", lambda: None)
    finally:
        registry._REGISTERED.pop("mended-env", None)
        registry.make.cache_clear()


def test_threads_share_a_file_that_one_of_them_runs(folder):
    """As `hpo.run` in several threads; a module that is half run would lack its classes."""
    file = folder / "uc_slow.py"
    file.write_text("import time\n\ntime.sleep(0.5)\nPART = 1\n")
    found = []

    def load_part():
        import_user_code([file.name], folder)
        found.append(getattr(user_module("uc_slow"), "PART", None))

    threads = [threading.Thread(target=load_part) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1, 1, 1]
