from importlib.util import find_spec
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hpo.cli import main
from hpo.environments.table import EnvEntry, EnvKey
from hpo.errors import StudyError
from hpo.studies.check import check
from hpo.studies.init_file import init_text
from hpo.studies.load import loads
from hpo.studies.resolved import diff, resolved

STUDY = """\
env: {id: gym:CartPole-v1, max_episode_steps: 200}
env_steps: 20k
space:
  learning_rate: {min: 1e-4, max: 1e-2}
  env.sutton_barto_reward: {values: [false, true]}
eval_env: {max_episode_steps: 500}
population: {workers: 2}
"""


def mistakes(text):
    with pytest.raises(StudyError) as caught:
        loads(text)
    return [(mistake.line, mistake.text) for mistake in caught.value.mistakes]


def test_a_study_of_a_gymnasium_environment_loads_and_is_checked():
    study = loads(STUDY)
    assert study.env.values == {"max_episode_steps": 200}
    assert study.evaluation.env == {"max_episode_steps": 500}
    assert study.population.workers == 2
    report = check(study)
    assert report.bucket_count == 2 and not report.mistakes, "another constructor, another bucket"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("CartPole-v1", "CartPole-v7", 1, "unknown environment 'gym:CartPole-v7'; did you mean"),
        ("max_episode_steps: 200", "steps: 3", 1, "gym:CartPole-v1 has no key 'steps'"),
        ("CartPole-v1, max_episode_steps: 200", "Blackjack-v1", 1, "observations of type"),
        ("env.sutton_barto_reward", "env.gravity", 5, "no key 'env.gravity'"),
        ("workers: 2", "workers: -1", 7, "population.workers is -1; allowed: a whole number"),
        ("workers: 2", "step_timeout: soon", 7, "population.step_timeout is 'soon'; allowed: a t"),
    ],
)
def test_gymnasium_mistakes_are_refused_with_line(old, new, line, said):
    text = STUDY.replace(old, new)
    if "Blackjack" in new:
        text = "\n".join(row for row in text.splitlines() if "env." not in row)
    found = mistakes(text)
    assert any(at == line and said in told for at, told in found), found


def test_eval_env_with_different_spaces_is_refused():
    text = STUDY.replace("gym:CartPole-v1, max_episode_steps: 200", "gym:FrozenLake-v1")
    text = text.replace("max_episode_steps: 500", "map_name: 8x8").replace(
        "env.sutton_barto_reward", "env.is_slippery"
    )
    assert any("different observations or actions" in told for _, told in mistakes(text))


def test_workers_for_compiled_environment_are_refused():
    text = "env: CartPole-v1\nenv_steps: 20k\npopulation: {workers: 2}\n"
    assert mistakes(text) == [
        (
            3,
            "population.workers applies only to gym: environments, but CartPole-v1 is compiled; "
            "remove it",
        )
    ]


def test_worker_count_may_change_on_resume():
    one, other = loads(STUDY), loads(STUDY.replace("workers: 2", "workers: auto"))
    for before, after in ((one, other), (other, one)):
        changes = diff(resolved(before), resolved(after))
        assert [(c.key, c.allowed) for c in changes] == [("population.workers", True)]


def test_unknown_gymnasium_ids_are_allowed_with_imports(tmp_path):
    (tmp_path / "mine.py").write_text("")
    text = "imports: [mine.py]\nenv: {id: gym:Mine-v0, size: 3}\nenv_steps: 20k\n"
    assert loads(text, source=Path(tmp_path)).env.id == "gym:Mine-v0"


def test_gymnasium_starter_study_loads():
    assert loads(init_text("gym:Pendulum-v1")).env.id == "gym:Pendulum-v1"


@pytest.mark.skipif(find_spec("Box2D") is None, reason="Box2D is not installed")
@pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning")  # Box2D's, by SWIG
def test_starter_study_accepts_gymnasium_id_without_prefix():
    study = loads(init_text("LunarLander-v3"))
    assert study.env.id == "gym:LunarLander-v3" and study.name == "gym-lunarlander-v3"


def test_gymnasium_id_without_prefix_suggests_prefix():
    text = "env: LunarLander-v3\nenv_steps: 20k\n"
    [(line, told)] = mistakes(text)
    assert line == 1 and "did you mean 'gym:LunarLander-v3'?" in told


def test_starter_study_omits_inactive_environment_parameters(monkeypatch):
    def lander(wind):
        keys = {"enable_wind": EnvKey("bool", wind)}
        params = {"gravity": -10.0, "wind_power": 15.0}
        return EnvEntry("gym:Lander", "gymnasium", "any", params, keys)

    monkeypatch.setattr("hpo.studies.init_file.entry", lambda id_: lander(False))
    assert "env.gravity" in init_text("gym:Lander") and "wind_power" not in init_text("gym:Lander")
    monkeypatch.setattr("hpo.studies.init_file.entry", lambda id_: lander(True))
    assert "env.wind_power" in init_text("gym:Lander")


def test_step_timeout_may_change_and_is_omitted_if_unset():
    plain, limited = loads(STUDY), loads(STUDY.replace("workers: 2", "step_timeout: 1m30s"))
    assert "step_timeout" not in resolved(plain)["population"]
    assert limited.population.step_timeout == resolved(limited)["population"]["step_timeout"] == 90
    changes = diff(resolved(plain), resolved(limited))
    assert {change.key for change in changes if change.allowed} == {
        "population.workers",
        "population.step_timeout",
    }
    assert len(changes) == 2


def test_step_timeout_for_compiled_environment_is_refused():
    text = STUDY.replace("gym:CartPole-v1, max_episode_steps: 200", "CartPole-v1")
    lines = [row for row in text.splitlines() if "env." not in row and "eval_env" not in row]
    found = mistakes("\n".join(lines).replace("workers: 2", "step_timeout: 5s"))
    assert any(
        at == 5 and "population.step_timeout applies only to gym:" in told for at, told in found
    )


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
        spaces.Box(0, 4, (2,), np.int64),
    ],
)
def test_init_refuses_actions_that_no_policy_can_take(space, monkeypatch, capsys):
    class Odd(gymnasium.Env):
        observation_space = spaces.Box(-1.0, 1.0, (2,))
        action_space = space

    spec = gymnasium.envs.registration.EnvSpec("Odd-v0", Odd)
    monkeypatch.setitem(gymnasium.registry, "Odd-v0", spec)
    assert main(["init", "gym:Odd-v0"]) == 2
    said = capsys.readouterr()
    assert "Odd-v0 has the action space" in said.err and "allowed: Discrete" in said.err
    assert said.out == ""
