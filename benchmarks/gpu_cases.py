"""Training programs that are compiled for GPUs without having one: cases as data; compilation.

A compile runs in a separate process (XLA reads its flags once): it lowers the training program of
a case from shapes alone, and stores the compiler's output in a folder.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_hlo import collectives

TARGETS = Path(__file__).parent / "gpu_targets"
UPDATES = 3  # per chunk; no other loop of a case has this length
FLAGS = (
    "--xla_dump_hlo_as_text --xla_dump_hlo_as_long_text=false "
    "--xla_dump_hlo_module_re=jit_local --xla_dump_to="
)
# XLA's estimates of kernels. Its tables do not have the A100 and the RTX 4090 (jax 0.10.2 reports
# "Cannot find key: sm_80"), so their kernels take the time for their bytes.
ESTIMATES = "--xla_gpu_collect_cost_model_stats=true "
ESTIMATED = ("h100",)
PPO = {"num_envs": 8, "rollout_length": 128, "update_epochs": 4, "num_minibatches": 4,
       "learning_rate": 3e-4, "lr_schedule": "constant", "normalise_rewards": False}  # fmt: skip
LINKS = {**PPO, "num_envs": 16, "rollout_length": 100, "hidden_sizes": (64, 64)}
TF32 = {"matmul_precision": "tf32"}


@dataclass(frozen=True)
class Case:
    """One training program.

    Attributes:
        env: id of the environment.
        lanes: number in the program, on all its devices together.
        knobs: its hyperparameters.
        keys: fixed environment keys.
        tile: lanes per tile; None: as in a study.
        devices: number of devices of one host over which lanes are spread.
    """

    env: str
    lanes: int
    knobs: Mapping[str, Any] = field(default_factory=lambda: PPO)
    keys: Mapping[str, Any] = field(default_factory=dict)
    tile: int | None = None
    devices: int = 1


CASES = {
    "cartpole": Case("CartPole-v1", 4096),
    "cartpole_512": Case("CartPole-v1", 512),
    "cartpole_8_gpus": Case("CartPole-v1", 8 * 512, devices=8),
    "pendulum": Case("Pendulum-v1", 4096),
    "minatar_cnn": Case("Breakout-MinAtar", 512, {**PPO, "network": "cnn"}),
    "lstm": Case("CartPole-v1", 512, {**PPO, "network": "lstm"}),
    "rmsa_flat": Case("rmsa", 512, LINKS, {"observation": "flat"}),
    "rmsa_packed": Case("rmsa", 512, LINKS, {"observation": "packed"}),
    "rmsa_packed_tf32": Case("rmsa", 512, {**LINKS, **TF32}, {"observation": "packed"}),
    "rmsa_paths": Case("rmsa", 512, LINKS, {"observation": "paths"}),
    "deeprmsa": Case("deeprmsa", 512, {**LINKS, "hidden_sizes": (128,) * 5}),
    "gnn": Case("rmsa", 64, {**LINKS, "network": "gnn"}),
    "transformer": Case("rmsa", 64, {**LINKS, "network": "transformer"}),
    "brax": Case("brax:inverted_pendulum", 512),
}


def plan_of(case: Case, platform: str = "gpu") -> tuple[Any, Any]:
    """Return a case's plan in the form used on a platform, and hypers for its shapes."""
    from hpo.core.envs import registry
    from hpo.core.hypers import make_hypers
    from hpo.core.memory import for_platform
    from hpo.core.plan import EnvPlan, make_plan

    where = EnvPlan(case.env, tuple(sorted(case.keys.items())))
    plan = make_plan(dict(case.knobs), where, features=())
    params = registry.make(plan.env).default_params
    return for_platform(plan, platform), make_hypers(dict(case.knobs), params, params)


def tile_of(case: Case, plan: Any, example: Any, memory_bytes: int) -> int:
    """Return the lanes per tile in a study with this many lanes on such GPUs."""
    from hpo.core import memory

    if case.tile is not None:
        return case.tile
    if hasattr(memory, "gpu_tile"):
        return memory.gpu_tile(plan, example, case.lanes // case.devices, memory_bytes)
    from hpo.search.lanes.lane_count import tile_of as by_parameters  # in older versions

    return by_parameters("gpu", memory.parameter_count(plan, example))  # pyright: ignore


def shapes_of(plan: Any, example: Any, lanes: int) -> tuple[Any, Any, Any]:
    """Return (seed, lanes, refills) of a program, as shapes."""
    import jax
    import jax.numpy as jnp

    from hpo.core.population import Lanes, Refills, lane_shapes

    state = lane_shapes(plan, example)

    def made() -> tuple[Any, Any, Any]:
        def row(leaf: Any) -> Any:
            return jnp.zeros((lanes, *jnp.shape(leaf)), leaf.dtype)

        hypers, states = (jax.tree.map(row, tree) for tree in (example, state))
        number, flag = jnp.zeros(lanes, jnp.int32), jnp.zeros(lanes, bool)
        refills = Refills(
            mask=flag,
            busy=flag,
            hypers=hypers,
            stream=number,
            replicate=number,
            updates=number,
            total_updates=number,
        )
        return jnp.int32(0), Lanes(hypers, states), refills

    return jax.eval_shape(made)


def lowered(case: Case, tile: int, plan: Any, example: Any, devices: Any) -> Any:
    """Return the lowered training program of a case, for devices that need not exist."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from hpo.core.population import advance_function, lane_mesh

    mesh = lane_mesh(devices)
    spread, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("lanes",), ()))
    seed, lanes, refills = shapes_of(plan, example, case.lanes)

    def placed(tree: Any, where: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree
        )

    function = advance_function(plan, mesh, tile, UPDATES)
    return function.lower(
        placed(seed, everywhere), placed(lanes, spread), placed(refills, spread), None
    )


def devices_of(target: str, count: int = 1) -> tuple[Any, ...]:
    """Return devices to compile for, from a target configuration in `gpu_targets/`."""
    from jax.experimental import topologies

    text = (TARGETS / f"{target}.txtpb").read_text()
    return tuple(
        topologies.get_topology_desc(
            platform="cuda", target_config=text, topology=f"1x1x{count}"
        ).devices
    )


def compile_case(
    name: str, target: str, options: Mapping[str, Any], cache: Path, dump: Path
) -> Path:
    """Compile a case and return the folder with the output.

    The folder's name is a hash of everything that determines the result: the lowered program, the
    target, XLA's options and jax's version. An existing folder is not compiled again.
    """
    import jax

    from hpo.core import memory, program

    case = CASES[name]
    devices = devices_of(target, case.devices)
    plan, example = plan_of(case)
    tile = tile_of(case, plan, example, memory_of(target))
    began = time.monotonic()
    made = lowered(case, tile, plan, example, devices)
    options = {**program.compiler_options(devices), **options}
    text = made.as_text()
    rests = [text, (TARGETS / f"{target}.txtpb").read_text(), repr(options), jax.__version__]
    folder = cache / hashlib.sha256("\0".join(rests).encode()).hexdigest()[:16]
    if (folder / "about.json").is_file():
        return folder
    halfway = time.monotonic()
    compiled = made.compile(compiler_options=options)
    ended = time.monotonic()
    analysis, optimised = compiled.memory_analysis(), compiled.as_text()
    needed = memory.estimate_memory(plan, example, case.lanes, tile, case.devices)
    about = {
        "env_steps": case.lanes * plan.steps_per_update,
        "rollout_length": plan.rollout_length,
        "epochs": case.knobs["update_epochs"],
        "lanes": case.lanes,
        "devices": case.devices,
        "tile": tile,
        "parameters": memory.parameter_count(plan, example),
        "precision": plan.dtype if plan.dtype != "float32" else plan.matmul_precision,
        "lower_seconds": halfway - began,
        "compile_seconds": ended - halfway,
        "estimate_mb": needed / case.devices / 2**20,
        "arguments_mb": analysis.argument_size_in_bytes / 2**20,
        "temporaries_mb": analysis.temp_size_in_bytes / 2**20,
        "collectives": [one.op for one in collectives(optimised)],
        "options": options,
    }
    partial = Path(tempfile.mkdtemp(dir=cache))
    _keep(partial / "program.hlo.gz", optimised)
    for kind in ("thunk_sequence_after_thunk_passes", "thunk_metadata"):
        [found] = dump.glob(f"*jit_local*{kind}.txt")
        _keep(partial / f"{kind}.gz", found.read_text())
    (partial / "about.json").write_text(json.dumps(about, indent=2))
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


def _keep(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))


def memory_of(target: str) -> int:
    """Return the memory of a target in bytes."""
    text = (TARGETS / f"{target}.txtpb").read_text()
    [line] = [line for line in text.splitlines() if "device_memory_size" in line]
    return int(line.split(":")[1])
