"""Point 6 of the search: sweeps of W&B become studies or are refused; what is imported trains."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from .common import ROOT, Outcome, hpo_command, load_file

_SMALL = ["--budget.trials=2", "--env_steps=4k", "--evaluation.episodes=2", "--seeds.per_config=1"]
_COMMAND = """python train.py --env_type=rmsa --topology_name=nsfnet_deeprmsa_directed \\
  --link_resources=50 --k=3 --load=100 --continuous_operation --ENV_WARMUP_STEPS=128 \\
  --TOTAL_TIMESTEPS=4096 --NUM_ENVS=4 --ROLLOUT_LENGTH=64 --aggregate_slots=10 --WANDB
"""


def sweeps(small: bool, work: Path) -> Outcome:
    """Return every sweep to `hpo import`; train an imported sweep and an imported command."""
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
    """Import and run; give a fault, or nothing."""
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
