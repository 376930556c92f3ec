"""A finished study over learning curves of a formula, entries and progress; loaded by path."""

import dataclasses
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

from hpo.search.progress import Best, Progress
from hpo.search.run import run
from hpo.search.state import Phase
from hpo.store.leaderboard import leaderboard
from hpo.store.rows import TrialRow, TrialState

search = SimpleNamespace(**run_path(str(Path(__file__).parent.parent / "search" / "samples.py")))

FACTORY = search.AnalyticFactory(lanes=12, block=4, diverges_above=0.3)


def study(name="small", **changes):
    confirm = search.Confirm(3, 5, 6)
    return search.study(**{"name": name, "confirm": confirm, **changes})


def make_results(root, name="small", **changes):
    """Run a study of 24 trials in milliseconds: stopped, diverged, finished and confirmed ones."""
    asked = study(name, **changes)
    return run(asked, root / name, FACTORY, (), search.quick())


def row(trial, state=TrialState.FINISHED, **fields):
    base = TrialRow(trial, state, "random", 0, "abc", {"learning_rate": 0.1 * trial})
    return dataclasses.replace(base, **fields)


def entries(*rows):
    return leaderboard(rows)


def progress(**changes):
    states = {TrialState.RUNNING: 20, TrialState.STOPPED: 30, TrialState.FINISHED: 6}
    base = Progress(
        phase=Phase.SEARCH,
        env_steps=8_300_000,
        env_steps_total=16_000_000,
        eval_env_steps=100_000,
        lanes_busy=62,
        lanes=64,
        occupancy=0.981,
        proposed=56,
        trials_total=64,
        states=states,
        best=Best(17, 482.31, None, None, (470.1, 486.2, 490.63)),
        env_steps_per_second=412_345.6,
        compiles=1,
        seconds=45.0,
        seconds_left=39.0,
    )
    return dataclasses.replace(base, **changes)
