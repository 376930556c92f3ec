"""A finished study over learning curves of a formula, entries and progress."""

import dataclasses

import numpy as np

from helpers import search_samples as search
from helpers.analytic_lanes import AnalyticPopulation
from hpo.search.run import run
from hpo.search.state.loop_state import Phase
from hpo.search.state.progress import Best, Progress
from hpo.store.leaderboard import leaderboard
from hpo.store.rows import TrialRow, TrialState
from hpo.studies.search_spec import EarlyTerminate


class ReturningPopulation(AnalyticPopulation):
    """Its chunks show returns as training does, of no episode in the first chunk."""

    def advance(self, refills, busy):
        result = super().advance(refills, busy)
        begun = [lane is not None and lane.chunks > 1 for lane in self._state]
        returns = np.where(begun, 100.0 * result.metrics["skill"], np.nan)
        shown = {"episode_return": returns, "episode_length": returns}
        shown["episodes"] = np.array(begun, np.float64)
        return dataclasses.replace(result, metrics={**result.metrics, **shown})


class ReturningFactory(search.AnalyticFactory):
    def make(self, resolved, lanes):
        return ReturningPopulation(self, resolved.steps_per_chunk, lanes or self.lanes)


FACTORY = search.AnalyticFactory(lanes=12, block=4, diverges_above=0.3)


def study(name="small", **changes):
    confirm = search.Confirm(3, 5, 6)
    return search.study(**{"name": name, "confirm": confirm, **changes})


def make_results(root, name="small", factory=None, **changes):
    """Run a study of 24 trials in milliseconds: stopped, diverged, finished and confirmed ones."""
    asked = study(name, **changes)
    return run(asked, root / name, factory or FACTORY, (), search.quick())


def make_audited(root, name="audited", **changes):
    """Run a study of 60 random trials, half of the stopped ones audited, with training returns."""
    asked = study(
        name,
        budget=search.Budget(60),
        early_terminate=EarlyTerminate("asha", 2_000, 2.0, audit=0.5),
        **changes,
    )
    factory = ReturningFactory(lanes=12, block=4, diverges_above=0.3)
    return run(asked, root / name, factory, (), search.quick())


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
