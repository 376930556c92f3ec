"""`scripts/docs`: updates generated parts, executes the notebook, and builds the site strictly.

It needs `pip install '.[docs]'`. The site is written to `site/`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


def main() -> int:
    """Build the site, or update the generated parts."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument("--write", action="store_true", help="rewrite the generated parts")
    parser.add_argument("--notebook", action="store_true", help="keep the notebook's new outputs")
    parser.add_argument("--fast", action="store_true", help="do not execute the notebook")
    parser.add_argument("--out", default=str(ROOT / "site"), help="folder of the site")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpo-link-") as link:
        _make_importable(link)
        from . import generated

        if args.write:
            generated.write()
            return 0
        stale = generated.stale()
        if stale:
            names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
            print(f"out of date: {names}; run scripts/docs --write", file=sys.stderr)
            return 1
        if args.notebook or not args.fast:
            from .notebook import execute

            execute(NOTEBOOK, keep=args.notebook)
        os.environ["NO_MKDOCS_2_WARNING"] = "1"
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", args.out]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def _make_importable(link: str) -> None:
    """Make the checkout importable as `hpo`, for this process and its children."""
    (Path(link) / "hpo").symlink_to(ROOT, target_is_directory=True)
    sys.path.insert(0, link)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (link, os.environ.get("PYTHONPATH"))))
