"""The cost of proposals: env steps per second with TPE over those with random search.

Both searches run exactly the same configurations: the TPE side draws every proposal as TPE would,
from the history so far, and then runs the proposal of random search. So the ratio shows only the
time that proposals take away from the lanes. Without `--real`, a chunk takes a fixed simulated
time on a separate device; with it, PPO trains on CartPole on this machine's cores, which then also
have to draw the proposals.

    python benchmarks/search_overhead.py
    python benchmarks/search_overhead.py --real
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from importlib import metadata
from pathlib import Path

from helpers.analytic_lanes import AnalyticFactory
from hpo.search.lanes.contract import PopulationFactory
from hpo.search.run import RunOptions, run
from hpo.search.samplers import via_optuna
from hpo.search.samplers.registry import register_sampler
from hpo.search.samplers.without_model import RandomSearch
from hpo.spaces import Parameter, Space, make_distribution
from hpo.studies.env_spec import EnvSpec
from hpo.studies.execution_spec import Budget
from hpo.studies.search_spec import SearchSpec
from hpo.studies.spec import Study


class ShadowTpe:
    """Draws with TPE, but proposes what random search would."""

    def __init__(self, spec):
        self._tpe = via_optuna.Tpe(spec)
        self._random = RandomSearch(spec)

    def begin(self, batch, history):
        self._batch = self._tpe.begin(batch, history)
        return self

    def draw(self, trial, attempt):
        self._batch.draw(trial, attempt)
        return self._random.draw(trial, attempt)

    def keep(self, trial, params):
        self._batch.keep(trial, params)


def parameter(name: str, default: float | int, **fields: object) -> Parameter:
    return Parameter(name, make_distribution(fields), default)


SPACE = Space(
    (
        parameter("learning_rate", 3e-4, min=1e-4, max=1e-2, distribution="log_uniform"),
        parameter("gamma", 0.99, min=0.95, max=0.999, distribution="one_minus_log"),
        parameter("gae_lambda", 0.95, min=0.8, max=1.0, distribution="uniform"),
        parameter("clip_eps", 0.2, min=0.05, max=0.4, distribution="log_uniform"),
        parameter("ent_coef", 0.01, min=1e-4, max=0.05, distribution="log_uniform"),
        parameter("vf_coef", 0.5, min=0.1, max=2.0, distribution="log_uniform"),
        parameter("max_grad_norm", 0.5, min=0.2, max=5.0, distribution="log_uniform"),
        parameter("update_epochs", 4, min=2, max=6, distribution="int_uniform"),
    )
)


def study(method: str, trials: int, lanes: int, env_steps: int) -> Study:
    base = Study(
        name=f"overhead-{method}",
        env=EnvSpec("CartPole-v1"),
        env_steps=env_steps,
        space=SPACE,
        fixed={"num_envs": 8, "rollout_length": 128, "hidden_sizes": (64, 64)},
        search=SearchSpec(method),
        budget=Budget(trials=trials),
    )
    population = type(base.population)(lanes=lanes)
    return Study(**{**vars(base), "population": population})


def factory_of(asked: Study, arguments: argparse.Namespace) -> PopulationFactory:
    if arguments.real:
        from hpo.search.lanes.local import LocalFactory

        return LocalFactory(asked)
    return AnalyticFactory(
        lanes=arguments.lanes,
        quanta={"64x64": asked.env_steps // 16},
        chunk_seconds=arguments.chunk_seconds,
        diverges_above=1e9,
    )


def measure(method: str, arguments: argparse.Namespace) -> dict[str, float]:
    asked = study(method, arguments.trials, arguments.lanes, arguments.env_steps)
    factory = factory_of(asked, arguments)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        usage = run(asked, Path(folder) / asked.name, factory, (), RunOptions()).usage
        return {
            "method": method,
            "env_steps_per_second": usage.env_steps / usage.run_seconds,
            "seconds": usage.run_seconds,
            "outside_chunks_seconds": usage.run_seconds - usage.chunk_seconds,
            "host_cpu_seconds": time.process_time() - started,
            "occupancy": usage.occupancy,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--real", action="store_true", help="train PPO on CartPole")
    parser.add_argument("--trials", type=int, default=1_000)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--env-steps", type=int, default=204_800, help="of one trial")
    parser.add_argument("--chunk-seconds", type=float, default=0.25, help="without --real")
    parser.add_argument("--repeats", type=int, default=1, help="interleaved; medians are shown")
    parser.add_argument("--out", type=Path, help="write a JSON file")
    arguments = parser.parse_args()
    register_sampler("shadow_tpe", ShadowTpe)
    runs = [
        measure(method, arguments)
        for _ in range(arguments.repeats)
        for method in ("random", "shadow_tpe")
    ]
    speeds = {
        method: statistics.median(
            entry["env_steps_per_second"] for entry in runs if entry["method"] == method
        )
        for method in ("random", "shadow_tpe")
    }
    ratio = speeds["shadow_tpe"] / speeds["random"]
    print("| method | env steps/s | seconds | outside chunks | host CPU seconds | occupancy |")
    print("|---|---|---|---|---|---|")
    for entry in runs:
        print(
            f"| {entry['method']} | {entry['env_steps_per_second']:,.0f} "
            f"| {entry['seconds']:.1f} | {entry['outside_chunks_seconds']:.2f} "
            f"| {entry['host_cpu_seconds']:.1f} | {entry['occupancy']:.3f} |"
        )
    print(f"\nTPE over random: {ratio:.3f} (at least 0.95 is the claim)")
    if arguments.out is not None:
        about = {
            "machine": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "versions": {name: metadata.version(name) for name in ("optuna", "numpy", "jax")},
            "arguments": {name: str(value) for name, value in vars(arguments).items()},
        }
        arguments.out.write_text(json.dumps({**about, "runs": runs, "ratio": ratio}, indent=2))


if __name__ == "__main__":
    main()
