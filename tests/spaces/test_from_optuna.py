"""Storages that are none of Optuna's, or damaged, are refused in a sentence."""

import os
import random
import sqlite3

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hpo.errors import ConfigError
from hpo.spaces.via_optuna import open_storage, read_study


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a database and of a journal with a study each."""
    home = tmp_path_factory.mktemp("optuna")
    storages = {
        ".db": f"sqlite:///{home / 'good.db'}",
        ".log": JournalStorage(JournalFileBackend(str(home / "good.log"))),
    }
    for storage in storages.values():
        study = optuna.create_study(storage=storage, study_name="a", direction="maximize")
        study.optimize(lambda trial: trial.suggest_float("gamma", 0.9, 0.99), n_trials=3)
    return {end: (home / f"good{end}").read_bytes() for end in storages}


def refused(path, **options):
    with pytest.raises(ConfigError) as told:
        open_storage(str(path), **options) if options else read_study(str(path))
    assert str(path) in str(told.value) and "\n" not in str(told.value)
    return str(told.value)


@pytest.mark.parametrize("end", [".db", ".log"])
def test_intact_optuna_storage_is_read(whole, tmp_path, end):
    (tmp_path / f"x{end}").write_bytes(whole[end])
    assert len(read_study(str(tmp_path / f"x{end}")).trials) == 3


def test_non_optuna_files_are_refused(whole, tmp_path):
    contents = {
        "text.db": b"hello" * 500,
        "empty.db": b"",
        "cut.db": whole[".db"][:5000],
        "bytes.log": b"\0\xff\xfe" * 50,
        "other.log": b"[1, 2]\n{}\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name)
    for name, table in (("other.db", "things"), ("fake.db", "studies(a); CREATE TABLE trials")):
        connection = sqlite3.connect(tmp_path / name)
        connection.executescript(f"CREATE TABLE {table}(b);")
        connection.close()
    assert "has no Optuna study" in refused(tmp_path / "other.db")
    assert "cannot read it" in refused(tmp_path / "fake.db")
    (tmp_path / "folder.db").mkdir()
    os.mkfifo(tmp_path / "pipe.log")
    for name in ("folder.db", "pipe.log"):
        assert "is not a file" in refused(tmp_path / name)
        assert "is not a file" in refused(tmp_path / name, make=True)
    assert "no such file" in refused(tmp_path / "none.db")
    assert "folder does not exist" in refused(tmp_path / "none" / "x.db", make=True)
    before = (tmp_path / "other.db").read_bytes()
    assert "has no Optuna study" in refused(tmp_path / "other.db", make=True)
    assert (tmp_path / "other.db").read_bytes() == before


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_storage_is_read_or_refused(whole, tmp_path, seed):
    end, rng = (".db", ".log")[seed % 2], random.Random(seed)
    content = bytearray(whole[end])
    for _ in range(20):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path = tmp_path / f"x{end}"
    path.write_bytes(content)
    try:
        read_study(str(path))
    except ConfigError as error:
        assert str(path) in str(error) and "\n" not in str(error)
