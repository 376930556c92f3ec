import math
import subprocess
import sys
from dataclasses import fields

import pytest

from hpo.environments import registry
from hpo.errors import ConfigError, MissingExtraError, StudyError
from hpo.knobs import KNOBS
from hpo.search.checks import check_runnable
from hpo.spaces import Condition
from hpo.studies.cross_section_checks import contradictions
from hpo.studies.load import load, loads, recorded
from hpo.studies.resolved import resolved_yaml, study_hash
from hpo.studies.spec import Study
from hpo.studies.study_keys import TOP

BASE = """\
env: CartPole-v1
env_steps: 200k
space:
  learning_rate: {min: 1e-5, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.9, max: 0.999, distribution: one_minus_log}
"""

DESIGN = """\
name: cartpole-asha
seed: 3
env: {id: CartPole-v1, gravity: 9.9, max_steps_in_episode: 400}
env_steps: 800k
fixed: {num_envs: 8, rollout_length: 128, hidden_sizes: [64, 64], target_kl: off}
space:
  learning_rate: {min: 1e-5, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.9, max: 0.9999, distribution: one_minus_log}
  ent_coef: {min: 1e-4, max: 0.1, distribution: log_uniform, zero: 0.2}
  shared_encoder: {values: [false, true]}
  vf_coef: {min: 0.1, max: 1.0, when: {shared_encoder: true}}
  value_clip_eps: {values: [off, same, 0.2]}
  env.length: {min: 0.4, max: 0.6}
forbid: [{shared_encoder: true, vf_coef: 1.0}, "gamma < gae_lambda - 0.15"]
enqueue: [{learning_rate: 3e-3}, {shared_encoder: true, vf_coef: 0.5}]
metric: {name: eval/return_mean, goal: maximize, aggregate: mean}
evaluation: {every: 100k, episodes: 20, steps: null, greedy: true}
eval_env: {length: 0.5}
search: {method: tpe, random_share: 0.2, options: {n_startup_trials: 5}}
early_terminate: {type: asha, min: 50k, eta: 4}
seeds: {per_config: 4}
confirm: {top_k: 3, choose: 8, report: 16}
population: {lanes: auto, device: cpu}
budget: {trials: 256, env_steps: 250M, wall: 2h, max_failures: 5}
executor: {type: local}
checkpoint: {keep_best: 2}
loggers: [{type: csv}, console]
"""


def mistakes(text, **rest):
    with pytest.raises(StudyError) as caught:
        loads(text, "s.yaml", **rest)
    return [(mistake.line, mistake.text) for mistake in caught.value.mistakes]


def only(text, **rest):
    found = mistakes(text, **rest)
    assert len(found) == 1, found
    return found[0]


def test_a_full_study_is_read():
    study = loads(DESIGN)
    assert study.name == "cartpole-asha"
    assert study.seed == 3
    assert study.env.values == {"gravity": 9.9, "max_steps_in_episode": 400}
    assert study.env_steps == 800_000
    assert study.fixed["hidden_sizes"] == (64, 64)
    assert study.fixed["target_kl"] is None
    assert study.space.names[:3] == ("learning_rate", "gamma", "ent_coef")
    by_name = {parameter.name: parameter for parameter in study.space.parameters}
    assert by_name["vf_coef"].when == (Condition("shared_encoder", (True,)),)
    assert by_name["value_clip_eps"].distribution.values == (None, "same", 0.2)
    assert by_name["learning_rate"].default == KNOBS["learning_rate"].default
    assert by_name["ent_coef"].default == 0.0
    assert by_name["env.length"].default == 0.5
    assert study.space.constants["gae_lambda"] == 0.95
    assert study.enqueue[1] == {"shared_encoder": True, "vf_coef": 0.5}
    assert study.evaluation.every == 100_000
    assert study.evaluation.env == {"length": 0.5}
    assert study.search.options["n_startup_trials"] == 5
    assert study.search.options["n_ei_candidates"] == 24
    assert study.early_terminate.min == 50_000
    assert study.population.lanes is None
    assert study.budget.wall_seconds == 7200.0
    assert [logger.type for logger in study.loggers] == ["csv", "console"]


def test_minimal_study_needs_two_keys(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text("env: CartPole-v1\nenv_steps: 10k\n")
    study = load(path)
    assert (study.name, study.source) == ("tiny", str(tmp_path))
    assert study.space.names == ()
    assert study.confirm is None
    assert study.early_terminate is None


def test_every_mistake_is_reported_at_its_line():
    text = BASE + (
        "fixed: {num_envs: 0, gama: 1}\n"
        "search: {method: tpee}\n"
        "budget: {trials: 3, walls: 1}\n"
        "loggers: [cvs]\n"
    )
    found = mistakes(text)
    assert [line for line, _ in found] == [6, 6, 7, 8, 9]
    words = [text for _, text in found]
    assert "num_envs is 0" in words[0]
    assert "did you mean 'gamma'" in words[1]
    assert "unknown method 'tpee'; did you mean 'tpe'? Known: random, grid" in words[2]
    assert "unknown key 'walls' in budget; did you mean 'wall'" in words[3]
    assert "did you mean 'csv'" in words[4]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'budget: {trials: "16"}',
            "budget.trials is '16'; use 16, without quotes; allowed: a whole",
        ),
        ('seeds: {per_config: "3"}', "is '3'; use 3, without quotes; allowed: a whole number"),
        (
            'fixed: {clip_eps: "0.1"}',
            "clip_eps is '0.1'; use 0.1, without quotes; allowed: a number",
        ),
        ("budget: {trials: many}", "budget.trials is 'many'; allowed: a whole number"),
    ],
)
def test_number_in_quotes_is_refused_with_the_number_to_type(text, told):
    assert told in only(BASE + text)[1]


def test_mistake_in_block_reports_line_of_the_key():
    text = (
        "env: CartPole-v1\nenv_steps: 1k\nspace:\n  gamma:\n    min: 0.9\n    max: 1.5\n"
        "    distribution: uniform\n"
    )
    line, words = only(text)
    assert line == 6
    assert "gamma: max 1.5 is not legal" in words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("update_epochs", "{min: 0.5, max: 4.5}", "the values must be integers"),
        ("activation", "{min: 1, max: 2}", "one of a few words; list the `values`"),
        ("hidden_sizes", "{values: [[64], [64, 0]]}", "allowed: a list of integers"),
        ("clip_eps", "{min: 0, max: 0.4, distribution: uniform}", "min 0.0 is not legal"),
        ("clip_eps", "{min: 0.1, max: 0.4, zero: 0.1}", "zero: 0.1 draws 0 in 10% of trials, but"),
        ("gae_lambda", "{mu: 0.9, sigma: 0.1}", "1.3 is not legal"),
        ("optimizer", "{values: [adam, addam]}", "'addam'; did you mean 'adam'?"),
        ("n_steps", "{values: [64]}", "here it is called 'rollout_length'"),
        ("env.lenght", "{min: 0.1, max: 1.0}", "did you mean 'env.length'"),
        ("length", "{min: 0.1, max: 1.0}", "did you mean 'env.length'"),
        ("env.max_steps_in_episode", "{min: 1, max: 9}", "list the `values`"),
        (
            "clip_eps",
            "{min: 0.1, max: 0.4, when: {vf_coef: 3, netwrk: mlp}}",
            "unknown hyperparameter",
        ),
        ("clip_eps", "{min: 0.1, max: 0.4, when: {gamma: 0.2}}", "not between"),
        ("clip_eps", "{min: 0.1, max: 0.4, when: {activation: relu}}", "never active"),
        ("value_clip_eps", "{values: [off, null]}", "twice among the values"),
        ("clip_eps", "[0.1, 0.2]", "clip_eps is a list; use {values: [0.1, 0.2]}"),
        ("hidden_sizes", "[[64, 64], [32]]", "use {values: [[64, 64], [32]]}"),
        ("activation", "[relu, tanh]", "use {values: [relu, tanh]}"),
        ("clip_eps", "[]", "use {values: [...]}"),
        (
            "clip_eps",
            "{min: 1e2, max: 3e-1}",
            "above max 0.3; did you mean min: 1e-2? Otherwise swap",
        ),
        ("clip_eps", "{min: 0.4, max: 0.3}", "min 0.4 is above max 0.3; swap them"),
        (
            "clip_eps",
            '{min: "1e-2", max: 0.3}',
            "min is '1e-2'; use 1e-2, without quotes; allowed: a",
        ),
    ],
)
def test_distribution_must_fit_its_hyperparameter(name, value, words):
    text = BASE + f"  {name}: {value}\n"
    found = mistakes(text)
    assert found[0][0] == 6
    assert any(words in text for _, text in found), found


def _whole_bounds(knob):
    """Return two whole numbers that a knob allows, None if there are none."""
    low = 0 if knob.low == -math.inf else math.ceil(knob.low)
    low += knob.low_open and low == knob.low
    high = low + 1
    return None if high > knob.high else (low, high)


REAL = [(name, _whole_bounds(knob)) for name, knob in KNOBS.items() if knob.type == "float"]


@pytest.mark.parametrize(("name", "bounds"), [pair for pair in REAL if pair[1]])
def test_integer_bounds_of_real_hyperparameter_mean_uniform(name, bounds):
    text = BASE.split("space:")[0] + (
        f"space: {{{name}: {{min: {bounds[0]}, max: {bounds[1]}}}}}\nbudget: {{trials: 4}}\n"
    )
    (parameter,) = recorded(text).space.parameters
    assert parameter.distribution.kind == "uniform"
    middle = parameter.distribution.outward(parameter.distribution.axis.at(0.3))
    assert bounds[0] < middle < bounds[1] and isinstance(parameter.default, float)


def test_most_real_hyperparameters_have_integer_bounds():
    assert {"ent_coef", "gae_lambda", "log_std_init"} <= {name for name, bounds in REAL if bounds}
    assert sum(bounds is not None for _, bounds in REAL) > 40


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("ent_coef: {min: 0, max: 1, zero: 0.2}", "uniform"),
        ("ent_coef: {min: 0, max: 4, q: 2}", "int_uniform"),
        ("ent_coef: {min: 0, max: 1, q: 0.25}", "uniform"),
        ("ent_coef: {min: 0, max: 1, distribution: int_uniform}", "int_uniform"),
        ("ent_coef: {values: [0, 1]}", "categorical"),
        ("update_epochs: {min: 1, max: 8}", "int_uniform"),
        ("env.force_mag: {min: 5, max: 15}", "uniform"),
    ],
)
def test_real_hyperparameter_is_uniform_unless_stated_otherwise(line, kind):
    study = loads(f"env: CartPole-v1\nenv_steps: 8k\nspace: {{{line}}}\nbudget: {{trials: 4}}\n")
    assert study.space.parameters[0].distribution.kind == kind


def test_american_spelling_is_accepted():
    study = loads(BASE + "fixed: {normalize_observations: true, optimizer: adam}\n")
    assert study.fixed == {"normalise_observations": True, "optimiser": "adam"}


def test_hyperparameter_may_have_one_distribution_per_condition():
    text = BASE.replace("  learning_rate: {min: 1e-5, max: 1e-2, distribution: log_uniform}\n", "")
    study = loads(
        text
        + "  optimiser: {values: [adam, adamw]}\n"
        + "  learning_rate:\n"
        + "    - {min: 1e-5, max: 1e-3, when: {optimiser: adam}}\n"
        + "    - {min: 1e-3, max: 1e-2, when: {optimiser: adamw}}\n"
    )
    assert [key for key, _ in study.space.keyed if "rate" in key] == [
        "learning_rate#0",
        "learning_rate#1",
    ]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("metric: {aggregate: iqm}\n", "iqm needs 8 values per trial, but seeds.per_config"),
        (
            "metric: {aggregate: iqm}\nseeds: {per_config: 8, tolerate: 1}\n",
            "seeds.per_config is 8 and 1 seed may diverge",
        ),
        (
            "constraints: [{metric: eval/length_mean, max: 9, aggregate: iqm}]\n"
            "seeds: {per_config: 16, racing: {start: 4}}\n",
            "seeds.racing.start is 4; use mean or median",
        ),
        (
            "search: {method: sobol, warm_start: {study: x}}\n",
            "search.warm_start has no effect with sobol, which does not learn from results",
        ),
        ("seeds: {per_config: 2, tolerate: 2}\n", "below per_config"),
        ("early_terminate: {type: asha, min: 200k}\n", "env steps; set it below"),
        ("evaluation: {every: 1M}\n", "evaluation.every is 1000000"),
        ("budget: {env_steps: 100k}\n", "at least 208896"),
        (
            "confirm: {top_k: 2, choose: 2, report: 2}\nbudget: {env_steps: 1M}\n",
            "after the 1671168 reserved for confirm; allowed: at least 1880064",
        ),
        ("confirm: {top_k: 9}\nbudget: {trials: 8}\n", "but the budget is 8 trials"),
        ("budget: {trials: null}\n", "the study would never end"),
        ("fixed: {weight_decay: 0.1}\n", "optimiser: adamw"),
        ("fixed: {num_envs: 1, rollout_length: 2, num_minibatches: 8}\n", "2 samples"),
        ("forbid: ['gamma > 0.5']\n", "forbids the default configuration (gamma=0.99)"),
        ("enqueue: [{gamma: 0.1}]\n", "enqueue: gamma: 0.1 is not between"),
        ("enqueue: [{vf_coef: 0.1}]\n", "'vf_coef' is not searched"),
    ],
)
def test_incompatible_sections_are_refused(extra, words):
    line, text = only(BASE + extra)
    assert words in text
    assert line >= 6


def test_contradictions_within_the_space_are_found_before_the_run():
    text = BASE + "  weight_decay: {min: 1e-4, max: 0.1}\n  optimiser: {values: [adamw, adam]}\n"
    line, words = only(text)
    assert line == 6
    assert "adamw" in words
    apart = text.replace("max: 0.1}", "max: 0.1, when: {optimiser: adamw}}")
    assert loads(apart).space.names[-1] == "optimiser"
    ruled = text.replace("max: 0.1}", "max: 0.1, zero: 0.2}") + (
        "forbid: ['optimiser == \"adam\" and weight_decay > 0']\n"
    )
    assert loads(ruled).space.default()["weight_decay"] == 0.0


@pytest.mark.parametrize(
    ("override", "check"),
    [
        ("budget.trials=10", lambda s: s.budget.trials == 10),
        ("seeds.per_config=5", lambda s: s.seeds.per_config == 5),
        ("env_steps=1M", lambda s: s.env_steps == 1_000_000),
        ("space.gamma.max=0.95", lambda s: s.space.parameters[1].distribution.max == 0.95),
        ("space.env.length={min: 0.4, max: 0.6}", lambda s: "env.length" in s.space.names),
        ("env.gravity=9.0", lambda s: s.env.values == {"gravity": 9.0}),
        ("fixed.hidden_sizes=[32, 32]", lambda s: s.fixed["hidden_sizes"] == (32, 32)),
        ("fixed={target_kl: off}", lambda s: s.fixed == {"target_kl": None}),
        ("confirm.top_k=2", lambda s: s.confirm.top_k == 2),
        ("metric.goal=minimize", lambda s: s.metric.goal == "minimize"),
    ],
)
def test_overrides_are_equivalent_to_file_content(override, check):
    assert check(loads(BASE, overrides=[override]))


def test_overrides_reach_into_lists():
    text = BASE + "enqueue: [{gamma: 0.95}, {gamma: 0.96}]\n"
    study = loads(text, overrides=["enqueue.1.gamma=0.97"])
    assert [entry["gamma"] for entry in study.enqueue] == [0.95, 0.97]
    assert loads(BASE, overrides=["enqueue.0.gamma=0.97"]).enqueue[0]["gamma"] == 0.97


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("budget.trials", "allowed: key.key=value"),
        ("=3", "allowed: key.key=value"),
        ("budget..trials=3", "allowed: key.key=value"),
        ("budget.trials=[1", "is not valid YAML"),
        ("budget.trails=3", "did you mean 'trials'"),
        ("budget.trials=few", "budget.trials is 'few'"),
        ("space.gama.max=1", "did you mean 'gamma'"),
        ("enqueue.1.gamma=0.9", "'1' is not an index of that list; allowed: 0 to 0"),
        ("update_epochs=1", "it is a knob: use fixed.update_epochs=1"),
        ("hidden_sizes=[32, 32]", "it is a knob: use fixed.hidden_sizes=[32, 32]"),
        ("clip_eps.min=0.1", "it is a knob: use space.clip_eps.min=0.1"),
        ("gamma=0.9", "it is a searched knob: use 'space.gamma={value: 0.9}'"),
    ],
)
def test_invalid_overrides_are_reported(override, words):
    found = mistakes(BASE, overrides=[override])
    assert any(text.startswith("override ") and words in text for _, text in found), found
    assert all(line is None for line, _ in found)


def test_hyperparameter_at_top_level_suggests_section():
    line, words = only(BASE + "clip_eps: 0.2\n")
    assert (line, words) == (6, "unknown key 'clip_eps'; it is a knob: write it under `fixed`")
    assert "write it under `space`" in only(BASE + "clip_eps: [0.1, 0.2]\n")[1]
    assert "write it under `fixed`" in only(BASE + "hidden_sizes: [64, 64]\n")[1]


def test_fixing_searched_hyperparameter_suggests_space_override():
    text = only(BASE, overrides=["fixed.gamma=0.9"])[1]
    assert (
        "both searched and fixed; remove it from `space` or `fixed`, or search only {value: 0.9}"
        in text
    )
    study = loads(BASE, overrides=["space.gamma={value: 0.9}"])
    assert study.space.default()["gamma"] == 0.9


def test_duplicate_enqueued_trials_run_once():
    entries = "{learning_rate: 1e-3}, {gamma: 0.95}, {}, {gamma: 0.95, learning_rate: 1e-3}"
    text = f"enqueue: [{entries}]\n"
    default = loads(BASE).space.default()
    assert default["learning_rate"] == 1e-3
    assert loads(BASE + text).enqueue == ({"gamma": 0.95},)


def test_study_name_can_be_passed_to_loader():
    assert loads(BASE, name="other").name == "other"
    assert "../x" in only(BASE, name="../x")[1]


def test_imports_allow_unknown_names_without_execution(tmp_path):
    (tmp_path / "my_envs.py").write_text("raise SystemExit('imported')\n")
    text = BASE.replace("CartPole-v1", "{id: Mine-v0, size: 3}") + (
        "fixed: {network: my_network}\nimports: [my_envs.py]\nmetric: {name: eval/score}\n"
    )
    study = loads(text, source=tmp_path)
    assert study.env.id == "Mine-v0"
    assert study.env.values == {"size": 3}
    assert study.imports == ("my_envs.py",)
    without = text.replace("imports: [my_envs.py]\n", "")
    assert {line for line, _ in mistakes(without)} == {1, 6}


def test_a_space_can_come_from_a_file(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "space:\n  gamma: {min: 0.9, max: 0.99}\n  vf_coef: {min: 0.1, max: 1.0}\n"
        "forbid: ['gamma < 0.91 and vf_coef > 0.9']\n"
    )
    text = (
        "env: CartPole-v1\nenv_steps: 1k\nspace:\n  file: mine.yaml\n"
        "  override: {vf_coef: {min: 0.2, max: 2.0}, clip_eps: {min: 0.1, max: 0.3}}\n"
    )
    study = loads(text, source=tmp_path)
    assert study.space.names == ("gamma", "vf_coef", "clip_eps")
    assert study.space.parameters[1].distribution.max == 2.0
    assert len(study.space.forbid) == 1
    dropped = text.replace("{min: 0.2, max: 2.0}", "null")
    line, words = only(dropped.replace("vf_coef", "vf_coeff"), source=tmp_path)
    assert line == 5
    assert "did you mean 'vf_coef'" in words


def test_mistakes_in_space_file_report_both_locations(tmp_path):
    (tmp_path / "mine.yaml").write_text("space:\n  gamma: {min: 0.9, max: 0.99}\n  gama: {}\n")
    text = "env: CartPole-v1\nenv_steps: 1k\nspace: {file: mine.yaml}\n"
    line, words = only(text, source=tmp_path)
    assert line == 3
    assert words.startswith("mine.yaml:3: unknown hyperparameter 'gama'")


def test_shipped_spaces_are_found_from_anywhere(tmp_path):
    study = loads(
        "env: CartPole-v1\nenv_steps: 1k\nspace: {file: spaces/ppo.yaml}\n", source=tmp_path
    )
    assert len(study.space.names) > 8
    assert all(KNOBS[name].traced for name in study.space.names)


def test_space_default_is_hyperparameter_default_or_middle():
    study = loads(
        "env: CartPole-v1\nenv_steps: 1k\nspace:\n"
        "  gamma: {min: 0.5, max: 0.6, distribution: uniform}\n"
        "  vf_coef: {min: 0.1, max: 0.9, default: 0.3}\n"
        "  clip_eps: {min: 0.1, max: 0.4}\n"
    )
    assert study.space.default() == {"gamma": 0.55, "vf_coef": 0.3, "clip_eps": 0.2}


def test_many_mistakes_are_cut_short():
    text = BASE + "".join(f"unknown{i}: 1\n" for i in range(300))
    found = mistakes(text)
    assert len(found) == 101
    assert found[-1] == (None, "and more mistakes")


def test_loader_imports_no_heavy_packages():
    code = (
        "import sys, hpo.studies.load; "
        "heavy = {'numpy', 'jax', 'optuna', 'pyarrow', 'duckdb', 'rich'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("env", "where", "line"),
    [
        ("CartPole-v1", "fixed: {distribution: beta}", 3),
        ("Pendulum-v1", "space:\n  distribution: {values: [gaussian, categorical]}", 4),
    ],
)
def test_a_distribution_that_does_not_fit_the_actions_is_refused(env, where, line):
    text = f"env: {env}\nenv_steps: 10k\n{where}\n"
    with pytest.raises(StudyError, match=r"distribution '\w+' does not fit .*; allowed: ") as told:
        loads(text)
    assert [mistake.line for mistake in told.value.mistakes] == [line]
    fitting = where.replace("beta", "categorical").replace(
        "gaussian, categorical", "gaussian, beta"
    )
    assert loads(text.replace(where, fitting)).env.id == env


def test_recorded_study_is_read_without_referenced_files():
    text = (
        BASE.replace("CartPole-v1", "own")
        + "imports: [gone.py]\ninit: {from: gone/}\nmetric: {name: eval/own}\n"
    )
    with pytest.raises(StudyError, match=r"no such file(.|\n)*is not a policy folder"):
        loads(text)
    study = recorded(text)
    assert study.imports == ("gone.py",) and study.init.folder == "gone/"
    assert study.metric.name == "eval/own" and study.space.names == ("learning_rate", "gamma")
    with pytest.raises(StudyError, match="unknown key"):
        recorded(text + "sarch: {}\n")


@pytest.mark.parametrize("rule", ["pbt", "asha"])
def test_stopping_rule_as_search_method_suggests_early_terminate(rule):
    (_, said), *_ = mistakes(BASE + f"search: {{method: {rule}}}\n")
    assert f"use `early_terminate: {{type: {rule}}}`" in said


GYMNASIUM = """
env: {id: "gym:FrozenLake-v1", map_name: 8x8, max_episode_steps: 50}
env_steps: 8k
space: {env.success_rate: {min: 0.3, max: 0.9, distribution: uniform}}
eval_env: {success_rate: 0.5}
budget: {trials: 2}
"""
SEVERAL = """
env: [{id: "gym:CartPole-v1", scores: {random: 20, reference: 500}}, Acrobot-v1]
env_steps: 8k
budget: {trials: 2}
"""


@pytest.mark.parametrize("text", [GYMNASIUM, SEVERAL])
def test_recorded_study_is_read_without_environment_package(text, monkeypatch):
    study = loads(text)
    kept = resolved_yaml(study)

    def missing(id_):
        raise MissingExtraError("Box2D", "gym", f"env {id_}")

    monkeypatch.setattr(registry, "_of_libraries", missing)
    assert resolved_yaml(recorded(kept)) == kept
    assert study_hash(recorded(kept)) == study_hash(study)
    with pytest.raises(StudyError, match=r"study.yaml:2: env gym:.* needs the package 'Box2D'"):
        loads(text)


def test_abbreviated_goal_suggests_full_name():
    for given, meant in (("max", "maximize"), ("MIN", "minimize")):
        with pytest.raises(StudyError, match=f"unknown goal '{given}'; did you mean '{meant}'"):
            loads(STUDY_OF_GOAL.format(given))


STUDY_OF_GOAL = """\
env: CartPole-v1
env_steps: 16k
space: {{learning_rate: {{min: 1e-5, max: 1e-1, distribution: log_uniform}}}}
metric: {{name: eval/return_mean, goal: {}}}
"""


def test_log_uniform_from_zero_with_zero_share_suggests_positive_min():
    text = STUDY_OF_GOAL.format("maximize").replace("min: 1e-5", "min: 0")
    with pytest.raises(StudyError, match=r"`zero: 0.2` adds 0"):
        loads(text)
    with pytest.raises(StudyError) as refused:
        loads(text.replace("distribution:", "zero: 0.1, distribution:"))
    assert "log_uniform needs min above 0, such as 1e-6" in str(refused.value)
    assert "`zero" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "confirm: {top_k: 30}\nbudget: {trials: 24}\n",
        "seeds: {per_config: 2, tolerate: 2}\n",
        "early_terminate: {type: asha, min: 200k}\nevaluation: {every: 300k}\n",
        "early_terminate: {type: pbt}\nbudget: {trials: 8}\npopulation: {lanes: 4}\n",
    ],
)
def test_unchecked_study_is_refused_with_the_same_messages(text):
    with pytest.raises(StudyError) as caught:
        loads(BASE + text)
    unchecked = recorded(BASE + text)
    words = [mistake.text for mistake in caught.value.mistakes]
    assert sorted(found for _, found in contradictions(unchecked)) == sorted(words)
    with pytest.raises(ConfigError) as refused:
        check_runnable(unchecked)
    assert set(str(refused.value).splitlines()) == set(words)


def test_every_field_of_a_study_is_a_key_of_its_file():
    others = {"more_envs", "source", "goals_left_out"}  # of `env`; the folder; of `metric`
    assert {field.name for field in fields(Study)} - others == {
        field.target for field in TOP if field.key not in ("forbid", "eval_env")
    }


@pytest.mark.parametrize(
    ("rule", "first"),
    [("asha", 30_000), ("hyperband", 6_250), ("median", 6_250), ("plateau", 6_250)],
)
def test_default_first_rung_of_asha_is_late(rule, first):
    text = f"{{env: CartPole-v1, env_steps: 100k, early_terminate: {{type: {rule}}}}}"
    assert loads(text).early_terminate.min == first
