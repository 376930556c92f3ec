"""Learnt places in the space of a study: taken as they are, moved inside, or skipped."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from hpo.cli import main
from hpo.errors import StudyError
from hpo.search.samplers.proposal_queue import Proposer
from hpo.search.samplers.registry import PriorTrial, make_sampler
from hpo.spaces.space import Space
from hpo.studies import portfolio
from hpo.studies.check import ProgramCost, check
from hpo.studies.execution_spec import Budget
from hpo.studies.init_file import init_text
from hpo.studies.load import loads
from hpo.studies.portfolio import (
    FORECAST,
    forecast_of,
    placement_words,
    places_of,
    read_portfolio,
    tries_only_given,
)
from hpo.studies.resolved import resolved, resolved_yaml
from hpo.views.commands import init_check_run

SPACE = """
  learning_rate: {min: 1e-4, max: 3e-2, distribution: log_uniform}
  gamma: {min: 0.9, max: 0.9999, distribution: one_minus_log}
  gae_lambda: {min: 0.8, max: 1.0, distribution: uniform}
  clip_eps: {min: 0.05, max: 0.5, distribution: log_uniform}
  ent_coef: {min: 1e-4, max: 0.1, distribution: log_uniform, zero: 0.2}
  update_epochs: {min: 1, max: 8, distribution: log_int_uniform}
  normalise_observations: {values: [false, true]}
"""


def study(space=SPACE, search="{method: random, portfolio: 8}", more=""):
    head = "env: CartPole-v1\nenv_steps: 100k\nbudget: {trials: 20}"
    return loads(f"{head}\nsearch: {search}\nspace:{space}{more}")


def test_full_space_takes_all_portfolio_configurations_unchanged():
    found = places_of(study())
    assert [placed.params for placed in found.used] == [*map(dict, read_portfolio().places)]
    assert not any(placed.moved for placed in found.used)
    assert (found.repeated, found.forbidden) == ((), ())


def test_first_trials_are_default_enqueued_and_portfolio_in_order():
    given = study(search="{method: tpe, portfolio: 3}", more="\nenqueue: [{gamma: 0.95}]")
    proposer = Proposer(given, make_sampler(given))
    found = proposer.propose(0, range(7), []).found
    by = [one.proposed_by for one in found]
    assert by[:5] == ["default", "enqueue", "portfolio", "portfolio", "portfolio"]
    assert set(by[5:]) <= {"tpe", "random"}
    learnt = [one.params for one in found[2:5]]
    assert learnt == [dict(place) for place in read_portfolio().places[:3]]
    # a resumed study, which proposes from the third trial on, gets the same ones
    known = [PriorTrial(one.trial, one.params) for one in found[:3]]
    again = Proposer(given, make_sampler(given)).propose(1, range(3, 5), known).found
    assert [one.params for one in again] == learnt[1:]


def test_portfolio_values_are_clipped_to_nearest_allowed():
    space = """
  learning_rate: {min: 1e-4, max: 1e-3, distribution: log_uniform}
  gamma: {values: [0.9, 0.99, 0.995]}
  update_epochs: {min: 1, max: 4, distribution: int_uniform}
  vf_coef: {min: 0.1, max: 1.0}
"""
    first = places_of(study(space)).used[0]
    # learnt: 0.0046, 0.9997 and 5; nothing was learnt about vf_coef, so its default
    assert first.params == {
        "learning_rate": 1e-3,
        "gamma": 0.995,
        "update_epochs": 4,
        "vf_coef": 0.5,
    }
    assert first.moved == ("learning_rate", "gamma", "update_epochs")


def test_moved_portfolio_configurations_are_inside_the_space():
    spaces = [
        SPACE,
        "\n  learning_rate: {min: 1e-5, max: 2e-4, distribution: log_uniform}",
        "\n  clip_eps: {values: [0.3, 0.2]}",
        "\n  update_epochs: {min: 2, max: 16, distribution: pow2}",
        "\n  gae_lambda: {min: 0.9, max: 1.0, q: 0.05}",
        "\n  normalise_observations: {values: [false]}",
        "\n  network: {values: [mlp, transformer]}"
        "\n  learning_rate: {min: 1e-4, max: 1e-2, when: {network: transformer}}",
    ]
    for space in spaces:
        given = study(space)
        found = places_of(given)
        assert all(given.space.contains(placed.params) for placed in found.used), space
        keys = [given.space.canonical(placed.params) for placed in found.used]
        assert len({*keys, given.space.canonical(given.space.default())}) == len(keys) + 1
        assert len(found.used) + len(found.repeated) + len(found.forbidden) == 8


def test_inactive_hyperparameters_get_no_value():
    space = """
  network: {values: [mlp, transformer]}
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform, when: {network: transformer}}
  gamma: {min: 0.9, max: 0.9999, distribution: one_minus_log}
"""
    for placed in places_of(study(space)).used:
        assert set(placed.params) == {"network", "gamma"}


def test_repeated_and_forbidden_configurations_are_skipped_and_reported():
    coarse = study("\n  normalise_observations: {values: [false, true]}")
    found = places_of(coarse)
    assert [placed.params for placed in found.used] == [{"normalise_observations": True}]
    assert len(found.repeated) == 7
    assert placement_words(coarse) == "1 learnt configuration (7 repeated, skipped)"
    small_clips = study(more='forbid: ["clip_eps < 0.1"]')
    clips = [place["clip_eps"] for place in read_portfolio().places]
    assert places_of(small_clips).forbidden == tuple(
        number for number, clip in enumerate(clips, start=1) if clip < 0.1
    )


def test_skipped_portfolio_configuration_is_replaced_by_next():
    asked = study(search="{portfolio: 3}", more='forbid: ["clip_eps < 0.1"]')
    assert len(places_of(asked).used) == 3


def test_study_without_portfolio_resolves_without_the_key():
    plain = study(search="{method: random}")
    assert "portfolio" not in resolved(plain)["search"]
    asked = resolved(study())["search"]
    assert asked["portfolio"] == 8
    assert loads(resolved_yaml(study())).search == study().search
    assert json.dumps(asked)


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("{method: portfolio}", r"use `search: \{method: random, portfolio: 5\}`"),
        ("{portfolio: 9}", "search.portfolio is 9.*8"),
        ("{driver: ray_tune, portfolio: 2}", "portfolio"),
    ],
)
def test_portfolio_mistakes_suggest_correct_keys(search, words):
    with pytest.raises(StudyError, match=words):
        study(search=search)


def test_portfolio_digest_is_recorded_in_versions():
    from hpo.machine.software import versions_of_study

    given = study()
    assert versions_of_study(given)["portfolio"] == read_portfolio().digest[:12]
    without = replace(given, search=replace(given.search, portfolio=0))
    assert "portfolio" not in versions_of_study(without)


SHORT = "\nseeds: {per_config: 1}\nconfirm: {top_k: 1, choose: 0, report: 4}"


def short(search="{method: tpe, portfolio: 3}", more=SHORT, trials=4):
    text = f"env: CartPole-v1\nenv_steps: 100k\nbudget: {{trials: {trials}}}"
    return loads(f"{text}\nsearch: {search}\nspace:{SPACE}{more}")


def test_forecast_equals_recorded_plan():
    plans = yaml.safe_load(FORECAST.read_text())["plans"]
    plan = next(one for one in plans if (one["portfolio"], one["report"]) == (3, 4))
    found = forecast_of(short())
    assert found is not None
    assert (found.better, found.worse, found.tables) == (plan["better"], plan["worse"], 14)
    assert 0.0 <= found.low < found.better < found.high <= 1.0
    assert found.words.startswith(f"better than the default in {100 * plan['better']:.0f} % [")


@pytest.mark.parametrize(
    "other",
    [
        short(search="{method: tpe}"),
        short(trials=5),  # tpe proposes the fifth
        short(more="\nconfirm: {top_k: 3, choose: 3, report: 16}"),
        short(more="\nconfirm: {top_k: 1, choose: 0, report: 4, default: false}"),
        short(more="\nconfirm: {top_k: 1, choose: 0, report: 2}"),  # no plan has so few
        short(more=""),
        short(more=f"{SHORT}\nmetric: {{name: eval/length_mean, goal: minimize}}"),
        short(more=f"{SHORT}\nearly_terminate: {{type: asha, min: 30k, eta: 4}}"),
    ],
)
def test_other_studies_have_no_forecast(other):
    assert forecast_of(other) is None


def test_forecast_is_of_the_configurations_that_are_tried():
    plans = yaml.safe_load(FORECAST.read_text())["plans"]
    better = {one["portfolio"]: one["better"] for one in plans if one["report"] == 4}
    cut = short(search="{method: tpe, portfolio: 5}", trials=2)
    assert forecast_of(cut).better == better[1]
    assert placement_words(cut) == "1 learnt configuration"
    assert forecast_of(short(search="{method: tpe, portfolio: 5}", trials=1)) is None
    enqueued = f"{SHORT}\nenqueue: [{{gamma: 0.95}}, {{gamma: 0.96}}]"
    assert forecast_of(short("{method: tpe, portfolio: 5}", enqueued, 6)).better == better[3]


def test_budget_of_env_steps_limits_the_trials_that_are_told():
    """A run of 100k has 104,448 env steps; eight runs are reserved for confirm."""
    asked = short()
    run = check(asked).buckets[0][0].chunk_sizes.env_steps
    for trials, words in (
        (1, "Runs 1 trial of"),
        (3, "Runs 3 trials of"),
        (9, "Runs 4 trials of"),
    ):
        total = Budget(4, env_steps=(8 + trials) * run)
        report = check(replace(asked, budget=total))
        text = init_check_run.brief(report, "", "x.yaml")
        assert words in text and not report.mistakes
        assert placement_words(report.study).startswith(f"{min(trials, 4) - 1} learnt")
    rule = short(more=f"{SHORT}\nearly_terminate: {{type: asha, min: 30k, eta: 4}}", trials=90)
    report = check(replace(rule, budget=Budget(90, env_steps=20 * run)))
    assert "Runs up to 90 trials of" in init_check_run.brief(report, "", "x.yaml")


def test_budget_below_a_run_in_whole_chunks_is_a_mistake():
    """Only a part of the default's run would fit."""
    asked = short()
    report = check(replace(asked, budget=Budget(4, env_steps=9 * asked.env_steps)))
    run = report.buckets[0][0].chunk_sizes.env_steps
    assert run > asked.env_steps and f"at least {9 * run}" in report.mistakes[0]


NARROW = "\n  learning_rate: {min: 1e-3, max: 1.2e-3}\n"


def test_skipped_places_leave_trials_to_the_method():
    """Of eight learnt configurations, one is left in a narrow range: tpe proposes four of six."""
    narrow = loads(
        "env: CartPole-v1\nenv_steps: 100k\nbudget: {trials: 6}\n"
        f"search: {{method: tpe, portfolio: 5}}\nspace:{NARROW}{SHORT}"
    )
    assert len(places_of(narrow).used) == 1
    assert not tries_only_given(narrow) and forecast_of(narrow) is None
    report = check(narrow, lambda config: "all", lambda bucket: ProgramCost(lanes=8))
    assert any("tpe acts as random search" in text for text in report.warnings)
    assert "then tpe" in init_check_run.brief(report, "", "x.yaml")


@pytest.mark.parametrize(
    ("space", "more", "why"),
    [
        (
            "{optimiser: {values: [adam, adamw]}}",
            "",
            "set none of the searched hyperparameters: o",
        ),
        ("{learning_rate: {values: [0.5, 0.001]}}", "", "learnt values of learning_rate are out"),
        (
            "{learning_rate: {min: 1e-4, max: 0.01}}",
            "enqueue: [{learning_rate: 0.005}]",
            "the budget leaves no",
        ),
    ],
)
def test_study_that_tries_no_learnt_configuration_says_why(space, more, why):
    asked = loads(
        "env: CartPole-v1\nenv_steps: 100k\nbudget: {trials: 2}\n"
        f"search: {{method: random, portfolio: 3}}\nspace: {space}\n{more}"
    )
    words = placement_words(asked)
    assert words.startswith("0 learnt configurations (") and why in words


def test_programs_of_values_that_no_trial_has_are_not_counted():
    """All learnt configurations have the default optimiser."""
    space = f"{SPACE}  optimiser: {{values: [adam, adamw]}}\n"
    for trials, programs in ((4, 1), (5, 2)):
        asked = study(space, "{method: random, portfolio: 3}")
        asked = replace(asked, budget=replace(asked.budget, trials=trials))
        found = check(asked, lambda config: config["optimiser"])
        assert found.bucket_count == programs


def test_method_proposes_nothing_in_a_space_without_further_configurations():
    """The default and three learnt configurations are all four of the space."""
    finite = "\n  learning_rate: {values: [0.001, 0.005]}\n  update_epochs: {values: [2, 4]}\n"
    asked = loads(
        "env: CartPole-v1\nenv_steps: 100k\nbudget: {trials: 30}\n"
        f"search: {{method: tpe, portfolio: 8}}\nspace:{finite}{SHORT}"
    )
    assert tries_only_given(asked) and forecast_of(asked) is not None
    report = check(asked, lambda config: "all", lambda bucket: ProgramCost(lanes=8))
    words = init_check_run.brief(report, "", "x.yaml")
    assert "Runs 4 trials" in words and "then tpe" not in words
    assert not any("random search" in text or "30 trials" in text for text in report.warnings)


def test_programs_share_the_trials_that_the_space_allows(capsys, tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(
        "env: CartPole-v1\nenv_steps: 100k\nbudget: {trials: 9}\n"
        "search: {method: tpe, portfolio: 2}\nspace: {optimiser: {values: [adam, adamw]}}\n"
    )
    assert main(["check", str(file), "--no-time"]) == 0
    assert "2 programs for 2 trials" in " ".join(capsys.readouterr().out.split())


def test_init_writes_short_study_of_twelve_runs():
    written = loads(init_text("Acrobot-v1"))
    assert forecast_of(written) is not None
    confirm = written.confirm
    assert written.budget.trials + confirm.runs(1) == 12
    assert len(places_of(written).used) == 3


@pytest.mark.parametrize(("trials", "expected"), [("null", None), ("5000", 5_000), ("30", 30)])
def test_a_large_finite_space_counts_as_unlimited(trials, expected, monkeypatch):
    """Counting a million configurations would take `hpo check` most of a minute."""
    monkeypatch.setattr(portfolio, "_MOST_COUNTED", 50)
    values = ", ".join(str(at / 100) for at in range(90, 100))
    study = loads(
        "name: s\nenv: CartPole-v1\nenv_steps: 4096\nspace:\n"
        f"  gamma: {{values: [{values}]}}\n  gae_lambda: {{values: [{values}]}}\n"
        f"budget: {{trials: {trials}, env_steps: 1M}}\n"
    )
    assert portfolio.trial_count(study) == expected


def test_check_enumerates_a_finite_space_once(monkeypatch):
    enumerations = []
    enumerate_grid = Space.grid
    monkeypatch.setattr(
        Space, "grid", lambda *given: enumerations.append(given) or enumerate_grid(*given)
    )
    study = loads(
        "name: s\nenv: CartPole-v1\nenv_steps: 4096\nconfirm: {choose: 0}\n"
        "space:\n  gamma: {values: [0.9, 0.99]}\n  gae_lambda: {values: [0.9, 0.95]}\n"
        "budget: {trials: null, env_steps: 1M}\n"
    )
    assert check(study).expected.trials == 4 and forecast_of(study) is None
    assert sum(bool(space.parameters) for space, _ in enumerations) == 1
