"""`hpo check` takes every study that ships or that the documents show."""

import re
import sys
from pathlib import Path

import jsonschema
import pytest

from hpo.cli import main
from hpo.studies import user_code
from hpo.studies.algorithm_section import loaded_algorithm
from hpo.studies.check import check
from hpo.studies.load import load, loads
from hpo.studies.schema import schema
from hpo.studies.search_methods import METHODS
from hpo.studies.stopping_rules import RULES
from hpo.studies.yaml_io import plain, read_text

# Those of brax, MuJoCo and Box2D, whose own code they are about.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHIPPED = sorted(
    path
    for folder in ("", "defaults_elsewhere", "from_heuristics")
    for path in (ROOT / "studies" / folder).glob("*.yaml")
)
VALIDATOR = jsonschema.Draft202012Validator(schema())
NEEDED = ("env", "env_steps")
NAMES_WHAT_IS_NOT_THERE = ("results/last-week", "from: policy/")
ENVS = (
    (("baselines:", "gnn"), "{id: rmsa, topology: nsfnet_deeprmsa}"),
    (("laplace",), "Pendulum-v1"),
    (("step_timeout",), "gym:CartPole-v1"),
    (("",), "CartPole-v1"),
)
"""Words of a part of a study -> an environment that it fits."""
PACKAGES = (
    ("digits.py", "sklearn"),
    ("rejax:", "rejax"),
    ("envpool:", "envpool"),
    ("gym:ALE/", "ale_py"),
    ("brax:", "brax"),
    ("gym:", "gymnasium"),
    ("gym:LunarLander", "Box2D"),
)
COSTLY = ("architecture", "cost239", "cost239_from_470", "defaults_check", "defaults_continuous",
          "jpn48", "jpn48_from_265", "networks", "nsfnet", "nsfnet_250", "nsfnet_networks",
          "nsfnet_rmsa", "returns", "usnet", "usnet_from_380")  # fmt: skip
"""Their programs, a dozen or large, take seconds to describe: checked without lanes and memory."""


def _given(text):
    return set(re.findall(r"^(\w+):", text, re.M))


def _blocks():
    """Yield page, line and text of every block that could be a study."""
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```yaml\n(.*?)^```", text, re.S | re.M):
            block = found[1]
            is_bench = block.startswith("bench:")  # see tests/search/bench
            away = any(text in block for text in NAMES_WHAT_IS_NOT_THERE)
            if not (block.startswith(" ") or is_bench or away):
                yield page.name, text[: found.start()].count("\n") + 2, block


# test_docs_run runs the one that starts from a policy
COMPLETE = [
    block
    for block in _blocks()
    if set(NEEDED) <= _given(block[2]) and "init: {from: first-policy/}" not in block[2]
]
PARTS = [block for block in _blocks() if not set(NEEDED) <= _given(block[2])]


def _named(block):
    return f"{block[0]}:{block[1]}"


def _whole(part):
    """Return a part of a study with what it leaves out."""
    env = next(env for words, env in ENVS if any(word in part for word in words))
    left_out, given = {"env": env, "env_steps": "100k"}, _given(part)
    if any(key in given for key in ("command", "processes", "resume", "metrics")):
        left_out = {
            "command": "python train.py --seed {seed}",
            "length": "100k env steps",
            "metric": "{name: eval_return}",
        }
    if part.startswith("algorithm:"):
        left_out = {} if "length" in part else {"env_steps": "100k"}
    if "id: rmsa" in part + env:
        left_out["evaluation"] = "{steps: 500}"
    return part + "".join(f"{key}: {text}\n" for key, text in left_out.items() if key not in given)


def _one_env(text):
    """Yield the text once with each of its lines of `env:`."""
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.startswith("env:")] or [None]
    for chosen in places:
        yield "".join(line for i, line in enumerate(lines) if i not in places or i == chosen)


def _skip_without_its_package(text):
    for start, package in PACKAGES:
        if start in text:
            pytest.importorskip(package)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every Python file that the documents show for `imports`; what they register is forgotten."""
    folder = tmp_path_factory.mktemp("shown")
    for page in PAGES:
        for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M):
            for name in re.findall(r'^register\w*\("(\w+)"', code, re.M):
                (folder / f"{name}.py").write_text(code)
    for path in (ROOT / "examples").glob("*.py"):
        (folder / path.name).write_text(path.read_text())
    tables = [METHODS, RULES, user_code._DONE]
    before = [dict(table) for table in tables]
    yield folder
    for path in [path for path in user_code._DONE if path.parent == folder.resolve()]:
        sys.modules.pop(path.stem, None)
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def test_documentation_pages_contain_studies():
    assert {"README.md", "study.md", "environments.md"} <= {page for page, *_ in COMPLETE}
    assert {"networks.md", "ppo.md", "optical.md", "ray.md", "search.md"} <= {
        page for page, *_ in PARTS
    }


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_study_passes_check(path, capsys):
    _skip_without_its_package(path.read_text())
    if path.stem in COSTLY:
        said = check(load(path)).text()
    else:
        assert main(["check", "-v", str(path)]) == 0
        said = capsys.readouterr().out
    assert "programs" in said and "has no effect here" not in said and "mistake" not in said


KNOWN = (" has no known episode limit", "one seed per trial", "trials start before")


@pytest.mark.parametrize("block", COMPLETE, ids=_named)
def test_documented_study_passes_check(block, folder, capsys):
    _skip_without_its_package(block[2])
    path = folder / f"line{block[1]}.yaml"
    path.write_text(block[2])
    assert main(["check", "-v", str(path)]) == 0
    said = capsys.readouterr().out
    told = [line for line in said.splitlines() if line.startswith("warning")]
    assert "programs" in said and all(any(w in line for w in KNOWN) for line in told)
    given = plain(read_text(block[2], "x"))
    assert list(_validator(given, folder).iter_errors(given)) == []


def _validator(given, folder):
    if "algorithm" not in given:
        return VALIDATOR
    own = schema(loaded_algorithm(given["algorithm"], folder))
    return jsonschema.Draft202012Validator(own)


@pytest.mark.parametrize("block", PARTS, ids=_named)
def test_documented_study_fragment_is_valid(block, folder):
    _skip_without_its_package(block[2])
    for text in map(_whole, _one_env(block[2])):
        report = check(loads(text, source=folder))
        assert report.mistakes == (), text
        assert "has no effect here" not in " ".join(report.warnings), text
        given = plain(read_text(text, "x"))
        if "command" not in given:  # the schema knows PPO and custom trainings
            assert list(_validator(given, folder).iter_errors(given)) == []
