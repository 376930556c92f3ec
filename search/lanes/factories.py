"""The factory of lanes for each kind of algorithm, imported only when it is needed."""

from __future__ import annotations

from typing import Any

from ...studies.spec import Study


def factory_here(study: Study, *args: Any, **rest: Any) -> Any:
    """Create this process's factory for a study's algorithm; see `LocalFactory`."""
    if study.algorithm.is_ppo:
        from .local import LocalFactory

        return LocalFactory(study, *args, **rest)
    if study.algorithm.is_process:
        from .process_factory import ProcessFactory

        return ProcessFactory(study, *args, **rest)
    from .custom_training import TrainingFactory

    return TrainingFactory(study, *args, **rest)
