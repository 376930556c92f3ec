"""Settings of all tests: strict numbers, two host devices, a compilation cache, `hpo` in reach."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINKS = tempfile.TemporaryDirectory(prefix="hpo-link-")


def _make_importable() -> None:
    """Put the checkout on the path as `hpo`, for this process and its children, if need be."""
    if importlib.util.find_spec("hpo") is not None:
        return
    (Path(_LINKS.name) / "hpo").symlink_to(ROOT, target_is_directory=True)
    sys.path.insert(0, _LINKS.name)
    paths = [_LINKS.name, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))


def _settle_jax() -> None:
    """Set by environment variables, which children inherit and which start nothing."""
    cache = Path(tempfile.gettempdir()) / f"hpo-test-cache-{os.getuid()}"
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
    os.environ.setdefault("JAX_NUMPY_DTYPE_PROMOTION", "strict")
    os.environ.setdefault("JAX_NUMPY_RANK_PROMOTION", "raise")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")


def _check_shapes() -> None:
    """Check every jaxtyping annotation of the core at call time, by beartype."""
    from jaxtyping import install_import_hook

    install_import_hook("hpo.core", "beartype.beartype")


_make_importable()
_settle_jax()
_check_shapes()
