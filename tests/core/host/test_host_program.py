"""A program whose environments the host steps does what a compiled one does."""

import dataclasses

import jax
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from hpo.core.envs import registry
from hpo.core.host import host_program, stage
from hpo.core.host.host_program import HostProgram
from hpo.core.hypers import make_hypers
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.program import EvaluationPlan, Program
from hpo.errors import SearchError
from hpo.machine.workers import Workers

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

KNOBS = {"num_envs": 3, "rollout_length": 8, "num_minibatches": 2, "hidden_sizes": [8],
         "normalise_observations": True, "learning_rate": 1e-3}  # fmt: skip
REMEMBERS = {"network": "gru", "history": 2}
OTHERS = {"learning_rate": 3e-3, "update_epochs": 6, "gamma": 0.9}
SEED, UPDATES, TWIN = 7, 2, "gym:hpo-test/Hosted-v0"


class Made:
    """Programs of one environment, compiled once for all tests."""

    def __init__(self, id_, **knobs):
        self.id, self.where, self.knobs = id_, EnvPlan(id_), {**KNOBS, **knobs}
        self.plan = make_plan(self.knobs, self.where)
        self.known = {}

    def hypers(self, **given):
        env = registry.make(self.where)
        values = {name[4:]: given.pop(name) for name in list(given) if name.startswith("env_")}
        params = registry.params_of(env, values)
        return make_hypers({**self.knobs, **given}, params, params)

    def program(self, lanes=4, **more):
        """Return a program without environments yet, its compiled functions shared."""
        kind = HostProgram if self.id.startswith("gym:") else Program
        made = kind(
            self.plan,
            lanes,
            UPDATES,
            2,
            EvaluationPlan(episodes=4),
            tuple(jax.devices()),
            self.hypers(),
            **more,
        )
        if lanes not in self.known:
            self.known[lanes] = made._advance, made._evaluate, made._gather
        for name, value in zip(
            ("_advance", "_evaluate", "_gather"), self.known[lanes], strict=True
        ):
            made.__dict__[name] = value
        return made

    def refills(self, program, lanes, busy=None):
        """Return refills for {lane: (knobs, replicate)}; all others rest unless `busy`."""
        rows = program.no_refills()
        rows.busy[:] = False
        rows.busy[list(lanes if busy is None else busy)] = True
        for lane, (knobs, replicate) in lanes.items():
            rows.mask[lane], rows.replicate[lane], rows.total_updates[lane] = True, replicate, 50
            jax.tree.map(
                lambda all_, one, at=lane: all_.__setitem__(at, one),
                rows.hypers,
                self.hypers(**knobs),
            )
        return rows

    def curve(self, program, lanes, begin, chunks, lane):
        """Advance and give (lanes, every metric of one lane)."""
        seen, busy = [], np.flatnonzero(begin.busy)
        for i in range(chunks):
            rows = begin if i == 0 else self.refills(program, {}, busy)
            lanes, metrics = program.advance(SEED, lanes, rows)
            seen.append(jax.tree.map(lambda x: np.asarray(x)[:, lane].copy(), metrics))
        return lanes, jax.tree.map(lambda *parts: np.concatenate(parts), *seen)


def same(one, other):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def cartpole():
    return Made("gym:CartPole-v1")


@pytest.fixture(scope="module")
def hosted(twins):
    return Made(TWIN, **REMEMBERS)


@pytest.fixture(scope="module")
def compiled(twins):
    return Made(twins.ID, **REMEMBERS)


@pytest.fixture(scope="module")
def alone(cartpole):
    """The curve of replicate 3 in lane 0 of an otherwise empty population."""
    program = cartpole.program()
    begin = cartpole.refills(program, {0: ({}, 3)})
    return cartpole.curve(program, program.empty(), begin, 3, lane=0)[1]


def test_the_host_gives_what_the_compiled_twin_gives(hosted, compiled):
    """Trajectories, stacked observations, bootstraps at cuts, memory, learning, evaluation.

    The twin is stepped by XLA.
    """
    found = []
    for made in (hosted, compiled):
        program = made.program()
        begin = made.refills(program, {0: ({}, 0), 3: ({**OTHERS, "env_bonus": 0.25}, 1)})
        state, curve = made.curve(program, program.empty(), begin, 3, lane=3)
        evaluated = program.evaluate(state, [3, 0])
        found.append((curve, jax.device_get(state.state.replace(env_state=())), evaluated))
    (ours, state, seen), (theirs, state_too, seen_too) = found
    np.testing.assert_array_equal(ours.episodes, theirs.episodes)
    np.testing.assert_array_equal(ours.episode_length, theirs.episode_length)
    assert ours.episodes.sum() > 20
    for (path, one), other in zip(
        jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6, err_msg=str(path))
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(state_too), strict=True):
        np.testing.assert_allclose(one[[0, 3]], other[[0, 3]], rtol=2e-4, atol=2e-6)
    np.testing.assert_allclose(seen.returns, seen_too.returns, rtol=1e-6)
    np.testing.assert_array_equal(seen.lengths, seen_too.lengths)
    assert seen.returns.shape == (2, 4)


def test_inspected_hosted_lane_matches_its_compiled_twin(hosted, compiled):
    """Stacked observations, memory, bootstraps, `info`, advantages, losses, gradients."""
    found = []
    for made in (hosted, compiled):
        program = made.program()
        begin = made.refills(program, {0: ({}, 0), 3: ({**OTHERS, "env_bonus": 0.25}, 1)})
        lanes, _ = program.advance(SEED, program.empty(), begin)
        found.append(program.look(lanes, 3, made.hypers(**OTHERS, env_bonus=0.25)))
    ours, theirs = found
    assert ours.pop("begun_anew") == 0 and set(ours) == set(theirs)
    info = ours["trajectories"].info
    assert set(info) == {"time"} and set(np.unique(info["time"])) == {1.0, 2.0, 3.0, 4.0}
    assert info["time"].shape == (KNOBS["rollout_length"], KNOBS["num_envs"])
    for (path, one), other in zip(
        jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6, err_msg=str(path))


@pytest.fixture
def heard(cartpole, monkeypatch):
    """What CartPole's programs learned from, update by update."""
    functions, given = cartpole.program()._advance, []
    learn = functions["learn"]

    def listen(lanes, busy, refused, memory, after, *played):
        given.append(jax.device_get(played))
        return learn(lanes, busy, refused, memory, after, *played)

    monkeypatch.setitem(functions, "learn", listen)
    return given


@pytest.mark.parametrize("count", [0, 2])
def test_inspecting_a_lane_previews_its_rollout_without_side_effects(
    cartpole, alone, heard, count
):
    """In this process, and with workers: episodes go on where they stand."""
    workers = Workers(count) if count else None
    program = cartpole.program(workers=workers)
    begin = cartpole.refills(program, {1: ({}, 3), 2: (OTHERS, 0)})
    lanes, before = cartpole.curve(program, program.empty(), begin, 2, lane=1)
    assert np.asarray(lanes.state.episode_length)[1].any()
    looked = program.look(lanes, 1, cartpole.hypers())
    seen, updates = looked["trajectories"], len(heard)
    go_on = cartpole.refills(program, {}, [1, 2])
    _, after = cartpole.curve(program, lanes, go_on, 1, lane=1)
    same(jax.tree.map(lambda *parts: np.concatenate(parts), before, after), alone)
    rollout, answers = heard[updates]
    np.testing.assert_array_equal(seen.bootstrap, rollout.bootstrap[:, 1])
    for name in ("observation", "action", "log_prob", "value"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(rollout.done, name)[:, 1], name)
    for name in ("reward", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(seen, name), getattr(answers, name)[:, 1], name)
    assert looked["begun_anew"] == 0 and seen.info == {}
    assert looked["advantages"]["target"].shape == seen.reward.shape
    if workers is not None:
        workers.close()


def test_env_failure_during_inspection_does_not_affect_training(cartpole, alone, monkeypatch):
    warnings = []
    program = cartpole.program(warn=warnings.append)
    begin = cartpole.refills(program, {1: ({}, 3)})
    lanes, before = cartpole.curve(program, program.empty(), begin, 2, lane=1)
    with monkeypatch.context() as patched:
        patched.setattr(CartPoleEnv, "step", lambda self, action: 1 / 0)
        assert program.look(lanes, 1, cartpole.hypers()) == {}
    assert len(warnings) == 1 and "ZeroDivisionError" in warnings[0]
    assert program.look(lanes, 0, cartpole.hypers()) == {}, "a lane without environments"
    _, after = cartpole.curve(program, lanes, cartpole.refills(program, {}, [1]), 1, lane=1)
    same(jax.tree.map(lambda *parts: np.concatenate(parts), before, after), alone)
    assert program.failures() == {}


def test_irreproducible_envs_are_inspected_from_new_episodes(cartpole, monkeypatch):
    program = cartpole.program()
    lanes, _ = program.advance(SEED, program.empty(), cartpole.refills(program, {0: ({}, 0)}))
    shown = program.stage.observation
    monkeypatch.setattr(stage, "stream_words", lambda key, use, index: f"other/{index}")
    looked = program.look(lanes, 0, cartpole.hypers())
    assert looked["begun_anew"] == KNOBS["num_envs"]
    first = looked["trajectories"].observation[0]
    assert np.abs(first).max() <= 0.05, "CartPole's first observations are within 0.05"
    assert (first != shown[0]).any(axis=1).all()
    np.testing.assert_array_equal(program.stage.observation, shown)


def test_the_ratio_is_one_before_the_first_gradient_step(alone):
    assert np.all(alone.ratio_start_error <= 1e-6) and np.any(alone.ratio_std > 0.0)
    assert not alone.diverged.any() and np.all(np.isfinite(alone.loss))
    assert alone.episodes.sum() > 0


@pytest.mark.parametrize("lane", [0, 3])
def test_hosted_results_do_not_depend_on_neighbours_or_lane(cartpole, alone, lane):
    program = cartpole.program()
    begin = cartpole.refills(program, {i: (OTHERS, i) for i in range(4)} | {lane: ({}, 3)})
    same(cartpole.curve(program, program.empty(), begin, 3, lane)[1], alone)


def test_acting_on_one_device_equals_acting_on_all(hosted, monkeypatch):
    found, devices = [], []
    for most in (0, host_program.SMALL_CALL):
        monkeypatch.setattr(host_program, "SMALL_CALL", most)
        made = Made(hosted.id, **REMEMBERS)
        program = made.program()
        begin = made.refills(program, {0: ({}, 0), 3: (OTHERS, 1)})
        lanes, curve = made.curve(program, program.empty(), begin, 3, lane=3)
        found.append((curve, jax.device_get(lanes.state)))
        devices.append(program.acting_mesh.size)
    assert devices == [len(jax.devices()), 1]
    same(*found)


def test_refill_time_and_previous_trial_do_not_change_results(cartpole, alone):
    program = cartpole.program()
    busy = cartpole.refills(program, {i: (OTHERS, i) for i in range(4)})
    lanes, _ = cartpole.curve(program, program.empty(), busy, 2, lane=0)
    begin = cartpole.refills(program, {2: ({}, 3)}, busy=[0, 2])
    same(cartpole.curve(program, lanes, begin, 3, lane=2)[1], alone)


def test_worker_processes_do_not_change_results(cartpole, alone):
    workers = Workers(2)
    program = cartpole.program(workers=workers)
    begin = cartpole.refills(program, {1: ({}, 3), 2: (OTHERS, 0)})
    lanes, curve = cartpole.curve(program, program.empty(), begin, 3, lane=1)
    same(curve, alone)
    ours = cartpole.program()
    same(program.evaluate(lanes, [1, 2]), ours.evaluate(lanes, [1, 2]))
    workers.close()


def test_crashing_workers_raise_and_leave_no_partial_save(cartpole, tmp_path):
    workers = Workers(1, entry="os:abort")
    program = cartpole.program(workers=workers)
    begin = cartpole.refills(program, {0: ({}, 0)})
    with pytest.raises(SearchError, match="before they stepped an environment; the last ended"):
        program.advance(SEED, program.empty(), begin)
    with pytest.raises(SearchError, match="before they stepped an environment"):
        program.save(program.empty(), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_diverged_hosted_lane_is_flagged_without_affecting_others(cartpole, alone):
    program = cartpole.program()
    wild = {"learning_rate": 1e9, "max_grad_norm": None}
    begin = cartpole.refills(program, {i: (wild, i) for i in range(4)} | {1: ({}, 3)})
    lanes, curve = cartpole.curve(program, program.empty(), begin, 3, lane=1)
    same(curve, alone)
    _, metrics = program.advance(SEED, lanes, cartpole.refills(program, {}, range(4)))
    assert np.asarray(metrics.diverged).any(axis=0).tolist() == [True, False, True, True]


def test_hosted_seeds_differ_and_equal_seeds_agree(cartpole):
    program = cartpole.program()
    begin = cartpole.refills(program, {0: ({}, 1), 1: ({}, 1), 2: ({}, 2)})
    lanes, _ = cartpole.curve(program, program.empty(), begin, 2, lane=0)
    observation = np.asarray(lanes.state.observation)
    np.testing.assert_array_equal(observation[0], observation[1])
    assert not np.array_equal(observation[0], observation[2])
    assert len(np.unique(observation[0, :, 0])) == KNOBS["num_envs"], "environments differ too"


def test_refused_env_parameters_mark_the_lane_diverged(hosted):
    warnings = []
    program = hosted.program(warn=warnings.append)
    begin = hosted.refills(program, {0: ({}, 0), 1: ({"env_bonus": 1e3}, 0)})
    _, metrics = program.advance(SEED, program.empty(), begin)
    assert np.asarray(metrics.diverged)[:, :2].tolist() == [[False, True]] * UPDATES
    assert len(warnings) == 1 and "bonus=1000.0" in warnings[0]


def test_restored_hosted_program_continues_bitwise_identically(cartpole, alone, tmp_path):
    program = cartpole.program()
    begin = cartpole.refills(program, {1: ({}, 3), 2: (OTHERS, 0)})
    lanes, before = cartpole.curve(program, program.empty(), begin, 2, lane=1)
    program.save(lanes, tmp_path / "saved")
    warnings = []
    other = cartpole.program(warn=warnings.append)
    back = other.restore(other.empty(), tmp_path / "saved")
    begin = cartpole.refills(other, {}, busy=[1, 2])
    _, after = cartpole.curve(other, back, begin, 1, lane=1)
    same(jax.tree.map(lambda *parts: np.concatenate(parts), before, after), alone)
    assert not warnings


def changes(made, program, wanted):
    """Return changes from {lane: (source or None, knobs)}."""
    rows = program.no_changes()
    for lane, (source, knobs) in wanted.items():
        rows.mask[lane], rows.source[lane] = True, lane if source is None else source
        jax.tree.map(
            lambda all_, one, at=lane: all_.__setitem__(at, one), rows.hypers, made.hypers(**knobs)
        )
    return rows


def test_copied_hosted_lane_continues_like_its_source(cartpole):
    """Its environments, too: a lineage over two lanes is one lane whose knobs change."""
    curves = []
    for lane, others, source in ((1, {1: (OTHERS, 5), 3: (OTHERS, 6)}, 0), (2, {}, None)):
        warnings = []
        program = cartpole.program(warn=warnings.append)
        begin = cartpole.refills(program, {0 if others else lane: ({}, 3)} | others)
        lanes, _ = cartpole.curve(program, program.empty(), begin, 2, lane=lane)
        lanes = program.change(lanes, changes(cartpole, program, {lane: (source, OTHERS)}))
        go_on = cartpole.refills(program, {}, np.flatnonzero(begin.busy))
        curves.append(cartpole.curve(program, lanes, go_on, 2, lane=lane)[1])
        assert not warnings
    same(*curves)


def test_changed_env_values_recreate_the_environment(hosted):
    """The twin shows rewards by nothing: with another bonus it stands where it stood."""
    warnings = []
    program = hosted.program(warn=warnings.append)
    begin = hosted.refills(program, {0: ({}, 0), 1: ({}, 1)})
    lanes, _ = program.advance(SEED, program.empty(), begin)
    before = jax.device_get(lanes.state)
    wanted = {0: (None, {"env_bonus": 0.25}), 1: (None, {"learning_rate": 1e-2})}
    after = jax.device_get(program.change(lanes, changes(hosted, program, wanted)).state)
    assert program.stage._values == {0: {"bonus": 0.25}, 1: {}} and not warnings
    np.testing.assert_array_equal(after.observation[:2], before.observation[:2])
    np.testing.assert_array_equal(after.episode_length[:2], before.episode_length[:2])


def test_unrestorable_envs_restart_and_reset_episode_statistics(cartpole, tmp_path, monkeypatch):
    warnings, program = [], cartpole.program()
    lanes, _ = program.advance(SEED, program.empty(), cartpole.refills(program, {0: ({}, 0)}))
    program.save(lanes, tmp_path / "saved")
    monkeypatch.setattr(stage, "stream_words", lambda key, use, index: f"other/{index}")
    other = cartpole.program(warn=warnings.append)
    back = other.restore(other.empty(), tmp_path / "saved")
    assert len(warnings) == 1 and "3 non-reproducible environments of 3" in warnings[0]
    for name in ("episode_length", "episode_return", "discounted_return"):
        assert not np.asarray(getattr(back.state, name))[0].any()
    np.testing.assert_array_equal(back.state.observation, other.stage.observation)
    same(back.state.params, lanes.state.params)


def test_unrestorable_episodes_clear_recurrent_memory(hosted):
    program = hosted.program()
    lanes, _ = program.advance(SEED, program.empty(), hosted.refills(program, {0: ({}, 0)}))
    lost = np.zeros((4, 3), bool)
    lost[0, 1] = True
    back = program._without_episodes(lanes, lost, program.stage)
    for before, after in zip(
        *map(jax.tree.leaves, (lanes.state.carry, back.state.carry)), strict=True
    ):
        assert np.asarray(before)[lost].any() and not np.asarray(after)[lost].any()
        np.testing.assert_array_equal(np.asarray(after)[~lost], np.asarray(before)[~lost])


def test_hosted_evaluation_is_reproducible_with_separate_seeds(cartpole):
    program = cartpole.program()
    begin = cartpole.refills(program, {0: ({}, 1), 1: (OTHERS, 1), 2: ({}, 2)})
    lanes, _ = program.advance(SEED, program.empty(), begin)
    first = program.evaluate(lanes, [0, 2])
    same(program.evaluate(lanes, [0, 2]), first)
    np.testing.assert_array_equal(program.evaluate(lanes, [2]).returns[0], first.returns[1])
    np.testing.assert_array_equal(first.returns, first.lengths)  # of CartPole
    none = program.evaluate(lanes, [])
    assert none.returns.shape == none.lengths.shape == (0, first.returns.shape[1])
    assert none.lengths.dtype == np.int32 and none.metrics == first.metrics == {}
    assert len(np.unique(first.returns)) > 1
    counted = dataclasses.replace(program, evaluation=EvaluationPlan(episodes=3, steps=17))
    assert counted.evaluate(lanes, [1]).lengths.tolist() == [[17, 17, 17]]
