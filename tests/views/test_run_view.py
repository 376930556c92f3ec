import io
import re

import pytest

from helpers import view_samples as samples
from hpo.search.run import run
from hpo.search.state.loop_state import Phase
from hpo.store.rows import TrialState
from hpo.studies.execution_spec import Logger
from hpo.views.terminal.run_view import LinesView, QuietView


class Hangup(io.StringIO):
    """A pipe whose reader leaves after some lines."""

    def __init__(self, lines):
        super().__init__()
        self.left = lines

    def flush(self):
        self.left -= 1
        if self.left < 0:
            raise BrokenPipeError


def watched(tmp_path, view, **changes):
    with view:
        study = samples.study(**changes)
        return run(study, tmp_path / study.name, samples.FACTORY, [view], samples.search.quick())


def test_confirm_message_uses_singular_and_plural():
    view = LinesView(io.StringIO())
    view.on_confirm(Phase.CHOOSE, (10,))
    view.on_confirm(Phase.CHOOSE, (10, 12))
    view.on_confirm(Phase.REPORT, ())
    assert view.stream.getvalue().splitlines() == [
        "confirm: trial 10 runs on selection seeds",
        "confirm: trials 10, 12 run on selection seeds",
    ]


def test_confirm_message_names_the_reference_default():
    view = LinesView(io.StringIO())
    view.on_confirm(Phase.REPORT, (3, -1))
    assert view.stream.getvalue() == "confirm: trials 3, -1 (the default) run on test seeds\n"


def test_lines_view_reports_events_in_order(tmp_path):
    stream = io.StringIO()
    ready = []
    view = LinesView(stream, "hpo run small.yaml", every_seconds=0.0)
    view.on_ready = lambda: ready.append(True)
    watched(tmp_path, view)
    text = stream.getvalue()
    order = [
        "starting study small: environment CartPole-v1,",
        "| search",
        "new best: ",
        "confirm: trials ",
        "confirm: trial ",
        "| done",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert ready == [True]
    # No line for each trial unless the study logs to the console.
    assert not any(line.startswith("trial ") for line in text.splitlines())
    assert "(100%)" in text.splitlines()[-1] and text.count("| done") == 1


def test_lines_come_at_most_every_few_seconds(tmp_path):
    stream = io.StringIO()
    watched(tmp_path, LinesView(stream, every_seconds=1e9))
    assert sum(" env steps (" in line for line in stream.getvalue().splitlines()) == 2


def test_console_logger_prints_one_line_per_trial(tmp_path):
    stream = io.StringIO()
    results = watched(tmp_path, LinesView(stream), loggers=(Logger("console"),))
    lines = stream.getvalue().splitlines()
    ended = [line for line in lines if line.startswith("trial ")]
    assert len(ended) == len(results.leaderboard) == 24
    assert any(" at 2k (asha" in line for line in ended)


def test_lines_view_announces_a_resumed_study(tmp_path):
    watched(tmp_path, QuietView(io.StringIO()))
    stream = io.StringIO()
    bigger = samples.search.Budget(trials=26)
    watched(tmp_path, LinesView(stream), budget=bigger)
    assert stream.getvalue().startswith("resuming study small")
    best = re.findall(r"^(?:new best|best so far)", stream.getvalue(), re.M)
    assert best[0] == "best so far" and "best so far" not in best[1:]


def test_quiet_view_prints_only_warnings_and_answers(tmp_path):
    stream = io.StringIO()
    view = QuietView(stream, "hpo run small.yaml")
    watched(tmp_path, view)
    assert stream.getvalue() == ""
    view.warn("the csv logger failed")
    view.pressed()
    view.leaving()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "warning: the csv logger failed"
    assert "again to quit at once" in lines[1]
    assert lines[2].endswith("Resume with: hpo run small.yaml")


def test_closed_output_stream_does_not_stop_the_study(tmp_path):
    results = watched(tmp_path, LinesView(Hangup(3), every_seconds=0.0))
    assert results.state == "finished"


def test_first_failures_are_printed_with_their_messages():
    stream = io.StringIO()
    view = LinesView(stream)
    for number in range(9):
        view.on_trial_end(samples.row(number, TrialState.FAILED, error=f"ValueError: {number}"))
        view.on_trial_end(samples.row(number, TrialState.DIVERGED))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[0] == "trial 0 failed after 0 env steps: ValueError: 0"


def test_failed_compile_is_not_reported_as_compiled():
    stream = io.StringIO()
    view = LinesView(stream)
    with pytest.raises(ValueError, match="no"), view.compiling("X"):
        raise ValueError("no")
    assert stream.getvalue() == "compiling X\n"


def test_ctrl_c_message_names_the_pending_step():
    stream = io.StringIO()
    view = LinesView(stream)
    with view.compiling("X"):
        view.pressed()
    view.pressed()
    during, after = [line for line in stream.getvalue().splitlines() if "Ctrl-C" in line]
    assert during.startswith(
        "The run stops after this compile and the next step, "
        "or in 8 s if the compile takes longer;"
    )
    assert after.startswith("Finishing this chunk and committing;")
