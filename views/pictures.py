"""Pictures and films as files: blocking over load, training curves, networks, spectra."""

from __future__ import annotations

import importlib
import importlib.util
import math
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.envs.optical.topology import PLACES
from ..errors import ConfigError, MissingExtraError
from ..files.atomic_files import output, rename, sync, telling
from .charts.model import GROUNDS, STYLES
from .network_results import Compared

if TYPE_CHECKING:
    from ..core.envs.optical.topology import Topology

_DPI = 120


def require_matplotlib(purpose: str) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot", purpose)


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure without a window; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path, kind: str = "png") -> None:
    with output(path, "wb") as file:
        figure.savefig(file, dpi=_DPI, format=kind)


def draw_curves(path: Path, results: Sequence[Compared], title: str) -> None:
    """Draw service blocking over load, one line per rule, with its 95% interval."""
    figure = new_figure(8.0, 5.0)
    axes = figure.subplots()
    axes.set_xlabel("load, Erlang")
    axes.set_ylabel("service blocking probability")
    axes.set_title(title, fontsize="medium")
    axes.grid(alpha=0.3)
    for item in results:
        seen = item.evaluation
        summaries = [seen.service_summary(at) for at in range(len(seen.loads))]
        means = np.array([s.mean if s.mean > 0.0 else np.nan for s in summaries])
        label = Path(item.rule).name or item.rule  # a policy's rule is the path of its folder
        [line] = axes.plot(seen.loads, means, marker=".", label=label)
        low, high = np.array([(s.low, s.high) for s in summaries]).T
        axes.fill_between(seen.loads, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    if any(np.any(item.evaluation.blocked > 0) for item in results):
        axes.set_yscale("log")
    axes.legend(fontsize="small")
    save_figure(figure, path)


_PACKAGES = {".gif": "PIL", ".mp4": "imageio_ffmpeg"}
_NAMES = {"PIL": "pillow", "imageio_ffmpeg": "imageio-ffmpeg"}
_MOST_PICTURES = 5000
_FASTEST_GIF = 50.0  # pictures per second; viewers slow down faster films
_FREE, _TAKEN, _CHANGED = (255, 255, 255), (31, 95, 153), (194, 87, 26)


def check_film(path: str) -> None:
    """Refuse a film that could not be written, before it is made."""
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
    """Write a film, whole or not at all, and return its number of pictures.

    Pictures are uint8 [height, width, 3] of one size; `rate` is pictures per second.
    """
    pictures = islice(pictures, _MOST_PICTURES)
    first = next(pictures)  # so that an error in drawing comes before any writing
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
    counted = _Counted(_even_sided(picture) for picture in pictures)
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
    def __init__(self, pictures: Iterator[np.ndarray]):
        self._pictures, self.count = pictures, 0

    def __next__(self) -> np.ndarray:
        picture = next(self._pictures)
        self.count += 1
        return picture


def _even_sided(picture: np.ndarray) -> np.ndarray:
    """Return a picture with an even height and width, as the format needs them."""
    more = [(0, side % 2) for side in picture.shape[:2]]
    return np.pad(picture, [*more, (0, 0)], mode="edge")


def spectrum_pictures(occupancy: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a picture of each spectrum: one row per link, one column per slot.

    Occupancy is bool [requests, links, S]. Slots of the last request are orange, others blue.
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


_WIDE, _HIGH = 8.0, 7.0  # inches of one panel
_LETTERS_OF_TITLE = 88
_ROUNDS = 1_000
_MOST_NAMES = 48
_INK, _SOFT, _RULE, _GROUND = (GROUNDS[name][0] for name in ("ink", "soft", "rule", "ground"))


def draw_network(path: Path, topology: Topology, occupancy: np.ndarray | None, title: str) -> None:
    """Draw a network with its link lengths and next to it the slots in use, bool [links, S]."""
    panels = 1 if occupancy is None else 2
    figure = new_figure(_WIDE * panels, _height(topology) if occupancy is None else _HIGH)
    figure.suptitle(fill(title, _LETTERS_OF_TITLE * panels), color=_INK)
    axes = np.atleast_1d(figure.subplots(1, panels))
    _draw_links(figure, axes[0], topology)
    if occupancy is not None:
        _draw_spectrum(axes[1], topology, occupancy)
    save_figure(figure, path)


def _height(topology: Topology) -> float:
    """Return the height in inches at which a network fills the width of its picture."""
    wide, high = np.ptp(layout(topology)[0], axis=0)
    return float(np.clip(_WIDE * (high + 0.12 * wide) / max(1.12 * wide, 1e-9) + 0.9, 4.0, _HIGH))


def layout(topology: Topology) -> tuple[np.ndarray, bool]:
    """Return the places of the nodes, [N, 2], and whether they are those on the map.

    Without a map the lengths of links decide (Kamada and Kawai 1989).
    """
    known = PLACES.get(topology.name, {})
    if all(node in known for node in topology.node_ids):
        degrees = np.array([known[int(node)] for node in topology.node_ids])
        middle = (degrees[:, 0].min() + degrees[:, 0].max()) / 2
        return np.stack([degrees[:, 1] * math.cos(math.radians(middle)), degrees[:, 0]], 1), True
    import networkx as nx

    graph = topology.graph().to_undirected()
    for _, _, link in graph.edges(data=True):
        link["drawn"] = link["km"] ** 0.5  # true lengths would crowd the short links
    places = nx.kamada_kawai_layout(graph, weight="drawn")
    return np.array([places[node] for node in topology.node_ids]), False


def _draw_links(figure: Any, axes: Any, topology: Topology) -> None:
    at, on_map = layout(topology)
    letters = max(4.5, 9.0 * math.sqrt(25 / max(25, topology.num_nodes)))
    words = [str(node) for node in topology.node_ids]
    axes.set_axis_off()
    axes.set_aspect("equal", adjustable="box")
    both = "a link for each direction" if topology.directed else "one link for both directions"
    where = "on the map" if on_map else "placed by length"
    axes.set_title(
        f"{topology.num_nodes} nodes {where}, {topology.num_links} links, {both}; km",
        fontsize="medium", color=_SOFT,
    )  # fmt: skip
    span = np.ptp(at, axis=0).max() or 1.0
    middle = (at.min(0) + at.max(0)) / 2
    half = np.maximum(np.ptp(at, axis=0) / 2, 0.1 * span) + 0.06 * span
    axes.set_xlim(middle[0] - half[0], middle[0] + half[0])
    axes.set_ylim(middle[1] - half[1], middle[1] + half[1])
    nodes = [
        axes.annotate(
            word, place, fontsize=letters, ha="center", va="center", color=_INK, zorder=4,
            bbox={"boxstyle": "round,pad=0.3", "fc": "#dbe9f6", "ec": STYLES["c0"][0],
                  "lw": 0.8},
        )
        for word, place in zip(words, at, strict=True)
    ]  # fmt: skip
    figure.draw_without_rendering()  # from here on the panel and the boxes have their sizes
    renderer = figure.canvas.get_renderer()
    sizes = np.array([(box.width, box.height) for box in (_box(n, renderer) for n in nodes)])
    ends = axes.transData
    at = ends.inverted().transform(_without_overlap(ends.transform(at), sizes))
    for node, place in zip(nodes, at, strict=True):
        node.xy = tuple(place)
        node.set_position(place)
    shown: dict[tuple[int, int], float] = {}
    for source, destination, km in topology.links:  # both directions are one line
        shown.setdefault((min(source, destination), max(source, destination)), km)
    for source, destination in shown:
        axes.plot(*at[[source, destination]].T, color="#9aa4af", linewidth=1.1, zorder=1)
    _label_links(figure, axes, at, shown, nodes, letters)


def _box(words: Any, renderer: Any) -> Any:
    """Return the extent of an annotation's box in pixels."""
    words.update_positions(renderer)
    words.update_bbox_position_size(renderer)
    return words.get_bbox_patch().get_window_extent(renderer)


def _without_overlap(pixels: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return places [N, 2] at which no two boxes overlap, near the given ones.

    Pairs that overlap are pushed apart along the side that needs less; a few hundred rounds do
    for the shipped networks.
    """
    at = pixels.copy()
    least = (sizes[:, None] + sizes[None, :]) / 2
    pairs = np.triu(np.ones((len(at), len(at)), bool), 1)
    for _ in range(_ROUNDS):
        gap = at[:, None] - at[None, :]
        deep = least - np.abs(gap)
        touching = np.argwhere(pairs & (deep > 0.01).all(axis=2))
        if not len(touching):
            break
        for one, other in touching:
            side = int(np.argmin(deep[one, other]))
            sign = 1.0 if gap[one, other, side] >= 0 else -1.0
            push = sign * (deep[one, other, side] / 2 + 0.1)
            at[one, side] += push
            at[other, side] -= push
    return at


def _label_links(
    figure: Any, axes: Any, at: np.ndarray, shown: dict[tuple[int, int], float],
    nodes: list[Any], letters: float,
) -> None:  # fmt: skip
    """Write the lengths of links where there is room, those of long links first."""
    renderer = figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    taken = [_box(node, renderer) for node in nodes]
    for (source, destination), km in sorted(
        shown.items(), key=lambda item: -np.linalg.norm(at[item[0][0]] - at[item[0][1]])
    ):
        for share in (0.5, 0.38, 0.62, 0.27, 0.73):
            label = axes.annotate(
                f"{km:g}", at[source] + share * (at[destination] - at[source]),
                fontsize=max(5.0, 0.75 * letters), ha="center", va="center", color=_SOFT,
                bbox={"boxstyle": "round,pad=0.1", "fc": _GROUND, "ec": "none"}, zorder=2,
            )  # fmt: skip
            box = _box(label, renderer)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0
            if inside and box.y1 <= frame.y1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            label.remove()


def _draw_spectrum(axes: Any, topology: Topology, occupancy: np.ndarray) -> None:
    axes.imshow(occupancy, aspect="auto", interpolation="nearest", cmap="Blues", vmin=0, vmax=1)
    ids = topology.node_ids
    names = [f"{ids[source]}-{ids[destination]}" for source, destination, _ in topology.links]
    every = -(-len(names) // _MOST_NAMES)
    axes.set_yticks(range(0, len(names), every), names[::every], fontsize=6)
    axes.set_xlabel("slot", color=_SOFT)
    axes.set_ylabel("link", color=_SOFT)
    axes.set_title(f"slots in use: {occupancy.mean():.1%}", fontsize="medium", color=_SOFT)
