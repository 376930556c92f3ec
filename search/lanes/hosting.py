"""Who steps a study's host environments: this process, or workers that know its own code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ...machine.worker import serve
from ...machine.workers import Workers
from ...studies.spec import Study
from ...studies.user_code import import_user_code
from ...via_gymnasium import facts_of

__all__ = ["serve_study", "worker_count", "workers_of"]

_LIGHT = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.", "gymnasium.envs.tabular.")
"""Where environments are defined of which a step costs less than telling another process."""
_STEP_SECONDS = 300.0
"""That a call of an environment may take: no step does, but making one may take minutes."""


def workers_of(study: Study, cores: int) -> Workers | None:
    """Return the workers that step a study's environments; None where this process does."""
    count = worker_count(study, cores)
    if count == 0:
        return None
    source = str(Path(study.source).resolve())
    asked = study.population.step_timeout
    return Workers(
        count,
        f"{__name__}:{serve_study.__name__}",
        [list(study.imports), source],
        limit=_STEP_SECONDS if asked is None else asked or math.inf,
    )


def worker_count(study: Study, cores: int) -> int:
    """Return how many workers a study has: as asked, else by what defines its environment.

    No result depends on it. A limit on steps needs them: a process cannot break off its own.
    """
    asked = study.population.workers
    if asked is not None:
        return asked
    if study.population.step_timeout:
        return cores
    light = f"{facts_of(study.env.id).module}.".startswith(_LIGHT)
    return 0 if light or cores < 2 else cores


def serve_study(descriptor: int, parent: int, imports: Sequence[str], source: str) -> None:
    """Be a worker: run the study's own code, which registers environments, then serve."""
    import_user_code(imports, source)
    serve(descriptor, parent)
