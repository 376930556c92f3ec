"""Where compiled programs are kept between processes: JAX's persistent cache, below the user's.

A second process finds a program in tenths of a second that took the first one seconds to compile.
"""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

__all__ = ["default_cache", "enable_compilation_cache"]

_LEAST_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def default_cache() -> Path:
    """Return the folder for this kind of machine: `$XDG_CACHE_HOME/hpo/jax/<machine>`.

    Machines whose processors differ do not share one (homes on a network): a program compiled for
    instructions that another processor lacks would end the process there.
    """
    given = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return base / "hpo" / "jax" / f"{platform.machine() or 'machine'}-{_processor()}"


def enable_compilation_cache() -> Path:
    """Switch the cache on, unless the user chose its folder by `JAX_COMPILATION_CACHE_DIR`.

    Returns:
        The folder that jax uses.
    """
    import jax

    given = jax.config.values.get("jax_compilation_cache_dir")
    if not given:
        given = str(default_cache())
        jax.config.update("jax_compilation_cache_dir", given)
    if _LEAST_SECONDS not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    return Path(given)


def _processor() -> str:
    """Return a short hash of what the processor can do, the same for equal processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        lines = [f"flags {platform.processor()}"]
    able = next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return hashlib.sha256(able.encode()).hexdigest()[:8]
