"""What the documents say to type is typed: every block marked sh, page by page, in its order.

A page's commands run in a folder that holds the files its reader is said to have. Training follows
formulas but in START, whose study is shortened, trained and evaluated for real.
"""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from helpers.analytic_lanes import AnalyticFactory, AnalyticPopulation
from helpers.loading import run_file
from hpo.cli import main
from hpo.core.saved_policy import load_policy
from hpo.search.lanes import local
from hpo.store import query

pytestmark = pytest.mark.usefixtures("quickly_compiled")

ROOT = Path(__file__).resolve().parent.parent
documents = run_file("tests/test_docs.py")
START = "docs/start.md"
STUDY = """\
env: CartPole-v1
env_steps: 16k
space:
  learning_rate: {min: 1e-5, max: 1e-1, distribution: log_uniform}
  gamma: {min: 0.9, max: 0.999, distribution: one_minus_log}
search: {method: random}
confirm: {top_k: 2, choose: 5, report: 8}
budget: {trials: 20}
"""
SWEEP = """\
program: train.py
method: bayes
metric: {name: episode_return, goal: maximize}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1.0e-5, max: 1.0e-1}
  gamma: {values: [0.98, 0.99]}
run_cap: 12
"""
ZOO = """\
CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: 'MlpPolicy'
  n_steps: 32
  batch_size: 256
  learning_rate: lin_0.001
"""
SHORT = [
    word
    for change in (
        "env_steps=4k",
        "budget.trials=10",
        "seeds.per_config=1",
        "evaluation.episodes=4",
        "early_terminate=null",
        "confirm=null",
        "fixed.num_envs=4",
        "fixed.hidden_sizes=[8]",
    )
    for word in ("--set", change)
]
NOT_RUN = {
    r"(python -m venv|pip install) ": "installs: tests/test_packaging.py builds and installs",
    r"podman ": "needs containers",
    r"ray (get-auth-token|start) |export RAY_AUTH_MODE|hpo run .* executor\.address=auto": (
        "needs a cluster: tests/search/cluster/test_ray.py has one of this machine's processes"
    ),
    r"hpo (run (first|second)|best --study first)": "trained for real, below",
    r"pytest ": "these tests",
    r"scripts/tuned |.*hpo tuned \w|hpo train tuned:": (
        "train for minutes, or need their records: tests/search/tuned, tests/views"
    ),
    r"hpo (serve|watch)": "goes on until it is stopped: tests/views/ start and stop them",
    r"hpo (paper|bundle|verify) |hpo top .*--latex|cd paper ": (
        "need a finished study: tests/views/test_paper.py, test_bundle.py"
    ),
    r"hpo init --command|hpo (check|run) script.yaml": (
        "need a script: tests/studies/test_script_flags.py, tests/search/lanes/test_processes.py"
    ),
    r"scripts/(check|docs|house|wheel)$": "test_docs.py, test_house.py, test_packaging.py: parts",
    r"eval \"\$\(hpo completion": "changes the shell: tests/test_completion.py asks as one does",
    r"hpo what-if": "reads chunks of real training: tests/search/what_if gives it formulas'",
    r"source$": "changes the shell, as above",
}
"""What cannot be typed here, and why."""


class _Formulas(AnalyticFactory):
    def check(self, config):
        """Every configuration can run."""

    def resolve(self, config):
        """Few chunks: of 8,000 env steps."""
        return replace(super().resolve(config), steps_per_chunk=8_000)

    def make(self, resolved, lanes):
        return _Returns(self, resolved.steps_per_chunk, lanes or self.lanes)


class _Returns(AnalyticPopulation):
    """Lanes whose curves have the training return, as those that train have."""

    def advance(self, refills, busy):
        def shown(row):
            return replace(row, metrics={**row.metrics, "episode_return": row.metrics["skill"]})

        result = super().advance(refills, busy)
        return replace(shown(result), rows=tuple(map(shown, result.rows)))


REJAX = """\
import jax
from rejax import PPO

algo = PPO.create(env="CartPole-v1", num_envs=64, num_steps=100, total_timesteps=131072)
algo.train(jax.random.PRNGKey(0))
"""
PLAYGROUND = """\
def brax_ppo_config(env_name):
    return config_dict.create(
        num_timesteps=60_000_000, reward_scaling=10.0, episode_length=1000,
        normalize_observations=True, unroll_length=30, num_minibatches=32,
        num_updates_per_batch=16, discounting=0.995, learning_rate=1e-3, entropy_cost=1e-2,
        num_envs=2048, batch_size=1024,
    )
"""


def of_optuna(path):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=f"sqlite:///{path}", study_name="ppo", direction="maximize"
    )
    for rate in (1e-4, 1e-3, 1e-2):
        space = {"learning_rate": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True)}
        done = optuna.trial.create_trial(
            params={"learning_rate": rate}, distributions=space, value=rate
        )
        study.add_trial(done)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a study file, and the results of its run."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "my.yaml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(local, "LocalFactory", lambda *a, **b: _Formulas())
        assert main(["run", "my.yaml", "--quiet"]) == 0
    return folder


@pytest.fixture
def reader(finished, tmp_path, monkeypatch):
    """Return what puts a reader of a page where its files are."""

    def sit(page):
        monkeypatch.chdir(tmp_path)
        if page in ("docs/results.md", "docs/reference/tables.md", "results/README.md"):
            shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
        Path("studies").symlink_to(ROOT / "studies")
        Path("sweep.yaml").write_text(SWEEP)
        Path("hyperparams").mkdir()
        for path in ("ppo.yml", "hyperparams/ppo.yml"):
            Path(path).write_text(ZOO)
        if page == "docs/from-optuna.md":
            of_optuna("trials.db")
        if page == "docs/from-rejax.md":
            Path("train.py").write_text(REJAX)
        if page == "docs/migrating.md":
            Path("dm_control_suite_params.py").write_text(PLAYGROUND)
        if page == "docs/outputs.md":
            Path("my.yaml").write_text(STUDY)
        if page in ("docs/atlas.md", "docs/reference/atlas.md"):
            Path("results").symlink_to(ROOT / "results")

    return sit


def finished_trials(study):
    """Return two trials for those that a page compares: which ones finish is nobody's choice."""
    done = query(Path("results") / study, "SELECT trial FROM trials WHERE value IS NOT NULL")[1]
    return [str(trial) for (trial,) in done[:2]]


def typed_on(page):
    """Yield the lines of a page's blocks, each with its `hpo` commands."""
    for line in documents.blocks(page.read_text()):
        if told := re.sub(r"(^|\s+)#.*", "", line).strip():
            yield told, list(documents.commands(line))


def files_replaced(page):
    """Return the study files that a page tells to replace, by the command that comes next."""
    blocks = re.findall(
        r"Replace `(\S+)` with:\n\n```yaml\n(.*?)```\n.*?```sh\n(.*?)\n", page.read_text(), re.S
    )
    return {command: (file, study) for file, study, command in blocks}


def why_not(line):
    found = [reason for pattern, reason in NOT_RUN.items() if re.search(pattern, line)]
    return found[0] if found else None


PAGES = [page for page in documents.PAGES if list(typed_on(page))]


@pytest.mark.parametrize("page", PAGES, ids=documents.named)
def test_documented_shell_commands_run(page, reader, monkeypatch, capsys):
    name = documents.named(page)
    reader(name)
    replaced = files_replaced(page)
    for line, commands in typed_on(page):
        if line in replaced:
            file, study = replaced[line]
            Path(file).write_text(study)
        if why_not(line) is not None and not (name == "README.md" and commands):
            continue
        assert commands, f"{name}: say in NOT_RUN why `{line}` is not run"
        for words in commands:
            words = [word.replace("NAME", "my") for word in words]
            if words[0] == "compare" and "--study" in words:
                words[1:3] = finished_trials(words[words.index("--study") + 1])
            with monkeypatch.context() as patch:
                if words[0] in ("run", "train"):
                    words.append("--quiet")
                    if name == START:
                        words += SHORT
                    else:
                        patch.setattr(local, "LocalFactory", lambda *a, **b: _Formulas())
                code = main(words)
            err = capsys.readouterr().err
            assert code == 0, f"{name}: hpo {' '.join(words)}: {err}"


def test_not_run_patterns_are_all_used():
    lines = [line for page in PAGES for line, _ in typed_on(page)]
    assert [p for p in NOT_RUN if not any(re.search(p, line) for line in lines)] == []


def test_documented_second_stage_starts_from_the_first_policy(tmp_path, monkeypatch, capsys):
    """The two files of docs/outputs.md, shortened, trained for real."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "outputs.md").read_text().split("### Stages")[1].split("\n## ")[0]
    first, second = re.findall(r"```yaml\n(.*?)```", page, re.S)
    Path("first.yaml").write_text(first)
    Path("second.yaml").write_text(second)
    lines = [words for line in documents.blocks(page) for words in documents.commands(line)]
    short = ["fixed.num_envs=4", "fixed.hidden_sizes=[8]", "fixed.rollout_length=16",
             "fixed.minibatch_size=32", "budget.trials=2", "seeds.per_config=1",
             "evaluation.episodes=4", "confirm=null"]  # fmt: skip
    for words in lines:
        length = "2k" if "first.yaml" in words else "256"
        changes = [*short, f"env_steps={length}"] if words[0] == "run" else []
        done = main([*words, *(word for change in changes for word in ("--set", change))])
        assert done == 0, capsys.readouterr().err
    assert load_policy("first-policy").about["study"] == "first"
    before, after = (
        load_policy(f"{folder}").params
        for folder in ("first-policy", sorted(Path("results/second/policies").iterdir())[0])
    )
    moved = [abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)]
    assert 0.0 < max(moved) < 0.1  # four updates at a small rate after the first's policy
