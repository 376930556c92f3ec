"""Importing: W&B sweeps and scripts of other projects become studies or are rejected."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from .common import ROOT, Outcome, hpo_command, load_file
from .imported_scripts import arlbench, cleanrl, lerax_jaxdem, purejaxrl, rlzoo, xlron
from .imported_scripts.script import COMMITS, Script

_SMALL = ["--budget.trials=2", "--env_steps=4k", "--evaluation.episodes=2", "--seeds.per_config=1"]
_COMMAND = """python train.py --env_type=rmsa --topology_name=nsfnet_deeprmsa_directed \\
  --link_resources=50 --k=3 --load=100 --continuous_operation --ENV_WARMUP_STEPS=128 \\
  --TOTAL_TIMESTEPS=4096 --NUM_ENVS=4 --ROLLOUT_LENGTH=64 --aggregate_slots=10 --WANDB
"""


def sweeps(small: bool, work: Path) -> Outcome:
    """Import every sweep with `hpo import`; train an imported sweep and an imported command."""
    table = load_file(ROOT / "tests" / "helpers" / "imported_sweeps.py").SWEEPS
    names = list(table)[:: 8 if small else 1]
    faults, imported = [], 0
    for name in names:
        text, expected = table[name]
        path = work / f"{name}.yaml"
        path.write_text(text)
        done = _ended([*hpo_command(), "import", "wandb", str(path)], work)
        refused = isinstance(expected, str)
        imported += done.returncode == 0
        if done.returncode != (2 if refused else 0) or "Traceback" in done.stderr:
            faults.append(f"{name}: exit {done.returncode}: {done.stderr[-200:]}")
        elif refused and not re.search(expected, done.stderr):
            faults.append(f"{name}: refused without its reason: {done.stderr[-200:]}")
    trained = [] if small else [_train_sweep(table, work), _train_command(work)]
    faults += [fault for fault in trained if fault]
    numbers = f"{imported} of {len(names)} sweeps imported, the others refused with a reason"
    if not small:
        numbers += "; an imported sweep and an imported training command train"
    if faults:
        numbers += "; first fault: " + " ".join(faults[0].split())
    return Outcome(not faults, numbers)


def _ended(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def _train_sweep(table: dict[str, tuple[str, object]], work: Path) -> str:
    path = work / "sweep-that-trains.yaml"
    path.write_text(table["hyperband_of_iterations"][0])
    return _train(["wandb", str(path)], _SMALL, work / "from-wandb.yaml", 2)


def _train_command(work: Path) -> str:
    path = work / "flags.txt"
    path.write_text(_COMMAND)
    given = ["--evaluation.episodes=2", "--evaluation.steps=200", "--WANDB=false"]
    return _train(["xlron", str(path)], given, work / "from-xlron.yaml", 1)


def _train(source: list[str], given: list[str], study: Path, trials: int) -> str:
    """Import and run; return a fault, or ""."""
    words = [*hpo_command(), "import", *source, "--to", str(study), "--", *given]
    done = _ended(words, study.parent)
    if done.returncode:
        return f"import: {done.stderr[-300:]}"
    out = study.parent / f"results-{study.stem}"
    run = [*hpo_command(), "run", str(study), "--quiet", "--out", str(out)]
    done = _ended(run, study.parent)
    if done.returncode:
        return f"run: {done.stderr[-300:]}"
    top = [*hpo_command(), "top", "--json", "--study", str(next(out.iterdir()))]
    found = json.loads(_ended(top, study.parent).stdout)
    rows = found["leaderboard"]
    return "" if len(rows) == trials else f"{len(rows)} trials, not {trials}"


# ------------------------------------------------- scripts of other projects, unchanged

_SOURCES = "HPO_SCRIPTS"
"""Environment variable with the path of a folder with checkouts of the projects.

Checkouts have the projects' names; for earlier versions the commit is appended, as in
`lerax-1a2b3c4`.
"""
_PROJECTS = (purejaxrl, lerax_jaxdem, cleanrl, rlzoo, xlron, arlbench)
SCRIPTS = tuple(script for project in _PROJECTS for script in project.SCRIPTS)
_PARTS_OF_WIDTHS = ("num_layers", "hidden_size")  # compared as hidden_sizes


def scripts(small: bool, work: Path) -> Outcome:
    """Import the scripts of other projects; compare every value with the table."""
    cases = SCRIPTS[:: 6 if small else 1]
    faults, refused, values = [], 0, 0
    for number, case in enumerate(cases):
        wrong, compared = _imported(case, work / str(number))
        refused += bool(case.refused)
        values += compared
        faults += [f"{case.path} {' '.join(case.given)}: {fault}" for fault in wrong]
    numbers = (
        f"{len(cases) - refused} scripts of {len({case.repository for case in cases})} projects "
        f"imported, {values} values compared, {refused} refused with a reason; wrong {len(faults)}"
    )
    if faults:
        numbers += "; first fault: " + " ".join(faults[0].split())
    return Outcome(not faults, numbers)


def _imported(case: Script, folder: Path) -> tuple[list[str], int]:
    """Return what is wrong with one script, and how many values were compared."""
    path = _written(case, case.path, case.sha256, folder)
    for beside, sha256 in case.beside:
        _written(case, beside, sha256, folder)
    if case.command is not None:
        blocks = re.findall(r"^```\w*\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
        commands = [text for text in blocks if re.search(r"xlron[./]train[./]train\b", text)]
        path = folder / "command.txt"
        path.write_text(commands[case.command])
    study = folder / "study.yaml"
    given = ["--", *case.given] if case.given else []
    done = _ended(
        [*hpo_command(), "import", case.kind, str(path), "--to", str(study), *given], folder
    )
    if case.refused:
        held = done.returncode == 2 and case.refused in done.stderr
        return ([] if held else [f"exit {done.returncode}: {done.stderr[-200:]}"]), 0
    if done.returncode:
        return [f"exit {done.returncode}: {done.stderr[-200:]}"], 0
    return _compared(case, study)


def _compared(case: Script, path: Path) -> tuple[list[str], int]:
    from hpo.knobs import complete
    from hpo.studies.load import load
    from hpo.studies.yaml_io import plain, read_text

    study, data = load(path), plain(read_text(path.read_text(), path.name))
    config = complete(study.fixed)
    expected = {"env": case.env, "env_steps": case.env_steps, **case.study, **case.trains}
    found = {"env": study.env.id, "env_steps": study.env_steps}
    found |= {name: _at(data, name.split(".")) for name in case.study}
    written = {*case.trains, *study.fixed} - {*study.space.names, *_PARTS_OF_WIDTHS}
    found |= {name: config[name] for name in written}
    wrong = [
        f"{name} is {found[name]!r}, not {expected.get(name, 'in the script')!r}"
        for name in found
        if not _same(found[name], expected.get(name, _same))
    ]
    return wrong, len(found)


def _at(data: Any, keys: list[str]) -> Any:
    """Return the value at dotted keys; None if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-9)
    return ours == theirs


def _written(case: Script, path: str, sha256: str, folder: Path) -> Path:
    """Write a project's file below `folder`, from a checkout or from GitHub."""
    name = case.repository.partition("/")[2]
    commit = case.commit or COMMITS[case.repository]
    if os.environ.get(_SOURCES):
        checkout = f"{name}-{commit[:7]}" if case.commit else name
        data = (Path(os.environ[_SOURCES]) / checkout / path).read_bytes()
    else:
        address = f"https://raw.githubusercontent.com/{case.repository}/{commit}/{path}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            data = answer.read()
    if not hashlib.sha256(data).hexdigest().startswith(sha256):
        raise ValueError(f"{case.repository} {path} is not the file of {commit[:7]}")
    target = folder / name / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target
