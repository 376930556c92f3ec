"""The one door to the files that `hpo` writes: whole or not at all, on disk, refusals in words.

A file is written beside its place, brought to disk, renamed, and its folder brought to disk; what
the disk refuses becomes one sentence. Places that belong to a study are never links.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from ..errors import StoreError

PARTIAL = ".partial"
"""What the name of a file ends with until it is whole."""

_SAFE = "what was committed is safe; "
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS})
_REFUSALS = _FULL | {errno.EIO, errno.EROFS}
# Writers in C++ say it in words: `RESOURCE_EXHAUSTED: Error writing ... [os_error_code='28']`.
_STATUS = re.compile(
    r"\b(RESOURCE_EXHAUSTED|DATA_LOSS|PERMISSION_DENIED|UNAVAILABLE|INTERNAL|UNKNOWN|ABORTED"
    r"|FAILED_PRECONDITION|NOT_FOUND|OUT_OF_RANGE)\b"
)
_OS_ERROR = re.compile(r"(?:OS error|os_error_code|errno|Errno)[:=' ]+(\d+)")


# ---------------------------------------------------------------------- what a disk refuses


def reason(error: BaseException) -> tuple[str, bool] | None:
    """Return why the disk refused and whether it is full; None if the error is another matter.

    >>> reason(OSError(28, "No space left on device"))
    ('No space left on device', True)
    >>> reason(ValueError("RESOURCE_EXHAUSTED: Error writing x [os_error_code='28']"))
    ('No space left on device', True)
    >>> reason(ValueError("shapes differ")) is None
    True
    """
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        text = str(error)
        found = _OS_ERROR.search(text)
        if found is None and "RESOURCE_EXHAUSTED" in text:
            number = errno.ENOSPC
        elif found is not None and (isinstance(error, OSError) or _STATUS.search(text)):
            number = int(found[1])
        elif not isinstance(error, OSError) and not _STATUS.match(text):
            return None
    if number is None:
        return " ".join(str(error).split())[:200] or type(error).__name__, False
    return os.strerror(number), number in _FULL


def has_refused(error: BaseException) -> bool:
    """Whether an error says that a disk is full or fails, whatever was tried with it."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


@contextmanager
def telling(path: Path, doing: str = "writing", kept: str = _SAFE) -> Generator[None]:
    """Turn what the disk refuses inside into one sentence about a file or folder.

    Args:
        path: what is written.
        doing: the verb.
        kept: what is not lost; empty for what does not belong to a study.

    Raises:
        StoreError: instead of an `OSError`, or of a writer's error that stands for one.
    """
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        found = reason(error)
        if found is None:
            raise
        words, full = found
        place = path
        if isinstance(error, OSError) and isinstance(error.filename, str | Path):
            place = Path(error.filename)
        cure = "free space" if full else "mend that"
        raise StoreError(
            f"{words} while {doing} {place}; {kept}{cure} and run the same command again"
        ) from error


# ---------------------------------------------------------------------- what lies somewhere


def is_plain_folder(path: Path) -> bool:
    """Whether there is a folder; False if there is nothing.

    Raises:
        StoreError: a link or something else has its place.
    """
    return _is_plain(path, stat.S_ISDIR, "folder")


def is_plain_file(path: Path) -> bool:
    """Whether there is a file; False if there is nothing.

    Raises:
        StoreError: a link, a pipe or something else has its place.
    """
    return _is_plain(path, stat.S_ISREG, "file")


def _is_plain(path: Path, expected: Callable[[int], bool], word: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(mode):
        raise StoreError(
            f"{path} is a link; a study's own {word} must lie in its folder: move what it points "
            "to there, or remove the link"
        )
    if not expected(mode):
        raise StoreError(f"{path} is no {word}, and a study keeps one there; move it away")
    return True


def open_plain(path: Path, flags: int = os.O_RDONLY, mode: int = 0o644) -> int:
    """Open a file that is no link and no pipe, and return its descriptor; never waits.

    Raises:
        StoreError: it is a link, a pipe or a folder.
        OSError: it is not there or cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            is_plain_file(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path} is no file, and a study keeps one there; move it away")
    return descriptor


def read_text(path: Path) -> str:
    """Return the text of a file that is no link and no pipe.

    Raises:
        StoreError: it is one of these.
        OSError: it cannot be read.
        UnicodeDecodeError: it is no text.
    """
    with os.fdopen(open_plain(path), encoding="utf-8") as file:
        return file.read()


# ---------------------------------------------------------------------- writing


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's list of names, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Bring a folder with all that is in it to disk, and its name in the folder above."""
    with telling(path):
        for folder, _, files in os.walk(path):
            for name in (*files, "."):
                sync(Path(folder) / name)
        sync(path.parent)


def rename(partial: Path, path: Path) -> None:
    """Let a file or folder that is on disk take its place, and bring the name to disk."""
    partial.replace(path)
    sync(path.parent)


@contextmanager
def replacing(path: Path, kept: str = _SAFE) -> Generator[Path]:
    """Yield where to write a file that takes the place of `path` once it is whole and on disk.

    Raises:
        StoreError: the disk refuses; the file that was there is there still.
    """
    partial = path.with_name(f"{path.name}{PARTIAL}")
    with telling(path, kept=kept):
        with suppress(FileNotFoundError):
            if not stat.S_ISLNK(os.lstat(partial).st_mode):
                is_plain_file(partial)
            partial.unlink()  # what a crash left, or a link that nobody may write through
        try:
            yield partial
            sync(partial)
            rename(partial, path)
        except BaseException:
            with suppress(OSError):  # the first error is the one to tell
                partial.unlink()
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file; a crash leaves the old one or the new one."""
    with replacing(path) as partial, partial.open("xb") as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text; a crash leaves the old one or the new one."""
    write_bytes(path, text.encode())


@contextmanager
def output(path: Path, mode: str = "w") -> Generator[IO[Any]]:
    """Open a file that the user named: whole or not at all where it can be renamed.

    Links are followed, and devices and pipes are written to.

    Raises:
        StoreError: the disk refuses.
    """
    encoding = None if "b" in mode else "utf-8"
    newline = None if "b" in mode else ""
    with telling(path, kept=""):
        target = path.resolve()
        if target.exists() and not target.is_file():
            with open(target, mode, encoding=encoding, newline=newline) as file:
                yield file
            return
        with (
            replacing(target, kept="") as partial,
            open(partial, mode, encoding=encoding, newline=newline) as file,
        ):
            yield file


# ---------------------------------------------------------------------- folders


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there; bring the names to disk.

    Raises:
        StoreError: a link or a file has its place, or the disk refuses.
    """
    if is_plain_folder(path):
        return
    with telling(path):
        missing = [path]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            sync(folder.parent)


def new_folder(path: Path) -> Path:
    """Make a folder that must not be there, in one that may be made for it; return it.

    Raises:
        StoreError: something has its place, or the disk refuses.
    """
    make_folder(path.parent)
    with telling(path):
        path.mkdir()
    return path


def delete_folder(path: Path) -> None:
    """Delete a folder of ours with all that is in it, if it is there.

    Raises:
        StoreError: a link or a file has its place, or the disk refuses.
    """
    if is_plain_folder(path):
        with telling(path, "deleting"):
            shutil.rmtree(path)


def delete_file(path: Path) -> None:
    """Delete a file of ours, if it is there.

    Raises:
        StoreError: a link, a folder or a pipe has its place, or the disk refuses.
    """
    if is_plain_file(path):
        with telling(path, "deleting"):
            path.unlink()


def delete_copies(folder: Path, name: str = "*") -> None:
    """Delete copies that a process which has ended left half made.

    Args:
        folder: where they were to stand.
        name: of what was to be copied there.

    Raises:
        StoreError: the disk refuses.
    """
    for path in folder.glob(f".{name}{PARTIAL}-*"):
        pid = path.name.rpartition("-")[2]
        if pid.isdecimal() and not _runs(int(pid)):
            delete_folder(path)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def link_folder(source: Path, target: Path) -> None:
    """Let a new folder hold the files of another one, which nobody changes.

    They are hard links, or copies where the file system has none; StoreError: the disk refuses.
    """
    with telling(target):
        shutil.copytree(source, target, copy_function=_link_or_copy)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def copy_folder(source: Path, target: Path, more: Mapping[str, Path] | None = None) -> None:
    """Copy a folder to a place where nothing or an empty folder is, whole or not at all.

    Args:
        source: what to copy.
        target: the place.
        more: folders to copy into it by the name they get there.

    Raises:
        StoreError: the disk refuses.
    """
    partial = target.with_name(f".{target.name}{PARTIAL}-{os.getpid()}")
    delete_copies(target.parent, target.name)
    with telling(target, kept=""):
        try:
            shutil.copytree(source, partial)
            for name, other in (more or {}).items():
                shutil.copytree(other, partial / name)
            sync_tree(partial)
            rename(partial, target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)  # the first error is the one to tell
            raise
