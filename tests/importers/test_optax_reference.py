"""An imported schedule gives, at every gradient step, what optax's own schedule gives."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers.import_command import importer
from hpo.core.envs.registry import plan_of_env
from hpo.core.epochs import minibatch_shape
from hpo.core.hypers import make_hypers
from hpo.core.optimisers import step_sizes
from hpo.core.plan import make_plan
from hpo.studies.chunk_sizes import chunk_sizes_of
from hpo.studies.load import loads

EPOCHS = 3
SCHEDULES = [
    "optax.linear_schedule(1e-3, 1e-5, 3_000)",
    "optax.linear_schedule(1e-3, 0.0, 90)",
    "optax.linear_schedule(1e-5, 2e-3, 100)",
    "optax.linear_schedule(0.0, 2e-3, 9_000)",
    "optax.polynomial_schedule(1e-3, 4e-4, 1, 250)",
    "optax.cosine_decay_schedule(2e-3, 300, 0.1, 1.7)",
    "optax.cosine_decay_schedule(2e-3, 10_000)",
    "optax.warmup_cosine_decay_schedule(0.0, 3e-3, 50, 400, 1e-4)",
    "optax.warmup_cosine_decay_schedule(1e-4, 3e-3, 20, 200, 1e-4, exponent=2.0)",
    "optax.warmup_constant_schedule(1e-4, 1e-3, 70)",
    "optax.constant_schedule(4e-4)",
]


@pytest.mark.parametrize("length", [2**14, 20_000])  # the second is rounded up to whole chunks
@pytest.mark.parametrize("written", SCHEDULES)
def test_imported_schedule_equals_optax_at_every_gradient_step(tmp_path, capsys, written, length):
    text = (
        f"algo = PPO(num_envs=4, num_steps=128, num_epochs={EPOCHS}, num_batches=5,\n"
        f"  learning_rate={written})\n"
        f"algo.learn(env, policy, total_timesteps={length}, key=k)\n"
    )
    _, written_study = importer(tmp_path, capsys)("lerax", text, "--env=CartPole-v1")
    study = loads(written_study)
    config = study.default()
    env, _ = plan_of_env("CartPole-v1", {}, None)
    plan = make_plan(config, env)
    hypers = jax.tree.map(jnp.asarray, make_hypers(study.fixed, {}, {}))
    chunk_sizes = chunk_sizes_of(study, plan.steps_per_update)
    minibatches, _ = minibatch_shape(plan, plan.steps_per_update)
    total = chunk_sizes.schedule_chunks * chunk_sizes.updates_per_chunk * EPOCHS * minibatches
    counts = np.arange(0, total, 7, dtype=np.float32)
    # as `optimisers.progress_of` counts: gradient steps taken over those of the run
    ours = jax.vmap(lambda progress: step_sizes(hypers, progress).policy)(counts / total)
    theirs = eval(written, {"optax": optax})
    expected = np.array([float(theirs(int(count))) for count in counts])
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=2e-8)
    assert plan.by_segments is False and config["update_epochs"] == EPOCHS
