"""A configuration is completed once, whoever asks for it and however often."""

import gc
import json
import sys
import weakref

import pytest

from helpers import search_samples as samples
from hpo import knobs
from hpo.errors import ConfigError
from hpo.search.lanes.local import LocalFactory
from hpo.search.lanes.resolver import Resolver
from hpo.search.run import run
from hpo.store.codec import plain_json
from hpo.store.journal import Journal
from hpo.studies.execution_spec import Budget, Checkpoint
from hpo.studies.load import loads
from hpo.studies.search_spec import Confirm, Racing, Seeds

REAL = """\
name: once
env: CartPole-v1
env_steps: 128
fixed: {num_envs: 2, rollout_length: 8, num_minibatches: 1, hidden_sizes: [4]}
space:
  learning_rate: {min: 1e-4, max: 1e-2, distribution: log_uniform}
  ent_coef: {min: 1e-4, max: 0.1, distribution: log_uniform}
early_terminate: {type: pbt, every: 32}
seeds: {per_config: 2}
confirm: {top_k: 2, choose: 2, report: 2}
checkpoint: {keep_best: 2, policies_every: 32}
evaluation: {episodes: 1}
budget: {trials: 4}
"""


@pytest.fixture
def completed(monkeypatch):
    """What `knobs.complete` was asked to complete since, wherever it is called from."""
    seen, real = [], knobs.complete

    def complete(given, own_words=False):
        seen.append(json.dumps(plain_json(given), sort_keys=True))
        return real(given, own_words)

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "hpo" and getattr(module, "complete", None) is real:
            monkeypatch.setattr(module, "complete", complete)
    return seen


@pytest.mark.usefixtures("quickly_compiled")
def test_pbt_and_confirm_complete_each_configuration_once(tmp_path, completed):
    """And none of what is already complete is completed again below the loop."""
    study = loads(REAL)
    completed.clear()  # the loader tries out what may come together
    run(study, tmp_path / "s", LocalFactory(study), (), samples.quick())
    with Journal(tmp_path / "s") as journal:
        copied = [row for row in journal.decisions() if row.action == "copy"]
        proposed = [row for row in journal.trials() if not row.schedule]
    assert copied and any(row.choose_values for row in _rows(tmp_path / "s"))
    assert len(completed) == len(set(completed)) >= len(proposed) + 1
    assert all(len(json.loads(given)) == 6 for given in completed)  # four fixed, two searched


def _rows(folder):
    with Journal(folder) as journal:
        return list(journal.trials())


@pytest.mark.parametrize(
    "changes",
    [
        {"confirm": Confirm(2, 2, 3), "checkpoint": Checkpoint(keep_best=3)},
        {"early_terminate": None, "seeds": Seeds(4, racing=Racing(2, 0.9))},
    ],
    ids=["asha, confirmed", "racing"],
)
def test_search_completes_each_configuration_once(tmp_path, completed, changes):
    study = samples.study(budget=Budget(trials=24), **changes)
    run(study, tmp_path / "s", samples.AnalyticFactory(lanes=8), (), samples.quick())
    assert len(completed) == len(set(completed)) == len(_rows(tmp_path / "s")) == 24


def test_resumed_study_resolves_only_live_configurations(tmp_path, completed):
    study, factory = samples.study(budget=Budget(trials=24)), samples.AnalyticFactory(lanes=8)
    run(study, tmp_path / "s", factory, [samples.CutAt(20)], samples.quick())
    before = len(completed)
    assert before == len(set(completed)) < 24
    run(study, tmp_path / "s", factory, (), samples.quick())
    after = completed[before:]
    assert len(after) == len(set(after)) and set(completed[:before]) & set(after)


def test_resolver_keeps_configurations_in_use():
    study = samples.study()
    resolver = Resolver(study, samples.AnalyticFactory())
    held = resolver.default()
    rates = [1e-4 * (n + 1) for n in range(300)]
    others = [weakref.ref(resolver.of({"learning_rate": rate})) for rate in rates]
    assert resolver.default() is held and len(others) == 300
    assert held.config == study.default() and held.steps_per_chunk == 1_000
    gc.collect()
    known = sum(other() is not None for other in others)
    assert 0 < known <= 256, "what nobody holds is forgotten, but for the latest"


def test_contradictory_hyperparameters_are_refused_by_resolver():
    resolver = Resolver(samples.study(), samples.AnalyticFactory())
    with pytest.raises(ConfigError, match="rho_clip and c_clip go together"):
        resolver.of({"rho_clip": 1.0})
