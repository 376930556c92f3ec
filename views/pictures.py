"""Writes pictures and videos: blocking against load, training curves, spectra."""

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

from ..errors import ConfigError, MissingExtraError
from ..files.atomic_files import output, rename, sync, telling

_DPI = 120
_PACKAGES = {".gif": "PIL", ".mp4": "imageio_ffmpeg"}
_NAMES = {"PIL": "pillow", "imageio_ffmpeg": "imageio-ffmpeg"}
_MOST_PICTURES = 5000
_FASTEST_GIF = 50.0  # pictures per second; viewers slow down faster films


def require_matplotlib(purpose: str) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot", purpose)


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path, kind: str = "png") -> None:
    """Write a figure; PDF files embed TrueType fonts, and SVG files draw text as outlines.

    Publishers reject the Type 3 fonts that matplotlib embeds by default. Dates are omitted from
    the files, so equal figures give equal files.
    """
    from matplotlib import rc_context

    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    settings: Any = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "hpo"}
    with rc_context(settings), output(path, "wb") as file:
        figure.savefig(file, dpi=_DPI, format=kind, metadata=dates.get(kind))


def check_film(path: str) -> None:
    suffix = Path(path).suffix.lower()
    if suffix not in _PACKAGES:
        known = " or ".join(_PACKAGES)
        raise ConfigError(f"--video is {path!r}; its name must end in {known}")
    folder = Path(path).parent
    if not folder.is_dir():
        raise ConfigError(f"--video is {path!r}; its folder {str(folder)!r} does not exist")
    package = _PACKAGES[suffix]
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(_NAMES[package], "video", f"hpo eval --video {path}")


def write_film(path: str, rate: float, pictures: Iterator[np.ndarray]) -> int:
    """Write a complete video or none, and return its number of frames.

    Frames are uint8 [height, width, 3], all of the same size; `rate` is frames per second.
    """
    pictures = islice(pictures, _MOST_PICTURES)
    first = next(pictures)  # first, so that a drawing error precedes any writing
    whole = Path(path).resolve()
    part = whole.with_name(f".{whole.stem}.partial{whole.suffix}")
    write = _write_gif if whole.suffix.lower() == ".gif" else _write_mp4
    try:
        written = write(part, rate, chain([first], pictures))
        sync(part)
        rename(part, whole)
    except OSError:  # nothing else: running out of memory while drawing is not a disk error
        with telling(whole, kept=""):
            raise
    finally:
        part.unlink(missing_ok=True)
    return written


def _write_gif(path: Path, rate: float, pictures: Iterator[np.ndarray]) -> int:
    from PIL import Image

    every, drawn = math.ceil(rate / _FASTEST_GIF), 0

    def kept() -> Iterator[Any]:
        nonlocal drawn
        for picture in pictures:
            if drawn % every == 0:
                yield Image.fromarray(picture)
            drawn += 1

    images, milliseconds = kept(), round(1000 * every / rate)
    next(images).save(
        path, format="GIF", save_all=True, append_images=images, loop=0, duration=milliseconds
    )
    return drawn


def _write_mp4(path: Path, rate: float, pictures: Iterator[np.ndarray]) -> int:
    ffmpeg: Any = importlib.import_module("imageio_ffmpeg")
    first = _even_sided(next(pictures))
    size = (first.shape[1], first.shape[0])
    writer: Any = ffmpeg.write_frames(path, size, fps=rate, macro_block_size=2)
    with warnings.catch_warnings():  # jax warns about forks; this one only starts ffmpeg
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        writer.send(None)
    sent = 0
    try:
        for picture in chain([first], map(_even_sided, pictures)):
            writer.send(np.ascontiguousarray(picture))
            sent += 1
    finally:
        writer.close()
    return sent


def _even_sided(picture: np.ndarray) -> np.ndarray:
    more = [(0, side % 2) for side in picture.shape[:2]]
    return np.pad(picture, [*more, (0, 0)], mode="edge")
