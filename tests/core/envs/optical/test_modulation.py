from __future__ import annotations

import math

import pytest

from hpo.core.envs.optical.modulation import (
    TABLES,
    lightpath_capacity,
    make_modulation,
    spectral_efficiency,
)
from hpo.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize(
    ("km", "efficiency"),
    [(1, 4), (625, 4), (626, 3), (1250, 3), (1251, 2), (2500, 2), (2501, 1), (2e5, 1)],
)
def test_spectral_efficiency_uses_the_best_format_in_reach(km, efficiency):
    assert spectral_efficiency(make_modulation("deeprmsa"), float(km)) == efficiency


def test_every_table_starts_with_its_longest_reach():
    for name in TABLES:
        formats = make_modulation(name)
        assert formats[0].reach == max(f.reach for f in formats) == 100_000


def test_modulation_formats_load_from_csv(tmp_path):
    file = tmp_path / "formats.csv"
    file.write_text("name,reach,efficiency\nslow,5000,1\nfast,100,6\n")
    formats = make_modulation(str(file))
    assert spectral_efficiency(formats, 100.0) == 6
    assert spectral_efficiency(formats, 9000.0) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,km,se\n", "header must be name,reach,efficiency"),
        ("name,reach,efficiency\n", "no modulation format"),
        ("name,reach,efficiency\nx,-1,2\n", ":2: reach '-1'"),
        ("name,reach,efficiency\nx,1,fast\n", "must be numbers above 0"),
    ],
)
def test_malformed_modulation_files_are_refused(tmp_path, text, message):
    file = tmp_path / f"{abs(hash(text))}.csv"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_modulation(str(file))


def test_unknown_modulation_table_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match="did you mean 'deeprmsa'"):
        make_modulation("deeprms")
    with pytest.raises(ConfigError, match="does not exist"):
        make_modulation("nowhere.csv")


# Gb/s over 10 THz in steps of 100, as published for scale 1 and 0.2.
FULL = {100: 1700, 250: 1500, 500: 1200, 1000: 1000, 1500: 900, 2000: 800, 3000: 700, 4000: 600}
FIFTH = {100: 300, 250: 300, 500: 200, 1000: 200, 1500: 100, 2000: 100, 5000: 100}


def test_lightpath_capacities_match_published_values():
    assert {km: lightpath_capacity(float(km), 1e4, 1.0, 100.0) for km in FULL} == FULL
    assert {km: lightpath_capacity(float(km), 1e4, 0.2, 100.0) for km in FIFTH} == FIFTH
    assert math.isclose(lightpath_capacity(5000.0, 1e4, 1.0, 100.0), 600)
