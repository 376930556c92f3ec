from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from hpo.core.envs.optical.optical_settings import ENVIRONMENT_IDS, OpticalSettings
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import ConfigError, UnknownNameError


def parse(**keys):
    return OpticalSettings.from_mapping(keys)


def test_empty_settings_default_to_steady_state_rmsa():
    settings = parse()
    assert (settings.id, settings.topology, settings.load) == ("rmsa", "nsfnet_deeprmsa", 250.0)
    assert settings.continuous and settings.warmup_requests == 3000
    assert settings.bitrate_list == tuple(float(x) for x in range(25, 101))


def test_environment_kinds_set_their_presets():
    assert parse(id="rwa").bitrate_list == (12.5,) and parse(id="rwa").guardband == 0
    assert parse(id="rwa", slot_width=50).bitrate_list == (50.0,)
    reuse = parse(id="rwa_lightpath_reuse", bitrates=[100, 400])
    assert (reuse.width, reuse.guardband) == (400.0, 0)
    assert parse(id="deeprmsa").observation == "deeprmsa"
    for keys in ({"incremental": True}, {"requests": "x.csv"}, {"continuous": False}):
        assert not parse(**keys).continuous and parse(**keys).warmup_requests == 0


def test_xlron_key_names_get_suggestions():
    names = {field.name for field in dataclasses.fields(OpticalSettings)}
    elsewhere = ENVIRONMENTS["rmsa"].elsewhere
    assert set(elsewhere.values()) <= names
    assert not set(elsewhere) & names
    with pytest.raises(ConfigError, match="'link_resources'; did you mean 'slots'"):
        parse(link_resources=100)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"slotz": 3}, "did you mean 'slots'"),
        ({"id": "rmsaa"}, "did you mean 'rmsa'"),
        ({"id": "deeprmsa", "fits": ["frist"]}, "did you mean 'first'"),
        ({"id": "deeprmsa", "fits": []}, "distinct names from first, best, last, exact"),
        ({"id": "deeprmsa", "fits": ["best", "best"]}, "a list of distinct names"),
        ({"fits": ["best"]}, "set id: deeprmsa"),
        ({"path_order": "hop"}, "did you mean 'hops'"),
        ({"load": -1}, "load is -1.0; it must be above 0"),
        ({"load": "250"}, "must be a number"),
        ({"load": float("nan")}, "must be a number"),
        ({"slots": 10.5}, "whole number"),
        ({"slots": True}, "whole number"),
        ({"directed": 1}, "true or false"),
        ({"topology": 3}, "must be text"),
        ({"bitrates": [100, "x"]}, "list of numbers"),
        ({"bitrates": [100, -1]}, "above 0"),
        ({"bitrates": [100], "max_bitrate": 50}, "not both"),
        ({"max_bitrate": 10}, "min_bitrate"),
        ({"aggregate_slots": 101}, "at most slots"),
        ({"warmup_requests": -1}, "of at least 0"),
        ({"id": "deeprmsa", "no_op": True}, "aggregate_slots and no_op"),
        ({"id": "rwa", "guardband": 1}, "a service takes one slot"),
        ({"id": "rwa", "bitrates": [100]}, "rwa uses one slot"),
        ({"continuous": True, "incremental": True}, "incremental loading cannot run forever"),
        ({"continuous": True, "requests": "x.csv"}, "a request list cannot run forever"),
        ({"requests": "x.csv", "warmup_requests": 5}, "0 with a request list"),
        ({"requests": "x.csv", "traffic_matrix": "random"}, "remove traffic_matrix"),
        ({"observation": "link_capacity"}, "needs id: rwa_lightpath_reuse"),
    ],
)
def test_invalid_optical_settings_are_refused_with_a_fix(keys, message):
    with pytest.raises(ConfigError, match=message):
        parse(**keys)


def test_unknown_environment_lists_all():
    with pytest.raises(UnknownNameError) as caught:
        parse(id="xyz")
    assert caught.value.known == tuple(sorted(ENVIRONMENT_IDS))


def test_optical_settings_import_neither_jax_nor_networkx():
    code = (
        "import sys; from hpo.core.envs.optical.optical_settings import OpticalSettings;"
        "OpticalSettings.from_mapping({}); print({'jax', 'networkx'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
