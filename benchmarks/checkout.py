"""`import hpo` from a bare checkout, for scripts that run without installing anything."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make_importable() -> None:
    """Put the checkout on the path as `hpo`, for this process and its children, if need be."""
    if importlib.util.find_spec("hpo") is not None:
        return
    folder = tempfile.mkdtemp(prefix="hpo-link-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "hpo").symlink_to(ROOT, target_is_directory=True)
    sys.path.insert(0, folder)
    paths = [folder, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
