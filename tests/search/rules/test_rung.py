"""A rung keeps its trials in order; rules judge by it as by a plain list."""

from __future__ import annotations

import hypothesis.strategies as some
import pytest
from hypothesis import given

from hpo.search.rules.registry import Judged, Rung, TrialAtRung, ordered, part_of
from hpo.search.rules.stopping import Asha, Hyperband, Median, Plateau, PromotingAsha

RULES = [Asha(2.0), PromotingAsha(3.0, 5), Hyperband(2.0, 3), Median(3), Plateau(1)]
LOSSES = some.lists(some.sampled_from([0.0, 1.0, 2.0, 3.0, float("inf")]), max_size=30)


def standings(losses):
    return [TrialAtRung(number, loss, (loss, loss)) for number, loss in enumerate(losses)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@given(losses=LOSSES, cut=some.integers(0, 30))
def test_rung_verdicts_equal_those_of_a_plain_list(rule, losses, cut):
    everyone, kept = standings(losses), Rung()
    for count in (cut // 2, cut):  # what is kept grows between two judgements
        for standing in everyone[len(kept) : count]:
            kept.add(standing)
        arriving = everyone[count:]
        plain = rule.judge(1, everyone[:count], arriving)
        assert rule.judge(1, Judged(kept), arriving) == plain


@given(losses=LOSSES, cut=some.integers(0, 30))
def test_order_place_and_rank(losses, cut):
    everyone = standings(losses)
    rung = Rung(everyone[:cut])
    for standing in everyone[cut:]:
        rung.add(standing)
    assert rung.order == sorted((one.loss, one.trial) for one in everyone)
    assert rung.order == ordered(everyone[:cut], everyone[cut:])
    for place, (loss, trial) in enumerate(rung.order):
        assert rung.place(trial) == place and rung.order_of(trial) == (loss, trial)
        assert rung.rank(loss) == 1 + sum(one.loss < loss for one in everyone)


@given(losses=LOSSES, cut=some.integers(0, 30))
def test_merged_standings_are_sorted(losses, cut):
    everyone = standings(losses)
    plain = ordered(everyone)
    merged = ordered(Judged(Rung(everyone[cut:])), everyone[:cut])
    assert [*merged] == plain and len(merged) == len(plain)
    assert [merged[place] for place in range(len(plain))] == plain
    assert merged[1:-1] == plain[1:-1] and (not plain or merged[-1] == plain[-1])


def test_rung_parts_include_later_trials():
    rung = Rung(standings([5.0, 4.0, 3.0]))

    def odd(trial: int) -> int:
        return trial % 2

    assert [one.trial for one in part_of(Judged(rung), odd, 0)] == [0, 2]
    rung.add(TrialAtRung(4, 1.0))
    assert [one.trial for one in part_of(Judged(rung), odd, 0)] == [0, 2, 4]
    assert [one.trial for one in part_of(list(Judged(rung)), odd, 0)] == [0, 2, 4]
