"""The environment that docs/environments.md shows, as it stands there."""

import re

import jax
import jax.numpy as jnp
import pytest

from helpers.doc_blocks import ROOT, block
from helpers.own_chain import CHAIN
from hpo.cli import main
from hpo.core.envs import registry
from hpo.core.plan import EnvPlan
from hpo.errors import UnknownNameError
from hpo.search.lanes.configuration import Split
from hpo.studies.load import load
from hpo.studies.user_code import import_user_code
from hpo.testing.environments import EnvironmentContract

pytestmark = pytest.mark.usefixtures("quickly_compiled")

PAGE = "docs/environments.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The two files of the page, written down; the study's `imports` have been run."""
    shown = (ROOT / PAGE).read_text().split("<!-- own environment -->")[1]
    code = block(PAGE, "class Corridor:").code
    study = re.search(r"```yaml\n(.*?)```", shown, re.S)[1]
    folder = tmp_path_factory.mktemp("own")
    (folder / "corridor.py").write_text(code)
    (folder / "corridor.yaml").write_text(study)
    import_user_code(load(folder / "corridor.yaml").imports, folder)
    return folder


class TestCorridor(EnvironmentContract):
    @pytest.fixture
    def environment(self, folder):
        """Return what the fixture of the page's own test does, which is this class."""
        shown = block(PAGE, "class TestCorridor(")
        made = shown._replace(code=shown.code.replace("    @pytest.fixture\n", "")).run()
        assert made["TestCorridor"].__bases__ == (EnvironmentContract,)
        environment = made["TestCorridor"]().environment()
        assert type(environment) is type(registry.make(EnvPlan("corridor")))
        return environment


def test_the_study_finds_it_with_its_key_and_parameter(folder):
    study = load(folder / "corridor.yaml")
    assert (study.env.id, dict(study.env.values)) == ("corridor", {"length": 12})
    assert study.space.names == ("learning_rate", "env.slip")
    env = registry.make(EnvPlan("corridor", (("length", 12),)))
    assert env.length == 12 and env.default_params.slip == 0.1


def test_unregistered_env_error_shows_the_register_call(tmp_path):
    (tmp_path / "mine.py").write_text("class Mine:\n    pass\n")
    path = tmp_path / "mine.yaml"
    path.write_text("imports: [mine.py]\nenv: mine-v0\nenv_steps: 10k\nbudget: {trials: 2}\n")
    study = load(path)
    told = r"mine.yaml:2: unknown environment 'mine-v0'.*mine\.py needs.*register\('mine-v0', My"
    with pytest.raises(UnknownNameError, match=told):
        Split(study).parts(study.default())


def test_corridor_reward_is_paid_at_the_goal(folder):
    env = registry.make(EnvPlan("corridor", (("length", 2),)))
    params = registry.params_of(env, {"slip": 0.0})
    key = jax.random.key(0, impl="threefry2x32")
    state, _ = env.reset(key, params)
    rewards = []
    for _ in range(2):
        after = env.step(key, state, jnp.int32(1), params)
        state = after.state
        rewards.append(round(float(after.reward), 6))
    assert rewards == [-0.1, 1.0] and bool(after.terminated) and not after.truncated


@pytest.mark.parametrize(
    ("id_", "file", "known"),
    [
        ("corridor", "corridor.py", ["# env: {id: corridor, length: 10}", "env.slip: {min: 0.08"]),
        (
            "gymnax:init_chain:Chain",
            "init_chain.py",
            ["# env: {id: gymnax:init_chain:Chain, length: 5}", "env.slip: {min: 0.16, max: 0.24"],
        ),
    ],
)
def test_init_writes_a_study_of_a_custom_environment(
    folder, capsys, monkeypatch, id_, file, known
):
    monkeypatch.chdir(folder)
    (folder / "init_chain.py").write_text(CHAIN)
    assert main(["init", id_, "--import", str(folder / file)]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    assert all(words in text for words in (*known, f"imports: [{file}]", f"\nenv: {id_}\n")), text
    (folder / "first.yaml").write_text(text)
    assert main(["check", str(folder / "first.yaml"), "--no-time"]) == 0
    keyed = (
        re.sub(r"\nenv: .*", "", text).replace("# env: {", "env: {").replace("  # env.", "  env.")
    )
    (folder / "keyed.yaml").write_text(keyed)
    study = load(folder / "keyed.yaml")
    assert study.env.id == id_ and len(study.env.values) == 1 and "env.slip" in study.space.names
    parts = Split(study).parts(study.default())
    made = registry.make(parts.plan.env)
    assert getattr(made, "_env", made).length == study.env.values["length"]


def test_init_without_the_file_of_a_custom_environment_names_the_option(capsys):
    assert main(["init", "gymnax:nowhere_chain:Chain"]) == 2
    said = capsys.readouterr().err
    assert "--import my_envs.py" in said and "gymnax:package.module" not in said
