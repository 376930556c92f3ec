"""Every kind of optical environment, with episodes and without, under the engine's contract."""

from __future__ import annotations

import pytest

from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.testing.environments import EnvironmentContract

pytestmark = pytest.mark.usefixtures("quickly_compiled")

SMALL = {"topology": "ring4", "k": 2, "slots": 12, "load": 30.0}
CASES = {
    "rmsa-episodes": {"continuous": False, "max_requests": 7},
    "rmsa-packed": {"observation": "packed", "aggregate_slots": 5, "no_op": True},
    "rmsa-first-blocking": {"continuous": False, "end_first_blocking": True},
    "deeprmsa": {"id": "deeprmsa"},
    "rwa": {"id": "rwa", "traffic_matrix": "random", "continuous": False, "max_requests": 5},
    "rwa_lightpath_reuse": {"id": "rwa_lightpath_reuse", "observation": "link_capacity"},
}


class TestContract(EnvironmentContract):
    @pytest.fixture(params=CASES)
    def environment(self, request):
        return make_from_keys(**SMALL, **CASES[request.param])
