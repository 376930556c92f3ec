import dataclasses

import pytest

from helpers import search_samples as samples
from hpo.errors import ConfigError
from hpo.search.samplers.proposal_queue import Proposer
from hpo.search.samplers.registry import PriorTrial, draws_ahead, make_sampler
from hpo.spaces import Space, parse_rule
from hpo.studies.search_methods import METHODS, Method
from hpo.studies.search_spec import SearchSpec


def proposer(study):
    return Proposer(study, make_sampler(study))


def as_past(proposals):
    return [
        PriorTrial(p.trial, p.params, p.attributes, proposed_by=p.proposed_by) for p in proposals
    ]


def test_default_is_proposed_first_then_enqueued_trials():
    study = samples.study(enqueue=({"learning_rate": 1}, {"gamma": 0.95}))
    found = proposer(study).propose(0, range(4), []).found
    assert [p.proposed_by for p in found] == ["default", "enqueue", "enqueue", "random"]
    assert found[0].params == {"learning_rate": 3e-4, "gamma": 0.99}
    assert found[1].params == {"learning_rate": 1.0, "gamma": 0.99}
    assert isinstance(found[1].params["learning_rate"], float)
    assert found[2].params == {"learning_rate": 3e-4, "gamma": 0.95}


@pytest.mark.parametrize("entry", [{"learning_rate": 2.0}, {"learning_rat": 0.1}])
def test_enqueued_trial_outside_space_is_refused(entry):
    with pytest.raises(ConfigError, match="learning_rat"):
        proposer(samples.study(enqueue=(entry,)))


def test_random_share_is_fixed_by_trial_number():
    study = samples.study(method="tpe")
    study = dataclasses.replace(study, search=dataclasses.replace(study.search, random_share=0.4))
    first = proposer(study).propose(0, range(200), []).found
    sources = [p.proposed_by for p in first[1:]]
    assert 50 < sources.count("random") < 110 and sources.count("tpe") > 80
    halves = proposer(study).propose(0, range(100), []).found
    halves += proposer(study).propose(1, range(100, 200), as_past(halves)).found
    assert [p.proposed_by for p in halves[1:]] == sources


def test_random_share_is_ignored_by_non_learning_methods():
    found = proposer(samples.study(method="sobol")).propose(0, range(50), []).found
    assert {p.proposed_by for p in found} == {"default", "sobol"}


def with_rule(text, **changes):
    rule = parse_rule(text)
    return samples.study(space=dataclasses.replace(samples.REAL, forbid=(rule,)), **changes)


@pytest.mark.parametrize("method", ["random", "sobol", "tpe"])
def test_forbidden_configurations_are_drawn_again_and_counted(method):
    study = with_rule("learning_rate > 0.001", method=method)
    result = proposer(study).propose(0, range(40), [])
    assert len(result.found) == 40
    assert all(p.params["learning_rate"] <= 0.001 for p in result.found)
    assert result.draws == result.refused + 39
    assert result.refused > 10


def test_sampler_gives_up_after_only_forbidden_draws():
    # Sobol hits a rule that leaves 1 of 10,000 about never; chance does not either: nothing left.
    study = with_rule("learning_rate > 0.0000101", method="sobol")
    result = proposer(study).propose(0, range(3), [])
    assert [p.proposed_by for p in result.found] == ["default"]
    assert result.refused == result.draws == 200


@pytest.mark.parametrize("method", ["random", "tpe", "grid", "sobol"])
def test_finite_space_is_tried_exactly_once(method):
    study = samples.study(space=samples.FINITE, method=method)
    result = proposer(study).propose(0, range(40), [])
    keys = {study.space.canonical(p.params) for p in result.found}
    assert len(result.found) == len(keys) == 12
    assert result.found[0].proposed_by == "default"


def test_finite_space_ends_across_batches():
    study = samples.study(space=samples.FINITE, method="tpe")
    found = proposer(study).propose(0, range(7), []).found
    found += proposer(study).propose(1, range(7, 20), as_past(found)).found
    assert len(found) == 12
    assert proposer(study).propose(2, range(12, 14), as_past(found)).found == []


def test_an_empty_space_has_one_configuration():
    study = samples.study(space=Space(), method="random")
    assert [p.params for p in proposer(study).propose(0, range(5), []).found] == [{}]


def test_the_grid_leaves_out_the_default_already_tried():
    study = samples.study(space=samples.FINITE, method="grid")
    found = proposer(study).propose(0, range(20), []).found
    rest = [dict(params) for params in study.space.grid(5)]
    assert [p.params for p in found[1:]] == [
        {name: list(v) if isinstance(v, tuple) else v for name, v in params.items()}
        for params in rest
        if study.space.canonical(params) != study.space.canonical(found[0].params)
    ]


def test_params_are_plain_json():
    study = samples.study(space=samples.FINITE)
    for proposal in proposer(study).propose(0, range(12), []).found:
        assert isinstance(proposal.params["hidden_sizes"], list)


def test_only_slow_methods_propose_ahead_by_default(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", Method("mine", lambda spec: None))

    def ahead(method, how):
        study = samples.study(method=method)
        return draws_ahead(dataclasses.replace(study, search=SearchSpec(method, ahead=how)))

    assert [ahead(method, "auto") for method in ("random", "cmaes", "tpe", "mine")] == [
        False,
        False,
        True,
        True,
    ]
    assert ahead("random", "always") and not ahead("tpe", "never")
