"""The `env:` mapping of an optical environment, parsed once into a frozen, checked dataclass.

No jax here: the loader checks a study file against these settings without starting it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ....errors import ConfigError, UnknownNameError, suggestion
from ....importers.tables import env_names
from ....importers.xlron_table import XLRON
from .candidate_paths import PATH_ORDERS

ENVIRONMENT_IDS = ("rsa", "rmsa", "deeprmsa", "rwa", "rwa_lightpath_reuse")
HEURISTIC_NAMES = (
    "ksp_ff",
    "ksp_lf",
    "ff_ksp",
    "ksp_bf",
    "bf_ksp",
    "ksp_mu",
    "mu_ksp",
    "kca_ff",
    "kmc_ff",
    "kmf_ff",
    "kme_ff",
)
"""Of `heuristics`, which needs jax."""
FIT_NAMES = ("first", "best", "last", "exact")
"""Of `fits`, which needs jax."""
OBSERVATIONS = (
    "flat",
    "packed",
    "deeprmsa",
    "paths",
    "graph",
    "link_departure",
    "link_occupancy",
    "link_capacity",
)
REWARDS = ("service", "bitrate")
XLRON_NAMES = env_names(XLRON)
"""What XLRON calls a setting, and what it is called here; suggested, never accepted."""


@dataclass(frozen=True)
class OpticalSettings:
    """Everything an optical environment is built from; units in the field's description.

    Attributes:
        id: rsa, rmsa, deeprmsa, rwa or rwa_lightpath_reuse.
        topology: a name, or a node-link JSON or GraphML file.
        directed: a spectrum per direction of a link, or one for both.
        slots: frequency slots (wavelengths) per link, S.
        slot_width: GHz; for lightpath reuse it is always the largest bitrate.
        guardband: slots added to every service; 0 for rwa and rwa_lightpath_reuse.
        k: candidate paths per node pair.
        path_order: one of `PATH_ORDERS`.
        disjoint_paths: prefer edge-disjoint candidates.
        modulation: a table's name or a CSV file; rmsa and deeprmsa only.
        load: Erlang, of the whole network, before any truncation of holding times.
        mean_holding_time: in any unit of time; arrivals are load / mean_holding_time a unit.
        truncate_holding_time: cut holding times at twice the mean.
        bitrates: Gb/s, drawn uniformly, repeats weigh; empty means the range below.
        min_bitrate: Gb/s, smallest of the range.
        max_bitrate: Gb/s, largest of the range, drawn too.
        step_bitrate: Gb/s between neighbours of the range.
        bitrate_scale: multiplies every bitrate.
        traffic_matrix: uniform, random (redrawn at each reset) or a CSV file, N x N.
        continuous: no episodes; the network is never emptied.
        max_requests: requests of an episode.
        warmup_requests: requests before learning and metrics begin.
        incremental: services never end.
        requests: CSV of given requests, replayed exactly; empty for random traffic.
        aggregate_slots: starts per action block; the last block may be shorter.
        fits: of `FIT_NAMES`, among which an action of deeprmsa chooses beside the path: the lowest
            start, that of the tightest free block (the mean over links), the highest, and the
            lowest block free on the whole path that the service fills exactly (else the first).
        no_op: a last action that refuses the request.
        reward: service (-1 a blocked request) or bitrate (-bitrate / largest bitrate).
        end_first_blocking: an episode ends with the first blocked request.
        scale_factor: of lightpath capacities (rwa_lightpath_reuse).
        observation: one of `OBSERVATIONS`.
        histograms: add the share of accepted services by path rank and by hops to the metrics.
        shadow: a heuristic that serves the requests of each rollout beside the policy, for
            advantages without the luck of traffic (see `core.shadow`); empty for none.
    """

    id: str = "rmsa"
    topology: str = "nsfnet_deeprmsa"
    directed: bool = True
    slots: int = 100
    slot_width: float = 12.5
    guardband: int = 1
    k: int = 5
    path_order: str = "spectral_resources"
    disjoint_paths: bool = False
    modulation: str = "deeprmsa"
    load: float = 250.0
    mean_holding_time: float = 25.0
    truncate_holding_time: bool = False
    bitrates: tuple[float, ...] = ()
    min_bitrate: float = 25.0
    max_bitrate: float = 100.0
    step_bitrate: float = 1.0
    bitrate_scale: float = 1.0
    traffic_matrix: str = "uniform"
    continuous: bool = True
    max_requests: int = 1000
    warmup_requests: int = 3000
    incremental: bool = False
    requests: str = ""
    aggregate_slots: int = 1
    fits: tuple[str, ...] = ("first",)
    no_op: bool = False
    reward: str = "service"
    end_first_blocking: bool = False
    scale_factor: float = 1.0
    observation: str = "flat"
    histograms: bool = False
    shadow: str = ""

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> OpticalSettings:
        """Check an `env:` mapping and fill in what it leaves out.

        Defaults that depend on other keys: a request list or incremental loading means episodes
        (`continuous: false`); episodes have no warm-up; a request list sets `max_requests`;
        rwa and rwa_lightpath_reuse have no guard band, and rwa draws one slot's bitrate;
        deeprmsa observes its own features.

        Raises:
            ConfigError: an unknown key, a value of the wrong kind, out of range, or at odds
                with another.
        """
        given = {str(key): value for key, value in mapping.items()}
        _check_names(given)
        given = {key: _coerce(key, value) for key, value in given.items()}
        settings = cls(**_presets(given) | given)
        _check_ranges(settings)
        _check_together(settings, given)
        return settings

    @property
    def modulated(self) -> bool:
        """Whether paths have a modulation format of their own."""
        return self.id in ("rmsa", "deeprmsa")

    @property
    def reuses_lightpaths(self) -> bool:
        """Whether several services may share a lightpath."""
        return self.id == "rwa_lightpath_reuse"

    @property
    def bitrate_list(self) -> tuple[float, ...]:
        """The bitrates that are drawn from uniformly, Gb/s, before `bitrate_scale`."""
        if self.bitrates:
            return self.bitrates
        steps = math.floor((self.max_bitrate - self.min_bitrate) / self.step_bitrate + 1e-9)
        return tuple(self.min_bitrate + self.step_bitrate * i for i in range(steps + 1))

    @property
    def width(self) -> float:
        """GHz of a slot as it is used: the largest bitrate where lightpaths are reused."""
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


def _check_names(given: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(OpticalSettings)]
    for key in given:
        if key in XLRON_NAMES:
            raise ConfigError(f"unknown environment key {key!r}; here it is {XLRON_NAMES[key]!r}")
        if key not in known:
            raise ConfigError(
                f"unknown environment key {key!r};{suggestion(key, known)} "
                f"Known: {', '.join(sorted(known))}"
            )


def _coerce(key: str, value: Any) -> Any:
    """Turn a parsed YAML value into the field's type, or say what type it has to be."""
    if key == "bitrates":
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(
            _coerce("load", item)
            if _is_number(item)
            else _refuse(key, value, "a list of numbers, Gb/s")
            for item in items
        )
    if key == "fits":
        return tuple(value) if isinstance(value, list | tuple) else (value,)
    kind = type(getattr(OpticalSettings, key))
    if kind is bool and not isinstance(value, bool):
        _refuse(key, value, "true or false")
    if kind is int:
        if not _is_number(value) or float(value) != int(value):
            _refuse(key, value, "a whole number")
        return int(value)
    if kind is float:
        if not _is_number(value):
            _refuse(key, value, "a number")
        return float(value)
    if kind is str:
        if value is None and key in ("requests", "shadow"):
            return ""
        if not isinstance(value, str):
            _refuse(key, value, "text")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _refuse(key: str, value: Any, allowed: str) -> Any:
    raise ConfigError(f"{key} is {value!r}; it must be {allowed}")


def _check_ranges(settings: OpticalSettings) -> None:
    choices = {
        "id": ENVIRONMENT_IDS,
        "path_order": PATH_ORDERS,
        "reward": REWARDS,
        "observation": OBSERVATIONS,
    }
    for key, known in choices.items():
        if getattr(settings, key) not in known:
            raise UnknownNameError(
                key if key != "id" else "environment", getattr(settings, key), known
            )
    if settings.shadow and settings.shadow not in HEURISTIC_NAMES:
        raise UnknownNameError("shadow", settings.shadow, HEURISTIC_NAMES)
    positive = (
        "slots",
        "slot_width",
        "k",
        "load",
        "mean_holding_time",
        "min_bitrate",
        "max_bitrate",
        "step_bitrate",
        "bitrate_scale",
        "max_requests",
        "aggregate_slots",
        "scale_factor",
    )
    for key in positive:
        if getattr(settings, key) <= 0:
            _refuse(key, getattr(settings, key), "above 0")
    for key in ("guardband", "warmup_requests"):
        if getattr(settings, key) < 0:
            _refuse(key, getattr(settings, key), "0 or more")
    if settings.bitrates and min(settings.bitrates) <= 0:
        _refuse("bitrates", list(settings.bitrates), "numbers above 0, Gb/s")
    if settings.max_bitrate < settings.min_bitrate:
        _refuse(
            "max_bitrate", settings.max_bitrate, f"min_bitrate ({settings.min_bitrate}) or more"
        )


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
        _refuse(
            "aggregate_slots",
            settings.aggregate_slots,
            f"at most slots ({settings.slots}), which makes one block a path",
        )
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
            "observation link_capacity shows what is left on lightpaths: it needs id: "
            "rwa_lightpath_reuse; type link_departure or link_occupancy"
        )


MOST_PATHS = 1000


@dataclass(frozen=True)
class Baseline:
    """A heuristic, and the candidate paths that it serves on.

    Attributes:
        rule: name of the heuristic.
        k: candidate paths per node pair; None: as many as the environment has.
        path_order: one of `PATH_ORDERS`; None: the environment's.
    """

    rule: str
    k: int | None = None
    path_order: str | None = None

    def settings(self, given: OpticalSettings) -> OpticalSettings:
        """Return the settings of the network that the heuristic serves."""
        own = {"k": self.k, "path_order": self.path_order}
        return dataclasses.replace(given, **{key: v for key, v in own.items() if v is not None})


def parse_baseline(text: str) -> Baseline:
    """Return what `RULE`, `RULE@K`, `RULE:ORDER` or `RULE@K:ORDER` names.

    Raises:
        UnknownNameError: no such heuristic, or no such order of paths.
        ConfigError: K is no whole number of at least 1.

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
