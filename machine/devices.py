"""The devices of this machine: how many there are is settled before jax makes them."""

from __future__ import annotations

import jax

from ..core.device_request import DETERMINISTIC, ask_for_devices, has_started, lacks_flags
from ..core.population import Device
from ..errors import ConfigError


def prepare_devices(
    platform: str = "auto", deterministic: bool = False, cores: int | None = None
) -> tuple[Device, ...]:
    """Return the devices to use: all of the platform; on CPU one a core, at least two.

    At least two host devices are used everywhere, because one gives other bits than several.

    Args:
        platform: `auto`, `cpu` or `gpu`.
        deterministic: on GPUs, use only kernels that give the same bits every time (slower: no
            atomic scatters, no autotuning); on CPU they always do.
        cores: of this process's share of the machine; None: all.

    Raises:
        ConfigError: jax was used before this call with a single host device or, where that was
            asked for, without deterministic kernels; or the platform is not there.
    """
    started = has_started()
    lacking = lacks_flags(platform, deterministic)
    ask_for_devices(platform, deterministic, cores)
    if not started and platform != "auto":
        jax.config.update("jax_platforms", "cuda" if platform == "gpu" else platform)
    try:
        devices = tuple(jax.devices(None if platform == "auto" else platform))
    except RuntimeError as error:
        raise ConfigError(f"device is {platform!r}, but jax finds none: {error}") from error
    if started and lacking and devices[0].platform != "cpu":
        raise ConfigError(
            "population.deterministic was asked for after jax had started; set the "
            f"environment variable XLA_FLAGS='{DETERMINISTIC}', or use hpo before jax"
        )
    if devices[0].platform == "cpu" and len(devices) < 2:
        raise ConfigError(
            "jax was started with one host device before hpo could ask for two; "
            "set the environment variable JAX_NUM_CPU_DEVICES=2, or use hpo before jax"
        )
    return devices
