"""Looks up environments by id, without jax; Gymnasium's ids are looked up in Gymnasium."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import ConfigError, HpoError, UnknownNameError
from .hosted import entry_of, is_hosted
from .table import ENVIRONMENTS, EnvEntry
from .via_gymnasium import PREFIX, is_atari, refuse_elsewhere, registered

# Kind of action space -> values of `distribution` that fit: the default, other built-in ones, and
# registered ones
DISTRIBUTIONS: Mapping[str, list[str]] = {
    "discrete": ["categorical"],
    "multi_discrete": ["multi_discrete"],
    "continuous": ["gaussian", "tanh_gaussian", "beta"],
}
_GYMNAX_CLASS = re.compile(r"gymnax:([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


def allow_distribution(kind: str, name: str) -> None:
    DISTRIBUTIONS[kind].append(name)


def fitting_distributions(kind: str) -> tuple[str, ...]:
    return tuple(DISTRIBUTIONS.get(kind, ()))


def entry(id_: str) -> EnvEntry:
    """Return the entry for an id, or raise `UnknownNameError` with the nearest ids."""
    if is_hosted(id_):
        return _of_libraries(id_)
    if id_ in ENVIRONMENTS:
        return ENVIRONMENTS[id_]
    kind, library = "environment", id_.partition(":")[0]
    if library == "playground":
        kind = "environment (MuJoCo Playground: only the control suite, without Reacher)"
    if library == "gymnax":
        raise UnknownNameError(kind, id_, ENVIRONMENTS, "gymnax:package.module:Class")
    same = [known for known in ENVIRONMENTS if known.startswith(f"{library}:")]
    if same:
        raise UnknownNameError(kind, id_, same)
    refuse_elsewhere(id_)
    meant: str | None = full_id(id_)
    if meant == id_:
        meant = None
    raise UnknownNameError(kind, id_, (*ENVIRONMENTS, *registered()), meant)


def gymnax_class(id_: str) -> tuple[str, str] | None:
    """Return the module and class in an id `gymnax:module:Class`; None for other ids.

    >>> gymnax_class("gymnax:craftax.craftax_env:Craftax"), gymnax_class("CartPole-v1")
    (('craftax.craftax_env', 'Craftax'), None)
    """
    found = _GYMNAX_CLASS.fullmatch(id_)
    if found is None:
        return None
    return found[1], found[2]


def full_id(id_: str) -> str:
    """Return the id in the form used in studies: with `gym:` if only Gymnasium defines it."""
    if is_hosted(id_) or id_ in ENVIRONMENTS:
        return id_
    gym_id = f"{PREFIX}{id_}"
    if is_atari(id_) or gym_id in registered():
        return gym_id
    return id_


def find(id_: str) -> EnvEntry | None:
    """Return the entry for an id; None if it is custom or its library is not installed."""
    if not is_hosted(id_):
        return ENVIRONMENTS.get(id_)
    try:
        return entry(id_)
    except HpoError:
        return None


_of_libraries = lru_cache(maxsize=256)(entry_of)


def held_out_keys(id_: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that evaluation changes: those of the environment, overridden by `given`."""
    known = find(id_)
    if known is None:
        return dict(given)
    return {**known.eval_keys, **given}


def files_of(id_: str, keys: Mapping[str, Any]) -> dict[str, str]:
    if id_ not in ENVIRONMENTS:
        return {}
    table = ENVIRONMENTS[id_].keys
    paths = {name: given for name, given in keys.items() if name in table and table[name].file}
    return {
        name: path
        for name, path in paths.items()
        if isinstance(path, str) and path and (Path(path).suffix or not table[name].default)
    }


def rooted(id_: str, keys: Mapping[str, Any], folder: str) -> dict[str, Any]:
    here = {name: str(Path(folder) / file) for name, file in files_of(id_, keys).items()}
    return {**keys, **here}


@dataclass(frozen=True)
class Reference:
    """The random and reference scores that scale a metric in an environment with default keys."""

    random: float  # the metric of uniformly random valid actions
    reference: float  # the metric of a good policy
    random_episodes: int = 0  # episodes behind `random`, or windows of continuous operation
    episodes: int = 0  # episodes behind `reference`, per seed
    env_steps: int = 0  # training steps per seed; 0 for a heuristic
    source: str = "the study"  # where the reference policy comes from

    def __post_init__(self) -> None:
        if not (math.isfinite(self.random) and math.isfinite(self.reference)):
            text = f"the random score is {self.random} and the reference score {self.reference}"
            raise ConfigError(f"{text}; both must be finite numbers")
        if self.random == self.reference:
            text = f"random and reference are both {self.random:g}"
            raise ConfigError(f"{text}; give two different scores")


def normalised(value: float, scale: Reference) -> float:
    """Return (value - random) / (reference - random), not clipped (Mnih et al. 2015)."""
    return (value - scale.random) / (scale.reference - scale.random)


_ROWS: tuple[tuple[str, str, float, float, int, int, int, str], ...] = (
    # generated by benchmarks/references.py --write
    ("CartPole-v1", "eval/return_mean", 22.1572, 500, 1024, 100, 196608,
     "PPO, base configuration, greedy, mean of 4 seeds"),
    ("Pendulum-v1", "eval/return_mean", -1218.25, -154.866, 1024, 100, 491520,
     "PPO, base configuration, greedy, mean of 4 seeds"),
    ("Acrobot-v1", "eval/return_mean", -499.27, -81.785, 1024, 100, 500000,
     "PPO, learning rate 3e-4, greedy, mean of 4 seeds"),
    ("MountainCar-v0", "eval/return_mean", -200, -119.524, 1024, 1024, 0,
     "rule: push along the velocity"),
    ("MountainCarContinuous-v0", "eval/return_mean", -33.0328, 82.9561, 1024, 1024, 0,
     "rule: push along the velocity"),
    ("Catch-bsuite", "eval/return_mean", -0.576172, 1, 1024, 100, 500000,
     "PPO, learning rate 3e-4, greedy, mean of 4 seeds"),
    ("Breakout-MinAtar", "eval/return_mean", 0.383789, 6.23, 1024, 100, 500000,
     "PPO, MinAtar's hyperparameters, greedy, mean of 4 seeds"),
    ("Asterix-MinAtar", "eval/return_mean", 0.510742, 1.215, 1024, 100, 500000,
     "PPO, MinAtar's hyperparameters, greedy, mean of 4 seeds"),
    ("Freeway-MinAtar", "eval/return_mean", 0.430664, 20.0875, 1024, 100, 500000,
     "PPO, MinAtar's hyperparameters, greedy, mean of 4 seeds"),
    ("SpaceInvaders-MinAtar", "eval/return_mean", 4.22168, 58.75, 1024, 100, 500000,
     "PPO, MinAtar's hyperparameters, greedy, mean of 4 seeds"),
    ("rsa", "eval/service_blocking_probability", 0.274922, 0.232172, 32, 32, 0,
     "heuristic ksp_bf, the best of ksp_ff, ksp_bf, ff_ksp"),
    ("rmsa", "eval/service_blocking_probability", 0.16318, 0.116883, 32, 32, 0,
     "heuristic ksp_bf, the best of ksp_ff, ksp_bf, ff_ksp"),
    ("deeprmsa", "eval/service_blocking_probability", 0.181758, 0.116883, 32, 32, 0,
     "heuristic ksp_bf, the best of ksp_ff, ksp_bf, ff_ksp"),
    # end
)  # fmt: skip

# (environment id, metric) -> its scale
REFERENCES: Mapping[tuple[str, str], Reference] = {
    (id_, metric): Reference(float(random), float(reference), drawn, episodes, env_steps, source)
    for id_, metric, random, reference, drawn, episodes, env_steps, source in _ROWS
}


def reference_of(id_: str, metric: str = "eval/return_mean") -> Reference | None:
    return REFERENCES.get((id_, metric))
