from pathlib import Path

import jax
import pytest

from hpo.machine.software import default_cache, enable_compilation_cache

_DIRECTORY, _LEAST = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"


@pytest.fixture
def config():
    before = {name: jax.config.values[name] for name in (_DIRECTORY, _LEAST)}
    yield jax.config
    for name, value in before.items():
        jax.config.update(name, value)


def test_default_compile_cache_is_per_user_and_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = default_cache()
    assert here.parent == tmp_path / "hpo" / "jax"
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.machine", lambda: "another")
        there = default_cache()
    assert there.parent == here.parent and there != here
    assert default_cache() == here
    for relative in ("", "cache"):  # the standard says to ignore what is not absolute
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert default_cache().parent == Path.home() / ".cache" / "hpo" / "jax"
    assert not any(tmp_path.iterdir())


def test_compile_cache_is_enabled_unless_user_chose_another(config, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", raising=False)
    config.update(_DIRECTORY, None)
    assert enable_compilation_cache() == default_cache()
    assert config.values[_DIRECTORY] == str(default_cache())
    assert config.values[_LEAST] == 0.2
    config.update(_DIRECTORY, str(tmp_path / "mine"))
    assert enable_compilation_cache() == tmp_path / "mine"
    assert config.values[_DIRECTORY] == str(tmp_path / "mine")


def test_compile_cache_keeps_time_threshold_of_user(config, monkeypatch):
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "7")
    config.update(_LEAST, 7.0)
    enable_compilation_cache()
    assert config.values[_LEAST] == 7.0
