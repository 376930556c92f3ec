"""One tiny CartPole program that the tests of the core share."""

from __future__ import annotations

import numpy as np
import pytest


class Tiny:
    """Four environments, 16 steps, 2 minibatches, MLP 8: compiles in seconds, learns a little."""

    knobs = {  # noqa: RUF012
        "num_envs": 4,
        "rollout_length": 16,
        "num_minibatches": 2,
        "hidden_sizes": [8],
    }
    features = ("normalise_observations", "normalise_rewards")
    updates = 2
    seed = 7

    def __init__(self):
        from hpo.core.envs import registry
        from hpo.core.plan import EnvPlan, make_plan

        where = EnvPlan("CartPole-v1")
        self.plan = make_plan(self.knobs, where, features=self.features)
        self.env = registry.make(where)
        self._programs = {}

    def hypers(self, **knobs):
        from hpo.core.hypers import make_hypers

        params = self.env.default_params
        return make_hypers({**self.knobs, **knobs}, params, params)

    def program(self, lanes=8, tile=2):
        """Return the program of that width, compiled once for all tests."""
        import jax

        from hpo.core.program import EvaluationPlan, Program

        quick = jax.config.values["jax_disable_most_optimizations"]
        assert not quick, "bits are compared in code as users get it"
        if (lanes, tile) not in self._programs:
            self._programs[lanes, tile] = Program(
                self.plan,
                lanes,
                self.updates,
                tile,
                EvaluationPlan(episodes=5),
                tuple(jax.devices()),
                self.hypers(),
            )
        return self._programs[lanes, tile]

    def start(self, program, lanes):
        """Return refills for {lane: (knobs, replicate)}."""
        rows = program.no_refills()
        for lane, (knobs, replicate) in lanes.items():
            rows.mask[lane] = True
            rows.replicate[lane] = replicate
            rows.total_updates[lane] = 100
            made = self.hypers(**knobs)
            for name in type(made).__dataclass_fields__:
                if name not in ("env_params", "eval_params"):
                    getattr(rows.hypers, name)[lane] = getattr(made, name)
        return rows

    def curve(self, program, state, refills, chunks, lane):
        """Advance and give (state, every metric of one lane as bytes-comparable arrays)."""
        import jax

        seen = []
        for i in range(chunks):
            rows = refills if i == 0 else program.no_refills()
            state, metrics = program.advance(self.seed, state, rows)
            seen.append(jax.tree.map(lambda x: np.asarray(x)[:, lane].copy(), metrics))
        return state, jax.tree.map(lambda *parts: np.concatenate(parts), *seen)


@pytest.fixture(scope="session")
def tiny():
    return Tiny()
