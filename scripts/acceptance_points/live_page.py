"""The live page: in a browser during a study, its cost, and a page of 5,000 trials."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .chromium import Chromium
from .common import ROOT, Outcome, hpo_command
from .written_studies import Size, write_study

_VIEWS = {
    "1280": (1280, 900, False, False), "1280-dark": (1280, 900, True, False),
    "390": (390, 844, False, True), "390-dark": (390, 844, True, True),
}  # fmt: skip
_MANY = Size(5_000, 2, 400, 8)
_STUDY = ("budget.trials=100000", "confirm=null", "env_steps=200k", "checkpoint.commit_every=1s")
_READERS = 10
_COST = 0.03
_PAIRS = 16
_OPENS = 2.0
_SECONDS = 300.0
_DRAWN = "Number(document.body?.dataset.drawn || 0)"
_SIDEWAYS = "document.documentElement.scrollWidth > innerWidth"
_COMMIT = (
    'document.querySelector(".standing-line .note")?.textContent.match(/number ([0-9,]+)/)[1]'
)
_PICTURES = """
["history", "curves", "parallel", "slices"].filter(
  (name) => document.querySelector(`#${name} svg`) === null).join(" ")
"""


def live_page(small: bool, work: Path) -> Outcome:
    """View the page of a running study, read it with ten readers, and open a large one."""
    shots = work if small else ROOT / "results" / "live_shots"
    shots.mkdir(parents=True, exist_ok=True)
    words: list[str] = []
    results = work / "results"
    results.mkdir()
    with _running(results) as folder, _served(results, work) as server:
        _wait_for_commits(folder, 3)
        looked, told = _looked_at(server, work, shots)
        words.append(told)
        cost, share, told = _cost(folder, server, small)
        words.append(told)
    size = Size(200, 2, 40, 8) if small else _MANY
    write_study(work / "large" / "many", size)
    with _served(work / "large", work) as server:
        opened, missing = _opening(server, work, shots)
    words.append(f"page of {size.trials:,} trials with all pictures in {opened:.2f} s")
    if missing:
        words.append(f"missing: {missing}")
    bounded = small or (cost <= _COST and opened <= _OPENS)
    return Outcome(looked and bounded and not missing and share < _COST, "; ".join(words))


# ---------------------------------------------------------------------- processes


@dataclass(frozen=True)
class _Server:
    """A running `hpo serve`."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """Return the processor time that it has used."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _served(results: Path, work: Path) -> Iterator[_Server]:
    """Serve a folder, and check that Ctrl-C ends the server cleanly."""
    words = [*hpo_command(), "serve", str(results), "--port", "0", "--json"]
    child = subprocess.Popen(
        words, cwd=work, stdout=subprocess.PIPE, text=True, preexec_fn=_hear_ctrl_c
    )
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(4)]
    try:
        yield _Server(child, json.loads("".join(lines))["port"])
    finally:
        child.send_signal(signal.SIGINT)
        code = child.wait(timeout=60)
    if code:
        raise RuntimeError(f"hpo serve ended with {code} at Ctrl-C")


@contextmanager
def _running(results: Path) -> Iterator[Path]:
    """Run studies/cartpole.yaml while the context is open."""
    flags = [word for change in _STUDY for word in ("--set", change)]
    words = [*hpo_command(), "run", str(ROOT / "studies" / "cartpole.yaml"), "--quiet", *flags]
    child = subprocess.Popen([*words, "--out", str(results)], stdout=subprocess.DEVNULL)
    try:
        yield results / "cartpole"
        if child.poll() is not None:
            raise RuntimeError(f"the study ended with {child.returncode} while it was looked at")
    finally:
        child.send_signal(signal.SIGINT)
        child.wait(timeout=120)


def _hear_ctrl_c() -> None:
    """Enable Ctrl-C, which a shell disables for background processes."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait_for_commits(folder: Path, count: int) -> None:
    until = time.monotonic() + _SECONDS
    while _standing(folder)[0] < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{folder} has no commit {count} in {_SECONDS:.0f} s")
        time.sleep(0.5)


def _standing(folder: Path) -> tuple[int, float, int]:
    """Return number, time and env steps of the last commit; zeros before there is a study."""
    from hpo.search.state.loop_state import LoopState
    from hpo.store.journal import Journal

    if not Journal.exists(folder):
        return 0, 0.0, 0
    with Journal(folder, copied=True) as journal:
        head = journal.head()
    steps = LoopState.from_text(head.loop_state).usage.env_steps if head.number else 0
    return head.number, head.at, steps


# ---------------------------------------------------------------------- in a browser


def _looked_at(server: _Server, work: Path, shots: Path) -> tuple[bool, str]:
    """View the list and the study in four windows, and wait for a commit to appear."""
    sideways: list[str] = []
    with Chromium(work) as browser:
        for page, path in {"list": "/", "study": "/study/cartpole"}.items():
            for name, view in _VIEWS.items():
                browser.look(*view)
                browser.visit(f"{server.url}{path}")
                _drawn(browser)
                if browser.value(_SIDEWAYS):
                    sideways.append(f"{page} at {name}")
                browser.screenshot(shots / f"{page}-{name}.png")
        before, until = browser.value(_COMMIT), time.monotonic() + _SECONDS
        while browser.value(_COMMIT) == before and time.monotonic() < until:
            time.sleep(0.2)
        arrives = browser.value(_COMMIT) != before
        errors = browser.errors()
        asked = [url for url in browser.requests() if not url.startswith(f"{server.url}/")]
    for line in (*errors, *asked):
        print(line, file=sys.stderr)
    told = (
        f"study running, {', '.join(_VIEWS)}: {len(errors)} console errors, {len(asked)} requests "
        f"elsewhere, sideways scrolling {', '.join(sideways) or 'nowhere'}, commits arrive: "
        f"{arrives}"
    )
    return arrives and not errors and not asked and not sideways, told


def _drawn(browser: Chromium) -> float:
    """Wait until every piece is drawn; return the milliseconds since the page was requested."""
    until = time.monotonic() + _SECONDS
    while not browser.value(_DRAWN):
        if time.monotonic() > until:
            raise RuntimeError(f"the page is not drawn in {_SECONDS:.0f} s")
        time.sleep(0.02)
    return float(browser.value(_DRAWN))


def _opening(server: _Server, work: Path, shots: Path) -> tuple[float, str]:
    """Return the seconds that a page takes on its first request, and what it lacks."""
    with Chromium(work) as browser:
        browser.look(1280, 900, False, False)
        browser.call("Page.navigate", url=f"{server.url}/study/many")
        seconds = _drawn(browser) / 1000
        browser.screenshot(shots / "many.png")
        return seconds, str(browser.value(_PICTURES))


# ---------------------------------------------------------------------- the cost


@dataclass
class _Readers:
    """Ten readers that send requests like the page's script while it is visible."""

    port: int
    errors: list[str] = field(default_factory=list)
    answers: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> _Readers:
        for index in range(_READERS):
            thread = threading.Thread(target=self._read, args=(0.2 * index,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _read(self, late: float) -> None:
        from hpo.views.live.study_status import ASKED

        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_SECONDS)
        tags: dict[str, str] = {}
        self._stop.wait(late)
        page = self._ask(connection, "/study/cartpole", tags)
        pieces = {word.split('"')[0] for word in page.split('data-part="')[1:]} - set(ASKED)
        version = ""
        while not self._stop.is_set():
            now = self._ask(connection, "/state/cartpole", tags)
            if now not in ("", version):
                version = now
                for piece in pieces:
                    self._ask(connection, f"/part/cartpole/{piece}", tags)
            self._stop.wait(2.0)
        connection.close()

    def _ask(
        self, connection: http.client.HTTPConnection, place: str, tags: dict[str, str]
    ) -> str:
        connection.request("GET", place, headers={"If-None-Match": tags.get(place, "")})
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status not in (200, 304):
            self.errors.append(f"{place}: {answer.status}")
        tags[place] = answer.headers.get("ETag", "")
        self.answers += 1
        return text


def _cost(folder: Path, server: _Server, small: bool) -> tuple[float, float, str]:
    """Measure the study's speed with and without readers, in turns.

    Returns:
        The share of speed that readers cost, the server's share of the machine, and a text.
    """
    pairs, seconds = (1, 5.0) if small else (_PAIRS, 15.0)
    ratios: list[float] = []
    shares: list[float] = []
    answers = 0
    for pair in range(pairs):
        speeds: dict[bool, float] = {}
        for read in (True, False) if pair % 2 else (False, True):
            if not read:
                speeds[read] = _speed(folder, seconds)
                continue
            with _Readers(server.port) as readers:
                time.sleep(2.0)  # the first pages cost more than pages that are already open
                used, began = server.cpu_seconds(), time.monotonic()
                speeds[read] = _speed(folder, seconds)
                passed = time.monotonic() - began
                shares.append(
                    (server.cpu_seconds() - used) / (passed * len(os.sched_getaffinity(0)))
                )
            answers += readers.answers
            if readers.errors:
                raise RuntimeError(f"a reader was refused: {readers.errors[0]}")
        ratios.append(speeds[True] / speeds[False])
    low, high = _interval(ratios)
    cost, share = 1.0 - median(ratios), median(shares)
    told = (
        f"{_READERS} open pages: speed of the study {median(ratios):.3f} of that without "
        f"[{low:.3f}, {high:.3f}] (pairs of {seconds:.0f} s in turns: {pairs}; {answers:,} "
        f"answers), the server takes {share:.1%} of the machine"
    )
    return cost, share, told


def _speed(folder: Path, seconds: float) -> float:
    """Return env steps per second between the first commit from now on and the last in time."""
    number = _standing(folder)[0]
    until = time.monotonic() + seconds
    seen: list[tuple[int, float, int]] = []
    while time.monotonic() < until or len(seen) < 2:
        now = _standing(folder)
        if now[0] != number:
            number = now[0]
            seen.append(now)
        time.sleep(0.25)
        if time.monotonic() > until + _SECONDS:
            raise RuntimeError("the study commits nothing")
    (_, began, before), (_, ended, after) = seen[0], seen[-1]
    return (after - before) / (ended - began)


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the median's interval by signs, at least 95 % with 16 pairs; otherwise the range."""
    ordered = sorted(ratios)
    cut = 3 if len(ordered) == _PAIRS else 0
    return ordered[cut], ordered[len(ordered) - 1 - cut]
