"""A policy serves the same requests in the same way by whatever road it is evaluated."""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.cli import main
from hpo.core import policy as policies
from hpo.core.envs import registry
from hpo.core.envs.optical.heuristic_evaluation import (
    PolicyRule,
    check_fits,
    evaluate_baseline,
    evaluate_heuristic,
    trace_heuristic,
)
from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.core.envs.optical.supported_load import find_load
from hpo.core.lane_state import RunningStatistics
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.saved_policy import SavedPolicy, save_policy
from hpo.errors import ConfigError
from hpo.knobs import complete

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

REQUESTS = 60
NETWORK = {"topology": "ring4", "k": 2, "slots": 10}
DRAWN = {**NETWORK, "load": 20, "warmup_requests": 30}
MEMORIES = {
    "gru": {"network": "gru", "recurrent_size": 8},
    "all": {"history": 2, "network": "lstm", "recurrent_size": 8, "normalise_observations": True},
}


def made(keys, **knobs):
    """Return a policy of random weights to which all that it remembers matters."""
    config = complete(
        {"hidden_sizes": [16], "policy_gain": 30.0, "normalise_rewards": False, **knobs}
    )
    keys = dict(keys)
    params = {"load": float(keys.pop("load", 20))}
    where = EnvPlan("rmsa", tuple(sorted(keys.items())))
    plan = make_plan(config, where)
    env = registry.make(plan.env)
    statistics = RunningStatistics.empty(policies.statistics_shape(plan))
    if plan.features:
        seen = np.random.default_rng(0).normal(0.3, 0.2, (50, *env.observation_struct.shape))
        statistics = statistics.merge(jnp.asarray(seen, jnp.float32))
    saved = SavedPolicy(plan, config, params, params, {}, statistics)

    @jax.jit
    def weights():
        key = jax.random.key(1, impl="threefry2x32")
        return policies.init_params(plan, saved.hypers(), key)

    return SavedPolicy(plan, config, params, params, weights(), statistics)


def by_hand(saved, forgetful=False):
    """Play one episode by `predict`; gives actions, acceptances and the last spectrum."""
    env = registry.make(saved.plan.eval_env)
    params = env.default_params
    key = jax.random.key(0)  # a list of requests draws nothing
    mask_of = jax.jit(env.action_mask)

    @jax.jit
    def step(state, action):
        after = env.step(key, state, action, params)
        return after.state, after.observation, after.info["blocked"], after.truncated

    state, seen = jax.jit(env.reset)(key, params)
    actions, accepted, carry, over = [], [], None, False
    while not over:
        if forgetful and saved.history > 1:
            seen = np.array(seen)
            seen[:-1] = 0.0
        action, carry = saved.predict(seen, mask=mask_of(state, params), carry=carry)
        state, seen, blocked, over = step(state, action)
        actions.append(int(action))
        accepted.append(float(blocked) == 0.0)
        carry = None if forgetful else carry
    return np.array(actions), np.array(accepted)


@pytest.fixture(scope="module")
def requests(tmp_path_factory):
    """A list of requests: every seed and every load serve the same ones."""
    rng = np.random.default_rng(3)
    arrivals = np.cumsum(rng.exponential(0.05, REQUESTS))
    path = tmp_path_factory.mktemp("requests") / "requests.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "destination", "bitrate", "arrival", "holding"])
        for arrival in arrivals:
            ends = rng.choice(4, 2, replace=False)
            writer.writerow([*ends, rng.integers(25, 101), arrival, rng.exponential(1.0)])
    return str(path)


@pytest.fixture(scope="module", params=list(MEMORIES))
def played(request, requests):
    """A policy on a list of requests, and what it does there by hand."""
    saved = made({**NETWORK, "requests": requests}, **MEMORIES[request.param])
    actions, accepted = by_hand(saved)
    forgot, _ = by_hand(saved, forgetful=True)
    assert not np.array_equal(actions, forgot), "its memory must matter"
    assert 0.02 < 1 - accepted.mean() < 0.98
    return saved, actions, accepted


def network_of(saved):
    plan = saved.plan.eval_env
    return make_from_keys(id=plan.id, **dict(plan.keys))


def test_every_evaluation_of_a_policy_gives_the_same_figure(played):
    saved, actions, accepted = played
    blocking, env = 1 - accepted.mean(), network_of(saved)
    rule = PolicyRule(env, saved)
    check_fits(registry.make(saved.plan.eval_env), env)
    alone = saved.evaluate(1)
    np.testing.assert_allclose(alone.metrics["service_blocking_probability"], blocking, rtol=1e-6)
    several = evaluate_heuristic(env, rule, seeds=1, steps=2 * REQUESTS, loads=[5.0, 50.0])
    np.testing.assert_allclose(several.service_blocking, blocking)  # each episode begins anew
    traced = trace_heuristic(env, rule)
    np.testing.assert_array_equal(traced["action"], actions)
    np.testing.assert_array_equal(traced["accepted"], accepted)
    own = saved.trace(1)
    np.testing.assert_array_equal(own["action"], actions)


def test_cli_eval_reproduces_policy_blocking(played, tmp_path, capsys):
    saved, _, accepted = played
    save_policy(tmp_path / "policy", saved)
    folder, blocking = str(tmp_path / "policy"), 1 - accepted.mean()
    size = ["--seeds", "5", "--steps", str(REQUESTS)]

    def answer(*argv):
        assert main([*argv, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    found = answer("eval", folder, "--loads", "5,10", *size)
    assert found["greedy"] is True
    figures = [row["service_blocking_probability"] for row in found["results"]]
    assert [figure["mean"] for figure in figures] == [pytest.approx(blocking)] * 2
    found = answer("eval", folder, "--trace", str(tmp_path / "trace.csv"))
    assert (found["requests"], found["accepted"]) == (REQUESTS, accepted.sum())


def test_policy_rule_reproduces_study_evaluation():
    """The streams of a study: warm-up, then a window, in continuous operation."""
    saved = made(DRAWN, **MEMORIES["all"])
    env = make_from_keys(id="rmsa", **DRAWN)
    keys = np.asarray(saved._as_lane(7).key)
    rule = PolicyRule(env, saved)
    ours = evaluate_baseline(env, rule, saved.hypers().eval_params, keys, episodes=3, steps=60)
    theirs = saved.evaluate(3, seed=7, steps=60)
    for name, values in theirs.metrics.items():
        np.testing.assert_allclose(ours.metrics[name], values, rtol=1e-5, err_msg=name)
    assert theirs.metrics["service_blocking_probability"].std() > 0.0


def test_find_load_carries_recurrent_policy_memory():
    saved = made(DRAWN, **MEMORIES["gru"])
    env = make_from_keys(id="rmsa", **DRAWN)
    rule = PolicyRule(env, saved)
    found = find_load(env, rule, 0.2, seeds=5, steps=60).last
    alone = evaluate_heuristic(env, rule, seeds=5, steps=60, loads=found.loads[3:4].tolist())
    np.testing.assert_array_equal(alone.blocked[0], found.blocked[3])


class Coin:
    """Takes the second path with a probability of 0.3, whatever it sees."""

    history = 1

    def begin(self):
        return ()

    def act(self, observation, mask, memory, key):
        second = jnp.zeros((), bool) if key is None else jax.random.bernoulli(key, 0.3)
        return second.astype(jnp.int32) * 10, memory


def test_sampled_actions_are_independent_per_request():
    env = make_from_keys(id="rmsa", **DRAWN)
    assert (trace_heuristic(env, PolicyRule(env, Coin()), steps=50)["path"] == 0).all()
    rule = PolicyRule(env, Coin(), greedy=False)
    drawn = trace_heuristic(env, rule, steps=3000)["path"].astype(float)
    assert abs(drawn.mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / 3000)
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 4 / np.sqrt(3000)
    again = trace_heuristic(env, rule, steps=3000)["path"]
    np.testing.assert_array_equal(again, drawn)
    other = trace_heuristic(env, rule, steps=3000, seed=1)["path"]
    assert not np.array_equal(other, drawn)


def test_cli_eval_sample_option_samples_policy_actions(tmp_path, capsys):
    saved = made(DRAWN, policy_gain=1.0)
    save_policy(tmp_path / "policy", saved)
    argv = ["eval", str(tmp_path / "policy"), "--seeds", "5", "--steps", "60"]
    printed = []
    for more in ([], ["--sample"]):
        assert main([*argv, *more]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[1] != printed[0].replace("k 2\n", "k 2, sampled actions\n")
    assert "sampled actions" in printed[1] and "sampled" not in printed[0]
    env = tmp_path / "env.yaml"
    env.write_text(json.dumps({"id": "rmsa", **DRAWN}))
    assert main(["eval", "--env", str(env), "--heuristic", "ksp_ff", "--sample"]) == 2
    assert "--sample" in capsys.readouterr().err


def test_history_policy_for_a_different_network_is_refused():
    saved = made(DRAWN, history=2)
    other = make_from_keys(id="rmsa", **{**DRAWN, "slots": 12})
    with pytest.raises(ConfigError, match="the actions in the policy's training"):
        check_fits(registry.make(saved.plan.eval_env), other)
