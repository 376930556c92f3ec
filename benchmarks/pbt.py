"""The cost of population based training: a study with 64 lanes, with and without copies.

Both sides train the same configurations in the same program, chunk by chunk, and evaluate all of
them at the same env steps; one side copies and changes lanes at every rung, like `pbt` and `pb2`,
and records that. Programs are compiled once, before any timing, and sides take turns, so that
conditions are equal; ratios are within a turn, of wall and of CPU seconds. Episodes of Pendulum-v1
all have the same length: on CartPole-v1, copies of good policies would make evaluations longer,
which is not a cost of copying.

    python benchmarks/pbt.py              # three minutes on two cores
    python benchmarks/pbt.py --small      # seconds; the ratio means little
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from checkout import make_importable

STUDY = """\
name: pbt-cost
env: Pendulum-v1
env_steps: {env_steps}
fixed: {{num_envs: 8, rollout_length: 128, hidden_sizes: [64, 64], update_epochs: 4,
        num_minibatches: 4, normalise_rewards: false}}
space:
  learning_rate: {{min: 1e-4, max: 3e-3, distribution: log_uniform}}
  gamma: {{min: 0.9, max: 0.999, distribution: one_minus_log}}
  gae_lambda: {{min: 0.8, max: 1.0, distribution: uniform}}
  clip_eps: {{min: 0.05, max: 0.4, distribution: log_uniform}}
  ent_coef: {{min: 1e-4, max: 0.05, distribution: log_uniform}}
  vf_coef: {{min: 0.1, max: 2.0, distribution: log_uniform}}
search: {{method: random}}
evaluation: {{episodes: 4, every: {every}}}
budget: {{trials: {trials}}}
population: {{lanes: {trials}}}
"""
THRESHOLD = 1.05


def study(rule: str | None, trials: int, rungs: int, updates: int) -> Any:
    from hpo.studies.load import loads

    every = updates * 1_024
    text = STUDY.format(env_steps=every * rungs, every=every, trials=trials)
    if rule is not None:
        text += f"early_terminate: {{type: {rule}, every: {every}}}\n"
    return loads(text)


def factory_of(asked: Any, programs: dict[Any, Any], spent: dict[str, float]) -> Any:
    """Return a factory whose programs are kept between studies, and which times lane changes."""
    from hpo.search.lanes.local import LocalFactory
    from hpo.search.lanes.local_population import LocalPopulation

    class Timed(LocalPopulation):
        def change(self, changes: Any) -> None:
            started = time.perf_counter()
            super().change(changes)
            import jax

            jax.block_until_ready(self._lane_arrays)
            spent["change_seconds"] += time.perf_counter() - started
            spent["copies"] += len(changes)

    class Kept(LocalFactory):
        def make(self, resolved: Any, lanes: int | None) -> Timed:
            program = self.program_of(resolved, lanes)
            key = (program.plan, program.lanes, program.updates, program.tile)
            return Timed(self.split, programs.setdefault(key, program))

    return Kept(asked)


class _FirstCopies:
    """A callback that ends a study once its first copies have continued training."""

    def __init__(self, chunks: int):
        self._left = chunks

    def on_chunk(self, event: Any) -> None:
        from hpo.search.engine.callbacks import StopStudy

        self._left -= 1
        if self._left == 0:
            raise StopStudy

    def on_evaluation(self, event: Any) -> None:
        """Do nothing."""

    def on_trial_end(self, event: Any) -> None:
        """Do nothing."""


def run_once(asked: Any, programs: dict[Any, Any], chunks: int | None = None) -> dict[str, float]:
    """Run a study, up to a number of chunks; return its cost."""
    from hpo.search.run import RunOptions, run

    spent = {"change_seconds": 0.0, "copies": 0.0}
    factory = factory_of(asked, programs, spent)
    callbacks = () if chunks is None else (_FirstCopies(chunks),)
    with tempfile.TemporaryDirectory() as folder:
        started, busy = time.perf_counter(), time.process_time()
        usage = run(
            asked, Path(folder) / asked.name, factory, (), RunOptions(callbacks=callbacks)
        ).usage
        seconds, cpu = time.perf_counter() - started, time.process_time() - busy
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "chunk_seconds": usage.chunk_seconds,
        "chunks": float(usage.chunks),
        "env_steps": float(usage.env_steps),
        **spent,
    }


def measure(trials: int, rungs: int, updates: int, rounds: int) -> dict[str, Any]:
    """Take turns; return medians, and the medians of the ratios within a turn."""
    sides = {"alone": None, "pbt": "pbt", "pb2": "pb2"}
    studies = {name: study(rule, trials, rungs, updates) for name, rule in sides.items()}
    programs: dict[Any, Any] = {}
    for asked in studies.values():
        run_once(asked, programs, chunks=updates + 1)  # compiles; a chunk has at least one update
    if len(programs) != 1:
        raise RuntimeError(f"the sides use {len(programs)} programs and cannot be compared")
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            turns[name].append(run_once(studies[name], programs))
    found: dict[str, Any] = {
        name: {key: statistics.median(turn[key] for turn in seen) for key in seen[0]}
        for name, seen in turns.items()
    }
    for name in ("pbt", "pb2"):
        for key, ratio in (("seconds", "ratio"), ("cpu_seconds", "cpu_ratio")):
            pairs = zip(turns[name], turns["alone"], strict=True)
            ratios = [mine[key] / theirs[key] for mine, theirs in pairs]
            found[name][ratio] = statistics.median(ratios)
            found[name][f"{ratio}s"] = ratios
    return found


def report(found: dict[str, Any]) -> str:
    lines = ["side    seconds     cpu  chunks  changes  copies  over alone: wall    cpu"]
    for name in ("alone", "pbt", "pb2"):
        row = found[name]
        ratios = [f"{row[key]:.3f}" if key in row else "-" for key in ("ratio", "cpu_ratio")]
        lines.append(
            f"{name:<6} {row['seconds']:>8.2f} {row['cpu_seconds']:>7.2f} "
            f"{row['chunk_seconds']:>7.2f} {row['change_seconds']:>8.3f} {row['copies']:>7.0f} "
            f"{ratios[0]:>17} {ratios[1]:>6}"
        )
    return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Scale:
    """The amount of measurement; full runs halve pendulum_pbt.yaml's rungs to 20,480 env steps."""

    trials: int
    rungs: int
    updates: int
    rounds: int


WHOLE, SMALL = Scale(64, 5, 20, 3), Scale(16, 4, 1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    make_importable()
    scale = SMALL if arguments.small else WHOLE
    found = measure(scale.trials, scale.rungs, scale.updates, scale.rounds)
    print(report(found))
    if arguments.small:
        return
    document = {
        "threshold": THRESHOLD,
        "scale": dataclasses.asdict(scale),
        "machine": {"cores": os.cpu_count(), "cpu": platform.processor() or platform.machine()},
        "versions": {name: metadata.version(name) for name in ("jax", "jaxlib", "numpy", "scipy")},
        **found,
    }
    arguments.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
