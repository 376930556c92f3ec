"""Files that a study names: which they are, and that one that changed is noticed."""

import dataclasses
import sys
from pathlib import Path

import gymnasium
import pytest

import hpo
from helpers import search_samples as samples
from hpo.cli import main
from hpo.errors import StoreError
from hpo.search.engine.callbacks import StopStudy
from hpo.search.run import run
from hpo.search.state.progress import Observer
from hpo.spaces import Parameter, Space, make_distribution
from hpo.store.journal import Journal
from hpo.store.rows import Commit
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget, Init
from hpo.studies.search_spec import Evaluation
from hpo.studies.study_files import changed_files, files_of_study
from hpo.studies.yaml_io import plain, read_text


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("_csv", ".csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def modules_of_this_test(monkeypatch):
    """Let `import beside` find this test's file, not one of a test before it."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "beside", raising=False)


@pytest.fixture
def named(tmp_path):
    """A study whose imports use modules beside them: by name, in a package, relatively, late."""
    write(
        tmp_path,
        envs_py="import helper, json\nfrom pack import inner\ndef f():\n    import late\n",
        helper_py="from deeper import x\n",
        deeper_py="import envs\nx = 1\n",
        late_py="",
        unused_py="",
        pack__main_py="",
    )
    (tmp_path / "pack/__init__.py").write_text("from . import other\n")
    (tmp_path / "pack/inner.py").write_text("from .third import y\n")
    for name in ("other", "third"):
        (tmp_path / f"pack/{name}.py").write_text("y = 2\n")
    return samples.study(
        imports=("envs.py",), source=str(tmp_path), budget=Budget(trials=8), confirm=None
    )


def test_study_files_include_local_imports(named):
    assert sorted(files_of_study(named)) == [
        "deeper.py",
        "envs.py",
        "helper.py",
        "late.py",
        "pack/__init__.py",
        "pack/inner.py",
        "pack/other.py",
        "pack/third.py",
    ]


def test_study_files_include_all_environment_files(tmp_path):
    write(tmp_path, net_csv="a", other_csv="b", held_csv="c", third_csv="d", traffic_csv="e")
    searched = Parameter(
        "env.topology", make_distribution({"values": ["NSFNET", "other.csv"]}), "other.csv"
    )
    study = samples.study(
        Space((*samples.REAL.parameters, searched)),
        env=EnvSpec("rmsa", {"topology": "net.csv", "requests": "traffic.csv", "load": 200.0}),
        evaluation=Evaluation(env={"topology": "held.csv"}),
        enqueue=({"env.topology": "third.csv"},),
        source=str(tmp_path),
    )
    found = sorted(files_of_study(study))
    assert found == ["held.csv", "net.csv", "other.csv", "third.csv", "traffic.csv"]
    assert files_of_study(dataclasses.replace(study, env=EnvSpec("CartPole-v1"))) == {}


def test_study_files_include_initial_policy(tmp_path):
    (tmp_path / "p/arrays").mkdir(parents=True)
    (tmp_path / "p/parts").mkdir()
    for name in ("policy.json", "arrays/SHA256SUMS", "parts/optimiser.npz", "report.html"):
        (tmp_path / "p" / name).write_text(name)
    study = samples.study(init=Init("p"), source=str(tmp_path))
    assert sorted(files_of_study(study)) == ["p/arrays/SHA256SUMS", "p/policy.json"]
    restored = dataclasses.replace(study, init=Init("p", optimiser="restored"))
    assert files_of_study(restored).keys() - files_of_study(study) == {"p/parts/optimiser.npz"}


TRAINING = """
import pathlib

import jax.numpy as jnp

import hpo

RATE = 0.3


class Bowl(hpo.Training):
    rate = hpo.traced(RATE, low=0.0)

    def setup(self):
        self.steps_per_update = 5

    def init(self, key, h):
        return jnp.ones(2)

    def update(self, state, h):
        return state * (1 - h.rate), {}

    def evaluate(self, state, h, key):
        return {"return": -jnp.sum(state**2)}
"""
TRAINED = """
algorithm: bowl.py:Bowl
length: 40
space: {rate: {min: 0.1, max: 0.9, distribution: uniform}}
search: {method: random}
evaluation: {episodes: 1, every: 20}
seeds: {per_config: 1}
budget: {trials: 3}
population: {lanes: 2}
confirm: null
"""


def trap(file, marker):
    """Change a file so that it leaves a mark when it is run."""
    text = file.read_text()
    file.write_text(f"import pathlib\npathlib.Path({str(marker)!r}).write_text('ran')\n{text}")


@pytest.mark.parametrize("changed", ["bowl.py", "beside.py"])
@pytest.mark.parametrize(
    "words",
    [
        ["what-if"],
        ["replay", "0"],
        ["confirm", "0", "--seeds", "2"],
        ["run", "study.yaml", "--set", "budget.trials=6"],
        ["run", "study.yaml"],
    ],
)
def test_changed_file_is_never_executed_before_checksum_check(
    tmp_path, monkeypatch, capsys, words, changed
):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, beside_py="", bowl_py=TRAINING.replace("import hpo", "import hpo, beside"))
    (tmp_path / "study.yaml").write_text(TRAINED)
    assert main(["run", "study.yaml", "--quiet"]) == 0
    if words == ["run", "study.yaml"]:  # as if it had been interrupted
        with Journal(tmp_path / "results/study", writable=True) as journal:
            head = journal.head()
            journal.commit(Commit(head.number + 1, head.loop_state, head.checkpoint, head.at))
    trap(tmp_path / changed, tmp_path / "mark")
    capsys.readouterr()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert f"{changed}: its sha256 was" in error
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("changed", ["bowl.py", "beside.py"])
@pytest.mark.parametrize("form", ["file", "retry", "text", "mapping", "train"])
def test_python_api_checks_checksums_before_executing_files(tmp_path, monkeypatch, form, changed):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, beside_py="", bowl_py=TRAINING.replace("import hpo", "import hpo, beside"))
    call = hpo.train if form == "train" else hpo.run
    (tmp_path / "study.yaml").write_text(TRAINED)
    call("study.yaml", progress=False)
    asked = TRAINED if form == "retry" else TRAINED.replace("trials: 3", "trials: 6")
    (tmp_path / "study.yaml").write_text(asked)
    given = {"text": hpo.yaml(asked), "mapping": plain(read_text(asked, "study.yaml"))}
    more = {"retry_failed": True} if form == "retry" else {}
    trap(tmp_path / changed, tmp_path / "mark")
    with pytest.raises(StoreError, match=f"{changed}: its sha256 was") as told:
        call(given.get(form, "study.yaml"), name="study", progress=False, **more)
    assert "accept_changed_files=True" in str(told.value)
    assert not (tmp_path / "mark").exists()
    if form == "file":
        assert call("study.yaml", progress=False, accept_changed_files=True).state == "finished"
        assert (tmp_path / "mark").exists()


MOVES = {
    "import": ("import hpo\n", "import hpo, os\nos.chdir('elsewhere')\n"),
    "setup": ("    def setup(self):\n", "    def setup(self):\n        os.chdir('elsewhere')\n"),
    "init": (
        "    def init(self, key, h):\n",
        "    def init(self, key, h):\n        os.chdir(PLACE)\n",
    ),
    "update": (
        "    def update(self, state, h):\n",
        "    def update(self, state, h):\n        os.chdir(PLACE)\n",
    ),
}


@pytest.mark.parametrize("where", MOVES)
def test_study_keeps_its_folder_when_code_changes_directory(tmp_path, monkeypatch, capsys, where):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    moved = TRAINING.replace(*MOVES[where]).replace("import pathlib", "import os, pathlib")
    write(tmp_path, bowl_py=f"PLACE = {str(tmp_path / 'elsewhere')!r}\n{moved}")
    (tmp_path / "study.yaml").write_text(TRAINED)
    assert main(["run", "study.yaml", "--quiet"]) == 0
    assert not any((tmp_path / "elsewhere").iterdir())
    monkeypatch.chdir(tmp_path)
    assert (tmp_path / "results/study/report.html").is_file()
    assert main(["top"]) == 0
    assert main(["run", "study.yaml", "--quiet", "--set", "budget.trials=4"]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["confirm", "0", "--seeds", "2", "--quiet"]) == 0
    assert not any((tmp_path / "elsewhere").iterdir())


MOVING = """
import os

import gymnasium
import numpy as np

PLACE = {place!r}


class Moving(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        {made}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        {reset}
        self.at = 0
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.at += 1
        return np.zeros(2, np.float32), float(action), self.at >= 8, False, {{}}


gymnasium.register("hpo-test/Moving-v0", entry_point=Moving)
"""


@pytest.mark.parametrize("where", ["made", "reset"])
def test_study_keeps_its_folder_when_environment_changes_directory(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    gymnasium.registry.pop("hpo-test/Moving-v0", None)
    (tmp_path / "elsewhere").mkdir()
    lines = {"made": "pass", "reset": "pass", where: "os.chdir(PLACE)"}
    write(tmp_path, moving_py=MOVING.format(place=str(tmp_path / "elsewhere"), **lines))
    (tmp_path / "study.yaml").write_text(
        "env: gym:hpo-test/Moving-v0\nimports: [moving.py]\nenv_steps: 128\nconfirm: null\n"
        "fixed: {num_envs: 2, rollout_length: 16, num_minibatches: 1, hidden_sizes: [8]}\n"
        "space: {learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}}\n"
        "evaluation: {episodes: 2}\nseeds: {per_config: 1}\nbudget: {trials: 2}\n"
        "population: {lanes: 2, workers: 0}\nsearch: {method: random}\n"
    )
    assert main(["run", "study.yaml", "--quiet"]) == 0
    assert not any((tmp_path / "elsewhere").iterdir())
    kept = next((tmp_path / "results/study/policies").iterdir())
    assert (kept / "imports/moving.py").is_file()


def test_finished_study_is_shown_despite_changed_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, bowl_py=TRAINING)
    (tmp_path / "study.yaml").write_text(TRAINED)
    assert main(["run", "study.yaml", "--quiet"]) == 0
    trap(tmp_path / "bowl.py", tmp_path / "mark")
    assert main(["run", "study.yaml", "--quiet"]) == 0
    assert "finished" in capsys.readouterr().out
    assert main(["confirm", "0", "--seeds", "2", "--accept-changed-files", "--quiet"]) == 0


class Cut(Observer):
    def __init__(self, chunks):
        self.left = chunks

    def on_chunk(self, progress):
        self.left -= 1
        if not self.left:
            raise StopStudy


def begin(folder, study):
    return run(study, folder, samples.AnalyticFactory(), [Cut(4)], samples.quick())


def go_on(folder, study, **settings):
    return run(study, folder, samples.AnalyticFactory(), (), samples.quick(**settings))


def bits(folder):
    with Journal(folder) as journal:
        return journal.meta.bits, sorted({row.bits for row in journal.trials()})


def test_changed_file_is_refused_until_accepted_and_marks_later_trials(named, tmp_path):
    folder, source = tmp_path / "study", Path(named.source)
    assert begin(folder, named).state == "interrupted"
    (source / "helper.py").write_text("from deeper import x\nx = 2\n")
    (source / "late.py").unlink()
    before = (folder / "journal.sqlite").read_bytes()
    with pytest.raises(
        StoreError,
        match=r"(?s)start another study, or resume with the changed files.*helper\.py: its "
        r"sha256 was [0-9a-f]{12}, now it is .*late\.py: is gone",
    ) as told:
        go_on(folder, named)
    assert "envs.py" not in str(told.value)
    assert (folder / "journal.sqlite").read_bytes() == before
    assert go_on(folder, named, accept_changed_files=True).state == "finished"
    assert bits(folder) == (1, [0, 1])  # one had ended before
    assert go_on(folder, named).state == "finished"  # nothing is left to do, nothing is compared
    with Journal(folder) as journal:
        assert changed_files(journal.meta.files, source) == {}


def test_unused_file_changes_do_not_prevent_resume(named, tmp_path):
    folder = tmp_path / "study"
    begin(folder, named)
    (Path(named.source) / "unused.py").write_text("other = 1\n")
    assert go_on(folder, named).state == "finished"
    assert bits(folder) == (0, [0])


def test_study_without_stored_checksums_resumes_and_is_checked_later(named, tmp_path):
    folder = tmp_path / "study"
    begin(folder, named)
    with Journal(folder, writable=True) as journal:
        journal.replace_meta(dataclasses.replace(journal.meta, files={}))
    (Path(named.source) / "helper.py").write_text("x = 3\n")
    assert begin(folder, named).state == "interrupted"
    (Path(named.source) / "helper.py").write_text("x = 4\n")
    with pytest.raises(StoreError, match=r"helper\.py: its"):
        go_on(folder, named)
