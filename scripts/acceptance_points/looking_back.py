"""Checks of the analysis: the report in a browser, and the rules that importance must follow."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from .bits import run_tests
from .chromium import Chromium
from .common import ROOT, Outcome, call, hpo_command

_VIEWS = {"desktop": (1280, 900, False, False), "phone": (390, 844, False, True),
          "dark": (1280, 900, True, False)}  # fmt: skip
_STUDY = (
    "budget.trials=32",
    "env_steps=80k",
    "confirm.top_k=2",
    "confirm.choose=5",
    "confirm.report=8",
    "early_terminate.audit=0.3",
)
_SMALL = (
    "budget.trials=12",
    "env_steps=40k",
    "seeds.per_config=2",
    "confirm=null",
    "evaluation.episodes=4",
    "early_terminate.min=10k",
)
_SAME_PLACE = "document.documentElement.scrollWidth <= innerWidth"
_SMALLEST = """
Math.min(...[...document.querySelectorAll("svg text")].filter(t => t.getClientRects().length)
  .map(t => t.getScreenCTM().a * parseFloat(getComputedStyle(t).fontSize)))
"""
_HIDDEN = """
[...document.querySelectorAll("section")].filter(s => s.getBoundingClientRect().height < 40).length
"""
_CLICK = 'document.querySelectorAll("#leaderboard th button")[1].click();'
_ORDER = """
[...document.querySelectorAll("#leaderboard tbody tr")].map(r => Number(r.dataset.t))
"""
_LEAST_LETTERS = 11.0


def report(small: bool, work: Path) -> Outcome:
    """View a report in Chromium: no console error, no request, readable at 390 pixels."""
    shots = work if small else ROOT / "results" / "report_shots"
    shots.mkdir(parents=True, exist_ok=True)
    return looked_at(_study(small, work), work, shots)


def looked_at(page: Path, work: Path, shots: Path) -> Outcome:
    """View a report in Chromium, on a desktop, a phone, and in dark mode.

    Args:
        page: the report.
        work: a folder for the browser.
        shots: folder for the screenshots.
    """
    sideways: list[str] = []
    letters: list[float] = []
    empty = 0
    with Chromium(work) as browser:
        for name, view in _VIEWS.items():
            browser.look(*view)
            browser.open(page)
            if not browser.value(_SAME_PLACE):
                sideways.append(name)
            letters.append(float(browser.value(_SMALLEST)))
            empty += int(browser.value(_HIDDEN))
            browser.screenshot(shots / f"{name}.png")
        browser.value(_CLICK)
        order = list(browser.value(_ORDER))
        lit = _hover(browser)
        brushed = _brush(browser)
        errors, asked = browser.errors(), browser.requests()
    sorts = len(order) > 1 and order == sorted(order)
    holds = not (errors or asked or sideways or empty) and sorts and lit
    holds = holds and min(letters) >= _LEAST_LETTERS and brushed
    numbers = (
        f"{page.stat().st_size / 1000:.0f} kB; {len(errors)} console errors, "
        f"{len(asked)} requests; "
        f"at 1280, 390 px and dark: sideways scrolling {', '.join(sideways) or 'nowhere'}, "
        f"smallest letters in charts {min(letters):.1f} px; the table sorts: {sorts}; "
        f"a mark under the pointer is told: {lit}; mouse and keys brush an axis: {brushed}; "
        f"screenshots in {shots.name}/"
    )
    for line in (*errors, *asked):
        print(line, file=sys.stderr)
    return Outcome(holds, numbers)


def _study(small: bool, work: Path) -> Path:
    """Run a short form of studies/cartpole.yaml on the command line, which writes the report."""
    flags = [word for change in (_SMALL if small else _STUDY) for word in ("--set", change)]
    call([*hpo_command(), "run", ROOT / "studies" / "cartpole.yaml", "--quiet", *flags], work)
    return work / "results" / "cartpole" / "report.html"


def _hover(browser: Chromium) -> bool:
    """Whether a mark under the pointer shows its text, and its trial is highlighted elsewhere."""
    spot = browser.value(
        'const d = [...document.querySelectorAll("#history circle.dot")]'
        ".find(c => c.getClientRects().length); d.scrollIntoView({block: 'center'});"
        "const b = d.getBoundingClientRect(); [b.x + b.width / 2, b.y + b.height / 2]"
    )
    time.sleep(1.0)  # scrolling must be over, because it hides earlier tooltips
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=spot[0], y=spot[1])
    told = browser.value(
        '[!document.getElementById("tip").hidden, document.getElementById("tip").textContent,'
        ' document.querySelectorAll(".lit").length]'
    )
    return bool(told[0]) and str(told[1]).startswith("trial ") and int(told[2]) > 1


def _brush(browser: Chromium) -> bool:
    """Whether dragging selects a part of the last axis, and arrow keys a part of the first."""
    shown = "[...document.querySelectorAll('#parallel .wide .strand:not(.away)')].length"
    every = int(browser.value(shown))
    x, y, high = browser.value(
        "(() => { const g = [...document.querySelectorAll('#parallel .wide .brush')].pop();"
        "g.scrollIntoView({block: 'center'}); const b = g.getBoundingClientRect();"
        "return [b.x + b.width / 2, b.y, b.height]; })()"
    )
    time.sleep(1.0)
    for kind, share in (("mousePressed", 0.02), ("mouseMoved", 0.2), ("mouseReleased", 0.4)):
        browser.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=x,
            y=y + share * high,
            button="left",
            buttons=1,
            clickCount=1,
        )
    dragged = int(browser.value(shown))
    browser.value(
        "document.querySelector('#parallel .brushed button').click();"
        "document.querySelector('#parallel .wide .brush').focus()"
    )
    back = int(browser.value(shown))
    for _ in range(10):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowUp")
    return 0 < dragged < every == back and int(browser.value(shown)) < every


# ---------------------------------------------------------------------- importance


def importance(small: bool, work: Path) -> Outcome:
    """One point by default; over progress as a picture; a known truth."""
    passed = run_tests(("tests/search/analysis/test_looking_back.py",))
    folder = _asha_and_tpe(work, 40 if small else 400)
    words = [*hpo_command(), "importance", "--study", folder, "--json"]
    (alone,) = json.loads(call(words, work).stdout)
    along = json.loads(call([*words, "--over-progress"], work).stdout)
    picture = work / "importance.png"
    call([*hpo_command(), "plot", "importance", "--study", folder, "--to", picture], work)
    drawn = picture.read_bytes().startswith(b"\x89PNG")
    ats = [item["at"] for item in along]
    ordered = ats == sorted(set(ats)) and alone["at"] in ats
    knobs = alone["answer"]["knobs"]
    share = knobs["learning_rate"]["share"]
    truth = knobs["learning_rate"]["decided"] and share == max(k["share"] for k in knobs.values())
    numbers = (
        f"{passed} tests; TPE and ASHA, {alone['answer']['trials']} trials at {alone['at']} env "
        f"steps: learning_rate, which decides most, explains {share:.0%}; {len(ats)} points over "
        f"progress, drawn: {drawn}"
    )
    return Outcome(passed > 0 and ordered and truth and drawn, numbers)


def _asha_and_tpe(work: Path, trials: int) -> Path:
    """Run a study over formula-based learning curves in which one hyperparameter matters most."""
    from helpers.analytic_lanes import AnalyticFactory
    from hpo.search.run import run
    from hpo.studies.load import loads

    text = f"""
name: formula
env: CartPole-v1
env_steps: 16k
space:
  learning_rate: {{min: 1e-5, max: 0.1, distribution: log_uniform}}
  gamma: {{min: 0.97, max: 0.995, distribution: one_minus_log}}
  vf_coef: {{min: 0.1, max: 2.0}}
search: {{method: tpe, random_share: 0.4}}
early_terminate: {{type: asha, min: 2k, eta: 2}}
seeds: {{per_config: 2}}
budget: {{trials: {trials}}}
"""
    folder = work / "formula"
    run(loads(text), folder, AnalyticFactory(lanes=32), ())
    return folder
