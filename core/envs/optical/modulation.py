"""Modulation formats and lightpath capacities.

A format is (reach in km, spectral efficiency in bit/s/Hz); a path uses the most efficient format
that covers its length.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ....errors import ConfigError, UnknownNameError
from ....files.plain_data import reading


@dataclass(frozen=True)
class Format:
    name: str  # for example "QPSK"
    reach: float  # the longest path it serves, km
    efficiency: float  # bit/s/Hz


def _parse_formats(text: str) -> tuple[Format, ...]:
    entries = (entry.split(":") for entry in text.split())
    return tuple(Format(name, float(reach), float(se)) for name, reach, se in entries)


# Reach tables by name; each is published data, longest reach first
TABLES = {
    "deeprmsa": _parse_formats("BPSK:100000:1 QPSK:2500:2 8QAM:1250:3 16QAM:625:4"),
    "full": _parse_formats(
        "BPSK:100000:1 QPSK:2000:2 8QAM:1000:3 16QAM:500:4 32QAM:250:5 64QAM:125:6 128QAM:60:7 "
        "256QAM:30:8 512QAM:15:9 1024QAM:8:10"
    ),
    "gn_model": _parse_formats("BPSK:100000:1 QPSK:2500:2 16QAM:625:4"),
    "pcs_64qam": _parse_formats("PCS-64QAM:100000:8"),
}


@lru_cache(maxsize=64)
def make_modulation(name: str) -> tuple[Format, ...]:
    if name in TABLES:
        return TABLES[name]
    if Path(name).suffix.lower() != ".csv":
        raise UnknownNameError("modulation table", name, (*TABLES, "FILE.csv"))
    with reading(name, "modulation file"), open(name, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if not {"name", "reach", "efficiency"} <= set(reader.fieldnames or ()):
            raise ConfigError(f"{name}:1: the header must be name,reach,efficiency")
        formats = tuple(_parse_format(name, reader.line_num, row) for row in reader)
    if not formats:
        raise ConfigError(f"{name}: no modulation format in the file")
    return formats


def _parse_format(file: str, line: int, row: dict[str, str]) -> Format:
    try:
        reach, efficiency = float(row["reach"]), float(row["efficiency"])
    except (TypeError, ValueError):
        reach = efficiency = math.nan
    if not (reach > 0 and efficiency > 0 and math.isfinite(efficiency)):
        raise ConfigError(
            f"{file}:{line}: reach {row['reach']!r} (km) and efficiency {row['efficiency']!r} "
            "(bit/s/Hz) must be numbers above 0"
        )
    return Format(str(row["name"]), reach, efficiency)


def spectral_efficiency(formats: tuple[Format, ...], km: float) -> float:
    """Return the highest efficiency of all formats that reach `km`.

    If none does, this is the efficiency of the format with the longest reach.
    """
    reaching = [format.efficiency for format in formats if format.reach >= km]
    if not reaching:
        return max(formats, key=lambda format: format.reach).efficiency
    return max(reaching)


ATTENUATION_DB_PER_KM = 0.2
NOISE_FIGURE_DB = 4.5
NONLINEARITY = 1.2e-3  # 1/(W m)
DISPERSION = -21.7e-27  # s^2/m
SPAN_M = 100e3
WAVELENGTH_M = 1550e-9
SYMBOL_RATE = 100e9  # Bd
PLANCK = 6.62607015e-34
LIGHT_SPEED = 299_792_458.0


def lightpath_capacity(
    km: float, bandwidth_ghz: float, scale_factor: float, granularity: float
) -> float:
    """Return a lightpath's capacity (Gb/s) over `km`, rounded down to multiples of `granularity`.

    C = 2 R log2(1 + 1 / (spans * NSR_span)) for two polarisations, where NSR_span is the
    noise-to-signal ratio of one span at optimum launch power.

    >>> [lightpath_capacity(km, 10_000.0, 1.0, 100.0) for km in (100.0, 1000.0, 5000.0)]
    [1700.0, 1000.0, 600.0]
    """
    attenuation = ATTENUATION_DB_PER_KM / 1e3 * math.log(10) / 10  # 1/m, of power
    gain = math.exp(attenuation * SPAN_M)
    effective_length = (1 - 1 / gain) / attenuation
    frequency = LIGHT_SPEED / WAVELENGTH_M
    ase = (gain - 1) * 10 ** (NOISE_FIGURE_DB / 10) * PLANCK * frequency * SYMBOL_RATE
    bandwidth = bandwidth_ghz * 1e9
    interference = 2 * ase**2 * attenuation * NONLINEARITY**2 * effective_length**2
    interference *= math.log(math.pi**2 * abs(DISPERSION) * bandwidth**2 / attenuation)
    span_noise = (interference / (math.pi * abs(DISPERSION) * SYMBOL_RATE**2)) ** (1 / 3)
    spans = max(1, math.floor(km * 1e3 / SPAN_M))
    capacity = 2 * SYMBOL_RATE / 1e9 * math.log2(1 + 1 / (spans * span_noise))
    return math.floor(capacity * scale_factor / granularity) * granularity
