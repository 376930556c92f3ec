"""How much a lightpath of a given length carries, by the incoherent Gaussian-noise model.

Poggiolini et al., "The GN-Model of Fiber Non-Linear Propagation and its Applications", JLT 32(4),
2014, with one noise figure per span and the launch power at its optimum.
"""

from __future__ import annotations

import math

__all__ = ["lightpath_capacity"]

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
    """Return Gb/s that a lightpath over `km` carries, rounded down to a multiple of `granularity`.

    C = 2 R log2(1 + 1 / (spans * NSR_span)) with the noise-to-signal ratio of one span at optimum
    launch power; two polarisations.

    Args:
        km: length of the path.
        bandwidth_ghz: width of the whole band (slots times slot width).
        scale_factor: multiplies C before rounding.
        granularity: Gb/s, the smallest bitrate of the traffic.

    >>> [lightpath_capacity(km, 10_000.0, 1.0, 100.0) for km in (100.0, 1000.0, 5000.0)]
    [1700.0, 1000.0, 600.0]
    """
    attenuation = ATTENUATION_DB_PER_KM / 1e3 * math.log(10) / 10  # 1/m, of power
    gain = math.exp(attenuation * SPAN_M)
    effective_length = (1 - 1 / gain) / attenuation
    frequency = LIGHT_SPEED / WAVELENGTH_M
    ase = (gain - 1) * 10 ** (NOISE_FIGURE_DB / 10) * PLANCK * frequency * SYMBOL_RATE
    bandwidth = bandwidth_ghz * 1e9
    span_noise = (
        2
        * ase**2
        * attenuation
        * NONLINEARITY**2
        * effective_length**2
        * math.log(math.pi**2 * abs(DISPERSION) * bandwidth**2 / attenuation)
        / (math.pi * abs(DISPERSION) * SYMBOL_RATE**2)
    ) ** (1 / 3)
    spans = max(1, math.floor(km * 1e3 / SPAN_M))
    capacity = 2 * SYMBOL_RATE / 1e9 * math.log2(1 + 1 / (spans * span_noise))
    return math.floor(capacity * scale_factor / granularity) * granularity
