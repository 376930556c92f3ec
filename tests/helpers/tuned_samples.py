"""Records that tests make up."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers.loading import script_module
from hpo.knobs import complete
from hpo.studies.tuned.record import Contender, Curve, Origin, Provenance, TestCost, TunedRecord
from hpo.studies.tuned.summary import time_to

_FILES = script_module("tuned_parts.record_file")
published, record_text = _FILES.published, _FILES.record_text
write_tables = script_module("tuned_parts.tables").write_tables
STUDY = "env: CartPole-v1\nenv_steps: 102400\nspace: {gamma: {min: 0.9, max: 0.99}}\n"
POINTS = tuple(range(5120, 102401, 5120))


def contender(who, level, config=None, seeds=32, source=None, seed=0):
    """One whose seeds rise to a level, each with noise of its own."""
    rng = np.random.default_rng([*who.encode(), seed])
    curves = [
        [float(level * i / 20 + rng.normal(0, 2)) for i in range(1, 21)] for _ in range(seeds)
    ]
    middle = tuple(float(f"{np.mean(column):.6g}") for column in zip(*curves, strict=True))
    return Contender(
        who=who,
        config=complete(config or {}),
        greedy=tuple(curve[-1] for curve in curves),
        training=tuple(0.8 * curve[-1] for curve in curves),
        area=tuple(float(np.mean(curve)) for curve in curves),
        to_threshold=tuple(time_to(POINTS, curve, 90.0) for curve in curves),
        curve=Curve(POINTS, middle, middle, middle, (None, *middle[1:])),
        cost=TestCost(seeds * 102400, 4096, 12.5),
        source=source or {},
    )


def record(name="CartPole-v1", **changes):
    """A whole record, whose study file is STUDY."""
    others = [
        contender(one.by, 60.0 + 10 * i, one.knobs, source=one.source)
        for i, one in enumerate(published("CartPole-v1"))
    ]
    config = {"learning_rate": 0.002, "rollout_length": 32, "update_epochs": 10, "gamma": 0.98}
    made = TunedRecord(
        name=name,
        env="CartPole-v1",
        env_values={},
        env_steps=102400,
        metric="eval/return_mean",
        goal="maximize",
        evaluation={"episodes": 20, "greedy": True},
        seed=77,
        threshold=90.0,
        made=Provenance(
            "2026-11-22", "0" * 40, {"hpo-lanes": "0.1.0", "jax": "1", "numpy": "2"}, "cpu", 2
        ),
        origin=Origin(
            "studies/tuned/CartPole-v1.yaml",
            hashlib.sha256(STUDY.encode()).hexdigest(),
            7,
            64,
            "better",
            "Trial 7 is better: so it is.",
            10**7,
            {"search": 4, "choose": 8, "report": 16},
        ),
        contenders=(contender("tuned", 100.0, config), contender("default", 50.0), *others),
    )
    return replace(made, **changes)


def written(root, *records):
    """Write records, their study file and the tables below a folder; return where they lie."""
    place = Path(root) / "results" / "tuned"
    place.mkdir(parents=True)
    (Path(root) / "studies" / "tuned").mkdir(parents=True)
    (Path(root) / "studies" / "tuned" / "CartPole-v1.yaml").write_text(STUDY)
    records = records or (record(),)
    for one in records:
        (place / f"{one.name}.yaml").write_text(record_text(one))
    write_tables(records, place)
    return place
