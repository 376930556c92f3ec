"""Messages name what can be typed where they are read: options at a shell, arguments in Python."""

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hpo
from helpers import view_samples as samples
from hpo.cli import make_parser
from hpo.errors import ConfigError, HpoError, StoreError
from hpo.search.run import run
from hpo.views.python import calls
from hpo.views.words import REMEDIES, in_python, on_command_line, speaks_python

ROOT = Path(hpo.__file__).resolve().parent
OUTSIDE = ("views", "tests", "docs", "scripts", "benchmarks", "results", "build")
ERRORS = ("ConfigError", "HpoError", "NotPlain", "SearchError", "StoreError", "fault")
FLAGS_OF_FORMS = {  # flags in texts that are data
    "importers/commands.py",  # flags of CleanRL's benchmark
    "search/lanes/process_factory.py",  # flags of a user's script, as are those of the next one
    "studies/command.py",
    "importers/formats.py",  # flags of the programs that it reads, `--name=value`
    "studies/overrides.py",  # the form in which a kept study file records the command that ran it
}


def below_views() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] not in OUTSIDE and place.parts != ("cli.py",):
            yield place.as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def literals(tree: ast.Module) -> Iterator[ast.Constant]:
    """All strings that are not documentation."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node


def of_command_line() -> re.Pattern[str]:
    parser, commands = make_parser()
    helps = "\n".join(verb.format_help() for verb in parser.commands.values())
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", helps))
    assert len(commands) > 20 and {"--new", "--set", "--no-time"} <= options
    typed = "|".join(map(re.escape, [*options, "-- --"]))
    return re.compile(rf"(?<![\w-])({typed})(?![\w-])|\bhpo ({'|'.join(commands)})\b|-- --\w")


def test_messages_outside_views_do_not_mention_cli_options():
    pattern, found = of_command_line(), dict[str, list[str]]()
    for place, tree in below_views():
        for node in literals(tree):
            if pattern.search(node.value):
                found.setdefault(place, []).append(f"line {node.lineno}: {node.value}")
    assert {place: one for place, one in found.items() if place not in FLAGS_OF_FORMS} == {}
    assert found.keys() >= FLAGS_OF_FORMS


def test_remedies_have_texts_and_are_used():
    named = set[str]()
    for _, tree in below_views():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in REMEDIES:
                named.add(node.arg)
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ERRORS:
                assert {word.arg for word in node.keywords} <= {*REMEDIES, None}
    assert named == set(REMEDIES)


@pytest.mark.parametrize(
    ("error", "typed", "called"),
    [
        (HpoError("it ended"), "it ended", "it ended"),
        (
            StoreError("files changed; resume with them:\n  a.py", new=True, accept_new_bits=True),
            "files changed; resume with them (--new or --accept-new-bits):\n  a.py",
            "files changed; resume with them (new=True or accept_new_bits=True):\n  a.py",
        ),
        (StoreError("b is running", stop="b"), "b is running (hpo stop b)", "b is running"),
        (
            ConfigError("give it", flags={"metric": "m", "metric.goal": "g"}),
            "give it (-- --metric m --metric.goal g)",
            "give it",
        ),
        (
            ConfigError("code", policy_imports=(Path("a b"), ["c.py"])),
            "code (hpo eval 'a b' --import c.py)",
            "code (hpo.load_policy(folder, imports=True))",
        ),
    ],
)
def test_remedies_are_formatted_for_cli_and_python(error, typed, called):
    assert (on_command_line(error), in_python(error)) == (typed, called)
    again = pickle.loads(pickle.dumps(error))
    assert on_command_line(again) == typed


def test_changed_study_error_suggests_python_arguments(tmp_path):
    samples.make_results(tmp_path, "small")
    with pytest.raises(StoreError) as told, speaks_python(), speaks_python():
        run(samples.study("small", seed=3, confirm=None), tmp_path / "small", samples.FACTORY)
    assert "or start another study (new=True):\n" in str(told.value)
    with pytest.raises(StoreError, match="or start another study:\n") as told:
        run(samples.study("small", seed=3, confirm=None), tmp_path / "small", samples.FACTORY)
    assert "or start another study (--new):\n" in on_command_line(told.value)


def test_python_run_errors_suggest_python_arguments(monkeypatch, tmp_path):
    def refuse(study, out, observers, *, warn, **settings):
        raise StoreError("it already has a study; start a new one", new=True)

    monkeypatch.setattr(calls.api, "run", refuse)
    study = {"env": "CartPole-v1", "env_steps": "4k", "budget": {"trials": 1}}
    with pytest.raises(StoreError, match=r"start a new one \(new=True\)$"):
        hpo.run(study, tmp_path, progress=False)


@pytest.mark.parametrize("call", [hpo.open, hpo.report])
def test_python_read_errors_suggest_python_arguments(call, tmp_path):
    with pytest.raises(StoreError, match=r'start one \(hpo\.run\("study\.yaml"\)\)$'):
        call(out=tmp_path)
    for name in ("one", "two"):
        samples.make_results(tmp_path, name)
    with pytest.raises(StoreError, match=r"name one: one, two \(study=\)$"):
        call(out=tmp_path)


def test_python_what_if_errors_suggest_python_arguments(tmp_path):
    samples.make_results(tmp_path, "small")
    with pytest.raises(ConfigError, match=r"^seeds is 9, but"):
        hpo.open(tmp_path / "small").what_if("none", seeds=9)
