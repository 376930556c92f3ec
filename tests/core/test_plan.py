import dataclasses

import pytest

from hpo.core.plan import FEATURES, EnvPlan, Plan, features_of, make_plan, plan_hash
from hpo.errors import ConfigError
from hpo.knobs import KNOBS

ENV = EnvPlan("CartPole-v1")
PLAIN = {"normalise_rewards": {False}}
# Static knobs that other fields say: sizes, the environments, the shared encoder.
_SPENT = (
    "num_layers",
    "hidden_size",
    "history",
    "transformer_obs_type",
    "transformer_share_layers",
)


def test_fields_are_the_static_knobs():
    static = {field.name for field in dataclasses.fields(Plan)}
    assert static & set(KNOBS) == {
        name for name, knob in KNOBS.items() if not knob.traced and name not in _SPENT
    }


def test_plan_hash_depends_only_on_static_knobs():
    plan = make_plan({"learning_rate": 1e-3}, ENV, features=())
    assert plan == make_plan({"learning_rate": 1e-2}, ENV, features=())
    assert plan_hash(plan) == plan_hash(make_plan({}, ENV, features=()))
    assert plan_hash(plan) != plan_hash(make_plan({"num_envs": 4}, ENV, features=()))


@pytest.mark.parametrize(
    "knobs",
    [
        {"network": "mlp"},
        {"network": "gnn", "shared_encoder": True},
        {"network": "transformer", "shared_encoder": True},
        {"network": "transformer", "transformer_share_layers": True},
    ],
)
def test_link_critic_sees_is_ignored_without_a_link_critic(knobs):
    plans = [make_plan({**knobs, "link_critic_sees": sees}, ENV) for sees in ("slots", "shares")]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("network", ["gnn", "transformer"])
def test_link_critic_sees_is_part_of_link_network_plans(network):
    plan = make_plan({"network": network, "link_critic_sees": "shares"}, ENV)
    assert plan.link_critic_sees == "shares"
    assert plan != make_plan({"network": network}, ENV)


def test_plan_features_follow_the_search_space():
    assert features_of({}) == ("normalise_rewards",)
    assert features_of({"normalise_rewards": {False}}) == ()
    assert features_of({"normalise_rewards": {True, False}}) == ("normalise_rewards",)
    assert features_of({**PLAIN, "priority_alpha": {0.0, 0.6}, "rho_clip": {None}}) == (
        "priority",
    )
    assert features_of({**PLAIN, "rho_clip": {1.0}, "valid_mass_coef": {0.0}}) == ("v_trace",)
    with pytest.raises(ConfigError, match="normalise_rewards is on"):
        make_plan({"normalise_rewards": True}, ENV, features=())
    with pytest.raises(ConfigError, match="unknown features"):
        make_plan({}, ENV, features=("nothing",))
    with pytest.raises(ConfigError, match="v_trace is on"):
        make_plan({"rho_clip": 1.0, "c_clip": 1.0}, ENV, features=("priority",))
    assert make_plan({}, ENV).features == ("normalise_rewards",)
    assert make_plan({}, ENV, features=()).features == ()
    assert make_plan({"priority_alpha": 0.5}, ENV).features == ("normalise_rewards", "priority")
    assert set(FEATURES.values()) <= set(KNOBS)


def test_uneven_minibatch_counts_require_prioritised_sampling():
    both = {"num_minibatches": 2, "minibatch_size": 10, "priority_over": "steps"}
    with pytest.raises(ConfigError, match="set or search priority_alpha above 0"):
        make_plan(both, ENV)
    assert make_plan(both, ENV, features=("priority",)).has_free_minibatches
    assert make_plan({**both, "num_minibatches": 103}, ENV).num_minibatches == 103  # 8 x 128 rows


def test_minibatches_are_whole_segments_where_steps_depend_on_each_other():
    clips = {"rho_clip": 1.0, "c_clip": 1.0}
    assert not make_plan({"priority_alpha": 0.5}, ENV).by_segments
    assert make_plan({"priority_alpha": 0.5, "priority_over": "segments"}, ENV).by_segments
    assert make_plan(clips, ENV).by_segments
    assert make_plan({}, ENV, features=("v_trace",)).by_segments
    with pytest.raises(ConfigError, match="at most num_envs, which is 8"):
        make_plan({**clips, "num_minibatches": 9}, ENV)
    with pytest.raises(ConfigError, match="V-trace learns from whole segments"):
        make_plan({**clips, "priority_alpha": 0.5, "priority_over": "steps"}, ENV)
    with pytest.raises(ConfigError, match="gradient_accumulation is 3"):
        make_plan({**clips, "gradient_accumulation": 3}, ENV)
