import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import slow
from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.lane_state import RewardState, RunningStatistics
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import init_params
from hpo.core.saved_policy import SavedPolicy, load_policy, save_policy
from hpo.errors import HpoError, StoreError
from hpo.knobs import complete
from hpo.views.words import on_command_line

pytestmark = pytest.mark.usefixtures("quickly_compiled")

GIVEN = {"hidden_sizes": [5], "policy_gain": 1.0, "normalise_observations": True,
         "observation_clip": 2.0, "normalise_rewards": False,
         "value_clip_eps": "same"}  # fmt: skip


def made(env_id, eval_params, **keys):
    """Return a policy with random weights and a normaliser that matters."""
    config = complete(GIVEN)
    where, other = EnvPlan(env_id), EnvPlan(env_id, tuple(sorted(keys.items())))
    plan = make_plan(config, where, other, ("normalise_observations",))
    env = registry.make(where)
    hypers = make_hypers(config, env.default_params, env.default_params)
    hypers = jax.tree.map(jnp.asarray, hypers)
    params = init_params(plan, hypers, jax.random.key(2, impl="threefry2x32"))
    shape = env.observation_struct.shape
    seen = np.random.default_rng(0).normal(0.2, 0.3, size=(50, *shape)).astype(np.float32)
    statistics = RunningStatistics.empty(shape).merge(jnp.asarray(seen))
    return SavedPolicy(
        plan, config, {}, eval_params, params, statistics, {"trial": 7, "study": "a test"}
    )


@pytest.fixture(scope="module")
def policies():
    return {
        "cartpole": made("CartPole-v1", {"gravity": 12.0}, max_steps_in_episode=40),
        "pendulum": made("Pendulum-v1", {"m": 1.2}, max_steps_in_episode=20),
    }


@pytest.fixture(scope="module", params=["cartpole", "pendulum"])
def pair(request, policies, tmp_path_factory):
    """A policy, and the same one written down and read back."""
    before = policies[request.param]
    directory = tmp_path_factory.mktemp("policies") / request.param
    save_policy(directory, before)
    return before, load_policy(directory)


def observations(saved, rows=6):
    shape = registry.make(saved.plan.env).observation_struct.shape
    return np.random.default_rng(1).normal(size=(rows, *shape)).astype(np.float32)


def test_saved_policy_round_trips_all_fields(pair):
    before, after = pair
    assert after.plan == before.plan
    assert dict(after.config) == dict(before.config)
    assert (after.env_params, after.eval_params) == (before.env_params, before.eval_params)
    assert after.about == before.about
    trees = ((before.params, after.params), (before.statistics, after.statistics))
    for left, right in trees:
        assert jax.tree.structure(left) == jax.tree.structure(right)
        for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(
        jax.tree.leaves(before.hypers()), jax.tree.leaves(after.hypers()), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_loaded_policy_gives_the_same_actions(pair):
    before, after = pair
    seen = observations(before)
    key = jax.random.key(5, impl="threefry2x32")
    for how in ({}, {"deterministic": False, "key": key}):
        left, carry = before.predict(seen, carry="kept", **how)
        right, _ = after.predict(seen, **how)
        np.testing.assert_array_equal(left, right)
        assert carry == "kept"


def test_loaded_policy_gives_the_same_evaluation(pair):
    before, after = pair
    left, right = before.evaluate(3, seed=4), after.evaluate(3, seed=4)
    np.testing.assert_array_equal(left.returns, right.returns)
    assert left.returns.shape == (1, 3)
    assert left.lengths.max() <= dict(before.plan.eval_env.keys)["max_steps_in_episode"]


def test_policy_applies_its_observation_normaliser(policies):
    saved = policies["cartpole"]
    seen = observations(saved, 40)
    statistics = saved.statistics
    std = np.sqrt(np.asarray(statistics.square, np.float64) / 50)
    clean = np.clip((seen - np.asarray(statistics.mean)) / std, -2.0, 2.0)
    params = slow.as_float64(jax.device_get(saved.params))
    logits, _ = slow.network(params, clean)
    np.testing.assert_array_equal(saved.predict(seen)[0], logits.argmax(-1))
    raw, _ = slow.network(params, seen)
    assert not np.array_equal(raw.argmax(-1), logits.argmax(-1))  # the normaliser matters


def test_policy_without_normaliser_acts_differently(policies):
    saved = policies["pendulum"]
    seen = observations(saved)
    bare = dataclasses.replace(saved, statistics=RunningStatistics.empty((3,)))
    assert not np.allclose(bare.predict(seen)[0], saved.predict(seen)[0], atol=1e-3)
    returns = saved.evaluate(2).returns
    assert not np.array_equal(bare.evaluate(2).returns, returns)
    assert not np.array_equal(saved.evaluate(2, seed=1).returns, returns)


def test_predict_accepts_single_and_batched_observations(policies):
    for name, action_shape in (("cartpole", ()), ("pendulum", (1,))):
        saved = policies[name]
        seen = observations(saved)
        actions = np.asarray(saved.predict(seen)[0])
        one, _ = saved.predict(seen[0])
        assert one.shape == action_shape
        np.testing.assert_allclose(one, actions[0], atol=1e-6)
        square, _ = saved.predict(seen.reshape(2, 3, -1))
        assert square.shape == (2, 3, *action_shape)
        key = jax.random.key(0)
        assert saved.predict(seen, key=key, deterministic=False)[0].shape == actions.shape


def test_samples_differ_from_the_mode_and_need_a_key(policies):
    saved = policies["pendulum"]
    seen = observations(saved)
    sampled, _ = saved.predict(seen, deterministic=False, key=jax.random.key(1))
    assert not np.array_equal(sampled, saved.predict(seen)[0])
    with pytest.raises(ValueError, match="needs a key"):
        saved.predict(seen, deterministic=False)


def test_predict_obeys_action_masks(policies):
    saved = policies["cartpole"]
    seen = observations(saved)
    mask = jnp.asarray([[True, False]] * 3 + [[False, True]] * 3)
    np.testing.assert_array_equal(saved.predict(seen, mask=mask)[0], [0, 0, 0, 1, 1, 1])


def test_policy_json_is_readable_and_not_overwritten(policies, tmp_path):
    save_policy(tmp_path / "p", policies["cartpole"])
    document = json.loads((tmp_path / "p" / "policy.json").read_text())
    assert document["env"] == {"id": "CartPole-v1", "keys": {}}
    assert document["config"]["hidden_sizes"] == [5] and document["about"]["trial"] == 7
    with pytest.raises(FileExistsError):
        save_policy(tmp_path / "p", policies["cartpole"])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged: it is \\[\\]; allowed: an object"),
        ('{"format": 99}', "has format 99; this version of hpo reads 1"),
        ('{"format": 1}', "is damaged: it has no env, eval_env"),
    ],
)
def test_damaged_policy_json_is_refused(policies, tmp_path, text, match):
    save_policy(tmp_path / "p", policies["cartpole"])
    (tmp_path / "p" / "policy.json").write_text(text)
    with pytest.raises(StoreError, match=match):
        load_policy(tmp_path / "p")


WRONG = [None, "../../../../etc/passwd", 10**400, -1, 1e308, [], {}, [[1]], True, "\x1b[31m<b>"]
TYPED = ("env", "eval_env", "features", "env_params", "eval_params", "about", "imports",
         "reward_state")  # fmt: skip
SOME = ("hidden_sizes", "learning_rate", "network", "rho_clip", "history")


def places(data, above=()):
    """Yield the way to every value."""
    if above:
        yield above
    inside = data.items() if isinstance(data, dict) else ()
    for key, value in enumerate(data) if isinstance(data, list) else inside:
        yield from places(value, (*above, key))


def test_wrong_policy_json_values_never_crash_loading(policies, tmp_path):
    """Each value in turn is made another: the policy loads, or one line says what is wrong."""
    returns = RunningStatistics.empty(()).merge(jnp.asarray([1.0, 3.0], jnp.float32))
    rewards = RewardState(returns, jnp.float32(1.0), jnp.float32(0.5))
    own = dataclasses.replace(policies["cartpole"], rewards=rewards, imports=("own.py",))
    save_policy(tmp_path / "p", own)
    path = tmp_path / "p" / "policy.json"
    whole = json.loads(path.read_text())
    ways = [way for way in places(whole) if way[0] in TYPED]
    ways += [("config",), ("format",), *(("config", name) for name in SOME)]
    assert len(ways) > 30
    for way in ways:
        for wrong in WRONG:
            changed = json.loads(json.dumps(whole))
            inside = changed
            for key in way[:-1]:
                inside = inside[key]
            inside[way[-1]] = wrong
            path.write_text(json.dumps(changed))
            try:
                load_policy(tmp_path / "p")
            except HpoError as error:
                first, *others = str(error).splitlines()
                assert len(first) < 400, (way, wrong)
                assert others == [] or others[0].startswith("this policy needs the code of own.py")
                assert str(path.parent) in first or others, (way, first)


@pytest.mark.parametrize(
    ("way", "wrong", "told"),
    [
        (("env",), 3, "env is 3; allowed: an object"),
        (("env", "id"), ["x"], "env.id is ['x']; allowed: an environment id"),
        (("eval_env", "keys"), "x", "eval_env.keys is 'x'; allowed: an object"),
        (("env", "keys"), {"a": {}}, "env.keys.a is {}; allowed: strings, numbers and lists"),
        (
            ("eval_env", "keys", "max_steps_in_episode"),
            1e308,
            "max_steps_in_episode is 1e+308; al",
        ),
        (("features",), None, "features is None; allowed: a list of names"),
        (("eval_params", "gravity"), 1e39, "{'gravity': 1e+39}; allowed: an object with finite"),
        (("about",), "\x1b", "about is '\\x1b'; allowed: an object"),
        (("reward_state", "returns"), {"count": 1}, "numbers count, mean, square"),
        (("reward_state",), {"returns": None}, "it has no reward_state.centring"),
        (("config", "gamma"), "high", "policy.json: gamma is 'high'; allowed: a number from"),
    ],
)
def test_wrong_policy_json_value_is_named_in_the_error(policies, tmp_path, way, wrong, told):
    saved = dataclasses.replace(policies["cartpole"], rewards=RewardState())
    save_policy(tmp_path / "p", saved)
    path = tmp_path / "p" / "policy.json"
    changed = json.loads(path.read_text())
    inside = changed
    for key in way[:-1]:
        inside = inside[key]
    inside[way[-1]] = wrong
    path.write_text(json.dumps(changed))
    with pytest.raises(HpoError) as raised:
        load_policy(tmp_path / "p")
    assert str(raised.value).startswith(str(path)) and told in str(raised.value)


def test_older_policy_folders_load_without_reward_statistics(policies, tmp_path):
    returns = RunningStatistics.empty(()).merge(jnp.asarray([1.0, 3.0], jnp.float32))
    saved = dataclasses.replace(policies["cartpole"], rewards=RewardState(returns=returns))
    save_policy(tmp_path / "p", saved)
    found = load_policy(tmp_path / "p").rewards
    assert float(found.returns.count) == 2.0 and found.average is None
    path = tmp_path / "p" / "policy.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "reward_state": 3}))
    with pytest.raises(StoreError, match="is damaged: reward_state is 3; allowed: an"):
        load_policy(tmp_path / "p")
    del document["reward_state"]
    path.write_text(json.dumps(document))
    assert load_policy(tmp_path / "p").rewards is None


def test_mismatched_or_damaged_policy_folder_is_refused(policies, tmp_path):
    with pytest.raises(StoreError, match="is not a policy folder"):
        load_policy(tmp_path)
    save_policy(tmp_path / "p", policies["cartpole"])
    path = tmp_path / "p" / "policy.json"
    whole = json.loads(path.read_text())
    wider = {**whole, "config": {**whole["config"], "hidden_sizes": [6]}}
    path.write_text(json.dumps(wider))
    with pytest.raises(StoreError, match="wrong shapes"):
        load_policy(tmp_path / "p")
    stranger = {**whole, "config": {**whole["config"], "learning_speed": 1}}
    path.write_text(json.dumps(stranger))
    with pytest.raises(HpoError, match="unknown hyperparameter 'learning_speed'"):
        load_policy(tmp_path / "p")
    path.write_text(json.dumps(whole))
    for file in (tmp_path / "p" / "arrays" / "d").iterdir():
        file.write_bytes(b"")
    with pytest.raises(StoreError, match="is damaged"):
        load_policy(tmp_path / "p")


def test_a_policy_prints_as_one_line(policies):
    told = dataclasses.replace(policies["cartpole"], about={"study": "my", "trial": 3})
    assert repr(told) == "<SavedPolicy of study my, trial 3: mlp on CartPole-v1>"
    assert "\n" not in repr(policies["pendulum"]) and len(repr(policies["pendulum"])) < 80


def test_policy_copies_user_code_and_requires_explicit_import(policies, tmp_path):
    """Its environment is registered by a file; without it the message says what to type."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "own.py").write_text("registered = True\n")
    registry.register("own-pole", lambda: registry.make(EnvPlan("CartPole-v1")))
    try:
        plan = dataclasses.replace(
            policies["cartpole"].plan, env=EnvPlan("own-pole"), eval_env=EnvPlan("own-pole")
        )
        saved = dataclasses.replace(
            policies["cartpole"], plan=plan, eval_params={}, imports=("parts/own.py",)
        )
        folder = tmp_path / "policy"
        save_policy(folder, saved, {"parts/own.py": tmp_path / "parts" / "own.py"})
        assert load_policy(folder).imports == ("parts/own.py",)
        copy = folder / "imports" / "parts" / "own.py"
        assert copy.read_text() == "registered = True\n"
    finally:
        del registry._REGISTERED["own-pole"]
        registry.make.cache_clear()
    with pytest.raises(HpoError, match="unknown environment 'own-pole'") as told:
        load_policy(folder)
    assert f"hpo eval {folder} --import {copy}" in on_command_line(told.value)


def test_parent_folder_error_lists_policies_inside(tmp_path):
    study = tmp_path / "study"
    for inside in ("policies/trial_3/CartPole-v1", "policies/trial_3/Acrobot-v1"):
        (study / inside).mkdir(parents=True)
        (study / inside / "policy.json").write_text("{}")
    kept = study / "policies" / "trial_3"
    for folder in (study, study / "policies", kept):
        with pytest.raises(StoreError) as told:
            load_policy(folder)
        assert str(told.value) == (
            f"{folder} is not a policy folder: it has no policy.json; it contains "
            f"{kept}/Acrobot-v1, {kept}/CartPole-v1"
        )
    with pytest.raises(StoreError, match=r"has no policy\.json$"):
        load_policy(tmp_path / "nowhere")
