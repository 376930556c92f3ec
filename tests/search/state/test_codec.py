import json
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.search.state.loop_state import LoopState, decode


class Colour(StrEnum):
    RED = "red"


@dataclass
class Leaf:
    number: float
    maybe: int | None = None


@dataclass
class Tree:
    leaves: list[Leaf]
    colour: Colour
    by_number: dict[int, Leaf]
    pair: tuple[float, ...] = ()
    anything: dict[str, Any] = field(default_factory=dict)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
leaves = st.builds(Leaf, st.floats(allow_nan=False), st.none() | st.integers())
trees = st.builds(
    Tree,
    st.lists(leaves),
    st.sampled_from(Colour),
    st.dictionaries(st.integers(), leaves),
    st.lists(st.floats(allow_nan=False)).map(tuple),
    st.dictionaries(st.text(), plain),
)


@given(trees)
def test_codec_json_round_trip(tree):
    text = json.dumps(tree, default=vars)
    back = decode(Tree, json.loads(text))
    assert back == tree
    assert json.dumps(back, default=vars) == text


def test_nan_and_infinity_survive():
    back = decode(Leaf, json.loads(json.dumps(Leaf(math.nan), default=vars)))
    assert math.isnan(back.number)
    assert decode(Leaf, json.loads(json.dumps(Leaf(-math.inf), default=vars))).number == -math.inf


@pytest.mark.parametrize("value", [{"number": "1"}, {"number": 1.0, "maybe": 2, "more": 3}])
def test_decoding_mismatched_data_is_refused(value):
    with pytest.raises(TypeError):
        decode(Leaf, {"maybe": None, **value})


def test_encoding_unsupported_object_is_refused():
    with pytest.raises(TypeError):
        LoopState(told=[object()]).to_text()
