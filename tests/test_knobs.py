import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpo.errors import ConfigError
from hpo.foreign_names.tables import names_of
from hpo.knobs import (
    KNOBS,
    SCHEDULES,
    allowed,
    canonical_name,
    check_name,
    check_value,
    complete,
)
from hpo.spaces.make import make_distribution

ALIASES = [(alias, name) for name in KNOBS for alias in names_of(name)]


def legal(knob):
    """Return a strategy of the values that the table says are legal."""
    if knob.type == "bool":
        return st.booleans()
    if knob.type == "choice":
        return st.sampled_from(knob.choices) | (st.none() if knob.off else st.nothing())
    if knob.type == "widths":
        return st.lists(st.integers(1, 300), max_size=4).map(tuple)
    low, high = max(knob.low, -1e6), min(knob.high, 1e6)
    if knob.type == "int":
        values = st.integers(int(low), int(high))
    else:
        values = st.floats(1e-30 if knob.low_open else low, high, allow_subnormal=False)
        values = values.filter(lambda x: x == 0 or abs(x) >= 2.0**-126)  # float32 has no others
        values = values | st.sampled_from(knob.choices) if knob.choices else values
    return values | (st.none() if knob.off else st.nothing())


KNOB = st.sampled_from(list(KNOBS.values()))


@pytest.mark.parametrize("name", KNOBS)
def test_knob_entries_are_complete(name):
    knob = KNOBS[name]
    assert knob.name == name and knob.meaning and not knob.meaning.endswith(".")
    assert allowed(knob)
    if knob.default is not None:
        assert check_value(name, knob.default) == knob.default
    elif knob.off:
        assert check_value(name, None) is None
    if knob.search is not None:
        spec = dict(knob.search)
        distribution = make_distribution(spec)
        assert check_value(name, distribution.middle()) is not None
        for bound in ("min", "max"):
            if bound in spec:
                check_value(name, spec[bound])
        for value in spec.get("values", ()):
            check_value(name, value)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("learning_rate", 1e-3),
        ("gamma", 0.99),
        ("gae_lambda", 0.95),
        ("clip_eps", 0.2),
        ("value_clip_eps", None),
        ("vf_coef", 0.5),
        ("ent_coef", 0.0),
        ("max_grad_norm", 0.5),
        ("adam_eps", 1e-5),
        ("adam_beta1", 0.9),
        ("adam_beta2", 0.999),
        ("update_epochs", 4),
        ("num_envs", 8),
        ("rollout_length", 128),
        ("num_minibatches", 4),
        ("target_kl", None),
        ("hidden_sizes", (64, 64)),
        ("activation", "tanh"),
        ("normalise_advantages", True),
        ("logr_clip", 10.0),
        ("adv_clip", 10.0),
        ("reward_clip", 10.0),
        ("observation_clip", 10.0),
        ("log_std_init", -0.5),
        ("lr_end_fraction", 0.1),
        ("lr_warmup_fraction", 0.2),
    ],
)
def test_defaults_are_the_documented_ones(name, default):
    assert complete({})[name] == default


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_legal_values_are_accepted_and_canonical(data):
    knob = data.draw(KNOB)
    value = data.draw(legal(knob))
    checked = check_value(knob.name, value)
    assert check_value(knob.name, checked) == checked == value
    types = {"float": float, "int": int, "bool": bool, "choice": str, "widths": tuple}
    assert checked is None or checked in knob.choices or type(checked) is types[knob.type]


BAD = {
    "float": [math.nan, math.inf, -math.inf, True, "fast", [1.0], {}, "nan"],
    "int": [1.5, math.nan, True, "four", [4], -1],
    "bool": [0, 1, "true", None, 0.0],
    "choice": ["nothing", 3, True, ["tanh"]],
    "widths": [64, "64", [0], [1.5], [True], [-8], [[8]], [8] * 65, [10**9]],
}


@pytest.mark.parametrize("name", KNOBS)
def test_illegal_values_are_refused_with_what_is_allowed(name):
    knob = KNOBS[name]
    bad = list(BAD[knob.type])
    if knob.type in ("float", "int"):
        bad += [x for x in (knob.low - 1, knob.high + 1) if math.isfinite(x)]
        bad += [knob.low] if knob.low_open else []
    if not knob.off:
        bad += [None, "off"]
    for value in bad:
        with pytest.raises(ConfigError) as error:
            check_value(name, value)
        assert str(error.value) == f"{name} is {value!r}; allowed: {allowed(knob)}"


@pytest.mark.parametrize("name", [name for name, knob in KNOBS.items() if knob.off])
def test_off_may_be_written_in_three_ways(name):
    assert {check_value(name, word) for word in (None, False, "off")} == {None}


def test_a_whole_number_may_be_written_as_a_float():
    assert check_value("update_epochs", 4.0) == 4 and type(check_value("gamma", 1)) is float
    assert check_value("hidden_sizes", [8, 4]) == (8, 4)


def test_foreign_names_map_to_one_knob_each():
    aliases = [alias for alias, _ in ALIASES]
    assert len(aliases) == len(set(aliases)), "an alias means two knobs"
    assert not set(aliases) & set(KNOBS)
    for alias, name in ALIASES:
        assert canonical_name(alias) == name


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("n_steps", "rollout_length"),
        ("LR", "learning_rate"),
        ("clip_range", "clip_eps"),
        ("n_epochs", "update_epochs"),
        ("norm_adv", "normalise_advantages"),
    ],
)
def test_foreign_knob_name_is_refused_with_the_hpo_name(given, ours):
    with pytest.raises(
        ConfigError, match=f"unknown hyperparameter '{given}'; here it is called '{ours}'"
    ):
        check_name(given)


def test_american_spellings_are_accepted():
    assert check_name("normalize_rewards") == "normalise_rewards"
    assert check_name("optimizer") == "optimiser"
    assert check_name("initialization") == "initialisation"
    assert check_name("separate_vf_optimizer") == "separate_vf_optimiser"
    assert complete({"normalize_rewards": True})["normalise_rewards"] is True


def test_unknown_knob_gets_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'gamma'"):
        check_name("gama")
    with pytest.raises(ConfigError, match="Nearest of"):
        check_name("zzzzzz")


def configurations():
    optional = {
        name: legal(knob)
        for name, knob in KNOBS.items()
        if name not in ("num_envs", "rollout_length", "num_minibatches", "minibatch_size")
    }
    sizes = {"num_envs": st.integers(1, 9), "rollout_length": st.integers(2, 20)}
    split = st.sampled_from(["num_minibatches", "minibatch_size"]).flatmap(
        lambda name: st.fixed_dictionaries({name: st.integers(1, 200)})
    )
    return st.builds(
        lambda a, b, c: {**a, **b, **c},
        st.fixed_dictionaries({}, optional=optional),
        st.fixed_dictionaries({}, optional=sizes),
        st.just({}) | split,
    )


@settings(max_examples=200, deadline=None)
@given(configurations())
def test_completing_twice_changes_nothing(config):
    try:
        once = complete(config)
    except ConfigError:
        return  # values that contradict each other; see below
    assert set(once) == set(KNOBS)
    assert complete(once) == once
    samples = once["num_envs"] * once["rollout_length"]
    rows, count = once["minibatch_size"], once["num_minibatches"]
    assert count == math.ceil(samples / rows) and rows <= samples


@pytest.mark.parametrize("value", [1e-60, 1e-39, -1e-39, 1e39])
def test_values_not_representable_in_float32_are_refused(value):
    with pytest.raises(
        ConfigError, match="which float32 cannot represent; allowed: 0, if in range"
    ):
        check_value("average_reward_initial", value)


def test_vf_max_grad_norm_can_be_off():
    """`off` is off; only `same`, the default, follows the policy's."""
    assert complete({"vf_max_grad_norm": "off"})["vf_max_grad_norm"] is None
    assert complete({"max_grad_norm": 2.0})["vf_max_grad_norm"] == 2.0
    assert complete({"max_grad_norm": None})["vf_max_grad_norm"] is None
    both = {"max_grad_norm": None, "vf_max_grad_norm": 3.0}
    assert complete(both)["vf_max_grad_norm"] == 3.0


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_all_optimisers_but_adam_decay(name):
    full = complete({"weight_decay": 0.1, "optimiser": name})
    assert full["vf_weight_decay"] == full["weight_decay"] == 0.1


def test_unset_critic_knobs_follow_the_policy():
    full = complete({"learning_rate": 0.03, "adam_eps": 1e-7, "lr_schedule": "cosine"})
    assert full["vf_learning_rate"] == pytest.approx(0.01)
    assert (full["vf_adam_eps"], full["vf_lr_schedule"]) == (1e-7, "cosine")
    assert full["vf_max_grad_norm"] == 0.5 and full["vf_warmup_fraction"] == 0.2
    own = complete({"vf_learning_rate": 0.5, "vf_lr_schedule": "linear"})
    assert (own["vf_learning_rate"], own["vf_lr_schedule"]) == (0.5, "linear")


def test_normalised_rewards_are_clipped_by_default():
    assert complete({"normalise_rewards": True})["reward_clip"] == 10.0
    assert complete({"normalise_rewards": True, "reward_clip": None})["reward_clip"] is None
    assert complete({"normalise_rewards": True, "reward_clip": 3})["reward_clip"] == 3.0


def test_layers_and_width_give_the_sizes():
    full = complete({"num_layers": 3, "hidden_size": 32})
    assert full["hidden_sizes"] == (32, 32, 32)
    assert full["num_layers"] is None and full["hidden_size"] is None


@pytest.mark.parametrize(
    ("given", "rows", "count"),
    [
        ({}, 256, 4),  # 8 x 128 samples
        ({"num_minibatches": 3}, 342, 3),  # a smaller last one of 340
        ({"minibatch_size": 1000}, 1000, 2),
        ({"minibatch_size": 5000}, 1024, 1),
        ({"minibatch_size": 64, "num_minibatches": 5, "priority_alpha": 0.5}, 64, 5),
        ({"minibatch_size": 64, "num_minibatches": 5, "priority_over": "steps"}, 64, 5),
        ({"num_minibatches": 3, "priority_alpha": 0.5}, 342, 3),
        ({"num_minibatches": 1024}, 1, 1024),
    ],
)
def test_minibatch_size_and_count_determine_each_other(given, rows, count):
    full = complete(given)
    assert (full["minibatch_size"], full["num_minibatches"]) == (rows, count)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"num_minibatches": 2000}, "a rollout has 1024 samples"),
        ({"num_minibatches": 4, "minibatch_size": 100}, "not both"),
        ({"num_layers": 2}, "go together"),
        ({"hidden_size": 64}, "go together"),
        ({"num_layers": 2, "hidden_size": 8, "hidden_sizes": [64, 64]}, "not all three"),
        ({"weight_decay": 0.1}, "needs `optimiser: adamw`"),
        ({"vf_weight_decay": 0.1}, "needs `optimiser: adamw`"),
        ({"gae_lambda_initial": 0.9}, "go together"),
        ({"rho_clip": 1.0}, "rho_clip and c_clip go together"),
        ({"gradient_accumulation": 300}, "at most 256"),
        ({"gae_lambda_final": 0.9}, "go together"),
        ({"log_std_min": 1.0, "log_std_max": 0.0}, "log_std_min is above"),
        ({"lr_schedule": "linaer"}, "allowed: one of constant, linear"),
    ],
)
def test_values_that_contradict_each_other_are_refused(config, match):
    with pytest.raises(ConfigError, match=match):
        complete(config)


def test_environment_values_are_kept_as_given():
    assert complete({"env.gravity": 3})["env.gravity"] == 3


def test_schedule_knobs_share_the_same_choices():
    kinds = [knob for name, knob in KNOBS.items() if name.endswith("_schedule")]
    assert len(kinds) == 5 and all(knob.choices == SCHEDULES for knob in kinds)


@pytest.mark.parametrize(
    "whole",
    [
        {"rho_clip": 1.0, "c_clip": 1.0},
        {"network": "gru"},
        {"priority_alpha": 0.5, "priority_over": "segments"},
    ],
)
def test_more_minibatches_than_segments_are_refused_on_load(whole):
    with pytest.raises(ConfigError, match=r"segments, one per.*at most num_envs, which is 2"):
        complete({"num_envs": 2, "num_minibatches": 4, **whole})
    complete({"num_envs": 4, "num_minibatches": 4, **whole})
    complete({"num_envs": 2, "num_minibatches": 4})
