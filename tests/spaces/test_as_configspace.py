import importlib.util
import json
from pathlib import Path

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
from hpo.errors import ConfigError
from hpo.knobs import KNOBS
from hpo.spaces.as_configspace import as_configspace
from hpo.spaces.configspace_files import read_configspace, write_configspace
from hpo.spaces.from_configspace import from_configspace
from hpo.spaces.of_knobs import ARCHITECTURE, PPO, knob_space
from hpo.spaces.space import Space
from hpo.studies.load import loads

_spec = importlib.util.spec_from_file_location(
    "value_space_strategies", Path(__file__).with_name("strategies.py")
)
strategies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(strategies)


def same(one, other):
    return {repr(p) for p in one.parameters} == {repr(p) for p in other.parameters}


@pytest.mark.parametrize("ending", ["json", "yaml"])
@pytest.mark.parametrize("names", [PPO, ARCHITECTURE])
def test_ready_spaces_come_back_from_a_file_as_they_were(tmp_path, ending, names):
    space = knob_space(names)
    path = tmp_path / f"space.{ending}"
    write_configspace(as_configspace(space), path)
    assert same(from_configspace(read_configspace(path)), space)


def test_ready_spaces_have_the_defaults_of_the_core():
    default = dict(hpo.spaces.ppo().get_default_configuration())
    assert default.pop("ent_coef") == 1e-4  # 0 lies outside of its range and goes along as meta
    assert all(KNOBS[name].default == value for name, value in default.items())
    shapes = dict(hpo.spaces.ppo_architecture().get_default_configuration())
    assert json.loads(shapes["hidden_sizes"]) == list(KNOBS["hidden_sizes"].default)


def test_the_space_file_and_the_function_name_the_same_knobs():
    study = loads("env: CartPole-v1\nenv_steps: 1M\nspace: {file: spaces/ppo.yaml}\n")
    assert set(study.space.names) == set(PPO)


def test_rules_that_are_expressions_go_along(tmp_path):
    study = loads("env: CartPole-v1\nenv_steps: 1M\nspace: {file: spaces/ppo.yaml}\n")
    write_configspace(as_configspace(study.space), tmp_path / "space.json")
    back = from_configspace(read_configspace(tmp_path / "space.json"))
    assert back.forbid == study.space.forbid and back.forbid


def test_their_own_yaml_of_rules_is_read_though_they_refuse_it(tmp_path):
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


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("x.json", "{", "not valid json"),
        ("x.yaml", "a: !!python/object:os.system {}", "not valid yaml"),
        ("x.json", "{}", "no `hyperparameters`"),
        ("x.json", '{"hyperparameters": [{"type": "what"}]}', "refuses"),
        ("x.pcs", "", "files of ConfigSpace end in"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, text, reason):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_configspace(tmp_path / name)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(strategies.spaces())
def test_any_space_comes_back(space):
    space = Space(space.parameters)
    assume(len(set(space.names)) == len(space.parameters))
    try:
        theirs = as_configspace(space)
    except ConfigError:
        assume(False)
    assert same(from_configspace(theirs), space)
