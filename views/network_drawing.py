"""Networks as pictures: nodes where they lie on the map if that is known, and slots in use.

No label lies outside of its box, of the picture, or on another one: boxes grow with their words,
nodes that would overlap are moved apart, lengths that find no room are left out.
"""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.envs.optical.topology_places import PLACES
from .charts.look import GROUNDS, STYLES
from .pictures import new_figure, save_figure

if TYPE_CHECKING:
    from ..core.envs.optical.topology import Topology

__all__ = ["draw_network", "layout"]

_WIDE, _HIGH = 8.0, 7.0  # inches of one panel
_LETTERS_OF_TITLE = 88
_ROUNDS = 1_000
_MOST_NAMES = 48
_INK, _SOFT, _RULE, _GROUND = (GROUNDS[name][0] for name in ("ink", "soft", "rule", "ground"))


def draw_network(path: Path, topology: Topology, occupancy: np.ndarray | None, title: str) -> None:
    """Draw a network with its link lengths and, beside it, which slots are in use.

    Args:
        path: of the PNG.
        topology: the network.
        occupancy: bool [links, S] in link order, or None for the network alone.
        title: above the picture.
    """
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
    """Return where to draw the nodes, [N, 2], and whether that is where they lie on the map.

    On the map a degree of longitude is as long as in the middle of the network. Else nodes are
    placed by the lengths of their links (Kamada and Kawai 1989).
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
    at = ends.inverted().transform(_apart(ends.transform(at), sizes))
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


def _apart(pixels: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return places at which no two boxes overlap, each as near as it can be to where it was.

    Pairs that overlap are pushed apart along the side that needs less; a few hundred rounds do
    for the networks that are shipped.

    Args:
        pixels: middles of boxes, [N, 2].
        sizes: their widths and heights, [N, 2].
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
    figure: Any,
    axes: Any,
    at: np.ndarray,
    shown: dict[tuple[int, int], float],
    nodes: list[Any],
    letters: float,
) -> None:
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
