"""Results point 4: a bundle's page in a browser verifies its claims and detects tampering.

The bundle is that of the README's first study; in the short form, that of a small study.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

from .bundles import first_bundle
from .chromium import Chromium
from .common import ROOT, Outcome, load_file, said_here

SECONDS = 3.0
"""Upper bound on the time of one check, as measured by the page."""


def in_browser(small: bool, work: Path) -> Outcome:
    """Check an untouched bundle, dropped and selected, and then 20 tampered ones."""
    from hpo.views.bundle.container import unpack

    bundle = first_bundle(small, work)
    names = unpack(bundle, work / "members")
    members = {name: (work / "members" / name).read_bytes() for name in names}
    (work / "tampered").mkdir()
    helpers = load_file(ROOT / "tests" / "helpers" / "bundles.py")
    tampered = list(helpers.tampered_bundles(members, bundle, work / "tampered"))
    page = work / "verify.html"
    said_here(["verify", "--page", page])
    with Chromium(work) as browser:
        browser.look(1280, 900)
        dropped = _checked(browser, page, bundle, drop=True)
        browser.screenshot(work / "dropped.png")
        chosen = _checked(browser, page, bundle)
        browser.open(work / "members" / "verify.html")
        from_bundle = _given(browser, bundle)
        refused = [_checked(browser, page, path)["holds"] is False for _, path in tampered]
        browser.screenshot(work / "refused.png")
        errors, requests = browser.errors(), browser.requests()
    in_python = [said_here(["verify", path])[0] != 0 for _, path in tampered]
    honest = (dropped, chosen, from_bundle)
    claims = len(json.loads(members["claims.json"])["claims"])
    passed = all(one["holds"] and one["claims"] == claims for one in honest)
    passed &= all(refused) and all(in_python) and len(tampered) == 20
    slowest = max(one["seconds"] for one in honest)
    passed &= slowest < SECONDS and not errors and not requests
    return Outcome(
        passed,
        f"{bundle.stat().st_size:,} bytes; dropped, chosen, and by the page in the bundle: "
        f"{', '.join(str(one['claims']) for one in honest)} of {claims} claims computed again, "
        f"equal, in at most {slowest:.2f} s; {sum(refused)} of {len(tampered)} tampered bundles "
        f"refused in the browser, {sum(in_python)} by `hpo verify`; {len(errors)} console "
        f"errors{f' ({errors[0]})' if errors else ''}, {len(requests)} requests",
    )


def _checked(browser: Chromium, page: Path, bundle: Path, drop: bool = False) -> dict[str, Any]:
    """Open the page again and give it a bundle; return its answer."""
    browser.open(page)
    return _given(browser, bundle, drop)


def _given(browser: Chromium, bundle: Path, drop: bool = False) -> dict[str, Any]:
    """Give the open page a bundle and wait for its answer."""
    if drop:
        data = base64.b64encode(bundle.read_bytes()).decode()
        browser.value(
            f"""{{
            const bytes = Uint8Array.from(atob({data!r}), (one) => one.charCodeAt(0));
            const files = new DataTransfer();
            files.items.add(new File([bytes], {bundle.name!r}));
            document.body.dispatchEvent(new DragEvent("drop", {{dataTransfer: files,
                bubbles: true, cancelable: true}}));
            }}"""
        )
    else:
        found = browser.call("Runtime.evaluate", expression="document.getElementById('file')")
        browser.call(
            "DOM.setFileInputFiles",
            files=[str(bundle.resolve())],
            objectId=found["result"]["objectId"],
        )
    until = time.monotonic() + 60.0
    while browser.value("document.body.dataset.holds === undefined"):
        if time.monotonic() > until:
            raise RuntimeError(f"the page gave no answer for {bundle.name}")
        time.sleep(0.02)
    return {
        "holds": browser.value("document.body.dataset.holds === 'true'"),
        "seconds": float(browser.value("document.body.dataset.seconds")),
        "claims": browser.value("document.querySelectorAll('section.holds').length"),
    }
