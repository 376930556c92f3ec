"""Sampler `recorded`: the recorded configurations in a random order, each equally likely.

`random` over a table is moved to the nearest recorded configuration, so those in empty regions
come more often; this one is exact. A study file names it by `imports`, as any custom sampler.
"""

from functools import cache
from pathlib import Path

from hpo.search.bench import read_table
from hpo.search.samplers.registry import Draw, register_sampler
from hpo.search.seeds import generator

TABLES = Path(__file__).resolve().parents[2] / "results" / "atlas"


@cache
def recorded_params():
    """All tables of the atlas have the same configurations, row 0 is the default."""
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
        """Nothing to note."""


register_sampler("recorded", Recorded, learns_from="", ahead=False, objectives="several")
