"""PPO, point 2: every network, distribution and kind of environment learns, on five seeds each."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from .cases import FIGURES, Case, run_cases
from .common import Outcome
from .learning import draw, train
from .ppo_networks import NETWORK_CASES

SEEDS, SEEDS_NEEDED = 5, 4


def learns(small: bool, work: Path) -> Outcome:
    """Run the requested cases, by default all; pass if the last result of every case is good."""
    return run_cases(CASES, "learning.json", small, work)


def reaches(
    name: str,
    small: bool,
    work: Path,
    *,
    study: str,
    value: float,
    overrides: tuple[str, ...] = (),
) -> Outcome:
    """Check that four of five seeds of a study end at or above a value; draw the curves.

    Args:
        name: name of the case, for files.
        small: only a few updates; passes if it runs.
        work: a folder to work in.
        study: a file in studies/, without suffix.
        value: mean return in the last evaluation that a seed must reach.
        overrides: `key=value` settings applied to the study.
    """
    more = (f"seeds.per_config={SEEDS}", f"population.lanes={SEEDS + 1}", *overrides)
    found = train(study, work, small, more, name)
    draw(name, found["evaluations"], value, work if small else FIGURES)
    values = found["values"]
    good = sum(one >= value for one in values)
    return Outcome(
        small or (len(values) == SEEDS and good >= SEEDS_NEEDED),
        f"{good} of {len(values)} seeds reach {value:g} at {found['env_steps']:,} env steps "
        f"(mean {sum(values) / len(values):.4g}, worst {min(values):.4g})",
    )


def _pendulum(distribution: str, *overrides: str) -> Case:
    choice = f"fixed.distribution={distribution}"
    return partial(reaches, study="base_pendulum", value=-200.0, overrides=(choice, *overrides))


CASES: dict[str, Case] = {
    "pendulum_gaussian": _pendulum("gaussian"),
    "pendulum_tanh_gaussian": _pendulum("tanh_gaussian", "fixed.log_std_init=0.0"),
    "pendulum_beta": _pendulum("beta"),
    "brax_inverted_pendulum": partial(reaches, study="base_inverted_pendulum", value=900.0),
    "gym_cartpole": partial(reaches, study="gym_base_cartpole", value=475.0),
    "navigators": partial(reaches, study="base_navigators", value=0.9),
    **NETWORK_CASES,
}
