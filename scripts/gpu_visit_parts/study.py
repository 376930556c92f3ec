"""One study from start to end by `hpo run`, twice: undisturbed, and killed once and resumed.

This process never starts jax, because the command that it runs needs the GPU's memory.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .common import Report

_STUDY = """\
name: visit
env: CartPole-v1
env_steps: {env_steps}
fixed: {fixed}
space:
  learning_rate: {{min: 1e-4, max: 1e-2, distribution: log_uniform}}
  gamma: {{min: 0.95, max: 0.999, distribution: one_minus_log}}
search: {{method: random}}
early_terminate: {{type: asha, min: {first_rung}, eta: 3}}
seeds: {{per_config: 1}}
confirm: {{top_k: 2, choose: 2, report: 4}}
population: {{lanes: {lanes}, device: {device}}}
checkpoint: {{commit_every: 1s}}
budget: {{trials: {trials}}}
"""
_SMALL = {
    "env_steps": "8k", "first_rung": "2k", "lanes": 16, "trials": 48, "device": "cpu",
    "fixed": "{num_envs: 2, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16]}",
}  # fmt: skip
_FULL = {
    "env_steps": "1M", "first_rung": "200k", "lanes": 512, "trials": 2048, "device": "gpu",
    "fixed": "{num_envs: 8, rollout_length: 128}",
}  # fmt: skip


def study_text(small: bool) -> str:
    """Return the study, with 512 lanes; the small one has 16."""
    return _STUDY.format(**(_SMALL if small else _FULL))


def run(report: Report, small: bool) -> None:
    """Run the study in both ways and compare the tables."""
    from hpo.store import tables_equal

    work = Path(tempfile.mkdtemp(prefix="study-"))  # in the visit's folder, which it deletes
    file = work / "visit.yaml"
    file.write_text(study_text(small))
    whole, broken = work / "whole", work / "broken"
    report.document["undisturbed_seconds"] = _run(file, whole, work)
    report.write()
    killed = _killed(file, broken, work)
    report.document["killed_after_seconds"] = killed
    report.write()
    if killed is None:
        report.fail("the study ended before it could be killed")
    report.document["resumed_seconds"] = _run(file, broken, work)
    differences = tables_equal(whole / "visit", broken / "visit")
    report.document["differences"] = differences[:10]
    if differences:
        report.fail(f"tables differ: {differences[0]}")
    report.write()
    seen = _rows(whole / "visit")
    report.document.update(seen)
    report.finish(
        f"{seen['trials']} trials, {seen['env_steps'] / 1e6:.1f}M env steps in "
        f"{report.document['undisturbed_seconds']:.0f} s; killed and resumed: "
        f"tables {'differ' if differences else 'equal'}"
    )


def _command(file: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "hpo", "run", str(file), "--out", str(out), "--quiet"]


def _run(file: Path, out: Path, work: Path) -> float:
    """Run the study to its end and return the seconds that it took.

    Raises:
        RuntimeError: it failed; the message contains the end of its output.
    """
    started = time.monotonic()
    done = subprocess.run(_command(file, out), cwd=work, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-800:]
        raise RuntimeError(f"`hpo run` ended with {done.returncode}: {said}")
    return time.monotonic() - started


def _killed(file: Path, out: Path, work: Path) -> float | None:
    """Start the study, and kill it once it has committed lanes twice; None if it ended first."""
    started = time.monotonic()
    process = subprocess.Popen(
        _command(file, out), cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and _commits(out / "visit") < 2:
        time.sleep(0.02)
    if process.poll() is not None:
        return None
    process.kill()
    process.wait()
    return time.monotonic() - started


def _commits(folder: Path) -> int:
    """Return the number of the last commit with lanes; 0 if there is none."""
    from hpo.store.journal import Journal

    if not Journal.exists(folder):
        return 0
    journal = Journal(folder)
    try:
        head = journal.head()
    finally:
        journal.close()
    return head.number if head.checkpoint is not None else 0


def _rows(folder: Path) -> dict[str, int]:
    """Return the number of trials in the study, and their env steps."""
    import pyarrow.parquet as pq

    trials = pq.read_table(folder / "trials.parquet")
    return {
        "trials": trials.num_rows,
        "env_steps": int(sum(trials.column("env_steps").to_pylist())),
    }
