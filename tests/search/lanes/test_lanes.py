import dataclasses
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.search.lanes.lane_count import (
    Machine,
    auto_lanes,
    device_count,
    startable_replicates,
    tile_of,
)

samples = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "samples.py")))
PLENTY = 10**12


@pytest.mark.parametrize(
    ("machine", "tile", "replicates", "lanes"),
    [
        (Machine("cpu", 2, PLENTY), 4, 1000, 64),
        (Machine("cpu", 6, PLENTY), 4, 1000, 72),  # the smallest multiple of 24 from 64 on
        (Machine("cpu", 2, PLENTY), 4, 9, 16),
        (Machine("cpu", 2, PLENTY), 4, 0, 8),
        (Machine("gpu", 1, PLENTY), 256, 10**6, 4096),
        (Machine("gpu", 3, PLENTY), 64, 10**6, 4224),
        (Machine("gpu", 1, PLENTY), 64, 100, 128),
    ],
)
def test_as_few_lanes_as_are_enough(machine, tile, replicates, lanes):
    assert auto_lanes(machine, tile, replicates, 1000) == lanes


def test_lanes_fit_into_sixty_percent_of_memory():
    assert auto_lanes(Machine("gpu", 1, 1000), 4, 4096, 10) == 60
    assert auto_lanes(Machine("gpu", 1, 1000), 4, 4096, 10**9) == 4  # one block, come what may


@given(
    st.sampled_from(["cpu", "gpu"]),
    st.integers(1, 9),
    st.integers(1, 64),
    st.integers(0, 10**5),
    st.integers(1, 10**9),
    st.integers(0, 10**12),
)
def test_lanes_are_whole_blocks(backend, devices, tile, replicates, bytes_per_lane, memory):
    lanes = auto_lanes(Machine(backend, devices, memory), tile, replicates, bytes_per_lane)
    block = devices * tile
    assert lanes % block == 0 and lanes >= block
    assert lanes == block or lanes * bytes_per_lane <= 0.6 * memory


def test_a_cpu_never_has_less_than_two_devices():
    assert [device_count("cpu", cores, 0) for cores in (1, 2, 16)] == [2, 2, 16]
    assert device_count("gpu", 64, 4) == 4


def test_tiles_shrink_as_networks_grow():
    for backend in ("cpu", "gpu"):
        tiles = [tile_of(backend, 10**power) for power in range(2, 9)]
        assert tiles == sorted(tiles, reverse=True) and tiles[0] > tiles[-1] >= 1


def test_what_a_study_can_start():
    def of(**budget):
        return startable_replicates(
            samples.study(budget=samples.Budget(**{"trials": None, **budget}))
        )

    assert of(trials=24) == 48  # two seeds each
    assert of(env_steps=30_000) == 15  # each at least to its first rung at 2,000
    assert of(trials=24, env_steps=30_000) == 15
    assert of() == 4096
    study = dataclasses.replace(
        samples.study(), budget=samples.Budget(trials=2), confirm=samples.Confirm(5, 8, 16)
    )
    assert startable_replicates(study) == 40
