"""Schedules of an imported command, beside XLRON's formulas written out (train/train_utils.py)."""

from math import cos, cosh, pi

import jax
import jax.numpy as jnp
import pytest

from hpo.core.hypers import make_hypers
from hpo.core.optimisers import scheduled_values
from hpo.importers.readers import read_flags
from hpo.knobs import complete
from hpo.studies.load import loads

UPDATES = 200


def cosine(value, fraction, done):
    """optax.cosine_decay_schedule(value, alpha=fraction)."""
    return value * ((1 - fraction) * 0.5 * (1 + cos(pi * min(done, 1.0))) + fraction)


def warmup_cosine(start, peak, share, end, done):
    """optax.warmup_cosine_decay_schedule over a horizon of 1."""
    if done < share:
        return start + (peak - start) * done / share
    return cosine(peak, end / peak, (done - share) / (1 - share))


def linear(value, end, done):
    return value + (end - value) * min(done, 1.0)


def curve(kind, value, end_fraction, done, peak=1.0, share=0.2):
    if kind == "constant":
        return value
    if kind == "linear":
        return linear(value, value * end_fraction, done)
    if kind == "cosine":
        return cosine(value, value * end_fraction, done)  # alpha is the value at the end, there
    return warmup_cosine(value, value * peak, share, value * end_fraction, done)


CASES = {
    "default": {},
    "warm-up of default height": {"LR_SCHEDULE": "warmup_cosine"},
    "warm-up": {"LR_SCHEDULE": "warmup_cosine", "WARMUP_MULTIPLIER": 2.0,
                "WARMUP_STEPS_FRACTION": 0.1, "LR_END_FRACTION": 0.3},
    "linear, longer": {"LR_SCHEDULE": "linear", "LR_SCHEDULE_MULTIPLIER": 2.0},
    "a critic of its own": {"LR_SCHEDULE": "warmup_cosine", "WARMUP_MULTIPLIER": 2.0,
                            "SEPARATE_VF_OPTIMIZER": True, "VF_WARMUP_MULTIPLIER": 3.0},
    "another critic": {"LR_SCHEDULE": "linear", "SEPARATE_VF_OPTIMIZER": True,
                       "VF_LR_SCHEDULE": "cosine", "VF_LR": 2e-3, "LR_SCHEDULE_MULTIPLIER": 1.5},
    "a critic that warms up": {"LR_SCHEDULE": "constant", "SEPARATE_VF_OPTIMIZER": True,
                               "VF_LR_SCHEDULE": "warmup_cosine", "VF_SCHEDULE_MULTIPLIER": 2},
    "entropy": {"ENT_COEF": 0.02, "ENT_SCHEDULE": "cosine", "VALID_MASS_LOSS_COEF": 0.01,
                "VML_SCHEDULE": "linear"},
    "several steps an update": {"ENT_COEF": 0.02, "ENT_SCHEDULE": "linear", "UPDATE_EPOCHS": 4,
                                "NUM_MINIBATCHES": 2, "VALID_MASS_LOSS_COEF": 0.5,
                                "VML_SCHEDULE": "cosine", "ENT_SCHEDULE_MULTIPLIER": 0.5},
    "counted in steps": {"ENT_COEF": 0.02, "ENT_SCHEDULE": "cosine", "UPDATE_EPOCHS": 4,
                         "NUM_MINIBATCHES": 2, "STEP_ON_GRADIENT": True,
                         "LAMBDA_SCHEDULE_MULTIPLIER": 8.0},
}  # fmt: skip


def theirs(flags, update):
    """Return both learning rates, entropy, valid mass and lambda as XLRON computes them."""
    get = {
        "LR": 5e-4,
        "LR_SCHEDULE": "cosine",
        "LR_END_FRACTION": 0.1,
        "ENT_COEF": 0.0,
        "WARMUP_MULTIPLIER": 1.0,
        "WARMUP_STEPS_FRACTION": 0.2,
        **flags,
    }.get
    steps = get("UPDATE_EPOCHS", 1) * get("NUM_MINIBATCHES", 1)
    total = UPDATES * steps
    gradient, counted = update * steps, update * (steps if get("STEP_ON_GRADIENT") else 1)
    rate = curve(
        get("LR_SCHEDULE"),
        get("LR"),
        get("LR_END_FRACTION"),
        gradient / (total * get("LR_SCHEDULE_MULTIPLIER", 1.0)),
        get("WARMUP_MULTIPLIER"),
        get("WARMUP_STEPS_FRACTION"),
    )
    critic = rate
    if get("SEPARATE_VF_OPTIMIZER"):
        critic = curve(
            get("VF_LR_SCHEDULE", get("LR_SCHEDULE")),
            get("VF_LR", get("LR") / 3.0),
            get("VF_LR_END_FRACTION", get("LR_END_FRACTION")),
            gradient / (total * get("VF_SCHEDULE_MULTIPLIER", 1.0)),
            get("VF_WARMUP_MULTIPLIER", get("WARMUP_MULTIPLIER")),
            get("VF_WARMUP_STEPS_FRACTION", get("WARMUP_STEPS_FRACTION")),
        )
    entropy = curve(
        get("ENT_SCHEDULE", "constant"),
        get("ENT_COEF"),
        0.1,
        counted / (total * get("ENT_SCHEDULE_MULTIPLIER", 1.0)),
    )
    mass = curve(
        get("VML_SCHEDULE", "constant"), get("VALID_MASS_LOSS_COEF", 0.0), 10.0, counted / total
    )
    share = 3 * counted / (UPDATES * get("LAMBDA_SCHEDULE_MULTIPLIER", 1.0))
    return rate, critic, entropy, mass, 0.9 + (0.98 - 0.9) * (1 - 1 / cosh(share))


def followed(hypers, progress):
    now = scheduled_values(hypers, progress)
    shown = now.coefficients
    return (
        now.sizes.policy,
        now.sizes.critic,
        shown.ent_coef,
        shown.valid_mass_coef,
        shown.gae_lambda,
    )


FOLLOWED = jax.jit(jax.vmap(followed, in_axes=(None, 0)))


@pytest.mark.parametrize("name", CASES)
def test_imported_schedules_equal_those_of_xlron(name, tmp_path):
    words = [f"--{flag}={value}" for flag, value in CASES[name].items()]
    (tmp_path / "flags.txt").write_text(" ".join(["--env_type=rmsa", *words]))
    study = loads(read_flags(tmp_path / "flags.txt", {}).text())
    hypers = make_hypers(complete(study.fixed), (), ())
    updates = (0, 10, 20, 40, 41, 100, 199)
    now = FOLLOWED(hypers, jnp.asarray(updates, jnp.float32) / UPDATES)
    for index, update in enumerate(updates):
        found = [float(values[index]) for values in now]
        assert found == pytest.approx(theirs(CASES[name], update), rel=2e-4, abs=1e-9), update
