"""Films of compiled environments: the states of the evaluation, drawn one by one."""

import jax
import numpy as np
import pytest

from helpers import twins
from hpo.core import evaluation as filming
from hpo.core.envs import registry
from hpo.core.lane_state import RunningStatistics
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.policy import init_params
from hpo.core.saved_policy import SavedPolicy
from hpo.errors import ConfigError
from hpo.knobs import complete

pytestmark = pytest.mark.usefixtures("quickly_compiled")


class Drawing(twins.Compiled):
    """Shows how many steps its episode has taken."""

    id = "test-drawing"
    pictures_a_second = 4.0

    def pictures(self, states, params):
        for left, time, _ in states:
            assert isinstance(left, np.ndarray | np.generic)
            yield np.full((2, 3, 3), time, np.uint8)


def made(where, **knobs):
    config = complete(
        {"hidden_sizes": [4], "policy_gain": 5.0, "normalise_rewards": False, **knobs}
    )
    plan = make_plan(config, where, features=())
    saved = SavedPolicy(plan, config, {}, {}, {}, RunningStatistics.empty(()))
    params = init_params(plan, saved.hypers(), jax.random.key(1, impl="threefry2x32"))
    return SavedPolicy(plan, config, {}, {}, params, RunningStatistics.empty(()))


@pytest.fixture(scope="module")
def drawing():
    registry.register(Drawing.id, Drawing)
    return EnvPlan(Drawing.id)


def test_a_film_shows_every_state_of_each_episode(drawing, monkeypatch):
    monkeypatch.setattr(filming, "_BLOCK", 3)  # so short that episodes cross it
    saved = made(drawing, history=2)
    rate, pictures = saved.film(2, seed=3, greedy=False)
    shown = [int(picture[0, 0, 0]) for picture in pictures]
    lengths = saved.evaluate(2, seed=3, greedy=False).lengths[0]
    assert rate == 4.0
    assert shown == [*range(lengths[0] + 1), *range(lengths[1] + 1)]


def test_gymnax_film_renders_frames():
    saved = made(EnvPlan("Catch-bsuite"))
    rate, pictures = saved.film(1)
    shown = list(pictures)
    assert rate == 10.0 and len(shown) == saved.evaluate(1).lengths[0, 0] + 1
    assert all(picture.shape == shown[0].shape and picture.dtype == np.uint8 for picture in shown)
    assert not np.array_equal(shown[0], shown[-1])
    from matplotlib import pyplot

    assert not pyplot.get_fignums()


def test_film_of_unrenderable_env_is_refused():
    sea = registry.make(EnvPlan("DeepSea-bsuite"))
    state, _ = sea.reset(jax.random.key(0), sea.default_params)
    with pytest.raises(ConfigError, match="gymnax cannot render DeepSea-bsuite"):
        next(sea.pictures([state], sea.default_params))
    keys = (("k", 2), ("slots", 8), ("topology", "ring4"))
    with pytest.raises(ConfigError, match="rmsa cannot be rendered; allowed: Gymnasium"):
        made(EnvPlan("rmsa", keys)).film(1)
