import json
import subprocess
import sys

import gymnasium
import pytest

from helpers.own_chain import CHAIN
from hpo.cli import main
from hpo.search.lanes import local
from hpo.search.study_estimate import preview
from hpo.studies.load import load, loads

TEXT = """\
env: CartPole-v1
env_steps: 100k
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  hidden_sizes: {values: [[8], [16, 16]]}
budget: {trials: 20}
"""


@pytest.mark.parametrize(
    ("key", "lacking"),
    [
        ("search: {method: smac}", "search method 'smac' needs the package smac"),
        ("executor: {type: ray, workers: 1}", "Ray needs the package 'ray'"),
        ("search: {method: random}", ""),
    ],
)
def test_check_warns_of_packages_that_the_run_needs(key, lacking, monkeypatch):
    for module in ("study_estimate", "samplers.registry"):
        monkeypatch.setattr(f"hpo.search.{module}.find_spec", lambda name: None)
    report, _ = preview(loads(f"{TEXT}{key}\n"))
    found = [one for one in report.warnings if "not installed" in one]
    assert len(found) == bool(lacking) and all(one.startswith(lacking) for one in found)


def test_preview_lanes_and_memory_equal_those_of_program(monkeypatch):
    def compiled(*args):
        raise AssertionError("nothing is compiled for a check")

    monkeypatch.setattr("hpo.core.program.Program.compile", compiled)
    study = loads(TEXT)
    report, note = preview(study)
    assert note == ""
    factory = local.LocalFactory(study)
    for bucket, cost in report.buckets:
        params = {**study.space.default(), **bucket.static}
        resolved = factory.resolve(study.complete(params))
        program = factory.expected_program(resolved, 2)
        assert factory.program_of(resolved).lanes == 24
        assert cost.lanes == program.lanes == 16  # half of 20 trials, in blocks of 8
        assert cost.memory_bytes == program.memory_bytes() > 0
    small, large = (cost.memory_bytes for _, cost in report.buckets)
    assert small < large


def test_preview_for_different_device_leaves_lanes_unknown():
    report, note = preview(loads(TEXT + "population: {device: gpu}\n"))
    assert report.buckets[0][1].lanes is None
    assert "unknown here: device is 'gpu'" in note


def test_user_code_does_not_run_in_a_check(tmp_path):
    (tmp_path / "mine.py").write_text("raise RuntimeError('ran')\n")
    (tmp_path / "s.yaml").write_text("imports: [mine.py]\n" + TEXT)
    report, note = preview(load(tmp_path / "s.yaml"))
    assert report.bucket_count == 2
    assert "imports" in note


@pytest.mark.parametrize("lanes", [8, 32])
def test_given_lanes_are_taken(lanes):
    report, _ = preview(loads(TEXT + f"population: {{lanes: {lanes}}}\n"))
    assert report.buckets[0][1].lanes == lanes


def test_given_lanes_are_rounded_up_to_the_devices():
    report, _ = preview(loads(TEXT + "population: {lanes: 15}\n"))
    devices = len(local.LocalFactory(loads(TEXT)).devices)
    assert report.buckets[0][1].lanes == -(-15 // devices) * devices


DICT = """
import gymnasium
import numpy as np

SPACES = gymnasium.spaces


class Pair(gymnasium.Env):
    observation_space = SPACES.Dict(a=SPACES.Box(-1, 1, (2,), np.float32))
    action_space = SPACES.Discrete(2)


gymnasium.register("hpo-test/Pair-v0", entry_point=Pair, max_episode_steps=50)
"""


def test_check_lists_files_not_checked(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gymnasium.registry.pop("hpo-test/Pair-v0", None)
    (tmp_path / "pair.py").write_text(DICT)
    text = TEXT.replace("CartPole-v1", "gym:hpo-test/Pair-v0")
    (tmp_path / "s.yaml").write_text(f"imports: [pair.py]\n{text}")
    for more in ([], ["--no-time"]):
        assert main(["check", "s.yaml", *more]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith(
            "The study file is OK. Not checked: pair.py; to check the code, run hpo check --time "
            "s.yaml. Runs 20 trials of gym:hpo-test/Pair-v0."
        )
        assert said.count("pair.py") == 1 and "note:" not in said
        assert "no known episode limit" not in said
    assert main(["check", "s.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imports_not_run"] == ["pair.py"]
    assert main(["check", "s.yaml", "--time"]) == 2
    said = capsys.readouterr().err
    assert "has observations of type Dict; allowed: Box" in said
    assert "(hpo init gym:hpo-test/Pair-v0 --import pair.py)" in said


def _chain_study(folder, module, code, env=None):
    (folder / f"{module}.py").write_text(code)
    text = TEXT.replace("CartPole-v1", env or f"gymnax:{module}:Chain")
    (folder / "s.yaml").write_text(f"imports: [{module}.py]\n{text}")


@pytest.mark.parametrize("several", [False, True])
def test_check_traces_custom_environments_before_it_times_them(
    tmp_path, capsys, monkeypatch, several
):
    monkeypatch.chdir(tmp_path)
    module = f"broken_chain_{several}".lower()
    code = CHAIN.replace("State(place=place,", "State(place=place.astype(jnp.float32),")
    scores = "scores: {random: 0.1, reference: 20.0}"
    both = f"[CartPole-v1, {{id: 'gymnax:{module}:Chain', {scores}}}]"
    env = both if several else None
    _chain_study(tmp_path, module, code, env)
    assert main(["check", "s.yaml", "--time"]) == 2
    line = 1 + next(at for at, text in enumerate(code.splitlines()) if "def step_env" in text)
    said = capsys.readouterr().err
    assert f"{module}.py:{line}: " in said and "Traceback" not in said
    assert "state.place is float32[]; it must be int32[], as returned by reset" in said


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", None),
        (", max_steps_in_episode: 20000", None),
        (", max_steps_in_episode: 30000", "has an episode limit of 30,000 env steps, but"),
    ],
)
def test_episode_limit_of_a_class_is_read_from_its_parameters(tmp_path, more, told):
    (tmp_path / "limit_chain.py").write_text(CHAIN)
    env = f"{{id: 'gymnax:limit_chain:Chain'{more}}}"
    text = TEXT.replace("100k", "8k").replace("CartPole-v1", env)
    (tmp_path / "s.yaml").write_text(f"imports: [limit_chain.py]\n{text}")
    report, _ = preview(load(tmp_path / "s.yaml"), own_code=True)
    limits = [one for one in report.warnings if "episode limit" in one]
    assert len(limits) == (told is not None) and all(told in one for one in limits)


def test_class_without_a_limit_gets_the_note(tmp_path):
    code = CHAIN.replace("max_steps_in_episode", "horizon").replace("(environment.EnvParams)", "")
    more = "def is_truncated(self, state, params):\n        return state.time >= params.horizon"
    (tmp_path / "horizon_chain.py").write_text(f"{code}\n    {more}\n")
    text = TEXT.replace("CartPole-v1", "gymnax:horizon_chain:Chain")
    (tmp_path / "s.yaml").write_text(f"imports: [horizon_chain.py]\n{text}")
    report, _ = preview(load(tmp_path / "s.yaml"), own_code=True)
    assert any(
        "gymnax:horizon_chain:Chain has no known episode limit" in w for w in report.warnings
    )


def test_check_detects_logger_that_cannot_start(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setattr("hpo.store.wandb_sink._logged_in", lambda: False)
    (tmp_path / "s.yaml").write_text(f"{TEXT}loggers: [wandb]\n")
    assert main(["check", "s.yaml", "--no-time"]) == 2
    said = capsys.readouterr().err
    assert "you are not logged in" in said or "needs the package 'wandb'" in said
    (tmp_path / "s.yaml").write_text(f"{TEXT}loggers: [csv, console]\n")
    assert main(["check", "s.yaml", "--no-time"]) == 0


def _logged_in_elsewhere():
    """Ask in a new process: wandb remembers the account of this one."""
    code = "from hpo.store import wandb_sink; raise SystemExit(not wandb_sink._logged_in())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("there", [False, True])
def test_wandb_login_is_detected_silently(tmp_path, monkeypatch, capfd, there):
    pytest.importorskip("wandb")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    if there:
        words = f"machine api.wandb.ai\n  login user\n  password {'1' * 40}\n"
        (tmp_path / ".netrc").write_text(words)
        (tmp_path / ".netrc").chmod(0o600)
    assert _logged_in_elsewhere() is there
    assert capfd.readouterr() == ("", "")


def test_default_alone_confirms_only_itself(tmp_path, capsys):
    """`enqueue` and the portfolio come after the default, so one trial leaves them out."""
    path = tmp_path / "one.yaml"
    path.write_text(
        "env: CartPole-v1\nenv_steps: 4096\nspace: {gamma: {min: 0.9, max: 0.99}}\n"
        "enqueue: [{gamma: 0.9}]\nsearch: {portfolio: 2}\nbudget: {trials: 1}\n"
        "confirm: {top_k: 1, choose: 2, report: 4}\n"
    )
    assert main(["check", str(path)]) == 0
    assert "  confirm   default on 2 selection seeds and 4 test seeds\n" in capsys.readouterr().out
