"""Completes a study's configurations and prepares them for lanes, each only once."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from ...store.codec import plain_json
from ...studies.spec import Study
from .contract import PopulationFactory, Resolved

_RECENT = 256


class Resolver:
    """Completes and resolves a study's configurations, each only once while it is in use.

    The same object is returned as long as it is referenced or among the most recent ones.
    """

    def __init__(self, study: Study, factory: PopulationFactory):
        self._study, self._factory = study, factory
        self._default = plain_json(study.space.default())
        self._known: WeakValueDictionary[str, Resolved] = WeakValueDictionary()
        self._recent: deque[Resolved] = deque(maxlen=_RECENT)

    def of(self, params: Mapping[str, Any]) -> Resolved:
        """Return the configuration for searched values (plain JSON), with the fixed ones added."""
        name = json.dumps(params, sort_keys=True)
        found = self._known.get(name)
        if found is None:
            if params == self._default:
                config = self._study.default()
            else:
                config = self._study.complete(params)
            found = self._factory.resolve(config)
            self._known[name] = found
        self.touch(found)
        return found

    def touch(self, resolved: Resolved) -> None:
        self._recent.append(resolved)

    def default(self) -> Resolved:
        return self.of(self._study.space.default())
