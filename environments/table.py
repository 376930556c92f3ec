"""The table of all environments except Gymnasium's: ids, parameters, and keys with meanings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..files.plain_data import Range
from ..foreign_names.tables import env_names
from ..foreign_names.xlron_table import XLRON

INT32 = 2**31 - 1
KeyType = Literal["int", "bool", "float", "str", "any"]  # `any` is checked by the environment
_NOUNS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a string",
          "any": "any value that the environment accepts"}  # fmt: skip
_TYPES = {"int": int, "float": float, "bool": bool, "str": str}


def type_of(default: Any, real: bool) -> KeyType:
    """Return an argument's type, derived from its default; `real` makes whole numbers real."""
    if isinstance(default, bool):
        return "bool"
    if isinstance(default, float) or (real and isinstance(default, int)):
        return "float"
    if isinstance(default, int):
        return "int"
    if isinstance(default, str):
        return "str"
    return "any"


@dataclass(frozen=True)
class EnvKey(Range):
    """A static `env:` key: in a search, each of its values needs a separate program."""

    type: KeyType
    default: Any
    choices: tuple[Any, ...] = ()  # legal values, if they are few
    meaning: str = ""  # one line, with unit if there is one
    file: bool = False  # whether the value may be a path, relative to the study file's folder

    def allowed(self) -> str:
        if self.choices:
            return ", ".join(map(str, self.choices))
        return self.in_words(_NOUNS[self.type])

    def is_legal(self, value: Any) -> bool:
        if value is None and self.default is None:
            return True
        legal = self.type == "any" or type(value) is _TYPES[self.type]
        if self.type in ("int", "float") and isinstance(value, int | float):
            most = {"int": INT32, "float": math.inf}[self.type]
            legal = legal and math.isfinite(value) and self.contains(value) and value <= most
        return legal and (not self.choices or value in self.choices)


@dataclass(frozen=True)
class EnvEntry:
    id: str
    source: str  # library or module
    actions: Literal["discrete", "continuous", "any"]  # `any`: depends on the keys
    params: Mapping[str, float] = field(default_factory=dict)  # traced parameter -> default
    keys: Mapping[str, EnvKey] = field(default_factory=dict)
    meaning: str = ""  # one line
    positive: tuple[str, ...] = ()  # parameters that must be above 0; others: any finite number
    # metrics `eval/<name>`: name -> meaning
    metrics: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)  # name in another system -> key
    best_return: str | None = None  # key or parameter equal to the highest return
    # lowest and highest return: numbers, or a key or parameter (`-key`: the negative of its value)
    returns: tuple[str | float, str | float] = (-math.inf, math.inf)

    # whether any argument is accepted, as by a constructor with `**kwargs`; each is then a key
    is_open: bool = False
    # keys that evaluations change unless `eval_env` gives them: for whole games and true scores
    eval_keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key_defaults(self) -> dict[str, Any]:
        return {name: key.default for name, key in self.keys.items()}

    def makes_program(self, key: str) -> bool:
        """Return whether each value of a key needs a separate program."""
        return key in self.keys or self.is_unnamed(key)

    def is_unnamed(self, key: str) -> bool:
        """Return whether the constructor accepts an argument that its signature does not name."""
        return self.is_open and key not in self.keys and key not in self.params

    def return_range(self, given: Mapping[str, Any]) -> tuple[float, float]:
        """Return an episode's lowest and highest possible return for given keys and parameters."""
        values = {**self.key_defaults, **self.params, **given}
        low, high = (
            self._range_end(end, values, infinite)
            for end, infinite in zip(self.returns, (-math.inf, math.inf), strict=True)
        )
        return low, high

    def default_of(self, key: str) -> Any:
        """Return the default of a key or a parameter; None for an unknown name."""
        if key in self.keys:
            return self.keys[key].default
        return self.params.get(key)

    @staticmethod
    def _range_end(end: str | float, values: Mapping[str, Any], unknown: float) -> float:
        if not isinstance(end, str):
            return end
        value = values.get(end.removeprefix("-"))
        if not isinstance(value, int | float):
            return unknown
        if end.startswith("-"):
            return -value
        return value


# Id -> lowest and highest return by the game's rules, if they hold for all values of its keys
_RETURNS: Mapping[str, tuple[str | float, str | float]] = {
    "CartPole-v1": (0.0, "max_steps_in_episode"),  # 1 per env step
    "Acrobot-v1": ("-max_steps_in_episode", 0.0),  # -1 per env step
    "MountainCar-v0": ("-max_steps_in_episode", 0.0),  # -1 per env step
    "Asterix-MinAtar": (0.0, math.inf),  # 1 per gold; enemies cost nothing
    "Breakout-MinAtar": (0.0, "max_steps_in_episode"),  # 1 per brick, one per env step at most
    "Freeway-MinAtar": (0.0, "max_steps_in_episode"),  # 1 per crossing, which takes env steps
    "Seaquest-MinAtar": (0.0, math.inf),  # 1 per enemy, more for surfacing; no negative rewards
    "SpaceInvaders-MinAtar": (0.0, "max_steps_in_episode"),  # 1 per alien, and each needs a bullet
    "Catch-bsuite": (-1.0, 1.0),  # one ball: caught 1, missed -1
    "MemoryChain-bsuite": (-1.0, 1.0),  # one answer, at the end: right 1, wrong -1
    "UmbrellaChain-bsuite": ("-chain_length", "chain_length"),  # 1 or -1 per env step
    "SimpleBandit-bsuite": (0.0, 1.0),  # one pull; its arms pay from 0 to 1
    "DiscountingChain-bsuite": (0.0, math.inf),  # one payment, of 1 or `optimal_return`
    "FourRooms-misc": (0.0, 1.0),  # 1 at the goal, which ends the episode
    "MountainCarContinuous-v0": (-math.inf, 100.0),  # 100 at the goal; actions cost
}  # fmt: skip


def _gymnax_entry(
    id_: str,
    steps: int,
    meaning: str,
    actions: Literal["discrete", "continuous"] = "discrete",
    *,
    keys: Mapping[str, Any] | None = None,
    best_return: str | None = None,
    **params: float,
) -> EnvEntry:
    limit = EnvKey("int", steps, meaning="env steps until truncation", low=1)
    fixed = {"max_steps_in_episode": limit}
    for name, default in (keys or {}).items():
        fixed[name] = EnvKey(type_of(default, False), default)
    known = _RETURNS.get(id_, (-math.inf, math.inf))
    return EnvEntry(
        id_, "gymnax", actions, params, fixed, meaning, best_return=best_return, returns=known
    )


_SPAWN = {"ramping": True, "ramp_interval": 100, "init_move_interval": 5, "shot_cool_down": 5}
_CAR: dict[str, Any] = {"min_position": -1.2, "max_position": 0.6, "max_speed": 0.07,
                        "goal_velocity": 0.0, "gravity": 0.0025}  # fmt: skip

_ENTRIES = (
    _gymnax_entry(
        "CartPole-v1",
        500,
        "balance a pole on a cart",
        gravity=9.8,
        masscart=1.0,
        masspole=0.1,
        total_mass=1.1,
        length=0.5,
        polemass_length=0.05,
        force_mag=10.0,
        tau=0.02,
        theta_threshold_radians=0.20943951023931953,
        x_threshold=2.4,
        best_return="max_steps_in_episode",
    ),
    _gymnax_entry(
        "Pendulum-v1",
        200,
        "swing a pendulum up",
        "continuous",
        max_speed=8.0,
        max_torque=2.0,
        dt=0.05,
        g=10.0,
        m=1.0,
        l=1.0,
    ),
    _gymnax_entry(
        "Acrobot-v1",
        500,
        "swing two links up",
        dt=0.2,
        link_length_1=1.0,
        link_length_2=1.0,
        link_mass_1=1.0,
        link_mass_2=1.0,
        link_com_pos_1=0.5,
        link_com_pos_2=0.5,
        link_moi=1.0,
        max_vel_1=12.566370614359172,
        max_vel_2=28.274333882308138,
        torque_noise_max=0.0,
    ),
    _gymnax_entry(
        "MountainCar-v0",
        200,
        "drive a weak car up a hill",
        "discrete",
        goal_position=0.5,
        force=0.001,
        **_CAR,
    ),
    _gymnax_entry(
        "MountainCarContinuous-v0",
        999,
        "drive a weak car up a hill with a continuous force",
        "continuous",
        min_action=-1.0,
        max_action=1.0,
        goal_position=0.45,
        power=0.0015,
        **_CAR,
    ),
    _gymnax_entry(
        "Asterix-MinAtar", 1000, "MinAtar Asterix", keys={**_SPAWN, "init_spawn_speed": 10}
    ),
    _gymnax_entry("Breakout-MinAtar", 1000, "MinAtar Breakout"),
    _gymnax_entry("Freeway-MinAtar", 2500, "MinAtar Freeway", keys={"player_speed": 3}),
    _gymnax_entry(
        "Seaquest-MinAtar",
        1000,
        "MinAtar Seaquest",
        keys={
            **_SPAWN,
            "init_spawn_speed": 20,
            "max_oxygen": 200,
            "diver_spawn_speed": 30,
            "enemy_shot_interval": 10,
            "enemy_move_interval": 5,
            "diver_move_interval": 5,
        },
    ),
    _gymnax_entry(
        "SpaceInvaders-MinAtar",
        1000,
        "MinAtar Space Invaders",
        keys={"shot_cool_down": 5, "enemy_move_interval": 12, "enemy_shot_interval": 10},
    ),
    _gymnax_entry("Catch-bsuite", 1000, "bsuite Catch"),
    _gymnax_entry(
        "DeepSea-bsuite",
        8,
        "bsuite Deep Sea: exploration",
        unscaled_move_cost=0.01,
        keys={"deterministic": True, "sample_action_map": False, "randomize_actions": True},
    ),
    _gymnax_entry("MemoryChain-bsuite", 1000, "bsuite Memory Chain", keys={"memory_length": 5}),
    _gymnax_entry("UmbrellaChain-bsuite", 100, "bsuite Umbrella Chain", keys={"chain_length": 10}),
    _gymnax_entry("DiscountingChain-bsuite", 100, "bsuite Discounting Chain", optimal_return=1.1),
    _gymnax_entry("SimpleBandit-bsuite", 100, "bsuite bandit with 11 arms", optimal_return=1.0),
    _gymnax_entry(
        "FourRooms-misc",
        500,
        "grid world with four rooms",
        fail_prob=1 / 3,
        keys={"resample_init_pos": False, "resample_goal_pos": False},
    ),
    _gymnax_entry(
        "MetaMaze-misc",
        200,
        "maze for meta-learning",
        reward=10.0,
        punishment=0.0,
        keys={"normalize_time": False},
    ),
    _gymnax_entry(
        "PointRobot-misc",
        100,
        "point robot for meta-learning",
        "continuous",
        max_force=0.1,
        circle_radius=1.0,
        goal_radius=0.2,
        keys={"dense_reward": False, "center_init": False, "normalize_time": True},
    ),
    _gymnax_entry(
        "BernoulliBandit-misc",
        100,
        "Bernoulli bandit",
        reward_prob=0.1,
        min_lim=-1.0,
        max_lim=1.0,
        keys={"normalize_time": True, "t_max": 100},
    ),
    _gymnax_entry(
        "GaussianBandit-misc",
        100,
        "Gaussian bandit",
        mean_mu=-1.0,
        sigma_p=1.0,
        sigma_l=0.1,
        keys={"normalize_time": True},
    ),
    _gymnax_entry("Reacher-misc", 100, "two-link arm", "continuous", torque_scale=1.0, dt=0.05),
    _gymnax_entry("Swimmer-misc", 500, "swimmer", "continuous", dt=0.05),
    _gymnax_entry(
        "Pong-misc",
        1000,
        "Pong",
        keys={
            "ball_max_y_speed": 3,
            "paddle_y_speed": 1,
            "ball_x_speed": 1,
            "use_ai_policy": True,
        },
    ),
)


def _text_key(default: str, meaning: str, *choices: str, file: bool = False) -> EnvKey:
    return EnvKey("str", default, choices, meaning, file=file)


def _switch_key(meaning: str, default: bool = False) -> EnvKey:
    return EnvKey("bool", default, meaning=meaning)


def _count_key(default: int, meaning: str, low: int = 1, high: float = math.inf) -> EnvKey:
    return EnvKey("int", default, meaning=meaning, low=low, high=high)


def _above_0(default: float, meaning: str) -> EnvKey:
    return EnvKey("float", default, meaning=meaning, low=0.0, low_open=True)


_OPTICAL_PARAMS = {"load": 250.0, "mean_holding_time": 25.0, "bitrate_scale": 1.0}
_OPTICAL_KEYS = {
    "topology": _text_key("nsfnet_deeprmsa", "a name, or a .json or .graphml file", file=True),
    "directed": _switch_key("a separate spectrum for each direction of a link", True),
    "slots": _count_key(100, "frequency slots (wavelengths) per link", high=10_000),
    "slot_width": _above_0(12.5, "width of a slot in GHz"),
    "guardband": _count_key(1, "guard slots added to every service", 0),
    "k": _count_key(5, "candidate paths per node pair", high=1_000),
    "path_order": _text_key(
        "spectral_resources",
        "order of the candidate paths",
        "spectral_resources",
        "hops",
        "distance",
        "hops_distance",
        "capacity",
    ),
    "disjoint_paths": _switch_key("prefer candidate paths that share no link"),
    "modulation": _text_key("deeprmsa", "a reach table's name, or a CSV file", file=True),
    "truncate_holding_time": _switch_key("truncate holding times at twice their mean"),
    "bitrates": EnvKey(
        "any",
        (),
        meaning="bitrates in Gb/s to draw from, instead of a range; repeats act as weights",
    ),
    "min_bitrate": _above_0(25.0, "smallest bitrate in Gb/s"),
    "max_bitrate": _above_0(100.0, "largest bitrate in Gb/s"),
    "step_bitrate": _above_0(1.0, "step between bitrates in Gb/s"),
    "traffic_matrix": _text_key("uniform", "uniform, random, or a CSV file", file=True),
    "continuous": _switch_key("no episodes: the network is never emptied", True),
    "max_requests": _count_key(1000, "requests per episode"),
    "warmup_requests": _count_key(
        3000, "requests before learning and metrics start; 0 by default if continuous is false", 0
    ),
    "incremental": _switch_key("services never end"),
    "requests": _text_key("", "a CSV file of requests, replayed exactly", file=True),
    "aggregate_slots": _count_key(1, "start slots per action"),
    "no_op": _switch_key("add an action that rejects the request"),
    "reward": _text_key(
        "service",
        "cost of a blocked request: 1, or its bitrate as a fraction of the largest bitrate",
        "service",
        "bitrate",
    ),
    "end_first_blocking": _switch_key("end an episode at the first blocked request"),
    "scale_factor": _above_0(1.0, "factor that scales lightpath capacities"),
    "observation": _text_key(
        "flat",
        "observation of the policy",
        "flat",
        "packed",
        "deeprmsa",
        "paths",
        "graph",
        "link_departure",
        "link_occupancy",
        "link_capacity",
    ),
    "histograms": _switch_key("report shares of accepted services by path rank and hop count"),
    "fits": EnvKey(
        "any",
        ("first",),
        meaning="one or more of first, best, last, exact; if several, actions choose path and fit",
    ),
    "shadow": _text_key("", "a heuristic run on the same requests, as a control variate"),
}
_OPTICAL_METRICS = {
    "service_blocking_probability": "share of requests that were blocked, warm-up excluded",
    "bitrate_blocking_probability": "share of the requested bitrate that was blocked",
    "utilisation": "mean share of slots in use over all links",
    "requests": "number of requests counted in these metrics",
    "accepted_services": "number of accepted services",
    "accepted_bitrate": "sum of the accepted bitrates in Gb/s",
}


def _optical_entry(id_: str, meaning: str, **defaults: Any) -> EnvEntry:
    keys = {
        name: replace(key, default=defaults.get(name, key.default))
        for name, key in _OPTICAL_KEYS.items()
    }
    return EnvEntry(
        id_,
        "optical",
        "discrete",
        _OPTICAL_PARAMS,
        keys,
        meaning,
        tuple(_OPTICAL_PARAMS),
        _OPTICAL_METRICS,
        env_names(XLRON),
    )


_NETWORKS = (
    _optical_entry("rsa", "optical network: path and slots, one modulation for all"),
    _optical_entry("rmsa", "optical network: path and slots, modulation by path length"),
    _optical_entry(
        "deeprmsa",
        "optical network: path, and slots by first fit or another fit",
        observation="deeprmsa",
    ),
    _optical_entry("rwa", "optical network: path and wavelength", guardband=0, bitrates=(12.5,)),
    _optical_entry(
        "rwa_lightpath_reuse", "optical network: services share lightpaths", guardband=0
    ),
)

_OWN = (
    EnvEntry(
        "navigators",
        "navigators",
        "continuous",
        {
            "thrust": 2.0,
            "drag": 0.5,
            "dt": 0.1,
            "radius": 0.08,
            "goal_radius": 0.1,
            "collision_cost": 0.1,
        },
        {
            "agents": _count_key(4, "number of agents, all controlled by one policy", 2),
            "neighbours": _count_key(3, "number of nearest agents in each observation", 0),
            "max_steps_in_episode": _count_key(100, "env steps until truncation"),
        },
        "several agents steer to goals and avoid each other",
        ("dt",),
        {
            "collision_share": "share of agents that touch another agent, over all env steps",
            "arrived_share": "share of agents at their goals, over all env steps",
        },
    ),
)

_BRAX_PARAMS = {"gravity": 9.81, "friction": 1.0, "strength": 1.0}


def _brax_entry(name: str, meaning: str, **keys: float | bool) -> EnvEntry:
    fixed = {
        "max_steps_in_episode": _count_key(1000, "env steps until truncation"),
        "backend": _text_key(
            "generalized", "physics engine", "generalized", "spring", "positional", "mjx"
        ),
    }
    for key, default in keys.items():
        fixed[key] = EnvKey(type_of(default, True), default)
    return EnvEntry(f"brax:{name}", "brax", "continuous", _BRAX_PARAMS, fixed, meaning)


_BRAX = (
    _brax_entry(
        "ant",
        "run on four legs",
        ctrl_cost_weight=0.5,
        contact_cost_weight=5e-4,
        healthy_reward=1.0,
        terminate_when_unhealthy=True,
        reset_noise_scale=0.1,
    ),
    _brax_entry(
        "halfcheetah",
        "run on two legs in a plane",
        forward_reward_weight=1.0,
        ctrl_cost_weight=0.1,
        reset_noise_scale=0.1,
    ),
    _brax_entry(
        "hopper",
        "hop on one leg",
        forward_reward_weight=1.0,
        ctrl_cost_weight=1e-3,
        healthy_reward=1.0,
        terminate_when_unhealthy=True,
        reset_noise_scale=5e-3,
    ),
    _brax_entry(
        "humanoid",
        "run upright",
        forward_reward_weight=1.25,
        ctrl_cost_weight=0.1,
        healthy_reward=5.0,
        terminate_when_unhealthy=True,
        reset_noise_scale=1e-2,
    ),
    _brax_entry("humanoidstandup", "stand up"),
    _brax_entry("inverted_pendulum", "balance a pole on a cart"),
    _brax_entry("inverted_double_pendulum", "balance two poles on a cart"),
    _brax_entry("pusher", "push an object to a goal"),
    _brax_entry("reacher", "reach a point with a two-link arm"),
    _brax_entry(
        "swimmer",
        "swim with three links",
        forward_reward_weight=1.0,
        ctrl_cost_weight=1e-4,
        reset_noise_scale=0.1,
    ),
    _brax_entry(
        "walker2d",
        "walk on two legs in a plane",
        forward_reward_weight=1.0,
        ctrl_cost_weight=1e-3,
        healthy_reward=1.0,
        terminate_when_unhealthy=True,
        reset_noise_scale=5e-3,
    ),
)


def _playground_entry(
    name: str, meaning: str, control: float, physics: float, *params: str
) -> EnvEntry:
    traced = {param: _BRAX_PARAMS[param] for param in params}
    fixed = {
        "max_steps_in_episode": _count_key(1000, "env steps until truncation"),
        "ctrl_dt": _above_0(control, "length of an env step in seconds"),
        "sim_dt": _above_0(physics, "length of a physics step in seconds"),
    }
    return EnvEntry(f"playground:{name}", "playground", "continuous", traced, fixed, meaning)


_FREE = ("gravity", "strength")  # nothing makes contact
_TOUCHING = ("gravity", "friction", "strength")
_PLAYGROUND = (
    _playground_entry("AcrobotSwingup", "swing two links up", 0.01, 0.01, *_FREE),
    _playground_entry(
        "AcrobotSwingupSparse", "swing two links up, sparse reward", 0.01, 0.01, *_FREE
    ),
    _playground_entry("BallInCup", "catch a ball on a string", 0.02, 0.002, *_TOUCHING),
    _playground_entry("CartpoleBalance", "balance a pole on a cart", 0.01, 0.01, *_FREE),
    _playground_entry(
        "CartpoleBalanceSparse", "balance a pole on a cart, sparse reward", 0.01, 0.01, *_FREE
    ),
    _playground_entry("CartpoleSwingup", "swing a pole up on a cart", 0.01, 0.01, *_FREE),
    _playground_entry(
        "CartpoleSwingupSparse", "swing a pole up on a cart, sparse reward", 0.01, 0.01, *_FREE
    ),
    _playground_entry("CheetahRun", "run on two legs in a plane", 0.01, 0.01, *_TOUCHING),
    _playground_entry(
        "FingerSpin", "spin a body with a finger", 0.02, 0.005, "friction", "strength"
    ),
    _playground_entry(
        "FingerTurnEasy",
        "turn a body so that its tip reaches a large target",
        0.02,
        0.005,
        "friction",
        "strength",
    ),
    _playground_entry(
        "FingerTurnHard",
        "turn a body so that its tip reaches a small target",
        0.02,
        0.005,
        "friction",
        "strength",
    ),
    _playground_entry("FishSwim", "swim to a target", 0.04, 0.002, "strength"),
    _playground_entry("HopperHop", "hop on one leg", 0.02, 0.005, *_TOUCHING),
    _playground_entry("HopperStand", "stand on one leg", 0.02, 0.005, *_TOUCHING),
    _playground_entry("HumanoidRun", "run upright", 0.025, 0.005, *_TOUCHING),
    _playground_entry("HumanoidStand", "stand upright", 0.025, 0.005, *_TOUCHING),
    _playground_entry("HumanoidWalk", "walk upright", 0.025, 0.005, *_TOUCHING),
    _playground_entry("PendulumSwingup", "swing a pendulum up", 0.02, 0.01, *_FREE),
    _playground_entry("PointMass", "move a point to a target in a plane", 0.02, 0.02, "strength"),
    _playground_entry("SwimmerSwimmer6", "swim with six links", 0.03, 0.003, "strength"),
    _playground_entry("WalkerRun", "run on two legs in a plane", 0.025, 0.0025, *_TOUCHING),
    _playground_entry(
        "WalkerStand", "stay upright on two legs in a plane", 0.025, 0.0025, *_TOUCHING
    ),
    _playground_entry("WalkerWalk", "walk on two legs in a plane", 0.025, 0.0025, *_TOUCHING),
)

_JAXMARL = (
    EnvEntry(
        "jaxmarl:MPE_simple_spread_v3",
        "jaxmarl",
        "any",
        keys={
            "max_steps_in_episode": _count_key(25, "env steps until truncation"),
            "num_agents": _count_key(3, "number of agents, all controlled by one policy"),
            "num_landmarks": _count_key(3, "places to cover"),
            "local_ratio": EnvKey(
                "float", 0.5, meaning="weight of each agent's individual reward"
            ),
            "action_type": _text_key("Discrete", "kind of actions", "Discrete", "Continuous"),
        },
        meaning="several agents cover landmarks and avoid each other",
    ),
)

ENVIRONMENTS: Mapping[str, EnvEntry] = {
    item.id: item for item in (*_ENTRIES, *_NETWORKS, *_OWN, *_BRAX, *_PLAYGROUND, *_JAXMARL)
}
