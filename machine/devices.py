"""The devices of this machine: how many there are is settled before jax makes them."""

from __future__ import annotations

import os

import jax

from ..core.population import Device
from ..errors import ConfigError

__all__ = ["ask_for_devices", "prepare_devices"]

_DETERMINISTIC = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def ask_for_devices(
    platform: str = "auto", deterministic: bool = False, cores: int | None = None
) -> None:
    """Settle how many host devices jax makes, and with which kernels, whoever starts it.

    Called before code of a user's is run: an array made at import starts jax. Where it has
    started, nothing changes.

    Args:
        platform: as of `prepare_devices`; jax is not bound to it.
        deterministic: as of `prepare_devices`.
        cores: as of `prepare_devices`.
    """
    if _has_started():
        return
    known = int(jax.config.values["jax_num_cpu_devices"])
    jax.config.update("jax_num_cpu_devices", max(2, cores or os.cpu_count() or 2, known))
    if _lacks_flags(platform, deterministic):
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} {_DETERMINISTIC}".strip()


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
    started = _has_started()
    lacking = _lacks_flags(platform, deterministic)
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
            f"environment variable XLA_FLAGS='{_DETERMINISTIC}', or use hpo before jax"
        )
    if devices[0].platform == "cpu" and len(devices) < 2:
        raise ConfigError(
            "jax was started with one host device before hpo could ask for two; "
            "set the environment variable JAX_NUM_CPU_DEVICES=2, or use hpo before jax"
        )
    return devices


def _lacks_flags(platform: str, deterministic: bool) -> bool:
    """Return whether deterministic kernels are wanted and XLA has not been told."""
    flags = os.environ.get("XLA_FLAGS", "")
    return deterministic and platform != "cpu" and _DETERMINISTIC not in flags


def _has_started() -> bool:
    """Return whether jax has made its devices, whose number and XLA's flags are then settled."""
    known = int(jax.config.values["jax_num_cpu_devices"])
    try:
        jax.config.update("jax_num_cpu_devices", known + 1)  # refused once there are devices
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", known)
    return False
