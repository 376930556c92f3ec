"""The parts of benchmarks/first_minute.py that need no training: times, and the table."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from hpo.studies.load import loads

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(BENCHMARKS))
    yield import_module("first_minute")
    sys.path.remove(str(BENCHMARKS))


def test_a_command_is_timed_until_its_first_line_of_json(script):
    code = "import time; print('words'); print('{}', flush=True); time.sleep(5.0)"
    assert 0.0 < script.until_first(sys.executable, "-c", code) < 5.0
    assert script.seconds(sys.executable, "-c", "import time; time.sleep(0.5)") > 0.5
    with pytest.raises(SystemExit, match="ended early"):
        script.until_first(sys.executable, "-c", "print('words')")


def test_first_minute_table_has_ratios(script, capsys):
    found = json.loads((BENCHMARKS / "first_minute.json").read_text())
    found["cold"]["hpo"]["first_metrics_seconds"] = 30.0
    found["cold"]["rejax"]["first_metrics_seconds"] = 20.0
    script.show(found)
    assert "| first metrics, cold | 30 s | 20 s | 1.50 |" in capsys.readouterr().out


def test_first_minute_benchmark_uses_equal_lanes(script):
    study = loads(script.STUDY)
    assert study.population.lanes == study.budget.trials == script.LANES
