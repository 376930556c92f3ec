"""The env steps that `hpo check` expects, against searches that ran."""

from statistics import fmean

import pytest

from helpers import search_samples as samples
from hpo.search.run import run
from hpo.studies.chunk_sizes import chunk_sizes_of
from hpo.studies.execution_spec import Budget
from hpo.studies.expected_cost import expected_steps
from hpo.studies.search_spec import EarlyTerminate, Seeds

RULES = {
    "asha": EarlyTerminate("asha", 2_000, 4.0),
    "asha with pauses": EarlyTerminate("asha", 2_000, 4.0, pause=1_000),
    "asha of more rungs": EarlyTerminate("asha", 1_000, 3.0),
    "hyperband": EarlyTerminate("hyperband", 1_000, 3.0),
}


def ratio(folder, method, rule, lanes, trials):
    study = samples.study(
        samples.REAL, method, early_terminate=rule, seeds=Seeds(1), budget=Budget(trials=trials)
    )
    factory = samples.AnalyticFactory(lanes=lanes, diverges_above=9.0)
    spent = run(study, folder, factory, (), samples.quick()).usage.search_env_steps
    said = expected_steps(study, chunk_sizes_of(study, 1_000), lanes).search
    return said / spent


@pytest.mark.parametrize("name", RULES)
def test_expected_env_steps_are_within_a_tenth_on_average(tmp_path, name):
    found = [
        ratio(tmp_path / f"{method}{lanes}", method, RULES[name], lanes, trials)
        for method, lanes, trials in (
            ("random", 4, 48),
            ("tpe", 4, 48),
            ("tpe", 8, 32),
            ("random", 64, 24),
            ("cmaes", 8, 48),
        )
    ]
    assert fmean(found) == pytest.approx(1.0, abs=0.1), found
    assert min(found) > 0.6 and max(found) < 1.6, found
