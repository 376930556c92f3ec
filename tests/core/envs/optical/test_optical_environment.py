from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.envs.contract import Environment
from hpo.core.envs.optical.heuristic_evaluation import trace_heuristic
from hpo.core.envs.optical.optical_environment import make_environment
from hpo.core.envs.optical.optical_settings import ENVIRONMENT_IDS, OBSERVATIONS, OpticalSettings
from hpo.errors import ConfigError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

BASE = {"slots": 40, "k": 3, "warmup_requests": 0}


def make(**keys):
    return make_environment(OpticalSettings.from_mapping(BASE | keys))


def steps(env, count, key=0, params=None, act=None):
    """Step with random valid actions (or `act(mask, key)`), all results stacked."""
    params = env.default_params if params is None else params

    def one(carry, key):
        state, observation = carry
        mask = env.action_mask(state, params)
        if act is None:
            action = jax.random.categorical(key, jnp.where(mask, 0.0, -1e9)).astype(jnp.int32)
        else:
            action = act(mask, key)
        step = env.step(key, state, action, params)
        return (step.state, step.observation), (observation, mask, action, step)

    def run(key):
        return jax.lax.scan(one, env.reset(key, params), jax.random.split(key, count))[1]

    return jax.jit(run)(jax.random.key(key))


@pytest.mark.parametrize("kind", ENVIRONMENT_IDS)
def test_contract(kind):
    env = make(id=kind, bitrates=[100]) if kind == "rwa_lightpath_reuse" else make(id=kind)
    assert isinstance(env, Environment)
    assert env.never_ends and env.warmup_steps == 0 and env.has_mask
    observation, mask, _, step = steps(env, 30)
    assert mask.shape == (30, env.action_space.n) and mask.dtype == bool
    assert observation.shape[1:] == env.observation_struct.shape
    assert step.reward.dtype == jnp.float32
    for value in step.info.values():
        assert value.dtype == jnp.float32 and value.shape == (30,)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(env.default_params))
    assert make(id=kind) is make(id=kind)


def test_equal_settings_share_one_environment():
    assert make(load=10) is make(load=10.0)
    assert make(load=10) is not make(load=11)


def test_state_keeps_its_shapes_and_dtypes():
    for keys in ({}, {"incremental": True}, {"traffic_matrix": "random"}):
        env = make(**keys)
        key, params = jax.random.key(0), env.default_params
        state, _ = jax.eval_shape(env.reset, key, params)
        after = jax.eval_shape(env.step, key, state, jnp.int32(0), params).state
        described = [
            [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]
            for tree in (state, after)
        ]
        assert described[0] == described[1]
        assert not any(weak for _, _, weak in described[0])


def test_valid_actions_are_accepted_and_invalid_ones_blocked():
    env = make(load=150.0)
    _, mask, action, step = steps(
        env, 600, act=lambda mask, key: jax.random.randint(key, (), 0, mask.shape[0])
    )
    allowed = np.take_along_axis(np.asarray(mask), np.asarray(action)[:, None], 1)[:, 0]
    np.testing.assert_array_equal(np.asarray(step.info["blocked"]) == 0, allowed)
    assert 0.2 < allowed.mean() < 0.95


def test_no_op_blocks_the_request_and_is_always_valid():
    env = make(no_op=True)
    last = env.action_space.n - 1
    _, mask, _, step = steps(env, 20, act=lambda mask, key: jnp.int32(last))
    assert np.asarray(mask)[:, last].all()
    assert (np.asarray(step.reward) == -1).all()
    assert (np.asarray(step.info["utilisation"]) == 0).all()


@pytest.mark.parametrize("size", [1, 3, 7, 39, 40])
def test_actions_decode_and_encode_for_any_block_size(size):
    env = make(aggregate_slots=size)
    blocks = -(-40 // size)
    assert env.action_space.n == 3 * blocks

    @jax.jit
    def there_and_back(params, actions):
        state, _ = env.reset(jax.random.key(0), params)
        offers = env.offers(state, params)
        paths, starts = jax.vmap(lambda action: env.decode(state, offers, action))(actions)
        return paths, starts, jax.vmap(lambda p, s: env.encode(state, offers, p, s))(paths, starts)

    actions = np.arange(env.action_space.n, dtype=np.int32)
    paths, starts, back = map(np.asarray, there_and_back(env.default_params, actions))
    np.testing.assert_array_equal(paths, actions // blocks)
    np.testing.assert_array_equal(starts // size, actions % blocks)
    np.testing.assert_array_equal(back, actions)


def test_service_and_bitrate_rewards_penalise_blocking():
    service, bitrate = make(load=300.0), make(load=300.0, reward="bitrate")
    _, _, _, step = steps(service, 300)
    blocked = np.asarray(step.info["blocked"])
    np.testing.assert_array_equal(step.reward, -blocked)
    _, _, _, step = steps(bitrate, 300)
    np.testing.assert_allclose(
        step.reward, -np.asarray(step.info["bitrate_blocked"]) / 100.0, 1e-6
    )
    assert blocked.any()


def test_an_episode_is_exactly_max_requests_steps_and_is_truncated():
    env = make(continuous=False, max_requests=25, load=1.0)
    assert not env.never_ends
    _, _, _, step = steps(env, 25)
    assert np.asarray(step.truncated).tolist() == [False] * 24 + [True]
    assert not np.asarray(step.terminated).any()


def test_end_first_blocking_terminates_the_episode():
    env = make(continuous=False, end_first_blocking=True, load=400.0)
    _, _, _, step = steps(env, 200)
    np.testing.assert_array_equal(step.terminated, np.asarray(step.info["blocked"]) > 0)
    assert np.asarray(step.terminated).any() and not make(end_first_blocking=True).never_ends


def test_incremental_utilisation_never_decreases():
    env = make(incremental=True, max_requests=150)
    _, _, _, step = steps(env, 150)
    used = np.asarray(step.info["utilisation"])
    assert (np.diff(used) >= 0).all() and used[-1] > 0.3


def test_load_varies_per_lane_without_cross_lane_effects():
    env = make()
    loads = jnp.array([5.0, 100.0, 400.0])

    def run(load):
        params = env.default_params.replace(load=load)
        return steps(env, 400, params=params)[3]

    together = jax.jit(jax.vmap(run))(loads)
    blocked = np.asarray(together.info["blocked"]).mean(1)
    assert blocked[0] == 0 and blocked[0] < blocked[1] < blocked[2]
    alone = run(loads[1])
    for name in alone.info:
        np.testing.assert_array_equal(together.info[name][1], alone.info[name])


def test_bitrate_scale_multiplies_needed_slots():
    env = make(topology="ring4", directed=False, k=2, bitrates=[100])

    @jax.jit
    def asked(scale):
        params = env.default_params.replace(bitrate_scale=scale)
        state, _ = env.reset(jax.random.key(0), env.default_params)
        return env.offers(state, params).need, env.action_mask(state, params)

    for scale, need in ((0.5, 2), (1.0, 3), (19.5, 40), (20.0, 41)):  # 16QAM: 50 Gb/s a slot
        needs, mask = jax.device_get(asked(np.float32(scale)))
        assert needs.tolist() == [need, need] and mask.sum() == 2 * max(40 - need + 1, 0)


def test_summarised_metrics_match_step_info():
    env = make(load=200.0, histograms=True)
    _, _, _, step = steps(env, 500)
    sums = {name: value.sum() for name, value in step.info.items()}
    metrics = {k: float(v) for k, v in env.summarise(sums, jnp.float32(500)).items()}
    blocked = np.asarray(step.info["blocked"])
    assert metrics["service_blocking_probability"] == pytest.approx(blocked.mean())
    bitrate = np.asarray(step.info["bitrate"])
    lost = (bitrate * blocked).sum() / bitrate.sum()
    assert metrics["bitrate_blocking_probability"] == pytest.approx(lost, rel=1e-5)
    assert metrics["accepted_services"] == 500 - blocked.sum()
    shares = [metrics[f"path_{rank}_share"] for rank in range(3)]
    assert sum(shares) == pytest.approx(1.0)
    assert sum(v for k, v in metrics.items() if k.startswith("hops_")) == pytest.approx(1.0)


def _write_requests(path, rows):
    lines = ["source,destination,bitrate,arrival,holding"]
    lines += [",".join(str(value) for value in row) for row in rows]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.parametrize("name", ["ksp_ff", "kme_ff"])
def test_request_file_replay_matches_the_slow_simulator(tmp_path, simulator, name):
    rng, count = np.random.default_rng(0), 500
    arrivals = np.round(np.cumsum(rng.exponential(1 / 80, count)), 2)  # many arrive together
    holding = np.round(rng.exponential(1.0, count), 2)  # ends often meet arrivals exactly
    ends = [rng.choice(np.arange(1, 15), 2, replace=False) for _ in arrivals]
    rates = rng.integers(25, 101, count)
    rows = [(*e, r, a, h) for e, r, a, h in zip(ends, rates, arrivals, holding, strict=True)]
    file = _write_requests(tmp_path / "requests.csv", rows)
    env = make_environment(OpticalSettings.from_mapping({"slots": 40, "k": 3, "requests": file}))
    trace = trace_heuristic(env, name)
    assert len(trace["step"]) == count and not env.never_ends
    slow = simulator.SlowNetwork(env.tables, "rmsa", 40, 12.5, 1)
    pair_of = {tuple(pair): row for row, pair in enumerate(env.tables.paths.pairs.tolist())}
    for t in range(count):
        slow.now = arrivals[t]
        slow.services = [s for s in slow.services if s.end > slow.now]
        slow.rebuild()
        slow.ask(pair_of[int(ends[t][0]) - 1, int(ends[t][1]) - 1], float(rates[t]))
        path, start = slow.choose(name)
        assert (path, start) == (trace["path"][t], trace["slot"][t]), t
        assert sum(slow.mask()) == trace["valid_actions"][t]
        assert (trace["source"][t], trace["destination"][t]) == tuple(ends[t])
        accepted = slow.serve(path, start, holding[t], 0)
        assert accepted == trace["accepted"][t]
        links = slow.links[path]
        assert trace["hops"][t] == len(links)
        assert trace["path_km"][t] == sum(env.tables.topology.links[link][2] for link in links)
        assert trace["slots_needed"][t] == (slow.need[path] if len(links) else 0)
    assert 0.02 < 1 - trace["accepted"].mean() < 0.9
    np.testing.assert_array_equal(trace["arrival"], arrivals)
    np.testing.assert_array_equal(trace["departure"], arrivals + holding)
    np.testing.assert_array_equal(trace["occupancy"], slow.grid)


def test_traced_requests_replayed_from_file_are_served_identically(tmp_path):
    """Arrivals and departures of a trace are all that there is to know of its times."""
    keys = {"slots": 20, "k": 2, "load": 60.0, "mean_holding_time": 7.0}
    drawn = trace_heuristic(make(**keys), "ksp_ff", steps=400)
    names = ("source", "destination", "bitrate", "arrival", "departure")
    rows = [
        (source, destination, bitrate, repr(arrival), repr(departure - arrival))
        for source, destination, bitrate, arrival, departure in zip(
            *(drawn[name].tolist() for name in names), strict=True
        )
    ]
    file = _write_requests(tmp_path / "requests.csv", rows)
    given = trace_heuristic(make(**keys, requests=file), "ksp_ff")
    for name in ("path", "slot", "accepted", "valid_actions", "path_km", "hops", "slots_needed"):
        np.testing.assert_array_equal(given[name], drawn[name], err_msg=name)
    assert 0.05 < drawn["accepted"].mean() < 0.95
    np.testing.assert_allclose(np.diff(drawn["arrival"]).mean(), 7.0 / 60.0, rtol=0.2)
    lasts = drawn["departure"] - drawn["arrival"]
    np.testing.assert_allclose(lasts.mean(), 7.0, rtol=0.2)
    forever = trace_heuristic(make(**keys, incremental=True), "ksp_ff", steps=5)
    assert np.isinf(forever["departure"]).all()


def test_trace_clock_restarts_per_episode_and_refusals_have_no_path():
    """Every episode has a clock of its own; an action that refuses has no path."""
    env = make(continuous=False, max_requests=4, slots=20, k=2, no_op=True)

    def refuse(state, offers, params):
        return jnp.int32(env.num_paths), jnp.int32(0)

    trace = trace_heuristic(env, refuse, steps=12)
    assert trace["episode"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (trace["arrival"][[0, 4, 8]] == 0.0).all()
    assert (np.diff(trace["arrival"].reshape(3, 4)) > 0.0).all()
    assert not trace["accepted"].any()
    for name in ("hops", "path_km", "slots_needed"):
        assert not trace[name].any(), name


def test_service_ending_at_an_arrival_frees_its_slots(tmp_path):
    rows = [("0", "1", 300, 0.1, 0.2), ("0", "1", 300, 0.3, 1.0), ("0", "1", 300, 0.4, 1.0)]
    file = _write_requests(tmp_path / "requests.csv", rows)
    keys = {"topology": "ring4", "directed": False, "k": 1, "slots": 8, "requests": file}
    trace = trace_heuristic(make_environment(OpticalSettings.from_mapping(keys)), "ksp_ff")
    # In float64, 0.1 + 0.2 is a hair later than 0.3: the second request must be refused.
    assert 0.1 + 0.2 > 0.3
    assert trace["accepted"].tolist() == [True, False, True]


def test_network_config_errors_are_raised_on_creation():
    with pytest.raises(ConfigError, match="did you mean"):
        make(topology="nsfnet")
    with pytest.raises(ConfigError, match="does not exist"):
        make(requests="nowhere.csv")


def test_truncated_holding_reduces_load_by_the_published_ratio():
    plain, cut = make(load=15.0), make(load=15.0, truncate_holding_time=True)
    used = [
        np.asarray(steps(env, 3000)[3].info["utilisation"])[500:].mean() for env in (plain, cut)
    ]
    assert used[1] / used[0] == pytest.approx(0.687, abs=0.05)


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_observations_are_finite_from_the_first_request(kind):
    keys = {"observation": kind}
    if kind == "link_capacity":
        keys |= {"id": "rwa_lightpath_reuse", "bitrates": [100, 200]}
    env = make(**keys)
    observation, *_ = steps(env, 50)
    shapes = jax.tree.map(lambda x: x.shape[1:], observation)
    assert jax.tree.leaves(shapes) == jax.tree.leaves(
        jax.tree.map(lambda x: x.shape, env.observation_struct)
    )
    for leaf in jax.tree.leaves(observation):
        assert np.isfinite(np.asarray(leaf, np.float64)).all()


def test_fit_actions_decode_and_encode():
    """The same start by two fits is the first of them; without room every action is start 0."""
    env = make(id="deeprmsa", fits=["first", "best", "last", "exact"], load=60.0)
    assert env.action_space.n == 3 * 4 and env.routes.outputs == 4
    params = env.default_params
    state = steps(env, 300)[3].state
    some = jax.tree.map(lambda x: x[50::25], state)

    @jax.jit
    @jax.vmap
    def there_and_back(state):
        offers, actions = env.offers(state, params), jnp.arange(12, dtype=jnp.int32)
        paths, starts = jax.vmap(lambda action: env.decode(state, offers, action))(actions)
        back = jax.vmap(lambda p, s: env.encode(state, offers, p, s))(paths, starts)
        return starts.reshape(3, 4), back.reshape(3, 4)

    starts, back = map(np.asarray, there_and_back(some))
    first = np.argmax(starts[..., None, :] == starts[..., :, None], axis=-1)
    np.testing.assert_array_equal(back, first + 4 * np.arange(3)[:, None])
    assert (starts[..., 0] <= starts[..., 1]).all() and (starts[..., 1] <= starts[..., 2]).all()
    assert (starts[..., 1:] != starts[..., :1]).any(axis=(0, 1)).all()
