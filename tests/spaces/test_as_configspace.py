import json

import pytest
from ConfigSpace import (
    CategoricalHyperparameter,
    ConfigurationSpace,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    ForbiddenInClause,
    OrdinalHyperparameter,
)
from hypothesis import HealthCheck, assume, given, settings

import hpo.spaces
from helpers import strategies
from hpo.errors import ConfigError
from hpo.knobs import KNOBS
from hpo.spaces.ppo_spaces import ARCHITECTURE, PPO, knob_space
from hpo.spaces.space import Space
from hpo.spaces.via_configspace import (
    as_configspace,
    from_configspace,
    read_configspace,
    write_configspace,
)
from hpo.studies.load import loads


def same(one, other):
    return {repr(p) for p in one.parameters} == {repr(p) for p in other.parameters}


@pytest.mark.parametrize("ending", ["json", "yaml"])
@pytest.mark.parametrize("names", [PPO, ARCHITECTURE])
def test_preset_spaces_round_trip_configspace_files(tmp_path, ending, names):
    space = knob_space(names)
    path = tmp_path / f"space.{ending}"
    write_configspace(as_configspace(space), path)
    assert same(from_configspace(read_configspace(path)), space)


def test_preset_spaces_have_the_core_defaults():
    default = dict(hpo.spaces.ppo().get_default_configuration())
    assert default.pop("ent_coef") == 1e-4  # 0 lies outside of its range and goes along as meta
    assert all(KNOBS[name].default == value for name, value in default.items())
    shapes = dict(hpo.spaces.ppo_architecture().get_default_configuration())
    assert json.loads(shapes["hidden_sizes"]) == list(KNOBS["hidden_sizes"].default)


def test_ppo_space_file_and_function_have_the_same_knobs():
    study = loads("env: CartPole-v1\nenv_steps: 1M\nspace: {file: spaces/ppo.yaml}\n")
    assert set(study.space.names) == set(PPO)


def test_expression_rules_round_trip_configspace_files(tmp_path):
    study = loads("env: CartPole-v1\nenv_steps: 1M\nspace: {file: spaces/ppo.yaml}\n")
    write_configspace(as_configspace(study.space), tmp_path / "space.json")
    back = from_configspace(read_configspace(tmp_path / "space.json"))
    assert back.forbid == study.space.forbid and back.forbid


def test_configspace_yaml_with_forbidden_clauses_is_read(tmp_path):
    theirs = ConfigurationSpace()
    net, layers = CategoricalHyperparameter("n", ["a", "b"]), OrdinalHyperparameter("l", [1, 2, 3])
    theirs.add(net, layers)
    theirs.add(
        ForbiddenAndConjunction(ForbiddenEqualsClause(net, "b"), ForbiddenInClause(layers, [2, 3]))
    )
    theirs.to_yaml(tmp_path / "theirs.yaml")
    write_configspace(theirs, tmp_path / "ours.yaml")
    assert read_configspace(tmp_path / "theirs.yaml") == theirs
    assert ConfigurationSpace.from_yaml(tmp_path / "ours.yaml") == theirs


OLD = """{"name": null, "conditions": [], "forbiddens": [], "json_format_version": 0.4,
 "hyperparameters": [
  {"name": "rate", "type": "uniform_float", "log": false, "lower": 0.0, "upper": 1.0,
   "default": 0.5, "q": 0.25},
  {"name": "width", "type": "uniform_int", "log": false, "lower": 8, "upper": 64, "default": 16,
   "q": 8},
  {"name": "gamma", "type": "uniform_float", "log": true, "lower": 0.1, "upper": 1.0,
   "default": 0.5, "q": null},
  {"name": "act", "type": "categorical", "choices": ["relu", "tanh"], "default": "tanh",
   "probabilities": %s}]}"""


@pytest.mark.filterwarnings("error")
def test_files_of_older_configspaces_keep_their_steps_and_defaults(tmp_path):
    (tmp_path / "old.json").write_text(OLD % "[0.5, 0.5]")
    space = from_configspace(read_configspace(tmp_path / "old.json"))
    found = {one.name: (one.distribution.as_mapping(), one.default) for one in space.parameters}
    assert found["rate"] == ({"min": 0.0, "max": 1.0, "q": 0.25, "distribution": "uniform"}, 0.5)
    assert found["width"] == ({"min": 8, "max": 64, "q": 8, "distribution": "int_uniform"}, 16)
    assert found["gamma"] == ({"min": 0.1, "max": 1.0, "distribution": "log_uniform"}, 0.5)
    assert found["act"] == ({"values": ["relu", "tanh"], "distribution": "categorical"}, "tanh")
    (tmp_path / "old.json").write_text(OLD % "[0.9, 0.1]")
    with pytest.raises(ConfigError, match="'act' has weights; here all values are equally likely"):
        from_configspace(read_configspace(tmp_path / "old.json"))


@pytest.mark.filterwarnings("ignore")  # which a terminal would show
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            '"type": "beta_float", "alpha": 2, "beta": 3, "q": 0.1',
            "'x' has a step .q.; only uniform",
        ),
        ('"type": "uniform_float", "lower": -1e308, "upper": 1e308', "rejects it: overflow"),
    ],
)
def test_ambiguous_configspace_fields_are_refused(tmp_path, fields, reason):
    text = f'{{"hyperparameters": [{{"name": "x", "default": 0.5, "log": false, {fields}}}]}}'
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        from_configspace(read_configspace(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.json", "{", "not valid json"),
        ("x.yaml", "a: !!python/object:os.system {}", "not valid yaml"),
        ("x.json", "{}", "no `hyperparameters`"),
        ("x.json", '{"hyperparameters": [{"type": "what"}]}', "rejects"),
        ("x.pcs", "", "ConfigSpace files end in"),
    ],
)
def test_malformed_configspace_files_are_refused(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_configspace(tmp_path / name)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(strategies.spaces())
def test_any_space_round_trips_through_configspace(space):
    space = Space(space.parameters)
    assume(len(set(space.names)) == len(space.parameters))
    try:
        theirs = as_configspace(space)
    except ConfigError:
        assume(False)
    assert same(from_configspace(theirs), space)


def test_integer_bounds_of_float_parameters_stay_float(tmp_path):
    """As HyperSweeper writes them, and as a space of ours gives them on."""
    path = tmp_path / "space.yaml"
    path.write_text(
        "hyperparameters:\n  ent_coef: {type: uniform_float, lower: 0, upper: 1}\n"
        "  update_epochs: {type: uniform_int, lower: 1, upper: 4}\n"
    )
    kinds = [p.distribution.kind for p in from_configspace(read_configspace(path)).parameters]
    assert kinds == ["uniform", "int_uniform"]
    study = loads("env: CartPole-v1\nenv_steps: 1M\nspace: {ent_coef: {min: 0, max: 1}}\n")
    theirs = as_configspace(study.space)["ent_coef"]
    assert type(theirs).__name__ == "UniformFloatHyperparameter"
