"""A toy study whose rows are a function of the step alone; its process may be killed."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np

from hpo.store import (
    AskRow,
    AttributeRow,
    Commit,
    DecisionRow,
    EvaluationRow,
    Journal,
    Stream,
    StudyFolder,
    StudyMeta,
    StudyStore,
    TrialRow,
    TrialState,
)
from hpo.store import parquet as parts_module

LANES, CHUNKS = 6, 4
META = StudyMeta(
    *("toy", "hash", "name: toy\n", "eval/return_mean", "maximize", "mean"),
    param_kinds={"learning_rate": "float", "activation": "text"},
)


def trial_of(step: int, lane: int) -> int:
    return (step // CHUNKS) * LANES + lane


def curve(step: int) -> dict[str, object]:
    """One chunk of all lanes; every fifth has a metric the others lack, some values are NaN."""
    values = np.sin(np.arange(LANES) + step / 7)
    values[step % LANES] = math.nan if step % 3 == 0 else values[step % LANES]
    metrics = {"loss/policy": values, "kl": values**2}
    if step % 5 == 0:
        metrics["value_loss"] = -values
    return {
        "trials": [trial_of(step, lane) for lane in range(LANES)],
        "streams": [Stream.SEARCH] * LANES,
        "replicates": [0] * LANES,
        "env_steps": [100 * (step % CHUNKS + 1)] * LANES,
        "metrics": metrics,
    }


def ended(step: int) -> tuple[list[TrialRow], list[EvaluationRow], list[DecisionRow]]:
    """The trials that end with this step."""
    trials, evaluations, decisions = [], [], []
    for lane in range(LANES):
        trial = trial_of(step, lane)
        draw = random.Random(trial)
        returns = [draw.gauss(100, 10) for _ in range(5)]
        value = sum(returns) / 5 if trial % 7 else math.nan
        state = TrialState.FINISHED if trial % 3 else TrialState.STOPPED
        params = {"learning_rate": draw.random(), "activation": draw.choice(["tanh", "relu"])}
        trials.append(
            TrialRow(
                *(trial, state, "tpe", step // CHUNKS, "b0", params),
                value=value,
                seed_values=tuple(returns),
                rung=0,
                rung_value=value / 2,
                env_steps=400,
                choose_values=tuple(returns) if trial % 11 == 1 else (),
                started_at=time.time() - 1,
                ended_at=time.time(),
            )
        )
        row = EvaluationRow(
            np.array(returns),
            10 + np.arange(len(returns)),
            {"load": np.full(len(returns), value)},
            trial=trial,
            stream=Stream.SEARCH,
            replicate=0,
            env_steps=400,
        )
        evaluations.append(row)
        decisions.append(DecisionRow(trial, 0, 400, value, "stop", "asha", None, 1, 2))
    return trials, evaluations, decisions


def main(
    directory: Path,
    steps: int,
    pause: float = 0.0,
    limit: int | None = None,
    tell: Callable[[int], object] = lambda number: None,
) -> None:
    """Go on with the study to its end, and tell the number of each commit.

    After `limit` steps, the last of which commits, it waits to be killed, however slow its killer
    is.
    """
    clock = random.Random()  # commits fall at other steps in every run, as they do by the clock
    with (
        mock.patch.object(parts_module, "MERGE_PARTS", 4),
        StudyStore(StudyFolder(directory), META, publish_seconds=0.02) as store,
    ):
        state = json.loads(store.head.loop_state)
        saved = store.checkpoint()
        if saved is not None:
            assert json.loads((saved / "lanes.json").read_text()) == state
        step: int = state.get("step", 0)
        rows: list[list] = [[], [], [], [], []]
        last = None if limit is None else step + limit
        while step < steps:
            if step == last:
                time.sleep(600.0)
                raise TimeoutError("nobody came to kill it")
            store.curves.add_chunk(**curve(step))  # pyright: ignore
            if step % CHUNKS == 0:
                batch = step // CHUNKS
                rows[3].append(
                    AskRow(batch, "tpe", tuple(range(batch * LANES, (batch + 1) * LANES)))
                )
                rows[4].append(AttributeRow(None, "last batch", batch))
            if step % CHUNKS == CHUNKS - 1:
                for kept, new in zip(rows, ended(step), strict=False):
                    kept += new
            step += 1
            time.sleep(pause)
            if clock.random() < 0.5 or step in (last, steps):
                commit(store, step, rows, done=step == steps)
                rows = [[], [], [], [], []]
                tell(store.head.number)
        store.publish(force=True)


def commit(store: StudyStore, step: int, rows: list[list], *, done: bool) -> None:
    path = store.new_checkpoint()
    path.mkdir()
    (path / "lanes.json").write_text(json.dumps({"step": step}))
    names = ("trials", "evaluations", "decisions", "asks", "attributes")
    store.commit(
        loop_state=json.dumps({"step": step}),
        checkpoint=path.name,
        phase="finished" if done else "running",
        **dict(zip(names, rows, strict=True)),
    )
    store.publish()


def stop_in_a_commit(directory: Path, tell: Callable[[int], object]) -> None:
    """Write a second commit, tell it, and wait before it counts."""
    journal = Journal(directory, writable=True)
    journal._connection.execute("PRAGMA cache_size = 5")  # so that pages reach the file early
    write = journal._write_commit

    def stop_there(commit: Commit) -> None:
        write(commit)
        tell(commit.number)
        time.sleep(600.0)
        raise TimeoutError("nobody came to kill it")

    journal._write_commit = stop_there
    rows = [TrialRow(n, TrialState.FINISHED, "tpe", 0, "x" * 500, {}) for n in range(2_000)]
    journal.commit(Commit(2, "{}", None, 0.0, trials=rows))
