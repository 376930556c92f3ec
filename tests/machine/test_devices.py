"""How many devices there are, and with which kernels, is settled before jax starts."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from hpo.errors import ConfigError
from hpo.machine.devices import prepare_devices


def child(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process, where jax has not been started."""
    keep = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**keep, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_prepare_devices_creates_at_least_two_cpu_devices():
    code = "from hpo.machine.devices import prepare_devices; print(len(prepare_devices('cpu')))"
    made = child(code)
    assert made.returncode == 0, made.stderr
    assert int(made.stdout) == max(2, os.cpu_count() or 2)


def test_single_cpu_device_already_started_is_refused():
    code = (
        "import jax; jax.devices()\n"
        "from hpo.machine.devices import prepare_devices\n"
        "from hpo.errors import ConfigError\n"
        "try: prepare_devices()\n"
        "except ConfigError as error: print(error)\n"
    )
    assert "JAX_NUM_CPU_DEVICES=2" in child(code).stdout


def test_study_imports_may_create_jax_arrays(tmp_path):
    (tmp_path / "mine.py").write_text("import jax.numpy as jnp\nGOAL = jnp.ones(2)\n")
    code = (
        "import sys\n"
        "from dataclasses import replace\n"
        "from hpo.studies.load import loads\n"
        "from hpo.studies.user_code import run_own_code\n"
        "study = loads('env: CartPole-v1\\nenv_steps: 10k\\nbudget: {trials: 2}\\n')\n"
        "run_own_code(replace(study, imports=('mine.py',), source=sys.argv[1]), 3)\n"
        "import jax; print(len(jax.devices('cpu')))\n"
    ).replace("sys.argv[1]", repr(str(tmp_path)))
    made = child(code, JAX_PLATFORMS="cpu")
    assert (made.returncode, made.stdout) == (0, "3\n"), made.stderr


def test_deterministic_option_sets_xla_flags_before_jax_starts():
    code = (
        "import os\n"
        "from hpo.machine.devices import prepare_devices\n"
        "prepare_devices('auto', deterministic=True)\n"
        "print(os.environ['XLA_FLAGS'])\n"
    )
    assert "xla_gpu_deterministic_ops" in child(code, JAX_PLATFORMS="cpu").stdout


def test_deterministic_option_after_jax_start_is_refused(monkeypatch):
    """Also where the number of host devices needed no change, which jax would have refused."""
    assert len(jax.devices()) >= 2  # jax has started
    monkeypatch.setenv("XLA_FLAGS", "")
    before = jax.config.values["jax_num_cpu_devices"]
    assert prepare_devices("auto", deterministic=True)[0].platform == "cpu"  # they always are
    monkeypatch.setattr(jax, "devices", lambda *_: [SimpleNamespace(platform="gpu")])
    with pytest.raises(ConfigError, match="after jax had started; set the environment variable"):
        prepare_devices("auto", deterministic=True)
    assert os.environ["XLA_FLAGS"] == "" and jax.config.values["jax_num_cpu_devices"] == before
    assert prepare_devices("auto")[0].platform == "gpu"


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("no backend")])
def test_missing_gpu_is_an_error_in_words(error, monkeypatch):
    """Newer jax asserts instead of raising RuntimeError if no NVIDIA GPU is visible."""

    def fail(*_):
        raise error

    monkeypatch.setattr(jax, "devices", fail)
    reason = str(error) or "this machine shows no NVIDIA GPU"
    with pytest.raises(ConfigError, match=f"jax finds no such device: {reason}"):
        prepare_devices("gpu")


STARTS_JAX = """\
import jax.numpy as jnp
from hpo.search.samplers.without_model import RandomSearch
from hpo.search.samplers.registry import register_sampler

GOAL = jnp.ones(2)
register_sampler("mine", RandomSearch)
"""
SHOWN = "\nimport jax; print(len(jax.devices('cpu')))\n"


def test_custom_search_method_may_create_jax_arrays_at_import(tmp_path):
    (tmp_path / "mine.py").write_text(STARTS_JAX)
    (tmp_path / "s.yaml").write_text(
        "env: CartPole-v1\nenv_steps: 10k\nbudget: {trials: 2}\nimports: [mine.py]\n"
        "search: {method: mine}\nspace: {gamma: {min: 0.9, max: 0.99, distribution: uniform}}\n"
    )
    code = f"from hpo.studies.load import load; load({str(tmp_path / 's.yaml')!r})" + SHOWN
    made = child(code, JAX_PLATFORMS="cpu")
    assert (made.returncode, made.stdout) == (0, f"{max(2, os.cpu_count())}\n"), made.stderr


def test_policy_imports_may_create_jax_arrays(tmp_path):
    (tmp_path / "imports").mkdir()
    (tmp_path / "imports" / "mine.py").write_text("import jax.numpy as jnp\nGOAL = jnp.ones(2)\n")
    document = {name: {} for name in ("config", "env_params", "eval_params", "about")}
    document |= {"env": {"id": "mine", "keys": {}}, "eval_env": {"id": "mine", "keys": {}}}
    document |= {"features": [], "format": 1}
    (tmp_path / "policy.json").write_text(json.dumps({**document, "imports": ["mine.py"]}))
    code = (
        "import hpo\n"
        f"try: hpo.load_policy({str(tmp_path)!r}, imports=True)\n"
        "except hpo.HpoError: pass  # it is no whole policy\n"
        "import sys; assert 'mine' in sys.modules\n"
    )
    made = child(code + SHOWN, JAX_PLATFORMS="cpu")
    assert (made.returncode, made.stdout) == (0, f"{max(2, os.cpu_count())}\n"), made.stderr
