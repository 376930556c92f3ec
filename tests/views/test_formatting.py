import math

import pytest

from hpo.views.formatting import (
    Listing,
    aligned,
    between,
    duration,
    number,
    param,
    sparkline,
    steps,
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1k"),
        (999_400, "999k"),
        (999_600, "1M"),
        (264_000_000, "264M"),
        (999_700_000, "1G"),
        (5_000_000_000_000, "5,000G"),
    ],
)
def test_steps_round_up_into_the_next_unit(count, text):
    assert steps(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (3599.6, "1h00m"),
        (86_399.7, "1d00h"),
        (90_000, "1d01h"),
    ],
)
def test_durations_never_show_sixty_of_anything(seconds, text):
    assert duration(seconds) == text


def test_non_finite_numbers_are_formatted_as_nan_and_inf():
    assert number(math.nan) == "nan"
    assert number(-math.inf) == "-inf"
    assert between(1.0, None) == ""


def test_param_formatting_keeps_close_discounts_distinct():
    assert param(0.9987) != param(0.9991)
    assert param(True) == "true"
    assert param("tanh") == "tanh"


def test_sparkline_has_requested_width_and_handles_nan():
    assert sparkline([]) == ""
    assert sparkline([math.nan, None]) == "  "
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert len(sparkline(list(range(1000)), width=30)) == 30
    assert sparkline([0, 1], plain=True).isascii()
    rising = sparkline(list(range(64)), width=8)
    assert list(rising) == sorted(rising)
    assert sparkline([0.0, math.inf, 1.0]) == "▁ █"


def test_listing_aligns_and_leaves_no_blank_at_the_end():
    listing = Listing(("name", "n"), [["a", "10"], ["long name", "7"]], (False, True))
    assert listing.text().splitlines() == [
        "name        n",
        "---------  --",
        "a          10",
        "long name   7",
    ]
    assert aligned(("a",), [], (False,)) == "a\n-"
