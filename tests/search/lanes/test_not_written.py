"""Lanes whose states are moved in memory alone."""

import pytest

from hpo.errors import ConfigError, SearchError
from hpo.search.lanes.simulated_lanes import SimulatedPopulation


def test_lanes_without_saved_state_refuse_pause(tmp_path):
    lanes = SimulatedPopulation(lanes=1, block=1, steps_per_chunk=1, warmup_chunks=0)
    with pytest.raises(ConfigError, match=r"remove early_terminate\.pause"):
        lanes.save_state(None, tmp_path)
    with pytest.raises(ConfigError, match=r"remove early_terminate\.pause"):
        lanes.restore_state(tmp_path)


def test_simulated_lanes_compile_and_write_nothing(tmp_path):
    lanes = SimulatedPopulation(lanes=1, block=1, steps_per_chunk=1, warmup_chunks=0)
    lanes.compile(), lanes.compile_evaluation()
    assert lanes.compile_ahead() is None and lanes.compiles == 0
    with pytest.raises(SearchError, match="these lanes cannot be saved"):
        lanes.save(tmp_path)
    with pytest.raises(ConfigError, match=r"remove early_terminate\.pause"):
        lanes.save_state(None, tmp_path)
    assert list(tmp_path.iterdir()) == []
