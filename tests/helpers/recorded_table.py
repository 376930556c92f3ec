"""A small table of recorded runs, written as scripts/atlas writes one."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hpo.search.bench.tables import ABOUT
from hpo.studies.load import loads

STUDY = """\
name: recorded
env: CartPole-v1
env_steps: 4000
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform, default: 1e-3}
  lr_schedule: {values: [constant, linear]}
seeds: {per_config: 8, tolerate: 7}
evaluation: {every: 1000, episodes: 1}
log_every: 1000
budget: {trials: 6}
"""
RATES = (1e-3, 1e-4, 3e-4, 2e-3, 5e-3, 1e-2)  # of the six configurations
POINTS = (1000, 2000, 3000, 4000)


def values_of(noise=0.0):
    """Configuration i ends at 10 i, and 0 is the default; [6, 8, 4]."""
    ends = np.array([20.0, 10.0, 30.0, 60.0, 50.0, 40.0])
    curve = np.array([0.25, 0.5, 0.75, 1.0])
    drawn = np.random.default_rng(5).normal(0.0, 1.0, (6, 8, 4))
    return ends[:, None, None] * curve + noise * drawn


def write_table(folder, values, text=STUDY):
    """Write one; NaN values have no rows."""
    study = loads(text)
    default = study.space.default()
    params = [{**default, "learning_rate": rate} for rate in RATES[: len(values)]]
    about = {ABOUT: json.dumps({"study": text}).encode()}
    folder.mkdir(parents=True)
    trials = pa.table({"trial": range(len(params)), "params": [json.dumps(one) for one in params]})
    pq.write_table(trials.replace_schema_metadata(about), folder / "trials.parquet")
    there = np.argwhere(np.isfinite(values))
    keys = {
        "trial": there[:, 0],
        "replicate": there[:, 1],
        "env_steps": np.array(POINTS)[there[:, 2]],
    }
    seen = values[tuple(there.T)]
    pq.write_table(pa.table({**keys, "value": seen}), folder / "evaluations.parquet")
    curves = pa.table({**keys, "episode_return_100": seen - 1.0})
    pq.write_table(curves, folder / "curves.parquet")
    return folder
