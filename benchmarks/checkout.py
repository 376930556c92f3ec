"""Makes `import hpo` work in a bare checkout, for scripts that run without installation."""

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
    """Put the tests' `helpers` and, if needed, the checkout as `hpo` on the import path.

    This applies to this process and its children.
    """
    links = {"helpers": ROOT / "tests" / "helpers", "hpo": ROOT}
    missing = {name: path for name, path in links.items() if not importlib.util.find_spec(name)}
    if not missing:
        return
    folder = tempfile.mkdtemp(prefix="hpo-link-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, path in missing.items():
        (Path(folder) / name).symlink_to(path, target_is_directory=True)
    sys.path.insert(0, folder)
    paths = [folder, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
