import pytest

from hpo.studies.study_values import count_of, number_of, seconds_of


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (5, 5),
        (5.0, 5),
        ("200M", 200_000_000),
        ("50k", 50_000),
        ("1.5M", 1_500_000),
        ("0.0001k", None),
        ("2G", 2_000_000_000),
        ("1.1k", 1100),
        (2.5, None),
        ("5", None),
        ("k", None),
        ("-1k", None),
        (True, None),
        (None, None),
        (float("nan"), None),
        (float("inf"), None),
        ("1e3k", None),
        ("9" * 40 + "k", None),
        ([1], None),
    ],
)
def test_counts_are_parsed(given, count):
    assert count_of(given) == count


def test_numbers_keep_their_type():
    assert number_of("50k") == 50_000
    assert isinstance(number_of("50k"), int)
    assert number_of("0.0001k") == pytest.approx(0.1)
    assert number_of("0.5") is None


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("2h", 7200.0),
        ("90s", 90.0),
        ("1d12h", 129600.0),
        ("1.5h", 5400.0),
        (30, 30.0),
        ("2h 30m", 9000.0),
        ("h", None),
        ("2 hours", None),
        ("", None),
        ("-2h", None),
    ],
)
def test_times_are_parsed(given, seconds):
    assert seconds_of(given) == seconds
