"""A configuration's cost on the host before its lane runs: admission, first refill, further ones.

A trial is resolved once. On admission its hyperparameters are completed, checked and given a plan;
at its first refill, it gets traced numbers; each further seed writes the same numbers to another
lane.

    python benchmarks/refill.py
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np

from hpo.search.lanes.contract import Resolved
from hpo.search.lanes.local import LocalFactory
from hpo.search.lanes.local_population import put_row
from hpo.search.lanes.resolver import Resolver
from hpo.studies.load import load

STUDY = Path(__file__).parent.parent / "studies" / "cartpole.yaml"


def microseconds(each: Callable[[int], object], count: int) -> float:
    """Return the CPU time of one of `count` calls."""
    started = time.process_time()
    for index in range(count):
        each(index)
    return (time.process_time() - started) / count * 1e6


def measure(repeats: int, trials: int) -> dict[str, float]:
    study = load(STUDY)
    factory, rng = LocalFactory(study), np.random.default_rng(0)
    params = [study.space.draw(rng) for _ in range(trials)]
    program = factory.program_of(factory.resolve(study.default()), trials)
    rows = program.no_refills()
    found: dict[str, list[float]] = {"admit": [], "first refill": [], "further refill": []}
    for _ in range(repeats):
        resolver, held = Resolver(study, factory), list[Resolved]()

        def refill(lane: int, resolver: Resolver = resolver) -> None:
            put_row(rows.hypers, resolver.of(params[lane]).payload.hypers, lane)

        def admit(lane: int, resolver: Resolver = resolver, held: list[Resolved] = held) -> None:
            held.append(resolver.of(params[lane]))

        for name, step in (("admit", admit), ("first refill", refill), ("further refill", refill)):
            found[name].append(microseconds(step, trials))
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=30, help="medians are shown")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--out", type=Path, help="write a JSON file")
    arguments = parser.parse_args()
    found = measure(arguments.repeats, arguments.trials)
    print("| step of a trial | host CPU, us |\n|---|---|")
    for name, value in found.items():
        print(f"| {name} | {value:,.0f} |")
    if arguments.out is not None:
        about = {
            "machine": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "versions": {name: metadata.version(name) for name in ("numpy", "jax")},
        }
        arguments.out.write_text(json.dumps({**about, "microseconds": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
