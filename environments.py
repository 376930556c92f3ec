"""A plain table of the environments known by id, so that a study is checked without importing jax.

`params` are float parameters (each may differ per lane and be swept as `env.<name>`); `keys` are
fixed for a study and become part of the Plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import UnknownNameError

__all__ = ["ENVIRONMENTS", "EnvEntry", "EnvKey", "entry"]

@dataclass(frozen=True)
class EnvKey:
    """A key of `env:` that is fixed for a study.

    Attributes:
        type: what its values are; `any` is checked by the environment itself.
        default: its value when left out.
        choices: legal values, if they are few.
        meaning: one line.
    """

    type: Literal["int", "bool", "float", "str", "any"]
    default: Any
    choices: tuple[Any, ...] = ()
    meaning: str = ""


@dataclass(frozen=True)
class EnvEntry:
    """What is known of one environment.

    Attributes:
        id: as written in a study.
        source: the library or module it comes from.
        actions: kind of action space.
        params: float parameter -> default.
        keys: fixed key -> its description.
        meaning: one line.
    """

    id: str
    source: str
    actions: Literal["discrete", "continuous"]
    params: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, EnvKey] = field(default_factory=dict)
    meaning: str = ""


def _gymnax(id_: str, steps: int, meaning: str, actions: Literal["discrete", "continuous"] =
            "discrete", keys: Mapping[str, Any] | None = None, **params: float) -> EnvEntry:
    fixed = {"max_steps_in_episode": EnvKey("int", steps, meaning="env steps until truncation")}
    for name, default in (keys or {}).items():
        fixed[name] = EnvKey("bool" if isinstance(default, bool) else "int", default)
    return EnvEntry(id_, "gymnax", actions, params, fixed, meaning)


_SPAWN = {"ramping": True, "ramp_interval": 100, "init_move_interval": 5, "shot_cool_down": 5}
_CAR = {"min_position": -1.2, "max_position": 0.6, "max_speed": 0.07, "goal_velocity": 0.0,
        "gravity": 0.0025}

_ENTRIES = (
    _gymnax("CartPole-v1", 500, "balance a pole on a cart", gravity=9.8, masscart=1.0,
            masspole=0.1, total_mass=1.1, length=0.5, polemass_length=0.05, force_mag=10.0,
            tau=0.02, theta_threshold_radians=0.20943951023931953, x_threshold=2.4),
    _gymnax("Pendulum-v1", 200, "swing a pendulum up", "continuous", max_speed=8.0,
            max_torque=2.0, dt=0.05, g=10.0, m=1.0, l=1.0),
    _gymnax("Acrobot-v1", 500, "swing two links up", dt=0.2, link_length_1=1.0,
            link_length_2=1.0, link_mass_1=1.0, link_mass_2=1.0, link_com_pos_1=0.5,
            link_com_pos_2=0.5, link_moi=1.0, max_vel_1=12.566370614359172,
            max_vel_2=28.274333882308138, torque_noise_max=0.0),
    _gymnax("MountainCar-v0", 200, "drive a weak car up a hill", "discrete", None,
            goal_position=0.5, force=0.001, **_CAR),
    _gymnax("MountainCarContinuous-v0", 999, "with a real-valued force", "continuous", None,
            min_action=-1.0, max_action=1.0, goal_position=0.45, power=0.0015, **_CAR),
    _gymnax("Asterix-MinAtar", 1000, "MinAtar Asterix",
            keys={**_SPAWN, "init_spawn_speed": 10}),
    _gymnax("Breakout-MinAtar", 1000, "MinAtar Breakout"),
    _gymnax("Freeway-MinAtar", 2500, "MinAtar Freeway", keys={"player_speed": 3}),
    _gymnax("Seaquest-MinAtar", 1000, "MinAtar Seaquest",
            keys={**_SPAWN, "init_spawn_speed": 20, "max_oxygen": 200, "diver_spawn_speed": 30,
                  "enemy_shot_interval": 10, "enemy_move_interval": 5, "diver_move_interval": 5}),
    _gymnax("SpaceInvaders-MinAtar", 1000, "MinAtar Space Invaders",
            keys={"shot_cool_down": 5, "enemy_move_interval": 12, "enemy_shot_interval": 10}),
    _gymnax("Catch-bsuite", 1000, "bsuite Catch"),
    _gymnax("DeepSea-bsuite", 8, "bsuite Deep Sea: exploration", unscaled_move_cost=0.01,
            keys={"deterministic": True, "sample_action_map": False, "randomize_actions": True}),
    _gymnax("MemoryChain-bsuite", 1000, "bsuite Memory Chain", keys={"memory_length": 5}),
    _gymnax("UmbrellaChain-bsuite", 100, "bsuite Umbrella Chain", keys={"chain_length": 10}),
    _gymnax("DiscountingChain-bsuite", 100, "bsuite Discounting Chain", optimal_return=1.1),
    _gymnax("SimpleBandit-bsuite", 100, "bsuite bandit with 11 arms", optimal_return=1.0),
    _gymnax("FourRooms-misc", 500, "grid world of four rooms", fail_prob=1 / 3,
            keys={"resample_init_pos": False, "resample_goal_pos": False}),
    _gymnax("MetaMaze-misc", 200, "maze for meta-learning", reward=10.0, punishment=0.0,
            keys={"normalize_time": False}),
    _gymnax("PointRobot-misc", 100, "point robot for meta-learning", "continuous",
            max_force=0.1, circle_radius=1.0, goal_radius=0.2,
            keys={"dense_reward": False, "center_init": False, "normalize_time": True}),
    _gymnax("BernoulliBandit-misc", 100, "Bernoulli bandit", reward_prob=0.1, min_lim=-1.0,
            max_lim=1.0, keys={"normalize_time": True, "t_max": 100}),
    _gymnax("GaussianBandit-misc", 100, "Gaussian bandit", mean_mu=-1.0, sigma_p=1.0,
            sigma_l=0.1, keys={"normalize_time": True}),
    _gymnax("Reacher-misc", 100, "two-link arm", "continuous", torque_scale=1.0, dt=0.05),
    _gymnax("Swimmer-misc", 500, "swimmer", "continuous", dt=0.05),
    _gymnax("Pong-misc", 1000, "Pong", keys={"ball_max_y_speed": 3, "paddle_y_speed": 1,
                                             "ball_x_speed": 1, "use_ai_policy": True}),
)  # fmt: skip

ENVIRONMENTS: Mapping[str, EnvEntry] = {item.id: item for item in _ENTRIES}


def entry(id_: str) -> EnvEntry:
    """Give the entry of an id.

    Raises:
        UnknownNameError: with the nearest id.

    >>> entry("Pendulum-v1").actions
    'continuous'
    """
    if id_ in ENVIRONMENTS:
        return ENVIRONMENTS[id_]
    raise UnknownNameError("environment", id_, ENVIRONMENTS)
