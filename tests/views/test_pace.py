import dataclasses
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

from hpo.search.book.state import Phase
from hpo.views.terminal.pace import Pace

samples = SimpleNamespace(**run_path(str(Path(__file__).with_name("samples.py"))))


def at(seconds, env_steps, **changes):
    return samples.progress(seconds=seconds, env_steps=env_steps, **changes)


def test_speed_is_that_of_the_last_half_minute():
    pace = Pace(samples.study())
    assert pace.see(at(10.0, 1000, env_steps_per_second=100.0)).env_steps_per_second == 100.0
    for second in range(11, 100):
        outlook = pace.see(at(float(second), 1000 + 50 * (second - 10)))
    assert outlook.env_steps_per_second == pytest.approx(50.0)
    for second in range(100, 140):
        outlook = pace.see(at(float(second), 5500 + 400 * (second - 100)))
    assert outlook.env_steps_per_second == pytest.approx(400.0)


def test_the_search_ends_where_early_stopping_lets_us_expect():
    study = samples.study()
    full = 24 * 2 * 16_000 + (3 * 5 + 6) * 16_000
    outlook = Pace(study).see(at(1.0, 1000, env_steps_total=full))
    assert 0.3 * full < outlook.env_steps_total < 0.8 * full
    assert outlook.seconds_left > 0
    assert outlook.share(outlook.env_steps_total * 2) == 1.0


def test_after_the_search_what_is_left_is_known():
    progress = at(1.0, 1000, env_steps_total=5000, phase=Phase.REPORT)
    assert Pace(samples.study()).see(progress).env_steps_total == 5000


def test_a_wall_budget_bounds_the_time_left():
    budget = samples.search.Budget(trials=24, wall_seconds=100.0)
    pace = Pace(dataclasses.replace(samples.study(), budget=budget))
    assert pace.see(at(90.0, 10, env_steps_per_second=0.1)).seconds_left == 10.0


def test_without_a_speed_there_is_no_time_left():
    outlook = Pace(samples.study()).see(at(0.0, 0, env_steps_per_second=0.0))
    assert outlook.seconds_left is None


def test_the_time_of_a_compile_is_no_part_of_the_speed():
    """Also at the first chunk, when the speed over all of the time is mostly the compile's."""
    pace = Pace(samples.study())
    pace.compiled(27.0)
    first = pace.see(at(28.0, 2000, env_steps_per_second=2000 / 28.0))
    assert first.env_steps_per_second == pytest.approx(2000.0)
    pace.compiled(10.0)
    later = pace.see(at(40.0, 6000, env_steps_per_second=150.0))
    assert later.env_steps_per_second == pytest.approx(4000 / 2.0)
