"""Networks as pictures: where nodes are drawn, and that no label lies on another."""

import math

import numpy as np
import pytest

from hpo.core.envs.optical.topology import PLACES, TABLES, make_topology, topology_names
from hpo.views.pictures import draw_network, layout

PUBLISHED = sorted(PLACES)


def great_circle(one, other):
    (a, b), (c, d) = (map(math.radians, place) for place in (one, other))
    half = math.sin((c - a) / 2) ** 2 + math.cos(a) * math.cos(c) * math.sin((d - b) / 2) ** 2
    return 12_742 * math.asin(math.sqrt(half))


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_node_of_a_network_has_a_place_on_earth(name):
    topology = make_topology(name)
    assert set(PLACES[name]) == set(topology.node_ids)
    assert all(-90 < lat < 90 and -180 < lon < 180 for lat, lon in PLACES[name].values())
    assert layout(topology)[1]


@pytest.mark.parametrize("name", [name for name in PUBLISHED if not name.startswith("usnet")])
def test_lengths_of_links_go_with_distances_on_the_map(name):
    """Numbered otherwise, lengths and distances would have little to do with each other."""
    places, ratios = PLACES[name], []
    for entry in TABLES[name].split():
        ends, km = entry.split(":")
        source, destination = map(int, ends.split("-"))
        ratios.append(float(km) / max(1.0, great_circle(places[source], places[destination])))
    middle = np.median(ratios)
    assert np.mean([middle / 2 < ratio < 2 * middle for ratio in ratios]) >= 0.9


def test_a_network_without_coordinates_is_placed_by_the_lengths_of_its_links():
    assert {name for name in topology_names() if name not in PLACES} >= {"german17", "ring4"}
    at, on_map = layout(make_topology("german17"))
    assert at.shape == (17, 2) and not on_map and np.isfinite(at).all()


def test_east_is_right_and_north_is_up():
    topology = make_topology("nsfnet_deeprmsa")
    at, _ = layout(topology)
    seattle, princeton, houston = (at[topology.node_ids.index(node)] for node in (1, 13, 6))
    assert seattle[0] < houston[0] < princeton[0] and houston[1] < princeton[1] < seattle[1]


@pytest.mark.parametrize("name", ["nsfnet_deeprmsa", "jpn48", "tataind", "german17"])
def test_no_label_lies_on_a_node_or_leaves_the_picture(name, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    figures = []
    monkeypatch.setattr(
        "hpo.views.pictures.save_figure", lambda figure, path: figures.append(figure)
    )
    draw_network(tmp_path / "x.png", make_topology(name), None, f"{name}, " + "long title " * 20)
    [figure] = figures
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    texts = figure.axes[0].texts
    boxes = [text.get_bbox_patch().get_window_extent(renderer) for text in texts]
    nodes = len(PLACES.get(name, range(17)))
    whole = figure.bbox
    for at, box in enumerate(boxes):
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= whole.x1 + 1 and box.y1 <= whole.y1 + 1
        for other in boxes[:at]:
            shared = [min(box.x1, other.x1) - max(box.x0, other.x0),
                      min(box.y1, other.y1) - max(box.y0, other.y0)]  # fmt: skip
            assert min(shared) < 2.5  # a pixel of padding on either side
    assert len(texts) > nodes + 5
    title = figure._suptitle.get_window_extent(renderer)
    assert title.x0 >= 0 and title.x1 <= whole.x1
