"""Writes all files atomically, and reports disk errors in one sentence.

A file is written under a temporary name, synced and renamed; then its folder is synced. A study's
files and folders are never links.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from ..errors import StoreError, UnreadableError

PARTIAL = ".partial"  # suffix of a file until it is complete

_SAFE = "all commits are safe; "
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.ENOSYS})
_REFUSALS = _FULL | {errno.EIO, errno.EROFS}
# C++ writers report a status as text: `RESOURCE_EXHAUSTED: Error writing ...
# [os_error_code='28']`.
_STATUS = re.compile(
    r"\b(RESOURCE_EXHAUSTED|DATA_LOSS|PERMISSION_DENIED|UNAVAILABLE|INTERNAL|UNKNOWN|ABORTED"
    r"|FAILED_PRECONDITION|NOT_FOUND|OUT_OF_RANGE)\b"
)
_OS_ERROR = re.compile(r"(?:OS error|os_error_code|errno|Errno)[:=' ]+(\d+)")


def reason(error: BaseException) -> tuple[str, bool] | None:
    """Return the reason for a disk error and whether the disk is full; None for other errors.

    >>> reason(OSError(28, "No space left on device"))
    ('No space left on device', True)
    >>> reason(ValueError("RESOURCE_EXHAUSTED: Error writing x [os_error_code='28']"))
    ('No space left on device', True)
    >>> reason(ValueError("shapes differ")) is None
    True
    """
    number = None
    if isinstance(error, OSError):
        number = error.errno
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


def named_file(error: OSError) -> Path | None:
    """Return the file that a disk error names, if any."""
    if error.filename is None:
        return None
    return Path(os.fsdecode(error.filename))


def has_refused(error: BaseException) -> bool:
    """Return whether a disk is full or failing."""
    return isinstance(error, OSError) and error.errno in _REFUSALS


@contextmanager
def telling(path: Path, doing: str = "writing", kept: str = _SAFE) -> Generator[None]:
    """Turn a disk error into one sentence (`StoreError`) about a file or folder."""
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:
        if (found := reason(error)) is None:
            raise
        words, full = found
        place, named = path, False
        if isinstance(error, OSError) and isinstance(error.filename, str | Path):
            place, named = Path(str(error.filename).removesuffix(PARTIAL)), True
        cure = _CURES[full]
        if full and (folder := full_temporary_folder(place, sure=named)):
            place, cure = folder, TEMPORARY_CURE
        raise StoreError(
            f"{words} while {doing} {place}; {kept}{cure} and run the same command again"
        ) from error


_CURES = {True: "free space", False: "fix that"}  # by whether the disk is full
TEMPORARY_CURE = "free space in this temporary folder, or name another one with TMPDIR=FOLDER,"
TEMPORARY_PREFIX = "hpo-"  # of the names of our temporary folders
_PROBE_BYTES = 65_536


def full_temporary_folder(place: Path | None = None, sure: bool = False) -> Path | None:
    """Return the temporary folder if it is full, else None.

    `place` is the file that could not be written (None if unknown); `sure` means that the error
    named it. The folder is also probed, because some errors name no file and libraries write
    temporary files, too.
    """
    folder = Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).absolute()
    if place is not None and _is_ours(place.absolute(), folder):
        return folder
    if sure or not _is_full(folder):
        return None
    if place is not None and _is_full(_folder_of(place)):
        return None
    return folder


@contextmanager
def temporary_folder(purpose: str) -> Generator[Path]:
    """Yield a folder that is deleted at the end; errors name the temporary disk if it is full."""
    with tempfile.TemporaryDirectory(prefix=f"{TEMPORARY_PREFIX}{purpose}-") as name:
        try:
            yield Path(name)
        except OSError as error:  # before the deletion frees space
            place = named_file(error)
            folder = full_temporary_folder(place, sure=place is not None)
            if error.errno not in _FULL or folder is None:
                raise
            text = f"{error.strerror} while writing {folder}; {TEMPORARY_CURE}"
            raise StoreError(f"{text} and run the same command again") from error


def _is_ours(place: Path, temporary: Path) -> bool:
    if not place.is_relative_to(temporary):
        return False
    inside = place.relative_to(temporary).parts
    return bool(inside) and inside[0].startswith(TEMPORARY_PREFIX)


def _folder_of(place: Path) -> Path:
    return next(path for path in (place, *place.absolute().parents) if path.is_dir())


def _is_full(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
    except OSError as error:
        return error.errno in _FULL
    return False


def check_readable(path: Path) -> None:
    """Raise `UnreadableError` if the file exists but this user cannot read it."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError as error:
        who = "ask its owner, or run the command as that user"
        text = f"{error.strerror}: you cannot read {path}; {who}"
        raise UnreadableError(text) from error
    except OSError:
        return  # opening it later reports the error


def is_plain_folder(path: Path) -> bool:
    """Return whether the folder exists; `StoreError` if it is a link or not a folder."""
    return _is_plain(path, stat.S_ISDIR, "folder")


def is_plain_file(path: Path) -> bool:
    """Return whether the file exists; `StoreError` if it is a link or not a file."""
    return _is_plain(path, stat.S_ISREG, "file")


def _is_plain(path: Path, expected: Callable[[int], bool], word: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(mode):
        raise StoreError(
            f"{path} is a link; a study needs a real {word} there: replace the link with its "
            "target, or remove it"
        )
    if not expected(mode):
        raise _misplaced_error(path, word)
    return True


def _misplaced_error(path: Path, word: str) -> StoreError:
    return StoreError(f"{path} is not a {word}, but a study needs one there; move it")


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file without blocking and return its descriptor; `StoreError` for links and pipes."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            is_plain_file(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _misplaced_error(path, "file")
    return descriptor


def read_text(path: Path) -> str:
    with os.fdopen(open_plain(path), encoding="utf-8") as file:
        return file.read()


def files_below(folder: Path) -> list[Path]:
    """Return all files in a folder and its subfolders, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def sha256_of(path: Path) -> str:
    with os.fdopen(open_plain(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Sync a file's content, or a folder's directory entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Sync a folder, its contents and its directory entry to disk."""
    with telling(path):
        for folder, _, files in os.walk(path):
            for name in (*files, "."):
                sync(Path(folder) / name)
        sync(path.parent)


def rename(partial: Path, path: Path) -> None:
    """Rename a file or folder and sync the new name to disk."""
    partial.replace(path)
    sync(path.parent)


@contextmanager
def replacing(path: Path, kept: str = _SAFE) -> Generator[Path]:
    """Yield a temporary path; afterwards its file is synced and replaces `path`."""
    partial = path.with_name(f"{path.name}{PARTIAL}")
    with telling(path, kept=kept):
        with suppress(FileNotFoundError):
            if not stat.S_ISLNK(os.lstat(partial).st_mode):
                is_plain_file(partial)
            partial.unlink()  # left by a crash, or a link
        try:
            yield partial
            sync(partial)
            rename(partial, path)
        except BaseException:
            with suppress(OSError):  # report the first error
                partial.unlink()
            raise


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file; after a crash, it is either the old file or the new one."""
    with replacing(path) as partial, partial.open("xb") as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


@contextmanager
def output(path: Path, mode: str = "w") -> Generator[IO[Any]]:
    """Open a file named by the user, following links; atomic except for devices and pipes."""
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "")
    with telling(path, kept=""):
        target = path.resolve()
        special = target.exists() and not target.is_file()
        with (
            nullcontext(target) if special else replacing(target, kept="") as place,
            open(place, mode, encoding=encoding, newline=newline) as file,
        ):
            yield file


def make_folder(path: Path, kept: str = _SAFE) -> None:
    """Create a folder and its missing parents; sync their entries to disk."""
    if is_plain_folder(path):
        return
    with telling(path, kept=kept):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            sync(folder.parent)


def new_folder(path: Path) -> Path:
    """Create a folder, which must not exist yet, and its missing parents; return it."""
    make_folder(path.parent)
    with telling(path):
        path.mkdir()
    return path


def delete_folder(path: Path) -> None:
    """Delete a folder and its contents, if it exists."""
    if is_plain_folder(path):
        with telling(path, "deleting"):
            shutil.rmtree(path)


def delete_file(path: Path) -> None:
    """Delete a file, if it exists."""
    if is_plain_file(path):
        with telling(path, "deleting"):
            path.unlink()


def delete_copies(folder: Path, name: str = "*") -> None:
    """Delete incomplete copies that were left by processes that have ended."""
    for path in folder.glob(f".{name}{PARTIAL}-*"):
        pid = path.name.rpartition("-")[2]
        if pid.isdecimal() and not _is_alive(int(pid)):
            delete_folder(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # owned by another user
        pass
    return True


def link_folder(source: Path, target: Path) -> None:
    """Copy a folder whose files never change, by hard links if the file system supports them."""
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
    """Copy a folder atomically to a new or empty one; `more` maps names to folders to add."""
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
            shutil.rmtree(partial, ignore_errors=True)  # report the first error
            raise
