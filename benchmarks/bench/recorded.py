"""The sampler `recorded`: recorded configurations in random order, all equally likely.

With `random`, proposals over a table are moved to the nearest recorded configuration, so
configurations in sparse regions are more frequent; this sampler is exact. A study file names it
under `imports`, like any custom sampler.
"""

from functools import cache
from pathlib import Path

from hpo.search.bench import read_table
from hpo.search.samplers.registry import Draw, register_sampler
from hpo.search.seeds import generator

TABLES = Path(__file__).resolve().parents[2] / "results" / "atlas"


@cache
def recorded_params():
    """Return the configurations, which all atlas tables share; row 0 is the default."""
    return read_table(TABLES / "Acrobot-v1").params


class Recorded:
    def __init__(self, spec):
        rows = generator(spec.seed, "recorded").permutation(len(recorded_params()) - 1)
        self.order = [int(row) + 1 for row in rows]

    def begin(self, batch, history):
        return self

    def draw(self, trial, attempt):
        at = (trial - 1 + attempt) % len(self.order)
        return Draw(recorded_params()[self.order[at]])

    def keep(self, trial, params):
        """Do nothing."""


register_sampler("recorded", Recorded, learns_from="", ahead=False, objectives="several")
