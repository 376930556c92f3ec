from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from hpo.core.envs.optical.heuristic_evaluation import evaluate_heuristic
from hpo.core.envs.optical.optical_environment import make_from_keys
from hpo.core.envs.optical.optical_settings import ENVIRONMENT_IDS, OBSERVATIONS
from hpo.core.envs.optical.supported_load import find_load
from hpo.core.envs.optical.topology import make_topology
from hpo.errors import ConfigError

DOCS = Path(__file__).resolve().parents[4] / "docs" / "optical.md"


def test_published_blocking_is_reproduced_on_small_runs(monkeypatch):
    # The whole of it takes minutes: scripts/acceptance.
    monkeypatch.syspath_prepend(str(DOCS.parents[1] / "scripts"))
    points = import_module("acceptance_points.optical")
    for row in (points.PUBLISHED[4], points.PUBLISHED[8]):
        mean, errors = points.measured(*row, seeds=6, steps=3000, warmup=1500)
        assert abs(errors) <= points.ALLOWED_ERRORS == 3
        assert mean == pytest.approx(row[2], abs=0.02)


def test_find_load_reaches_the_target_blocking():
    env = make_from_keys(slots=40, k=3, load=40.0, warmup_requests=500)
    found = find_load(env, "ksp_ff", 0.02, seeds=6, steps=3000)
    assert found.low < found.load < found.high
    check = evaluate_heuristic(env, "ksp_ff", seeds=6, steps=3000, loads=[found.load])
    assert check.service_summary().mean == pytest.approx(0.02, abs=0.006)
    far = make_from_keys(slots=40, k=3, load=4000.0, warmup_requests=500)
    again = find_load(far, "ksp_ff", 0.02, seeds=6, steps=3000)
    assert again.load == pytest.approx(found.load, rel=0.1)


def test_find_load_refuses_bad_targets_and_too_few_seeds():
    env = make_from_keys(slots=40, k=3)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        find_load(env, "ksp_ff", 1.5)
    with pytest.raises(ConfigError, match="needs 5 or more"):
        find_load(env, "ksp_ff", 0.1, seeds=2)


def test_the_documented_example_network_loads(tmp_path):
    blocks = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.S)
    assert len(blocks) == 1
    (tmp_path / "net.json").write_text(json.dumps(json.loads(blocks[0])))
    assert make_topology(str(tmp_path / "net.json"), True).num_links == 6


def test_docs_name_every_optical_env_and_observation():
    text = DOCS.read_text()
    for name in (*ENVIRONMENT_IDS, *OBSERVATIONS):
        assert f"`{name}`" in text, name
