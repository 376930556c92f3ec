import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import search_samples as samples
from hpo.core.memory import estimate_memory, for_platform
from hpo.core.program import Program
from hpo.search.lanes import local
from hpo.search.lanes.lane_count import (
    Devices,
    auto_lanes,
    device_count,
    startable_replicates,
    tile_of,
)
from hpo.search.lanes.local import LocalFactory
from hpo.search.lanes.multi_environment import factories_of
from hpo.search.study_estimate import preview
from hpo.spaces import Space
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import PopulationSpec
from hpo.studies.search_spec import Racing, Seeds

PLENTY = 10**12


@pytest.mark.parametrize(
    ("machine", "tile", "replicates", "lanes"),
    [
        (("cpu", 2, PLENTY), 4, 1000, 64),
        (("cpu", 6, PLENTY), 4, 1000, 72),  # the smallest multiple of 24 from 64 on
        (("cpu", 2, PLENTY), 4, 9, 16),
        (("cpu", 2, PLENTY), 4, 0, 8),
        (("gpu", 1, PLENTY), 256, 10**6, 4096),
        (("gpu", 3, PLENTY), 64, 10**6, 4224),
        (("gpu", 1, PLENTY), 64, 100, 128),
    ],
)
def test_auto_lanes_uses_minimum_sufficient_lanes(machine, tile, replicates, lanes):
    assert auto_lanes(Devices(*machine), tile, replicates, 1000) == lanes


def test_lanes_fit_into_sixty_percent_of_memory():
    assert auto_lanes(Devices("gpu", 1, 1000), 4, 4096, 10) == 60
    assert auto_lanes(Devices("cpu", 2, 10**10), 4, 192, 10**6) == 64
    assert auto_lanes(Devices("cpu", 2, 10**10), 4, 12, 10**6) == 16
    assert auto_lanes(Devices("gpu", 1, 1000), 4, 4096, 10**9) == 4  # one block, come what may


@given(
    st.sampled_from(["cpu", "gpu"]),
    st.integers(1, 9),
    st.integers(1, 64),
    st.integers(0, 10**5),
    st.integers(1, 10**9),
    st.integers(0, 10**12),
)
def test_lanes_are_whole_blocks(backend, devices, tile, replicates, bytes_per_lane, memory):
    machine = Devices(backend, devices, memory)
    lanes = auto_lanes(machine, tile, replicates, bytes_per_lane)
    block = devices * tile
    assert lanes % block == 0 and lanes >= block
    assert lanes == block or lanes * bytes_per_lane <= 0.6 * memory


def test_a_cpu_never_has_less_than_two_devices():
    assert [device_count("cpu", cores, 0) for cores in (1, 2, 16)] == [2, 2, 16]
    assert device_count("gpu", 64, 4) == 4


def test_tiles_of_a_cpu_shrink_as_networks_grow():
    tiles = [tile_of("cpu", 10**power) for power in range(2, 9)]
    assert tiles == sorted(tiles, reverse=True) and tiles[0] > tiles[-1] >= 1
    with pytest.raises(ValueError, match="gpu_tile"):
        tile_of("gpu", 10)


def factory_of(lanes, tiles="auto"):
    """Return a factory with two devices, whose whole tiles have 4 lanes."""
    population = PopulationSpec(lanes, tiles=tiles)
    factory = LocalFactory(dataclasses.replace(samples.study(confirm=None), population=population))
    factory.devices = factory.devices[:2]
    return factory


def lanes_and_tile(lanes, tiles="auto"):
    factory = factory_of(lanes, tiles)
    program = factory.program_of(factory.resolve(factory.study.default()))
    return program.lanes, program.tile


@pytest.mark.parametrize(
    ("lanes", "made", "tile"),
    [
        (1, 2, 1),
        (2, 2, 1),
        (3, 4, 2),
        (4, 4, 2),
        (5, 6, 3),
        (7, 8, 4),
        (8, 8, 4),
        (9, 16, 4),
        (10, 16, 4),
        (12, 16, 4),
        (31, 32, 4),
        (64, 64, 4),
    ],
)
def test_lanes_are_rounded_up_to_whole_tiles(lanes, made, tile):
    assert lanes_and_tile(lanes) == (made, tile)


@pytest.mark.parametrize("lanes", range(1, 20))
def test_whole_tiles_round_any_lane_count(lanes):
    made, tile = lanes_and_tile(lanes, "whole")
    assert tile == 4 and made % 8 == 0 and 0 <= made - lanes < 8


@pytest.mark.parametrize(
    ("lanes", "made", "tile"),
    [(1, 2, 1), (3, 4, 2), (9, 10, 1), (10, 10, 1), (12, 12, 3), (31, 32, 4), (64, 64, 4)],
)
def test_narrow_tiles_keep_lane_counts_of_earlier_studies(lanes, made, tile):
    assert lanes_and_tile(lanes, "narrow") == (made, tile)


def test_notes_report_rounded_lane_count():
    def notes(lanes, tiles="auto"):
        factory = factory_of(lanes, tiles)
        return list(factory.notes(factory.resolve(factory.study.default())))

    assert notes(8) == notes(64) == notes(None) == []
    two = "2 devices, each with a tile of 4 lanes"
    assert notes(9) == [f"population.lanes is 16 instead of 9, a multiple of 8 ({two})"]
    assert notes(3, "whole") == [f"population.lanes is 8 instead of 3, a multiple of 8 ({two})"]
    (few,) = notes(3)
    assert few == (
        "population.lanes is 4 instead of 3, in tiles of 2 instead of 4: results with 4 "
        "lanes differ in the last digits from those with 8, 16, ... lanes; for identical "
        "results, set tiles: whole"
    )
    assert notes(4)[0].startswith("population.lanes is 4, in tiles of 2 instead of 4")
    assert any(text == few for text in preview(factory_of(3).study)[0].warnings)


def test_a_study_that_searches_epochs_has_tiles_of_one_lane():
    epochs = samples.parameter("update_epochs", 4, min=1, max=8, distribution="int_uniform")
    study = dataclasses.replace(samples.study(confirm=None), population=PopulationSpec(2))
    study = dataclasses.replace(study, space=Space((*study.space.parameters, epochs)))
    factory = LocalFactory(study)
    factory.devices = factory.devices[:2]
    resolved = factory.resolve(study.default())
    assert factory.program_of(resolved).tile == 1 and list(factory.notes(resolved)) == []


def test_shared_memory_is_reserved_before_lanes():
    machine = Devices("gpu", 1, 1000)  # of which 600 may be taken
    assert auto_lanes(machine, 4, 4096, 10, shared_bytes=200) == 40
    assert auto_lanes(machine, 4, 4096, 10, shared_bytes=10**6) == 4


@pytest.mark.parametrize(
    ("trials", "memory", "tile", "lanes"),
    [
        (32, PLENTY, 64, 64),  # two seeds each, and no lane more
        (50, PLENTY, 104, 104),
        (10**5, PLENTY, 4096, 4096),
    ],
)
def test_gpu_uses_one_tile_for_all_lanes(monkeypatch, trials, memory, tile, lanes):
    study = samples.study(budget=samples.Budget(trials=trials), confirm=None)
    factory = LocalFactory(study)
    monkeypatch.setattr(local, "device_memory", lambda devices: memory)
    factory.backend, factory.devices = "gpu", factory.devices[:1]
    program = factory.program_of(factory.resolve(study.default()))
    assert (program.tile, program.lanes) == (tile, lanes)
    asked = factory.program_of(factory.resolve(study.default()), 100)
    assert asked.lanes == 100 and asked.tile == 100


def test_small_gpu_memory_reduces_lanes_but_not_tile(monkeypatch):
    study = samples.study(budget=samples.Budget(trials=10**5), confirm=None)
    factory = LocalFactory(study)
    monkeypatch.setattr(local, "device_memory", lambda devices: 10**9)
    factory.backend, factory.devices = "gpu", factory.devices[:1]
    program = factory.program_of(factory.resolve(study.default()))
    assert program.tile >= 64 and program.lanes < 4096
    plan = for_platform(program.plan, "gpu")
    taken = estimate_memory(plan, program.example, program.lanes, program.tile, 1)
    assert taken <= 0.6 * 10**9


def test_startable_replicates_follow_the_budget():
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


@pytest.mark.parametrize(
    ("changes", "replicates"),
    [
        ({}, 16),  # the winner and the default
        ({"confirm": samples.Confirm(1, 2, 8, default=False)}, 8),
        ({"space": samples.Space()}, 8),  # the winner is the default
        ({"objectives": ("a", "b"), "confirm": samples.Confirm(3, 4, 8)}, 16),  # and the default
        ({"confirm": None, "seeds": Seeds(20, racing=Racing(3))}, 16),  # from 12 to 20 seeds
        ({"confirm": None, "seeds": Seeds(4, racing=Racing(3))}, 6),
    ],
)
def test_startable_replicates_include_confirm_and_racing_seeds(changes, replicates):
    """As many run side by side as a stage has: see `engine/confirm.py`."""
    study = samples.study(budget=samples.Budget(trials=2), confirm=samples.Confirm(1, 2, 8))
    assert startable_replicates(dataclasses.replace(study, **changes)) == replicates


@pytest.mark.parametrize(("backend", "memory"), [("cpu", 2 * 10**9), ("gpu", 4 * 10**10)])
def test_the_lanes_of_several_environments_share_the_memory(monkeypatch, backend, memory):
    ids = ("CartPole-v1", "Breakout-MinAtar")
    monkeypatch.setattr(local, "device_memory", lambda devices: memory)

    def made(study, environments):
        factory = LocalFactory(study, environments=environments)
        factory.backend, factory.devices = backend, factory.devices[:1]
        return factory

    asked = samples.study(budget=samples.Budget(trials=10**5), confirm=None)
    asked = dataclasses.replace(asked, fixed={"hidden_sizes": [256, 256], "num_envs": 64})
    each = [dataclasses.replace(asked, env=EnvSpec(id_)) for id_ in ids]
    alone = [
        factory.make(factory.resolve(asked.default()), None).lanes
        for factory in (made(study, 1) for study in each)
    ]
    together = factories_of(dataclasses.replace(each[0], more_envs=(each[1].env,)), made)
    lanes = together.make(together.resolve(asked.default()), None)
    taken = 0
    resolved = together.resolve(asked.default()).payload
    for factory, one, population in zip(
        together.factories, resolved, lanes.populations, strict=True
    ):
        program = factory.program_of(one, population.lanes)
        plan = for_platform(program.plan, backend)
        taken += estimate_memory(plan, program.example, program.lanes, program.tile, 1)
    assert lanes.lanes < min(alone) < max(alone)
    assert taken <= 0.6 * memory


def test_population_allocates_no_lanes_before_their_first_use(monkeypatch):
    """Programs of all architectures compile ahead, but only one needs memory for its lanes."""
    study = dataclasses.replace(samples.study(), population=PopulationSpec(lanes=4))
    allocated = []
    empty = Program.empty
    monkeypatch.setattr(Program, "empty", lambda self: allocated.append(1) or empty(self))
    factory = LocalFactory(study)
    population = factory.make(factory.resolve(study.default()), 4)
    assert not allocated
    assert len(population.take([0, 1])) == 2
    assert len(allocated) == 1
