"""A finished study of rows made up, without jax: trials, test seeds, a policy, code it imports."""

import hashlib
import json
import re
import sqlite3

import numpy as np

from helpers.episodes import evaluation
from hpo.machine.software import versions_of_study
from hpo.search.state.loop_state import LoopState, Phase
from hpo.store.journal import JOURNAL_NAME, sum_of, write_sum
from hpo.store.rows import Stream, TrialRow, TrialState
from hpo.store.statistics import aggregate
from hpo.store.study_folder import StudyFolder
from hpo.store.study_store import StudyStore
from hpo.studies.load import loads
from hpo.studies.study_meta import study_meta

STUDY = """\
name: recorded
env: CartPole-v1
env_steps: 4000
imports: [my_code.py]
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
seeds: {per_config: 3}
confirm: {top_k: 2, choose: 4, report: 8}
budget: {trials: 6}
"""
SEEDS = {Stream.SEARCH: 3, Stream.CHOOSE: 4, Stream.REPORT: 8}
EPISODES = 5


def write_study(source, name="recorded", more="", code="", level=20.0, trials=None):
    """Write its files into `source`, and its results into results/NAME there.

    `trials`: rows in the place of those made up, without evaluations.
    """
    source.mkdir(parents=True, exist_ok=True)
    text = STUDY.replace("name: recorded", f"name: {name}")
    if more:  # in the place of the key of that name
        text = re.sub(f"^{more.partition(':')[0]}:.*\n", "", text, flags=re.M) + f"{more}\n"
    (source / "study.yaml").write_text(text)
    (source / "my_code.py").write_text(code)
    study = loads(text, "study.yaml", source)
    meta = study_meta(study, versions_of_study(study), "cpu", 2)
    folder = StudyFolder(source / "results" / name)
    seeds_of = {
        Stream.SEARCH: study.seeds.per_config,
        Stream.CHOOSE: study.confirm.choose if study.confirm else 0,
        Stream.REPORT: study.confirm.report if study.confirm else 0,
    }
    ended = LoopState(phase=Phase.DONE)
    given, trials, evaluations = trials, [], []
    rng = np.random.default_rng(3)
    with StudyStore(folder, meta) as store:
        for trial in range(6 if given is None else 0):
            values = {}
            for stream, seeds in seeds_of.items():
                if not seeds or (stream is not Stream.SEARCH and trial not in (0, 5)):
                    continue
                shown = np.round(rng.normal(100 + level * trial, 8.0, (seeds, EPISODES)), 3)
                lengths = np.round(shown).astype(int)
                measured = shown if study.metric.name == "eval/return_mean" else lengths
                of = np.median if study.metric.name.endswith("median") else np.mean
                values[stream] = tuple(float(of(row)) for row in measured.astype(float))
                trained = {}
                if weight := study.metric.training_weight:
                    trained = {"training_return": 10.0 * trial}
                    mixed = (weight * 10.0 * trial + (1.0 - weight) * v for v in values[stream])
                    values[stream] = values[stream] if stream is Stream.REPORT else tuple(mixed)
                evaluations += [
                    evaluation(trial, seed, 4000, shown[seed], lengths[seed], stream, **trained)
                    for seed in range(seeds)
                ]
                for seed in range(seeds):
                    store.curves.add_chunk([trial], [stream], [seed], [4000], {"loss": np.ones(1)})
            trials.append(
                TrialRow(
                    trial,
                    TrialState.FINISHED,
                    "random" if trial else "default",
                    0,
                    "b",
                    {"learning_rate": 1e-4 * (trial + 1) if trial else 1e-3},
                    value=aggregate(values[Stream.SEARCH], study.metric.aggregate),
                    seed_values=values[Stream.SEARCH],
                    env_steps=12_000,
                    choose_values=values.get(Stream.CHOOSE, ()),
                    report_values=values.get(Stream.REPORT, ()),
                )
            )
        rows = {"trials": given or trials, "evaluations": evaluations}
        store.commit(loop_state=ended.to_text(), checkpoint=None, phase="finished", **rows)
        store.publish(force=True)
        (folder.path / "study.yaml").write_text(text)
        (folder.path / "study.resolved.yaml").write_text(meta.study_text)
        last = rows["trials"][-1]
        value = last.report_values[0] if last.report_values else None
        write_policy(folder.policies / "trial_5", name, code, value)
    return folder.path


def write_policy(folder, study, code, value):
    """Write files as those of a kept CNN, which NumPy does not play; its array is no array."""
    (folder / "arrays").mkdir(parents=True)
    (folder / "arrays" / "d").write_bytes(b"0123456789")
    summed = hashlib.sha256(b"0123456789").hexdigest()
    (folder / "arrays" / "SHA256SUMS").write_text(f"{summed}  d\n")
    (folder / "imports").mkdir()
    (folder / "imports" / "my_code.py").write_text(code)
    env = {"id": "CartPole-v1", "keys": {}}
    about = {"study": study, "trial": 5, "stream": "report", "replicate": 0, "env_steps": 4000}
    document = {
        "format": 1,
        "env": env,
        "eval_env": env,
        "features": [],
        "config": {"network": "cnn", "dtype": "float32"},
        "env_params": {},
        "eval_params": {},
        "about": {**about, "value": value} if value is not None else {},
        "imports": ["my_code.py"],
    }
    (folder / "policy.json").write_text(json.dumps(document))


def change_journal(folder, *statements, sums=True):
    """Run SQL on a journal and make the checksums of its tables again, as whoever lies would."""
    connection = sqlite3.connect(folder / JOURNAL_NAME)
    for sql, *values in statements:
        connection.execute(sql, values)
    for table in ("meta", "head", "trials", "evaluations", "attributes") if sums else ():
        write_sum(connection, table, sum_of(connection, table))
    connection.commit()
    connection.close()
