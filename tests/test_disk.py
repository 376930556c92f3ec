"""The door for files: whole or not at all, on disk in the right order, one sentence a refusal."""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from hpo.cli import main
from hpo.errors import StoreError, UnreadableError
from hpo.files import atomic_files
from hpo.store.journal import Journal, sqlite_errors


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError(errno.EIO, "x"), ("Input/output error", False)),
        (OSError(errno.EDQUOT, "x"), ("Disk quota exceeded", True)),
        (OSError("Error writing bytes: [errno 28] No space"), ("No space left on device", True)),
        (OSError("odd\nwords"), ("odd words", False)),
        (ValueError("RESOURCE_EXHAUSTED: no more"), ("No space left on device", True)),
        (ValueError("UNKNOWN: x [os_error_code='5']"), ("Input/output error", False)),
        (RuntimeError("INTERNAL: lost"), ("INTERNAL: lost", False)),
        (ValueError("shapes [2] and [3] differ, errno 5 of them"), None),
        (RuntimeError("another matter"), None),
    ],
)
def test_disk_errors_are_classified(error: Exception, found: tuple[str, bool] | None) -> None:
    assert atomic_files.reason(error) == found


def test_non_disk_errors_are_reraised_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shapes"), atomic_files.telling(tmp_path):
        raise ValueError("shapes differ")


def test_atomic_write_syncs_file_before_rename_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def syncs(descriptor: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def renames(self: Path, target: Path) -> Path:
        seen.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "replace", renames)
    atomic_files.write_text(tmp_path / "a", "words")
    assert seen == ["file", "rename", "folder"]
    seen.clear()
    atomic_files.make_folder(tmp_path / "b" / "c")
    assert seen == ["folder", "folder"]
    (tmp_path / "b" / "c" / "x").write_text("x")
    seen.clear()
    atomic_files.sync_tree(tmp_path / "b")
    assert seen == ["folder", "file", "folder", "folder"]


@pytest.mark.parametrize("where", ["sync", "rename"])
def test_failed_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = tmp_path / "study.yaml"
    atomic_files.write_text(path, "old")
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, where, full)
        with pytest.raises(StoreError) as told:
            atomic_files.write_text(path, "new")
    assert str(told.value) == (
        f"No space left on device while writing {path}; all commits are safe; free space "
        "and run the same command again"
    )
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["study.yaml"]
    atomic_files.write_text(path, "new")
    assert path.read_text() == "new"


def test_writes_and_deletes_do_not_follow_symlinks(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("theirs")
    home = tmp_path / "home"
    home.mkdir()
    (home / "table.partial").symlink_to(kept / "file")
    (home / "table").symlink_to(kept / "file")
    (home / "folder").symlink_to(kept)
    atomic_files.write_text(home / "table", "ours")
    assert (kept / "file").read_text() == "theirs" and not (home / "table").is_symlink()
    for act in (
        atomic_files.delete_folder,
        atomic_files.make_folder,
        atomic_files.is_plain_folder,
    ):
        with pytest.raises(StoreError, match="folder is a link"):
            act(home / "folder")
    with pytest.raises(StoreError, match="is a link"):
        atomic_files.delete_file(home / "folder")
    (home / "link").symlink_to(kept / "file")
    with pytest.raises(StoreError, match="is a link"):
        atomic_files.open_plain(home / "link")
    assert (kept / "file").read_text() == "theirs"


def test_named_pipe_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        with pytest.raises(StoreError, match="pipe is not a file"):
            atomic_files.open_plain(tmp_path / "pipe", flags)
    os.mkfifo(tmp_path / "table.partial")
    with pytest.raises(StoreError, match="partial is not a file"):
        atomic_files.write_text(tmp_path / "table", "x")
    assert not (tmp_path / "table").exists()
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder is not a file"):
        atomic_files.open_plain(tmp_path / "folder")


def test_user_output_may_be_a_symlink_or_device(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    for path in (tmp_path / "link.csv", Path(os.devnull)):
        with atomic_files.output(path) as file:
            file.write("new")
    assert (tmp_path / "real.csv").read_text() == "new" and (tmp_path / "link.csv").is_symlink()
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    missing = atomic_files.output(tmp_path / "none" / "x")
    with pytest.raises(StoreError, match="No such file or directory while writing"), missing:
        pass


def test_folder_copy_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, seeds = tmp_path / "source", tmp_path / "seeds"
    for folder in (source, seeds):
        folder.mkdir()
        (folder / "policy").write_text(folder.name)
    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "sync_tree", full)
        with pytest.raises(StoreError, match="No space"):
            atomic_files.copy_folder(source, tmp_path / "copy")
    assert sorted(os.listdir(tmp_path)) == ["seeds", "source"]
    atomic_files.copy_folder(source, tmp_path / "copy", {"seeds": seeds})
    assert (tmp_path / "copy" / "policy").read_text() == "source"
    assert (tmp_path / "copy" / "seeds" / "policy").read_text() == "seeds"


def test_partial_copies_of_dead_processes_are_deleted(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    half = tmp_path / f".copy.partial-{ended.pid}"
    other = tmp_path / f".another.partial-{ended.pid}"
    runs = tmp_path / f".copy.partial-{os.getppid()}"
    strange = tmp_path / ".copy.partial-x"
    for folder in (half, other, runs, strange, tmp_path / "source"):
        folder.mkdir()
        (folder / "policy").write_text("half")
    atomic_files.copy_folder(tmp_path / "source", tmp_path / "copy")
    assert not half.exists() and other.exists() and runs.exists() and strange.exists()
    atomic_files.delete_copies(tmp_path)
    assert not other.exists() and runs.exists() and strange.exists()
    atomic_files.delete_copies(tmp_path / "none")


@pytest.fixture
def full_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files is on a full disk, all others are not."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(atomic_files, "_is_full", lambda place: place.is_relative_to(folder))
    return folder


def test_full_temporary_folder_is_named_by_a_command(
    full_temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.ENOSPC, "No space left on device", str(full_temporary / "hpo-x/study")),
    ):

        def fails(*_: object, error: OSError = error) -> None:
            raise error

        monkeypatch.setattr("hpo.views.commands.catalogue.do_knobs", fails)
        assert main(["knobs"]) == 2
        said = capsys.readouterr().err
        assert f"No space left on device while writing {full_temporary}; free space" in said
        assert "TMPDIR=FOLDER" in said and "stdout" not in said and said.count("\n") == 1


def test_full_stdout_is_named_if_temporary_folder_has_space(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hpo.views.commands.catalogue.do_knobs", full)
    assert main(["knobs"]) == 2
    assert "while reading or writing stdout" in capsys.readouterr().err


def test_missing_temporary_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object) -> None:
        text = "No usable temporary directory found in ['/a', '/b']"
        raise FileNotFoundError(errno.ENOENT, text)

    monkeypatch.setattr("hpo.views.commands.catalogue.do_knobs", none)
    assert main(["knobs"]) == 2
    assert "directory found in ['/a', '/b']; name one with TMPDIR=" in capsys.readouterr().err


def test_full_temporary_folder_is_named_and_cleaned_up(full_temporary: Path) -> None:
    words = f"while writing {full_temporary}; free space in this temporary folder"
    with pytest.raises(StoreError, match=re.escape(words)), atomic_files.temporary_folder("x"):
        full()
    assert not list(full_temporary.iterdir())


def test_full_temporary_folder_is_not_blamed_on_the_study(
    full_temporary: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study"
    words = re.escape(f"writing {full_temporary}; all commits")
    with pytest.raises(StoreError, match=words), atomic_files.telling(study):
        full()
    words = re.escape(f"writing {study}/x; all commits")
    with pytest.raises(StoreError, match=words), atomic_files.telling(study):
        raise OSError(errno.ENOSPC, "No space left on device", str(study / "x"))
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    words = re.escape(f"while using {full_temporary}; all commits")
    with pytest.raises(StoreError, match=words), sqlite_errors(study / "journal.sqlite"):
        raise error


def test_a_journal_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "results/study"
    folder.mkdir(parents=True)
    (folder / "journal.sqlite").write_bytes(b"x")
    opens = os.open

    def refuses(path: Any, *more: Any, **named: Any) -> int:
        if str(path).endswith("journal.sqlite"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opens(path, *more, **named)

    monkeypatch.setattr(os, "open", refuses)
    with pytest.raises(
        UnreadableError, match=r"^Permission denied: you cannot read .*journal\.sqlite; "
    ):
        Journal(folder)
    assert main(["top"]) == 2
    said = capsys.readouterr().err
    assert "Permission denied" in said and "damaged" not in said
    assert main(["list"]) == 0
    listed = capsys.readouterr()
    assert "unreadable" in listed.out and "damaged" not in listed.out + listed.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_files_without_read_permission_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    (tmp_path / "x").chmod(0)
    with pytest.raises(UnreadableError, match="Permission denied"):
        atomic_files.check_readable(tmp_path / "x")
