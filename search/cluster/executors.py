"""Where a study's populations live: on this machine's devices, or on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

from ...studies.buckets import words_of_bucket
from ...studies.check import spread_note
from ...studies.spec import Study
from ..lanes.compile_cache import enable_compilation_cache
from ..lanes.contract import PopulationFactory
from ..lanes.several import factories_of
from .local_share import local_shares
from .shared_factory import SharedFactory

__all__ = ["factory_of"]

_LETTERS = 22  # so that the line of a compile has 80
_MOST_HANDLES = 64  # processes of Ray Tune's that are expected at a time


@contextmanager
def factory_of(
    study: Study,
    compiling: Callable[[str], AbstractContextManager[object]] = nullcontext,
    warn: Callable[[str], None] = lambda text: None,
) -> Iterator[PopulationFactory]:
    """Yield the factory of a study's populations, usable while the context is open.

    What only imported code knows is checked by the default configuration, before anything is on
    disk.

    Args:
        study: its own code has been imported.
        compiling: entered around each compile, with words for it.
        warn: takes a line about environments, or about a worker that died; from any thread.

    Raises:
        HpoError: the study cannot run here, or there is no cluster.
    """
    config = study.default()
    with ExitStack() as opened:
        if study.search.driver == "ray_tune":  # before jax, whose threads a fork would not survive
            from .via_ray import connected

            handles = min(study.budget.trials or 1, _MOST_HANDLES) + study.executor.workers
            purpose = "search: {driver: ray_tune}"
            opened.enter_context(connected(study.executor, purpose, handles))
        yield opened.enter_context(_made(study, config, compiling, warn))


@contextmanager
def _made(
    study: Study,
    config: Mapping[str, Any],
    compiling: Callable[[str], AbstractContextManager[object]],
    warn: Callable[[str], None],
) -> Iterator[PopulationFactory]:
    if study.executor.type == "local":
        enable_compilation_cache()
        from ..lanes.local import LocalFactory

        local = factories_of(
            study, lambda one, of: LocalFactory(one, compiling, warn, environments=of)
        )
        local.check(local.resolve(config))
        yield local
        return
    with _on_cluster(study, compiling, warn) as shared:
        shared.check(shared.resolve(config))
        yield shared


@contextmanager
def _on_cluster(
    study: Study,
    compiling: Callable[[str], AbstractContextManager[object]],
    warn: Callable[[str], None],
) -> Iterator[SharedFactory]:
    from .via_ray import RayTeam, connected, place_of

    executor = study.executor
    with connected(executor, "executor: {type: ray}") as ray:
        place = place_of(ray, executor, study.population.device)
        if note := spread_note(study):
            warn(note)
        source = partial(local_shares, study, executor.workers, place.cpus)
        team = RayTeam(ray, executor.workers, place, source, warn)
        try:
            words = partial(words_of_bucket, study, most=_LETTERS)
            yield SharedFactory(team, team.begin(), compiling, words)
        finally:
            team.end()
