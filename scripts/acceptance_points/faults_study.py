"""The studies that `faults` runs in separate processes."""

from __future__ import annotations

import json
from pathlib import Path

from .common import ROOT, load_file


def analytic(folder: Path) -> None:
    """Run a study over analytic lanes that commits and publishes at every boundary."""
    from hpo.search.run import RunOptions, run
    from hpo.studies.search_spec import Confirm, EarlyTerminate

    samples = load_file(ROOT / "tests" / "helpers" / "search_samples.py")
    study = samples.study(
        samples.WITH_BUCKETS,
        "random",
        confirm=Confirm(2, 2, 2),
        early_terminate=EarlyTerminate("asha", 2_000, 3.0, audit=0.2),
        budget=samples.Budget(trials=16),
    )
    quanta = {"16": 500, "32": 1000, "64x64": 2000}
    factory = samples.AnalyticFactory(lanes=12, block=4, quanta=quanta, diverges_above=0.3)
    run(study, folder, factory, (), RunOptions(commit_seconds=0.0, publish_seconds=0.3))


def saving(folder: Path) -> None:
    """Commit Orbax checkpoints, curves and evaluations, ten times."""
    import numpy as np

    from hpo.core.checkpoint import restore_tree, save_tree
    from hpo.store import EvaluationRow, Stream, StudyFolder, StudyMeta, StudyStore

    meta = StudyMeta("toy", "hash", "name: toy\n", "eval/return_mean", "maximize", "mean", {})
    with StudyStore(StudyFolder(folder), meta, publish_seconds=0.0) as store:
        step = int(json.loads(store.head.loop_state).get("step", 0))
        lanes = {"weights": np.zeros(20_000), "step": np.asarray(0)}
        if (saved := store.checkpoint()) is not None:
            lanes = restore_tree(saved / "lanes", lanes)
        for number in range(step, 10):
            noise = np.random.default_rng(number).standard_normal(20_000)
            lanes = {"weights": lanes["weights"] + noise, "step": np.asarray(number)}
            metrics = {"loss": noise[:200]}
            everyone = range(200)
            store.curves.add_chunk(
                everyone, [Stream.SEARCH] * 200, [0] * 200, [number] * 200, metrics
            )
            path = store.new_checkpoint()
            save_tree(path / "lanes", lanes)
            shown = EvaluationRow(
                lanes["weights"].sum(keepdims=True),
                np.ones(1, np.int64),
                {},
                trial=0,
                stream=Stream.SEARCH,
                replicate=0,
                env_steps=number,
            )
            store.commit(
                loop_state=json.dumps({"step": number + 1}),
                checkpoint=path.name,
                evaluations=[shown],
                phase="finished" if number == 9 else "running",
            )
            store.publish(force=number == 9)
