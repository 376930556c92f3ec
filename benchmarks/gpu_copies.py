"""The cost of copies between lanes of several GPUs: a model, from the program for eight H100s.

Population based training copies whole training states between two chunks, by a separate program
(`core.population.change_function`). It is compiled without a GPU, its collectives are counted, and
the time for their bytes is computed from the manufacturers' bandwidths in one direction. It needs
the extra `cuda_aot`, and takes 5 s per policy.

    python benchmarks/gpu_copies.py
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checkout import make_importable
from gpu_cases import CASES, Case, devices_of, plan_of, shapes_of
from gpu_compiled import check_wheels
from gpu_hlo import collectives

GPUS = 8
COPIED = 0.25  # of all lanes: the default of `quantile`
# GB/s into a GPU. In NVIDIA's data sheets, the 900 of the H100's NVLink 4 and the 600 of the
# A100's NVLink 3 are for both directions, like 128 of PCIe 5 x16 and 64 of PCIe 4 x16, which is
# the RTX 4090's only link.
LINKS = {"NVLink 4": 450.0, "NVLink 3": 300.0, "PCIe 5": 64.0, "PCIe 4": 32.0}
POLICIES = {
    "cartpole": 4096, "lstm": 512, "minatar_cnn": 512, "rmsa_packed": 512, "deeprmsa": 512,
    "gnn": 64, "transformer": 64,
}  # fmt: skip


def copies(case: Case, lanes_a_gpu: int, devices: tuple[Any, ...]) -> dict[str, float]:
    """Return the bytes per lane, those that devices sum per lane, and those that each holds."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from hpo.core.population import COPIED_AT_A_TIME, Changes, change_function, lane_mesh

    plan, example = plan_of(case)
    count = lanes_a_gpu * len(devices)
    _, lanes, refills = shapes_of(plan, example, count)
    changes = Changes(
        jax.ShapeDtypeStruct((count,), jnp.int32),
        jax.ShapeDtypeStruct((count,), bool),
        refills.hypers,
    )
    mesh = lane_mesh(devices)
    spread, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("lanes",), ()))

    def placed(tree: Any, where: Any) -> Any:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), tree
        )

    lowered = change_function(mesh).lower(placed(lanes, spread), placed(changes, everywhere))
    compiled = lowered.compile()
    found = collectives(compiled.as_text())
    ops = {one.op for one in found}
    if ops != {"all-reduce"}:  # the only operation in the model below
        raise SystemExit(f"copies are made by {', '.join(sorted(ops)) or 'no collective'}")
    sizes = [leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(lanes.state)]
    return {
        "lane_bytes": sum(sizes) / count,
        "summed_bytes_a_copy": sum(one.bytes for one in found) / COPIED_AT_A_TIME,
        "temporaries": compiled.memory_analysis().temp_size_in_bytes,
    }


def row_of(name: str, made: Mapping[str, float]) -> dict[str, Any]:
    """Compute the time of the copies at one rung between all lanes of eight GPUs.

    To sum n bytes over D devices in a ring, each receives 2 (D - 1) / D n.
    """
    lanes = POLICIES[name]
    copied = round(COPIED * lanes * GPUS)
    received = made["summed_bytes_a_copy"] * copied * 2 * (GPUS - 1) / GPUS
    return {
        "case": name,
        "lanes_a_gpu": lanes,
        "copied": copied,
        **made,
        "received_gb": received / 1e9,
        "held_gb": made["temporaries"] / 1e9,
        "milliseconds": {link: received / speed / 1e6 for link, speed in LINKS.items()},
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as Markdown."""
    names = (
        "policy",
        "lanes a GPU",
        "copied",
        "MB a lane",
        "GB received",
        "GB held meanwhile",
        *(f"ms by {link}" for link in LINKS),
    )
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    for row in rows:
        cells = [
            row["case"],
            f"{row['lanes_a_gpu']:,}",
            f"{row['copied']:,}",
            f"{row['lane_bytes'] / 1e6:.2f}",
            f"{row['received_gb']:.1f}",
            f"{row['held_gb']:.1f}",
            *(f"{row['milliseconds'][link]:,.0f}" for link in LINKS),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=sorted(POLICIES), metavar="CASE")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    check_wheels()
    os.environ.update(JAX_PLATFORMS="cpu", JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1")
    make_importable()
    devices = devices_of("h100", GPUS)
    rows = [
        row_of(name, copies(CASES[name], POLICIES[name], devices))
        for name in arguments.only or POLICIES
    ]
    print(table(rows))
    arguments.out.write_text(
        json.dumps({"gpus": GPUS, "links": LINKS, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
