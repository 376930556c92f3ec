import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
NOT_PACKAGES = {"tests", "benchmarks", "docs", "scripts", "results", "build"}


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return set(project["tool"]["setuptools"]["packages"])


def test_every_folder_with_modules_is_a_declared_package():
    found = {"hpo"}
    for init in ROOT.glob("*/**/__init__.py"):
        parts = init.parent.relative_to(ROOT).parts
        if parts[0] not in NOT_PACKAGES and not any(part.startswith(".") for part in parts):
            found.add(".".join(("hpo", *parts)))
    assert found == declared()


def test_no_root_module_shadows_the_standard_library():
    modules = {path.stem for path in ROOT.glob("*.py")} - {"setup", "__init__"}
    assert not modules & set(sys.stdlib_module_names)


def test_tests_and_docs_are_not_packages():
    for folder in ("tests", "benchmarks", "docs"):
        found = set((ROOT / folder).rglob("__init__.py"))
        assert found <= {ROOT / "benchmarks" / "hpo_tables" / "hpo_tables" / "__init__.py"}


@pytest.fixture
def sources(tmp_path):
    """A copy of what git would give a fresh clone, small enough to build in seconds."""
    target = tmp_path / "clone"
    ignore = {".git", "build", "results", "tests", "benchmarks"}
    import shutil

    shutil.copytree(
        ROOT, target, ignore=lambda _, names: [n for n in names if n in ignore or n[0] == "."]
    )
    shutil.copytree(ROOT / "results" / "tuned", target / "results" / "tuned")
    return target


def build(sources: Path, out: Path) -> set[str]:
    """Build a wheel without a network and give the names in it."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            ".",
            "--no-deps",
            "--no-build-isolation",
            "-q",
            "-w",
            str(out),
        ],
        cwd=sources,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = out.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheels_include_data_and_drop_deleted_modules(sources, tmp_path):
    pytest.importorskip("setuptools", minversion="77")
    (sources / "core" / "passing.py").write_text('"""Gone soon."""\n')
    first = build(sources, tmp_path / "first")
    assert {"hpo/core/passing.py", "hpo/py.typed", "hpo/studies/cartpole.yaml"} <= first
    assert {"hpo/views/report/report.css", "hpo/views/report/report.js"} <= first
    assert {
        f"hpo/results/tuned/{path.name}" for path in (ROOT / "results" / "tuned").glob("*.[yp]*")
    } <= first
    assert {"hpo/studies/tuned/published.yaml", "hpo/studies/tuned/CartPole-v1.yaml"} <= first
    assert {"hpo/views/live/live.css", "hpo/views/live/live.js"} <= first
    assert "hpo/core/envs/optical/topologies.ini" in first
    assert not any(name.startswith(("core/", "search/", "tests/")) for name in first)
    (sources / "core" / "passing.py").unlink()
    second = build(sources, tmp_path / "second")
    assert "hpo/core/passing.py" not in second
    assert second == first - {"hpo/core/passing.py"}


def test_documented_extras_match_pyproject():
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )
    table = (ROOT / "docs" / "start.md").read_text().split("## Extras")[1].split("##")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for cell in first for name in re.findall(r"`([\w-]+)`", cell)} == extras


def test_workflows_use_the_supported_python_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = [c.rsplit(" ", 1)[1] for c in project["classifiers"] if "Python :: 3." in c]
    flows = {path.stem: yaml.safe_load(path.read_text()) for path in WORKFLOWS.glob("*.yml")}
    assert set(flows) == {"tests", "docs", "wheels"}
    for flow, job in (("tests", "tests"), ("wheels", "install")):
        assert flows[flow]["jobs"][job]["strategy"]["matrix"]["python"] == versions
    steps = [step.get("run", "") for step in flows["tests"]["jobs"]["tests"]["steps"]]
    test = re.search(r"<!-- test -->\n```sh\n(.*?)\n```", (ROOT / "README.md").read_text(), re.S)
    assert test and test[1] == " && ".join(steps[2:4])
    for path in re.findall(r"scripts/\w+", str(flows)):
        assert (ROOT / path).is_file()


def test_citation_file_has_the_package_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])


@pytest.fixture(scope="module")
def wheel_parts():
    """Modules of scripts/wheel_parts, by name."""
    sys.path.insert(0, str(ROOT / "scripts"))
    yield lambda name: import_module(f"wheel_parts.{name}")
    sys.path.remove(str(ROOT / "scripts"))


def test_release_notes_are_the_changelog_section(wheel_parts):
    notes = wheel_parts("release_notes").release_notes
    changelog = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.2.0] - 2026-12-01\n\n"
    changelog += "- [PPO](docs/ppo.md)\n"
    assert notes(changelog, "0.2.0") == "# hpo 0.2.0\n\n- PPO\n"
    assert notes(changelog, "0.3.0") == "# hpo 0.3.0\n\n- new\n"
    with pytest.raises(ValueError, match="no section"):
        notes("# Changelog\n\n## [0.1.0]\n", "0.1.0")
    assert "### Added" in notes((ROOT / "CHANGELOG.md").read_text(), "0.1.0")


def test_every_command_of_the_readme_is_run_from_the_wheel(wheel_parts):
    """Each that would train for minutes or go on for ever has a shorter form, which is used."""
    module = wheel_parts("readme_commands")
    readme = (ROOT / "README.md").read_text()
    lines = module.commands(readme)
    own = [line.removeprefix(module.APART) for line in lines]
    assert len(lines) >= 15 and all(line.startswith("hpo ") for line in own)
    assert {short for _, short in module.CHANGES} <= set(lines)
    assert not [line for line in lines if line.startswith("hpo run") and "--set" not in line]
