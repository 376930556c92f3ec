"""A study whose optimiser and action distribution are registered by files that it imports."""

import os
import re
import signal
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.shared_programs import shared_programs
from hpo.cli import main
from hpo.core import distributions, own_optimisers
from hpo.core.saved_policy import load_policy
from hpo.environments import registry as environments
from hpo.errors import ConfigError, StudyError
from hpo.knobs import table
from hpo.search.lanes.local import LocalFactory
from hpo.search.run import RunOptions, run
from hpo.store import tables_equal
from hpo.studies import user_code
from hpo.studies.load import load
from hpo.studies.user_code import check_registered, import_user_code

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quickly_compiled")]

PAGE = Path(__file__).parents[2] / "docs" / "ppo.md"
STUDY = """\
name: own
env: Pendulum-v1
imports: [own_lion.py, own_laplace.py]
env_steps: 192
fixed: {num_envs: 2, rollout_length: 8, num_minibatches: 2, hidden_sizes: [4], update_epochs: 1,
        optimiser: own-lion, distribution: own-laplace, weight_decay: 0.1, lr_schedule: linear}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
seeds: {per_config: 1}
budget: {trials: 2}
search: {method: random}
population: {lanes: 2}
evaluation: {episodes: 1, every: 16}
checkpoint: {keep_best: 1, parts: [optimiser]}
eval_env: {max_steps_in_episode: 10}
"""


def _forget():
    """Be a process that has not run the files."""
    for name, registry in (
        ("own-lion", own_optimisers._OWN),
        ("own-laplace", distributions._FAMILIES),
    ):
        registry.pop(name, None)
        for kinds in environments.DISTRIBUTIONS.values():
            kinds[:] = [word for word in kinds if word != name]
        for known in table._REGISTERED.values():
            known[:] = [word for word in known if word != name]
    for path in [path for path in user_code._DONE if path.name.startswith("own_")]:
        del user_code._DONE[path]
        sys.modules.pop(path.stem, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The two files of docs/ppo.md under names of their own, and the study."""
    folder = tmp_path_factory.mktemp("own")
    for name, code in re.findall(
        r"<!-- example: (\w+)\.py -->\n```python\n(.*?)```", PAGE.read_text(), re.S
    ):
        code = code.replace(f'register("{name}"', f'register("own-{name}"')
        (folder / f"own_{name}.py").write_text(code)
    (folder / "own.yaml").write_text(STUDY)
    yield folder
    _forget()


@pytest.fixture(scope="module", autouse=True)
def compiled_once():
    with shared_programs():
        yield


class CutAt:
    """Asks for a clean end after some chunks, by a real signal."""

    def __init__(self, chunks):
        self.left = chunks

    def __getattr__(self, name):
        return self._chunk if name == "on_chunk" else lambda *_: None

    def _chunk(self, progress):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def study(folder):
    study = load(folder / "own.yaml")
    import_user_code(study.imports, folder)
    check_registered(study)
    return study


@pytest.fixture(scope="module")
def unbroken(study, folder):
    results = run(study, folder / "results" / "own", LocalFactory(study), (), RunOptions())
    assert [entry.state for entry in results.leaderboard] == ["finished"] * 2
    return results.folder


def test_a_study_of_own_parts_runs_resumes_and_is_evaluated(
    study, unbroken, folder, tmp_path, capsys
):
    curves = pq.read_table(unbroken / "curves.parquet").to_pydict()
    rates = curves["learning_rate"]
    assert min(rates) < 0.5 * max(rates) and all(std > 0 for std in curves["policy_std"])
    states = []
    for chunks in (3, 10**9):
        results = run(study, tmp_path / "own", LocalFactory(study), [CutAt(chunks)], RunOptions())
        states.append(results.state)
    assert states == ["interrupted", "finished"]
    assert tables_equal(unbroken, tmp_path / "own") == []
    saved = next((unbroken / "policies").iterdir())
    _forget()
    with pytest.raises(ConfigError, match="own-l"):
        load_policy(saved)
    assert main(["best", str(unbroken), "--export", str(tmp_path / "best")]) == 0
    tried = capsys.readouterr().err.splitlines()[-1].removeprefix("try: hpo ").split()
    assert main([*tried, "--episodes", "2", "--json"]) == 0
    capsys.readouterr()
    _forget()
    asked = ["eval", str(saved), "--episodes", "2", "--json"]
    assert main([*asked, "--import", str(folder / "own_lion.py")]) == 2
    assert "own-laplace" in capsys.readouterr().err
    imports = [
        word
        for name in ("lion", "laplace")
        for word in ("--import", str(folder / f"own_{name}.py"))
    ]
    assert main([*asked, *imports]) == 0
    assert "return" in capsys.readouterr().out


def test_init_restores_policy_and_custom_optimiser(study, unbroken, folder, tmp_path):
    import_user_code(study.imports, folder)
    saved = next((unbroken / "policies").iterdir())
    text = STUDY.replace("name: own", "name: on") + (
        f"init: {{from: {saved}, keep: all, optimiser: restored}}\n"
    )
    (folder / "on.yaml").write_text(text)
    again = load(folder / "on.yaml")
    factory = LocalFactory(again)
    parts = factory.split.parts(again.complete({"learning_rate": 1e-3}))
    initial = factory.saved_start.of(parts.plan, parts.hypers)
    counts = [leaf for leaf in initial.moments[0] if hasattr(leaf, "count")]
    assert counts and int(counts[0].count) > 0


def test_distribution_for_other_action_space_is_refused(study, folder, tmp_path):
    import_user_code(study.imports, folder)
    (folder / "other.yaml").write_text(
        STUDY.replace("Pendulum-v1", "CartPole-v1").replace("eval_env", "#")
    )
    other = load(folder / "other.yaml")
    told = "fixed: distribution 'own-laplace' does not fit CartPole-v1, whose actions are discrete"
    with pytest.raises(ConfigError, match=told):
        check_registered(other)
    assert main(["run", str(folder / "other.yaml"), "--out", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_check_accepts_unregistered_names_without_running_imports(folder, capsys):
    """`hpo check` runs no code of the user's."""
    _forget()
    assert main(["check", "-v", str(folder / "own.yaml")]) == 0
    assert "1 bucket" in capsys.readouterr().out
    assert "own-lion" not in table.known_choices("optimiser")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"own-lion": "own-lio"}, "fixed: optimiser is 'own-lio'; did you mean 'own-lion'"),
        ({"own-laplace": "own-lap"}, "fixed: distribution is 'own-lap'"),
    ],
)
def test_names_missing_from_imports_are_reported(study, folder, change, told):
    import_user_code(study.imports, folder)
    text = STUDY
    for old, new in change.items():
        text = text.replace(old, new)
    (folder / "wrong.yaml").write_text(text)
    wrong = load(folder / "wrong.yaml")  # it could be registered
    import_user_code(wrong.imports, folder)
    with pytest.raises(ConfigError, match=told):
        check_registered(wrong)
    (folder / "alone.yaml").write_text(text.replace("imports: [own_lion.py, own_laplace.py]", ""))
    with pytest.raises(StudyError, match=r"alone\.yaml:6"):
        load(folder / "alone.yaml")
