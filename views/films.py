"""Pictures as a GIF or MP4, the one door to Pillow and imageio-ffmpeg."""

from __future__ import annotations

import importlib
import importlib.util
import math
import warnings
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ..disk import rename, sync, telling
from ..errors import ConfigError, MissingExtraError

__all__ = ["check_film", "spectrum_pictures", "write_film"]

_PACKAGES = {".gif": "PIL", ".mp4": "imageio_ffmpeg"}
_NAMES = {"PIL": "pillow", "imageio_ffmpeg": "imageio-ffmpeg"}
_MOST_PICTURES = 5000
_FASTEST_GIF = 50.0  # pictures a second; viewers slow down what is faster
_FREE, _TAKEN, _CHANGED = (255, 255, 255), (31, 95, 153), (194, 87, 26)


def check_film(path: str) -> None:
    """Refuse a film that could not be written, before it is made.

    Raises:
        ConfigError: the suffix names neither format, or the folder does not exist.
        MissingExtraError: the package that writes it is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _PACKAGES:
        known = " or ".join(_PACKAGES)
        raise ConfigError(f"--video is {path!r}; its name must end in {known}")
    folder = Path(path).parent
    if not folder.is_dir():
        raise ConfigError(
            f"--video is {path!r}; there is no folder {str(folder)!r}, make it first"
        )
    package = _PACKAGES[suffix]
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(_NAMES[package], "video", f"hpo eval --video {path}")


def write_film(path: str, rate: float, pictures: Iterator[np.ndarray]) -> int:
    """Write a film, and return its number of pictures.

    The file appears when it is whole; a link is followed.

    Args:
        path: whose suffix names the format.
        rate: pictures a second.
        pictures: uint8 [height, width, 3], all of one size; at most 5,000 are taken.

    Raises:
        StoreError: the disk refuses.
    """
    pictures = islice(pictures, _MOST_PICTURES)
    first = next(pictures)  # an error in drawing comes before anything is written
    whole = Path(path).resolve()
    part = whole.with_name(f".{whole.stem}.partial{whole.suffix}")
    write = _write_gif if whole.suffix.lower() == ".gif" else _write_mp4
    try:
        count = write(part, rate, chain([first], pictures))
        sync(part)
        rename(part, whole)
    except OSError:  # only: running out of memory while drawing is not the disk's fault
        with telling(whole, kept=""):
            raise
    finally:
        part.unlink(missing_ok=True)
    return count


def _write_gif(path: Path, rate: float, pictures: Iterator[np.ndarray]) -> int:
    from PIL import Image

    every = math.ceil(rate / _FASTEST_GIF)
    counted = _Counted(pictures)
    images = (Image.fromarray(picture) for picture in islice(counted, 0, None, every))
    next(images).save(
        path, format="GIF", save_all=True, append_images=images, loop=0,
        duration=round(1000 * every / rate),
    )  # fmt: skip
    return counted.count


def _write_mp4(path: Path, rate: float, pictures: Iterator[np.ndarray]) -> int:
    ffmpeg: Any = importlib.import_module("imageio_ffmpeg")
    counted = _Counted(_even(picture) for picture in pictures)
    first = next(counted)
    size = (first.shape[1], first.shape[0])
    writer: Any = ffmpeg.write_frames(path, size, fps=rate, macro_block_size=2)
    with warnings.catch_warnings():  # jax fears forks; this one does nothing but start ffmpeg
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        writer.send(None)
    try:
        for picture in chain([first], counted):
            writer.send(np.ascontiguousarray(picture))
    finally:
        writer.close()
    return counted.count


class _Counted(Iterator[np.ndarray]):
    """Pictures as they are, counted."""

    def __init__(self, pictures: Iterator[np.ndarray]):
        self._pictures, self.count = pictures, 0

    def __next__(self) -> np.ndarray:
        picture = next(self._pictures)
        self.count += 1
        return picture


def _even(picture: np.ndarray) -> np.ndarray:
    """Return a picture with an even height and width, as the format needs them."""
    more = [(0, side % 2) for side in picture.shape[:2]]
    return np.pad(picture, [*more, (0, 0)], mode="edge")


def spectrum_pictures(occupancy: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a picture of each spectrum: a row a link, a column a slot.

    Taken slots are blue, those that the last request took orange.

    Args:
        occupancy: bool [requests, links, S].
    """
    _, links, slots = occupancy.shape
    width, height = max(2, 960 // slots), max(4, min(24, 720 // links))
    before = occupancy[:1]
    for now in occupancy:
        colours = np.full((links, slots, 3), _FREE, np.uint8)
        colours[now] = _TAKEN
        colours[now & ~before[0]] = _CHANGED
        picture = np.kron(colours, np.ones((height, width, 1), np.uint8))
        picture[::height] = 225  # a line between links
        yield picture
        before = now[None]
