import io
import re
import time

import pytest
from rich.console import Console

from helpers import view_samples as samples
from hpo.search.run import run
from hpo.search.state.loop_state import Phase
from hpo.search.state.progress import Best, Leader
from hpo.store.rows import TrialState
from hpo.views.terminal.live_view import LiveView, panel
from hpo.views.terminal.run_view import status_line


def screen(picture, width=80):
    console = Console(file=io.StringIO(), width=width, height=24, markup=False, highlight=False)
    console.print(picture)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80, 200])
def test_live_view_fits_the_terminal(width):
    states = dict.fromkeys(TrialState, 99_999)
    best = Best(99_999, -1234.5678, -2345.678, -1100.11, (1.0,) * 16)
    crowded = samples.progress(states=states, best=best, phase=Phase.CHOOSE)
    lines = screen(panel("a-name " * 20, crowded, 3.0, "compiling " * 20, (1, 5.1)), width)
    assert len(lines) <= 9
    assert max(map(len, lines)) <= width


def test_live_view_shows_progress_lanes_and_best_trial():
    text = "\n".join(screen(panel("cartpole", samples.progress(), 0.0, "", (1, 5.1))))
    for words in (
        "52%",
        "45s, 39s left",
        "search",
        "8.3M of about 16M",
        "412k per second",
        "1 compile (5.1s)",
        "62 of 64 busy, on average 98% while there was work",
        "56 of 64 proposed: 20 running, 30 stopped, 6 finished",
        "482.3 (seeds 470.1, 486.2, 490.6) in trial 17",
    ):
        assert words in text


def test_live_view_shows_the_leader_before_any_trial_finishes():
    """In a population that evolves that is all there is until the end."""
    one = samples.progress(best=None, leader=Leader(7, -312.5, 81_920))
    text = "\n".join(screen(panel("", one, 0.0, "")))
    assert "-312.5 at 81.9k env steps in trial 7; no trial has finished yet" in text
    assert status_line(one).endswith("| trial 7 leads: -312.5 at 81.9k")
    nobody = samples.progress(best=None)
    assert "best       no trial has finished yet" in "\n".join(screen(panel("", nobody, 0.0, "")))


def test_live_view_clock_advances_between_updates():
    text = "\n".join(screen(panel("", samples.progress(), 10.0, "")))
    # The time left is that of the last boundary: at the next one it may not be longer.
    assert "55s, 39s left" in text
    late = "\n".join(screen(panel("", samples.progress(seconds_left=0.5), 60.0, "")))
    assert "nearly done" in late and "left" not in late


@pytest.mark.parametrize("phase", [Phase.SEARCH, Phase.CHOOSE, Phase.REPORT])
def test_live_view_shows_100_percent_only_when_done(phase):
    last = samples.progress(phase=phase, env_steps=16_000_000, seconds_left=0.0)
    text = "\n".join(screen(panel("", last, 60.0, "")))
    assert "99%" in text and "nearly done" in text and "0.0s left" not in text
    assert "(99%)" in status_line(last) and "100%" not in status_line(last)
    done = samples.progress(phase=Phase.DONE, env_steps=16_000_000, seconds_left=0.0)
    assert "100%" in "\n".join(screen(panel("", done, 0.0, "")))
    assert "(100%)" in status_line(done) and "left" not in status_line(done)


def test_live_view_restores_the_terminal_after_a_study(tmp_path):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=24)
    study = samples.study()
    factory = samples.search.AnalyticFactory(
        lanes=12, block=4, diverges_above=0.3, chunk_seconds=0.01
    )
    with LiveView("hpo run x.yaml", console) as view:
        with view.compiling("CartPole-v1, 12 lanes"):
            end = time.monotonic() + 60.0
            while "compiling CartPole-v1" not in stream.getvalue() and time.monotonic() < end:
                time.sleep(0.01)  # it is drawn four times a second
        results = run(study, tmp_path / "small", factory, [view], samples.search.quick())
    text = stream.getvalue()
    said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)
    assert results.state == "finished"
    assert "\x1b[?25l" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    for words in (
        "starting",
        "compiling CartPole-v1",
        "compiled CartPole-v1, 12 lanes in ",
        "starting study small",
        "new best",
        "confirm: trials",
        "confirm: trial ",
    ):
        assert words in said


def test_live_view_names_the_step_after_a_compile():
    view = LiveView("x", Console(file=io.StringIO(), width=80, height=24))
    for words, next_step in (
        ("training: corridor", "chunk"),
        ("evaluation: corridor", "evaluation"),
    ):
        view.compile_ends(words, 1.0)
        assert view._now == f"first {next_step}"
    view.on_chunk(samples.progress())  # one of them trains; both took the time
    assert "2 compiles (2.0s)" in "\n".join(screen(view._current_panel()))


def test_the_cursor_comes_back_after_an_error():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=24)
    with pytest.raises(RuntimeError, match="boom"), LiveView("x", console):
        raise RuntimeError("boom")
    text = stream.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


class Hangup(io.StringIO):
    """A terminal whose other end is closed after some lines."""

    def __init__(self, lines):
        super().__init__()
        self.left = lines

    def flush(self):
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "Input/output error")


# The thread that draws ends with the terminal; that is all it could do.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_closed_terminal_does_not_stop_the_study(tmp_path):
    console = Console(file=Hangup(4), force_terminal=True, width=80, height=24)
    factory = samples.search.AnalyticFactory(lanes=12, block=4, chunk_seconds=0.01)
    with LiveView("x", console) as view:
        results = run(samples.study(), tmp_path / "small", factory, [view], samples.search.quick())
    assert results.state == "finished"


def test_live_view_wraps_messages_but_not_commands():
    console = Console(file=io.StringIO(), width=40, highlight=False)
    view = LiveView("hpo run my.yaml --set budget.trials=12 --set env_steps=100k", console)
    view.say("compiled the training program: CartPole-v1 in 26s")
    view.leaving()
    lines = console.file.getvalue().splitlines()
    assert "compiled the training program:" in lines and "CartPole-v1 in 26s" in lines
    assert lines[-1] == view.command and lines[-2].endswith("Resume with:")
