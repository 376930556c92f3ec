"""The `env:` mapping of an optical environment, parsed once into a frozen, checked dataclass.

This module does not import jax, so that the loader can check study files without it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ....environments.table import ENVIRONMENTS
from ....errors import ConfigError, UnknownNameError
from ....files.plain_data import is_number
from .candidate_paths import PATH_ORDERS

ENVIRONMENT_IDS = tuple(id_ for id_, item in ENVIRONMENTS.items() if item.source == "optical")
_ENTRY = ENVIRONMENTS["rmsa"]
_DEFAULTS: dict[str, Any] = {
    "id": "rmsa",
    **_ENTRY.params,
    **_ENTRY.key_defaults,
}
# The names in `heuristics`, which imports jax.
HEURISTIC_NAMES = (
    "ksp_ff", "ksp_lf", "ff_ksp", "ksp_bf", "bf_ksp", "ksp_mu", "mu_ksp", "kca_ff", "kmc_ff",
    "kmf_ff", "kme_ff",
)  # fmt: skip
FIT_NAMES = ("first", "best", "last", "exact")
OBSERVATIONS = _ENTRY.keys["observation"].choices


@dataclass(frozen=True)
class OpticalSettings:
    """The checked `env:` keys and parameters of an optical environment; see `EnvKey.meaning`."""

    id: str
    topology: str
    directed: bool
    slots: int
    slot_width: float
    guardband: int
    k: int
    path_order: str
    disjoint_paths: bool
    modulation: str
    load: float
    mean_holding_time: float
    truncate_holding_time: bool
    bitrates: tuple[float, ...]
    min_bitrate: float
    max_bitrate: float
    step_bitrate: float
    bitrate_scale: float
    traffic_matrix: str
    continuous: bool
    max_requests: int
    warmup_requests: int
    incremental: bool
    requests: str
    aggregate_slots: int
    fits: tuple[str, ...]
    no_op: bool
    reward: str
    end_first_blocking: bool
    scale_factor: float
    observation: str
    histograms: bool
    shadow: str

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> OpticalSettings:
        given = {str(key): value for key, value in mapping.items()}
        for key in given:
            if key not in _DEFAULTS:
                raise UnknownNameError(
                    "environment key", key, _DEFAULTS, _ENTRY.elsewhere.get(key)
                )
        given = {key: _coerce_value(key, value) for key, value in given.items()}
        settings = cls(**_default_settings(given) | given)
        _check_ranges(settings)
        _check_together(settings, given)
        return settings

    @property
    def modulated(self) -> bool:
        return self.id in ("rmsa", "deeprmsa")

    @property
    def reuses_lightpaths(self) -> bool:
        return self.id == "rwa_lightpath_reuse"

    @property
    def bitrate_list(self) -> tuple[float, ...]:
        """The bitrates (Gb/s, before `bitrate_scale`), from which requests draw uniformly."""
        if self.bitrates:
            return self.bitrates
        steps = math.floor((self.max_bitrate - self.min_bitrate) / self.step_bitrate + 1e-9)
        return tuple(self.min_bitrate + self.step_bitrate * i for i in range(steps + 1))

    @property
    def width(self) -> float:
        """The width of a slot in GHz, or the largest bitrate if lightpaths are reused."""
        if self.reuses_lightpaths:
            return max(self.bitrate_list)
        return self.slot_width


def _default_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    kind = given.get("id", _DEFAULTS["id"])
    if kind not in ENVIRONMENT_IDS:
        raise UnknownNameError("environment", kind, ENVIRONMENT_IDS)
    own = ENVIRONMENTS[kind].key_defaults
    if kind == "rwa":
        own["bitrates"] = (given.get("slot_width", own["slot_width"]),)
    if given.get("requests") or given.get("incremental"):
        own["continuous"] = False
    if not (own | dict(given))["continuous"]:
        own["warmup_requests"] = 0
    return _DEFAULTS | own


def _coerce_value(key: str, value: Any) -> Any:
    if key in ("bitrates", "fits"):
        return _as_items(key, value)
    if (key, value) in (("requests", None), ("shadow", None)):
        return ""
    kind = type(_DEFAULTS[key])
    if kind in (int, float):
        if not is_number(value) or (kind is int and value != int(value)):
            _refuse_value(key, value, _KINDS[kind])
        return kind(value)
    if not isinstance(value, kind):
        _refuse_value(key, value, _KINDS[kind])
    return value


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _as_items(key: str, value: Any) -> tuple[Any, ...]:
    """Return the values as a tuple; a single value becomes a tuple of one."""
    items = (value,)
    if isinstance(value, list | tuple):
        items = tuple(value)
    if key == "fits":
        return items
    if not all(map(is_number, items)):
        _refuse_value(key, value, "a list of numbers (Gb/s)")
    return tuple(map(float, items))


def _refuse_value(key: str, value: Any, allowed: str) -> NoReturn:
    raise ConfigError(f"{key} is {value!r}; it must be {allowed}")


def _check_ranges(settings: OpticalSettings) -> None:
    for key, spec in _ENTRY.keys.items():
        value = getattr(settings, key)
        if spec.choices and value not in spec.choices:
            raise UnknownNameError(key, value, spec.choices)
        if not spec.is_legal(value):
            _refuse_value(key, value, spec.allowed())
    for key in _ENTRY.positive:
        if getattr(settings, key) <= 0:
            _refuse_value(key, getattr(settings, key), "above 0")
    if settings.shadow and settings.shadow not in HEURISTIC_NAMES:
        raise UnknownNameError("shadow", settings.shadow, HEURISTIC_NAMES)
    if settings.bitrates and min(settings.bitrates) <= 0:
        _refuse_value("bitrates", list(settings.bitrates), "a list of numbers above 0 (Gb/s)")
    if settings.max_bitrate < settings.min_bitrate:
        lowest = f"min_bitrate ({settings.min_bitrate}) or more"
        _refuse_value("max_bitrate", settings.max_bitrate, lowest)


def _check_fits(settings: OpticalSettings) -> None:
    for name in settings.fits:
        if name not in FIT_NAMES:
            raise UnknownNameError("fit", str(name), FIT_NAMES)
    if not settings.fits or len(set(settings.fits)) < len(settings.fits):
        _refuse_value(
            "fits", list(settings.fits), f"a list of distinct names from {', '.join(FIT_NAMES)}"
        )
    if settings.fits != ("first",) and settings.id != "deeprmsa":
        raise ConfigError(
            f"fits applies only to deeprmsa, but actions of {settings.id} choose a slot; "
            "remove fits, or set id: deeprmsa"
        )


def _check_together(settings: OpticalSettings, given: Mapping[str, Any]) -> None:
    _check_fits(settings)
    _check_slots(settings)
    _check_bitrates(settings, given)
    _check_episodes(settings)
    _check_request_list(settings)
    _check_observation(settings)


def _check_slots(settings: OpticalSettings) -> None:
    if settings.aggregate_slots > settings.slots:
        allowed = f"at most slots ({settings.slots}), which gives each path a single block"
        _refuse_value("aggregate_slots", settings.aggregate_slots, allowed)
    if settings.id == "deeprmsa" and (settings.aggregate_slots > 1 or settings.no_op):
        raise ConfigError(
            "deeprmsa chooses a path and uses its first free block, so aggregate_slots and "
            "no_op do not apply; set id: rmsa to use them"
        )
    if settings.id in ("rwa", "rwa_lightpath_reuse") and settings.guardband:
        _refuse_value(
            "guardband", settings.guardband, f"0 for {settings.id}, where a service takes one slot"
        )


def _check_bitrates(settings: OpticalSettings, given: Mapping[str, Any]) -> None:
    if settings.id == "rwa" and set(settings.bitrates) != {settings.slot_width}:
        raise ConfigError("rwa uses one slot per request; remove bitrates, or set id: rsa")
    if settings.bitrates and {"min_bitrate", "max_bitrate", "step_bitrate"} & set(given):
        raise ConfigError("give bitrates, or min_bitrate, max_bitrate and step_bitrate, not both")


def _check_episodes(settings: OpticalSettings) -> None:
    if settings.continuous and (settings.requests or settings.incremental):
        what, key = "incremental loading", "incremental"
        if settings.requests:
            what, key = "a request list", "requests"
        raise ConfigError(f"{what} cannot run forever; set continuous: false, or remove {key}")
    if settings.shadow and settings.end_first_blocking:
        raise ConfigError(
            "shadow and end_first_blocking exclude each other, because the policy and its "
            "shadow must end at the same request; remove one of the two"
        )


def _check_request_list(settings: OpticalSettings) -> None:
    if settings.requests and settings.warmup_requests:
        _refuse_value("warmup_requests", settings.warmup_requests, "0 with a request list")
    if settings.requests and settings.traffic_matrix != "uniform":
        raise ConfigError(
            "a request list already fixes sources and destinations; remove traffic_matrix"
        )


def _check_observation(settings: OpticalSettings) -> None:
    if settings.observation == "packed" and settings.reuses_lightpaths:
        raise ConfigError(
            "observation packed has one bit per slot, which cannot show shared "
            "lightpaths; use flat"
        )
    if settings.observation == "link_capacity" and not settings.reuses_lightpaths:
        raise ConfigError(
            "observation link_capacity needs id: rwa_lightpath_reuse; use link_departure "
            "or link_occupancy"
        )


MOST_PATHS = 1000


@dataclass(frozen=True)
class Baseline:
    rule: str  # name of the heuristic
    k: int | None = None  # candidate paths per node pair; None: as many as the environment has
    path_order: str | None = None  # one of `PATH_ORDERS`; None: the environment's

    def settings(self, given: OpticalSettings) -> OpticalSettings:
        own = {"k": self.k, "path_order": self.path_order}
        return dataclasses.replace(given, **{key: v for key, v in own.items() if v is not None})


def parse_baseline(text: str) -> Baseline:
    """Read `RULE`, `RULE@K`, `RULE:ORDER` or `RULE@K:ORDER`.

    >>> parse_baseline("ksp_bf@10:hops")
    Baseline(rule='ksp_bf', k=10, path_order='hops')
    >>> parse_baseline("ksp_ff").k is None
    True
    """
    head, colon, order = text.partition(":")
    rule, at, count = head.partition("@")
    if rule not in HEURISTIC_NAMES:
        raise UnknownNameError("heuristic", rule, HEURISTIC_NAMES)
    if at and not (count.isascii() and count.isdigit() and 1 <= int(count) <= MOST_PATHS):
        raise ConfigError(
            f"baseline {text!r}: the part after @ is the number of candidate paths, a whole "
            f"number from 1 to {MOST_PATHS}; for example: {rule}@10"
        )
    if colon and order not in PATH_ORDERS:
        raise UnknownNameError("path order", order, PATH_ORDERS)
    return Baseline(rule, int(count) if at else None, order if colon else None)
