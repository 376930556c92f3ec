"""Samplers and rules that a study's `imports` register: checked, run, killed, gone on with."""

import random
import signal
import sys
import time
from dataclasses import replace
from runpy import run_path

import jsonschema
import pytest

from helpers import search_samples
from helpers.analytic_lanes import AnalyticFactory
from helpers.doc_blocks import block
from helpers.forking import forks
from hpo.cli import main
from hpo.errors import ConfigError, StoreError, StudyError, UnknownNameError
from hpo.search.rules.registry import make_explorer, make_pruner, register_rule
from hpo.search.run import RunOptions, run
from hpo.search.samplers.registry import draws_ahead, make_sampler, register_sampler
from hpo.store import tables_equal
from hpo.store.journal import Journal
from hpo.studies import user_code
from hpo.studies.chunk_sizes import rung_steps
from hpo.studies.field import option
from hpo.studies.load import load, loads, recorded
from hpo.studies.resolved import resolved, resolved_yaml
from hpo.studies.schema import schema
from hpo.studies.search_methods import METHODS
from hpo.studies.stopping_rules import RULES
from hpo.studies.yaml_io import plain, read_text
from hpo.testing.search import (
    RegisteredExplorerContract,
    RegisteredRuleContract,
    RegisteredSamplerContract,
)

PAGE = "docs/search.md"
SHOWN = block(PAGE, "class TestNear(").run()
DRIFT = """\
from hpo.search.rules.registry import option, register_rule


class Drift:
    def __init__(self, space, chance):
        self.space, self.chance = space, chance

    def explore(self, params, situation, rng):
        return self.space.draw(rng) if rng.random() < self.chance else dict(params)


register_rule(
    "drift",
    lambda early, study: Drift(study.space, early.options["chance"]),
    [option("chance", 0.5, "that knobs are drawn anew", low=0, high=1)],
    evolves=True,
)
register_rule("steady", lambda early, study: None, even=True, finishes=True)
"""
BASE = """\
name: small
env: CartPole-v1
imports: [near.py, slack.py, drift.py]
env_steps: 16k
space:
  learning_rate: {min: 1e-5, max: 1, distribution: log_uniform}
  gamma: {min: 0.8, max: 0.9999, distribution: one_minus_log}
"""
STUDIES = {
    "near": BASE + "search: {method: near, options: {width: 0.3}, random_share: 0.1}\n"
    "early_terminate: {type: asha, min: 2k}\nbudget: {trials: 60}\nconfirm: {top_k: 2}\n",
    "slack": BASE + "search: {method: tpe}\nbudget: {trials: 40}\n"
    "early_terminate: {type: slack, min: 2k, eta: 2, share: 0.3, audit: 0.1}\n",
    "drift": BASE + "search: {method: near}\nbudget: {trials: 16}\n"
    "early_terminate: {type: drift, every: 2k, chance: 0.4}\n",
}
FACTORY = AnalyticFactory(lanes=16, diverges_above=0.3)
CHILD = """\
from pathlib import Path
from helpers.analytic_lanes import AnalyticFactory
from hpo.search.run import RunOptions, run
from hpo.studies.load import load
factory = AnalyticFactory(lanes=16, diverges_above=0.3, chunk_seconds=0.02)
run(load(file), Path(folder), factory, (), RunOptions(commit_seconds=0.0))
"""


def _forget():
    """Be a process that has not run the files."""
    for table, names in ((METHODS, ("near",)), (RULES, ("slack", "drift", "steady"))):
        for name in names:
            table.pop(name, None)
    for path in [path for path in user_code._DONE if path.stem in ("near", "slack", "drift")]:
        del user_code._DONE[path]
        sys.modules.pop(path.stem, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The examples of docs/search.md as they stand there, and a rule of a population."""
    folder = tmp_path_factory.mktemp("registered")
    for name, words in (("near", "class Near:"), ("slack", "class Slack:")):
        code = block(PAGE, words).code
        assert len(code.splitlines()) <= 30
        (folder / f"{name}.py").write_text(code)
    (folder / "drift.py").write_text(DRIFT)
    yield folder
    _forget()


@pytest.fixture
def file(folder):
    """Write a study beside the files; each test begins as a process that has not run them."""
    _forget()

    def write(text, name="s.yaml"):
        (folder / name).write_text(text)
        return folder / name

    return write


def commits(folder):
    if not Journal.exists(folder):
        return 0
    with Journal(folder) as journal:
        return journal.head().number


# ---------------------------------------------------------------- run, killed, gone on with


@pytest.mark.parametrize("name", STUDIES)
def test_killed_study_with_registered_parts_resumes_with_equal_tables(file, tmp_path, name):
    path, rng = file(STUDIES[name], f"{name}.yaml"), random.Random(name)
    whole = run(load(path), tmp_path / "unbroken", FACTORY, (), RunOptions())
    assert whole.state == "finished"
    code, names = tmp_path / "child.py", {"file": path, "folder": str(tmp_path / "broken")}
    code.write_text(CHILD)
    context = forks()
    for _ in range(2):
        before = commits(tmp_path / "broken")
        child = context.Process(target=run_path, args=(str(code), names))
        child.start()
        wanted = before + rng.randrange(2, 9)
        while commits(tmp_path / "broken") < wanted:
            assert child.is_alive()
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.02))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    results = run(load(path), tmp_path / "broken", FACTORY, (), RunOptions())
    assert results.state == "finished"
    assert tables_equal(tmp_path / "unbroken", tmp_path / "broken") == []
    with Journal(tmp_path / "unbroken") as one, Journal(tmp_path / "broken") as other:
        assert one.decisions() == other.decisions() and one.asks() == other.asks()
        rule = RULES[load(path).early_terminate.type].name
        assert {row.rule.split()[0] for row in one.decisions()} == {rule}
        assert {row.action for row in one.decisions()} & {"stop", "copy"}
        drawn = {row.proposed_by for row in one.trials()}
        assert load(path).search.method in drawn and {"default", "random"} <= drawn


def test_changed_rule_option_is_refused_on_resume(file, tmp_path):
    text = STUDIES["slack"].replace("trials: 40", "trials: 4")
    run(load(file(text)), tmp_path / "s", FACTORY, (), RunOptions())
    changed = load(file(text.replace("share: 0.3", "share: 0.4")))
    with pytest.raises(StoreError, match=r"early_terminate\.share: 0.3"):
        run(changed, tmp_path / "s", FACTORY, (), RunOptions())


# ---------------------------------------------------------------- checked


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        (
            "near",
            "width: 0.3",
            "widht: 0.3",
            "8: unknown key 'widht' in search.options; did you mean 'width'? Known: width",
        ),
        (
            "near",
            "width: 0.3",
            "width: 4",
            "8: search.options.width is 4; allowed: a number from 0.01 to 3",
        ),
        (
            "near",
            "method: near",
            "method: naer",
            "8: search: unknown method 'naer'; did you mean 'near'? Known: random, grid, sobol, "
            "tpe, thompson, gp, cmaes, nsga2, smac, ",
        ),
        (
            "slack",
            "share: 0.3",
            "shar: 0.3",
            "10: unknown key 'shar' in early_terminate; did you mean 'share'? Known: type, min, "
            "eta, audit, share, at_least",
        ),
        (
            "slack",
            "share: 0.3",
            "at_least: 1",
            "10: early_terminate.at_least is 1; allowed: a whole number from 2 to 1000",
        ),
        ("slack", "share: 0.3", "patience: 3", "10: unknown key 'patience' in early_terminate"),
        (
            "slack",
            "type: slack",
            "type: slakc",
            "10: early_terminate: unknown type 'slakc'; did you mean 'slack'? Known: asha, "
            "hyperband, median, plateau, pbt, pb2, slack, drift, steady",
        ),
        (
            "drift",
            "chance: 0.4",
            "chance: maybe",
            "10: early_terminate.chance is 'maybe'; allowed: a number from 0 to 1",
        ),
        ("drift", "every: 2k", "every: 16k", "10: early_terminate.every is 16000, but a run"),
        ("near", "budget: {trials: 60}", "budget: {trials: null}", "10: budget has no limit"),
    ],
)
def test_check_refuses_invalid_options(file, capsys, name, old, new, told):
    path = file(STUDIES[name].replace(old, new))
    assert main(["check", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}:{told}" in said
    if new == "method: naer":  # other files may have registered samplers, too
        assert ", near" in said.rpartition("Known: ")[2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("near", "searched by near, asha with eta 4"),
        ("slack", "slack with share 0.3, at_least 5"),
        ("drift", "drift with chance 0.4"),
    ],
)
def test_check_accepts_valid_options(file, capsys, name, words):
    assert main(["check", "-v", str(file(STUDIES[name]))]) == 0
    assert words in " ".join(capsys.readouterr().out.split())


def test_check_runs_no_imports_for_known_names(file, folder, capsys):
    (folder / "raises.py").write_text("\nraise RuntimeError('ran')\n")
    text = BASE.replace("near.py, slack.py, drift.py", "raises.py")
    assert main(["check", str(file(text + "search: {method: sobol}\n"))]) == 0
    path = file(text + "search: {method: near}\n")
    capsys.readouterr()
    assert main(["check", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"{path}:3: {folder}/raises.py:2: RuntimeError: ran" in told
    assert f"{path}:8: search: unknown method 'near'" in told


def test_registered_names_need_imports(file, capsys):
    text = STUDIES["near"].replace("imports: [near.py, slack.py, drift.py]\n", "")
    assert main(["check", str(file(text))]) == 2
    assert ":7: search: unknown method 'near'" in capsys.readouterr().err
    validator = jsonschema.Draft202012Validator(schema())
    assert list(validator.iter_errors(plain(read_text(text, "x")))) != []
    for name in STUDIES:
        assert list(validator.iter_errors(plain(read_text(STUDIES[name], "x")))) == []


def test_options_of_study_built_in_python_are_checked_at_run(file):
    study = load(file(STUDIES["near"]))
    assert not draws_ahead(study)
    with pytest.raises(UnknownNameError, match="option of search method 'near' 'widht'"):
        make_sampler(replace(study, search=replace(study.search, options={"widht": 1.0})))
    with pytest.raises(ConfigError, match=r"width is 4; allowed: a number from 0\.01 to 3"):
        make_sampler(replace(study, search=replace(study.search, options={"width": 4})))
    slack = load(file(STUDIES["slack"]))
    early = replace(slack.early_terminate, options={"share": 2})
    with pytest.raises(ConfigError, match="share is 2; allowed: a number from 0 to 1"):
        make_pruner(replace(slack, early_terminate=early))
    early = replace(early, type="asha", options={"share": 0.5})
    with pytest.raises(UnknownNameError, match="option of early_terminate type 'asha' 'share'"):
        make_pruner(replace(slack, early_terminate=early))


# ---------------------------------------------------------------- written down and read again


@pytest.mark.parametrize("name", STUDIES)
def test_resolved_study_is_readable_without_imports(file, folder, name):
    study = load(file(STUDIES[name]))
    assert resolved(loads(resolved_yaml(study), source=folder)) == resolved(study)
    kept = resolved(study)["early_terminate"]
    known = {"type", *(field.key for field in RULES[kept["type"]].fields)}
    assert set(kept) == known - {"pause"}  # which is left out where it is off
    text = resolved_yaml(study)
    _forget()
    again = recorded(text)
    assert again.search.method == study.search.method
    assert again.search.options == study.search.options
    early, before = again.early_terminate, study.early_terminate
    assert (early.type, early.options) == (before.type, before.options)
    assert early.evolves == (name == "drift") and rung_steps(again) == (
        tuple(range(2_000, 16_000, 2_000))
        if name == "drift"
        else (2_000, 4_000, 8_000)
        if name == "slack"
        else (2_000, 8_000)
    )


def test_registered_rule_may_have_even_rungs(file):
    text = BASE + "early_terminate: {type: steady, min: 4k}\n"
    assert rung_steps(load(file(text))) == (4_000, 8_000, 12_000)
    with pytest.raises(StudyError, match="more than 1000 rungs"):
        load(file(text.replace("4k", "3")))
    with pytest.raises(StudyError, match="racing compares complete runs"):
        load(file(text + "seeds: {per_config: 4, racing: {}}\n"))


# ---------------------------------------------------------------- registered in good order


@pytest.mark.parametrize(
    ("register", "options", "told"),
    [
        (register_sampler, [("a", 1), ("a", 2)], "an option named 'a' already exists"),
        (register_rule, [("min", 1)], "an option named 'min' already exists"),
        (register_rule, [("type", "x")], "an option named 'type' already exists"),
    ],
)
def test_invalid_option_declarations_are_refused(file, register, options, told):
    made = [option(name, default, "words") for name, default in options]
    with pytest.raises(ConfigError, match=told):
        register("mine", lambda *_: None, made)
    assert "mine" not in METHODS and "mine" not in RULES


def test_option_needs_a_legal_default():
    with pytest.raises(
        ConfigError, match=r"an option is 'width', but must be created with option\("
    ):
        register_sampler("mine", lambda spec: None, ["width"])
    with pytest.raises(ConfigError, match="default of option x is 2; allowed: a whole"):
        option("x", 2, "words", low=3, high=4)
    with pytest.raises(ConfigError, match="default of option x is 'c'; allowed: a, b"):
        option("x", "c", "words", words=("a", "b"))
    assert option("x", True, "words").allowed() == "true or false"
    assert option("x", -1, "words", low=-5).allowed() == "a whole number of at least -5"


# ---------------------------------------------------------------- the contracts


@pytest.fixture
def ran(file):
    """Run the files for each test: those before it, in whatever order, may have forgotten them."""
    load(file(BASE + "search: {method: near}\n", "all.yaml"))


@pytest.mark.usefixtures("ran")
class TestNear(SHOWN["TestNear"]):
    """The example of docs/search.md, by the test there."""


class TestRandomByName(RegisteredSamplerContract):
    name = "random"


class TestGridByName(RegisteredSamplerContract):
    name = "grid"


class TestTpeByName(RegisteredSamplerContract):
    name, batches, size = "tpe", 2, 6


class TestNsga2ByName(RegisteredSamplerContract):
    name, batches, size = "nsga2", 2, 6


@pytest.mark.usefixtures("ran")
class TestSlack(SHOWN["TestSlack"]):
    """The example of docs/search.md, by the test there."""


@pytest.mark.usefixtures("ran")
class TestDrift(RegisteredExplorerContract):
    name = "drift"


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_built_in_explorers_pass_the_contract(name):
    from hpo.studies.search_spec import EarlyTerminate
    from hpo.testing.search import ExplorerContract

    class Ours(ExplorerContract):
        def make(self, space):
            early = EarlyTerminate(name, every=2_000)
            return make_explorer(search_samples.study(space, early_terminate=early))

    Ours().test_copies_lie_in_the_space()
    Ours().test_a_new_object_explores_as_one_that_has_explored_before()


def test_contract_detects_stateful_rule(monkeypatch):
    from hpo.search.rules.registry import Verdict

    class Counting:
        asked = 0

        def judge(self, rung, earlier, arriving):
            self.asked += 1
            return [Verdict(self.asked > 3, "counting", None) for _ in arriving]

    class Ours(RegisteredRuleContract):
        name = "counting"

    monkeypatch.setitem(RULES, "counting", RULES["asha"])
    del RULES["counting"]
    register_rule("counting", lambda early, study: Counting())
    with pytest.raises(AssertionError):
        Ours().test_a_new_object_judges_as_one_that_has_judged_before()
