"""Point 5: a study killed at random moments ends with the tables of one never interrupted."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from .common import Outcome, call, hpo_command

KILLS = 20
STUDY = """\
name: small
env: CartPole-v1
env_steps: 100k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.95, max: 0.999, distribution: one_minus_log}
  update_epochs: {min: 1, max: 4, distribution: int_uniform}
search: {method: tpe}
early_terminate: {type: asha, min: 10k, eta: 3}
seeds: {per_config: 2}
confirm: {top_k: 2, choose: 3, report: 4}
population: {lanes: 16}
budget: {trials: 200}
"""
SMALL_STUDY = STUDY.replace("trials: 200", "trials: 24")


def kills(small: bool, work: Path) -> Outcome:
    """Kill a compiled study."""
    return kill_and_compare(SMALL_STUDY if small else STUDY, 2 if small else KILLS, work)


def kill_and_compare(text: str, kills: int, work: Path) -> Outcome:
    """Kill and continue until the kills are used up and the study that was hit last has ended.

    A study that ends before it was hit again is compared, and another one is begun.

    Args:
        text: of the study, whose name is `small`.
        kills: how many.
        work: a folder to work in.
    """
    from hpo.store import tables_equal

    file = work / "small.yaml"
    file.write_text(text)
    _finish(file, work / "warm-up")  # fills the compilation cache
    started = time.monotonic()
    _finish(file, work / "unbroken")
    whole = time.monotonic() - started
    left, rng, compared, differences = kills, random.Random(5), 0, []
    wanted = left
    while left:
        out = work / f"broken-{compared}"
        hits = _break(file, out, rng, whole, left)
        left -= hits
        differences += tables_equal(work / "unbroken" / "small", out / "small")
        compared += 1
    numbers = f"{wanted} kills of a study of {whole:.0f} s, {compared} continued to the end"
    numbers += "; all tables equal" if not differences else f"; differences: {differences[:3]}"
    return Outcome(not differences, numbers)


def _break(file: Path, out: Path, rng: random.Random, whole: float, most: int) -> int:
    """Kill one study at up to `most` moments, then run it to its end; give the hits."""
    hits = 0
    while hits < most:
        process = subprocess.Popen(
            _words(file, out), cwd=file.parent, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            process.wait(timeout=rng.uniform(0.0, whole))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            hits += 1
            continue
        if process.returncode:
            raise RuntimeError(f"after {hits} kills `hpo run` ended with {process.returncode}")
        return hits
    _finish(file, out)
    return hits


def _finish(file: Path, out: Path) -> None:
    call(_words(file, out), file.parent)


def _words(file: Path, out: Path) -> list[str]:
    return [*hpo_command(), "run", str(file), "--out", str(out), "--quiet"]
