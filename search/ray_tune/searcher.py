"""Uses a Ray Tune searcher as the source of a study's trials, subject to the study's rules.

The default and the enqueued configurations come first, then the searcher's suggestions. A
suggestion that a rule forbids is reported to the searcher as an error, and a new one is requested.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ray.tune.search import Searcher  # pyright: ignore[reportMissingImports]

from ...spaces.space import Space
from ...spaces.via_optuna import from_internal
from ...store.codec import plain_json
from ...studies.spec import Study
from ..samplers.proposal_queue import Proposal, Proposer
from ..samplers.registry import Draw, PriorTrial
from .ray_trial import POINT


def point_of(trial: int, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial in Tune's form; the configuration is a string, so Tune does not change it."""
    return {"trial": trial, "params": json.dumps(plain_json(params))}


class _NotNow(Exception):
    """Raised if the searcher waits for a trial to end before it suggests another one."""


class _Suggested:
    """Presents a searcher as a sampler with one trial per batch; see `Sampler` and `Batch`."""

    def __init__(self, searcher: Searcher, space: Space):
        self._searcher, self._space = searcher, space
        self.last: str | None = None

    def begin(self, batch: int, history: Sequence[PriorTrial]) -> _Suggested:
        self.last = None
        return self

    def draw(self, trial: int, attempt: int) -> Draw | None:
        if self.last is not None:  # the previous suggestion was rejected
            self._searcher.on_trial_complete(self.last, error=True)
        self.last = None
        name = f"{trial}.{attempt}"
        found = self._searcher.suggest(name)
        if found is None:
            raise _NotNow
        if isinstance(found, str):  # the searcher has finished
            return None
        self.last = name
        return Draw(from_internal(self._space, found))

    def keep(self, trial: int, params: Mapping[str, Any]) -> None:
        """See `Batch`."""


class Suggestions:
    """Trials for Tune, one at a time."""

    def __init__(
        self,
        study: Study,
        searcher: Searcher,
        points: Sequence[dict[str, Any]],
        taken: Container[int],
    ):
        self.searcher = searcher
        self.ids: dict[str, str] = {}  # Tune's trial id -> the searcher's id of the suggestion
        self.exhausted = False  # whether there is nothing new to propose
        self._sampler = _Suggested(searcher, study.space)
        search = replace(study.search, random_share=0.0)  # Tune's searcher has its own
        self._proposer = Proposer(replace(study, enqueue=(), search=search), self._sampler)
        self._points = list(points)
        self._history = [
            PriorTrial(point["trial"], json.loads(point["params"])) for point in points
        ]
        first = 1 + len(study.enqueue)
        numbers = (n for n in range(first, study.budget.trials or 0) if n not in taken)
        self._numbers = deque(numbers)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next trial, `FINISHED` if there are no more, or None if there is none yet."""
        if self._points:
            return self._points.pop(0)
        found: Sequence[Proposal] = ()
        try:
            if self._numbers:
                first = self._numbers[0]
                found = self._proposer.propose(first, [first], self._history).found
        except _NotNow:
            return None
        if not found:
            self.exhausted = True
            return Searcher.FINISHED
        number = self._numbers.popleft()
        self._history.append(PriorTrial(number, found[0].params))
        if self._sampler.last is not None:
            self.ids[trial_id] = self._sampler.last
        return point_of(number, found[0].params)


SUGGESTIONS: dict[str, Suggestions] = {}
"""Name of an exchange -> suggestions; Tune holds only the name, as it may copy its objects."""


class RayProposals(Searcher):
    """Proposes the given points first, then the suggestions of a Ray Tune searcher."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """See `Searcher`; the wrapped searcher already has these properties."""
        self._metric, self._mode = metric, mode
        return True

    def suggest(self, trial_id: str) -> Any:
        point = SUGGESTIONS[self._name].suggest(trial_id)
        if point is None or isinstance(point, str):
            return point
        return {POINT: point}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        inner = SUGGESTIONS[self._name]
        if trial_id in inner.ids:
            inner.searcher.on_trial_result(inner.ids[trial_id], result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        inner = SUGGESTIONS[self._name]
        if trial_id in inner.ids:
            inner.searcher.on_trial_complete(inner.ids[trial_id], result, error)

    def save(self, checkpoint_path: str) -> None:
        """See `Searcher`; nothing to do, because a study is resumed from its store."""

    def restore(self, checkpoint_path: str) -> None:
        """See `Searcher`."""
