"""This machine's devices; their number must be set before jax creates them."""

from __future__ import annotations

import jax

from ..core.device_request import DETERMINISTIC, ask_for_devices, has_started, lacks_flags
from ..core.population import Device
from ..errors import ConfigError


def prepare_devices(
    platform: str = "auto", deterministic: bool = False, cores: int | None = None
) -> tuple[Device, ...]:
    """Return all devices of a platform; on CPU one per core, and at least two.

    Two is the minimum because results with a single host device differ bitwise from those with
    several. With `deterministic`, GPUs use only reproducible kernels (slower: no atomic scatters,
    no autotuning). Raises ConfigError if the platform is missing, or if jax was already used with
    different settings.
    """
    started = has_started()
    lacking = lacks_flags(platform, deterministic)
    ask_for_devices(platform, deterministic, cores)
    backend = None
    if platform != "auto":
        backend = platform
    if not started and backend is not None:
        jax.config.update("jax_platforms", {"gpu": "cuda"}.get(backend, backend))
    try:
        devices = tuple(jax.devices(backend))
    except (AssertionError, RuntimeError) as error:  # jax asserts that a GPU driver is there
        reason = str(error) or "this machine shows no NVIDIA GPU"
        raise ConfigError(
            f"device is {platform!r}, but jax finds no such device: {reason}"
        ) from error
    if started and lacking and devices[0].platform != "cpu":
        raise ConfigError(
            "population.deterministic was requested after jax had started; set the "
            f"environment variable XLA_FLAGS='{DETERMINISTIC}', or call hpo before jax starts"
        )
    if devices[0].platform == "cpu" and len(devices) < 2:
        raise ConfigError(
            "jax was started with one host device before hpo could request two; "
            "set the environment variable JAX_NUM_CPU_DEVICES=2, or call hpo before jax starts"
        )
    return devices
