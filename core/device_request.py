"""What is asked of jax before it makes its devices: how many of the host, with which kernels.

Apart from `machine.devices`, which makes them, because a study's own code may run when its file is
read, and starts jax.
"""

from __future__ import annotations

import os

import jax

DETERMINISTIC = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
"""What XLA is told so that kernels of a GPU give the same bits every time."""


def ask_for_devices(
    platform: str = "auto", deterministic: bool = False, cores: int | None = None
) -> None:
    """Settle how many host devices jax makes, and with which kernels, whoever starts it.

    Called before code of a user's is run: an array made at import starts jax. Where it has
    started, nothing changes.

    Args:
        platform: as of `machine.devices.prepare_devices`; jax is not bound to it.
        deterministic: as there.
        cores: as there.
    """
    if has_started():
        return
    known = int(jax.config.values["jax_num_cpu_devices"])
    jax.config.update("jax_num_cpu_devices", max(2, cores or os.cpu_count() or 2, known))
    if lacks_flags(platform, deterministic):
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} {DETERMINISTIC}".strip()


def lacks_flags(platform: str, deterministic: bool) -> bool:
    """Return whether deterministic kernels are wanted and XLA has not been told."""
    flags = os.environ.get("XLA_FLAGS", "")
    return deterministic and platform != "cpu" and DETERMINISTIC not in flags


def has_started() -> bool:
    """Return whether jax has made its devices, whose number and XLA's flags are then settled."""
    known = int(jax.config.values["jax_num_cpu_devices"])
    try:
        jax.config.update("jax_num_cpu_devices", known + 1)  # refused once there are devices
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", known)
    return False
