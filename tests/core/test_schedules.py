from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import slow
from hpo.core.hypers import KINDS, annealed_lambda, scheduled
from hpo.knobs import SCHEDULES

FIXED = {"end": 0.1, "multiplier": 1.0, "exponent": 1.0, "warmup": 0.2, "peak": 1.0, "start": 0.0}


@jax.jit
def _compiled(initial, kind, progress, end, multiplier, exponent, warmup, peak, start):
    hypers = SimpleNamespace(
        lr_decay_exponent=exponent, lr_warmup_fraction=warmup, lr_warmup_start_fraction=start
    )
    shape = {"initial": initial, "kind": kind, "end_fraction": end, "multiplier": multiplier}
    return scheduled(hypers, progress, **shape, peak=peak)


def value(kind, progress, initial=1.0, **changes):
    settings = [jnp.float32(v) for v in {**FIXED, **changes}.values()]
    made = _compiled(
        jnp.float32(initial), jnp.int32(KINDS[kind]), jnp.float32(progress), *settings
    )
    assert made.dtype == jnp.float32 and not made.weak_type
    return float(made)


def test_schedule_kinds_match_the_knob_choices():
    assert tuple(sorted(KINDS, key=KINDS.__getitem__)) == SCHEDULES


@pytest.mark.parametrize(
    ("kind", "start", "middle", "end"),
    [
        ("constant", 1.0, 1.0, 1.0),
        ("linear", 1.0, 0.55, 0.1),  # 1 + (0.1 - 1) / 2
        ("cosine", 1.0, 0.55, 0.1),  # 0.1 + 0.9 (0.5 (1 + cos(pi / 2)))
        ("warmup_cosine", 0.0, 0.722208, 0.1),  # 0.1 + 0.9 (0.5 (1 + cos(pi 0.3 / 0.8)))
    ],
)
def test_start_middle_and_end(kind, start, middle, end):
    for progress, expected in ((0.0, start), (0.5, middle), (1.0, end), (1.5, end)):
        assert value(kind, progress) == pytest.approx(expected, abs=1e-6)
        assert value(kind, progress, 3e-4) == pytest.approx(3e-4 * expected, abs=1e-9)


def test_schedule_multiplier_scales_the_horizon():
    # Twice the horizon: at the end of the run half of the way is done.
    assert value("linear", 1.0, multiplier=2.0) == pytest.approx(0.55)
    # Half the horizon: it ends in the middle of the run and stays there.
    for progress in (0.5, 0.75, 1.0):
        assert value("cosine", progress, multiplier=0.5) == pytest.approx(0.1)
    assert value("constant", 1.0, multiplier=0.5) == 1.0


def test_schedule_exponent_affects_only_the_cosine():
    # 0.1 + 0.9 (0.5)^2
    assert value("cosine", 0.5, exponent=2.0) == pytest.approx(0.325)
    assert value("linear", 0.5, exponent=2.0) == pytest.approx(0.55)
    for exponent in (0.5, 2.0, 7.0):
        assert value("cosine", 0.0, exponent=exponent) == pytest.approx(1.0)
        assert value("cosine", 1.0, exponent=exponent) == pytest.approx(0.1)


def test_warmup_cosine_hits_start_peak_and_end_values():
    changes = {"warmup": 0.25, "peak": 3.0, "start": 0.5}
    assert value("warmup_cosine", 0.0, **changes) == pytest.approx(0.5)
    assert value("warmup_cosine", 0.125, **changes) == pytest.approx(1.75)  # half of the rise
    assert value("warmup_cosine", 0.25, **changes) == pytest.approx(3.0)
    # half of the fall: 0.1 + (3 - 0.1) / 2
    assert value("warmup_cosine", 0.625, **changes) == pytest.approx(1.55)
    assert value("warmup_cosine", 1.0, **changes) == pytest.approx(0.1)


def test_zero_warmup_equals_a_plain_cosine():
    for progress in (0.0, 0.3, 1.0):
        expected = value("cosine", progress)
        assert value("warmup_cosine", progress, warmup=0.0) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(SCHEDULES),
    progress=st.floats(0.0, 1.5, width=32),
    end=st.floats(0.0, 2.0, width=32),
    multiplier=st.floats(0.125, 4.0, width=32),
    exponent=st.floats(0.25, 4.0, width=32),
    warmup=st.floats(0.03125, 0.96875, width=32),
    peak=st.floats(0.125, 4.0, width=32),
    start=st.floats(0.0, 1.0, width=32),
)
def test_every_curve_follows_its_formula(kind, progress, **rest):
    expected = slow.schedule(kind, 1.0, progress, **rest)
    # float32 rounds p by 1e-7, which the steepest curve (rising within 1/32) magnifies.
    assert value(kind, progress, **rest) == pytest.approx(expected, rel=1e-4, abs=2e-4)


def test_lambda_ends_ninety_percent_of_the_way():
    def at(progress, multiplier=1.0):
        numbers = (jnp.float32(x) for x in (0.9, 0.98, progress, multiplier))
        return float(annealed_lambda(*numbers))

    assert at(0.0) == pytest.approx(0.9)
    assert (at(1.0) - 0.9) / 0.08 == pytest.approx(0.9007, abs=1e-4)
    assert at(2.0) == at(1.0)
    assert at(2.0, 4.0) == at(0.5)  # progress beyond the run, of a horizon that is longer still
    for progress in np.linspace(0.0, 1.0, 7):
        assert at(progress) == pytest.approx(slow.annealed_lambda(0.9, 0.98, progress), abs=1e-6)
    assert at(0.5) == pytest.approx(0.9 + 0.08 * (1 - 1 / np.cosh(1.5)), abs=1e-6)


@settings(max_examples=150, deadline=None)
@given(
    progress=st.floats(0.0, 1.0, width=32),
    multiplier=st.floats(0.0625, 4.0, width=32),
    initial=st.floats(0.0, 1.0, width=32),
    final=st.floats(0.0, 1.0, width=32),
)
def test_annealed_lambda_follows_the_formula_for_any_horizon(progress, multiplier, initial, final):
    """A short horizon does not end it: sech(3 p) has no last p."""
    made = annealed_lambda(*(jnp.float32(x) for x in (initial, final, progress, multiplier)))
    expected = initial + (final - initial) * (1.0 - 1.0 / np.cosh(3.0 * progress / multiplier))
    assert float(made) == pytest.approx(expected, abs=2e-5)


def test_annealed_lambda_keeps_moving_after_a_short_horizon():
    def at(progress, multiplier=0.5):
        numbers = (jnp.float32(x) for x in (0.9, 0.98, progress, multiplier))
        return float(annealed_lambda(*numbers))

    assert at(0.5) == pytest.approx(0.9 + 0.08 * 0.9007, abs=1e-4)
    assert at(0.5) + 1e-3 < at(0.6) + 1e-3 < at(0.8) < at(1.0) == at(1.3)
    assert at(1.0, 0.05) == pytest.approx(0.98, abs=1e-6)


def test_annealed_lambda_with_equal_ends_is_constant():
    for progress in (0.0, 0.37, 1.0):
        numbers = (jnp.float32(x) for x in (0.95, 0.95, progress, 1.0))
        assert float(annealed_lambda(*numbers)) == np.float32(0.95)


@pytest.fixture
def steps():
    """A registered schedule, taken back afterwards: it would be part of every later program."""
    from hpo.core import hypers as schedules
    from hpo.knobs import table

    schedules.register("test-steps", lambda p, end: jnp.where(p < 0.5, 1.0, end))
    yield "test-steps"
    del schedules.KINDS["test-steps"], schedules._OWN[-1]
    for name in table.SCHEDULE_KNOBS:
        table._REGISTERED[name].remove("test-steps")


def test_a_registered_schedule_is_a_choice_of_every_schedule_knob(steps):
    from hpo.core.hypers import make_hypers, register
    from hpo.errors import ConfigError
    from hpo.knobs import SCHEDULE_KNOBS, complete

    assert set(SCHEDULE_KNOBS) == {
        "lr_schedule",
        "vf_lr_schedule",
        "clip_eps_schedule",
        "ent_schedule",
        "valid_mass_schedule",
    }
    chosen = dict.fromkeys(SCHEDULE_KNOBS, steps)
    assert {complete(chosen)[name] for name in SCHEDULE_KNOBS} == {steps}
    hypers = jax.tree.map(jnp.asarray, make_hypers({**chosen, "ent_coef": 0.5}, {}, {}))
    for progress, expected in ((0.4, 0.5), (0.6, 0.05)):
        made = scheduled(
            hypers,
            jnp.float32(progress),
            initial=hypers.ent_coef,
            kind=hypers.ent_schedule,
            end_fraction=hypers.ent_end_fraction,
            multiplier=hypers.ent_schedule_multiplier,
        )
        assert float(made) == pytest.approx(expected)
    with pytest.raises(ConfigError, match="is already registered"):
        register(steps, lambda p, end: p)
    with pytest.raises(ConfigError, match="lr_schedule is 'test-step'"):
        complete({"lr_schedule": "test-step"})
