"""The page that verifies a bundle offline in a browser: `verify.html`, `hpo verify --page`.

Readers should trust a page only if they created it with `hpo verify --page`, because a forged
bundle may contain a forged page.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from ...version import __version__
from ..report.page import allowed, html_page, script_text, style_text

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
    policy = (
        "default-src 'none'; img-src data:; "
        f"style-src {allowed(style)} {allowed(style_text())}; "
        f"script-src {allowed(script)} {allowed(script_text())}; "
        "base-uri 'none'; form-action 'none'"
    )
    return html_page(
        "hpo verify",
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>',
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
