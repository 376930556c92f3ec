import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from helpers import strategies
from hpo.errors import ConfigError
from hpo.spaces import Condition, Parameter, Space, ValueRule, make_distribution, parse_rule
from hpo.spaces.via_configspace import from_configspace, from_configuration, to_configspace

ConfigSpace = pytest.importorskip("ConfigSpace")


def parameter(name, when=(), **fields):
    distribution = make_distribution(fields)
    return Parameter(
        name, distribution, distribution.middle(), tuple(Condition(k, v) for k, v in when)
    )


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(strategies.spaces())
def test_configspace_samples_are_contained_with_same_active_parameters(space):
    space = Space(space.parameters)
    try:
        theirs = to_configspace(space, seed=0)
    except ConfigError as error:
        assert "real-valued" in str(error)
        assume(False)
    for configuration in theirs.sample_configuration(4):
        params = from_configuration(space, dict(configuration))
        assert space.why_not(params) == []
        assert len(dict(configuration)) == len(params)
    default = from_configuration(space, dict(theirs.get_default_configuration()))
    for name, value in space.default().items():
        same = default[name] == value
        assert same or default[name] == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_value_rules_are_exported_to_configspace():
    parameters = (parameter("a", values=["x", "y"]), parameter("b", min=1, max=3))
    parameters = (parameters[0], Parameter("b", parameters[1].distribution, 3))
    rule = ValueRule((("a", ("x",)), ("b", (1, 2)), ("c", (5,))))
    space = Space(parameters, (rule,), {"c": 5})
    drawn = [dict(c) for c in to_configspace(space, seed=0).sample_configuration(100)]
    params = [from_configuration(space, configuration) for configuration in drawn]
    assert all(space.contains(one) for one in params)
    assert any(one == {"a": "x", "b": 3} for one in params)
    free = Space(parameters, (rule,), {"c": 6})
    drawn = [dict(c) for c in to_configspace(free, seed=0).sample_configuration(100)]
    assert {"a": "x", "b": 1} in [from_configuration(free, one) for one in drawn]


def test_configspace_is_imported():
    theirs = ConfigSpace.ConfigurationSpace()
    network = ConfigSpace.Categorical("network", ["mlp", "gnn"], default="gnn")
    layers = ConfigSpace.Integer("layers", (1, 8), log=True)
    rate = ConfigSpace.Float("rate", (1e-5, 1e-1), log=True, default=1e-3)
    low = ConfigSpace.Float("low", (0.0, 1.0), default=0.9)
    high = ConfigSpace.Float("high", (0.0, 1.0), default=0.95)
    size = ConfigSpace.OrdinalHyperparameter("size", [16, 32, 64])
    theirs.add(network, layers, rate, low, high, size, ConfigSpace.Constant("k", 3))
    theirs.add(ConfigSpace.EqualsCondition(layers, network, "gnn"))
    theirs.add(ConfigSpace.ForbiddenLessThanRelation(high, low))
    theirs.add(
        ConfigSpace.ForbiddenAndConjunction(
            ConfigSpace.ForbiddenEqualsClause(network, "mlp"),
            ConfigSpace.ForbiddenInClause(size, [16, 64]),
        )
    )
    space = from_configspace(theirs)
    kinds = {p.name: p.distribution.kind for p in space.parameters}
    assert kinds == {
        "network": "categorical",
        "layers": "log_int_uniform",
        "rate": "log_uniform",
        "low": "uniform",
        "high": "uniform",
        "size": "ordinal",
        "k": "categorical",
    }
    assert space.default()["network"] == "gnn"
    assert set(space.forbid) == {
        parse_rule("high < low"),
        ValueRule((("network", ("mlp",)), ("size", (16, 64)))),
    }
    rng = np.random.default_rng(0)
    for _ in range(50):
        params = space.sample(rng)
        assert ("layers" in params) == (params["network"] == "gnn")
        ConfigSpace.Configuration(theirs, values=params).check_valid_configuration()


def test_unsupported_configspace_hyperparameter_is_refused():
    theirs = ConfigSpace.ConfigurationSpace()
    theirs.add(ConfigSpace.BetaFloatHyperparameter("odd", alpha=2, beta=3, lower=0, upper=1))
    with pytest.raises(ConfigError, match="'odd' is a BetaFloatHyperparameter"):
        from_configspace(theirs)
