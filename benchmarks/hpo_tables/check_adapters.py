"""Run every table through CARP-S and Syne Tune, as these packages are published:

python -m venv venv
venv/bin/pip install './benchmarks/hpo_tables[carps,syne-tune]'
venv/bin/python benchmarks/hpo_tables/check_adapters.py
"""

import sys

import hpo_tables
import numpy as np
from carps.utils.trials import TrialInfo
from hpo_tables.to_carps import TableObjective
from hpo_tables.to_syne_tune import TableBlackbox

SAMPLES = 20
for name in hpo_tables.names():
    table = hpo_tables.load(name)
    objective = TableObjective(name, seed=1)
    default = objective.configspace.get_default_configuration()
    at_default = objective.evaluate(TrialInfo(config=default, seed=1))
    assert at_default.cost == table.evaluate(table.default, seed=1).loss
    costs = [
        objective.evaluate(TrialInfo(config=one, seed=1)).cost
        for one in objective.configspace.sample_configuration(SAMPLES)
    ]
    assert np.isfinite(costs).all()

    blackbox = TableBlackbox(name)
    state = np.random.RandomState(1)
    space = blackbox.configuration_space
    drawn = {key: domain.sample(random_state=state) for key, domain in space.items()}
    curve = blackbox(drawn, seed=1)
    third = blackbox(drawn, fidelity=int(blackbox.fidelity_values[2]), seed=1)
    assert third["metric_loss"] == curve[2, 0]
    assert curve.shape == (len(table.env_steps), 2)
    print(f"{name:26} {SAMPLES} samples of CARP-S, a curve of {len(curve)} points of Syne Tune")
assert not {"jax", "hpo"} & set(sys.modules)
