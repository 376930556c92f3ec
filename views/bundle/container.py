"""A zip with one form: stored members, fixed attributes, nothing between or after them.

The names, sizes and CRCs fix every other byte, so one changed byte anywhere is found, and no member
can be a link, be compressed, or lead out of the folder.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from ...errors import StoreError
from ...files.atomic_files import make_folder, output
from ...files.plain_data import reading
from ...studies.user_code import is_inside

_LOCAL, _CENTRAL = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_DAY, _MODE, _BLOCK = 0x21, 0o100644 << 16, 1 << 20  # 1980-01-01; a plain file
_MOST_MEMBERS, _MOST_BYTES = 2_000, 2**31  # so that no field needs zip64
_NAME = re.compile(r"[ -~]+")


def pack(files: Mapping[str, Path], path: Path) -> None:
    """Write files, in this order, into a new zip; `StoreError` for names or sizes beyond it."""
    if (
        len(files) > _MOST_MEMBERS
        or sum(one.stat().st_size for one in files.values()) > _MOST_BYTES
    ):
        raise StoreError(f"a bundle has at most 2 GiB and {_MOST_MEMBERS:,} files; this is more")
    with output(path, "wb") as zipped:
        entries: list[tuple[str, int, int]] = []
        for name, file in files.items():
            _check_name(name, entries)
            size, crc = file.stat().st_size, 0
            with file.open("rb") as source:
                for block in iter(lambda: source.read(_BLOCK), b""):
                    crc = zlib.crc32(block, crc)
                zipped.write(_local(name, size, crc))
                source.seek(0)
                for block in iter(lambda: source.read(_BLOCK), b""):
                    zipped.write(block)
            entries.append((name, size, crc))
        zipped.writelines(part for _, part in _directory(entries))


def unpack(path: Path, folder: Path) -> dict[str, str]:
    """Extract a bundle; return member -> sha256. `StoreError` names what is not as written."""
    entries: list[tuple[str, int, int]] = []
    sums: dict[str, str] = {}
    with reading(path, "the bundle"), path.open("rb") as zipped:
        if (total := path.stat().st_size) > _MOST_BYTES + (_MOST_BYTES >> 4):
            raise StoreError(f"{path} has {total:,} bytes; bundles are smaller than 2 GiB")
        while (head := zipped.read(4)) == b"PK\3\4":
            if len(entries) == _MOST_MEMBERS:
                raise StoreError(f"{path} has more than {_MOST_MEMBERS:,} members")
            where = f"after {entries[-1][0]}" if entries else "at its start"
            head += _read(zipped, _LOCAL.size - 4, path, f"in the header {where}")
            *_, method, _, _, crc, packed, size, length, _ = _LOCAL.unpack(head)
            raw = _read(zipped, length, path, f"in the header {where}")
            name = raw.decode("ascii", "backslashreplace")
            try:
                _check_name(name, entries)
            except StoreError as error:
                raise StoreError(f"{path}: {error}") from error
            if method or packed != size:
                raise StoreError(f"{path}: {name} is compressed; members of a bundle are stored")
            if head + raw != _local(name, size, crc):
                raise StoreError(f"{path}: the header of {name} is not as hpo writes it")
            entries.append((name, size, crc))
            sums[name] = _extract(zipped, folder / name, path, entries[-1])
        if not entries:
            raise StoreError(f"{path} is not a bundle: it does not start with a zip member")
        zipped.seek(-len(head), 1)
        for name, part in _directory(entries):
            if zipped.read(len(part)) != part:
                raise StoreError(f"{path} is damaged: {name} in its list of members changed")
        if zipped.read(1):
            raise StoreError(f"{path} is damaged: there is something after the end of the zip")
    return sums


def _extract(zipped: IO[bytes], to: Path, path: Path, entry: tuple[str, int, int]) -> str:
    name, left, crc = entry
    found, summed = 0, hashlib.sha256()
    make_folder(to.parent)
    with to.open("xb") as file:
        while left:
            block = _read(zipped, min(left, _BLOCK), path, f"in {name}")
            found, left = zlib.crc32(block, found), left - len(block)
            summed.update(block)
            file.write(block)
    if found != crc:
        raise StoreError(f"{path} is damaged: {name} changed since it was written (CRC)")
    return summed.hexdigest()


def _read(zipped: IO[bytes], size: int, path: Path, where: str) -> bytes:
    found = zipped.read(size)
    if len(found) < size:
        raise StoreError(f"{path} is incomplete: it ends {where}")
    return found


def _check_name(name: str, before: list[tuple[str, int, int]]) -> None:
    plain = is_inside(name) and _NAME.fullmatch(name) and PurePosixPath(name).as_posix() == name
    if not plain:
        raise StoreError(f"{name[:200]!r} is not a plain path inside the folder of a bundle")
    for other, _, _ in before:
        low, known = name.casefold(), other.casefold()
        if low == known or low.startswith(f"{known}/") or known.startswith(f"{low}/"):
            raise StoreError(f"two members have the place of {name}")


def _local(name: str, size: int, crc: int) -> bytes:
    fields = (20, 0, 0, 0, _DAY, crc, size, size, len(name), 0)
    return _LOCAL.pack(b"PK\3\4", *fields) + name.encode("ascii", "replace")


def _directory(entries: list[tuple[str, int, int]]) -> Iterator[tuple[str, bytes]]:
    """Yield (what it is about, bytes) of everything after the members."""
    start = size_of_list = 0
    for name, size, crc in entries:
        fields = (0x0314, 20, 0, 0, 0, _DAY, crc, size, size, len(name), 0, 0, 0, 0, _MODE, start)
        part = _CENTRAL.pack(b"PK\1\2", *fields) + name.encode()
        yield name, part
        start, size_of_list = start + len(_local(name, size, crc)) + size, size_of_list + len(part)
    count = len(entries)
    yield "the end", _END.pack(b"PK\5\6", 0, 0, count, count, size_of_list, start, 0)
