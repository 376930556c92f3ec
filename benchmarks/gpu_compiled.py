"""The training program compiled for a GPU that is not present: its launches, and their time.

It needs no GPU and no driver: jax's two wheels for CUDA (the extra `cuda_aot`) compile for an
H100, an A100 or an RTX 4090 from a description (`gpu_targets/`). Each case is compiled in a
separate process (20 to 130 s) and cached by a hash of its inputs. Then the launches of every loop
are counted, and their time is computed by a model with the constants in `gpu_cost.py`. No time
here was measured on a GPU.

    python benchmarks/gpu_compiled.py                                  # all cases for an H100
    python benchmarks/gpu_compiled.py --only cartpole rmsa_packed --target a100
    python benchmarks/gpu_compiled.py --source ../before --label before --json FILE
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from checkout import ROOT, make_importable
from gpu_cases import CASES, ESTIMATED, ESTIMATES, FLAGS, TARGETS, compile_case
from gpu_cost import measured, table

CACHE = Path.home() / ".cache" / "hpo" / "gpu_compiled"
WHEELS = ("jax-cuda13-plugin", "jax-cuda13-pjrt")


def child(task: dict[str, Any]) -> None:
    """Compile one case at low priority, and print the folder with the output."""
    os.nice(10)  # here, not before the start, which would fork a process in which jax runs
    make_importable()
    folder = compile_case(
        task["case"], task["target"], task["options"], Path(task["cache"]), Path(task["dump"])
    )
    print(json.dumps(str(folder)))


def folder_of(
    name: str, target: str, options: dict[str, Any], cache: Path, source: Path | None
) -> Path:
    """Compile one case in a separate process at low priority; return its folder.

    Args:
        name: name of the case.
        target: name in `gpu_targets/`.
        options: XLA options, in addition to those of programs.
        cache: where folders are kept.
        source: a checkout to compile instead of this one.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as dump:
        task = {
            "case": name,
            "target": target,
            "options": options,
            "cache": str(cache),
            "dump": dump,
        }
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            "XLA_FLAGS": (ESTIMATES if target in ESTIMATED else "") + FLAGS + dump,
        }
        if source is not None:
            link = Path(dump) / "path"
            link.mkdir()
            (link / "hpo").symlink_to(source.resolve(), target_is_directory=True)
            environment["PYTHONPATH"] = str(link)
        command = [sys.executable, __file__, "--child", json.dumps(task)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{name} did not compile; the message is above")
        return Path(json.loads(done.stdout.splitlines()[-1]))


def commit_of(checkout: Path) -> str:
    """Return a checkout's commit, followed by "+" if its files differ from it."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--exclude=*", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def check_wheels() -> None:
    """Exit with a message if the wheels are missing or do not match this jax."""
    wanted = metadata.version("jax")
    for name in WHEELS:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "missing"
        if found != wanted:
            raise SystemExit(
                f"{name} is {found}, jax is {wanted}; type: pip install --no-deps "
                + " ".join(f"{wheel}=={wanted}" for wheel in WHEELS)
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), metavar="CASE")
    targets = sorted(path.stem for path in TARGETS.glob("*.txtpb"))
    parser.add_argument("--target", choices=targets, default="h100")
    parser.add_argument("--label", default="now", help="of the rows in the JSON file")
    parser.add_argument("--source", type=Path, help="a checkout to compile instead of this one")
    parser.add_argument("--option", nargs="*", default=[], metavar="NAME=VALUE", help="of XLA")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument(
        "--json", type=Path, help="rows are added to, or take the place of, its own"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(json.loads(arguments.child))
    check_wheels()
    options = dict(pair.split("=", 1) for pair in arguments.option)
    rows = _rows(arguments.json)
    for name in arguments.only or CASES:
        key = f"{name}/{arguments.target}/{arguments.label}"
        folder = folder_of(name, arguments.target, options, arguments.cache, arguments.source)
        made = measured(folder, TARGETS / f"{arguments.target}.txtpb")
        rows[key] = {
            "case": name,
            "target": arguments.target,
            "label": arguments.label,
            "commit": commit_of(arguments.source or ROOT),
            "jax": metadata.version("jax"),
            **made,
        }
        print(table([rows[key]]), flush=True)
        if arguments.json is not None:
            ordered = {key: rows[key] for key in sorted(rows)}
            arguments.json.write_text(json.dumps(ordered, indent=1) + "\n")
    print(table(list(rows.values())))
    return None


def _rows(path: Path | None) -> dict[str, Any]:
    return json.loads(path.read_text()) if path is not None and path.is_file() else {}


if __name__ == "__main__":
    main()
