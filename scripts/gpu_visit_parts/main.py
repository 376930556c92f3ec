"""`scripts/gpu_visit --out DIR --wheels DIR`: all measurements for a few minutes on a GPU.

    scripts/gpu_visit --collect wheels/                 # before, with a network
    scripts/gpu_visit --wheels wheels/ --out visit/     # on the GPU: nine minutes, no network
    scripts/gpu_visit --small --out visit/              # test on a CPU: four minutes
    scripts/gpu_visit --reference FILE                  # the numbers to compare with

It needs Python 3.12, jax with CUDA, flax, optax, numpy, scipy, pandas, pyarrow and networkx.
Nothing is installed: wheels are unpacked to a temporary folder. `benchmarks/GPU.md` describes what
each part measures. Exit status: 0, 1 if a deciding part fails, 2 if the visit cannot start.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import kernels, lanes, programs, speed, study, wheels
from .common import BENCHMARKS, ROOT, Report, versions
from .visit import Part, Visit

BUDGET, SMALL_BUDGET = 540.0, 240.0
CONCURRENT = "--xla_gpu_command_buffer_scheduling_mode=CONCURRENT"
PARTS = (
    Part("programs", 150, decides=True),
    Part("lanes", 90, decides=True),
    Part("speed", 190),
    Part("study", 150, decides=True),
    Part("kernels", 90, env={"XLA_FLAGS": kernels.FLAGS}),
    Part("lanes_deterministic", 80, decides=True),
    Part("speed_concurrent", 80, env={"XLA_FLAGS": CONCURRENT}),
)
"""The parts of a visit, the most valuable first."""


def main(words: Sequence[str] | None = None) -> int:
    """Run what was requested."""
    args = _parser().parse_args(words)
    try:
        if args.collect:
            rows = wheels.collect(args.collect)
            total = sum(row["bytes"] for row in rows) / 1e6
            print(f"{len(rows)} wheels, {total:.1f} MB, in {args.collect}")
            return 0
        if args.part:
            return _part(args.part, args.file, args.small)
        if args.reference:
            return _in_process(["--part", "reference", "--file", str(args.reference)])
        return _visit(args)
    except wheels.WheelError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n", 1)[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, help="folder of the JSON files (default: gpu-visit)")
    parser.add_argument("--wheels", type=Path, help="folder made by --collect")
    parser.add_argument("--budget", type=float, help="seconds of the whole visit (default: 540)")
    parser.add_argument("--small", action="store_true", help="all parts, small, on a CPU")
    names = [part.name for part in PARTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these parts")
    parser.add_argument("--collect", type=Path, metavar="DIR", help="download missing wheels")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="make it on this CPU")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    return parser


# ---------------------------------------------------------------------- the main process


def _visit(args: argparse.Namespace) -> int:
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a running part is also ended
    out = (args.out or Path("gpu-visit")).resolve()
    out.mkdir(parents=True, exist_ok=True)
    budget = args.budget or (SMALL_BUDGET if args.small else BUDGET)
    work = Path(tempfile.mkdtemp(prefix="gpu-visit-"))
    try:
        brought = _prepare(work, args)
        about = {
            "small": args.small,
            "budget": budget,
            "wheels": brought,
            "gpu": _gpu(),
            "versions": versions(),
        }
        rest = ["--small"] if args.small else []
        visit = Visit(
            out,
            budget - (time.monotonic() - started),
            lambda part, path: [*_command(), "--part", part.name, "--file", str(path), *rest],
            work,
            about,
        )
        # A CPU may be slow or busy, so only the budget is a limit there.
        limit = {"seconds": budget} if args.small else {}
        visit.run([replace(part, **limit) for part in PARTS if part.name in args.only])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    where = "CPU" if args.small else about["gpu"]
    print(
        f"\n{where}, jax {about['versions']['jax']}, "
        f"{time.monotonic() - started:.0f} s of {budget:.0f}, files in {out}"
    )
    print(visit.table())
    return 1 if visit.failed(PARTS) else 0


def _prepare(work: Path, args: argparse.Namespace) -> list[str]:
    """Put this checkout, and missing wheels, on the import path of the parts."""
    link, site = work / "link", work / "site"
    link.mkdir()
    (link / "hpo").symlink_to(ROOT, target_is_directory=True)
    brought = wheels.install(args.wheels, site) if args.wheels else []
    wheels.stand_in(work / "pictures")
    paths = [
        str(link),
        str(BENCHMARKS),
        str(site),
        str(work / "pictures"),
        os.environ.get("PYTHONPATH", ""),
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    # also programs compiled by other parts
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(work / "compiled")
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    os.environ["TMPDIR"] = str(work)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTHONUNBUFFERED"] = "1"
    if args.small:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # halves the compile time
    return brought


def _gpu() -> str:
    """Return the driver's description of the GPU; nothing if there is none."""
    words = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _command() -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "gpu_visit")]


def _in_process(words: Sequence[str]) -> int:
    """Run a part in a process that can import this checkout."""
    with tempfile.TemporaryDirectory(prefix="gpu-visit-") as folder:
        (Path(folder) / "hpo").symlink_to(ROOT, target_is_directory=True)
        paths = [folder, str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        return subprocess.run([*_command(), *words], env=env).returncode


# ---------------------------------------------------------------------- the process of one part


def _part(name: str, path: Path, small: bool) -> int:
    if name == "reference":
        programs.write_reference(path, _devices("cpu"))
        return 0
    report = Report(path, {"part": name, "small": small})
    if name == "study":  # its command needs the GPU's memory
        study.run(report, small)
        return 0
    deterministic = name == "lanes_deterministic"
    devices = _devices("cpu" if small else "gpu", deterministic)
    report.document["device"] = devices[0].device_kind
    if name == "programs":
        programs.run(report, devices)
    elif name == "kernels":
        kernels.run(report, devices, small)
    elif name.startswith("lanes"):
        lanes.run(report, devices, small, deterministic)
    else:
        speed.run(report, devices, small, concurrent=name == "speed_concurrent")
    return 0


def _devices(platform: str, deterministic: bool = False) -> tuple[Any, ...]:
    from hpo.machine.devices import prepare_devices
    from hpo.machine.software import enable_compilation_cache

    enable_compilation_cache()
    return prepare_devices(platform, deterministic)
