"""The compiled environments against the slow simulator: masks, choices, acceptance, occupancy.

Every state is visited by all heuristics (their choices are compared at each request); which of
them is served, or a random action, legal or not, changes from request to request. Set
HPO_AGREEMENT_REQUESTS for longer runs than this default.
"""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hpo.core.envs.optical.heuristics import HEURISTICS, make_heuristic
from hpo.core.envs.optical.optical_environment import make_environment
from hpo.core.envs.optical.optical_settings import OpticalSettings
from hpo.core.envs.optical.spectrum import unpack
from hpo.core.envs.optical.traffic import random_words

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

REQUESTS = int(os.environ.get("HPO_AGREEMENT_REQUESTS", "400"))
SMALL = {"slots": 40, "k": 3, "warmup_requests": 0}
KINDS = {
    "rsa": {"load": 60.0},
    "rmsa": {"load": 90.0},
    "deeprmsa": {"load": 90.0},
    "rwa": {"load": 400.0, "slots": 33},
    "rwa_lightpath_reuse": {"bitrates": [100, 200], "load": 700.0, "scale_factor": 0.2},
}
CASES = {
    **{
        f"{kind}-{'directed' if directed else 'undirected'}": {
            "id": kind,
            **SMALL,
            **extra,
            "directed": directed,
            "load": extra["load"] * (1.0 if directed else 0.5),
        }
        for kind, extra in KINDS.items()
        for directed in (True, False)
    },
    "aggregated": {**SMALL, "load": 90.0, "aggregate_slots": 7, "no_op": True},
    "fits": {**SMALL, "id": "deeprmsa", "load": 90.0, "fits": ["last", "exact", "first", "best"]},
    "fits-of-fifty-paths": {
        "id": "deeprmsa",
        "topology": "5node",
        "k": 50,
        "slots": 33,
        "load": 50.0,
        "fits": ["best", "exact"],
        "directed": False,
    },
    "truncated-wide-guard": {
        **SMALL,
        "load": 150.0,
        "truncate_holding_time": True,
        "guardband": 3,
        "topology": "cost239_deeprmsa",
    },
    "incremental": {"slots": 40, "k": 3, "incremental": True, "max_requests": 300},
    "lightpaths-incremental": {
        "slots": 32,
        "k": 3,
        "incremental": True,
        "max_requests": 350,
        "id": "rwa_lightpath_reuse",
        "bitrates": [100, 300],
        "scale_factor": 0.5,
    },
    "first-blocking": {
        "slots": 40,
        "k": 3,
        "continuous": False,
        "end_first_blocking": True,
        "load": 70.0,
    },
}


def record(env, requests: int):
    """Run the environment; every column has `requests` rows."""
    names, params = sorted(HEURISTICS), env.default_params
    rules = [make_heuristic(name, env) for name in names]

    def request(carry, key):
        state, number = carry
        offers = env.offers(state, params)
        choices = jnp.stack([jnp.stack(rule(state, offers, params)) for rule in rules])
        action = jax.random.randint(jax.random.fold_in(key, 1), (), 0, env.action_space.n)
        drawn = jnp.stack(env.decode(state, offers, action))
        turn = number % (len(rules) + 2)
        served = jnp.where(turn < len(rules), choices[jnp.minimum(turn, len(rules) - 1)], drawn)
        words = random_words(key, 4)
        step = env.serve(words, state, offers, served[0], served[1], params=params)
        row = {
            "pair": state.request.pair,
            "bitrate": state.request.bitrate,
            "holding": state.request.holding,
            "wait": env.traffic.wait(words, state.number, params),
            "mask": env.action_mask(state, params),
            "choices": choices,
            "action": action,
            "drawn": drawn,
            "served": served,
            "blocked": step.info["blocked"] > 0,
            "occupancy": unpack(env.resources.occupancy(step.state.held), env.slots),
            "done": step.terminated | step.truncated,
        }
        fresh, _ = env.reset(jax.random.fold_in(key, 2), params)
        after = jax.tree.map(lambda a, b: jnp.where(row["done"], a, b), fresh, step.state)
        return (after, number + 1), row

    def run(key):
        state, _ = env.reset(key, params)
        keys = jax.random.split(key, requests)
        return lax.scan(request, (state, jnp.zeros((), jnp.int32)), keys)[1]

    return names, jax.device_get(jax.jit(run)(jax.random.key(3)))


@pytest.mark.filterwarnings("ignore:.*fewer than k=50 simple paths")
@pytest.mark.parametrize(
    ("case", "unrolled"), [*((case, False) for case in CASES), ("truncated-wide-guard", True)]
)
def test_environment_agrees_with_the_slow_simulator(case, unrolled, simulator):
    settings = OpticalSettings.from_mapping(CASES[case])
    env = make_environment(settings, unrolled)
    names, rows = record(env, REQUESTS)
    slow = simulator.SlowNetwork(
        env.tables,
        settings.id,
        settings.slots,
        settings.width,
        settings.guardband,
        settings.aggregate_slots,
        settings.no_op,
        not settings.incremental,
        settings.fits,
    )
    for t in range(REQUESTS):
        slow.ask(int(rows["pair"][t]), float(rows["bitrate"][t]))
        assert slow.mask() == rows["mask"][t].tolist(), f"mask at request {t}"
        for name, choice in zip(names, rows["choices"][t], strict=True):
            assert slow.choose(name) == tuple(choice.tolist()), f"{name} at request {t}"
        assert slow.decode(int(rows["action"][t])) == tuple(rows["drawn"][t].tolist())
        path, start = rows["served"][t].tolist()
        accepted = slow.serve(path, start, int(rows["holding"][t]), int(rows["wait"][t]))
        assert accepted == (not rows["blocked"][t]), f"acceptance at request {t}"
        np.testing.assert_array_equal(rows["occupancy"][t], slow.grid, f"request {t}")
        if rows["done"][t]:
            slow.forget()
    share = rows["blocked"].mean()
    # Both outcomes must occur often, or the comparison would prove little.
    assert 0.02 < share < 0.9, share
