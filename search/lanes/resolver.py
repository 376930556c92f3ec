"""Each configuration of a study, made ready for lanes once."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from ...store.codec import plain_json
from ...studies.spec import Study
from .contract import PopulationFactory, Resolved

__all__ = ["Resolver"]

_RECENT = 256


class Resolver:
    """Completes the configurations of a study and resolves them, each once while it is in use.

    One that is asked for again is the same object as long as somebody holds it, or it is among
    the latest.

    Args:
        study: whose configurations.
        factory: resolves them.
    """

    def __init__(self, study: Study, factory: PopulationFactory):
        self._study, self._factory = study, factory
        self._default = plain_json(study.space.default())
        self._known: WeakValueDictionary[str, Resolved] = WeakValueDictionary()
        self._recent: deque[Resolved] = deque(maxlen=_RECENT)

    def of(self, params: Mapping[str, Any]) -> Resolved:
        """Return the configuration that some searched values make with what is fixed.

        Args:
            params: active searched knobs, plain JSON values.

        Raises:
            ConfigError: values contradict each other, or no program can run them.
        """
        name = json.dumps(params, sort_keys=True)
        found = self._known.get(name)
        if found is None:
            is_default = params == self._default
            found = self._factory.resolve(
                self._study.default() if is_default else self._study.complete(params)
            )
            self._known[name] = found
        self.touch(found)
        return found

    def touch(self, resolved: Resolved) -> None:
        """Count a configuration among the latest."""
        self._recent.append(resolved)

    def default(self) -> Resolved:
        """Return the default configuration.

        Raises:
            ConfigError: as of `of`.
        """
        return self.of(self._study.space.default())
