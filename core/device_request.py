"""Settings that jax reads when it creates its devices: their number and the allowed kernels.

This module is separate from `machine.devices`, which creates the devices, because a study's Python
files may start jax on import.
"""

from __future__ import annotations

import os

import jax

# XLA flags that make GPU kernels bitwise deterministic
DETERMINISTIC = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"


def ask_for_devices(
    platform: str = "auto", deterministic: bool = False, cores: int | None = None
) -> None:
    """Set how many host devices jax creates and which kernels it uses.

    Call this before user code runs: an array created on import starts jax, and a later call has no
    effect. The arguments are the same as for `machine.devices.prepare_devices`, but jax may still
    use other platforms.
    """
    if has_started():
        return
    known = int(jax.config.values["jax_num_cpu_devices"])
    jax.config.update("jax_num_cpu_devices", max(2, cores or os.cpu_count() or 2, known))
    if lacks_flags(platform, deterministic):
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()


def lacks_flags(platform: str, deterministic: bool) -> bool:
    flags = os.environ.get("XLA_FLAGS", "")
    return deterministic and platform != "cpu" and DETERMINISTIC not in flags


def has_started() -> bool:
    """Return whether jax has created its devices, which fixes their number and flags."""
    known = int(jax.config.values["jax_num_cpu_devices"])
    try:
        jax.config.update("jax_num_cpu_devices", known + 1)  # refused once there are devices
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", known)
    return False
