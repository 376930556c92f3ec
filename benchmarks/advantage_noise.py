"""How clearly an advantage shows that a path is cheaper, by lambda and by the critic's inputs.

A uniform policy acts in RMSA on NSFNET (k = 5, 100 slots, aggregation 20, 250 Erlang). Linear
critics of the discounted return are fitted on half of the environments and used on the other half.
GAE's advantages, for all requests with a choice, are regressed on the cost of the chosen path
(link-slots over S, minus the mean over possible choices). The table shows the t value of that
slope, scaled to 100,000 env steps. The larger it is, the fewer env steps show a policy that cheap
paths are good.

    python benchmarks/advantage_noise.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
from checkout import make_importable

make_importable()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

from hpo.core.envs import registry  # noqa: E402
from hpo.core.plan import EnvPlan  # noqa: E402

ENVIRONMENTS, STEPS, WARMUP, PATHS = 32, 10_000, 1_500, 5
ENV = {"topology": "nsfnet_deeprmsa", "load": 250, "k": PATHS, "slots": 100,
       "aggregate_slots": 20, "warmup_requests": 0, "observation": "paths"}  # fmt: skip
GAMMA, LAMBDAS, TAIL = 0.98, (0.0, 0.5, 0.9, 0.95, 1.0), 500
Rows = dict[str, np.ndarray]


def collect() -> Rows:
    """Return observations, masks, actions and rewards of a uniform policy, [E, T, ...]."""
    env = registry.make(EnvPlan("rmsa", tuple(sorted(ENV.items()))))
    params = env.default_params

    def step(state: Any, key: Any) -> Any:
        mask = env.action_mask(state, params)
        action = jax.random.categorical(key, jnp.where(mask, 0.0, -1e9))
        made = env.step(jax.random.fold_in(key, 1), state, action, params)
        return made.state, (env.observe(state, params), mask, action, made.reward)

    def run(key: Any) -> Any:
        state, _ = env.reset(key, params)
        keys = jax.random.split(jax.random.fold_in(key, 7), WARMUP + STEPS)
        return jax.lax.scan(step, state, keys)[1]

    seen = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), ENVIRONMENTS))
    names = ("observation", "mask", "action", "reward")
    return {name: np.asarray(x)[:, WARMUP:] for name, x in zip(names, seen, strict=True)}


def read(rows: Rows) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return the critics' inputs by name, the costs of choices, and where there was a choice."""
    seen, mask = rows["observation"], rows["mask"]
    nodes = 14
    request, rest = seen[..., : 2 * nodes + 2], seen[..., 2 * nodes + 2 :]
    used, paths, links = rest[..., :1], rest[..., 1 : 1 + 8 * PATHS], rest[..., 1 + 8 * PATHS :]
    one, valid = np.ones_like(used), mask.sum(-1)
    critics = {
        "nothing": one,
        "share in use": np.concatenate([one, used], -1),
        "share of each link": np.concatenate([one, links], -1),
        "shares and request": np.concatenate(
            [one, links, (valid > 0)[..., None], paths, request], -1
        ),
    }
    cost = paths.reshape((*paths.shape[:2], PATHS, 8))[..., 6]
    cost = np.repeat(cost, mask.shape[-1] // PATHS, axis=-1)
    taken = np.take_along_axis(cost, rows["action"][..., None], -1)[..., 0]
    return critics, taken - (cost * mask).sum(-1) / np.maximum(valid, 1), valid > 1


def returns(reward: np.ndarray) -> np.ndarray:
    """Return discounted returns, with the tail estimated from the mean reward."""
    found, ahead = np.zeros_like(reward), np.full(len(reward), reward.mean() / (1.0 - GAMMA))
    for t in range(reward.shape[1] - 1, -1, -1):
        ahead = reward[:, t] + GAMMA * ahead
        found[:, t] = ahead
    return found


def values(features: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Return the values of a linear critic fitted on the other half of the environments."""
    found, early = np.zeros_like(goal), slice(0, STEPS - TAIL)
    half = np.arange(len(goal)) < len(goal) // 2
    for fitted in (half, ~half):
        x = features[fitted][:, early].reshape(-1, features.shape[-1]).astype(np.float64)
        weights = np.linalg.lstsq(x, goal[fitted][:, early].reshape(-1), rcond=None)[0]
        found[~fitted] = features[~fitted] @ weights
    return found


def advantages(reward: np.ndarray, value: np.ndarray, decay: float) -> np.ndarray:
    """Return GAE's advantages, except for the last step."""
    found, ahead = np.zeros_like(value), np.zeros(len(value))
    for t in range(value.shape[1] - 2, -1, -1):
        ahead = reward[:, t] + GAMMA * (value[:, t + 1] + decay * ahead) - value[:, t]
        found[:, t] = ahead
    return found


def t_value(cost: np.ndarray, advantage: np.ndarray) -> float:
    """Return the t value of the slope of advantages over costs."""
    advantage = advantage - advantage.mean()
    slope = (cost * advantage).sum() / (cost**2).sum()
    error = np.sqrt(((advantage - slope * cost) ** 2 * cost**2).sum()) / (cost**2).sum()
    return float(slope / error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows = collect()
    critics, cost, choice = read(rows)
    reward, early = rows["reward"].astype(np.float64), slice(0, STEPS - TAIL)
    goal, free = returns(reward), choice[:, early]
    scale = np.sqrt(100_000 / reward[:, early].size)
    print(f"{'critic sees':20s} {'R2':>5s}  t value of the cost at lambda", *LAMBDAS, sep="  ")
    table = []
    for name, features in critics.items():
        value = values(features, goal)
        explained = 1.0 - np.var((goal - value)[:, early]) / np.var(goal[:, early])
        found = [
            t_value(cost[:, early][free], advantages(reward, value, decay)[:, early][free]) * scale
            for decay in LAMBDAS
        ]
        print(f"{name:20s} {explained:5.2f}  ", *(f"{t:6.1f}" for t in found))
        table.append({"critic": name, "explained": explained, "t": found})
    found = {
        "env": ENV,
        "gamma": GAMMA,
        "lambdas": LAMBDAS,
        "blocking": -reward.mean(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": sys.version,
        "jax": jax.__version__,
        "rows": table,
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
