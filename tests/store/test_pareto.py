import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.store.pareto import crowding, fronts, hypervolume, places, scores

points = st.lists(st.tuples(*[st.integers(0, 6).map(float)] * 3), max_size=14)


def dominates(a, b):
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b


def slow_fronts(rows):
    left, found, front = set(range(len(rows))), {}, 0
    while left:
        front += 1
        free = {i for i in left if not any(dominates(rows[j], rows[i]) for j in left)}
        found.update(dict.fromkeys(free, front))
        left -= free
    return [found[i] for i in range(len(rows))]


@given(points)
def test_fronts_equal_peeling_by_hand(rows):
    assert fronts(rows) == slow_fronts(rows)


@given(points)
def test_volume_equals_counting_unit_cubes(rows):
    side = range(7)
    cubes = sum(
        any(p[0] <= a and p[1] <= b and p[2] <= c for p in rows)
        for a in side
        for b in side
        for c in side
    )
    assert hypervolume(rows, (7.0, 7.0, 7.0)) == pytest.approx(cubes)


def test_hypervolume_of_a_staircase_front_is_exact():
    # [1, 4] x [3, 4] and [2, 4] x [2, 4] and [3, 4] x [1, 4]: 3 + 4 + 3 less the overlaps 2 + 2.
    assert hypervolume([(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], (4.0, 4.0)) == 6.0
    assert hypervolume([(5.0, 0.0), (math.nan, 1.0)], (4.0, 4.0)) == 0.0


def test_crowding_distance_is_the_normalised_neighbour_box():
    # Spans 4 and 4; the middle point lies between (0, 4) and (4, 0): 4/4 + 4/4.
    assert crowding([(0.0, 4.0), (1.0, 1.0), (4.0, 0.0)]) == [math.inf, 2.0, math.inf]
    # Second front alone: its ends are infinite; equal points count as one.
    assert crowding([(0.0, 0.0), (5.0, 5.0), (5.0, 5.0)]) == [math.inf] * 3


def test_places_put_feasible_points_first():
    rows = [(0.0, 0.0), (2.0, 2.0), (3.0, 3.0), (1.0, 1.0)]
    found = places(rows, [5.0, 0.0, 0.0, 0.5])
    order = sorted(range(4), key=lambda index: found[index].key)
    assert order == [1, 2, 3, 0]


@given(points)
def test_pareto_scores_sort_like_places(rows):
    found, numbers = places(rows), scores(rows)
    for i in range(len(rows)):
        for j in range(len(rows)):
            assert (numbers[i] < numbers[j]) == (found[i].key < found[j].key)
            assert rows[i] != rows[j] or numbers[i] == numbers[j]


def test_empty_fronts_have_no_places_or_volume():
    assert fronts([]) == crowding([]) == places([]) == [] and hypervolume([], (1.0,)) == 0.0
