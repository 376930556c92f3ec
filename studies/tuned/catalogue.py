"""The files of tuned configurations, and their names.

Those of the working directory (`results/tuned`, where `scripts/tuned` writes) come before those of
the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...environments.registry import full_id
from ...errors import ConfigError, UnknownNameError
from .record import Record, read_record

PLACE = Path("results") / "tuned"
PREFIX = "tuned:"  # in place of a study file: `hpo train tuned:CartPole-v1`


def shipped() -> Path:
    return Path(__file__).parents[2] / PLACE


def folders(place: Path | None = None) -> list[Path]:
    """Return the folders to search, the first one first; only `place` if given."""
    if place is not None:
        return [place]
    return list(dict.fromkeys(path.resolve() for path in (PLACE, shipped()) if path.is_dir()))


def file_name(name: str) -> str:
    """Return the file of a name.

    >>> file_name("gym:LunarLander-v3")
    'gym-LunarLander-v3.yaml'
    """
    return name.replace(":", "-").replace("/", "-") + ".yaml"


def record_files(where: Sequence[Path]) -> dict[str, Path]:
    """Return file stem -> file, sorted by name; the first folder wins."""
    found: dict[str, Path] = {}
    for folder in where:
        for path in folder.glob("*.yaml"):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def known_record(env: str) -> Record | None:
    path = _path_of(env, folders())
    return None if path is None else read_record(path)


def find_record(name: str, place: Path | None = None) -> Record:
    path = _path_of(name, folders(place))
    if path is not None:
        return read_record(path)
    files = record_files(folders(place))
    if not files:
        raise ConfigError(f"no tuned configuration in {place or PLACE}; make one", tuned=True)
    raise UnknownNameError("tuned configuration", name, files)


def _path_of(name: str, where: Sequence[Path]) -> Path | None:
    files = record_files(where)
    stems = (file_name(word).removesuffix(".yaml") for word in (name, full_id(name)))
    return next((files[stem] for stem in stems if stem in files), None)
