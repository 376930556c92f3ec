"""MuJoCo Playground: its table of environments and their physics; see test_from_physics.py."""

import importlib.util

import numpy as np
import pytest

from hpo.core.envs import registry
from hpo.core.plan import EnvPlan
from hpo.environments.table import ENVIRONMENTS
from hpo.errors import ConfigError

PLAYGROUND = {id_: item for id_, item in ENVIRONMENTS.items() if item.source == "playground"}
REACHER = {"playground:ReacherEasy", "playground:ReacherHard"}  # call what MuJoCo has no more
PLANES = {"PointMass", "SwimmerSwimmer6"}  # move in planes that gravity is at right angles to
installed = importlib.util.find_spec("mujoco_playground") is not None
pytestmark = [
    pytest.mark.skipif(not installed, reason="playground is not installed"),
    pytest.mark.usefixtures("quickly_compiled"),
    pytest.mark.filterwarnings("ignore"),  # of playground and its dependencies
]


def pendulum(**keys):
    return registry.make(EnvPlan("playground:PendulumSwingup", tuple(sorted(keys.items()))))


def test_playground_table_matches_the_control_suite():
    from mujoco_playground import dm_control_suite

    theirs = {f"playground:{name}" for name in dm_control_suite.ALL_ENVS}
    assert theirs - REACHER == set(PLAYGROUND)
    for id_, item in PLAYGROUND.items():
        config = dm_control_suite.get_default_config(id_.removeprefix("playground:"))
        assert item.keys["max_steps_in_episode"].default == config.episode_length, id_
        assert item.keys["ctrl_dt"].default == config.ctrl_dt, id_
        assert item.keys["sim_dt"].default == config.sim_dt, id_
        assert config.action_repeat == 1, id_  # its wrapper's, which is not used


def test_playground_table_lists_only_effective_physics_parameters(tmp_path, monkeypatch):
    import mujoco
    from mujoco_playground import dm_control_suite

    monkeypatch.chdir(tmp_path)  # MuJoCo logs its warnings to a file where it runs
    off = mujoco.mjtDisableBit
    for id_, item in PLAYGROUND.items():
        name = id_.removeprefix("playground:")
        model = dm_control_suite.load(name, config_overrides={"impl": "jax"}).mj_model
        flags = model.opt.disableflags
        falls = not flags & off.mjDSBL_GRAVITY and name not in PLANES
        touches = not flags & (off.mjDSBL_CONTACT | off.mjDSBL_CONSTRAINT)
        given = {"gravity": falls, "friction": touches, "strength": True}
        assert list(item.params) == [param for param, has in given.items() if has], id_
        assert item.params.get("gravity", 9.81) == -model.opt.gravity[2], id_
        np.testing.assert_array_equal(model.actuator_ctrlrange, [[-1.0, 1.0]] * model.nu)


@pytest.mark.parametrize("given", [{"ctrl_dt": 0.001}, {"sim_dt": 0.015}])
def test_fractional_physics_steps_are_refused(given):
    with pytest.raises(ConfigError, match="a whole number of physics steps"):
        pendulum(**given)
