"""Point 7 on optical networks: a trained gru, and a policy with a history, in every command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from .common import Outcome, call, hpo_command

REQUESTS = {True: 200, False: 1500}
ENV_STEPS = {True: "4k", False: "200k"}
POLICIES = {
    "gru": "network: gru, recurrent_size: 16",
    "history 4": "history: 4",
}
STUDY = """\
name: {name}
env: {{id: rmsa, topology: nsfnet_deeprmsa, k: 3, slots: 40, requests: requests.csv}}
env_steps: {env_steps}
fixed: {{{network}, num_envs: 8, rollout_length: 32, num_minibatches: 2, hidden_sizes: [32]}}
metric: {{name: eval/service_blocking_probability, goal: minimize}}
evaluation: {{episodes: 1}}
seeds: {{per_config: 1}}
population: {{lanes: 2}}
"""


def every_command(small: bool, work: Path) -> Outcome:
    """Train policies with memory on a list of requests, and evaluate them in every way.

    A list is the same for every seed and load, so all commands must give the same number.
    """
    count = REQUESTS[small]
    _write_requests(work / "requests.csv", count)
    wrong: list[str] = []
    words: list[str] = []
    for name in list(POLICIES)[: 1 if small else None]:
        figures = _figures(work, name, count, ENV_STEPS[small])
        if max(figures.values()) - min(figures.values()) > 1e-6:
            wrong.append(f"{name}: {figures}")
        words.append(f"{name} blocks {figures['policy.evaluate']:.4f} by all of {list(figures)}")
    return Outcome(not wrong, "; ".join(wrong or words) + f"; {count} requests")


def _figures(work: Path, name: str, count: int, env_steps: str) -> dict[str, float]:
    """Return the blocking of a policy from each command."""
    folder = name.replace(" ", "_")
    study = STUDY.format(name=folder, network=POLICIES[name], env_steps=env_steps)
    (work / f"{folder}.yaml").write_text(study)
    hpo = hpo_command()
    call([*hpo, "train", f"{folder}.yaml", "--quiet", "--export", folder], work)

    def ask(*given: str) -> dict[str, Any]:
        words = [*hpo, "eval", folder, "--seeds", "5", "--steps", str(count), *given, "--json"]
        return json.loads(call(words, work).stdout)

    def blocked(found: dict[str, Any]) -> float:
        rows = [row["service_blocking_probability"] for row in found["results"]]
        [value] = {row["mean"] for row in rows}
        return value

    from hpo.core import evaluate, load_policy

    alone = evaluate(load_policy(work / folder), episodes=1)
    traced = ask("--trace", str(work / "trace.csv"))
    return {
        "policy.evaluate": float(alone.metrics["service_blocking_probability"][0, 0]),
        "hpo eval": blocked(ask()),
        "--loads": blocked(ask("--loads", "10,20")),
        "--trace": traced["blocked"] / traced["requests"],
    }


def _write_requests(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(1 / 100, count))
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "destination", "bitrate", "arrival", "holding"])
        for arrival in arrivals:
            ends = rng.choice(np.arange(1, 15), 2, replace=False)
            writer.writerow([*ends, rng.integers(25, 101), arrival, rng.exponential(1.0)])
