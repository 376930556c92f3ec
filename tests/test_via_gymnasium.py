import subprocess
import sys
from functools import partial

import gymnasium
import pytest

from hpo.cli import main
from hpo.core.host.batch import code_of
from hpo.environments import registry, via_gymnasium
from hpo.errors import ConfigError, MissingExtraError, UnimportedModuleError, UnknownNameError
from hpo.studies.check import check
from hpo.studies.env_spec import has_key
from hpo.studies.load import load, loads, recorded
from hpo.studies.programs import programs_note, static_searched
from hpo.studies.resolved import resolved_yaml
from hpo.studies.study_values import check_env_value
from hpo.studies.user_code import import_user_code


def test_float_constructor_arguments_are_parameters_others_keys():
    entry = registry.entry("gym:FrozenLake-v1")
    assert entry.source == "gymnasium" and entry.actions == "any"
    assert entry.keys["map_name"].type == "str" and entry.keys["map_name"].default == "4x4"
    assert entry.keys["is_slippery"].default is True
    assert entry.params["success_rate"] == pytest.approx(1 / 3)
    assert entry.keys["max_episode_steps"].default == 100
    assert "render_mode" not in entry.keys
    assert registry.entry("gym:FrozenLake8x8-v1").keys["map_name"].default == "8x8"


def test_gymnasium_env_values_are_validated():
    entry = registry.entry("gym:CartPole-v1")
    assert check_env_value(entry, "sutton_barto_reward", True) is True
    assert check_env_value(entry, "max_episode_steps", "1k") == 1000
    with pytest.raises(ConfigError, match="allowed: true or false"):
        check_env_value(entry, "sutton_barto_reward", 3)
    with pytest.raises(ConfigError, match="whole number of at least 1"):
        check_env_value(entry, "max_episode_steps", 0)
    with pytest.raises(ConfigError, match="did you mean 'max_episode_steps'"):
        check_env_value(entry, "max_steps", 10)


def test_unknown_gymnasium_id_gets_a_suggestion():
    with pytest.raises(UnknownNameError, match=r"did you mean 'gym:CartPole-v1'\? Nearest of \d"):
        registry.entry("gym:Cartpole-v1")
    with pytest.raises(UnknownNameError, match="gym:CartPole-v1"):
        registry.entry("gym:CartPole")
    assert registry.find("gym:Cartpole-v1") is None
    assert registry.find("Cartpole") is None
    assert registry.find("gym:CartPole-v1") is registry.entry("gym:CartPole-v1")


@pytest.mark.parametrize(
    ("id_", "package"),
    [
        ("gym:MiniGrid-Empty-5x5-v0", "minigrid"),
        ("gym:FetchReach-v4", "gymnasium-robotics"),
        ("gym:dm_control/cartpole-swingup-v0", "shimmy"),
    ],
)
def test_id_of_an_uninstalled_package_names_the_package(id_, package):
    with pytest.raises(UnimportedModuleError, match=rf"pip install '?{package}") as caught:
        registry.entry(id_)
    assert "did you mean" not in str(caught.value)
    assert "imports: [my_envs.py]" in str(caught.value)


def test_missing_gymnasium_names_the_extra(monkeypatch):
    def missing(name, *rest):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(via_gymnasium.importlib, "import_module", missing)
    with pytest.raises(
        MissingExtraError, match=r"gym:X-v0 needs .*'gymnasium'.*pip install .*\[gym\]"
    ):
        via_gymnasium.entry_of("gym:X-v0")


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("No module named 'mujoco'", MissingExtraError, r"'mujoco'.*pip install .*\[gym-all\]"),
        (
            "Box2D is not installed, you can",
            MissingExtraError,
            r"'Box2D'.*pip install .*\[gym-all\]",
        ),
        (
            "pygame is not installed, run",
            MissingExtraError,
            r"'pygame'.*pip install .*\[gym-all\]",
        ),
        ("No module named 'ale_py'", ConfigError, "cannot be imported: No module named 'ale_py'"),
    ],
)
def test_missing_gymnasium_dependency_is_named(monkeypatch, text, kind, said):
    real = via_gymnasium.importlib.import_module

    def partly(name, *rest):
        if name != "gymnasium":
            raise ImportError(text)
        return real(name)

    monkeypatch.setattr(via_gymnasium.importlib, "import_module", partly)
    with pytest.raises(kind, match=f"gym:CartPole-v1 .*{said}"):
        via_gymnasium.entry_of("gym:CartPole-v1")


def test_gymnasium_id_does_not_import_modules(tmp_path, monkeypatch):
    """A study file or a policy may come from anywhere."""
    (tmp_path / "hpo_test_never.py").write_text("raise SystemExit('was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for look in (registry.entry, partial(via_gymnasium.make, values={})):
        with pytest.raises(UnknownNameError, match=r"imports: \[my_envs.py\]"):
            look("gym:hpo_test_never:X-v0")
    assert registry.find("gym:hpo_test_never:X-v0") is None


def test_imported_module_can_register_gymnasium_ids(tmp_path, monkeypatch):
    (tmp_path / "hpo_test_maker.py").write_text(
        "import gymnasium\n"
        "def build(size: float = 2):\n"
        '    """A pole of some size."""\n'
        "    return gymnasium.make('CartPole-v1').unwrapped\n"
        "gymnasium.register('HpoTestMade-v0', entry_point=build, max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import_user_code(["hpo_test_maker.py"], tmp_path)
    entry = registry.entry("gym:hpo_test_maker:HpoTestMade-v0")
    assert entry.params == {"size": 2.0} and entry.meaning == "A pole of some size"
    env = via_gymnasium.make("gym:hpo_test_maker:HpoTestMade-v0", {})
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(7)][-1]
    with pytest.raises(UnknownNameError, match="unknown environment 'gym:hpo_test_maker:X-v0'"):
        registry.entry("gym:hpo_test_maker:X-v0")


def test_refused_constructor_values_get_one_line_errors():
    with pytest.raises(ConfigError, match=r"cannot be created with wrong=1: TypeError: [^\n]*$"):
        via_gymnasium.make("gym:CartPole-v1", {"wrong": 1})


def test_compiled_env_studies_do_not_import_gymnasium():
    code = (
        "import sys, hpo.environments.registry as e; e.entry('CartPole-v1'); e.find('nothing')\n"
        "assert not {'gymnasium', 'numpy', 'jax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


TANK = """
import gymnasium as gym
import numpy as np


class Tank(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, **k):
        self.inflow = k.get("inflow", 0.5)


gym.register("Open-v0", entry_point=Tank)
"""
STUDY = """
name: tank
env: gym:Open-v0
imports: [open_tank.py]
env_steps: 512
space:
  env.inflow: {min: 0.2, max: 0.8}
budget: {trials: 6}
"""


def test_unnamed_kwargs_are_static_keys_with_separate_programs(tmp_path):
    (tmp_path / "open_tank.py").write_text(TANK)
    study = loads(STUDY, source=tmp_path)
    before = check(study)
    assert not before.bucket_count_exact
    (note,) = (
        text for text in before.warnings if text.startswith("env.inflow: whether each value")
    )
    assert "A float constructor argument needs only one" in note
    import_user_code(["open_tank.py"], tmp_path)
    entry = registry.entry("gym:Open-v0")
    assert entry.is_open and entry.makes_program("inflow") and not entry.params
    assert entry.makes_program("max_episode_steps") and not entry.is_unnamed("max_episode_steps")
    assert check_env_value(entry, "inflow", 0.3) == 0.3
    assert static_searched(study) == ["env.inflow"] and has_key("gym:Open-v0", "env.inflow")
    assert recorded(resolved_yaml(study)).space.names == ("env.inflow",)
    after = check(study)
    assert any("env.inflow is static and searched over real" in text for text in after.warnings)
    advice = programs_note(study, 6, 6)
    assert (
        "search fewer values of env.inflow; or declare it in the environment's constructor"
        in advice
    )
    assert "enqueue" not in advice


def test_constructor_without_kwargs_is_not_open():
    assert not registry.entry("gym:CartPole-v1").is_open
    assert not registry.entry("gym:CartPole-v1").makes_program("inflow")


OWN = """\
import gymnasium
import numpy as np
from gymnasium import spaces


class Seen(gymnasium.Env):
    observation_space = SPACE
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.at += 1
        return self.observation_space.sample(), float(action), self.at > 5, False, {}


gymnasium.register("NAME", f"{__name__}:Seen", max_episode_steps=9)
"""
DICT = "spaces.Dict(a=spaces.Box(-1, 1, (2,), np.float32), b=spaces.Discrete(3))"


def _initialised(tmp_path, capsys, name, space):
    """Write an environment, start a study of it, and return the study's text."""
    file = tmp_path / f"{name.partition('-')[0].lower()}_env.py"
    file.write_text(OWN.replace("SPACE", space).replace("NAME", name))
    assert main(["init", f"gym:{name}", "--import", str(file)]) == 0, capsys.readouterr().err
    return file, capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "more"),
    [
        ("f'{__name__}:Seen'", "kwargs={'mode': \"it's\"}"),
        ("lambda **given: Seen(**given)", "kwargs={}"),
        (
            "Seen",
            "additional_wrappers=(gymnasium.wrappers.ClipReward.wrapper_spec("
            "min_reward=-1.0, max_reward=0.5),)",
        ),
    ],
)
def test_wrapper_line_keeps_what_the_environment_was_registered_with(
    tmp_path, capsys, entry, more
):
    name = "SeenOver-v0"
    for id_ in (name, f"Flat/{name}"):
        gymnasium.registry.pop(id_, None)
    registered = f'gymnasium.register("{name}", {entry}, max_episode_steps=9, {more})'
    init = "    def __init__(self, mode=''):\n        self.mode = mode\n"
    body = OWN[: OWN.index("gymnasium.register")].replace(" SPACE\n", f" {DICT}\n\n{init}")
    file = tmp_path / "seenover_env.py"
    file.write_text(f"{body}{registered}\n")
    assert main(["init", f"gym:{name}", "--import", str(file)]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    (line,) = (line for line in text.splitlines() if "FlattenObservation" in line)
    exec(line.removeprefix("#   "), {})  # the file has run, so its environment is registered
    flat, own = gymnasium.make(f"Flat/{name}"), gymnasium.spec(name)
    assert flat.spec.max_episode_steps == 9 and flat.spec.kwargs == own.kwargs
    kept = len(own.additional_wrappers)
    assert flat.spec.additional_wrappers[:kept] == own.additional_wrappers


def test_init_writes_the_wrapper_line_of_a_dict_observation(tmp_path, capsys):
    file, text = _initialised(tmp_path, capsys, "SeenDict-v0", DICT)
    (line,) = (line for line in text.splitlines() if "FlattenObservation" in line)
    assert f"add this line to {file.name}:" in text and "import gymnasium; " in line
    own = file.read_text().replace("gymnasium", "gym").replace("from gym ", "from gymnasium ")
    file.write_text(own.replace("import gym\n", "import gymnasium as gym\n", 1))
    study = tmp_path / "study.yaml"
    study.write_text(text)
    file.write_text(file.read_text() + line.removeprefix("#   ") + "\n")
    loaded = load(study)
    gymnasium.registry.pop("SeenDict-v0")  # registered twice is a warning
    import_user_code([file.name], tmp_path)  # changed, so that it runs again
    assert loaded.env.id == "gym:Flat/SeenDict-v0" and check(loaded).mistakes == ()
    flat = gymnasium.make("Flat/SeenDict-v0")
    assert code_of("Flat/SeenDict-v0", flat).observation_shape == (5,)
    assert flat.spec.max_episode_steps == 9
    assert main(["init", "gym:SeenDict-v0", "--import", str(file)]) == 0
    again = capsys.readouterr().out
    assert "add this line" not in again and "env: gym:Flat/SeenDict-v0\n" in again
    assert "# Its observation is a Dict; gym:Flat/SeenDict-v0 flattens it." in again


@pytest.mark.parametrize("side, wrapped", [(16, False), (96, True)])
def test_init_gives_an_image_a_convolutional_network(tmp_path, capsys, side, wrapped):
    space = f"spaces.Box(0, 255, ({side}, {side}, 3), np.uint8)"
    _, text = _initialised(tmp_path, capsys, f"SeenImage{side}-v0", space)
    assert (
        "network: cnn, shared_encoder: true" in text and "\n  normalise_observations" not in text
    )
    assert ("ResizeObservation" in text) is wrapped
    assert f"env: gym:SeenImage{side}-v0\n" in text


def test_init_notes_that_sequence_observations_cannot_be_flattened(tmp_path, capsys):
    space = "spaces.Sequence(spaces.Discrete(3))"
    _, text = _initialised(tmp_path, capsys, "SeenSequence-v0", space)
    assert "# Its observation is a Sequence, which no Gymnasium wrapper flattens." in text


def test_init_adds_no_wrapper_for_vectors_and_reports_missing_file(tmp_path, capsys):
    assert main(["init", "gym:CartPole-v1"]) == 0
    assert "observation is" not in capsys.readouterr().out
    assert main(["init", "gym:CartPole-v1", "--import", "none.py"]) == 2
    assert "--import none.py: no such file" in capsys.readouterr().err


def test_missing_import_file_is_the_only_reported_mistake(tmp_path, capsys):
    study = tmp_path / "s.yaml"
    study.write_text("env: corridor\nimports: [corridor.py]\nenv_steps: 10k\n")
    assert main(["check", str(study), "--no-time"]) == 2
    said = capsys.readouterr().err
    assert "corridor.py': no such file" in said and "unknown environment" not in said
