import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import strategies
from hpo.errors import ConfigError
from hpo.spaces import Condition, Parameter, Space, ValueRule, make_distribution, parse_rule


def parameter(name, default=None, when=(), **fields):
    distribution = make_distribution(fields)
    default = distribution.middle() if default is None else default
    return Parameter(name, distribution, default, tuple(Condition(k, v) for k, v in when))


NETWORKS = Space(
    (
        parameter("heads", values=[1, 2, 4], when=[("network", ("transformer",))]),
        parameter("network", values=["mlp", "transformer", "gnn"]),
        parameter("dropout", min=0.0, max=0.5, when=[("heads", (2, 4))]),
        parameter("learning_rate", 1e-3, min=1e-5, max=1e-2, distribution="log_uniform"),
    ),
    (parse_rule("learning_rate > limit and heads == 4"),),
    constants={"limit": 5e-3},
)


def rejected_share(space, rng, count):
    """Return the share of draws that a rule forbids."""
    return sum(space.forbidden(space.draw(rng)) is not None for _ in range(count)) / count


@settings(deadline=None)
@given(strategies.spaces(), st.integers(0, 2**32 - 1))
def test_a_sample_is_contained_and_complete(space, seed):
    try:
        params = space.sample(np.random.default_rng(seed))
    except ConfigError:
        # The only rule of these spaces forbids one value of one parameter: it must be its only.
        share = rejected_share(space, np.random.default_rng(seed), 100)
        assert share > 0.9
        return
    assert space.why_not(params) == []
    assert space.contains(params)
    assert space.complete(params) == params
    assert space.canonical(params) == space.canonical(dict(reversed(params.items())))
    assert hash(space.canonical(params)) is not None


@settings(deadline=None)
@given(strategies.spaces())
def test_grid_points_are_contained_and_unique(space):
    seen = set()
    for params in itertools.islice(space.grid(3), 60):
        assert space.why_not(params) == []
        seen.add(space.canonical(params))
        assert len(seen) <= 60
    assert len(seen) == len(list(itertools.islice(space.grid(3), 60)))


def test_only_active_parameters_have_values():
    rng = np.random.default_rng(0)
    kinds = {frozenset(NETWORKS.sample(rng)) for _ in range(200)}
    assert kinds == {
        frozenset({"network", "learning_rate"}),
        frozenset({"network", "heads", "learning_rate"}),
        frozenset({"network", "heads", "dropout", "learning_rate"}),
    }
    assert list(NETWORKS.sample(rng))[-1] == "learning_rate"


def test_same_generator_gives_the_same_samples():
    one, other = np.random.default_rng(5), np.random.default_rng(5)
    assert [NETWORKS.sample(one) for _ in range(5)] == [NETWORKS.sample(other) for _ in range(5)]


def test_why_not_reports_all_reasons():
    reasons = NETWORKS.why_not({"network": "mlp", "heads": 2, "learning_rate": 1.0, "netwrk": 1})
    assert len(reasons) == 3
    assert "did you mean 'network'" in reasons[0]
    assert any("heads has a value, but it is not active" in reason for reason in reasons)
    assert any("learning_rate: 1.0 is not between" in reason for reason in reasons)
    assert NETWORKS.why_not({"network": "transformer", "heads": 1}) == [
        "learning_rate has no value"
    ]


def test_a_child_of_an_inactive_parent_is_inactive():
    reasons = NETWORKS.why_not(
        {"network": "mlp", "heads": 2, "dropout": 0.1, "learning_rate": 1e-3}
    )
    assert len(reasons) == 2


def test_rules_use_fixed_parameters():
    params = {"network": "transformer", "heads": 4, "dropout": 0.1, "learning_rate": 9e-3}
    assert "forbidden by" in NETWORKS.why_not(params)[0]
    assert NETWORKS.contains({**params, "learning_rate": 4e-3})


def test_complete_fills_in_and_follows_conditions():
    assert NETWORKS.default() == {"network": "mlp", "learning_rate": 1e-3}
    assert NETWORKS.complete({"network": "transformer"}) == {
        "heads": 1,
        "network": "transformer",
        "learning_rate": 1e-3,
    }
    with pytest.raises(ConfigError, match="heads has a value, but it is not active"):
        NETWORKS.complete({"heads": 2})
    with pytest.raises(ConfigError, match="not between"):
        NETWORKS.complete({"learning_rate": 2})


def test_unsatisfiable_rules_raise_when_sampling():
    space = Space((parameter("a", min=1, max=3),), (parse_rule("a > 0"),))
    with pytest.raises(ConfigError, match="rejected 100 configurations"):
        space.sample(np.random.default_rng(0))
    assert rejected_share(space, np.random.default_rng(0), 50) == 1.0
    assert list(space.grid(3)) == []


def test_rejected_share_estimates_the_forbidden_volume():
    space = Space((parameter("a", min=0.0, max=1.0),), (parse_rule("a < 0.25"),))
    assert rejected_share(space, np.random.default_rng(0), 4000) == pytest.approx(0.25, abs=0.03)


def test_grid_size_counts_active_parameters_only():
    space = Space(
        (
            parameter("a", min=0.0, max=1.0),
            parameter("b", values=["x", "y"]),
            parameter("c", min=1, max=3, when=[("b", ("y",))]),
        )
    )
    # Three values of a; b=x alone and b=y with three values of c.
    assert len(list(space.grid(3))) == 3 * (1 + 3)
    assert len(list(space.grid({"a": 2, "*": 1}))) == 2 * (1 + 1)


def test_knob_may_have_different_distributions_per_condition():
    space = Space(
        (
            parameter("optimiser", values=["adam", "muon"]),
            parameter("lr", min=1e-5, max=1e-3, when=[("optimiser", ("adam",))]),
            parameter("lr", min=1e-2, max=1e-1, when=[("optimiser", ("muon",))]),
        )
    )
    assert [key for key, _ in space.keyed] == ["optimiser", "lr#0", "lr#1"]
    rng = np.random.default_rng(0)
    for _ in range(50):
        params = space.sample(rng)
        assert (params["lr"] < 5e-3) == (params["optimiser"] == "adam")
        assert space.contains(params)
    assert not space.contains({"optimiser": "adam", "lr": 0.05})


def test_child_is_active_for_either_distribution_of_its_parent():
    space = Space(
        (
            parameter("optimiser", values=["adam", "sgd"]),
            parameter(
                "lr_schedule", values=["constant", "linear"], when=[("optimiser", ("adam",))]
            ),
            parameter("lr_schedule", values=["linear", "cosine"], when=[("optimiser", ("sgd",))]),
            parameter("lr_end_fraction", min=0.0, max=0.5, when=[("lr_schedule", ("linear",))]),
        )
    )
    given = {"optimiser": "sgd", "lr_schedule": "linear", "lr_end_fraction": 0.1}
    assert space.complete(given) == given and space.contains(given)
    rng = np.random.default_rng(0)
    assert all(space.contains(space.sample(rng)) for _ in range(200))
    assert all(map(space.contains, space.grid(3)))
    other = {"optimiser": "sgd", "lr_schedule": "cosine", "lr_end_fraction": 0.1}
    assert space.why_not(other) == ["lr_end_fraction has a value, but it is not active here"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ([parameter("a", min=0, max=1, when=[("a", (0,))])], "cycle: a -> a"),
        (
            [
                parameter("a", min=0, max=1, when=[("c", (0,))]),
                parameter("b", min=0, max=1, when=[("a", (0,))]),
                parameter("c", min=0, max=1, when=[("b", (0,))]),
            ],
            "cycle: a -> c -> b -> a",
        ),
        ([parameter("a", min=0, max=1, when=[("nothing", (0,))])], "unknown parameter 'nothing'"),
        ([parameter("a", min=0, max=1), parameter("a", min=2, max=3)], "given twice"),
        (
            [
                parameter("k", values=[1, 2]),
                parameter("a", min=0, max=1, when=[("k", (1, 2))]),
                parameter("a", min=2, max=3, when=[("k", (2,))]),
            ],
            "given twice",
        ),
    ],
)
def test_faulty_structure_is_refused(parameters, words):
    with pytest.raises(ConfigError, match=words):
        Space(tuple(parameters))


def test_canonical_distinguishes_true_from_one():
    space = Space((parameter("a", values=[True, 1]),))
    assert space.canonical({"a": True}) != space.canonical({"a": 1})


def test_value_rule_ignores_inactive_parameters():
    space = Space(NETWORKS.parameters, (ValueRule((("heads", (1,)),)),))
    assert space.forbidden({"network": "mlp", "learning_rate": 1e-3}) is None
