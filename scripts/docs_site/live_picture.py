"""Writes `docs/figures/live_page.png` and `live_page_phone.png`: a study's page of `hpo serve`.

Run from scripts/, with headless Chromium: `python -m docs_site.live_picture RESULTS STUDY
[FOLDER]`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from acceptance_points.chromium import Chromium
from acceptance_points.common import hpo_command

ROOT = Path(__file__).resolve().parents[2]
SIZES = {
    "live_page": (1280, 1120, "#history"),
    "live_page_phone": (390, 844, "#parallel"),
}
"""Picture -> (window width, window height, element to scroll to)."""
_SECONDS = 60.0
_DRAWN = "['history', 'curves', 'parallel'].every((n) => document.querySelector(`#${n} svg`))"


def main(results: Path, study: str, folder: Path) -> None:
    """Serve the folder, and take both screenshots."""
    words = [*hpo_command(), "serve", str(results), "--port", "0", "--json"]
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as work,
    ):
        try:
            assert server.stdout is not None
            told = json.loads("".join(server.stdout.readline() for _ in range(4)))
            with Chromium(Path(work)) as browser:
                for name, (width, height, place) in SIZES.items():
                    browser.look(width, height)
                    browser.visit(f"http://127.0.0.1:{told['port']}/study/{study}")
                    until = time.monotonic() + _SECONDS
                    while not browser.value(_DRAWN) and time.monotonic() < until:
                        time.sleep(0.2)
                    browser.value(f"document.querySelector('{place}').scrollIntoView()")
                    browser.screenshot(folder / f"{name}.png", whole=False)
        finally:
            server.terminate()


if __name__ == "__main__":
    given = sys.argv[1:]
    where = Path(given[2]) if given[2:] else ROOT / "docs" / "figures"
    main(Path(given[0]), given[1], where)
