"""The `env:` mapping of an optical environment, parsed once into a frozen, checked dataclass.

No jax here: the loader checks a study file against these settings without starting it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from ....environments.table import ENVIRONMENTS
from ....errors import ConfigError, UnknownNameError
from .candidate_paths import PATH_ORDERS

ENVIRONMENT_IDS = tuple(id_ for id_, item in ENVIRONMENTS.items() if item.source == "optical")
_ENTRY = ENVIRONMENTS["rmsa"]
# Of `heuristics`, which needs jax.
HEURISTIC_NAMES = (
    "ksp_ff", "ksp_lf", "ff_ksp", "ksp_bf", "bf_ksp", "ksp_mu", "mu_ksp", "kca_ff", "kmc_ff",
    "kmf_ff", "kme_ff",
)  # fmt: skip
FIT_NAMES = ("first", "best", "last", "exact")
OBSERVATIONS = _ENTRY.keys["observation"].choices


@dataclass(frozen=True)
class OpticalSettings:
    """The `env:` keys of an optical environment, checked; ranges are those of `EnvKey`."""

    id: str = "rmsa"  # rsa, rmsa, deeprmsa, rwa or rwa_lightpath_reuse
    topology: str = "nsfnet_deeprmsa"  # a name, or a node-link JSON or GraphML file
    directed: bool = True  # a spectrum per direction of a link, or one for both
    slots: int = 100  # frequency slots (wavelengths) per link, S
    slot_width: float = 12.5  # GHz; for lightpath reuse it is always the largest bitrate
    guardband: int = 1  # slots added to every service; 0 for rwa and rwa_lightpath_reuse
    k: int = 5  # candidate paths per node pair
    path_order: str = "spectral_resources"  # one of `PATH_ORDERS`
    disjoint_paths: bool = False  # prefer edge-disjoint candidates
    modulation: str = "deeprmsa"  # a table's name or a CSV file; rmsa and deeprmsa only
    load: float = 250.0  # Erlang, of the whole network, before any truncation of holding times
    mean_holding_time: float = 25.0  # any unit of time; arrival rate load / mean_holding_time
    truncate_holding_time: bool = False  # cut holding times at twice the mean
    bitrates: tuple[float, ...] = ()  # Gb/s, drawn uniformly; empty means the range below
    min_bitrate: float = 25.0  # Gb/s, smallest of the range
    max_bitrate: float = 100.0  # Gb/s, largest of the range, drawn too
    step_bitrate: float = 1.0  # Gb/s between neighbours of the range
    bitrate_scale: float = 1.0  # multiplies every bitrate
    traffic_matrix: str = "uniform"  # uniform, random (redrawn at each reset) or a CSV file, N x N
    continuous: bool = True  # no episodes; the network is never emptied
    max_requests: int = 1000  # requests of an episode
    warmup_requests: int = 3000  # requests before learning and metrics begin
    incremental: bool = False  # services never end
    requests: str = ""  # CSV of given requests, replayed exactly; empty for random traffic
    aggregate_slots: int = 1  # starts per action block; the last block may be shorter
    fits: tuple[str, ...] = ("first",)  # choices of an action of deeprmsa, of `heuristics.FITS`
    no_op: bool = False  # a last action that refuses the request
    reward: str = "service"  # -1 per blocked request, or bitrate: -bitrate / largest bitrate
    end_first_blocking: bool = False  # an episode ends with the first blocked request
    scale_factor: float = 1.0  # of lightpath capacities (rwa_lightpath_reuse)
    observation: str = "flat"  # one of `OBSERVATIONS`
    histograms: bool = False  # metrics of accepted services by path rank and by hops
    shadow: str = ""  # a heuristic as control variate of the advantages, see `core.shadow`

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> OpticalSettings:
        given = {str(key): value for key, value in mapping.items()}
        known = [field.name for field in fields(OpticalSettings)]
        for key in given:
            if key not in known:
                raise UnknownNameError("environment key", key, known, _ENTRY.elsewhere.get(key))
        given = {key: _coerce(key, value) for key, value in given.items()}
        settings = cls(**_presets(given) | given)
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
        """Gb/s before `bitrate_scale`, drawn uniformly."""
        if self.bitrates:
            return self.bitrates
        steps = math.floor((self.max_bitrate - self.min_bitrate) / self.step_bitrate + 1e-9)
        return tuple(self.min_bitrate + self.step_bitrate * i for i in range(steps + 1))

    @property
    def width(self) -> float:
        """GHz of a slot in use: the largest bitrate where lightpaths are reused."""
        return max(self.bitrate_list) if self.reuses_lightpaths else self.slot_width


def _presets(given: Mapping[str, Any]) -> dict[str, Any]:
    presets: dict[str, Any] = {}
    kind = given.get("id", OpticalSettings.id)
    if kind in ("rwa", "rwa_lightpath_reuse"):
        presets["guardband"] = 0
    if kind == "rwa":
        presets["bitrates"] = (given.get("slot_width", OpticalSettings.slot_width),)
    if kind == "deeprmsa":
        presets["observation"] = "deeprmsa"
    if given.get("requests") or given.get("incremental"):
        presets["continuous"] = False
    if not (presets | dict(given)).get("continuous", True):
        presets["warmup_requests"] = 0
    return presets


def _coerce(key: str, value: Any) -> Any:
    if key == "bitrates":
        items = value if isinstance(value, list | tuple) else [value]
        if not all(map(_is_number, items)):
            _refuse(key, value, "a list of numbers, Gb/s")
        return tuple(map(float, items))
    if key == "fits":
        return tuple(value) if isinstance(value, list | tuple) else (value,)
    if (key, value) in (("requests", None), ("shadow", None)):
        return ""
    kind = type(getattr(OpticalSettings, key))
    if kind in (int, float):
        if not _is_number(value):
            _refuse(key, value, "a number" if kind is float else "a whole number")
        if kind is int and value != int(value):
            _refuse(key, value, "a whole number")
        return kind(value)
    if not isinstance(value, kind):
        _refuse(key, value, "true or false" if kind is bool else "text")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _refuse(key: str, value: Any, allowed: str) -> NoReturn:
    raise ConfigError(f"{key} is {value!r}; it must be {allowed}")


def _check_ranges(settings: OpticalSettings) -> None:
    if settings.id not in ENVIRONMENT_IDS:
        raise UnknownNameError("environment", settings.id, ENVIRONMENT_IDS)
    for key, spec in _ENTRY.keys.items():
        value = getattr(settings, key)
        if spec.choices and value not in spec.choices:
            raise UnknownNameError(key, value, spec.choices)
        if not spec.is_legal(value):
            _refuse(key, value, spec.allowed())
    for key in _ENTRY.positive:
        if getattr(settings, key) <= 0:
            _refuse(key, getattr(settings, key), "above 0")
    if settings.shadow and settings.shadow not in HEURISTIC_NAMES:
        raise UnknownNameError("shadow", settings.shadow, HEURISTIC_NAMES)
    if settings.bitrates and min(settings.bitrates) <= 0:
        _refuse("bitrates", list(settings.bitrates), "numbers above 0, Gb/s")
    if settings.max_bitrate < settings.min_bitrate:
        lowest = f"min_bitrate ({settings.min_bitrate}) or more"
        _refuse("max_bitrate", settings.max_bitrate, lowest)


def _check_fits(settings: OpticalSettings) -> None:
    for name in settings.fits:
        if name not in FIT_NAMES:
            raise UnknownNameError("fit", str(name), FIT_NAMES)
    if not settings.fits or len(set(settings.fits)) < len(settings.fits):
        _refuse("fits", list(settings.fits), f"some of {', '.join(FIT_NAMES)}, each once")
    if settings.fits != ("first",) and settings.id != "deeprmsa":
        raise ConfigError(
            f"fits are chosen by deeprmsa, and actions of {settings.id} choose a place: leave "
            "fits out, or type id: deeprmsa"
        )


def _check_together(settings: OpticalSettings, given: Mapping[str, Any]) -> None:
    _check_fits(settings)
    if settings.aggregate_slots > settings.slots:
        allowed = f"at most slots ({settings.slots}), which makes one block a path"
        _refuse("aggregate_slots", settings.aggregate_slots, allowed)
    if settings.id == "deeprmsa" and (settings.aggregate_slots > 1 or settings.no_op):
        raise ConfigError(
            "deeprmsa chooses a path and takes its first fitting slot: aggregate_slots and no_op "
            "do not apply; type id: rmsa to use them"
        )
    if settings.id in ("rwa", "rwa_lightpath_reuse") and settings.guardband:
        _refuse("guardband", settings.guardband, f"0 for {settings.id}: a service takes one slot")
    if settings.id == "rwa" and set(settings.bitrates) != {settings.slot_width}:
        raise ConfigError("rwa serves one slot a request: leave bitrates out, or type id: rsa")
    if settings.bitrates and {"min_bitrate", "max_bitrate", "step_bitrate"} & set(given):
        raise ConfigError("bitrates and min_bitrate, max_bitrate, step_bitrate exclude each other")
    if settings.continuous and (settings.requests or settings.incremental):
        what = "a request list" if settings.requests else "incremental loading"
        raise ConfigError(f"{what} comes to an end: type continuous: false, or leave it out")
    if settings.shadow and settings.end_first_blocking:
        raise ConfigError(
            "shadow needs episodes that end for the policy and its shadow at once; with "
            "end_first_blocking the one that blocks first ends: leave one of the two out"
        )
    if settings.requests and settings.warmup_requests:
        _refuse("warmup_requests", settings.warmup_requests, "0 with a request list")
    if settings.requests and settings.traffic_matrix != "uniform":
        raise ConfigError("a request list fixes who talks to whom: leave traffic_matrix out")
    if settings.observation == "packed" and settings.reuses_lightpaths:
        raise ConfigError(
            "observation packed has one bit a slot, too few for shared lightpaths; type flat"
        )
    if settings.observation == "link_capacity" and not settings.reuses_lightpaths:
        raise ConfigError(
            "observation link_capacity shows the capacity left on lightpaths: it needs id: "
            "rwa_lightpath_reuse; type link_departure or link_occupancy"
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
            f"baseline {text!r}: what follows @ is the number of candidate paths, a whole number "
            f"from 1 to {MOST_PATHS}; type {rule}@10"
        )
    if colon and order not in PATH_ORDERS:
        raise UnknownNameError("path order", order, PATH_ORDERS)
    return Baseline(rule, int(count) if at else None, order if colon else None)
