"""Which policies a study keeps."""

import json
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

from hpo.search.run import run
from hpo.store.journal import Journal
from hpo.studies.spec import Checkpoint

samples = SimpleNamespace(**run_path(str(Path(__file__).with_name("samples.py"))))


def go(folder, **changes):
    return run(samples.study(**changes), folder, samples.AnalyticFactory(), (), samples.quick())


def test_the_policy_of_the_best_evaluation_is_kept_if_asked(tmp_path):
    folder = go(tmp_path / "with", checkpoint=Checkpoint(1, best_evaluation=True)).folder
    kept = json.loads((folder / "policies" / "best_evaluation" / "policy.json").read_text())
    with Journal(folder) as journal:
        seen = {}
        for row in journal.evaluations():
            key = (row.trial, row.replicate, row.env_steps)
            seen.setdefault(key, []).append(row.episode_return)
        params = {row.trial: row.params for row in journal.trials()}
    trial, replicate, env_steps = max(seen, key=lambda key: sum(seen[key]))
    assert kept["config"]["learning_rate"] == params[trial]["learning_rate"]
    assert kept["replicate"] == replicate and kept["chunks"] * 1_000 == env_steps
    other = go(tmp_path / "without").folder
    assert not (other / "policies" / "best_evaluation").exists()
