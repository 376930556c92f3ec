"""A zip file in a canonical form: stored members, fixed attributes, no gaps.

Names, sizes and CRCs determine every other byte. Therefore, a change to any byte is detected, and
no member can be a link, be compressed, or be extracted outside the folder.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath

from ...errors import HpoError, StoreError
from ...files.atomic_files import output
from ...files.plain_data import parse_json, reading
from ...studies.user_code import is_inside

Entry = tuple[str, int, int]  # name, size, CRC
_LOCAL, _CENTRAL = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_DAY, _MODE = 0x21, 0o100644 << 16  # 1980-01-01; a regular file
_MOST_MEMBERS, _MOST_BYTES = 2_000, 2**30
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, NotImplementedError,
    RuntimeError, EOFError, OSError,
)  # fmt: skip
_PRINTABLE = re.compile(r"[ -~]+")


def pack(files: Mapping[str, Path], path: Path) -> None:
    """Write files to a new zip, in this order."""
    entries: list[Entry] = []
    if len(files) > _MOST_MEMBERS or sum(f.stat().st_size for f in files.values()) > _MOST_BYTES:
        raise StoreError(
            f"a bundle has at most 1 GiB and {_MOST_MEMBERS:,} files; this one has more"
        )
    with output(path, "wb") as zipped:
        for name, file in files.items():
            content = file.read_bytes()
            _check_name(name, entries)
            entries.append((name, len(content), zlib.crc32(content)))
            zipped.write(_local_header(*entries[-1]) + content)
        zipped.writelines(part for _, part in _central_directory(entries))


def unpack(path: Path, folder: Path) -> dict[str, str]:
    """Extract a bundle; return the sha256 of each member.

    Raises a `StoreError` that names the changed part.
    """
    with reading(path, "bundle"):
        if path.stat().st_size > 2 * _MOST_BYTES:
            raise StoreError(f"{path} is too large to be a bundle")
        content = path.read_bytes()
    try:
        members = _as_written(path, content)
    except StoreError as error:
        packed_again = _packed_again(path, content)
        if packed_again:
            raise StoreError(packed_again) from error
        raise
    for name, data in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return {name: sha256(data).hexdigest() for name, data in members.items()}


def _packed_again(path: Path, content: bytes) -> str:
    """Name the changed members if a different program wrote this zip, otherwise return "".

    Without this check, the first member would be reported, because its header is the first to
    differ.
    """
    try:
        found = _foreign_members(content)
    except (*_UNREADABLE, HpoError):
        return ""
    if found is None:
        return ""
    written, sums = found
    changed = [name for name, given in written.items() if sums.get(name, given) != given]
    missing = [name for name in written if name not in sums]
    added = [name for name in sums if name not in written]
    for state in (
        _state_sentence(changed, "changed"),
        _state_sentence(missing, "missing"),
        _state_sentence(added, "added"),
    ):
        if state:
            return f"{path} was repacked by another program: {state} since hpo wrote it"
    text = f"{path} was repacked by another program; its members are unchanged"
    return f"{text}, but only the original file can be verified"


def _foreign_members(content: bytes) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return a foreign zip's checksums: those in the manifest, and those of the members.

    Returns None if the zip is not foreign, or is too large.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        listed = found.infolist()
        if sum(map(_is_foreign, listed)) < min(2, len(listed)):
            return None  # a byte in one of the headers was changed
        if len(listed) > _MOST_MEMBERS or sum(one.file_size for one in listed) > _MOST_BYTES:
            return None
        files = [one for one in listed if not one.is_dir()]
        sums = {one.filename: sha256(found.read(one)).hexdigest() for one in files}
        manifest = parse_json(found.read("bundle.json").decode())
    sums.pop("bundle.json", None)
    return dict(manifest["members"]), sums


def _state_sentence(names: Sequence[str], what: str) -> str:
    """Return a sentence about the state of some members, naming the first; "" if none."""
    if not names:
        return ""
    named, verb = names[0], "is"
    if len(names) > 1:
        named, verb = f"{named} and {len(names) - 1} more", "are"
    if what == "changed":
        return f"{named} changed"
    return f"{named} {verb} {what}"


def _is_foreign(one: zipfile.ZipInfo) -> bool:
    """Return whether a member's form differs from the form that `pack` writes."""
    ours = (zipfile.ZIP_STORED, (1980, 1, 1, 0, 0, 0), _MODE)
    return (one.compress_type, one.date_time, one.external_attr) != ours


def _as_written(path: Path, content: bytes) -> dict[str, bytes]:
    at = 0
    entries: list[Entry] = []
    members: dict[str, bytes] = {}
    while content[at : at + 4] == b"PK\3\4" or _listed_name(content, at):
        if len(content) < (start := at + _LOCAL.size) or len(entries) == _MOST_MEMBERS:
            raise StoreError(f"{path} ends within a header, or has too many members")
        *_, method, _, _, crc, packed, size, length, _ = _LOCAL.unpack(content[at:start])
        name = content[start : start + length].decode("ascii", "backslashreplace")
        listed = _listed_name(content, at) or name
        _check_name(name, entries, f"{path}: the member {listed}: ")
        if method or packed != size:
            raise StoreError(f"{path}: {listed} is compressed, but bundle members must not be")
        head = _local_header(name, size, crc)
        if listed != name or not content.startswith(head, at):
            raise StoreError(f"{path} is damaged: the header of {listed} ({name}) changed")
        at += len(head)
        data = content[at : at + size]
        if len(data) < size or zlib.crc32(data) != crc:
            raise StoreError(f"{path} is damaged: {listed} changed or is truncated (CRC)")
        entries.append((name, size, crc))
        members[name] = data
        at += size
    for name, part in _central_directory(entries):
        if not content.startswith(part, at):
            raise StoreError(f"{path} is damaged: {name} in its list of members changed")
        at += len(part)
    if at != len(content):
        raise StoreError(f"{path} is damaged: it has data after its end")
    return members


def _listed_name(content: bytes, at: int) -> str:
    """Return the name at a position in the list of members; "" if there is none."""
    start = int.from_bytes(content[-6:-2], "little")
    entry = re.escape(struct.pack("<2I", _MODE, at)) + rb"([ -~]+?)PK[\1\5]"
    found = re.search(entry, content[start:])
    if found is None:
        return ""
    return found[1].decode()


def _check_name(name: str, before: Sequence[Entry], prefix: str = "") -> None:
    plain = is_inside(name) and _PRINTABLE.fullmatch(name)
    if not plain or PurePosixPath(name).as_posix() != name:
        raise StoreError(f"{prefix}{name[:200]!r} is not a plain path inside a bundle's folder")
    low = name.casefold()
    for other in (entry[0].casefold() for entry in before):
        if low == other or low.startswith(f"{other}/") or other.startswith(f"{low}/"):
            raise StoreError(f"{prefix}two members are named {name}")


def _local_header(name: str, size: int, crc: int) -> bytes:
    fields = (20, 0, 0, 0, _DAY, crc, size, size, len(name), 0)
    return _LOCAL.pack(b"PK\3\4", *fields) + name.encode()


def _central_directory(entries: Sequence[Entry]) -> Iterator[tuple[str, bytes]]:
    """Yield (description, bytes) for everything after the members."""
    at, parts = 0, list[bytes]()
    for name, size, crc in entries:
        fields = (0x0314, 20, 0, 0, 0, _DAY, crc, size, size, len(name), 0, 0, 0, 0, _MODE, at)
        parts.append(_CENTRAL.pack(b"PK\1\2", *fields) + name.encode())
        yield name, parts[-1]
        at += len(_local_header(name, size, crc)) + size
    count = len(entries)
    yield "the end", _END.pack(b"PK\5\6", 0, 0, count, count, sum(map(len, parts)), at, 0)
