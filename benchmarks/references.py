"""The two scores that normalise an environment: uniformly random actions, and a good policy.

Random actions are drawn uniformly among the valid ones (for a box, between its bounds). The good
policy is PPO as configured below, or a one-line rule where PPO from scratch finds none, or a
heuristic for optical networks. All are measured like evaluations in a study: whole episodes, or in
continuous operation windows after the warm-up; PPO acts greedily.

    python benchmarks/references.py [ID ...] [--write]

measures all environments, or those listed, and stores the results in references.json; `--write`
puts the rows into environments/registry.py.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import hpo
from hpo.core.envs import registry
from hpo.core.envs.contract import Box, Discrete, Environment
from hpo.core.envs.optical.heuristic_evaluation import evaluate_baseline
from hpo.core.evaluation import STEP_LIMIT
from hpo.core.lane_state import lane_key
from hpo.core.plan import EnvPlan
from hpo.machine.devices import prepare_devices
from hpo.studies.load import load

HERE = Path(__file__).parent
FOUND, TABLE = HERE / "references.json", HERE.parent / "environments" / "registry.py"
RANDOM_EPISODES, SEEDS, EPISODES = 1024, 4, 100
WINDOWS, WINDOW = 32, 4000  # for optical networks: number of windows, and requests per window
PLAIN = {"learning_rate": 3e-4, "normalise_rewards": False}
MINATAR = {
    **PLAIN,
    "num_envs": 64,
    "rollout_length": 64,
    "num_minibatches": 8,
    "hidden_sizes": [128],
    "activation": "relu",
    "learning_rate": 1e-3,
    "lr_schedule": "linear",
    "lr_end_fraction": 0.0,
    "gae_lambda": 0.9,
    "update_epochs": 3,
    "ent_coef": 0.01,
}
Rule = Callable[[Any], Array]


@dataclass(frozen=True)
class Ppo:
    """PPO on SEEDS seeds of study seed 0, each with this many env steps."""

    env_steps: int
    config: Mapping[str, Any] = field(default_factory=dict)


def _along(observation: Array) -> Array:
    """Push along the velocity."""
    return jnp.where(observation[1] >= 0.0, 2, 0)


def _along_continuous(observation: Array) -> Array:
    return jnp.where(observation[1] >= 0.0, 1.0, -1.0)[None]


def _of_study(name: str) -> Ppo:
    study = load(HERE.parent / "studies" / f"{name}.yaml")
    return Ppo(study.env_steps, dict(study.fixed))


CASES: dict[str, Ppo | Rule | str] = {
    "CartPole-v1": _of_study("base_cartpole"),
    "Pendulum-v1": _of_study("base_pendulum"),
    "Acrobot-v1": Ppo(500_000, PLAIN),
    "MountainCar-v0": _along,
    "MountainCarContinuous-v0": _along_continuous,
    "Catch-bsuite": Ppo(500_000, PLAIN),
    "DiscountingChain-bsuite": Ppo(500_000, {**PLAIN, "gamma": 1.0}),
    "SimpleBandit-bsuite": Ppo(200_000, PLAIN),
    "FourRooms-misc": Ppo(500_000, PLAIN),
    "Reacher-misc": Ppo(500_000, PLAIN),
    "Pong-misc": Ppo(500_000, PLAIN),
    "Breakout-MinAtar": Ppo(500_000, MINATAR),
    "Asterix-MinAtar": Ppo(500_000, MINATAR),
    "Freeway-MinAtar": Ppo(500_000, MINATAR),
    "SpaceInvaders-MinAtar": Ppo(500_000, MINATAR),
    "rsa": "ksp_ff ksp_bf ff_ksp",
    "rmsa": "ksp_ff ksp_bf ff_ksp",
    "deeprmsa": "ksp_ff ksp_bf ff_ksp",
}
METRICS = dict.fromkeys(("rsa", "rmsa", "deeprmsa"), "eval/service_blocking_probability")


def uniform(env: Environment, key: Array, state: Any, params: Any) -> Array:
    """Return one action drawn uniformly among the valid ones."""
    space = env.action_space
    if isinstance(space, Box):
        low, high = (jnp.asarray(end).reshape(space.shape) for end in (space.low, space.high))
        return jax.random.uniform(key, space.shape, minval=low, maxval=high)
    if not isinstance(space, Discrete):
        raise TypeError(f"{env.id} has actions {space}")
    if not env.has_mask:
        return jax.random.randint(key, (), 0, space.n)
    mask = env.action_mask(state, params)
    usable = mask | ~jnp.any(mask)
    return jax.random.categorical(key, jnp.where(usable, 0.0, -jnp.inf))


def play(
    env: Environment, rule: Rule | None, episodes: int, window: int | None, seed: int = 0
) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    """Return returns and metrics of episodes, or of windows after the warm-up; float64 [n].

    Args:
        env: the environment, with its default parameters.
        rule: observation -> action; None draws actions uniformly.
        episodes: number of episodes or windows.
        window: env steps of each in continuous operation; None runs episodes to their ends.
        seed: seed for all randomness.
    """
    params = env.default_params
    first = env.warmup_steps if window is not None else 0
    last = STEP_LIMIT if window is None else first + window

    def one(key: Array) -> tuple[Array, Array, Any]:
        state, observation = env.reset(key, params)

        def step(carry: Any) -> Any:
            at, state, observation, running, total, length, sums = carry
            draws, steps = jax.random.split(jax.random.fold_in(key, at + 1))
            action = uniform(env, draws, state, params) if rule is None else rule(observation)
            after = env.step(steps, state, action, params)
            counted = running & (at >= first)
            sums = {k: v + jnp.where(counted, after.info[k], 0.0) for k, v in sums.items()}
            ended = after.terminated | after.truncated
            return (
                at + 1,
                after.state,
                after.observation,
                running & ~ended if window is None else running,
                total + jnp.where(counted, jnp.mean(after.reward), 0.0),
                length + counted.astype(jnp.int32),
                sums,
            )

        action = uniform(env, key, state, params)
        names = jax.eval_shape(env.step, key, state, action, params).info
        begun = (
            jnp.int32(0),
            state,
            observation,
            jnp.array(True),
            jnp.float32(0.0),
            jnp.int32(0),
            {name: jnp.float32(0.0) for name in names},
        )
        done = jax.lax.while_loop(lambda c: (c[0] < last) & c[3], step, begun)
        metrics = env.summarise(done[6], jnp.maximum(done[5], 1).astype(jnp.float32))
        return done[4], done[5], metrics

    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), episodes)
    returns, _, metrics = jax.device_get(jax.jit(jax.vmap(one))(keys))
    return np.asarray(returns, np.float64), {k: np.asarray(v) for k, v in metrics.items()}


def of_ppo(id_: str, how: Ppo) -> dict[str, Any]:
    study = {
        "name": "reference",
        "env": id_,
        "env_steps": how.env_steps,
        "fixed": dict(how.config),
        "seeds": {"per_config": SEEDS},
        "evaluation": {"episodes": EPISODES},
        "budget": {"trials": 1},
    }
    with tempfile.TemporaryDirectory(prefix="reference-") as folder:
        values = hpo.train(study, folder, progress=False).leaderboard[0].values
    if len(values) < SEEDS:
        raise RuntimeError(f"{id_}: only {len(values)} of {SEEDS} seeds have a value")
    words = "base configuration" if id_ in ("CartPole-v1", "Pendulum-v1") else "learning rate 3e-4"
    words = "MinAtar's hyperparameters" if how.config is MINATAR else words
    return {
        "reference": float(np.mean(values)),
        "values": list(values),
        "episodes": EPISODES,
        "source": f"PPO, {words}, greedy, mean of {SEEDS} seeds",
        "env_steps": how.env_steps,
        "config": dict(how.config),
    }


def of_heuristics(env: Any, names: str) -> dict[str, Any]:
    keys = np.stack([np.asarray(lane_key(*map(jnp.int32, (0, 3, r)))) for r in range(WINDOWS)])
    found = {}
    for name in names.split():
        got = evaluate_baseline(env, name, env.default_params, keys, episodes=1, steps=WINDOW)
        found[name] = np.asarray(got.metrics["service_blocking_probability"], np.float64).mean()
    best = min(found, key=lambda name: found[name])
    return {
        "reference": float(found[best]),
        "values": {k: float(v) for k, v in found.items()},
        "source": f"heuristic {best}, the best of {', '.join(found)}",
        "episodes": WINDOWS,
        "env_steps": 0,
    }


def measure(id_: str) -> dict[str, Any]:
    how, metric = CASES[id_], METRICS.get(id_, "eval/return_mean")
    env = registry.make(EnvPlan(id_, (), ""))
    optical = isinstance(how, str)
    returns, metrics = play(
        env, None, WINDOWS if optical else RANDOM_EPISODES, WINDOW if optical else None
    )
    drawn = metrics[metric.removeprefix("eval/")] if optical else returns
    found: dict[str, Any] = {
        "metric": metric,
        "random": float(np.mean(drawn)),
        "random_episodes": len(drawn),
        "random_error": float(np.std(drawn, ddof=1) / np.sqrt(len(drawn))),
    }
    if isinstance(how, Ppo):
        return {**found, **of_ppo(id_, how)}
    if isinstance(how, str):
        return {**found, **of_heuristics(env, how)}
    values, _ = play(env, how, RANDOM_EPISODES, None)
    return {
        **found,
        "reference": float(np.mean(values)),
        "episodes": len(values),
        "env_steps": 0,
        "source": "rule: push along the velocity",
    }


def row(id_: str, found: Mapping[str, Any]) -> str:
    numbers = ", ".join(f"{found[name]:.6g}" for name in ("random", "reference"))
    counts = f"{found['random_episodes']}, {found['episodes']}, {found['env_steps']}"
    return f'    ("{id_}", "{found["metric"]}", {numbers}, {counts},\n     "{found["source"]}"),\n'


def write(found: Mapping[str, Any]) -> None:
    """Put the rows between the marks of the table."""
    rows = "".join(row(id_, found[id_]) for id_ in CASES if id_ in found)
    text = TABLE.read_text()
    marked = re.compile(r"(# generated by [^\n]*\n)(.*?)(    # end\n)", re.DOTALL)
    TABLE.write_text(marked.sub(lambda m: m[1] + rows + m[3], text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="environments; all by default")
    parser.add_argument("--write", action="store_true", help="into environments/registry.py")
    arguments = parser.parse_args()
    prepare_devices("cpu")
    known = json.loads(FOUND.read_text()) if FOUND.is_file() else {}
    asked = list(arguments.ids) if arguments.ids or arguments.write else list(CASES)
    for id_ in asked:
        known[id_] = measure(id_)
        print(
            f"{id_}: random {known[id_]['random']:.5g}, {known[id_]['source']} "
            f"{known[id_]['reference']:.5g}",
            flush=True,
        )
        FOUND.write_text(json.dumps(known, indent=1) + "\n")
    if arguments.write:
        write(known)


if __name__ == "__main__":
    main()
