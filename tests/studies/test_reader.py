import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpo.errors import StudyError
from hpo.studies.yaml_io import MOST_BYTES, plain, read_file, read_text, scalar_of, to_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-3.", -3.0),
        ("0x1F", 31),
        ("0o17", 15),
        ("off", "off"),
        ("no", "no"),
        ("yes", "yes"),
        ("True", True),
        ("~", None),
        ("", None),
        ("Null", None),
        ("-.inf", -math.inf),
        ("200M", "200M"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2024-01-01", "2024-01-01"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text, value):
    assert scalar_of(text) == value
    assert type(scalar_of(text)) is type(value)


def test_quoted_scalars_are_texts():
    assert plain(read_text("{a: '1', b: \"true\", c: ''}", "x")) == {
        "a": "1",
        "b": "true",
        "c": "",
    }


def test_nodes_know_their_lines():
    root = read_text("a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\n", "x")
    assert root.key_lines == {"a": 1, "b": 2}
    items = root.value["b"].value
    assert [item.line for item in items] == [3, 4]
    assert items[1].key_lines == {"c": 4, "d": 5}


def test_an_alias_is_a_copy():
    root = read_text("a: &here {x: 1}\nb: *here\n", "x")
    root.value["b"].value["x"].value = 2
    assert plain(root) == {"a": {"x": 1}, "b": {"x": 2}}


def test_undefined_alias_is_reported():
    with pytest.raises(StudyError, match=r"^s.yaml:2: alias \*there is used before it is defined"):
        read_text("a: &here 1\nb: [*there, 2]\n", "s.yaml")


def test_all_duplicate_keys_and_tags_are_reported_at_once():
    with pytest.raises(StudyError) as caught:
        read_text("a: 1\na: 2\nb: !x 3\nc: {d: 1, d: 2}\n", "s.yaml")
    assert [mistake.line for mistake in caught.value.mistakes] == [2, 3, 4]
    assert str(caught.value).splitlines()[0] == (
        "s.yaml:2: key 'a' is given twice, first on line 1"
    )


def test_the_largest_file_is_read_and_one_byte_more_is_not(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text("a: 1\n#" + "x" * (MOST_BYTES - 6))
    assert plain(read_file(path, "large")) == {"a": 1}
    path.write_text("a: 1\n#" + "x" * (MOST_BYTES - 5))
    with pytest.raises(StudyError, match="larger than 256 KB"):
        read_file(path, "large")


def test_fifty_levels_are_read_and_one_more_is_not():
    assert read_text("[" * 50 + "]" * 50, "x").is_list
    with pytest.raises(StudyError, match="deeper than 50"):
        read_text("[" * 51 + "]" * 51, "x")


@pytest.mark.parametrize("name", ["missing.yaml", "", "a\x00b"])
def test_unreadable_file_is_a_study_error(tmp_path, name):
    with pytest.raises(StudyError):
        read_file(tmp_path / name, name)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_gives_nodes_or_study_error(text):
    try:
        plain(read_text(text, "x"))
    except StudyError as error:
        assert error.mistakes


_keys = st.text(max_size=12).filter(lambda key: key != "<<")
_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=12), _data, min_size=1, max_size=5))
@example({"<<": {"<<": None}})
def test_yaml_write_and_read_round_trip(data):
    assert repr(plain(read_text(to_yaml(data), "x"))) == repr(data)
