"""Results point 3: a study over five environments, killed three times, keeps its lanes busy.

The short form uses analytic lanes and two environments, and kills a separate process.
"""

from __future__ import annotations

import json
import random
import sys
import time
from functools import partial
from pathlib import Path

from .common import ROOT, Outcome, call, hpo_command
from .crash import break_one

KILLS = 3
OCCUPANCY = 0.90
ENVIRONMENTS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Catch-bsuite", "Pendulum-v1")
_STUDY = """\
name: small
env: [{environments}]
env_steps: {env_steps}
fixed: {{num_envs: 8, rollout_length: 128, hidden_sizes: [64, 64], lr_schedule: linear}}
space:
  learning_rate: {{min: 1e-4, max: 1e-2, distribution: log_uniform}}
  gamma: {{min: 0.95, max: 0.999, distribution: one_minus_log}}
  gae_lambda: {{min: 0.8, max: 0.99, distribution: uniform, default: 0.95}}
  ent_coef: {{min: 1e-4, max: 0.03, distribution: log_uniform, default: 0.01}}
early_terminate: {{type: asha, min: {first}, eta: 2}}
evaluation: {{episodes: 16}}
confirm: {{top_k: 2, choose: 3, report: 5}}
population: {{lanes: {lanes}}}
budget: {{trials: {trials}}}
"""
_ANALYTIC = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from acceptance_points.several import analytic
analytic(Path(sys.argv[1]), Path(sys.argv[2]), 0.0)
"""


def study_text(small: bool) -> str:
    """Return the study: five environments and 64 trials, or two environments and fewer trials."""
    names, env_steps, first, trials, lanes = ENVIRONMENTS, 98_304, 16_384, 64, 16
    if small:
        names, env_steps, first, trials, lanes = ENVIRONMENTS[:2], 16_000, 4_000, 12, 4
    return _STUDY.format(
        environments=", ".join(names), env_steps=env_steps, first=first, trials=trials, lanes=lanes
    )


def killed(small: bool, work: Path) -> Outcome:
    """Kill the study after commits; check its tables, busy lanes and report."""
    from hpo.store import tables_equal
    from hpo.store.study_folder import StudyFolder
    from hpo.views.report.report import write_report

    file = work / "small.yaml"
    file.write_text(study_text(small))
    started = time.monotonic()
    _run(small, file, work / "unbroken")
    whole = time.monotonic() - started
    left, kills, studies, differences = (1 if small else KILLS), 0, 0, list[str]()
    rng, unbroken = random.Random(3), StudyFolder(work / "unbroken" / "small")
    while left:  # a study may end before it is hit; then a new one starts
        out = work / f"broken-{studies}"
        words = _words(small, file, out)
        hits = break_one(
            words,
            out,
            left,
            lambda: rng.uniform(0.0, whole),
            midway=True,
            finish=partial(_run, small, file, out),
        )
        left, kills, studies = left - hits, kills + hits, studies + 1
        differences += tables_equal(unbroken.path, out / "small")
        differences += _counters(unbroken.path, out / "small")
    busy, steps, trials = _usage(unbroken.path)
    text = "" if small else write_report(unbroken).read_text(encoding="utf-8")
    drawn = small or "Performance profile" in text
    count = len(_environments(unbroken.path))
    numbers = f"{trials} trials over {count} environments, {steps / 1e6:.1f}M env steps in "
    numbers += f"{whole:.0f} s: {busy:.1%} of lanes busy while work remained, with all ends "
    numbers += f"{_busy_lanes(unbroken.path, count):.1f} a chunk; {kills} kills behind commits of "
    numbers += f"{studies} studies"
    numbers += "; all tables and counters equal" if not differences else f"; {differences[:3]}"
    numbers += "" if drawn else "; the report lacks the performance profile"
    held = not differences and drawn and busy >= OCCUPANCY
    return Outcome(held, numbers)


def _words(small: bool, file: Path, out: Path) -> list[str]:
    """Run the study as users do, or in the short form over analytic lanes that commit often."""
    if small:
        return [sys.executable, "-c", _ANALYTIC, str(file), str(out), str(ROOT / "scripts")]
    return [*hpo_command(), "run", str(file), "--out", str(out), "--quiet"]


def _run(small: bool, file: Path, out: Path) -> None:
    if small:
        analytic(file, out)
    else:
        call(_words(small, file, out), file.parent)


def analytic(file: Path, out: Path, commit_seconds: float = 30.0) -> None:
    """Run the study over analytic lanes to its end; with 0, commit at each boundary."""
    from helpers.analytic_lanes import AnalyticFactory
    from hpo.search.lanes.multi_environment import SeveralFactory
    from hpo.search.run import RunOptions, run
    from hpo.studies.load import load

    study = load(file)
    parts = [AnalyticFactory(seed=at, lanes=6, chunk_seconds=0.01) for at in range(study.spread)]
    run(study, out / study.name, SeveralFactory(study, parts), (), RunOptions(commit_seconds, 1e9))


def _state(folder: Path) -> tuple[dict[str, float], int]:
    from hpo.store.journal import Journal

    with Journal(folder) as journal:
        usage = json.loads(journal.head().loop_state)["usage"]
        return usage, sum(row.trial >= 0 for row in journal.trials())


def _usage(folder: Path) -> tuple[float, float, int]:
    """Return the share of busy lane-chunks while work remained, env steps, and trials.

    Raises:
        RuntimeError: no work ever remained, so there is no share.
    """
    usage, trials = _state(folder)
    if not usage["lane_chunks"]:
        raise RuntimeError("all trials were in lanes at once, so lanes were never refilled")
    steps = usage["search_env_steps"] + usage["confirm_env_steps"]
    return usage["busy_lane_chunks"] / usage["lane_chunks"], steps, trials


def _busy_lanes(folder: Path, environments: int) -> float:
    """Return how many lanes were busy in the mean chunk, from the rows of the curves."""
    import pyarrow.parquet as pq

    rows = pq.read_metadata(folder / "curves.parquet").num_rows
    return rows / environments / _state(folder)[0]["chunks"]


def _counters(one: Path, other: Path) -> list[str]:
    """Return the counters in which two studies differ, except times."""
    ours, theirs = _state(one)[0], _state(other)[0]
    return [
        f"{name} {ours[name]} {theirs[name]}"
        for name in ours
        if not name.endswith("seconds") and ours[name] != theirs[name]
    ]


def _environments(folder: Path) -> list[str]:
    import pyarrow.parquet as pq

    column = pq.read_table(folder / "evaluations.parquet", columns=["environment"])
    return sorted(set(column["environment"].to_pylist()))
