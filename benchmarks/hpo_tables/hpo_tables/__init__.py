"""Recorded runs of PPO as a benchmark for hyperparameter optimisation.

import hpo_tables

table = hpo_tables.load("MountainCar-v0")
found = table.evaluate({**table.default, "learning_rate": 3e-3}, seed=0, env_steps=51_200)
found.loss, found.distance, found.seconds
"""

from .space import Hyperparameter
from .table import Evaluation, Table, load, names

__all__ = ["Evaluation", "Hyperparameter", "Table", "load", "names"]
