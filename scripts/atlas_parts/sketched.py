"""A simplified search by a rule over recorded curves: which trial wins for so many env steps.

There is one program, trials enter lanes in order, and all seeds of a trial run side by side. The
rule is the real one. Trials start until the env steps are used up, whereas the engine starts only
trials that can finish. `tests/test_atlas_sketch.py` switches that off and compares the winners.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpo.search.rules.registry import Pruner, TrialAtRung, is_audited, make_pruner
from hpo.studies.spec import Study


@dataclass(frozen=True)
class Curve:
    """One trial in the form used by a rule."""

    losses: tuple[float, ...]  # at each rung
    compared: float  # loss at the end over its seeds, used to compare trials
    final: float  # loss at the end over all recorded seeds
    # the same at each rung, for rules that end a trial with its value there
    at: tuple[float, ...] = ()
    # number of rungs that it passes before it diverges or fails; None: it does neither
    lost_at: int | None = None
    # its env steps at that time; None: those of the next rung, or of its end
    lost_after: int | None = None

    def passes(self, rung: int) -> bool:
        """Return whether it reaches a rung (after the last: its end) before it is lost."""
        return self.lost_at is None or rung < self.lost_at


def winners_of(
    study: Study,
    trials: Sequence[Curve],
    rungs: Sequence[int],
    length: int,
    lanes: int,
    budgets: Sequence[float],
) -> list[float | None]:
    """Return the loss over all recorded seeds of a simplified search's winner, per budget."""
    if study.seeds.racing is not None:
        raise ValueError("seeds that race are not sketched; see `racing`")
    slots = max(1, lanes // study.seeds.first)
    finished = _search(study, trials, rungs, length, slots, max(budgets))
    found = list[float | None]()
    for budget in budgets:
        # A search with a smaller budget is the same until its end.
        best = min((one for one in finished if one.spent <= budget), default=None)
        found.append(None if best is None else best.final)
    return found


class _Finished(NamedTuple):
    loss: float  # used to compare trials
    trial: int
    final: float  # loss over all recorded seeds
    spent: int  # env steps of the search at that time


def _search(
    study: Study,
    trials: Sequence[Curve],
    rungs: Sequence[int],
    length: int,
    slots: int,
    budget: float,
) -> list[_Finished]:
    pruner, early = make_pruner(study), study.early_terminate
    ahead = iter(range(len(trials)))
    # The next events: (env steps since the start, rung, trial); the end counts as a further rung.
    coming: list[tuple[int, int, int]] = []
    judged: dict[int, list[TrialAtRung]] = {}
    audited: set[int] = set()
    finished: list[_Finished] = []
    clock, spent = 0, 0

    def run(now: int, rung: int, number: int) -> None:
        """Run a trial that has passed some rungs to the next one, its end, or its loss."""
        since = rungs[rung - 1] if rung else 0
        until = rungs[rung] if rung < len(rungs) else length
        lost = trials[number].lost_after
        until = until if lost is None or trials[number].passes(rung) else max(since, lost)
        heapq.heappush(coming, (now + until - since, rung, number))

    def enter(now: int) -> None:
        number = next(ahead, None)
        if number is not None:
            run(now, 0, number)

    for _ in range(min(slots, len(trials))):
        enter(0)
    while coming:
        spent += (coming[0][0] - clock) * len(coming) * study.seeds.first
        clock = coming[0][0]
        if spent > budget:
            break
        now, rung, first = heapq.heappop(coming)
        arriving = [first]
        while coming and coming[0][:2] == (now, rung):
            arriving.append(heapq.heappop(coming)[2])
        sound = [n for n in arriving if trials[n].passes(rung)]
        ended = set(arriving) - set(sound)
        if rung == len(rungs):
            for number in sound:
                curve = trials[number]
                finished.append(_Finished(curve.compared, number, curve.final, spent))
                ended.add(number)
        elif pruner is not None:
            due = [number for number in sound if number not in audited]
            for number, how in _judged(pruner, judged, trials, rung, due).items():
                if early is not None and is_audited(study.seed, number, early.audit):
                    audited.add(number)
                    continue
                ended.add(number)
                if how:
                    curve = trials[number]
                    finished.append(_Finished(curve.losses[rung], number, curve.at[rung], spent))
        for number in arriving:
            if number in ended:
                enter(now)
            else:
                run(now, rung + 1, number)
    return finished


def _judged(
    pruner: Pruner,
    judged: dict[int, list[TrialAtRung]],
    trials: Sequence[Curve],
    rung: int,
    due: Sequence[int],
) -> Mapping[int, bool]:
    """Return the trials that stop at a rung, each with whether it ends with its value."""
    if not due:
        return {}
    before = judged.setdefault(rung, [])
    arriving = [TrialAtRung(n, trials[n].losses[rung], trials[n].losses[: rung + 1]) for n in due]
    verdicts = pruner.judge(rung, tuple(before), arriving)
    before += arriving
    return {n: verdict.finish for n, verdict in zip(due, verdicts, strict=True) if verdict.stop}
