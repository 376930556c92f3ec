"""The table of environments says what the environments themselves say."""

from dataclasses import fields

import pytest

from hpo.core.envs.optical.candidate_paths import PATH_ORDERS
from hpo.core.envs.optical.modulation import TABLES
from hpo.core.envs.optical.optical_settings import ENVIRONMENT_IDS, OpticalSettings
from hpo.core.envs.optical.topology import topology_names
from hpo.environments.registry import files_of, rooted
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import ConfigError

OPTICAL = {id_: item for id_, item in ENVIRONMENTS.items() if item.source == "optical"}


@pytest.mark.parametrize("id_", ENVIRONMENT_IDS)
def test_optical_env_table_matches_the_settings(id_):
    """Every setting is a parameter or a key, with the same default and type."""
    settings, item = OpticalSettings.from_mapping({"id": id_}), OPTICAL[id_]
    own = {field.name: getattr(settings, field.name) for field in fields(settings)}
    assert own.pop("id") == id_
    listed = {**item.params, **{name: key.default for name, key in item.keys.items()}}
    assert listed == own
    for name, key in item.keys.items():
        if key.type != "any":
            assert type(own[name]).__name__ == key.type, name


def test_optical_table_choices_are_known():
    item = OPTICAL["rmsa"]
    assert item.keys["path_order"].choices == PATH_ORDERS
    assert item.keys["topology"].default in topology_names()
    assert item.keys["modulation"].default in TABLES


@pytest.mark.parametrize("name", [n for n, k in OPTICAL["rmsa"].keys.items() if k.low > -1e9])
def test_optical_table_lower_bounds_match_the_settings(name):
    key = OPTICAL["rmsa"].keys[name]
    lowest = key.low if key.type == "float" else int(key.low)
    assert key.contains(lowest) is not key.low_open
    assert not key.contains(lowest - 1)
    with pytest.raises(ConfigError, match=f"{name} is"):
        OpticalSettings.from_mapping({name: lowest if key.low_open else lowest - 1})


def test_optical_table_metrics_match_summarise():
    import jax.numpy as jnp

    from hpo.core.envs.registry import make
    from hpo.core.plan import EnvPlan

    env = make(EnvPlan("rmsa", (("slots", 10), ("topology", "ring4"), ("k", 2))))
    sums = dict.fromkeys(("blocked", "bitrate", "bitrate_blocked", "utilisation"), jnp.ones(()))
    assert list(env.summarise(sums, jnp.ones(()))) == list(OPTICAL["rmsa"].metrics)


def test_optical_file_keys_are_resolved_against_the_study():
    keys = {"topology": "my.json", "modulation": "deeprmsa", "requests": "list", "k": 5}
    assert files_of("rmsa", keys) == {"topology": "my.json", "requests": "list"}
    found = rooted("rmsa", keys, "/study")
    assert found == {**keys, "topology": "/study/my.json", "requests": "/study/list"}
    assert files_of("CartPole-v1", {"max_steps_in_episode": 5}) == {}
