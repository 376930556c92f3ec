"""Published networks of `topologies.ini`: links as `u-v:km ...`, and places of nodes, by name."""

from __future__ import annotations

from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path

_FILE = ConfigParser(interpolation=None)
_FILE.read_string(Path(__file__).with_name("topologies.ini").read_text("utf-8"))


def _places(name: str) -> dict[int, tuple[float, float]]:
    text = _FILE[name]["places"]
    if text in _FILE:
        return _places(text)
    found: dict[int, tuple[float, float]] = {}
    for entry in text.split():
        node, place = entry.split(":")
        latitude, longitude = place.split(",")
        found[int(node)] = (float(latitude), float(longitude))
    return found


TABLES: Mapping[str, str] = {name: _FILE[name]["links"] for name in _FILE.sections()}
"""Network -> its links."""
PLACES: Mapping[str, Mapping[int, tuple[float, float]]] = {
    name: _places(name) for name in _FILE.sections() if "places" in _FILE[name]
}
"""Network -> node -> (latitude, longitude), in degrees."""
