"""One lane in a file: every byte comes back, or one sentence says why not."""

import jax.numpy as jnp
import numpy as np
import pytest

from hpo.core.checkpoint import restore_lane, save_lane
from hpo.errors import StoreError

STATE = {
    "key": np.array([1, 2**32 - 1], np.uint32),
    "params": [np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.float32(np.nan)],
    "half": np.asarray(jnp.array([1.5, -0.0], jnp.bfloat16)),
    "mask": np.array([[True], [False]]),
    "updates": np.int32(-7),
    "carry": (),
    "nothing": np.zeros((0, 4), np.float32),
}


def flat(state):
    return [
        state["key"],
        *state["params"],
        state["half"],
        state["mask"],
        state["updates"],
        state["nothing"],
    ]


def test_lane_file_round_trips_bitwise(tmp_path):
    save_lane(tmp_path, STATE)
    found = restore_lane(tmp_path, STATE)
    assert found["carry"] == ()
    for one, other in zip(flat(found), flat(STATE), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert one.tobytes() == other.tobytes()


def test_damaged_or_mismatched_lane_file_is_refused(tmp_path):
    save_lane(tmp_path, STATE)
    file = tmp_path / "lane"
    whole = file.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"lane is damaged; restore it from a copy$"):
            restore_lane(tmp_path, STATE)
    for short in (whole[:-1], whole[:20], b""):
        file.write_bytes(short)
        with pytest.raises(StoreError, match="is damaged"):
            restore_lane(tmp_path, STATE)
    file.write_bytes(whole)
    for other in ({**STATE, "updates": np.zeros(3, np.int32)}, {**STATE, "more": np.int32(0)}):
        with pytest.raises(StoreError, match="belongs to a different program"):
            restore_lane(tmp_path, other)
    file.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        restore_lane(tmp_path, STATE)
