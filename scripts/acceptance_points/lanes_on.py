"""Trains lanes on all of jax's devices and writes every array: `lanes_on.py OUT CHUNKS LANES K`.

It runs in a separate process, because the number of devices is fixed when jax starts.
"""

from __future__ import annotations

import json
import re
import sys

import jax
import numpy as np

from hpo.core.envs import registry
from hpo.core.hypers import make_hypers
from hpo.core.plan import EnvPlan, make_plan
from hpo.core.program import EvaluationPlan, Program

KNOBS = {"num_envs": 8, "rollout_length": 128, "hidden_sizes": (64, 64), "num_minibatches": 4}
COLLECTIVE = r"\b(?:all-reduce|all-gather|all-to-all|reduce-scatter|collective-[a-z]+)\b"


def main() -> None:
    """Train, write the arrays, and print facts about the compiled text."""
    out, chunks, lanes, updates = sys.argv[1], *map(int, sys.argv[2:5])
    where = EnvPlan("CartPole-v1")
    params = registry.make(where).default_params
    program = Program(
        make_plan(KNOBS, where, features=("normalise_observations", "normalise_rewards")),
        lanes,
        updates,
        4,
        EvaluationPlan(),
        tuple(jax.devices()),
        make_hypers(KNOBS, params, params),
    )
    rows = program.no_refills()
    rows.mask[:] = True
    rows.replicate[:] = np.arange(lanes)
    rows.total_updates[:] = 100
    rows.hypers.learning_rate[:] = np.geomspace(1e-4, 1e-2, lanes)
    rows.hypers.normalise_observations[::2] = 1.0
    state, seen = program.empty(), []
    for chunk in range(chunks):
        given = rows if chunk == 0 else program.no_refills()
        state, metrics = program.advance(7, state, given)
        seen.append(jax.device_get(metrics))
    leaves, _ = jax.tree_util.tree_flatten_with_path((jax.device_get(state), seen))
    np.savez(out, **{jax.tree_util.keystr(path): leaf for path, leaf in leaves})
    text = program._advance.as_text()
    told = {"collectives": len(re.findall(COLLECTIVE, text)), "lines": text.count("\n")}
    print(json.dumps({"devices": len(jax.devices()), **told}))


if __name__ == "__main__":
    main()
