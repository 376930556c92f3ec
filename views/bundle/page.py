"""The page that verifies a bundle offline in a browser: `verify.html`, `hpo verify --page`.

Readers should trust a page only if they created it with `hpo verify --page`, because a forged
bundle may contain a forged page.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ...version import __version__
from ..report.page import html_page, policy_tag, script_text, style_text

_HERE = Path(__file__)
_PARTS = ("statistics.js", "verify.js")


@lru_cache(maxsize=1)
def verify_page() -> str:
    """Return the page as one HTML file that needs no network.

    The security policy allows only the scripts and styles of the page and of its report.
    """
    style = style_text() + _HERE.with_name("verify.css").read_text(encoding="utf-8")
    parts = (_HERE.with_name(name).read_text(encoding="utf-8") for name in _PARTS)
    bodies = "\n".join(part.replace('"use strict";\n', "") for part in parts)
    script = f'"use strict";\n{bodies}'
    policy = policy_tag([style, style_text()], [script, script_text()])
    return html_page(
        "hpo verify",
        f"{policy}\n<style>{style}</style>",
        "<body>\n<main>\n<h1>Check a bundle</h1>\n"
        "<p>The file stays on this computer. Every sha256 is checked, and the claims about the "
        "winner are recomputed from the evaluations in the bundle.</p>\n"
        '<div id="drop"><label for="file">Drop the zip anywhere on this page, or choose it'
        '</label><input id="file" type="file" accept=".zip"></div>\n'
        '<div id="answer" role="status" aria-live="polite"></div>\n</main>\n'
        f"<footer>hpo {__version__}. This page works offline. Use a page from your own copy "
        f"of hpo (<code>hpo verify --page</code>) for bundles that you do not trust.</footer>\n"
        f"<script>{script}</script>",
    )
