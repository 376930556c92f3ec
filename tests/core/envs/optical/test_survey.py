"""A survey in one program gives what one evaluation at a time gives."""

import numpy as np
import pytest

from hpo.core.envs.optical.heuristic_evaluation import evaluate_heuristic, survey
from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.errors import UnknownNameError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

RULES = ("ksp_ff", "kca_ff", "ksp_mu")
ORDERS = ("spectral_resources", "distance")
SIZE = {"seeds": 3, "steps": 300, "seed": 5}


def make(order):
    return make_from_keys(slots=30, k=4, load=90.0, warmup_requests=100, path_order=order)


@pytest.fixture(scope="module")
def found():
    return {
        (item.environment.settings.path_order, item.rule): item.evaluation
        for item in survey([make(order) for order in ORDERS], RULES, **SIZE)
    }


def test_every_rule_in_every_order(found):
    assert list(found) == [(order, rule) for order in ORDERS for rule in RULES]
    means = {key: seen.service_blocking.mean() for key, seen in found.items()}
    assert len(set(means.values())) == len(means) and min(means.values()) > 0.0
    for seen in found.values():
        assert seen.blocked.shape == (1, 3) and seen.requests == 300
        assert seen.loads.tolist() == [90.0] and 0.1 < seen.utilisation.mean() < 1.0


@pytest.mark.parametrize(("order", "rule"), [(ORDERS[0], "kca_ff"), (ORDERS[1], "ksp_mu")])
def test_it_is_what_one_evaluation_gives(found, order, rule):
    alone = evaluate_heuristic(make(order), rule, utilisation=True, **SIZE)
    seen = found[order, rule]
    for name in ("blocked", "bitrate", "bitrate_blocked"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(alone, name))
    np.testing.assert_allclose(seen.utilisation, alone.utilisation, rtol=1e-6)


def test_an_unknown_rule_is_refused_before_anything_is_compiled():
    with pytest.raises(UnknownNameError, match="did you mean 'ksp_ff'"):
        survey([make(ORDERS[0])], ["ksp_ff", "ksp_f"])
