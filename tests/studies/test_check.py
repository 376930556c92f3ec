import json
import re
from pathlib import Path

import pytest

import hpo
from hpo.errors import ConfigError
from hpo.studies.check import ProgramCost, check
from hpo.studies.init_file import init_text
from hpo.studies.load import load, loads
from hpo.views.commands.init_check_run import brief

BASE = "env: CartPole-v1\nenv_steps: 320k\nfixed: {num_envs: 8, rollout_length: 125}\n"
EARLY = "early_terminate: {type: asha, min: 20k, eta: 4}\n"


def warned(report):
    """Return its warnings but for the one seed of the studies here."""
    return tuple(text for text in report.warnings if not text.startswith("one seed per trial"))


def test_space_of_batched_hyperparameters_needs_one_program():
    report = check(loads(BASE + "space: {gamma: {min: 0.9, max: 0.99}}\n" + EARLY))
    assert report.bucket_count == 1
    assert report.buckets[0][0].chunk_sizes.rungs == (20_000, 80_000)
    assert warned(report) == ()


def test_programs_are_distinct_static_combinations():
    text = BASE + (
        "space:\n"
        "  hidden_sizes: {values: [[64], [32]]}\n"
        "  layer_norm: {values: [true, false]}\n"
        "  activation: {values: [tanh, relu, silu], when: {layer_norm: true}}\n"
        "  gamma: {min: 0.9, max: 0.99}\n"
        "forbid: [{hidden_sizes: [64], activation: silu}]\n"
    )
    # Per width: three activations with layer_norm and one (tanh) without; one is forbidden.
    report = check(loads(text))
    assert report.bucket_count == 2 * (3 + 1) - 1
    assert report.bucket_count_exact


def test_forecast_of_racing_study_is_a_lower_limit():
    """It counts the first seeds; the budget is the upper limit."""
    text = f"{BASE}space: {{gamma: {{min: 0.9, max: 0.99}}}}\nbudget: {{trials: 4%s}}\n"
    text += "seeds: {per_config: 6, racing: {start: 2}}\nconfirm: null\n"
    free = check(loads(text % ""))
    assert free.expected.total == 4 * 2 * free.buckets[0][0].chunk_sizes.env_steps
    assert "total at least 2," in free.text()
    words = " ".join(brief(free, "", "x.yaml").split())
    assert "at least 2.56M env steps (search 2.56M on 2 of 6 seeds)" in words
    bounded = check(loads(text % ", env_steps: 2M"))
    words = " ".join(f"{bounded.text()} {brief(bounded, '', 'x.yaml')}".split())
    assert "total 2,000,000" in words and "at least" not in words


def test_equal_minibatches_share_one_program():
    text = BASE + "space: {minibatch_size: {values: [250, 500]}, layer_norm: {values: [false]}}\n"
    assert check(loads(text)).bucket_count == 2
    assert check(loads(text), bucket_key=lambda config: "all").bucket_count == 1


def test_continuous_static_hyperparameter_compiles_per_trial():
    report = check(loads(BASE + "space: {hidden_gain: {min: 0.5, max: 2.0}}\n"))
    assert not report.bucket_count_exact
    assert "every trial compiles a program" in report.warnings[0]


def test_expected_env_steps_equal_hand_calculation():
    text = (
        BASE
        + EARLY
        + (
            "space: {gamma: {min: 0.9, max: 0.99}}\nseeds: {per_config: 3}\n"
            "confirm: {top_k: 3, choose: 8, report: 16}\nbudget: {trials: 64}\n"
        )
    )
    expected = check(loads(text)).expected
    first, second = expected.passing
    assert 16 <= first < 24 and 4 <= second < 10
    assert expected.full == 64 * 3 * 320_000
    rest = first * 60_000 + second * 240_000
    assert expected.search == round(3 * (64 * 20_000 + rest)) and expected.is_rough
    assert expected.confirm == (3 * 8 + 2 * 16) * 320_000  # the winner's seeds, and the default's
    assert expected.total == expected.search + expected.confirm


def test_env_steps_budget_pays_for_whole_trials_only():
    text = BASE + "space: {gamma: {min: 0.9, max: 0.99}}\nbudget: {env_steps: 1M}\n"
    expected = check(loads(text)).expected
    assert (expected.trials, expected.total) == (3, 960_000)


def test_env_steps_budget_caps_expected_total():
    text = BASE + "space: {gamma: {min: 0.9, max: 0.99}}\nbudget: {env_steps: 1M}\n"
    rungs = "early_terminate: {type: asha, min: 20k, eta: 4}\n"
    assert check(loads(text + rungs)).expected.total == 1_000_000


def test_grid_search_expects_only_grid_points_and_enqueued():
    text = BASE + "space: {layer_norm: {values: [true, false]}}\nsearch: {method: grid}\n"
    assert check(loads(text)).expected.trials == 2  # the default is one of them
    text = BASE + (
        "space: {gamma: {min: 0.9, max: 0.98}}\n"
        "search: {method: grid, options: {points: 2}}\n"
        "enqueue: [{gamma: 0.95}, {gamma: 0.98}]\n"
    )
    assert check(loads(text)).expected.trials == 4  # the default, 0.95, and both ends


def test_random_share_without_learning_method_gives_warning():
    text = BASE + "space: {gamma: {min: 0.9, max: 0.99}}\n"
    report = check(loads(text + "search: {method: sobol, random_share: 0.5}\n"))
    assert warned(report) == (
        "search.random_share has no effect: sobol does not learn from results",
    )
    assert warned(check(loads(text + "search: {method: tpe, random_share: 0.5}\n"))) == ()


def test_forbid_rules_that_always_or_never_apply_give_warning():
    text = BASE + (
        "space: {gamma: {min: 0.9, max: 0.99, default: 0.9}}\n"
        "forbid: ['gamma < 0.5', 'gamma > 0.9']\n"
    )
    report = check(loads(text))
    assert report.rejected_share > 0.99
    assert any("rejected none of" in warning for warning in report.warnings)
    assert any("rejected all" in warning for warning in report.warnings)


@pytest.mark.parametrize("name", ["ent_coef", "env.force_mag"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "int_uniform",
            "only whole numbers; for real numbers, use distribution: uni",
        ),
        (
            "log_int_uniform",
            "only whole numbers; for real numbers, use distribution: l",
        ),
        (
            "pow2",
            "only powers of two; for real numbers, use distribution: log_uniform",
        ),
    ],
)
def test_integer_values_of_real_hyperparameter_give_warning(name, kind, words):
    text = BASE + f"space: {{{name}: {{min: 1, max: 8, distribution: {kind}}}}}\n"
    assert f"{name} takes {words}" in check(loads(text)).warnings[0]


@pytest.mark.parametrize(
    "line",
    [
        "update_epochs: {min: 1, max: 8}",
        "ent_coef: {min: 0, max: 8, q: 2}",
        "ent_coef: {min: 0, max: 8}",
        "ent_coef: {values: [0, 1]}",
    ],
)
def test_integer_distribution_chosen_explicitly_gives_no_warning(line):
    assert warned(check(loads(BASE + f"space: {{{line}}}\n"))) == ()


def test_integer_values_of_custom_environment_key_give_warning(tmp_path):
    (tmp_path / "mine.py").write_text("")
    text = BASE.replace("CartPole-v1", "mine") + "imports: [mine.py]\n"
    study = loads(text + "space: {env.level: {min: 0, max: 3}}\n", source=tmp_path)
    assert study.space.parameters[0].distribution.kind == "int_uniform"
    assert "env.level takes only whole numbers" in check(study).warnings[0]


def test_check_report_uses_given_lanes_and_memory():
    text = BASE + "space: {gamma: {min: 0.9, max: 0.99}}\n"
    report = check(
        loads(text),
        lambda config: f"of {config['num_envs']}",
        lambda key: ProgramCost(int(key.removeprefix("of ")), 2**30, 7, 1),
    )
    assert "8 lanes; 1,024 MiB" in report.text()
    data = json.loads(json.dumps(report.as_data()))
    assert data["programs"][0]["lanes"] == 8
    assert data["programs"][0]["memory_bytes"] == 2**30


FILLED = """
import hpo


class Filled(hpo.Training):
    unit, steps_per_update, learns_after = "env steps", 10, "fill"
    fill = hpo.traced(2000.0, "env steps before the first gradient step", low=0.0)
    rate = hpo.traced(0.1, low=0.0)

    def evaluate(self, state, h, key):
        return {"return": state}
"""


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("env_steps: 2000", "fill is 2,000, but a run has 2,000 env steps, so no update is made"),
        ("env_steps: 500\nfixed: {fill: 600}", "fill is 600, but a run has 500 env steps"),
        ("env_steps: 2010", ""),
        ("env_steps: 500\nfixed: {fill: 499}", ""),
        (
            "env_steps: 500\nspace: {fill: {values: [100, 500]}}",
            "at least the run length of 500 env",
        ),
        ("env_steps: 500\nspace: {fill: {values: [100, 499]}}", ""),
    ],
)
def test_runs_that_end_before_their_first_gradient_step_give_warning(tmp_path, lines, told):
    (tmp_path / "filled.py").write_text(FILLED)
    text = f"algorithm: filled.py:Filled\nbudget: {{trials: 4}}\n{lines}\n"
    if "space" not in lines:
        text += "space: {rate: {min: 0.1, max: 0.9}}\n"
    (tmp_path / "study.yaml").write_text(text)
    found = [
        one for one in check(load(tmp_path / "study.yaml")).warnings if "no update is made" in one
    ]
    assert len(found) == bool(told)
    for one in found:
        assert told in one and one.endswith("no update is made; lower fill or raise env_steps")
    if "values: [100, 500]" in lines:
        share = float(re.search(r"in ([0-9.]+)% of draws", found[0])[1])
        assert 45 < share < 55


def test_learns_after_must_name_a_hyperparameter():
    with pytest.raises(
        ConfigError, match="learns_after is 'fil', which is not one of its hyperparameters"
    ):
        type("Filled", (hpo.Training,), {"learns_after": "fil"})


def test_keep_best_zero_with_snapshots_gives_warning():
    text = BASE + (
        "space: {gamma: {min: 0.9, max: 0.99}}\nseeds: {per_config: 2}\nbudget: {trials: 7}\n"
        "checkpoint: {keep_best: 3, policies_every: 50k, best_of_each: true}\n"
    )
    assert not any("are kept" in text for text in check(loads(text)).warnings)
    none = check(loads(text.replace("keep_best: 3", "keep_best: 0")))
    assert any("checkpoint.keep_best is 0, so none are kept" in text for text in none.warnings)


def test_check_text_lists_programs_rungs_and_expected_steps():
    text = BASE + EARLY + "space: {gamma: {min: 0.9, max: 0.99}}\nforbid: ['gamma < 0.91']\n"
    said = check(loads(text)).text()
    for words in ("1 bucket", "rungs 20,000, 80,000", "16 chunks", "expected", "rejects"):
        assert words in said


def _of_minibatches(fixed="", space="", env="CartPole-v1", rows="num_envs: 4, rollout_length: 2"):
    """Return the warnings about minibatches of a study, of 8 samples unless told."""
    text = f"env: {env}\nenv_steps: 64k\nbudget: {{trials: 4}}\nfixed: {{{rows}{fixed}}}\n"
    text += f"space: {{gamma: {{min: 0.9, max: 0.99}}{space}}}\n"
    return [w for w in check(loads(text)).warnings if "minibatch" in w]


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        (", num_minibatches: 4", None),
        (
            ", num_minibatches: 6",
            "8 samples (num_envs x rollout_length) make fewer minibatches "
            "than num_minibatches: 6 (makes 4; use 4)",
        ),
        (", num_minibatches: 6, normalise_advantages: false", "6 (makes 4; use 4 or 8)"),
        (
            ", num_minibatches: 8",
            "num_minibatches makes minibatches of a single sample, whose advantages are not "
            "normalised: 8 (use 4)",
        ),
        (", minibatch_size: 1", "normalised: 8 (use 4)"),
        (", num_minibatches: 8, normalise_advantages: false", None),
        (", num_minibatches: 8, network: gru", None),
    ],
)
def test_wrong_number_of_minibatches_gives_warning(fixed, words):
    if "gru" in fixed:
        fixed = fixed.replace("num_minibatches: 8", "num_minibatches: 4")
    found = _of_minibatches(fixed)
    assert len(found) == (words is not None) and (words or "") in "".join(found)


def test_last_minibatch_of_one_sample_gives_warning():
    rows = "num_envs: 5, rollout_length: 5"
    (found,) = _of_minibatches(", num_minibatches: 7", rows=rows)  # six of 4, and one of 1
    assert "minibatches of a single sample" in found
    assert found.endswith("normalised: 7 (use 5)")
    assert _of_minibatches(", num_minibatches: 5", rows=rows) == []
    off = ", num_minibatches: 7, normalise_advantages: false"
    assert _of_minibatches(off, rows=rows) == []


@pytest.mark.parametrize(
    "how",
    [
        "network: lstm",
        "network: gru",
        "rho_clip: 1.0, c_clip: 1.0",
        "priority_alpha: 0.5, priority_over: segments",
    ],
)
def test_minibatches_of_whole_segments_are_counted_in_segments(how):
    rows = "num_envs: 8, rollout_length: 32"
    (found,) = _of_minibatches(f", num_minibatches: 6, {how}", rows=rows)
    assert "8 whole segments, one per environment, make" in found
    assert "6 (makes 4; use 4 or 8)" in found
    assert _of_minibatches(f", num_minibatches: 8, {how}", rows=rows) == []
    assert _of_minibatches(", num_minibatches: 6", rows=rows) == []


def test_minibatch_warning_lists_only_wrong_values():
    found = _of_minibatches(space=", num_minibatches: {values: [2, 4, 6, 8]}")
    assert len(found) == 2 and ": 6 (makes 4; use 4)" in found[0]
    assert found[1].endswith("are not normalised: 8 (use 4)")
    found = _of_minibatches(
        space=", num_minibatches: {values: [4, 6]}, rollout_length: {values: [2, 3]}",
        rows="num_envs: 4",
    )
    assert len(found) == 1 and "8 samples" in found[0]  # 12 samples are cut into 4 or 6


def test_multi_agent_minibatches_give_no_warning():
    fixed = ", num_minibatches: 8"
    assert _of_minibatches(fixed, env="{id: navigators, agents: 3}") == []


def test_long_lists_of_minibatches_are_cut_short():
    space = ", num_minibatches: {min: 1, max: 64, distribution: int_uniform}"
    fewer, rest = _of_minibatches(space=space, rows="num_envs: 8, rollout_length: 128")
    assert fewer.count("makes") == 4 and fewer.endswith("more")
    assert rest.endswith("not normalised: 34 (use 32 or 35)")  # 33 of 31 samples, and one


SPACE = "space: {learning_rate: {min: 1e-4, max: 1e-2}}\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "one seed per trial and no confirm"),
        ("seeds: {per_config: 2}\n", ""),
        ("confirm: {report: 3}\n", "confirm.report is 3: a verdict about the winner needs"),
        ("confirm: {report: 6}\n", ""),
        ("budget: {trials: 1}\n", ""),
    ],
)
def test_too_few_test_seeds_give_warning(text, told):
    found = [w for w in check(loads(BASE + SPACE + text)).warnings if "seed" in w]
    assert (len(found) == 1 and found[0].startswith(told)) if told else found == []


@pytest.mark.parametrize(
    ("lanes", "text", "blind"),
    [
        (24, "", True),
        (4, "", True),
        (3, "", False),
        (24, "search: {method: random}\n", False),
        (24, "search: {options: {n_startup_trials: 2}}\n", True),
        (8, "search: {options: {n_startup_trials: 2}}\n", False),
        (24, "search: {warm_start: {study: earlier}}\n", False),
        (24, "early_terminate: {type: pbt, every: 20k}\n", False),
    ],
)
def test_too_few_trials_for_tpe_give_warning(lanes, text, blind):
    study = loads(BASE + SPACE + "seeds: {per_config: 2}\nbudget: {trials: 12}\n" + text)
    warnings = check(study, cost_of=lambda bucket: ProgramCost(lanes, 1, 1, 1)).warnings
    found = [text for text in warnings if text.startswith("tpe acts as random search: ")]
    trials = 3 * ((2 if "startup" in text else 10) + min(8, lanes) // 2)
    fewer = "population.lanes to 8 and " if lanes > 8 else ""
    words = f"the budget is 12 trials; set {fewer}budget.trials to {trials} or more"
    assert len(found) == blind and all(warning.endswith(words) for warning in found)


def test_warning_suggests_more_trials_only_if_needed():
    text = "seeds: {per_config: 2}\nbudget: {trials: 30}\nsearch: {options: {n_startup_trials: 2}}"
    warnings = check(
        loads(BASE + SPACE + text), cost_of=lambda bucket: ProgramCost(64, 1, 1, 1)
    ).warnings
    (found,) = [one for one in warnings if one.startswith("tpe acts as random search: 34 trials")]
    assert found.endswith("the budget is 30 trials; set population.lanes to 8")


@pytest.mark.parametrize(
    ("trials", "seeds", "choose", "warned"),
    [(48, 1, 0, True), (12, 1, 0, True), (4, 1, 0, False), (48, 2, 0, False), (48, 1, 3, False)],
)
def test_many_trials_on_one_seed_need_selection_seeds(trials, seeds, choose, warned):
    text = f"seeds: {{per_config: {seeds}}}\nbudget: {{trials: {trials}}}\n"
    text += f"confirm: {{top_k: 1, choose: {choose}, report: 4}}\n"
    warnings = check(
        loads(BASE + SPACE + text), cost_of=lambda bucket: ProgramCost(2, 1, 1, 1)
    ).warnings
    found = [one for one in warnings if "mostly luck; set confirm.top_k" in one]
    assert len(found) == warned


ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/start.md", "docs/tune.md"]


@pytest.mark.parametrize("place", [*PAGES, "studies/first.yaml", "hpo init Acrobot-v1"])
def test_starter_studies_give_no_warnings(place):
    if place in PAGES:
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / place).read_text(), re.S)
        study = next(loads(f"{text}\n") for text in blocks if "confirm:" in text)
    elif place.startswith("hpo init"):
        study = loads(init_text("Acrobot-v1"))
    else:
        study = load(ROOT / place)
    asked = study.population.lanes or study.budget.trials * study.seeds.first
    assert check(study, cost_of=lambda bucket: ProgramCost(asked, 1, 1, 1)).warnings == ()
    plan = (study.seeds.per_config, study.confirm.top_k, study.confirm.choose)
    assert plan == ((1, 3, 3) if place in PAGES else (1, 1, 0))


@pytest.mark.parametrize(
    ("rule", "more", "unfit"),
    [
        (
            "asha",
            "objectives: [{name: eval/return_mean}, {name: env_steps, goal: minimize}]",
            "several objectives",
        ),
        ("asha", "constraints: [{metric: eval/length_mean, max: 3}]", "constraints"),
        ("plateau", "", "plateau"),
        ("asha", "", ""),
    ],
)
def test_useless_audit_gives_warning(rule, more, unfit):
    text = f"name: s\nenv: CartPole-v1\nenv_steps: 100k\nbudget: {{trials: 4}}\n{more}\n"
    text += "space: {gamma: {min: 0.9, max: 0.99, distribution: uniform}}\n"
    text += f"early_terminate: {{type: {rule}, min: 10k, audit: 0.1}}\n"
    told = [one for one in check(loads(text)).warnings if "audit" in one]
    words = f"early_terminate.audit has no benefit with {unfit}; remove audit"
    assert told == ([words] if unfit else [])
