"""Small studies that tests share."""

import dataclasses
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from helpers.analytic_lanes import AnalyticFactory
from hpo.search.run import RunOptions
from hpo.search.state.progress import Observer
from hpo.spaces import Parameter, Space, make_distribution, parse_rule
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import Confirm, EarlyTerminate, Metric, SearchSpec, Seeds
from hpo.studies.spec import Study


def parameter(name, default=None, **fields):
    distribution = make_distribution(fields)
    return Parameter(name, distribution, distribution.middle() if default is None else default)


LEARNING_RATE = parameter("learning_rate", 3e-4, min=1e-5, max=1.0, distribution="log_uniform")
GAMMA = parameter("gamma", 0.99, min=0.8, max=0.9999, distribution="one_minus_log")
SIZES = parameter("hidden_sizes", values=[[16], [32], [64, 64]])
EPOCHS = parameter("update_epochs", min=1, max=4, distribution="int_uniform")

REAL = Space((LEARNING_RATE, GAMMA))
WITH_BUCKETS = Space((LEARNING_RATE, SIZES, GAMMA))
FINITE = Space((EPOCHS, SIZES))


def study(space=REAL, method="random", **changes):
    """A study of 24 trials with 2 seeds, runs of 16 chunks, rungs at 2 and 8 of them."""
    base = Study(
        name="small",
        env=EnvSpec("CartPole-v1"),
        env_steps=16_000,
        space=space,
        metric=Metric(),
        search=SearchSpec(method),
        early_terminate=EarlyTerminate("asha", 2_000, 4.0),
        seeds=Seeds(2),
        budget=Budget(trials=24),
    )
    return dataclasses.replace(base, **changes)


@dataclasses.dataclass(frozen=True)
class LosingFactory(AnalyticFactory):
    """One replicate of every trial diverges in a chunk, of those configurations that `among` says.

    Attributes:
        replicate: which one.
        chunk: in which.
        among: configuration -> whether it loses it.
    """

    replicate: int = 1
    chunk: int = 7
    among: Callable[[Mapping[str, Any]], bool] = lambda config: True

    def make(self, resolved, lanes):
        population = super().make(resolved, lanes)
        step = population.train_chunk
        population.train_chunk = lambda lane: (
            bool(step(lane))
            or (
                lane.replicate == self.replicate
                and lane.chunks >= self.chunk
                and self.among(lane.payload)
            )
        )
        return population


class Stop(Observer):
    """Ends the process's part of a study after some chunks, as a kill would."""

    def __init__(self, chunks):
        self.left = chunks

    def on_chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            self.end()

    def end(self):
        raise KeyboardInterrupt


class CutAt(Stop):
    """Asks for a clean end after some chunks."""

    def end(self):
        os.kill(os.getpid(), signal.SIGINT)


class WaitAt(Stop):
    """Waits to be killed after some chunks, however slow its killer is."""

    def end(self):
        time.sleep(600.0)
        raise TimeoutError("nobody came to kill it")


def quick(**changes):
    """Settings that publish only at the end."""
    return RunOptions(**{"publish_seconds": 1e9, **changes})


__all__ = [
    "FINITE",
    "REAL",
    "WITH_BUCKETS",
    "AnalyticFactory",
    "Budget",
    "Confirm",
    "LosingFactory",
    "Space",
    "parse_rule",
    "quick",
    "study",
]
