"""PPO point 7: an extended run equals a run that had the full length from the start."""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .common import Outcome, call, hpo_command

_HEAD = """\
name: NAME
seeds: {per_config: 2}
evaluation: EVALUATION
"""
_KILLS = 4


@dataclass(frozen=True)
class Case:
    """One study, trained for some env steps and then for more.

    Attributes:
        text: its file, without name, seeds and evaluation.
        ways: env steps of the runs, in order.
        over: `schedule_env_steps` on the command line; "" if not given there.
        evaluation: the section `evaluation`.
    """

    text: str
    ways: tuple[str, ...]
    over: str = ""
    evaluation: str = "{episodes: 3}"


CASES = {
    "constant schedules": Case(
        "env: CartPole-v1\nfixed: {num_envs: 4, rollout_length: 32, hidden_sizes: [16, 16]}\n",
        ("20480", "40960", "81920"),
    ),
    "a gru, running statistics, a cosine over a stated length": Case(
        "env: CartPole-v1\nfixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, "
        "network: gru, recurrent_size: 8, normalise_observations: true, normalise_rewards: true, "
        "reward_centering: true, lr_schedule: cosine}\n",
        ("20480", "30720"),
        "40960",
    ),
    "optical network": Case(
        "env: {id: rmsa, topology: nsfnet_deeprmsa, k: 3, load: 150}\n"
        "fixed: {num_envs: 2, rollout_length: 32, hidden_sizes: [16]}\n"
        "population: {lanes: 4}\n",
        ("10240", "20480"),
        evaluation="{episodes: 1, steps: 500}",
    ),
    "the host's environments": Case(
        "env: gym:CartPole-v1\nfixed: {num_envs: 2, rollout_length: 32, hidden_sizes: [16]}\n"
        "population: {lanes: 2, workers: 1}\n",
        ("5120", "10240"),
    ),
}


def lengthened(small: bool, work: Path) -> Outcome:
    """Train each case in pieces and in one run; compare tables and policies bit for bit."""
    wrong: list[str] = []
    names = list(CASES)[1:2] if small else list(CASES)
    for name in names:
        wrong += _differences(name, CASES[name], work / name.split(maxsplit=1)[0].strip(","))
    hits = 0
    if not small:
        hits, found = _killed(CASES[names[0]], work / "killed")
        wrong += found
    words = f"{len(names)} studies in {sum(len(CASES[name].ways) for name in names)} pieces "
    words += f"({'; '.join(names)}): tables and policies equal those of one piece, bit for bit"
    words += f"; {hits} kills in the second piece" if hits else ""
    return Outcome(not wrong, "; ".join(wrong) if wrong else words)


def _command(file: Path, out: Path, env_steps: str, over: str) -> list[str]:
    words = [*hpo_command(), "train", str(file), "--out", str(out), "--quiet"]
    words += ["--set", f"env_steps={env_steps}"]
    return words + (["--set", f"schedule_env_steps={over}"] if over else [])


def _differences(name: str, case: Case, work: Path) -> list[str]:
    file = _file(case, work)
    for env_steps in case.ways:
        call(_command(file, work / "grown", env_steps, case.over), work)
    over = case.over or case.ways[0]
    call(_command(file, work / "long", case.ways[-1], over), work)
    return [f"{name}: {what}" for what in _compare(work / "grown" / "run", work / "long" / "run")]


def _file(case: Case, work: Path) -> Path:
    work.mkdir()
    file = work / "run.yaml"
    head = _HEAD.replace("NAME", "run").replace("EVALUATION", case.evaluation)
    file.write_text(head + "env_steps: 1000\n" + case.text)
    return file


def _compare(one: Path, other: Path) -> list[str]:
    """Return the differences: in tables, or in arrays of policies."""
    import jax
    import numpy as np

    from hpo.core.saved_policy import load_policy
    from hpo.store import tables_equal

    wrong = [f"table {name}" for name in tables_equal(one, other)]
    folders = sorted(path.parent.relative_to(one) for path in one.glob("policies/**/policy.json"))
    if len(folders) < 2:
        wrong.append(f"{len(folders)} policies, fewer than seeds")
    for folder in folders:
        trees: list[list[Any]] = []
        for study in (one, other):
            saved = load_policy(study / folder)
            trees.append(jax.tree.leaves((saved.params, saved.statistics, saved.rewards)))
        if not all(np.array_equal(a, b) for a, b in zip(*trees, strict=True)):
            wrong.append(str(folder))
    return wrong


def _killed(case: Case, work: Path) -> tuple[int, list[str]]:
    """Kill the second piece at some times; return the number of hits, and the differences."""
    file, rng, hits = _file(case, work), random.Random(7), 0
    call(_command(file, work / "grown", case.ways[0], ""), work)
    words = _command(file, work / "grown", case.ways[-1], "")
    for _ in range(_KILLS):
        process = subprocess.Popen(
            words, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(timeout=rng.uniform(4.0, 14.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            hits += 1
    call(words, work)
    call(_command(file, work / "long", case.ways[-1], case.ways[0]), work)
    found = _compare(work / "grown" / "run", work / "long" / "run")
    return hits, [f"killed: {what}" for what in found]
