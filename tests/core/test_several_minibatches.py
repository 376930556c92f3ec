"""One step of the optimiser for several minibatches, against loops; what it makes of schedules."""

import jax
import numpy as np
import pytest

from helpers.whole_update import Updates
from hpo.core.plan import EnvPlan, make_plan, plan_hash
from hpo.errors import ConfigError
from hpo.knobs import complete

pytestmark = pytest.mark.usefixtures("quickly_compiled")

# Minibatches of 6, 6, 6 and 3 rows: steps of three of them and of the last alone.
STATIC = {"num_envs": 3, "rollout_length": 7, "num_minibatches": 4, "hidden_sizes": [4],
          "policy_gain": 1.0, "accumulate_minibatches": 3, "normalise_rewards": False}  # fmt: skip
COMMON = {"learning_rate": 0.03, "adam_eps": 1e-3, "clip_eps": 0.1}
LANES = (
    {**COMMON, "update_epochs": 3},
    {
        **COMMON,
        "update_epochs": 2,
        "schedule_on_gradient_steps": True,
        "lr_schedule": "linear",
        "lr_end_fraction": 0.0,
        "clip_eps_schedule": "linear",
    },
    {**COMMON, "update_epochs": 1},
)
ENV = EnvPlan("Pendulum-v1", (("max_steps_in_episode", 5),))


@pytest.fixture(scope="module")
def case():
    return Updates(ENV, STATIC, ("schedule_on_gradient_steps",))


@pytest.fixture(scope="module")
def two(case):
    return case.run(LANES, 2)


@pytest.mark.parametrize("lane", range(len(LANES)))
def test_updates_are_those_of_the_loops(case, two, lane):
    for row in two:
        kls = case.check(LANES[lane], row, lane)
        assert len(kls) == 4 * LANES[lane]["update_epochs"]


def test_optimiser_count_is_gradient_steps_not_minibatches(two):
    for i, (_, after, _, _, _) in enumerate(two):
        for count in (after.gradient_steps, *(moments.count for moments in after.moments)):
            np.testing.assert_array_equal(count, [(i + 1) * 2 * epochs for epochs in (3, 2, 1)])


@pytest.mark.parametrize("stops", ["inside", "first"])
def test_what_waits_when_target_kl_stops_is_dropped(case, two, stops):
    """Lane 0: the KL grows from step to step; stop at a minibatch that others wait before."""
    kls = case.check(LANES[0], two[0], 0)
    assert max(kls[:3]) < 1e-6  # no step is made before the fourth
    where = [i for i in range(4, 12) if kls[i] > 1.05 * max(kls[:i])]
    inside = [i for i in where if i % 4 in (1, 2)]
    at = inside[0] if stops == "inside" else where[0]
    limit = 0.5 * (max(kls[:at]) + kls[at])
    knobs = {**LANES[0], "target_kl": limit / 1.5}
    (row,) = case.run([knobs, *LANES[1:]], 1)
    assert case.check(knobs, row, 0, kl_limit=limit) == pytest.approx(kls[:at])
    taken = 2 * (at // 4) + (at % 4 == 3)
    assert int(row[1].gradient_steps[0]) == taken
    assert row[2].early_stopped[0] == pytest.approx((12 - at) / 12)
    for left, right in zip(jax.tree.leaves(row[1]), jax.tree.leaves(two[0][1]), strict=True):
        np.testing.assert_array_equal(left[1:], right[1:])  # the lanes beside it


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_envs": 3, "rollout_length": 3, "num_minibatches": 9},  # of one row
        {"num_envs": 5, "rollout_length": 2, "num_minibatches": 4},  # of 3, 3, 3 and 1
    ],
)
def test_single_row_minibatches_update_the_policy(sizes):
    static = {**STATIC, **sizes, "accumulate_minibatches": 1, "gradient_accumulation": 1}
    alone, given = Updates(ENV, static, ()), {**COMMON, "update_epochs": 1}
    (row,) = alone.run([given], 1)
    assert len(alone.check(given, row, 0)) == sizes["num_minibatches"]
    if sizes["num_minibatches"] == 9:
        assert abs(row[2].normalised_advantage_mean[0] - row[2].advantage_mean[0]) < 1e-5
        moved = np.abs(
            row[1].params["actor_head"]["kernel"] - row[0].params["actor_head"]["kernel"]
        )
        assert moved.max() > 1e-3


def test_accumulating_more_minibatches_than_an_epoch_is_refused():
    with pytest.raises(ConfigError, match=r"num_minibatches is only 4; .* at most 4"):
        complete({"accumulate_minibatches": 5})
    assert complete({"accumulate_minibatches": 4})["accumulate_minibatches"] == 4


def test_default_accumulation_keeps_the_plan_hash():
    """The name of a bucket stands in journals."""
    plain, twice = (make_plan({"accumulate_minibatches": n}, ENV, features=()) for n in (1, 2))
    assert "accumulate_minibatches" not in repr(plain)
    assert plan_hash(plain) != plan_hash(twice) != plan_hash(make_plan({}, ENV, features=()))
    assert plan_hash(make_plan({}, EnvPlan("CartPole-v1"), features=())) == "1a4107cf"
