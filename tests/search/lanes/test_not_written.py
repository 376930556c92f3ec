"""Lanes whose states are moved in memory alone."""

import pytest

from hpo.errors import ConfigError
from hpo.search.lanes.not_written import NotWritten


def test_lanes_whose_states_are_not_written_say_so(tmp_path):
    with pytest.raises(ConfigError, match=r"leave out early_terminate\.pause"):
        NotWritten().save_state(None, tmp_path)
    with pytest.raises(ConfigError, match=r"leave out early_terminate\.pause"):
        NotWritten().restore_state(tmp_path)
