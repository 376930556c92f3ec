"""Search point 4: lanes on the workers of a Ray cluster, also with kills; Ray Tune over lanes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from .common import Outcome
from .ray_drivers import commits, driving, log_of, processes_below, run_to_its_end, wait_for
from .ray_nodes import HOST, cluster

_STUDY = """\
name: small
env: CartPole-v1
env_steps: 40k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.95, max: 0.999, distribution: one_minus_log}
search: {method: sobol}
early_terminate: {type: asha, min: 10k, eta: 2}
evaluation: {episodes: 5}
seeds: {per_config: 2}
confirm: {top_k: 2, choose: 2, report: 2}
population: {lanes: 16}
budget: {trials: 16}
"""
_WORKERS = "executor: {type: ray, workers: 2}\n"
_TUNE = """\
name: small
env: CartPole-v1
env_steps: 20k
fixed: {num_envs: 4, rollout_length: 32, num_minibatches: 2, hidden_sizes: [16, 16]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  gamma: {min: 0.95, max: 0.999, distribution: one_minus_log}
search: {driver: ray_tune, scheduler: SCHEDULER}
evaluation: {every: 5k, episodes: 5}
population: {lanes: LANES}
budget: {trials: TRIALS}
"""
_TOGETHER = 0.9
_MARKS = {"asha": ("stop", "stopped"), "pbt": ("copy", "copies")}


def workers(small: bool, work: Path) -> Outcome:
    """Workers give the tables of one process, whatever dies; Tune's lanes step together."""
    from hpo.store import tables_equal

    text = _STUDY.replace("40k", "20k").replace("trials: 16", "trials: 8") if small else _STUDY
    one, two = _file(work, "one", text), _file(work, "two", text + _WORKERS)
    run_to_its_end(one, work / "alone")
    wrong: list[str] = []
    found: dict[str, list[str]] = {}

    def compare(how: str, out: Path) -> None:
        found[how] = tables_equal(work / "alone", out)

    run_to_its_end(two, out := work / "over-two")
    compare("undisturbed", out)
    found["four lanes"] = _four_lanes(text, work)
    asked = 1 if small else 2
    kills = _kill_workers(two, out := work / "worker-killed", asked)
    compare(f"with {kills} workers killed", out)
    if (kills, _replaced(out)) != (asked, asked):
        wrong.append(f"of {asked} workers {kills} were killed and {_replaced(out)} replaced")
    asked = 1 if small else 2
    kills = _kill_driver(two, out := work / "driver-killed", asked)
    compare(f"with the driver killed {kills} times", out)
    if kills != asked:
        wrong.append(f"the study ended before its driver was killed {asked} times")
    fault = _lose_node(text, out := work / "node-lost")
    compare("with a node of two lost", out)
    wrong += [fault] if fault else []
    wrong += [f"{how}: {', '.join(what)} differ" for how, what in found.items() if what]
    numbers = f"two workers give the tables of one process bit for bit: {', '.join(found)}"
    width = 4 if small else 16
    for scheduler, trials in (("asha", 2 * width), ("pbt", width)):
        told, fault = _tune(scheduler, width, trials, work)
        numbers += f"; {told}"
        wrong += [fault] if fault else []
    return Outcome(not wrong, "; ".join(wrong) if wrong else numbers)


def _tune(scheduler: str, lanes: int, trials: int, work: Path) -> tuple[str, str]:
    """Let Ray Tune run a study; return the observations, and what is wrong with it."""
    from hpo.search.analysis.replay import replay
    from hpo.store.journal import Journal
    from hpo.store.study_folder import StudyFolder

    text = _TUNE.replace("SCHEDULER", scheduler).replace("LANES", str(max(8, lanes)))
    file = _file(work, scheduler, text.replace("TRIALS", str(trials)))
    folder = work / f"tune-{scheduler}"
    run_to_its_end(file, folder)
    with Journal(folder) as journal:
        rows, decisions = journal.trials(), journal.decisions()
        about: dict[str, Any] = next(
            row.value for row in journal.attributes() if row.name == "ray_tune"
        )
    ended = sum(row.state in ("finished", "stopped", "diverged") for row in rows)
    marks = [entry for entry in decisions if entry.action == _MARKS[scheduler][0]]
    told = f"Tune's {scheduler}: {ended} of {trials} trials to their end, {len(marks)} "
    told += f"{_MARKS[scheduler][1]}, {about['mean_width']:.1f} of {about['mean_live']:.1f} lanes "
    told += f"a chunk, {about['chunks']} chunks"
    together = about["mean_width"] >= _TOGETHER * about["mean_live"]
    fine = ended == trials == len(rows) and marks and together
    if fine and scheduler == "pbt":
        again = replay(StudyFolder(folder), marks[-1].trial)
        told += f"; trial {again.trial}, copied last, replayed over {len(again.lineage)} segments"
        told += f" and {len(again.points)} evaluations to the same bits: {again.same}"
        fine = again.same and len(again.lineage) > 1
    return told, "" if fine else f"WRONG: {told}"


def _file(work: Path, name: str, text: str) -> Path:
    (work / f"{name}.yaml").write_text(text)
    return work / f"{name}.yaml"


def _four_lanes(text: str, work: Path) -> list[str]:
    """Run fewer lanes than the blocks of two workers; return differences from a single process."""
    from hpo.store import tables_equal

    few = text.replace("lanes: 16", "lanes: 4").replace("trials: 16", "trials: 8")
    run_to_its_end(_file(work, "four", few), work / "four-alone")
    run_to_its_end(_file(work, "four-over", few + _WORKERS), work / "four-over-two")
    return tables_equal(work / "four-alone", work / "four-over-two")


# ---------------------------------------------------------------------- deaths


def _kill_workers(file: Path, out: Path, kills: int) -> int:
    """Kill a worker after a few commits, repeatedly; return the number of kills."""
    killed, at = 0, 2
    with driving(file, out) as child:
        while killed < kills and wait_for(child, out, lambda number=at: commits(out) >= number):
            for process in processes_below(child.pid, HOST)[:1]:
                os.kill(process, signal.SIGKILL)
                killed += 1
            at = commits(out) + 3
        wait_for(child, out, lambda: False)
    return killed


def _kill_driver(file: Path, out: Path, kills: int) -> int:
    """Kill the driver midway and run the same command again; return the number of kills."""
    for killed in range(kills):
        before = commits(out)
        with driving(file, out) as child:  # leaving the context kills it
            if not wait_for(child, out, lambda number=before + 2: commits(out) >= number):
                return killed
    run_to_its_end(file, out)
    return kills


def _lose_node(text: str, out: Path) -> str:
    """Run a study on two nodes, one of which is lost; return what is wrong.

    Each node has room for both workers.
    """
    with cluster(out.parent, nodes=2, cpus=2) as there:
        executor = f"executor: {{type: ray, workers: 2, cpus: 1, address: '{there.address}'}}\n"
        file = _file(out.parent, "nodes", text + executor)
        with driving(file, out, there.env) as child:
            begun = wait_for(child, out, lambda: commits(out) >= 3)
            hosts = [len(node.hosts()) for node in there.nodes]
            there.nodes[1].die()
            wait_for(child, out, lambda: False)
        if not begun:
            return "the study on two nodes ended before one went away"
        if hosts != [1, 1]:
            return f"the two nodes had {hosts[0]} and {hosts[1]} workers"
    return "" if _replaced(out) == 1 else f"{_replaced(out)} workers replaced the node's one"


def _replaced(out: Path) -> int:
    """Count the workers that took over the lanes of a worker that died."""
    return log_of(out).read_text().count("takes over its lanes")
