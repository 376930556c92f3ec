"""A rollout against all futures of a network so small that they can be counted."""

import copy
import itertools

import jax
import numpy as np
import pytest

from hpo.cli import main
from hpo.core.envs.optical.agents import make_agent
from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.errors import ConfigError, UnknownNameError

pytestmark = pytest.mark.usefixtures("quickly_compiled")

TINY = {"id": "rsa", "topology": "ring4", "directed": False, "k": 2, "slots": 3, "guardband": 0,
        "bitrates": [12.5, 25.0], "incremental": True, "max_requests": 7}  # fmt: skip
AHEAD, STREAMS, SERVED = 2, (12, 22), 5


def slow_losses(slow, env, asked, served):
    """Return what each candidate loses on average over all futures, each as likely."""
    requests = list(itertools.product(range(len(env.tables.hops)), TINY["bitrates"]))
    slow.ask(*asked)
    base = slow.choose("ff_ksp")
    lowest = [(path, slow.first[path] or 0) for path in range(slow.k)]
    found = []
    for path, start in [base, *lowest, (slow.k, 0)]:
        now = copy.deepcopy(slow)
        lost, total = 1 - now.serve(path, start, 1, 1), 0
        left = min(AHEAD, TINY["max_requests"] - served - 1)
        for future in itertools.product(requests, repeat=left):
            later = copy.deepcopy(now)
            for request in future:
                later.ask(*request)
                total += not later.serve(*later.choose("ff_ksp"), 1, 1)
        found.append(lost + total / len(requests) ** left)
    return np.array(found)


def test_it_takes_what_is_best_over_all_futures(simulator):
    """Means of 600 futures are those of all of them, and so is what is taken where it matters."""
    env = make_from_keys(**TINY)
    params, rule = env.default_params, make_agent(f"rollout:ff_ksp@600x{AHEAD}", env)
    assert rule.simulated == 4 * 600 * 3

    @jax.jit
    def look(state, key):
        offers, words = env.offers(state, params), jax.random.key_data(key)
        _, losses = rule.losses(state, offers, params, key)
        path, start, _ = rule.choose(state, offers, params, (), words)
        return losses, path, start, env.step(key, state, path * env.blocks + start, params).state

    left_alone, others = 0, 0
    for stream, number in itertools.product(STREAMS, range(SERVED)):
        if number == 0:
            slow = simulator.SlowNetwork(env.tables, "rsa", 3, 12.5, 0, services_end=False)
            state = env.reset(jax.random.key(stream), params)[0]
        asked = int(state.request.pair), float(state.request.bitrate)
        truth = slow_losses(slow, env, asked, number)
        losses, path, start, state = look(state, jax.random.key(100 * stream + number))
        losses = np.asarray(losses)
        error = losses.std(0, ddof=1) / np.sqrt(600)
        assert np.all(np.abs(losses.mean(0) - truth) <= 4.5 * error + 1e-6), number
        candidates = [slow.choose("ff_ksp"), *((p, slow.first[p] or 0) for p in range(2)), (2, 0)]
        taken = min(truth[i] for i, c in enumerate(candidates) if c == (int(path), int(start)))
        apart = (losses - losses[:, :1]).std(0, ddof=1) / np.sqrt(600)
        assert taken <= truth[0] and taken <= truth.min() + 8.0 * apart.max()
        left_alone += taken == truth[0]
        others += taken < truth[0] - 1e-9
        slow.serve(int(path), int(start), 1, 1)
    assert left_alone > 0 and others > 0, "both must happen, or it shows little"


def test_names_and_what_they_cost(tmp_path, capsys):
    env = make_from_keys(**TINY)
    with pytest.raises(UnknownNameError, match="did you mean 'ksp_ff'"):
        make_agent("rollout:ksp_fff", env)
    for name in ("rollout:ksp_ff@8", "rollout:ksp_ff@ax2"):
        with pytest.raises(ConfigError, match="FUTURESxHORIZON; type rollout:ksp_ff@64x250"):
            make_agent(name, env)
    with pytest.raises(ConfigError, match="2 futures or more"):
        make_agent("rollout:ksp_ff@1x5", env)
    file = tmp_path / "ring.yaml"
    file.write_text("id: rmsa\ntopology: ring4\nk: 2\nslots: 8\nload: 20\nwarmup_requests: 10\n")
    given = ["eval", "--env", str(file), "--heuristic", "ksp_ff,rollout:ksp_ff@2x3"]
    assert main([*given, "--seeds", "2", "--steps", "20"]) == 0
    printed = capsys.readouterr()
    assert "rollout:ksp_ff@2x3 simulates 32 requests for each one" in printed.err
    assert "rollout:ksp_ff@2x3" in printed.out
